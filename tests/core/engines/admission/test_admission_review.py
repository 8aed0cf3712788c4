"""
Reviews: what they ask about, what is wrong with them, and how they are answered.
"""

import base64
import copy
import datetime
import json

import pytest

import kopf
from kopf._cogs.structs import references, reviews
from kopf._core.engines.admission import admission_review

OBJECT = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'metadata': {'name': 'x', 'namespace': 'ns'},
}
REVIEW = {
    'apiVersion': 'admission.k8s.io/v1',
    'kind': 'AdmissionReview',
    'request': {
        'uid': '1ca13837',
        'kind': {'group': 'kopf.dev', 'version': 'v1', 'kind': 'KopfExample'},
        'resource': {'group': 'kopf.dev', 'version': 'v1', 'resource': 'kopfexamples'},
        'name': 'x',
        'namespace': 'ns',
        'operation': 'CREATE',
        'userInfo': {'username': 'admin', 'uid': 'u', 'groups': ['g'], 'extra': {'k': ['v']}},
        'object': OBJECT,
        'oldObject': None,
        'dryRun': True,
    },
}


def change(path, value):
    """Make a review with one field changed, or removed."""
    review = copy.deepcopy(REVIEW)
    *parents, last = path.split('.')
    target = review
    for key in parents:
        target = target.setdefault(key, {})
    if value is ...:
        target.pop(last, None)
    else:
        target[last] = value
    return review


@pytest.mark.guarantee('ADM-060', 'ADM-009', 'KWA-045', 'KWA-048')
def test_review_of_the_documentation_is_understood():
    question = admission_review.parse_review(REVIEW)

    assert question.uid == '1ca13837'
    assert question.api_version == 'admission.k8s.io/v1'
    assert question.resource == references.Resource('kopf.dev', 'v1', 'kopfexamples')
    assert (question.operation, question.subresource, question.is_dryrun) == ('CREATE', None, True)
    assert question.userinfo == {
        'username': 'admin',
        'uid': 'u',
        'groups': ['g'],
        'extra': {'k': ['v']},
    }
    assert (question.old, question.new, question.body) == (None, OBJECT, OBJECT)


@pytest.mark.parametrize(
    'path, value, field, expected',
    [
        pytest.param(
            'apiVersion',
            'admission.k8s.io/v1beta1',
            'api_version',
            'admission.k8s.io/v1beta1',
            id='old-version',
        ),
        pytest.param('apiVersion', ..., 'api_version', 'admission.k8s.io/v1', id='no-version'),
        pytest.param('kind', ..., 'uid', '1ca13837', id='no-kind'),
        pytest.param(
            'request.resource.group',
            ...,
            'resource',
            references.Resource('', 'v1', 'kopfexamples'),
            id='core-group',
        ),
        pytest.param(
            'request.resource.group',
            '',
            'resource',
            references.Resource('', 'v1', 'kopfexamples'),
            id='empty-group',
        ),
        pytest.param('request.subResource', 'status', 'subresource', 'status', id='subresource'),
        pytest.param('request.subResource', '', 'subresource', None, id='empty-subresource'),
        pytest.param('request.subResource', None, 'subresource', None, id='null-subresource'),
        pytest.param('request.operation', ..., 'operation', None, id='no-operation'),
        pytest.param('request.operation', 'CONNECT', 'operation', 'CONNECT', id='operation'),
        pytest.param('request.dryRun', ..., 'is_dryrun', False, id='no-dryrun'),
        pytest.param('request.dryRun', False, 'is_dryrun', False, id='false-dryrun'),
        pytest.param('request.userInfo', ..., 'userinfo', {}, id='no-userinfo'),
        pytest.param('request.object', None, 'body', {}, id='no-object'),
        pytest.param(
            'request.object.metadata',
            None,
            'body',
            {**OBJECT, 'metadata': None},
            id='null-metadata',
        ),
        pytest.param('request.unknown', object, 'uid', '1ca13837', id='unknown-field'),
    ],
)
def test_optional_fields_have_their_defaults(path, value, field, expected):
    assert getattr(admission_review.parse_review(change(path, value)), field) == expected


