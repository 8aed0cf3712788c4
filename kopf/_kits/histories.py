"""
Histories: who worked on what and when, and whether anything was worked on by two at once.

Pure bookkeeping, for tests: the spans are recorded elsewhere, e.g. in the log files of processes.
All times of one history must be of one clock.
"""

import dataclasses
import heapq
from collections.abc import Hashable, Iterable


@dataclasses.dataclass(frozen=True)
class Span:
    """Some work: by whom, on what, from when until when; with no end, it was never finished."""

    actor: Hashable  # e.g. the process
    subject: Hashable  # e.g. the uid of the object
    start: float
    end: float = float('inf')


def find_overlaps(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """
    Find the pairs of spans in which different actors worked on the same subject at the same time.

    Spans that only touch do not overlap. In each pair, the one that began earlier is the first.
    """
    overlaps: list[tuple[Span, Span]] = []
    ongoing: dict[Hashable, list[tuple[float, int, Span]]] = {}
    for number, span in enumerate(sorted(spans, key=lambda span: span.start)):
        running = ongoing.setdefault(span.subject, [])
        while running and running[0][0] <= span.start:
            heapq.heappop(running)
        overlaps.extend(
            (other, span) for _, _, other in sorted(running) if other.actor != span.actor
        )
        heapq.heappush(running, (span.end, number, span))

    return overlaps
