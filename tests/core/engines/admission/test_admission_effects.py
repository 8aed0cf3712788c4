"""
Reviewers: what becomes of what the handlers do: of their errors, warnings and patches.
"""

import asyncio
import datetime
import warnings as stdlib_warnings

import pytest
from admitting import Office, build_object, read_patch

import kopf


@pytest.fixture
def office():
    return Office()


def allow(**_):
    pass


@pytest.mark.guarantee('ADM-027', 'ADM-007', 'ADM-059')
@pytest.mark.parametrize('version', ['v1', 'v1beta1'])
async def test_silent_handlers_allow(office, version):
    @office.validate()
    async def fn(**_):
        await asyncio.sleep(0)

    office.validate()(allow)
    response = await office.review(version=version)

    assert response == {
        'apiVersion': f'admission.k8s.io/{version}',
        'kind': 'AdmissionReview',
        'response': {'uid': 'request-uid', 'allowed': True},
    }


@pytest.mark.guarantee('ADM-035', 'ADM-036', 'ADM-024')
@pytest.mark.parametrize(
    'error, message, code',
    [
        pytest.param(kopf.AdmissionError('no', code=499), 'no', 499, id='admission'),
        pytest.param(kopf.PermanentError('no'), 'no', 500, id='permanent'),
        pytest.param(kopf.TemporaryError('no', delay=1), 'no', 500, id='temporary'),
        pytest.param(ValueError('no'), 'no', 500, id='arbitrary'),
        pytest.param(TimeoutError(), 'TimeoutError', 500, id='timeout'),
    ],
)
@pytest.mark.parametrize('kind', ['validate', 'mutate'])
async def test_errors_deny_after_one_attempt(office, virtual_time, kind, error, message, code):
    calls = []

    @getattr(office, kind)()
    def fn(patch, **_):
        calls.append(1)
        patch.spec['x'] = 1
        raise error

    response = await office.review()

    assert response['response'] == {
        'uid': 'request-uid',
        'allowed': False,
        'status': {'message': message, 'code': code},
    }
    assert len(calls) == 1
    assert virtual_time.elapsed == 0


@pytest.mark.guarantee('ADM-037', 'ADM-038')
async def test_one_error_of_many_is_reported(office):
    errors = [
        ValueError('v'),
        kopf.TemporaryError('t'),
        kopf.AdmissionError('a', code=400),
        kopf.PermanentError('p'),
    ]
    for number, error in enumerate(errors):

        @office.validate(id=f'fn{number}', param=error)
        def fn(param, **_):
            raise param

    response = await office.review()

    assert response['response']['status'] == {'message': 'a', 'code': 400}


@pytest.mark.guarantee('ADM-018')
async def test_errors_in_filters_deny(office, caplog):
    @office.validate(id='one', when=lambda **_: 1 / 0)
    def fn(**_):
        raise AssertionError('It is not to be called.')

    response = await office.review()

    assert response['response']['status'] == {'message': 'division by zero', 'code': 500}
    assert "Handler 'one' failed in its filters." in caplog.messages


@pytest.mark.guarantee('ADM-016', 'FND-057')
@pytest.mark.parametrize(
    'error',
    [
        pytest.param(kopf.PermanentError('no'), id='permanent'),
        pytest.param(kopf.TemporaryError('no'), id='temporary'),
        pytest.param(ValueError('no'), id='arbitrary'),
        pytest.param(TimeoutError('no'), id='timeout'),
    ],
)
async def test_ignored_failures_only_warn(office, error):
    @office.mutate(id='one', ignore_failures=True)
    def fn(patch, warnings, **_):
        patch.spec['x'] = 1
        warnings.append('own')
        raise error

    response = await office.review()

    assert response['response'] == {
        'uid': 'request-uid',
        'allowed': True,
        'warnings': ['own', "Handler 'one' failed, and is ignored: no"],
    }


class OwnError(kopf.AdmissionError):
    pass


