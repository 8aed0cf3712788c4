"""
The current leadership: that of the operator which has started the current task or thread.
"""

import contextlib
import contextvars
from collections.abc import Iterator

from kopf._cogs.clients import fences

_current: contextvars.ContextVar[fences.Fence | None] = contextvars.ContextVar(
    'kopf-leadership', default=None
)


@contextlib.contextmanager
def fenced(fence: fences.Fence) -> Iterator[None]:
    """Use this fence in this task, and in all tasks and threads started from it."""
    token = _current.set(fence)
    try:
        yield
    finally:
        _current.reset(token)


def leading() -> bool:
    """
    Return whether this replica of the operator leads now, i.e. may act.

    It is always true for operators with no election (``settings.leadership.name``), and outside of
    operators. Ask right before every effect that must not be repeated by the next leader: it turns
    false as soon as the Lease was not renewed in time, e.g. after the process was stopped for long.
    """
    fence = _current.get()
    return fence is None or fence.is_open
