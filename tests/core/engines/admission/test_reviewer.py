"""
Reviewers: which handlers are called for a review, what they are told, and how they are called.
"""

import asyncio
import json
import logging
import threading

import pytest
from admitting import KEX, PODS, Office, build_object

import kopf
from kopf._cogs.structs import references, reviews


@pytest.fixture
def office():
    return Office()


def allow(**_):
    pass


@pytest.mark.guarantee('ADM-021')
@pytest.mark.parametrize(
    'webhook, expected',
    [
        pytest.param('one', ['one'], id='id'),
        pytest.param('/one/', ['one'], id='slashes'),
        pytest.param('two/spec.field', ['two'], id='field'),
    ],
)
async def test_request_to_an_endpoint_calls_only_its_handler(office, webhook, expected):
    calls = []
    office.validate(id='one')(lambda **_: calls.append('one'))
    office.validate(id='two', field='spec.field')(lambda **_: calls.append('two'))
    office.mutate(id='three')(lambda **_: calls.append('three'))

    await office.review(webhook=webhook)

    assert calls == expected


@pytest.mark.guarantee('ADM-023', 'ADM-058', 'ADM-090')
@pytest.mark.parametrize('webhook', [None, '', '/'])
async def test_request_to_no_endpoint_calls_all_handlers(office, webhook):
    calls = []
    office.validate(id='one')(lambda **_: calls.append('one'))
    office.mutate(id='two')(lambda **_: calls.append('two'))
    office.validate('pods', id='three')(lambda **_: calls.append('three'))
    office.validate(id='four', operations=['DELETE'])(lambda **_: calls.append('four'))

    response = await office.review(webhook=webhook)

    assert sorted(calls) == ['one', 'two']
    assert response['response']['allowed'] is True


@pytest.mark.guarantee('FND-025')
@pytest.mark.parametrize('resource', [KEX, PODS], ids=['served', 'not-served'])
async def test_request_to_an_unknown_endpoint_is_admitted_with_warnings(office, caplog, resource):
    @office.validate(id='one')
    def deny(**_):
        raise kopf.AdmissionError('It is called, although another one is asked.')

    response = await office.review(webhook='unknown/one', resource=resource)

    assert response['response'] == {
        'uid': 'request-uid',
        'allowed': True,
        'warnings': [
            "There is no admission handler 'unknown/one' in the operator, so the request is admitted."
        ],
    }
    assert [record.levelname for record in caplog.records] == ['WARNING']
    assert "no admission handler 'unknown/one'" in caplog.text


@pytest.mark.guarantee('FND-025')
async def test_unknown_endpoints_are_not_shown_at_any_length(office, caplog):
    response = await office.review(webhook='x' * 10_000 + '\n')

    assert len(response['response']['warnings'][0]) < 256
    assert len(caplog.messages[0]) < 300


async def test_request_to_an_unknown_endpoint_is_refused_if_malformed(office):
    with pytest.raises(reviews.ReviewRefused) as info:
        await office.reviewer.review({'request': {'uid': 'x'}}, webhook='unknown')

    assert info.value.code == 400


@pytest.mark.guarantee('NEW-231')
async def test_request_to_a_resource_that_is_not_served_is_refused(office):
    office.validate(id='one')(allow)

    with pytest.raises(reviews.ReviewRefused, match='resource is not served') as info:
        await office.review(webhook='one', resource=PODS)

    assert info.value.code == 404


@pytest.mark.guarantee('NEW-231')
async def test_malformed_request_is_refused(office):
    office.validate(id='one')(allow)

    with pytest.raises(reviews.ReviewRefused) as info:
        await office.reviewer.review({'request': {'uid': 'x'}})

    assert info.value.code == 400


async def test_request_nested_too_deeply_is_refused(office):
    office.mutate(id='one')(allow)
    nested = []
    for _ in range(5000):
        nested = [nested]

    with pytest.raises(reviews.ReviewRefused, match='nested too deeply') as info:
        await office.review(build_object(spec={'x': nested}))

    assert info.value.code == 400


@pytest.mark.guarantee('ADM-018')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'labels': {'a': 'other'}}, id='labels'),
        pytest.param(
            {'labels': {'a': lambda value, **_: value == 'other'}}, id='labels-by-function'
        ),
        pytest.param({'annotations': {'a': kopf.PRESENT}}, id='annotations'),
        pytest.param({'when': lambda **_: False}, id='when'),
        pytest.param({'field': 'spec.absent'}, id='field'),
        pytest.param({'field': 'spec.field', 'value': 2}, id='value'),
        pytest.param({'operations': ['DELETE']}, id='operations'),
        pytest.param({'subresource': 'status'}, id='subresource'),
    ],
)
async def test_mismatching_objects_are_admitted(office, options):
    @office.validate(id='one', **options)
    def deny(**_):
        raise kopf.AdmissionError('It is called, although it does not match.')

    [webhook] = [webhook.id for webhook in office.reviewer.webhooks]
    response = await office.review(build_object(metadata={'labels': {'a': 'b'}}), webhook=webhook)

    assert response['response'] == {'uid': 'request-uid', 'allowed': True}