@pytest.mark.guarantee('FND-057')
@pytest.mark.parametrize('ignore_failures', [True, False, None])
@pytest.mark.parametrize(
    'error',
    [
        pytest.param(kopf.AdmissionError('no', code=403), id='itself'),
        pytest.param(OwnError('no', code=403), id='inherited'),
        pytest.param(
            ExceptionGroup(
                'several', [ValueError(), ExceptionGroup('', [OwnError('no', code=403)])]
            ),
            id='group',
        ),
    ],
)
async def test_decisions_are_never_ignored(office, error, ignore_failures):
    @office.mutate(id='one', ignore_failures=ignore_failures)
    def fn(patch, warnings, **_):
        patch.spec['x'] = 1
        warnings.append('own')
        raise error

    response = await office.review()

    assert response['response'] == {
        'uid': 'request-uid',
        'allowed': False,
        'warnings': ['own'],
        'status': {'message': 'no', 'code': 403},
    }


@pytest.mark.guarantee('FND-057')
async def test_decisions_in_filters_and_patches_are_never_ignored(office):
    def deny(*_, **__):
        raise kopf.AdmissionError('no', code=403)

    office.validate(id='one', ignore_failures=True, when=deny)(allow)
    office.mutate(id='two', ignore_failures=True)(lambda patch, **_: patch.fns.append(deny))

    for id in ['one', 'two']:
        response = await office.review(webhook=id)
        assert response['response'] == {
            'uid': 'request-uid',
            'allowed': False,
            'status': {'message': 'no', 'code': 403},
        }


@pytest.mark.guarantee('ADM-016', 'FND-057')
async def test_failures_of_others_are_not_ignored(office):
    @office.validate(id='one', ignore_failures=True)
    def one(**_):
        raise kopf.PermanentError('one')

    @office.validate(id='two')
    def two(**_):
        raise ValueError('two')

    response = await office.review()

    assert response['response']['status'] == {'message': 'two', 'code': 500}
    assert response['response']['warnings'] == ["Handler 'one' failed, and is ignored: one"]


@pytest.mark.guarantee('FND-057', 'ADM-038')
async def test_decisions_win_over_failures_of_others(office):
    @office.validate(id='one')
    def one(**_):
        raise kopf.PermanentError('one')

    @office.validate(id='two', ignore_failures=True)
    def two(**_):
        raise kopf.AdmissionError('two', code=403)

    response = await office.review()

    assert response['response']['status'] == {'message': 'two', 'code': 403}


@pytest.mark.guarantee('ADM-032', 'KWA-047')
async def test_warnings_of_all_handlers_are_returned_in_order(office):
    @office.validate()
    async def one(warnings, **_):
        assert warnings == []
        await asyncio.sleep(0.01)
        warnings.append('one')

    @office.validate()
    async def two(warnings, **_):
        assert warnings == []
        warnings.extend(['two', 'three'])

    response = await office.review()

    assert response['response'] == {
        'uid': 'request-uid',
        'allowed': True,
        'warnings': ['one', 'two', 'three'],
    }


@pytest.mark.guarantee('ADM-033')
async def test_warnings_of_python_are_not_returned(office):
    @office.validate()
    def fn(**_):
        with pytest.warns(UserWarning):
            stdlib_warnings.warn('python', UserWarning, stacklevel=1)

    response = await office.review()

    assert response['response'] == {'uid': 'request-uid', 'allowed': True}


@pytest.mark.guarantee('ADM-028', 'ADM-029', 'ADM-030', 'NEW-076')
async def test_patches_are_returned_to_the_api(office):
    @office.mutate()
    def fn(patch, **_):
        patch.spec['numbers'] = [1, 2, 3]
        patch.spec['field'] = None
        patch.metadata.annotations['a/b'] = 'c'
        patch.fns.append(lambda body: body['spec']['numbers'].append(4))

    response = await office.review()

    assert read_patch(response) == [
        {'op': 'add', 'path': '/metadata/annotations', 'value': {'a/b': 'c'}},
        {'op': 'remove', 'path': '/spec/field'},
        {'op': 'add', 'path': '/spec/numbers', 'value': [1, 2, 3, 4]},
    ]


