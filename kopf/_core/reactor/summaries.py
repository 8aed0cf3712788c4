"""
Summaries: what an operator tells of itself when it starts and when it ends.

Texts only: they are logged by the operator itself. There is nothing secret in them.
"""

import collections
from collections.abc import Collection, Iterable

from kopf._cogs.helpers import meters
from kopf._cogs.structs import references
from kopf._core.actions import execution
from kopf._core.intents import handlers

FAILURES = ('failed', 'ignored', 'retried')
"""How attempts end, as they are counted, if they fail."""


def describe_scope(patterns: Collection[references.NamespacePattern], *, clusterwide: bool) -> str:
    """Describe where the objects are served."""
    return 'the whole cluster' if clusterwide else f'the namespaces {", ".join(map(str, patterns))}'


def describe_handlers(declared: Iterable[execution.Handler]) -> str:
    """Describe for what the handlers are, as they were declared, and how many of them."""
    counts = collections.Counter(map(_get_subject, declared))
    own = counts.pop(None, 0)
    listed = [f'{counts[name]} of {name}' for name in sorted(filter(None, counts))]
    return ', '.join([*listed, *([f'{own} of the operator itself'] if own else [])]) or 'none'


def count_runs(meter: meters.Meter) -> tuple[int, int]:
    """Return how many times handlers have run, and how many times they have failed, for good or not."""
    outcomes: collections.Counter[str] = collections.Counter()
    for attempts in meter.attempts.values():
        outcomes.update(attempts.outcomes)
    return outcomes.total(), sum(outcomes[outcome] for outcome in FAILURES)


def _get_subject(handler: execution.Handler) -> str | None:
    """Return the resource of the handler as it was declared; ``None`` if it is for the operator."""
    return repr(handler.selector) if isinstance(handler, handlers.ResourceHandler) else None