@pytest.mark.guarantee('ADM-018', 'ADM-020')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'labels': {'a': 'b'}}, id='labels'),
        pytest.param({'labels': {'a': lambda value, **_: value == 'b'}}, id='labels-by-function'),
        pytest.param(
            {'when': lambda dryrun, operation, headers, old, **_: operation == 'CREATE'}, id='when'
        ),
        pytest.param({'field': 'spec.field', 'value': 1}, id='value'),
    ],
)
async def test_matching_objects_are_reviewed(office, options):
    @office.validate(**options)
    def deny(**_):
        raise kopf.AdmissionError('It is called.')

    response = await office.review(build_object(metadata={'labels': {'a': 'b'}}))

    assert response['response']['allowed'] is False


@pytest.mark.guarantee('ADM-014', 'ADM-010', 'KWA-046')
@pytest.mark.parametrize(
    'declared, asked, expected',
    [
        pytest.param(None, None, [None], id='main-of-main'),
        pytest.param(None, 'status', [], id='main-of-status'),
        pytest.param('status', None, [], id='status-of-main'),
        pytest.param('status', 'status', ['status'], id='status-of-status'),
        pytest.param('status', 'scale', [], id='status-of-scale'),
        pytest.param('*', None, [None], id='all-of-main'),
        pytest.param('*', 'scale', ['scale'], id='all-of-scale'),
    ],
)
async def test_subresources_are_reviewed_as_declared(office, declared, asked, expected):
    calls = []
    office.validate(subresource=declared)(lambda subresource, **_: calls.append(subresource))

    await office.review(subResource=asked)

    assert calls == expected


@pytest.mark.guarantee('ADM-012', 'ADM-013')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, ['CREATE', 'UPDATE', 'DELETE', 'CONNECT'], id='default'),
        pytest.param({'operations': ['*']}, ['CREATE', 'UPDATE', 'DELETE', 'CONNECT'], id='all'),
        pytest.param({'operations': ['CREATE', 'DELETE']}, ['CREATE', 'DELETE'], id='some'),
    ],
)
async def test_operations_are_reviewed_as_declared(office, options, expected):
    calls = []
    office.validate(**options)(lambda operation, **_: calls.append(operation))

    for operation in ['CREATE', 'UPDATE', 'DELETE', 'CONNECT']:
        await office.review(operation=operation)

    assert calls == expected


@pytest.mark.guarantee('FND-022')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, ['CREATE', 'UPDATE', 'CONNECT'], id='default'),
        pytest.param({'operations': ['*']}, ['CREATE', 'UPDATE', 'DELETE', 'CONNECT'], id='all'),
        pytest.param({'operations': ['DELETE']}, ['DELETE'], id='deletions'),
        pytest.param({'operations': ['CREATE']}, ['CREATE'], id='creations'),
    ],
)
@pytest.mark.parametrize('webhook', ['fn', None], ids=['its-own', 'all-webhooks'])
async def test_deletions_are_mutated_only_if_asked_for(office, webhook, options, expected):
    calls = []
    office.mutate(id='fn', **options)(lambda operation, **_: calls.append(operation))

    for operation in ['CREATE', 'UPDATE', 'DELETE', 'CONNECT']:
        response = await office.review(operation=operation, webhook=webhook)
        assert response['response'] == {'uid': 'request-uid', 'allowed': True}

    assert calls == expected


@pytest.mark.guarantee('ADM-012')
@pytest.mark.parametrize(
    'operation, expected', [('DELETE', ['DELETE']), ('*', ['CREATE', 'DELETE'])]
)
async def test_single_operation_can_be_declared(office, operation, expected):
    calls = []
    with pytest.warns(DeprecationWarning):
        office.validate(operation=operation)(lambda operation, **_: calls.append(operation))

    for asked in ['CREATE', 'DELETE']:
        await office.review(operation=asked)

    assert calls == expected


@pytest.mark.guarantee('ADM-013')
async def test_stacked_decorators_call_the_function_once_per_request(office):
    calls = []

    def fn(operation, param, **_):
        calls.append((operation, param))

    inner = office.validate(operations=['UPDATE'], param=2, id='fn')
    office.validate(operations=['CREATE'], param=1, id='fn')(inner(fn))
    await office.review(webhook='fn')
    await office.review(build_object('u'), build_object('u'), webhook='fn')

    assert calls == [('CREATE', 1), ('UPDATE', 2)]


