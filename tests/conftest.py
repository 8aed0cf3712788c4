"""
The harness of all tests: virtual time, no leaked tasks, and the tools that tests call.
"""

import asyncio
import dataclasses
import math
import os
import pathlib
import shutil
from collections.abc import AsyncIterator

import controlplane_fixtures
import fault_outcomes
import looptime
import pytest
from controlplane_fixtures import controlplane, own_controlplane
from fault_outcomes import outcomes

__all__ = ['controlplane', 'outcomes', 'own_controlplane']  # for pytest, which finds them by names

KUBECTL_BUILD = 'kopf-tests/kubectl-1.35.4/kubectl'  # in the user's cache; made by `make kubectl`


@dataclasses.dataclass(frozen=True)
class VirtualTime:
    """The clock of a test whose event loop skips its waits."""

    since: float

    @property
    def elapsed(self) -> float:
        """How many seconds the test believes to have lasted."""
        return round(asyncio.get_running_loop().time() - self.since, 6)


@pytest.fixture
async def virtual_time() -> AsyncIterator[VirtualTime]:
    """
    Let the event loop of the test jump over its sleeps and timeouts; I/O and threads still take
    their real time.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    # Sums with whole seconds are exact. The resolution is finer than any wait.
    start = float(math.ceil(loop.time()))
    looptime.patch_event_loop(loop, start=start, idle_step=0.1, resolution=1e-9)
    yield VirtualTime(since=loop.time())
    await loop.shutdown_default_executor()  # otherwise, the time limit of that would be skipped too
    loop._default_executor = None  # type: ignore[attr-defined]  # or it is shut down again, with the time limit


@pytest.fixture(autouse=True)
def leaked_tasks_fail_the_test(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker('asyncio') is not None:
        request.getfixturevalue('_all_tasks_are_awaited')


@pytest.fixture
async def _all_tasks_are_awaited() -> AsyncIterator[None]:
    """
    Fail if the test and its fixtures leave tasks behind: this one is set up before them and torn
    down after them.
    """
    before = asyncio.all_tasks()
    yield
    current = asyncio.current_task()
    leaked = [task for task in asyncio.all_tasks() - before if task is not current]
    if leaked:
        names = ', '.join(sorted(f'{task.get_name()} ({task.get_coro()})' for task in leaked))
        for task in leaked:
            task.cancel()
        await asyncio.wait(leaked, timeout=5)
        pytest.fail(f'Tasks are left running: {names}')


@pytest.fixture(scope='session')
def kubectl_path() -> pathlib.Path:
    """The kubectl to test with: of ``$KUBECTL``, or our own build, or any in the ``$PATH``."""
    cache = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    candidates = [
        os.environ.get('KUBECTL'),
        pathlib.Path(cache, KUBECTL_BUILD),
        shutil.which('kubectl'),
    ]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return pathlib.Path(candidate)
    pytest.fail(
        'There is no kubectl: run `make kubectl` (needs Go), or install it, or set KUBECTL to its path.'
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    fault_outcomes.write_outcomes(terminalreporter, config)
    controlplane_fixtures.write_absence(terminalreporter)
