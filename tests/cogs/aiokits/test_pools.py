import threading

import pytest

from kopf._cogs.aiokits import pools


@pytest.fixture
def barrier():
    event = threading.Event()
    yield event
    event.set()


def test_idle_threads_end_when_released():
    pool = pools.OwnPool()
    thread = pool.submit(threading.current_thread).result()

    assert pool.release() == 0

    thread.join(timeout=60)
    assert not thread.is_alive()
    assert thread.name.startswith('kopf-handlers')


def test_busy_threads_are_told_of_and_finish_when_released(barrier):
    pool, started = pools.OwnPool(max_workers=1), threading.Event()
    running = pool.submit(lambda: (started.set(), barrier.wait(60), threading.current_thread())[-1])
    waiting = pool.submit(threading.current_thread)
    started.wait(60)

    assert pool.release() == 1  # those that wait do not run

    barrier.set()
    thread = running.result(60)
    assert waiting.result(60) is thread
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_failed_and_cancelled_functions_are_not_running(barrier):
    pool, started = pools.OwnPool(max_workers=1), threading.Event()
    failed = pool.submit(lambda: 1 / 0)
    assert isinstance(failed.exception(60), ZeroDivisionError)
    running = pool.submit(lambda: (started.set(), barrier.wait(60)))
    started.wait(60)
    assert pool.submit(int).cancel()

    assert pool.release() == 1

    barrier.set()
    running.result(60)