@pytest.mark.guarantee(
    'ADM-008',
    'KWA-011',
    'KWA-045',
    'KWA-047',
    'KWA-048',
    'KWA-049',
    'NEW-046',
    'ADM-011',
    'ADM-055',
    'KWA-007',
)
async def test_handlers_are_told_everything(office):
    calls = []
    office.validate(param='param')(lambda **kwargs: calls.append(kwargs))
    old, new = build_object('uid'), build_object('uid', spec={'field': 2})

    await office.review(
        new, old, dryRun=True, headers={'Authorization': 'Basic xyz'}, sslpeer={'subject': 'x'}
    )

    [kwargs] = calls
    assert kwargs.keys() == {
        'param',
        'retry',
        'started',
        'runtime',
        'logger',
        'memo',
        'resource',
        'patch',
        'body',
        'spec',
        'status',
        'meta',
        'labels',
        'annotations',
        'uid',
        'name',
        'namespace',
        'old',
        'new',
        'diff',
        'dryrun',
        'operation',
        'subresource',
        'warnings',
        'userinfo',
        'headers',
        'sslpeer',
        'index',
    }
    assert (kwargs['name'], kwargs['namespace'], kwargs['uid'], kwargs['spec']) == (
        'x',
        'ns',
        'uid',
        {'field': 2},
    )
    assert kwargs['dryrun'] is True
    assert (kwargs['operation'], kwargs['subresource'], kwargs['param']) == (
        'UPDATE',
        None,
        'param',
    )
    assert kwargs['userinfo'] == {'username': 'user', 'uid': 'user-uid', 'groups': ['group']}
    assert kwargs['headers'] == {'Authorization': 'Basic xyz'}
    assert kwargs['sslpeer'] == {'subject': 'x'}
    assert kwargs['warnings'] == []
    assert (kwargs['old'], kwargs['new'], kwargs['body']) == (old, new, new)
    assert kwargs['diff'] == (('change', ('spec', 'field'), 1, 2),)
    assert kwargs['resource'] is KEX
    assert kwargs['index'] == 'an index'
    assert isinstance(kwargs['patch'], kopf.Patch)
    assert isinstance(kwargs['body'], kopf.Body)


@pytest.mark.guarantee('NEW-045', 'KWA-050', 'ADM-056', 'ADM-090', 'ADM-054')
async def test_what_the_server_does_not_tell_is_empty(office):
    calls = []
    office.validate()(lambda headers, sslpeer, **_: calls.append((headers, sslpeer)))

    await office.review()

    assert calls == [({}, {})]
    assert [type(value) for value in calls[0]] == [dict, dict]


@pytest.mark.guarantee('NEW-046', 'ADM-060')
@pytest.mark.parametrize(
    'old, new, diff',
    [
        pytest.param(None, build_object(), [('add', (), None, build_object())], id='creation'),
        pytest.param(
            build_object('u'), None, [('remove', (), build_object('u'), None)], id='deletion'
        ),
    ],
)
async def test_absent_objects_are_nothing(office, old, new, diff):
    calls = []
    office.validate()(lambda old, new, diff, body, **_: calls.append((old, new, diff, body)))

    await office.review(new, old)

    assert calls == [(old, new, tuple(diff), new or old)]


@pytest.mark.guarantee('FND-024', 'NEW-046')
@pytest.mark.parametrize('decorator', ['validate', 'mutate'])
async def test_fields_of_handlers_are_only_filters(office, decorator):
    calls = []

    def see(old, new, diff, **_):
        calls.append((old, new, diff))
        return True

    getattr(office, decorator)(field='spec.field', when=see)(see)
    old, new = build_object('u', spec={'field': 1}), build_object('u', spec={'field': 2})
    others = build_object('u', spec={'other': 1}), build_object('u', spec={'other': 2})

    await office.review(new, old)
    await office.review(*others)

    assert calls == [(old, new, (('change', ('spec', 'field'), 1, 2),))] * 2


@pytest.mark.parametrize('dryrun, expected', [(True, True), (False, False), (None, False)])
@pytest.mark.guarantee('ADM-009', 'KWA-045')
async def test_dry_runs_are_told(office, dryrun, expected):
    calls = []
    office.validate()(lambda dryrun, **_: calls.append(dryrun))

    await office.review(dryRun=dryrun)

    assert calls == [expected]


