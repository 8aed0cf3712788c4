"""
Restarts: resuming handlers are called once per object and start, and interrupted handlers go on
where they were.
"""

import asyncio

import aiohttp
import pytest
from clusters import FINALIZER, get_progress, wait_until

import kopf
from kopf._cogs.structs import vaults


@pytest.fixture
async def handled(cluster, run_operator):
    """An object that was handled by an operator of the past, which had other handlers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.create('kopfexamples', id='of-the-past', registry=registry)
    @kopf.on.delete('kopfexamples', id='of-the-past', registry=registry)
    async def fn(**_):
        pass

    operator = await run_operator(registry=registry)
    await cluster.create(spec={'x': 1})
    body = await cluster.wait_until_handled(x=1)
    await operator.stop()
    cluster.sandbox.requests.clear()
    return body


@pytest.fixture
async def run_mortal_operator(run_operator, sandbox):
    """Run an operator that can be killed: ``kill = await run_mortal_operator()``."""

    async def run():
        session = aiohttp.ClientSession(headers={'Authorization': f'Bearer {sandbox.token}'})
        info = kopf.AiohttpSession(server=sandbox.url, aiohttp_session=session)
        operator = await run_operator(vault=vaults.Vault({'sandbox': info}))

        async def kill():
            """End it with no more requests, as if by SIGKILL."""
            await session.close()
            operator.task.cancel()
            await asyncio.wait([operator.task])

        return kill

    return run


@pytest.mark.guarantee('HND-038', 'KWA-038')
async def test_handled_objects_are_resumed_by_every_start_even_if_unchanged(
    cluster, handled, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(reason, old, new, diff, **_):
        calls.append((str(reason), old == new, tuple(diff)))

    for times in [1, 2]:
        operator = await run_operator()
        await wait_until(lambda times=times: len(calls) == times)
        await operator.stop()

    assert calls == [('resume', True, ())] * 2


@pytest.mark.guarantee('HND-038', 'HND-039')
async def test_objects_that_come_later_are_not_resumed(cluster, registry, run_operator, calls):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(name, **_):
        calls.append(name)

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create('later')
    await cluster.wait_until_handled('later')
    await cluster.patch({'spec': {'x': 2}}, 'later')
    await cluster.wait_until_handled('later', x=2)

    assert calls == []


@pytest.mark.guarantee('HND-039')
async def test_changes_and_relists_do_not_resume_again(
    cluster, handled, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(**_):
        calls.append('resume')

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(new, **_):
        calls.append(new['spec']['x'])

    await run_operator()
    await cluster.wait_until_watched()
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.sandbox.compact()
    cluster.sandbox.faults.end_streams(410)
    await cluster.wait_until_watched(2)
    await cluster.patch({'spec': {'x': 3}})
    await cluster.wait_until_handled(x=3)

    assert calls == ['resume', 2, 3]


@pytest.mark.guarantee('HND-039')
async def test_a_resuming_handler_is_retried_until_it_succeeds_and_not_after_that(
    cluster, handled, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def quick_fn(retry, **_):
        calls.append(('quick', retry))

    @kopf.on.resume('kopfexamples', registry=registry)
    async def slow_fn(retry, **_):
        calls.append(('slow', retry))
        if retry < 2:
            raise kopf.TemporaryError('not yet', delay=10)

    await run_operator()
    await wait_until(lambda: ('slow', 2) in calls)
    await cluster.wait(lambda body: not get_progress(body))
    await cluster.patch({'metadata': {'labels': {'a': 'b'}}})
    await asyncio.sleep(600)  # of the virtual time

    assert sorted(calls) == [('quick', 0), ('slow', 0), ('slow', 1), ('slow', 2)]


@pytest.mark.guarantee('HND-039')
async def test_a_change_in_the_middle_of_resuming_calls_no_one_twice(
    cluster, handled, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def quick_fn(**_):
        calls.append('quick')

    @kopf.on.resume('kopfexamples', registry=registry)
    async def slow_fn(spec, **_):
        if spec['x'] == 1:
            raise kopf.TemporaryError('not yet', delay=10)
        calls.append('slow')

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(new, **_):
        calls.append(new['spec']['x'])

    await run_operator()
    await cluster.wait(get_progress)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.patch({'spec': {'x': 3}})
    await cluster.wait_until_handled(x=3)

    assert calls[0] == 'quick'
    assert sorted(calls, key=str) == [2, 3, 'quick', 'slow']


@pytest.fixture
def mixed_handlers(registry, calls):
    def declare(decorator, name):
        @decorator('kopfexamples', id=name, registry=registry)
        async def fn(reason, **_):
            calls.append((name, str(reason)))

    declare(kopf.on.resume, 'resume-1')
    declare(kopf.on.create, 'create-2')
    declare(kopf.on.update, 'update-3')
    declare(kopf.on.resume, 'resume-4')


@pytest.mark.guarantee('HND-040', 'HND-041')
async def test_new_objects_are_resumed_with_their_creation_in_the_order_of_declaration(
    cluster, mixed_handlers, run_operator, calls
):
    await cluster.create(spec={'x': 1})
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls == [('resume-1', 'create'), ('create-2', 'create'), ('resume-4', 'create')]
    assert len(cluster.writes) == 3


@pytest.mark.guarantee('HND-040', 'HND-041')
async def test_changed_objects_are_resumed_with_their_update_in_the_order_of_declaration(
    cluster, handled, mixed_handlers, run_operator, calls
):
    await cluster.patch({'spec': {'x': 2}})
    await run_operator()
    await cluster.wait_until_handled(x=2)

    assert calls == [('resume-1', 'update'), ('update-3', 'update'), ('resume-4', 'update')]
    merges = [
        asked for asked in cluster.writes if asked.content_type == 'application/merge-patch+json'
    ]
    assert len(merges) == 3
    assert len(cluster.writes) == 4  # the finalizer of the past is withdrawn, too


@pytest.mark.guarantee('HND-042')
@pytest.mark.parametrize('order', ['resume-first', 'create-first'])
@pytest.mark.parametrize('has_retries', [False, True], ids=['at-once', 'with-retries'])
async def test_a_function_of_both_resuming_and_creation_is_called_once_for_a_new_object(
    cluster, registry, run_operator, calls, order, has_retries
):
    async def fn(reason, retry, **_):
        calls.append((str(reason), retry))
        if has_retries and retry < 1:
            raise kopf.TemporaryError('not yet', delay=10)

    async def another_fn(retry, **_):
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=10)

    for decorator in (
        [kopf.on.resume, kopf.on.create]
        if order == 'resume-first'
        else [kopf.on.create, kopf.on.resume]
    ):
        decorator('kopfexamples', registry=registry)(fn)
    kopf.on.create('kopfexamples', registry=registry)(another_fn)
    await cluster.create()
    operator = await run_operator()
    await cluster.wait_until_handled()
    await operator.stop()
    assert calls == ([('create', 0), ('create', 1)] if has_retries else [('create', 0)])

    calls.clear()
    await run_operator()
    await wait_until(lambda: calls)
    assert calls[0] == ('resume', 0)


@pytest.mark.guarantee('HND-043')
async def test_objects_being_deleted_are_not_resumed_but_deleted(
    cluster, handled, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(**_):
        calls.append('resume')

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(reason, retry, **_):
        calls.append(str(reason))
        if not retry:
            raise kopf.TemporaryError('not yet', delay=10)

    assert handled['metadata']['finalizers'] == [FINALIZER]
    await cluster.delete()
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == ['delete', 'delete']


@pytest.mark.guarantee('HND-044')
@pytest.mark.parametrize('retries', [0, 2])
async def test_objects_being_deleted_are_resumed_on_demand(
    cluster, handled, registry, run_operator, calls, retries
):
    @kopf.on.resume('kopfexamples', deleted=True, registry=registry)
    async def resume_fn(reason, retry, **_):
        calls.append(('resume', str(reason), retry))
        if retry < retries:
            raise kopf.TemporaryError('not yet', delay=10)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(reason, retry, **_):
        calls.append(('delete', str(reason), retry))
        if retry < 1:
            raise kopf.TemporaryError('not yet', delay=10)

    await cluster.delete()
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert sorted(calls) == [
        ('delete', 'delete', 0),
        ('delete', 'delete', 1),
        *(('resume', 'delete', retry) for retry in range(retries + 1)),
    ]


@pytest.mark.guarantee('HND-044')
async def test_resuming_on_demand_does_not_concern_later_deletions(
    cluster, handled, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', deleted=True, registry=registry)
    async def resume_fn(reason, **_):
        calls.append(('resume', str(reason)))

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    await run_operator()
    await wait_until(lambda: calls)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == [('resume', 'resume'), 'delete']


@pytest.mark.guarantee('KWA-013', 'KWA-014', 'KWA-015', 'ERR-024')
async def test_a_killed_attempt_is_made_again_with_the_same_number_and_beginning(
    cluster, registry, run_mortal_operator, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, started, runtime, **_):
        calls.append((retry, started, runtime.total_seconds()))
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=10)
        if len(calls) == 2:
            await asyncio.sleep(3600)

    kill = await run_mortal_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)
    await kill()
    await asyncio.sleep(100)
    await run_operator()
    body = await cluster.wait_until_handled()

    (first, killed, last) = calls
    assert [retry for retry, *_ in calls] == [0, 1, 1]
    assert first[1] == killed[1] == last[1]
    assert (first[2], killed[2]) == (0, pytest.approx(10, abs=1))
    assert last[2] > 100
    assert not get_progress(body)


@pytest.mark.guarantee('ERR-024')
async def test_a_restart_in_the_middle_calls_only_the_unfinished_ones_when_they_are_due(
    cluster, registry, run_operator, calls, virtual_time
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def quick_fn(**_):
        calls.append('quick')

    @kopf.on.create('kopfexamples', registry=registry)
    async def slow_fn(retry, **_):
        calls.append(('slow', retry, virtual_time.elapsed))
        if not retry:
            raise kopf.TemporaryError('not yet', delay=100)

    operator = await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: len(get_progress(body)) >= 2)
    await operator.stop()
    await run_operator()
    await cluster.wait_until_handled()

    quick, first, second = calls
    assert (quick, first[:2], second[:2]) == ('quick', ('slow', 0), ('slow', 1))
    assert second[2] - first[2] == pytest.approx(100, abs=1)