@pytest.mark.guarantee('KWA-046', 'ADM-010')
def test_old_object_stands_for_the_deleted_one():
    review = change('request.object', None)
    review['request'].update(operation='DELETE', oldObject=OBJECT)

    question = admission_review.parse_review(review)

    assert (question.new, question.old, question.body) == (None, OBJECT, OBJECT)
    assert question.is_about_existing


@pytest.mark.guarantee('NEW-231')
@pytest.mark.parametrize('review', [None, [], 'text', 5, True, b'bytes'], ids=repr)
def test_other_values_are_not_reviews(review):
    with pytest.raises(reviews.ReviewRefused, match='review is not an object') as info:
        admission_review.parse_review(review)

    assert info.value.code == 400


@pytest.mark.guarantee('NEW-231')
@pytest.mark.parametrize(
    'path, value, message',
    [
        ('kind', 'Pod', 'kind of the review is not AdmissionReview'),
        ('kind', 5, 'kind of the review is not a string'),
        (
            'apiVersion',
            'admission.k8s.io/v2',
            'apiVersion of the review is not admission.k8s.io/v1 or',
        ),
        ('apiVersion', [], 'apiVersion of the review is not a string'),
        ('request', ..., 'no request in the review'),
        ('request', None, 'no request in the review'),
        ('request', {}, 'no request in the review'),
        ('request', 'text', 'request of the review is not an object'),
        ('request', [], 'request of the review is not an object'),
        ('request.uid', ..., 'no request.uid in the review'),
        ('request.uid', '', 'no request.uid in the review'),
        ('request.uid', 5, 'request.uid of the review is not a string'),
        ('request.resource', ..., 'no request.resource in the review'),
        ('request.resource', 'pods', 'request.resource of the review is not an object'),
        ('request.resource.group', 5, 'request.resource.group of the review is not a string'),
        ('request.resource.version', ..., 'no request.resource.version in the review'),
        ('request.resource.resource', ..., 'no request.resource.resource in the review'),
        (
            'request.resource.resource',
            ['x'],
            'request.resource.resource of the review is not a string',
        ),
        ('request.subResource', 5, 'request.subResource of the review is not a string'),
        ('request.operation', 'PATCH', 'request.operation of the review is not CREATE or'),
        ('request.operation', ['CREATE'], 'request.operation of the review is not a string'),
        ('request.dryRun', 'yes', 'request.dryRun of the review is not true or false'),
        ('request.dryRun', 1, 'request.dryRun of the review is not true or false'),
        ('request.userInfo', 'admin', 'request.userInfo of the review is not an object'),
        ('request.object', 'text', 'request.object of the review is not an object'),
        ('request.oldObject', [], 'request.oldObject of the review is not an object'),
        ('request.object.kind', 5, 'request.object.kind of the review is not a string'),
        (
            'request.object.metadata',
            'text',
            'request.object.metadata of the review is not an object',
        ),
        (
            'request.object.metadata.uid',
            5,
            'request.object.metadata.uid of the review is not a string',
        ),
        (
            'request.object.metadata.name',
            {},
            'request.object.metadata.name of the review is not a string',
        ),
        (
            'request.object.metadata.labels',
            [],
            'request.object.metadata.labels of the review is not an object',
        ),
        (
            'request.object.metadata.annotations',
            'x',
            'request.object.metadata.annotations of the review is not an object',
        ),
    ],
)
def test_malformed_fields_are_named(path, value, message):
    with pytest.raises(reviews.ReviewRefused) as info:
        admission_review.parse_review(change(path, value))

    assert info.value.code == 400
    assert message in str(info.value)


