"""
Deletion: objects with deletion handlers wait for them, and for nothing else of ours.
"""

import asyncio

import pytest
from clusters import FINALIZER, get_finalizers, get_last_handled, get_progress, wait_until

import kopf

FOREIGN = 'example.com/foreign'


@pytest.mark.guarantee('HND-035', 'CFG-055', 'TRB-003')
async def test_the_finalizer_is_there_before_any_handler_of_changes_is_called(
    cluster, registry, run_operator, calls
):
    async def fn(meta, reason, **_):
        calls.append((str(reason), meta.get('finalizers')))

    for decorator in [kopf.on.create, kopf.on.update, kopf.on.resume, kopf.on.delete]:
        decorator('kopfexamples', id=decorator.__name__, registry=registry)(fn)
    await cluster.create('old')
    await run_operator()
    await cluster.wait_until_handled('old')
    await cluster.create('new')
    await cluster.wait_until_handled('new')
    await cluster.patch({'metadata': {'finalizers': []}, 'spec': {'x': 2}}, 'new')
    await cluster.wait_until_handled('new', x=2)

    assert [reason for reason, _ in calls] == ['create', 'create', 'create', 'update']
    assert [finalizers for _, finalizers in calls] == [[FINALIZER]] * 4


@pytest.mark.guarantee('HND-034', 'HND-035', 'HND-036', 'CFG-056')
async def test_an_object_stays_until_all_its_deletion_handlers_are_finished_in_any_way(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def retried_fn(retry, **_):
        assert await cluster.find() is not None
        calls.append(('retried', retry))
        if retry < 2:
            raise kopf.TemporaryError('not yet', delay=10)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def failing_fn(retry, **_):
        calls.append(('failing', retry))
        raise kopf.PermanentError('never')

    await run_operator()
    await cluster.create()
    await cluster.wait(get_finalizers)
    await cluster.delete()
    body = await cluster.wait(lambda body: len(get_progress(body)) >= 2)
    assert get_finalizers(body) == [FINALIZER]
    await cluster.wait(lambda body: body is None)

    assert sorted(calls) == [('failing', 0), ('retried', 0), ('retried', 1), ('retried', 2)]


@pytest.mark.guarantee('HND-034', 'HND-036', 'NEW-083', 'NEW-086', 'WLD-011')
async def test_foreign_finalizers_stay_and_nobody_is_called_again_because_of_them(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(retry, **_):
        calls.append(retry)
        if not retry:
            raise kopf.TemporaryError('not yet', delay=10)

    await run_operator()
    await cluster.create(finalizers=['example.com/first', FOREIGN])
    await cluster.wait(lambda body: FINALIZER in get_finalizers(body))
    await cluster.delete()
    body = await cluster.wait(lambda body: FINALIZER not in get_finalizers(body))
    assert get_finalizers(body) == ['example.com/first', FOREIGN]
    assert get_progress(body) == {}

    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(600)  # of the virtual time
    assert get_finalizers(await cluster.get()) == ['example.com/first', FOREIGN]
    await cluster.patch({'metadata': {'finalizers': None}})
    await cluster.wait(lambda body: body is None)
    assert calls == [0, 1]


@pytest.mark.guarantee('HND-037', 'CFG-055')
async def test_optional_deletion_handlers_do_not_hold_objects(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', optional=True, registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(meta, **_):
        calls.append(meta.get('finalizers'))

    operator = await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()
    assert get_finalizers(body) == []

    await operator.stop()
    await cluster.delete()
    assert await cluster.find() is None
    assert calls == [None]


@pytest.mark.guarantee('HND-037')
async def test_optional_deletion_handlers_are_called_if_others_hold_the_object(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', optional=True, registry=registry)
    async def optional_fn(**_):
        calls.append('optional')

    @kopf.on.delete('kopfexamples', registry=registry)
    async def mandatory_fn(**_):
        calls.append('mandatory')

    await run_operator()
    await cluster.create()
    await cluster.wait(get_finalizers)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert sorted(calls) == ['mandatory', 'optional']


@pytest.mark.guarantee('HND-035', 'CFG-055', 'CFG-056')
async def test_the_finalizer_comes_and_goes_as_objects_begin_and_cease_to_match(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', labels={'held': 'yes'}, registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(meta, labels, **_):
        calls.append((labels['held'], meta.get('finalizers', [])))

    await run_operator()
    await cluster.create(labels={'held': 'no'})
    body = await cluster.wait_until_handled()
    assert get_finalizers(body) == []

    await cluster.patch({'metadata': {'labels': {'held': 'yes'}}})
    await cluster.wait(lambda body: get_last_handled(body)['metadata']['labels'] == {'held': 'yes'})
    await cluster.patch({'metadata': {'labels': {'held': 'no'}}})
    await cluster.wait(lambda body: get_finalizers(body) == [])
    await cluster.delete()
    assert await cluster.find() is None
    assert calls[:2] == [('no', []), ('yes', [FINALIZER])]
    assert 'delete' not in calls


@pytest.mark.guarantee('CFG-056')
async def test_a_held_object_that_ceases_to_match_during_the_downtime_is_released_when_deleted(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', labels={'held': 'yes'}, registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    operator = await run_operator()
    await cluster.create(labels={'held': 'yes'})
    await cluster.wait(get_finalizers)
    await operator.stop()
    await cluster.patch({'metadata': {'labels': {'held': 'no'}}})
    await cluster.delete()
    assert await cluster.find() is not None
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == []


@pytest.mark.guarantee('HND-034')
async def test_deletion_ends_the_creation_that_is_in_progress(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')
        raise kopf.TemporaryError('not yet', delay=10)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(retry, reason, **_):
        calls.append((str(reason), retry))
        if not retry:
            raise kopf.TemporaryError('not yet', delay=30)

    await run_operator()
    await cluster.create()
    await cluster.wait(get_progress)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['create', ('delete', 0), ('delete', 1)]


@pytest.mark.guarantee('HND-034', 'KWA-013')
async def test_a_function_of_creation_and_deletion_is_counted_anew_for_the_deletion(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def fn(retry, reason, **_):
        calls.append((str(reason), retry))
        if reason == 'create' or not retry:
            raise kopf.TemporaryError('not yet', delay=10)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)
    await cluster.wait(lambda body: '"retries":2' in str(get_progress(body)))
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == [('create', 0), ('create', 1), ('delete', 0), ('delete', 1)]


@pytest.mark.guarantee('HND-032', 'MEM-003')
async def test_an_object_created_anew_under_the_same_name_is_another_one(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def fn(reason, uid, **_):
        calls.append((str(reason), uid))

    await run_operator()
    uids = []
    for _ in range(2):
        body = await cluster.create()
        uids.append(body['metadata']['uid'])
        await cluster.wait_until_handled()
        await cluster.delete()
        await cluster.wait(lambda body: body is None)

    assert calls == [(reason, uid) for uid in uids for reason in ('create', 'delete')]


@pytest.mark.guarantee('HND-032', 'HND-043')
async def test_objects_that_are_being_deleted_and_not_held_by_us_are_left_alone(
    cluster, registry, run_operator, calls
):
    for decorator in [kopf.on.create, kopf.on.update, kopf.on.resume, kopf.on.delete]:

        @decorator('kopfexamples', id=decorator.__name__, registry=registry)
        async def fn(reason, **_):
            calls.append(str(reason))

    await cluster.create(finalizers=[FOREIGN])
    await cluster.delete()
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(600)  # of the virtual time

    assert calls == []
    assert cluster.writes == []


@pytest.mark.guarantee('HND-034', 'KWA-009')
async def test_deletion_handlers_can_see_the_changes_that_were_not_handled_before(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(old, new, diff, spec, **_):
        calls.append((old['spec'], new['spec'], dict(spec), tuple(diff)))

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await operator.stop()
    await cluster.patch({'spec': {'x': 2}})
    await cluster.delete()
    assert get_last_handled(await cluster.get())['spec'] == {'x': 1}
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == [({'x': 1}, {'x': 2}, {'x': 2}, (('change', ('spec', 'x'), 1, 2),))]


@pytest.mark.guarantee('TRB-002')
async def test_an_object_released_by_hand_is_forgotten_in_peace(
    cluster, registry, run_operator, calls, logs
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('delete')
        await asyncio.sleep(30)
        raise kopf.TemporaryError('not yet', delay=10)

    await run_operator()
    await cluster.create()
    await cluster.wait(get_finalizers)
    await cluster.delete()
    await wait_until(lambda: calls)
    await cluster.patch({'metadata': {'finalizers': []}})
    assert await cluster.find() is None
    await asyncio.sleep(600)  # of the virtual time

    assert calls == ['delete']
    assert not [text for text in logs() if 'handling of the object has failed' in text]


@pytest.mark.guarantee('FLT-029')
@pytest.mark.parametrize(
    'when',
    [
        pytest.param(lambda memo, **_: 'made' in memo, id='memo-of-creation'),
        pytest.param(lambda memo, **_: 'seen' in memo, id='memo-of-events'),
        pytest.param(lambda old, **_: old is not None, id='old-state'),
    ],
)
@pytest.mark.parametrize('has_events', [True, False], ids=['with-events', 'with-no-events'])
async def test_objects_are_held_as_soon_as_handlers_of_deletion_want_it_by_anything_but_the_object(
    cluster, registry, run_operator, calls, when, has_events
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(memo, **_):
        memo['made'] = True
        if not has_events:
            memo['seen'] = True

    if has_events:

        @kopf.on.event('kopfexamples', registry=registry)
        async def event_fn(memo, body, **_):
            if get_last_handled(body) is not None:
                memo['seen'] = True

    @kopf.on.delete('kopfexamples', registry=registry, when=when)
    async def delete_fn(**_):
        calls.append('delete')

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await cluster.wait(lambda body: body['metadata'].get('finalizers') == [FINALIZER])
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['delete']


async def test_deletion_is_handled_by_the_function_whose_creation_it_interrupts(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def fn(patch, reason, **_):
        calls.append(reason.value)
        if reason == 'create':
            await asyncio.sleep(5)
            patch.spec['y'] = 1

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['create', 'delete']
