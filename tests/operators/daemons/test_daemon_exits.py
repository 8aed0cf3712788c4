"""
Daemons and timers: how they are stopped when the operator exits, or is interrupted while it does.
"""

import asyncio
import logging

import pytest
from clusters import FINALIZER, wait_until
from timed_notes import pass_time

import kopf

Reason = kopf.DaemonStoppingReason
ASKED = Reason.OPERATOR_EXITING
SIGNALLED = ASKED | Reason.DAEMON_SIGNALLED  # those with a backoff


async def stop(operator, calls):
    """Stop the operator, and note when it is over."""
    await wait_until(lambda: calls)
    calls.clear()
    calls.note('stopping')
    await operator.stop()
    calls.note('stopped')


@pytest.mark.guarantee('DMN-007', 'DMN-008', 'DMN-031')
async def test_all_daemons_of_all_objects_are_asked_to_stop(cluster, registry, run_operator, calls):
    async def obedient(name, param, stopped, **_):
        calls.note('begin')
        await stopped.wait()
        calls.note(name, param, stopped.reason)

    for param in 'ab':
        kopf.daemon('kopfexamples', id=param, param=param, registry=registry)(obedient)
    operator = await run_operator()
    for name in ['obj1', 'obj2']:
        await cluster.create(name)
    await wait_until(lambda: len(calls) == 4)
    await stop(operator, calls)

    assert (calls[0], calls[-1]) == ((0, 'stopping'), (0, 'stopped'))
    assert sorted(calls[1:-1]) == [
        (0, name, param, ASKED) for name in ['obj1', 'obj2'] for param in 'ab'
    ]
    assert (await cluster.get('obj1'))['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('DMN-017', 'DMN-012', 'FND-027')
@pytest.mark.parametrize(
    'options, expected, reason',
    [
        pytest.param({}, 5, ASKED, id='no-options'),
        pytest.param({'cancellation_backoff': 30}, 35, SIGNALLED, id='backoff'),
        pytest.param({'cancellation_timeout': 20}, 0, ASKED, id='timeout'),
        pytest.param(
            {'cancellation_backoff': 30, 'cancellation_timeout': 20}, 30, SIGNALLED, id='both'
        ),
    ],
)
async def test_disobedient_daemons_are_cancelled_in_the_end(
    cluster, registry, run_operator, calls, options, expected, reason
):
    @kopf.daemon('kopfexamples', registry=registry, **options)
    async def disobedient(stopped, **_):
        calls.note('begin')
        try:
            await asyncio.sleep(100000)
        except asyncio.CancelledError:
            calls.note(stopped.reason)
            raise

    operator = await run_operator()
    await cluster.create()
    await stop(operator, calls)

    assert calls == [
        (0, 'stopping'),
        (expected, reason | Reason.DAEMON_CANCELLED),
        (expected, 'stopped'),
    ]


@pytest.mark.guarantee('DMN-017')
async def test_daemons_that_ignore_cancellations_have_some_time_to_end_on_their_own(
    cluster, registry, run_operator, calls, logs
):
    @kopf.daemon(
        'kopfexamples', cancellation_backoff=30, cancellation_timeout=20, registry=registry
    )
    async def stubborn(stopped, **_):
        calls.note('begin')
        until = asyncio.get_running_loop().time() + 63
        # The last bits of it can never pass.
        while (rest := until - asyncio.get_running_loop().time()) > 0.001:
            try:
                await asyncio.sleep(rest)
            except asyncio.CancelledError:
                calls.note('ignored', stopped.reason)

    operator = await run_operator()
    await cluster.create()
    with pytest.warns(ResourceWarning):
        await stop(operator, calls)

    cancelled = SIGNALLED | Reason.DAEMON_CANCELLED
    assert calls == [
        (0, 'stopping'),
        (30, 'ignored', cancelled),
        (55, 'ignored', cancelled | Reason.DAEMON_ABANDONED),
        (63, 'stopped'),
    ]
    assert any('have not exited in 55' in text for text in logs(logging.WARNING))
    assert not any('refuse to end' in text for text in logs(logging.WARNING))


class Refusal:
    """A function that does not end, whatever happens, until it is let go."""

    def __init__(self, calls):
        self.calls, self._is_over = calls, asyncio.Event()

    async def fn(self, **_):
        self.calls.note('begin')
        while not self._is_over.is_set():
            try:
                await self._is_over.wait()
            except asyncio.CancelledError:
                self.calls.note('ignored')
        self.calls.note('ended')

    async def let_go(self):
        self._is_over.set()
        await wait_until(lambda: self.calls[-1][1] == 'ended')


@pytest.fixture
def refusal(calls):
    return Refusal(calls)


@pytest.mark.guarantee('DMN-017', 'SHD-009')
@pytest.mark.parametrize('kind', [kopf.daemon, kopf.timer], ids=['daemon', 'timer'])
async def test_those_that_refuse_to_end_are_named_and_do_not_hold_the_exit(
    cluster, registry, run_operator, refusal, logs, kind
):
    kind('kopfexamples', id='fn', registry=registry)(refusal.fn)
    calls = refusal.calls

    @kopf.on.cleanup(id='cleanup', registry=registry)
    async def cleanup(**_):
        calls.note('cleanup')

    operator = await run_operator()
    await cluster.create()
    await stop(operator, calls)
    await refusal.let_go()

    assert calls[:-1] == [
        (0, 'stopping'),
        (5, 'ignored'),
        (15, 'cleanup'),
        (20, 'ignored'),
        (25, 'stopped'),
    ]
    assert 'Waiting for 1 daemons and timers to exit, for 5.0 s at most: fn.' in logs(logging.INFO)
    assert '1 daemons and timers refuse to end, and are left as they are: fn.' in logs(
        logging.WARNING
    )
    assert '1 tasks refuse to end, and are left as they are: fn of obj' in logs(logging.WARNING)


@pytest.mark.guarantee('DMN-017', 'EMB-017')
@pytest.mark.parametrize('cancellations', [1, 2, 3])
async def test_those_that_refuse_to_end_do_not_hold_an_interrupted_exit(
    cluster, registry, run_operator, calls, refusal, cancellations
):
    kopf.daemon('kopfexamples', id='fn', registry=registry)(refusal.fn)
    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)

    calls.clear()
    for _ in range(cancellations):
        operator.task.cancel()
        await pass_time(0.5)
    await asyncio.wait([operator.task])
    calls.note('stopped')
    await refusal.let_go()

    assert operator.task.cancelled()
    assert next(moment for moment, what in calls if what == 'stopped') <= 30


