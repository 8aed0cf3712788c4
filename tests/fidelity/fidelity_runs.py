"""
Runs: one transcript on both servers at once, and what differs.
"""

import asyncio
import dataclasses
import secrets
from collections.abc import Sequence

import fidelity_allowances
import fidelity_comparison
import fidelity_masks
import fidelity_talks


@dataclasses.dataclass(frozen=True)
class Findings:
    """What has come out of one transcript; what is allowed is also what must differ."""

    requests: int
    differences: Sequence[fidelity_comparison.Difference]
    allowances: Sequence[fidelity_comparison.Allowance]

    @property
    def unexpected(self) -> list[fidelity_comparison.Difference]:
        return [
            item
            for item in self.differences
            if not any(allowance.fits(item) for allowance in self.allowances)
        ]

    @property
    def stale(self) -> list[fidelity_comparison.Allowance]:
        """What is allowed, but does not differ."""
        return [
            allowance
            for allowance in self.allowances
            if not any(map(allowance.fits, self.differences))
        ]


async def run_on_both(
    transcript: fidelity_talks.Transcript,
    sandbox: fidelity_talks.Server,
    real: fidelity_talks.Server,
) -> Findings:
    """
    Run a transcript on both servers, and compare their answers. It leaves nothing on either of
    them.
    """
    suffix = secrets.token_hex(3)
    async with asyncio.TaskGroup() as group:
        ours, theirs = (
            group.create_task(fidelity_talks.run_transcript(transcript, server, suffix))
            for server in (sandbox, real)
        )
    differences = fidelity_comparison.compare(
        fidelity_masks.mask_exchanges(ours.result()), fidelity_masks.mask_exchanges(theirs.result())
    )
    allowances = [
        item for item in fidelity_allowances.ALLOWANCES if item.transcript == transcript.name
    ]
    return Findings(
        sum(not exchange.is_event for exchange in theirs.result()), differences, allowances
    )
