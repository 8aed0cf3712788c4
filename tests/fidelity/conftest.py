"""
The two servers of the fidelity tests, and the count of what was compared.
"""

import asyncio
import dataclasses
from collections.abc import Iterator

import controlplane_fixtures
import fidelity_talks
import pytest

import kopf.testing
from kopf._cogs.structs import credentials


@dataclasses.dataclass
class Tally:
    """How much was compared in this session."""

    requests: int = 0
    differing: int = 0
    allowed: int = 0


TALLY = pytest.StashKey[Tally]()


@pytest.fixture(scope='session')
def tally(pytestconfig: pytest.Config) -> Tally:
    return pytestconfig.stash.setdefault(TALLY, Tally())


@pytest.fixture(scope='session')
def sandbox_server() -> Iterator[fidelity_talks.Server]:
    """A sandbox with RBAC, as its administrator sees it."""
    with kopf.testing.Sandbox(rbac=True) as sandbox:

        async def compact() -> None:
            await asyncio.to_thread(sandbox.compact)

        info = credentials.ConnectionInfo(
            server=sandbox.url, ca_data=sandbox.ca_data, token=sandbox.token
        )
        yield fidelity_talks.Server(info, compact, forget=compact)


@pytest.fixture(scope='session')
def real_server(controlplane: controlplane_fixtures.Cluster) -> fidelity_talks.Server:
    """A real cluster, as its administrator sees it."""
    own = controlplane.own

    async def compact() -> None:
        assert own is not None
        await asyncio.to_thread(own.compact)

    async def forget() -> None:
        assert own is not None
        await asyncio.to_thread(own.stop_apiserver)
        await asyncio.to_thread(own.compact)
        await asyncio.to_thread(own.start_apiserver)

    if own is None:
        return fidelity_talks.Server(controlplane.login())
    return fidelity_talks.Server(controlplane.login(), compact, forget)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash.get(TALLY, None)
    if tally is not None and tally.requests:
        terminalreporter.write_line(
            f'Fidelity: {tally.requests} requests compared, {tally.differing} differ, '
            f'{tally.allowed} more differ as listed.'
        )
