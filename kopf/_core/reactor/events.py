"""
Events: calls the handlers of raw events, for every event of an object.
"""

from collections.abc import Sequence
from typing import Any

from kopf._cogs.aiokits import turns
from kopf._cogs.structs import bodies, dicts, objects, patches
from kopf._core.actions import execution, failures, loggers
from kopf._core.intents import causes, handlers
from kopf._core.reactor import sites


async def call_handlers(
    served: sites.Served, events: Sequence[bodies.RawEvent], memo: Any, patch: patches.Patch
) -> bool:
    """
    Call the event handlers for each event; their errors are logged and ignored.

    Returns whether the control never returned to the event loop, so that the object is still
    current. Raises the errors of the filters.
    """
    registry = served.site.registry._watching
    if (
        not events
        or registry.is_empty
        or not registry.has_handlers(served.resource, served.selectors)
    ):
        return True

    with turns.Turn() as turn:
        await _call_for_all(served, events, memo, patch)
    return not turn.is_over


async def _call_for_all(
    served: sites.Served, events: Sequence[bodies.RawEvent], memo: Any, patch: patches.Patch
) -> None:
    first_error: Exception | None = None
    for event in events:
        cause = _build_cause(served, event, memo, patch)
        try:
            await _call(served, served.site.registry._watching.iter_handlers(cause), cause)
        except Exception as error:  # of the filters; the remaining events are still handled
            first_error = first_error or error

    if first_error is not None:
        raise first_error


def _build_cause(
    served: sites.Served, event: bodies.RawEvent, memo: Any, patch: patches.Patch
) -> causes.WatchingCause:
    """Build a cause with its own copy of the body: handlers may change it in place."""
    copied: bodies.RawEvent = {**event, 'object': dicts.copy_json(event['object'])}
    body = objects.Body(copied['object'])
    return causes.WatchingCause(
        logger=loggers.LocalObjectLogger(body=body, settings=served.site.settings),
        memo=memo,
        indices=served.site.indices,
        resource=served.resource,
        selectors=served.selectors,
        body=body,
        patch=patch,
        event=copied,
    )


async def _call(
    served: sites.Served,
    selected: Sequence[handlers.WatchingHandler],
    cause: causes.WatchingCause,
) -> None:
    site = served.site
    logger = loggers.ObjectLogger(body=cause.body, settings=site.settings)
    env = execution.Environment(
        settings=site.settings,
        now=site.now,
        extras=lambda *_: {'logger': logger},
        meter=site.context.meter,
    )

    for handler in selected:
        await execution.run_attempt(
            handler, cause, None, env, default_errors=failures.ErrorsMode.IGNORED
        )
