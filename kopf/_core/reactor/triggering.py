"""
Triggering: requests of users' code to reconcile an object, from any task or thread.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Iterator
from typing import Protocol

from kopf._cogs.structs import references, selectors

logger = logging.getLogger(__name__)


class Target(Protocol):
    """An operator that can reconcile objects on request."""

    def is_reconciled(self, selector: selectors.Selector, namespace: str | None, name: str) -> bool:
        """Return whether such an object is known and reconciled; called from any thread."""

    def trigger(self, selector: selectors.Selector, namespace: str | None, name: str) -> None:
        """Reconcile the object; called only in the event loop of the operator."""


_current: contextvars.ContextVar[Target | None] = contextvars.ContextVar(
    'kopf-triggered', default=None
)
_running: list[tuple[Target, asyncio.AbstractEventLoop]] = []


@contextlib.contextmanager
def attached(target: Target) -> Iterator[None]:
    """
    Address this operator from this task, and from all tasks and threads started from it.

    Code that belongs to no operator addresses all operators in the process.
    """
    entry = (target, asyncio.get_running_loop())
    token = _current.set(target)
    _running.append(entry)

    try:
        yield
    finally:
        _running.remove(entry)
        _current.reset(token)


def trigger(
    resource: selectors.Notation | references.Resource,
    name: str,
    namespace: str | None = None,
    *,
    reason: str | None = None,
) -> bool:
    """
    Have the object reconciled soon by its functions declared with `kopf.on.reconcile`.

    It can be called from any task and any thread. From the functions of an operator, it addresses
    this operator; from other code, all operators of the process that serve the resource. It returns
    false if the object is not known, e.g. because it is not listed yet, or is not reconciled.
    """
    selector = _parse(resource)
    current = _current.get()
    triggered = [
        (target, loop)
        for target, loop in tuple(_running)
        if current in (None, target) and target.is_reconciled(selector, namespace, name)
    ]

    for target, loop in triggered:
        logger.debug('Reconciling %r %s is requested: %s', selector, name, reason or 'no reason.')
        with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
            loop.call_soon_threadsafe(target.trigger, selector, namespace, name)

    return bool(triggered)


def _parse(resource: selectors.Notation | references.Resource) -> selectors.Selector:
    if isinstance(resource, references.Resource):
        return selectors.Selector(resource.group, resource.version, None, plural=resource.plural)
    try:
        return selectors.parse_selector(resource)
    except TypeError as error:
        raise TypeError(f'kopf.trigger: {error}') from None
