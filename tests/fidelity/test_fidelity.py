"""
The sandbox held to the real thing: the same requests get the same answers.
"""

import controlplane_fixtures
import fidelity_runs
import pytest
import transcripts

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


@pytest.mark.parametrize(
    'transcript', [pytest.param(item, id=item.name) for item in transcripts.TRANSCRIPTS]
)
async def test_sandbox_answers_as_the_real_server(transcript, sandbox_server, real_server, tally):
    if transcript.is_intrusive and real_server.compact is None:
        pytest.skip(controlplane_fixtures.FOREIGNNESS)

    findings = await fidelity_runs.run_on_both(transcript, sandbox_server, real_server)

    unexpected = findings.unexpected
    tally.requests += findings.requests
    tally.differing += len({item.label for item in unexpected})
    tally.allowed += len(
        {item.label for item in findings.differences} - {item.label for item in unexpected}
    )
    assert not unexpected, '\n' + '\n'.join(map(str, unexpected))
    assert not findings.stale, 'They do not differ any more: remove them from the list.'
