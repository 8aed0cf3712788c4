"""
The sandbox held to the real thing: the same requests get the same answers.
"""
import asyncio
import secrets

import fidelity_allowances
import fidelity_comparison
import fidelity_masks
import fidelity_talks
import pytest
import transcripts

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


@pytest.mark.parametrize('transcript', [pytest.param(item, id=item.name) for item in transcripts.TRANSCRIPTS])
async def test_sandbox_answers_as_the_real_server(transcript, sandbox_server, real_server, tally):
    if transcript.is_intrusive and real_server.compact is None:
        pytest.skip("It needs our own control plane, and KUBECONFIG_E2E is set to another cluster.")
    suffix = secrets.token_hex(3)

    async with asyncio.TaskGroup() as group:
        sandbox, real = (group.create_task(fidelity_talks.run_transcript(transcript, server, suffix))
                         for server in (sandbox_server, real_server))

    differences = fidelity_comparison.compare(
        fidelity_masks.mask_exchanges(sandbox.result()), fidelity_masks.mask_exchanges(real.result()))
    allowances = [item for item in fidelity_allowances.ALLOWANCES if item.transcript == transcript.name]
    unexpected = [item for item in differences if not any(allowance.fits(item) for allowance in allowances)]
    stale = [allowance for allowance in allowances if not any(map(allowance.fits, differences))]
    tally.requests += sum(not exchange.is_event for exchange in real.result())
    tally.differing += len({item.label for item in unexpected})
    tally.allowed += len({item.label for item in differences} - {item.label for item in unexpected})
    assert not unexpected, '\n' + '\n'.join(map(str, unexpected))
    assert not stale, "They do not differ any more: remove them from the list."
