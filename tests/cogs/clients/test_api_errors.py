"""
Errors of the API: what is understood of the answers, and what is never shown.
"""

import datetime
import json

import pytest

from kopf._cogs.clients import errors

NOW = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def parse(code=404, body=b'', headers=None):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return errors.parse_answer(code, headers or {}, raw, now=NOW)


@pytest.mark.parametrize(
    'code, cls',
    [
        (302, errors.APIError),
        (400, errors.APIClientError),
        (401, errors.APIUnauthorizedError),
        (403, errors.APIForbiddenError),
        (404, errors.APINotFoundError),
        (409, errors.APIConflictError),
        (410, errors.APIGoneError),
        (418, errors.APIClientError),
        (422, errors.APIInvalidError),
        (429, errors.APITooManyRequestsError),
        (500, errors.APIServerError),
        (503, errors.APIUnavailableError),
        (504, errors.APIServerError),
    ],
)
def test_classes_of_errors_are_by_codes(code, cls):
    error = errors.build_error(errors.Refusal(code))

    assert type(error) is cls
    assert str(error) == f'HTTP {code}'


def test_status_of_the_api_is_understood():
    status = {
        'kind': 'Status',
        'code': 404,
        'reason': 'NotFound',
        'message': 'pods "x" not found',
        'details': {'name': 'x', 'kind': 'pods'},
    }

    error = errors.build_error(parse(body=status))

    assert (error.code, error.reason, error.message) == (404, 'NotFound', 'pods "x" not found')
    assert error.details == {'name': 'x', 'kind': 'pods'}
    assert error.retry_after is None
    assert str(error) == 'HTTP 404 NotFound: pods "x" not found'


@pytest.mark.parametrize(
    'status',
    [
        pytest.param({}, id='empty'),
        pytest.param({'code': 'x', 'reason': 1, 'message': {}, 'details': []}, id='wrong-types'),
        pytest.param({'details': {'retryAfterSeconds': 'x'}}, id='wrong-delay'),
        pytest.param({'details': {'retryAfterSeconds': -1}}, id='negative-delay'),
    ],
)
def test_odd_statuses_are_tolerated(status):
    assert str(parse(500, {'kind': 'Status', **status})) == 'HTTP 500'
    assert errors.parse_status(status).retry_after is None


def test_quoted_objects_are_not_shown():
    text = r'"" is invalid: patch: Invalid value: "{\"data\":{\"p\":\"planted\"},\"kind\":\"Secret\"}": illegal base64'

    refusal = errors.parse_status(
        {'kind': 'Status', 'code': 422, 'reason': 'Invalid', 'message': text}
    )

    assert (
        str(refusal)
        == 'HTTP 422 Invalid: "" is invalid: patch: Invalid value: {...}: illegal base64'
    )


def test_status_in_a_stream_has_its_own_code():
    refusal = errors.parse_status(
        {'kind': 'Status', 'code': 410, 'reason': 'Expired', 'message': 'too old'}
    )

    assert str(refusal) == 'HTTP 410 Expired: too old'


@pytest.mark.guarantee('NEW-158')
@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param(b'', 'HTTP 502', id='empty'),
        pytest.param(
            b'<html>Bad Gateway</html>\n', 'HTTP 502: <html>Bad Gateway</html>', id='text'
        ),
        pytest.param(b'x' * 1000, 'HTTP 502: ' + 'x' * 256, id='long-text'),
        pytest.param('я'.encode() * 1000, 'HTTP 502: ' + 'я' * 256, id='long-unicode'),
        pytest.param(b'\xff\xfe', 'HTTP 502: \ufffd\ufffd', id='no-text'),
        pytest.param({'password': 'x'}, 'HTTP 502', id='other-json'),
        pytest.param(['x'], 'HTTP 502', id='other-json-list'),
        pytest.param('x', 'HTTP 502', id='other-json-string'),
    ],
)
def test_only_the_beginning_of_texts_is_shown(body, expected):
    assert str(parse(502, body)) == expected


@pytest.mark.parametrize(
    'text',
    [
        'echo: Authorization: Bearer abc.def-123',
        "echo: {'authorization': 'bearer abc.def-123'}",
        'Basic abc.def-123',
    ],
)
def test_credentials_echoed_by_proxies_are_hidden(text):
    assert 'abc' not in str(parse(502, text.encode()))
    assert 'abc' not in str(parse(502, {'kind': 'Status', 'message': text}))


@pytest.mark.guarantee('NEW-150')
@pytest.mark.parametrize(
    'header, details, expected',
    [
        pytest.param(None, {}, None, id='none'),
        pytest.param('7', {}, 7.0, id='header'),
        pytest.param(None, {'retryAfterSeconds': 5}, 5.0, id='status'),
        pytest.param('7', {'retryAfterSeconds': 5}, 7.0, id='header-first'),
        pytest.param('junk', {'retryAfterSeconds': 5}, 5.0, id='wrong-header'),
        pytest.param('-7', {}, None, id='negative'),
        pytest.param('0', {}, None, id='zero'),
        pytest.param('9' * 1000, {}, None, id='absurd'),
        pytest.param('Wed, 02 Jan 2030 03:05:05 GMT', {}, 60.0, id='date'),
        pytest.param('Wed, 02 Jan 2030 03:05:05 -0000', {}, 60.0, id='date-without-timezone'),
        pytest.param('Wed, 02 Jan 2030 03:03:05 GMT', {}, None, id='past-date'),
    ],
)
def test_server_tells_when_to_come_again(header, details, expected):
    headers = {} if header is None else {'Retry-After': header}

    refusal = parse(429, {'kind': 'Status', 'details': details}, headers)

    assert refusal.retry_after == expected
