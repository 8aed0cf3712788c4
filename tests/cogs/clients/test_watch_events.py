"""
Signals: what the lines and errors of watch-streams mean, and what differs in listings.
"""

import json

import pytest

from kopf._cogs.clients import errors, retries
from kopf._cogs.clients.watching import watch_events
from kopf._cogs.structs import references

RESOURCE = references.Resource('kopf.dev', 'v1', 'kopfexamples', kind='KopfExample')


def build_body(name='a', version='1', uid='', **metadata):
    return {
        'metadata': {
            'name': name,
            'namespace': 'ns',
            'uid': uid or f'uid-{name}',
            'resourceVersion': version,
            **metadata,
        }
    }


def remember(*bodies):
    return dict(map(watch_events.identify, bodies))


def summarize(changes):
    return [(change.event['type'], change.event['object']['metadata']['uid']) for change in changes]


@pytest.mark.parametrize(
    'failures, chance, expected',
    [
        (1, 0.0, 0.8),
        (2, 0.0, 1.6),
        (3, 0.0, 3.2),
        (4, 0.0, 6.4),
        (5, 0.0, 12.8),
        (6, 0.0, 25.6),
        (7, 0.0, 30.0),
        (8, 0.0, 30.0),
        (10_000_000, 0.0, 30.0),
        (0, 0.0, 0.8),
        (1, 1.0, 1.2),
        (1, 0.5, 1.0),
        (9, 1.0, 45.0),
    ],
)
def test_backoffs_are_doubled_up_to_the_limit_and_prolonged_at_random(failures, chance, expected):
    assert retries.choose_backoff(failures, chance) == pytest.approx(expected)


@pytest.mark.parametrize('type', ['ADDED', 'MODIFIED'])
def test_events_are_changes_to_remember(type):
    line = json.dumps(
        {'type': type, 'object': build_body(version='5', managedFields=[{'manager': 'x'}])}
    ).encode()

    signal = watch_events.classify_line(line)

    assert signal.event == {'type': type, 'object': build_body(version='5')}
    assert (signal.key, signal.seen, signal.version) == (('ns', 'a'), ('uid-a', '5'), '5')


def test_deletions_are_changes_to_forget():
    line = json.dumps({'type': 'DELETED', 'object': build_body(version='5')}).encode()

    signal = watch_events.classify_line(line)

    assert (signal.key, signal.seen, signal.version) == (('ns', 'a'), None, '5')


@pytest.mark.parametrize(
    'body, version',
    [
        ({'metadata': {'resourceVersion': '7'}}, '7'),
        ({'metadata': {}}, ''),
        ({}, ''),
        ({'metadata': None}, ''),
    ],
    ids=str,
)
def test_bookmarks_have_versions_if_any(body, version):
    line = json.dumps({'type': 'BOOKMARK', 'object': body}).encode()

    assert watch_events.classify_line(line) == watch_events.Bookmark(version)


def test_unknown_types_are_oddities():
    assert watch_events.classify_line(b'{"type": "MOVED", "object": {}}') == watch_events.Oddity(
        'MOVED'
    )


@pytest.mark.parametrize(
    'code, cls',
    [
        (410, errors.APIGoneError),
        (500, errors.APIServerError),
        (401, errors.APIUnauthorizedError),
        (429, errors.APITooManyRequestsError),
        (None, errors.APIError),
        ('x', errors.APIError),
    ],
)
def test_errors_are_of_their_codes(code, cls):
    line = json.dumps(
        {'type': 'ERROR', 'object': {'kind': 'Status', 'code': code, 'message': 'why'}}
    ).encode()

    signal = watch_events.classify_line(line)

    assert isinstance(signal, cls)
    assert 'why' in str(signal)


@pytest.mark.parametrize(
    'line',
    [
        b'',
        b'{',
        b'null',
        b'[]',
        b'5',
        b'"text"',
        b'{}',
        b'{"type": "ADDED"}',
        b'{"type": null, "object": {}}',
        b'{"type": "ADDED", "object": []}',
        b'{"type": "ADDED", "object": {}}',
        b'{"type": 1, "object": {}}',
        b'{"type": "ADDED", "object": {"metadata": []}}',
        b'{"type": "DELETED", "object": {"metadata": {"name": 1}}}',
        b'\xff\xfe',
        b'{"type": "ERROR", "object": "text"}',
        b'<html>',
        b'[' * 100_000,
    ],
    ids=lambda line: repr(line[:60]),
)
def test_nonsense_is_garbled(line):
    assert isinstance(watch_events.classify_line(line), errors.APIGarbledError)