@pytest.mark.guarantee('ADM-025', 'ADM-026', 'MEM-015')
async def test_memos_are_those_of_the_objects_unless_created(office):
    memos = []
    known = office.memos.by_uids['uid'] = kopf.Memo()
    office.validate()(lambda memo, **_: memos.append(memo))

    await office.review(build_object('uid'), build_object('uid'))
    await office.review(None, build_object('uid'))
    await office.review(build_object('uid'))
    await office.review(build_object('uid'))

    assert memos[0] is memos[1] is known
    assert memos[2] is not memos[3]
    assert memos[2] == memos[3] == {'common': True}


@pytest.mark.parametrize(
    'options, is_posted',
    [
        pytest.param({}, False, id='creation'),
        pytest.param({'old': build_object('u')}, True, id='update'),
        pytest.param({'old': build_object('u'), 'dryRun': True}, False, id='dry-run'),
    ],
)
async def test_nothing_is_posted_of_objects_that_do_not_exist(office, options, is_posted):
    calls = []
    office.validate()(lambda logger, **_: calls.append(isinstance(logger, kopf.LocalObjectLogger)))

    await office.review(build_object('u'), **options)

    assert calls == [not is_posted]


@pytest.mark.guarantee('ADM-022')
async def test_requests_are_reviewed_at_once(office):
    barrier = asyncio.Barrier(10)

    @office.validate()
    async def fn(**_):
        await barrier.wait()

    responses = await asyncio.gather(*(office.review() for _ in range(10)))

    assert all(response['response']['allowed'] for response in responses)


@pytest.mark.guarantee('ADM-022', 'ADM-023')
async def test_handlers_of_one_request_are_called_at_once(office):
    barrier = asyncio.Barrier(2)

    async def fn(**_):
        await barrier.wait()

    office.validate(id='one')(fn)
    office.validate(id='two')(fn)

    assert (await office.review())['response']['allowed'] is True


async def test_functions_in_threads_do_not_block_others(office):
    is_released = threading.Event()
    office.validate(id='slow')(lambda **_: is_released.wait())
    office.validate(id='fast')(allow)

    slow = asyncio.create_task(office.review(webhook='slow'))
    response = await office.review(webhook='fast')
    is_released.set()

    assert response['response']['allowed'] is True
    assert (await slow)['response']['allowed'] is True


@pytest.mark.parametrize('number', [1, 2])
async def test_cancelled_reviews_cancel_their_handlers(office, number):
    calls = []

    async def fn(**_):
        calls.append('started')
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append('cancelled')
            raise

    for id in range(number):
        office.validate(id=f'fn{id}')(fn)
    task = asyncio.create_task(office.review())
    while len(calls) < number:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert calls == ['started'] * number + ['cancelled'] * number


async def test_attempts_are_counted(office):
    office.validate(id='one')(allow)

    await office.review()

    assert office.meter.attempts['one'].outcomes == {'succeeded': 1}


async def test_reviews_wait_until_the_operator_is_ready(virtual_time):
    is_ready = []
    office = Office(is_ready=lambda: bool(is_ready))
    office.validate()(allow)

    task = asyncio.create_task(office.review())
    await asyncio.sleep(5)
    is_waiting = not task.done()
    is_ready.append(True)
    response = await task

    assert is_waiting
    assert response['response']['allowed'] is True


async def test_reviews_do_not_wait_for_ever(virtual_time):
    office = Office(is_ready=lambda: False)
    office.validate()(allow)

    with pytest.raises(reviews.ReviewRefused, match='not ready') as info:
        await office.review()

    assert info.value.code == 503
    assert virtual_time.elapsed < 10


async def test_handlers_declared_later_are_called_too(office):
    office.validate(id='one')(allow)
    await office.review(webhook='one')
    office.validate(id='two')(allow)

    response = await office.review(webhook='two')

    assert response['response']['allowed'] is True


async def test_responses_are_serialisable(office):
    @office.mutate()
    def fn(patch, warnings, **_):
        patch.spec['x'] = (1, 2)
        warnings.append(ValueError('text'))

    response = await office.review()

    assert json.loads(json.dumps(response)) == response


async def test_nothing_sent_is_logged(office, caplog):
    caplog.set_level(logging.DEBUG)

    @office.validate(id='fn')
    def fn(**_):
        raise kopf.AdmissionError('Denied.')

    secret = build_object(kind='Secret', data={'password': 'planted-secret'})
    await office.review(
        secret, headers={'Authorization': 'planted-token'}, userInfo={'username': 'planted-user'}
    )
    with pytest.raises(reviews.ReviewRefused):
        await office.review(secret, operation='planted-operation')
    with pytest.raises(reviews.ReviewRefused):
        await office.review(secret, resource=references.Resource('planted-group', 'v1', 'x'))

    assert "Handler 'fn' failed permanently: Denied." in caplog.messages
    assert 'planted' not in caplog.text
    assert not any('planted' in str(vars(record)) for record in caplog.records)
