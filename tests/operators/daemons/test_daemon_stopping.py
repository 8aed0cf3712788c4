"""
Daemons: how they are stopped when their objects are deleted, and when the objects are let go.
"""

import asyncio
import logging

import pytest
from clusters import FINALIZER, wait_until
from timed_notes import pass_time

import kopf

Reason = kopf.DaemonStoppingReason
ASKED = Reason.RESOURCE_DELETED
SIGNALLED = ASKED | Reason.DAEMON_SIGNALLED  # those with a backoff


@pytest.fixture
def start(cluster, run_operator, settings):
    """Start an operator with these settings of background tasks, and create an object."""

    async def start(**background):
        for name, value in background.items():
            setattr(settings.background, name, value)
        await run_operator()
        await cluster.create()

    return start


async def delete(cluster, calls):
    """Ask for the deletion, and note when the object is gone."""
    await wait_until(lambda: calls)
    calls.clear()
    await cluster.delete()
    calls.note('deleted')
    await cluster.wait(lambda body: body is None)
    calls.note('gone')


@pytest.mark.guarantee('DMN-007', 'DMN-008', 'DMN-016', 'DMN-021', 'DMN-031', 'NEW-048', 'FND-027')
@pytest.mark.parametrize(
    'options, reason',
    [
        pytest.param({}, ASKED, id='no-options'),
        pytest.param({'cancellation_backoff': 100}, SIGNALLED, id='backoff'),
        pytest.param({'cancellation_timeout': 100}, ASKED, id='timeout'),
        pytest.param(
            {'cancellation_backoff': 100, 'cancellation_timeout': 100}, SIGNALLED, id='both'
        ),
        pytest.param({'cancellation_backoff': 0}, SIGNALLED, id='zero-backoff'),
    ],
)
async def test_obedient_daemons_exit_at_once(
    cluster, registry, run_operator, calls, options, reason
):
    @kopf.daemon('kopfexamples', registry=registry, **options)
    async def obedient(stopped, **_):
        calls.note('begin', stopped.reason)
        while not stopped:
            await stopped.wait(1000)
        calls.note('end', stopped.reason, stopped.is_set())

    await run_operator()
    await cluster.create()
    await delete(cluster, calls)

    assert calls == [(0, 'deleted'), (0, 'end', reason, True), (0, 'gone')]


@pytest.mark.guarantee('DMN-007', 'DMN-019', 'DMN-020')
async def test_obedient_sync_daemons_exit_at_once(cluster, registry, run_operator, calls):
    ended = []

    @kopf.daemon('kopfexamples', registry=registry)
    def obedient(stopped, **_):
        calls.append('begin')
        while not stopped:
            stopped.wait(1000)  # in the real time of the thread
        ended.append(stopped.reason)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert ended == [ASKED]


@pytest.mark.guarantee('DMN-009', 'DMN-010', 'DMN-012', 'DMN-015', 'DMN-016', 'NEW-210')
@pytest.mark.parametrize(
    'options, cancelled, reason',
    [
        pytest.param({'cancellation_timeout': 1.0}, 0, ASKED, id='timeout'),
        pytest.param(
            {'cancellation_backoff': 30, 'cancellation_timeout': 100},
            30,
            SIGNALLED,
            id='backoff-and-timeout',
        ),
        pytest.param(
            {'cancellation_backoff': 0, 'cancellation_timeout': 100}, 0, SIGNALLED, id='no-backoff'
        ),
    ],
)
async def test_disobedient_daemons_are_cancelled_after_their_backoff(
    cluster, registry, run_operator, calls, options, cancelled, reason
):
    @kopf.daemon('kopfexamples', registry=registry, **options)
    async def disobedient(stopped, **_):
        calls.note('begin')
        try:
            await asyncio.sleep(100000)
        except asyncio.CancelledError:
            calls.note('cancelled', stopped.reason)
            raise

    await run_operator()
    await cluster.create()
    await delete(cluster, calls)

    assert calls == [
        (0, 'deleted'),
        (cancelled, 'cancelled', reason | Reason.DAEMON_CANCELLED),
        (cancelled, 'gone'),
    ]


@pytest.mark.guarantee('DMN-012', 'DMN-013', 'DMN-015', 'DMN-031')
async def test_cancelled_daemons_have_their_time_to_clean_up(
    cluster, registry, run_operator, calls
):
    @kopf.daemon(
        'kopfexamples', cancellation_backoff=30, cancellation_timeout=50, registry=registry
    )
    async def disobedient(**_):
        calls.note('begin')
        try:
            await asyncio.sleep(100000)
        finally:
            await asyncio.sleep(40)
            calls.note('cleaned', (await cluster.get())['metadata']['finalizers'])

    await run_operator()
    await cluster.create()
    await delete(cluster, calls)

    assert calls == [(0, 'deleted'), (70, 'cleaned', [FINALIZER]), (70, 'gone')]