FUTURE = {
    'causes': [{'reason': 'ResourceVersionTooLarge', 'message': 'Too large resource version'}]
}


@pytest.mark.parametrize(
    'error, expected',
    [
        (errors.build_error(errors.Refusal(410)), watch_events.Trouble.EXPIRED),
        (errors.build_error(errors.Refusal(400)), watch_events.Trouble.EXPIRED),
        (errors.build_error(errors.Refusal(422)), watch_events.Trouble.EXPIRED),
        (errors.build_error(errors.Refusal(504, details=FUTURE)), watch_events.Trouble.EXPIRED),
        (
            errors.build_error(errors.Refusal(504, details={'causes': 'text'})),
            watch_events.Trouble.FAILURE,
        ),
        (
            errors.build_error(errors.Refusal(504, details={'causes': [None]})),
            watch_events.Trouble.FAILURE,
        ),
        *[
            (errors.build_error(errors.Refusal(code)), watch_events.Trouble.FAILURE)
            for code in (0, 401, 403, 404, 409, 429, 500, 503, 504)
        ],
        (errors.APISilenceError(''), watch_events.Trouble.FAILURE),
        (errors.APIGarbledError(''), watch_events.Trouble.FAILURE),
        (OSError(), watch_events.Trouble.FAILURE),
    ],
    ids=repr,
)
def test_errors_are_either_of_versions_or_of_anything_else(error, expected):
    assert watch_events.classify_error(error) is expected


OLD, NEW, OTHER = (
    build_body(version='1'),
    build_body(version='2'),
    build_body(version='2', uid='uid-x'),
)


@pytest.mark.parametrize(
    'known, items, is_initial, expected',
    [
        pytest.param([], [OLD], True, [(None, 'uid-a')], id='initial'),
        pytest.param([OLD], [OLD], True, [], id='initial-repeated'),
        pytest.param([OLD], [NEW], True, [(None, 'uid-a')], id='initial-repeated-changed'),
        pytest.param([], [OLD], False, [('ADDED', 'uid-a')], id='added'),
        pytest.param([OLD], [OLD], False, [], id='unchanged'),
        pytest.param([OLD], [NEW], False, [('MODIFIED', 'uid-a')], id='modified'),
        pytest.param(
            [OLD], [OTHER], False, [('DELETED', 'uid-a'), ('ADDED', 'uid-x')], id='recreated'
        ),
        pytest.param(
            [OLD], [OTHER], True, [('DELETED', 'uid-a'), (None, 'uid-x')], id='initial-recreated'
        ),
        pytest.param([OLD], [], False, [], id='absent'),
        pytest.param(
            [build_body(version='')],
            [build_body(version='')],
            False,
            [('MODIFIED', 'uid-a')],
            id='versionless',
        ),
    ],
)
def test_listing_is_compared_with_the_known(known, items, is_initial, expected):
    changes = watch_events.compare_listing(
        remember(*known), items, is_initial=is_initial, resource=RESOURCE
    )

    assert summarize(changes) == expected


def test_vanished_objects_are_deleted_with_minimal_bodies():
    known = remember(build_body('a'), build_body('b'), {'metadata': {'name': 'c', 'uid': 'uid-c'}})

    changes = watch_events.detect_vanished(known, {watch_events.Key('ns', 'a')}, RESOURCE)

    assert [change.event for change in changes] == [
        {
            'type': 'DELETED',
            'object': {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'metadata': {'name': 'b', 'namespace': 'ns', 'uid': 'uid-b'},
            },
        },
        {
            'type': 'DELETED',
            'object': {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'metadata': {'name': 'c', 'uid': 'uid-c'},
            },
        },
    ]
    assert all(change.seen is None and not change.version for change in changes)