@pytest.mark.guarantee('ADM-028', 'KWA-021')
async def test_bodies_cannot_be_changed(office):
    @office.mutate()
    def fn(body, spec, **_):
        for part in (body, spec):
            with pytest.raises(TypeError):
                part['x'] = 1

    response = await office.review()

    assert response['response'] == {'uid': 'request-uid', 'allowed': True}


@pytest.mark.guarantee('WLD-005')
async def test_what_is_changed_in_the_body_in_place_is_returned_if_it_is_put_to_the_patch(office):
    @office.mutate()
    def fn(body, spec, patch, **_):
        spec['list'].append(3)
        body['spec']['dict']['b'] = 2
        patch.spec['list'] = spec['list']
        patch.spec['dict'] = body['spec']['dict']

    response = await office.review(build_object(spec={'list': [1, 2], 'dict': {'a': 1}}))

    assert read_patch(response) == [
        {'op': 'replace', 'path': '/spec/list', 'value': [1, 2, 3]},
        {'op': 'add', 'path': '/spec/dict/b', 'value': 2},
    ]


@pytest.mark.guarantee('WLD-005')
async def test_what_is_changed_in_the_body_in_place_is_not_returned_otherwise(office):
    @office.mutate()
    def fn(spec, patch, **_):
        spec['list'].append(3)
        patch.spec['x'] = 1

    response = await office.review(build_object(spec={'list': [1, 2]}))

    assert read_patch(response) == [{'op': 'add', 'path': '/spec/x', 'value': 1}]


@pytest.mark.guarantee('ADM-022')
async def test_patches_of_several_handlers_are_united_but_not_seen_by_each_other(office):
    @office.mutate()
    async def one(patch, spec, **_):
        patch.spec['x'] = patch.spec['y'] = 1
        await asyncio.sleep(0.01)
        assert dict(patch.spec) == {'x': 1, 'y': 1}

    @office.mutate()
    async def two(patch, spec, **_):
        assert not patch
        patch.spec['y'] = 2
        patch.fns.append(lambda body: body['spec'].update(z=3))

    response = await office.review(build_object(spec={}))

    assert read_patch(response) == [
        {'op': 'add', 'path': '/spec/x', 'value': 1},
        {'op': 'add', 'path': '/spec/y', 'value': 2},
        {'op': 'add', 'path': '/spec/z', 'value': 3},
    ]


async def test_patches_of_validating_handlers_are_ignored(office, caplog):
    @office.validate(id='one')
    def fn(patch, **_):
        patch.spec['x'] = 1

    response = await office.review()

    assert response['response'] == {'uid': 'request-uid', 'allowed': True}
    assert (
        "Handler 'one' has a patch, which is ignored: it only validates; use @kopf.on.mutate."
        in caplog.messages
    )


async def test_patches_of_validating_handlers_are_ignored_beside_those_of_mutating_ones(office):
    @office.validate(id='one')
    def one(patch, **_):
        patch.spec['x'] = 1

    @office.mutate(id='two')
    def two(patch, **_):
        patch.spec['y'] = 2

    response = await office.review()

    assert read_patch(response) == [{'op': 'add', 'path': '/spec/y', 'value': 2}]


async def test_patches_of_deleted_objects_are_ignored(office, caplog):
    @office.mutate(id='one', operations=['DELETE'])
    def fn(patch, **_):
        patch.spec['x'] = 1

    response = await office.review(None, build_object('u'))

    assert response['response'] == {'uid': 'request-uid', 'allowed': True}
    assert (
        "Handler 'one' has a patch, which is ignored: the object is being deleted."
        in caplog.messages
    )


@pytest.mark.parametrize(
    'patch',
    [
        pytest.param(kopf.Patch({'spec': {'x': datetime.datetime.now()}}), id='value'),
        pytest.param(kopf.Patch(fns=[lambda body: 1 / 0]), id='function'),
    ],
)
async def test_wrong_patches_deny(office, caplog, patch):
    @office.mutate(id='one', param=patch)
    def fn(patch, param, **_):
        patch.update(param)
        patch.fns.extend(param.fns)

    response = await office.review()

    assert response['response']['allowed'] is False
    assert response['response']['status']['code'] == 500
    assert "Handler 'one' failed in its patch." in caplog.messages
