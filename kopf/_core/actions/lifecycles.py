"""
Lifecycles: which of the due handlers to execute now, and in which order.

A lifecycle is a function of the handlers in the order of their declaration. It returns some of
them; the others are passed again in the next cycle, after the progress of the selected ones is
stored.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from kopf._cogs.structs import ids

IDLE_DELAY = 1.0
"""Seconds after which a lifecycle is called again if it has selected no handlers."""


class Identified(Protocol):
    """A handler, as far as lifecycles need it."""

    @property
    def id(self) -> ids.HandlerId: ...


class Counted(Protocol):
    """The progress of a handler, as far as lifecycles need it."""

    @property
    def retries(self) -> int: ...


HandlerT = TypeVar('HandlerT', bound=Identified)

LifecycleFn: TypeAlias = Callable[..., Sequence[Any]]
"""
Gets the handlers positionally, ``state`` (the progress by ids) and the handlers' arguments by name.
"""


def all_at_once(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute all handlers in one cycle, in the order of their declaration."""
    return handlers


def one_by_one(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute the handlers one per cycle, in the order of their declaration."""
    return handlers[:1]


def randomized(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute the handlers one per cycle, a random one each time."""
    return [random.choice(handlers)] if handlers else []


def shuffled(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute all handlers in one cycle, in a random order."""
    return random.sample(handlers, k=len(handlers))


def asap(
    handlers: Sequence[HandlerT], *, state: Mapping[ids.HandlerId, Counted], **_: Any
) -> Sequence[HandlerT]:
    """
    Execute one handler per cycle, with the fewest attempts first.

    Failing handlers do not block the others.
    """
    counts = {
        handler.id: state[handler.id].retries if handler.id in state else 0 for handler in handlers
    }
    return sorted(handlers, key=lambda handler: counts[handler.id])[:1]


OWN = frozenset({all_at_once, one_by_one, randomized, shuffled, asap})
"""The lifecycles that always select the handler if there is only one."""

_default_lifecycle: LifecycleFn | None = None


def get_default_lifecycle() -> LifecycleFn:
    """Return the lifecycle of operators that are started with no explicit one."""
    return _default_lifecycle if _default_lifecycle is not None else asap


def set_default_lifecycle(lifecycle: LifecycleFn | None) -> None:
    """Set the lifecycle of operators that are started with no explicit one; `None` resets it."""
    global _default_lifecycle
    _default_lifecycle = lifecycle
