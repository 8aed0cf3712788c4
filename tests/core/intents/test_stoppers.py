"""
Stop-flags of daemons and timers.
"""

import asyncio
import threading

import pytest

import kopf
from kopf._core.intents import stoppers

Reason = kopf.DaemonStoppingReason


@pytest.fixture
def stopper():
    return stoppers.DaemonStopper()


@pytest.fixture(params=[stoppers.SyncDaemonStopped, stoppers.AsyncDaemonStopped])
def stopped(request, stopper):
    return request.param(stopper)


@pytest.mark.guarantee('DMN-023')
def test_reasons_are_flags():
    assert {reason.name: reason.value for reason in Reason} == {
        'DONE': 1,
        'FILTERS_MISMATCH': 2,
        'RESOURCE_DELETED': 4,
        'OPERATOR_PAUSING': 8,
        'OPERATOR_EXITING': 16,
        'DAEMON_SIGNALLED': 32,
        'DAEMON_CANCELLED': 64,
        'DAEMON_ABANDONED': 128,
    }


@pytest.mark.guarantee('NEW-014', 'DMN-022')
def test_flags_are_of_public_types(stopper):
    sync, coro = stoppers.SyncDaemonStopped(stopper), stoppers.AsyncDaemonStopped(stopper)

    assert isinstance(sync, kopf.DaemonStopped)
    assert isinstance(coro, kopf.DaemonStopped)
    assert isinstance(sync, kopf.SyncDaemonStopperChecker)
    assert isinstance(coro, kopf.AsyncDaemonStopperChecker)


@pytest.mark.guarantee('DMN-019', 'NEW-048')
def test_flag_is_false_until_it_is_set(stopper, stopped):
    assert (bool(stopped), stopped.is_set(), stopped.reason) == (False, False, None)

    stopper.set(Reason.OPERATOR_PAUSING)

    assert (bool(stopped), stopped.is_set(), stopped.reason) == (
        True,
        True,
        Reason.OPERATOR_PAUSING,
    )


@pytest.mark.guarantee('NEW-048', 'DMN-023')
def test_reasons_are_combined(stopper, stopped):
    stopper.set(Reason.RESOURCE_DELETED)
    stopper.set(Reason.DAEMON_SIGNALLED)

    assert stopped.reason == Reason.RESOURCE_DELETED | Reason.DAEMON_SIGNALLED
    assert Reason.RESOURCE_DELETED in stopped.reason
    assert Reason.OPERATOR_EXITING not in stopped.reason


@pytest.mark.guarantee('DMN-020')
def test_threads_wait_until_the_flag_is_set(stopper):
    stopped = stoppers.SyncDaemonStopped(stopper)
    results = []
    thread = threading.Thread(target=lambda: results.append(stopped.wait(600)))
    thread.start()

    stopper.set(Reason.RESOURCE_DELETED)
    thread.join(60)

    assert results == [stopped]
    assert results[0]


@pytest.mark.guarantee('DMN-020')
def test_threads_wait_until_the_time_is_over(stopper):
    stopped = stoppers.SyncDaemonStopped(stopper)

    result = stopped.wait(0.001)

    assert result is stopped
    assert not result


@pytest.mark.guarantee('DMN-021')
async def test_coroutines_wait_until_the_flag_is_set(stopper, virtual_time):
    stopped = stoppers.AsyncDaemonStopped(stopper)
    asyncio.get_running_loop().call_later(3, stopper.set, Reason.RESOURCE_DELETED)

    result = await stopped.wait(10)

    assert result is stopped
    assert result
    assert virtual_time.elapsed == 3


@pytest.mark.guarantee('DMN-021')
async def test_coroutines_wait_until_the_time_is_over(stopper, virtual_time):
    result = await stoppers.AsyncDaemonStopped(stopper).wait(10)

    assert not result
    assert virtual_time.elapsed == 10


@pytest.mark.guarantee('DMN-021')
@pytest.mark.parametrize('timeout', [None, 10])
async def test_coroutines_do_not_wait_for_what_has_happened(stopper, virtual_time, timeout):
    stopper.set(Reason.RESOURCE_DELETED)

    assert await stoppers.AsyncDaemonStopped(stopper).wait(timeout)
    assert virtual_time.elapsed == 0


async def test_cancelled_waiting_does_not_affect_the_others(stopper, virtual_time):
    stopped = stoppers.AsyncDaemonStopped(stopper)
    cancelled = asyncio.ensure_future(stopped.wait())
    waiting = asyncio.ensure_future(stopped.wait())
    await asyncio.sleep(1)

    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not waiting.done()

    stopper.set(Reason.RESOURCE_DELETED)
    assert await waiting


@pytest.mark.guarantee('NEW-048')
async def test_flag_itself_is_not_awaitable(stopped):
    with pytest.raises(TypeError):
        await stopped


def test_flag_shows_its_reason(stopper, stopped):
    stopper.set(Reason.OPERATOR_EXITING)

    assert 'OPERATOR_EXITING' in repr(stopped)