def test_refusals_do_not_repeat_what_was_sent():
    with pytest.raises(reviews.ReviewRefused) as info:
        admission_review.parse_review(change('request.operation', 'planted-secret'))

    assert 'planted-secret' not in str(info.value)


def test_objects_and_users_are_not_shown():
    question = admission_review.parse_review(
        change('request.object.data', {'password': 'planted-secret'})
    )

    assert 'planted-secret' not in repr(question)
    assert 'admin' not in repr(question)


@pytest.fixture(params=['v1', 'v1beta1'])
def question(request):
    return admission_review.parse_review(change('apiVersion', f'admission.k8s.io/{request.param}'))


@pytest.mark.guarantee('ADM-059', 'ADM-027', 'ADM-089')
def test_nothing_wrong_means_that_it_is_allowed(question):
    response = admission_review.build_response(question, admission_review.Verdict())

    assert response == {
        'apiVersion': question.api_version,
        'kind': 'AdmissionReview',
        'response': {'uid': '1ca13837', 'allowed': True},
    }


@pytest.mark.guarantee('ADM-032', 'ADM-059')
def test_warnings_are_listed_as_texts(question):
    response = admission_review.build_response(
        question, admission_review.Verdict(warnings=['one', 2, ValueError('three')])
    )

    assert response['response'] == {
        'uid': '1ca13837',
        'allowed': True,
        'warnings': ['one', '2', 'three'],
    }


@pytest.mark.parametrize(
    'warning, expected',
    [
        pytest.param('two\nlines', 'two lines', id='line-break'),
        pytest.param('two\r\n\tlines', 'two lines', id='several'),
        pytest.param('es\x1b[0mcape\x85', 'es [0mcape ', id='controls'),
        pytest.param('naïve “ok” \U0001f600', 'naïve “ok” \U0001f600', id='unicode'),
        pytest.param('x' * 5000, 'x' * 5000, id='long'),
    ],
)
def test_warnings_have_no_characters_for_which_the_api_would_drop_them(question, warning, expected):
    response = admission_review.build_response(
        question, admission_review.Verdict(warnings=[warning])
    )

    assert response['response']['warnings'] == [expected]


@pytest.mark.guarantee('ADM-035', 'ADM-036', 'ADM-034')
@pytest.mark.parametrize(
    'error, message, code',
    [
        pytest.param(kopf.AdmissionError('text', code=499), 'text', 499, id='message-and-code'),
        pytest.param(kopf.AdmissionError('text', code=10**12), 'text', 500, id='too-big-code'),
        pytest.param(kopf.AdmissionError('text', code=-1), 'text', 500, id='negative-code'),
        pytest.param(kopf.AdmissionError('text'), 'text', 500, id='message'),
        pytest.param(kopf.AdmissionError(), '', 500, id='nothing'),
        pytest.param(kopf.AdmissionError(None, None), '', 500, id='nulls'),
        pytest.param(kopf.PermanentError('text'), 'text', 500, id='permanent'),
        pytest.param(kopf.TemporaryError('text', delay=5), 'text', 500, id='temporary'),
        pytest.param(ValueError('text'), 'text', 500, id='arbitrary'),
        pytest.param(ValueError(), 'ValueError', 500, id='arbitrary-with-no-text'),
    ],
)
def test_errors_deny_the_request(question, error, message, code):
    response = admission_review.build_response(
        question, admission_review.Verdict(error, ['warning'], b'[]')
    )

    assert response['response'] == {
        'uid': '1ca13837',
        'allowed': False,
        'warnings': ['warning'],
        'status': {'message': message, 'code': code},
    }


@pytest.mark.guarantee('ADM-034')
def test_admission_errors_are_permanent_errors():
    error = kopf.AdmissionError('text', 400)

    assert isinstance(error, kopf.PermanentError)
    assert (str(error), error.code) == ('text', 400)


