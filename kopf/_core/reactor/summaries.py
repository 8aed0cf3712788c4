"""
Summaries: the texts about an operator that are logged at its start and at its end.

Texts only: the operator logs them. They contain no secrets.
"""

import collections
import re
from collections.abc import Collection, Iterable

from kopf._cogs.helpers import meters
from kopf._cogs.structs import references
from kopf._core.actions import execution
from kopf._core.intents import handlers

PATTERN = re.compile(r'[^a-z0-9-]')
"""What no name of a namespace contains: it is a pattern."""

FAILURES = ('failed', 'ignored', 'retried')
"""The counted outcomes of attempts that mean failures."""


def describe_scope(patterns: Collection[references.NamespacePattern], *, clusterwide: bool) -> str:
    """Describe where the objects are served."""
    if clusterwide:
        return 'the whole cluster'
    is_one = len(patterns) == 1 and not any(PATTERN.search(str(pattern)) for pattern in patterns)
    return f'the {"namespace" if is_one else "namespaces"} {", ".join(map(str, patterns))}'


def describe_handlers(declared: Iterable[execution.Handler]) -> str:
    """Describe how many handlers are declared, and for which resources."""
    counts = collections.Counter(map(_get_subject, declared))
    own = counts.pop(None, 0)
    listed = [f'{counts[name]} of {name}' for name in sorted(filter(None, counts))]
    return ', '.join([*listed, *([f'{own} of the operator itself'] if own else [])]) or 'none'


def count_runs(meter: meters.Meter) -> tuple[int, int]:
    """
    Return how many times handlers have run, and how many of these runs failed, permanently or not.
    """
    outcomes: collections.Counter[str] = collections.Counter()
    for attempts in meter.attempts.values():
        outcomes.update(attempts.outcomes)
    return outcomes.total(), sum(outcomes[outcome] for outcome in FAILURES)


def _get_subject(handler: execution.Handler) -> str | None:
    """
    Return the resource of the handler as declared; ``None`` if it is a handler of the operator.
    """
    return repr(handler.selector) if isinstance(handler, handlers.ResourceHandler) else None
