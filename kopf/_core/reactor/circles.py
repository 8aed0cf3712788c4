"""
Circles: detects objects that are handled repeatedly though only this operator changes them.
"""

import asyncio
from collections.abc import Iterable, Sequence

from kopf._cogs.clients.patching import application
from kopf._core.actions import breakers
from kopf._core.engines.events import posting
from kopf._core.reactor import decisions, inventory, views


def count_cycle(view: views.View, memory: inventory.Memory) -> bool:
    """
    Slow down an object that is handled repeatedly with no changes by other writers in between.

    Returns whether it is slowed down for the first time, and therefore should be reported.
    """
    if memory.cycle.is_foreign(view.version):
        return False

    before = memory.breaker or breakers.CLOSED
    memory.breaker = breakers.count_cycle(before, view.site.settings.breaker, _read_clock())
    if memory.breaker.pauses == before.pauses:
        return False

    view.served.flow.loops += 1
    return before.pauses == 0


def report(view: views.View, names: Iterable[str], fields: Iterable[str]) -> None:
    """Report a slowed-down object, with the handlers called and the fields that triggered them."""
    text = (
        f'The object is handled again and again, though only this operator changes it: '
        f'by {", ".join(names)}, for {", ".join(fields) or "no fields"}. It is slowed down '
        f'until others change it. Do the handlers change the fields that they react to?'
    )
    view.logger.error('%s', text)
    posting.event(view.raw, type='Error', reason='HandledInCircles', message=text)


def note_drifts(
    view: views.View, drifts: Sequence[application.Drift], memory: inventory.Memory
) -> None:
    """Stop slowing down the object if another writer changed it while it was being handled."""
    if memory.breaker is None or not memory.breaker.pauses:
        return
    if any(drift.is_foreign and decisions.is_essential(view, drift) for drift in drifts):
        memory.breaker = None


def measure_pause(memory: inventory.Memory) -> float | None:
    """Return for how many more seconds the object is slowed down; ``None`` if it is not."""
    return None if memory.breaker is None else memory.breaker.get_pause(_read_clock())


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