@pytest.mark.guarantee('ADM-037', 'ADM-038')
@pytest.mark.parametrize(
    'errors, expected',
    [
        pytest.param([], None, id='none'),
        pytest.param([ValueError('v')], 'v', id='one'),
        pytest.param(
            [
                ValueError('v'),
                kopf.TemporaryError('t'),
                kopf.PermanentError('p'),
                kopf.AdmissionError('a'),
            ],
            'a',
            id='admission',
        ),
        pytest.param(
            [ValueError('v'), kopf.TemporaryError('t'), kopf.PermanentError('p')],
            'p',
            id='permanent',
        ),
        pytest.param([ValueError('v'), kopf.TemporaryError('t')], 't', id='temporary'),
        pytest.param([kopf.AdmissionError('1'), kopf.AdmissionError('2')], '1', id='same-kind'),
    ],
)
def test_most_specific_error_is_reported(errors, expected):
    error = admission_review.choose_error(errors)

    assert (None if error is None else str(error)) == expected


BODY = {'metadata': {'name': 'x', 'annotations': {'a/b~c': '1'}}, 'spec': {'list': [1], 'old': 1}}


def mutate(body):
    body.setdefault('spec', {})['made'] = True


@pytest.mark.guarantee('ADM-028', 'ADM-029', 'ADM-030', 'NEW-076')
@pytest.mark.parametrize(
    'before, patch, expected',
    [
        pytest.param(
            BODY,
            kopf.Patch({'spec': {'numbers': [1, 2]}}),
            [{'op': 'add', 'path': '/spec/numbers', 'value': [1, 2]}],
            id='added',
        ),
        pytest.param(
            {},
            kopf.Patch({'spec': {'numbers': [1, 2]}}),
            [{'op': 'add', 'path': '/spec', 'value': {'numbers': [1, 2]}}],
            id='added-with-parents',
        ),
        pytest.param(
            BODY,
            kopf.Patch({'spec': {'list': [2]}}),
            [{'op': 'replace', 'path': '/spec/list', 'value': [2]}],
            id='replaced',
        ),
        pytest.param(
            BODY,
            kopf.Patch({'spec': {'old': None}}),
            [{'op': 'remove', 'path': '/spec/old'}],
            id='removed',
        ),
        pytest.param(BODY, kopf.Patch({'spec': {'absent': None}}), None, id='removed-before'),
        pytest.param(BODY, kopf.Patch({'spec': {'old': 1}}), None, id='same'),
        pytest.param(
            BODY,
            kopf.Patch({'metadata': {'annotations': {'a/b~c': '2'}}}),
            [{'op': 'replace', 'path': '/metadata/annotations/a~1b~0c', 'value': '2'}],
            id='escaped',
        ),
        pytest.param(
            BODY,
            kopf.Patch(fns=[mutate]),
            [{'op': 'add', 'path': '/spec/made', 'value': True}],
            id='function',
        ),
        pytest.param(
            {},
            kopf.Patch({'spec': {'x': 1}}, fns=[mutate]),
            [{'op': 'add', 'path': '/spec', 'value': {'x': 1, 'made': True}}],
            id='function-after-merge',
        ),
    ],
)
def test_patches_are_put_as_json_patches(before, patch, expected):
    original = copy.deepcopy(before)

    encoded = admission_review.encode_patch(before, admission_review.apply_patch(patch, before))

    assert (None if encoded is None else json.loads(encoded)) == expected
    assert before == original


def test_patches_are_returned_in_base64(question):
    response = admission_review.build_response(
        question, admission_review.Verdict(patch=b'[{"op":"remove","path":"/spec"}]')
    )

    assert response['response']['patchType'] == 'JSONPatch'
    assert base64.b64decode(response['response']['patch']) == b'[{"op":"remove","path":"/spec"}]'


def test_values_that_json_does_not_have_are_refused():
    after = admission_review.apply_patch(kopf.Patch({'spec': {'x': datetime.datetime.now()}}), {})

    with pytest.raises(TypeError):
        admission_review.encode_patch({}, after)
