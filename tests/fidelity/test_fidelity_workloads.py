"""
The controllers of workloads in the sandbox, held to kube-controller-manager: they make the same.
"""

import asyncio
from collections.abc import Iterator

import fidelity_runs
import fidelity_talks
import pytest
import transcripts_of_workloads

import kopf.testing
from kopf._cogs.structs import credentials

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


@pytest.fixture(scope='module')
def moving_server() -> Iterator[fidelity_talks.Server]:
    """A sandbox with controllers and with no kubelets, as the real control plane."""
    with kopf.testing.Sandbox(workloads=kopf.testing.Workloads(nodes=0)) as sandbox:

        async def compact() -> None:
            await asyncio.to_thread(sandbox.compact)

        info = credentials.ConnectionInfo(
            server=sandbox.url, ca_data=sandbox.ca_data, token=sandbox.token
        )
        yield fidelity_talks.Server(info, compact, forget=compact)


@pytest.mark.guarantee('SBX-013')
@pytest.mark.parametrize(
    'transcript',
    [pytest.param(item, id=item.name) for item in transcripts_of_workloads.TRANSCRIPTS],
)
async def test_controllers_make_the_same_as_the_real_ones(
    transcript, moving_server, real_server, tally
):
    findings = await fidelity_runs.run_on_both(transcript, moving_server, real_server)

    unexpected = findings.unexpected
    tally.requests += findings.requests
    tally.differing += len({item.label for item in unexpected})
    assert not unexpected, '\n' + '\n'.join(map(str, unexpected))
    assert not findings.stale, 'They do not differ any more: remove them from the list.'
