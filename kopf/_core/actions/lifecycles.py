"""
Lifecycles: which of the handlers that are due now are to be executed now, and in which order.

A lifecycle is a function of the handlers in the order of their declaration. It returns some of them;
those left out are asked about again in the next cycle, after the progress of the taken ones is stored.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from kopf._cogs.structs import ids

IDLE_DELAY = 1.0
"""Seconds after which a lifecycle is asked again if it has taken none of the handlers."""


class Identified(Protocol):
    """What is to be known of a handler."""

    @property
    def id(self) -> ids.HandlerId: ...


class Counted(Protocol):
    """What is to be known of the progress of a handler."""

    @property
    def retries(self) -> int: ...


HandlerT = TypeVar('HandlerT', bound=Identified)

LifecycleFn: TypeAlias = Callable[..., Sequence[Any]]
"""Gets the handlers positionally, ``state`` (the progress by ids) and the arguments of the handlers by names."""


def all_at_once(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute all handlers at once, in the order of their declaration."""
    return handlers


def one_by_one(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute the handlers one per cycle, in the order of their declaration."""
    return handlers[:1]


def randomized(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute the handlers one per cycle, a random one each time."""
    return [random.choice(handlers)] if handlers else []


def shuffled(handlers: Sequence[HandlerT], **_: Any) -> Sequence[HandlerT]:
    """Execute all handlers at once, in a random order."""
    return random.sample(handlers, k=len(handlers))


def asap(
    handlers: Sequence[HandlerT], *, state: Mapping[ids.HandlerId, Counted], **_: Any
) -> Sequence[HandlerT]:
    """Execute the handlers one per cycle, those with fewer attempts first: the failing ones do not hold the others."""
    counts = {
        handler.id: state[handler.id].retries if handler.id in state else 0 for handler in handlers
    }
    return sorted(handlers, key=lambda handler: counts[handler.id])[:1]


OWN = frozenset({all_at_once, one_by_one, randomized, shuffled, asap})
"""The lifecycles that never leave out the only handler."""

_default_lifecycle: LifecycleFn | None = None


def get_default_lifecycle() -> LifecycleFn:
    """Tell which lifecycle is used by operators that are started with no explicit one."""
    return _default_lifecycle if _default_lifecycle is not None else asap


def set_default_lifecycle(lifecycle: LifecycleFn | None) -> None:
    """Use another lifecycle in operators that are started with no explicit one; `None` restores the original one."""
    global _default_lifecycle
    _default_lifecycle = lifecycle
