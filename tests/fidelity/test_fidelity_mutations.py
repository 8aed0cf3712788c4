"""
The fidelity tests themselves: with any rule of the sandbox broken, they tell where it differs.
"""

import fidelity_runs
import pytest
import transcripts

from kopf._sandbox.registry import reader, strategies, watcher

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

TRANSCRIPTS = {transcript.name: transcript for transcript in transcripts.TRANSCRIPTS}


def count_everything(*_, **__):
    return True


def show_everything(change, interest):
    return change.type, change.new


def continue_from_now(store, resource, interest, position, limit):
    return reader.Listing(store.shelf(resource.home).select(interest.namespace), store.version)


@pytest.mark.parametrize(
    'mutation, transcript, place',
    [
        pytest.param(
            (strategies, 'is_generation_bumped', count_everything),
            'custom-life',
            '.metadata.generation',
            id='generations-on-status-writes',
        ),
        pytest.param(
            (watcher, 'see', show_everything),
            'watch-selectors',
            '.body.type',
            id='selectors-of-watches',
        ),
        pytest.param(
            (reader, '_continue', continue_from_now),
            'pages',
            '.body.items[',
            id='consistency-of-pages',
        ),
    ],
)
async def test_broken_rule_of_the_sandbox_is_noticed(
    monkeypatch, sandbox_server, real_server, mutation, transcript, place
):
    monkeypatch.setattr(*mutation)

    findings = await fidelity_runs.run_on_both(TRANSCRIPTS[transcript], sandbox_server, real_server)

    assert any(place in difference.path for difference in findings.unexpected)