@pytest.mark.guarantee('DMN-012', 'DMN-013', 'DMN-010')
async def test_daemons_that_ignore_the_cancellation_are_abandoned(
    cluster, registry, run_operator, calls, logs
):
    @kopf.daemon(
        'kopfexamples',
        cancellation_backoff=30,
        cancellation_timeout=50,
        id='stubborn',
        registry=registry,
    )
    async def stubborn(stopped, patch, **_):
        calls.note('begin')
        for _ in range(2):
            try:
                await asyncio.sleep(200)
            except asyncio.CancelledError:
                calls.note('ignored', stopped.reason)
        calls.note('end', stopped.reason)
        patch.status['late'] = True
        return 'result'

    await run_operator()
    await cluster.create()
    with pytest.warns(ResourceWarning, match="'stubborn'"):
        await delete(cluster, calls)
    assert calls == [
        (0, 'deleted'),
        (30, 'ignored', SIGNALLED | Reason.DAEMON_CANCELLED),
        (80, 'gone'),
    ]
    assert any('left alone' in text for text in logs(logging.WARNING))

    await wait_until(lambda: len(calls) == 4)
    assert calls[-1] == (230, 'end', SIGNALLED | Reason.DAEMON_CANCELLED | Reason.DAEMON_ABANDONED)


@pytest.mark.guarantee('DMN-011', 'DMN-013')
async def test_sync_daemons_are_never_interrupted_but_are_abandoned(
    cluster, registry, run_operator, calls, barrier, virtual_time
):
    ended = []

    @kopf.daemon(
        'kopfexamples', cancellation_backoff=0.2, cancellation_timeout=0.3, registry=registry
    )
    def blocked(stopped, **_):  # the time of the test is real while it runs
        calls.append('begin')
        barrier.wait()
        ended.append(stopped.reason)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    since = virtual_time.elapsed
    with pytest.warns(ResourceWarning):
        await cluster.delete()
        await cluster.wait(lambda body: body is None)
    assert (ended, virtual_time.elapsed >= since + 0.5) == ([], True)

    barrier.set()
    await wait_until(lambda: ended)
    assert ended == [SIGNALLED | Reason.DAEMON_ABANDONED]


@pytest.mark.guarantee('DMN-014', 'DMN-031', 'NEW-210', 'WLD-004')
@pytest.mark.parametrize(
    'options, reminders',
    [
        pytest.param({}, 5, id='polling-of-settings'),
        pytest.param({'cancellation_polling': 30}, 11, id='polling-of-the-daemon'),
        pytest.param({'cancellation_polling': 10000}, 0, id='rare-polling'),
        pytest.param({'cancellation_backoff': 100, 'cancellation_polling': 30}, 8, id='backoff'),
    ],
)
async def test_daemons_with_no_timeout_are_waited_for_and_their_late_exit_is_noticed_at_once(
    cluster, registry, run_operator, calls, logs, options, reminders
):
    @kopf.daemon('kopfexamples', registry=registry, **options)
    async def late(stopped, **_):
        calls.note('begin')
        await stopped.wait()
        await asyncio.sleep(345)

    await run_operator()
    await cluster.create()
    await delete(cluster, calls)

    assert calls == [(0, 'deleted'), (345, 'gone')]
    assert len([text for text in logs(logging.WARNING) if 'still running' in text]) == reminders