@pytest.mark.guarantee('DMN-011', 'DMN-017')
async def test_blocked_sync_daemons_do_not_hold_the_exit(
    cluster, registry, run_operator, calls, barrier
):
    @kopf.daemon('kopfexamples', registry=registry)
    def blocked(**_):
        calls.append('begin')
        barrier.wait()

    operator = await run_operator()
    await cluster.create()
    await stop(operator, calls)

    assert calls == [(0, 'stopping'), (5, 'stopped')]


@pytest.mark.guarantee('DMN-017')
async def test_abandoned_daemons_end_with_the_operator(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', cancellation_timeout=10, registry=registry)
    async def stubborn(**_):
        calls.note('begin')
        try:
            await asyncio.sleep(100000)
        except asyncio.CancelledError:
            calls.note('ignored')
        try:
            await asyncio.sleep(100000)
        finally:
            calls.note('end')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    with pytest.warns(ResourceWarning):
        await cluster.delete()
        await cluster.wait(lambda body: body is None)
    await stop(operator, calls)

    assert calls == [(0, 'stopping'), (5, 'end'), (5, 'stopped')]


@pytest.mark.guarantee('TMR-002', 'NEW-258')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'interval': 100}, id='interval'),
        pytest.param({'initial_delay': 100}, id='delay'),
        pytest.param({'idle': 100}, id='idle'),
        pytest.param({'idle': 0}, id='waiting-for-a-change'),
        pytest.param({'idle': 0, 'interval': 100}, id='idle-and-interval'),
    ],
)
async def test_timers_between_their_calls_do_not_hold_the_exit(
    cluster, registry, run_operator, calls, options
):
    @kopf.timer('kopfexamples', registry=registry, **options)
    async def timer_fn(**_):
        calls.note('tick')

    operator = await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    await pass_time(10)
    calls.note('waited')
    await stop(operator, calls)
    await pass_time(1000)

    assert calls == [(0, 'stopping'), (0, 'stopped')]


@pytest.mark.guarantee('TMR-002', 'NEW-047')
@pytest.mark.parametrize(
    'duration, ending',
    [
        pytest.param(3, (3, 'end', ASKED), id='short'),
        pytest.param(300, (5, 'cancelled', ASKED | Reason.DAEMON_CANCELLED), id='long'),
    ],
)
async def test_running_timers_are_let_to_finish_but_not_for_long(
    cluster, registry, run_operator, calls, duration, ending
):
    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def timer_fn(stopped, **_):
        calls.note('tick')
        try:
            await stopped.wait()
            await asyncio.sleep(duration)
            calls.note('end', stopped.reason)
        except asyncio.CancelledError:
            calls.note('cancelled', stopped.reason)
            raise

    operator = await run_operator()
    await cluster.create()
    await stop(operator, calls)

    assert calls == [(0, 'stopping'), ending, (ending[0], 'stopped')]


STATES = {
    'initial-delay': {'initial_delay': 1000},
    'running': {'spec': {'state': 'running'}},
    'cleaning': {'spec': {'state': 'cleaning'}},
    'retrying': {'spec': {'state': 'retrying'}},
    'patching': {'spec': {'state': 'patching'}},
}


@pytest.mark.guarantee('DMN-017', 'DMN-031')
@pytest.mark.parametrize('kind', [kopf.daemon, kopf.timer], ids=['daemon', 'timer'])
@pytest.mark.parametrize('state', STATES)
@pytest.mark.parametrize('cancellations', [1, 2, 3])
async def test_interrupted_exit_leaves_nothing_behind(
    cluster, registry, run_operator, kind, state, cancellations
):
    ended = asyncio.Event()

    @kind(
        'kopfexamples', id='fn', initial_delay=STATES[state].get('initial_delay'), registry=registry
    )
    async def endless(patch, **_):
        try:
            if state == 'running':
                await asyncio.sleep(1000)
            if state == 'cleaning':
                await _clean_up_slowly()
            if state == 'retrying':
                raise kopf.TemporaryError('later', delay=1000)
            if state == 'patching':
                patch.status['x'] = 'y'
        finally:
            ended.set()

    operator = await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    with cluster.sandbox.faults.inject(verb='patch', resource='kopfexamples', stall=True):
        await pass_time(1)
        assert ended.is_set() == (state in ('retrying', 'patching'))
        for _ in range(cancellations):  # the operator is waiting for something else each time
            operator.task.cancel()
            await pass_time(0.5)
        await asyncio.wait([operator.task])
    assert operator.task.cancelled()
    assert not [task for task in asyncio.all_tasks() if 'fn of' in task.get_name()]

    registry_of_next = kopf.OperatorRegistry()
    kopf.daemon('kopfexamples', registry=registry_of_next)(endless)
    await cluster.delete()
    await run_operator(registry=registry_of_next)
    await cluster.wait(lambda body: body is None)


async def _clean_up_slowly():
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(9)