@pytest.mark.guarantee('DMN-016', 'DMN-025')
async def test_who_waits_for_the_next_attempt_exits_at_once(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', registry=registry)
    async def failing(**_):
        calls.note('begin')
        raise kopf.TemporaryError('later', delay=10000)

    await run_operator()
    await cluster.create()
    await delete(cluster, calls)
    await pass_time(20000)

    assert calls == [(0, 'deleted'), (0, 'gone')]


@pytest.mark.guarantee('DMN-031')
async def test_objects_wait_for_the_last_of_their_daemons_and_deletion_handlers(
    cluster, registry, run_operator, calls
):
    async def late(stopped, param, **_):
        calls.note('begin')
        await stopped.wait()
        await asyncio.sleep(param)
        calls.note(param)

    for seconds in [10, 50, 20]:
        kopf.daemon('kopfexamples', id=f'late-{seconds}', param=seconds, registry=registry)(late)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(retry, **_):
        calls.note('delete')
        if not retry:
            raise kopf.TemporaryError('later', delay=30)

    await run_operator()
    await cluster.create()
    await delete(cluster, calls)

    assert calls == [
        (0, 'deleted'),
        (0, 'delete'),
        (10, 10),
        (20, 20),
        (30, 'delete'),
        (50, 50),
        (50, 'gone'),
    ]


@pytest.mark.guarantee('DMN-034', 'DMN-036', 'DMN-013')
async def test_abandoned_daemons_are_not_started_until_they_have_exited(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', labels={'mark': 'yes'}, cancellation_timeout=10, registry=registry)
    async def stubborn(**_):
        calls.note('begin')
        until = asyncio.get_running_loop().time() + 100
        # The last bits of it can never pass.
        while (rest := until - asyncio.get_running_loop().time()) > 0.001:
            try:
                await asyncio.sleep(rest)
            except asyncio.CancelledError:
                calls.note('ignored')
        calls.note('end')

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    await wait_until(lambda: calls)
    with pytest.warns(ResourceWarning):
        await cluster.patch({'metadata': {'labels': {'mark': 'no'}}})
        await cluster.wait(lambda body: not body['metadata'].get('finalizers'))
    await cluster.patch({'metadata': {'labels': {'mark': 'yes'}}})
    await pass_time(200)
    assert calls == [(0, 'begin'), (0, 'ignored'), (100, 'end')]

    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(calls) == 4)
    with pytest.warns(ResourceWarning):
        await cluster.delete()
        await cluster.wait(lambda body: body is None)
    await wait_until(lambda: calls[-1][1] == 'end')


@pytest.mark.guarantee('NEW-210')
@pytest.mark.parametrize(
    'background, awaits, expected',
    [
        pytest.param({}, 5, 'exited', id='cycles-by-default'),
        pytest.param({}, 50, 'cancelled', id='too-many-cycles'),
        pytest.param({'instant_exit_zero_time_cycles': 100}, 50, 'exited', id='more-cycles'),
        pytest.param({'instant_exit_zero_time_cycles': 0}, 5, 'cancelled', id='no-cycles'),
        pytest.param(
            {'instant_exit_zero_time_cycles': None}, 5, 'cancelled', id='no-limit-of-cycles'
        ),
        pytest.param({'instant_exit_timeout': 1}, 50, 'exited', id='time-instead-of-cycles'),
    ],
)
async def test_daemons_have_an_instant_to_exit_before_they_are_cancelled(
    cluster, registry, start, calls, background, awaits, expected
):
    @kopf.daemon('kopfexamples', cancellation_timeout=10, registry=registry)
    async def polite(stopped, **_):
        calls.note('begin')
        try:
            await stopped.wait()
            for _ in range(awaits):
                await asyncio.sleep(0)
            calls.note('exited')
        except asyncio.CancelledError:
            calls.note('cancelled')
            raise

    await start(**background)
    await delete(cluster, calls)

    assert calls == [(0, 'deleted'), (0, expected), (0, 'gone')]


@pytest.mark.guarantee('DMN-016', 'DMN-029')
async def test_what_a_daemon_has_returned_in_time_is_stored_in_spite_of_its_timeout(
    cluster, registry, run_operator, calls
):
    @kopf.daemon(
        'kopfexamples',
        labels={'mark': 'yes'},
        cancellation_timeout=10,
        id='obedient',
        registry=registry,
    )
    async def obedient(stopped, **_):
        calls.note('begin')
        await stopped.wait()
        return 'done'

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    await wait_until(lambda: calls)
    await cluster.patch({'metadata': {'labels': {'mark': 'no'}}})
    body = await cluster.wait(lambda body: not body['metadata'].get('finalizers'))

    assert body['status'] == {'obedient': 'done'}


@pytest.mark.guarantee('DMN-007', 'DMN-032')
async def test_daemons_of_objects_that_have_vanished_unseen_are_stopped(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def endless(spec, stopped, **_):
        calls.note('begin')
        await stopped.wait()
        calls.note(stopped.reason, spec['x'])

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: calls)
    with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', code=503):
        cluster.sandbox.faults.cut_streams(resource='kopfexamples')
        await cluster.patch({'metadata': {'finalizers': []}})
        await cluster.delete()
        await cluster.sandbox.compact()
    await wait_until(lambda: len(calls) == 2)

    assert calls[1][1:] == (ASKED, 1)
    await operator.stop()
    assert await cluster.find() is None


@pytest.mark.guarantee('DMN-031')
async def test_daemons_are_not_started_for_objects_that_are_being_deleted(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def endless(**_):
        calls.note('begin')

    await cluster.create(finalizers=[FINALIZER])
    await cluster.delete()
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == []
