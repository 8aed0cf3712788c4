"""
Operator handlers: the handlers of the operator itself, with no objects; their calls and retries.

Their progress is not stored: when the operator is restarted, so are they. Synchronous handlers run
in their own threads: neither logins nor cleanups wait for the handlers of objects, which can block
all their threads.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import meters
from kopf._cogs.structs import ids
from kopf._core.actions import (
    execution,
    failures,
    lifecycles,
    outcomes,
    progression,
    threads,
)
from kopf._core.intents import causes, handlers, registries

logger = logging.getLogger(__package__)


class ActivityError(Exception):
    """Some handlers of an activity have failed, and will not be retried."""

    def __init__(
        self, activity: causes.Activity, outcomes: Mapping[ids.HandlerId, outcomes.Outcome]
    ) -> None:
        self.activity = activity
        self.outcomes = outcomes
        errors = {id: outcome.exception for id, outcome in outcomes.items() if outcome.is_failure}
        listed = '; '.join(
            f'{id!r}: {failures.read_text(error) or type(error).__name__}'
            for id, error in errors.items()
            if error is not None
        )
        super().__init__(f'The {activity} of the operator has failed in its handlers: {listed}')


async def run_activity(
    *,
    activity: causes.Activity,
    registry: registries.OperatorRegistry,
    settings: settings_.OperatorSettings,
    memo: Any,
    indices: Mapping[str, Any],
    now: Callable[[], datetime.datetime],
    meter: meters.Meter | None = None,
) -> Mapping[ids.HandlerId, Any]:
    """
    Execute all handlers of the activity until they are finished; return their results by their ids.

    It can take forever, as the handlers are retried by their own rules. All of them are executed,
    even if some fail; raises `ActivityError` after that. If cancelled, the current handler is
    cancelled too, and no others are executed.
    """
    cause = build_cause(activity, settings=settings, memo=memo, indices=indices)
    latest = await run_activity_handlers(
        registry._activities.select(activity), cause, now=now, meter=meter
    )
    if any(outcome.is_failure for outcome in latest.values()):
        raise ActivityError(activity, latest)
    return {id: outcome.result for id, outcome in latest.items()}


def build_cause(
    activity: causes.Activity,
    *,
    settings: settings_.OperatorSettings,
    memo: Any,
    indices: Mapping[str, Any],
) -> causes.ActivityCause:
    """Build the cause for the handlers of the activity; each activity has its own logger."""
    return causes.ActivityCause(
        logger=logging.getLogger(f'kopf.activities.{activity}'),
        activity=activity,
        settings=settings,
        memo=memo,
        indices=indices,
    )


async def run_activity_handlers(
    handlers: Sequence[handlers.ActivityHandler],
    cause: causes.ActivityCause,
    *,
    now: Callable[[], datetime.datetime],
    meter: meters.Meter | None = None,
    is_quiet: bool = False,
) -> Mapping[ids.HandlerId, outcomes.Outcome]:
    """
    Execute these handlers until they are finished; return their final outcomes, including failures.

    In other respects, it is the same as `run_activity`.
    """
    env = execution.Environment(
        settings=cause.settings,
        now=now,
        lifecycle=lifecycles.all_at_once,
        meter=meter,
        is_quiet=is_quiet,
        executor=threads.OwnThreads(f'kopf {cause.activity}'),
    )
    state = progression.State()
    latest: dict[ids.HandlerId, outcomes.Outcome] = {}
    names = [handler.id for handler in handlers]

    while (delay := state.delay(names, now())) is not None:
        await asyncio.sleep(delay)
        current = await execution.run_handlers(handlers, cause, state, env)
        state = state.with_outcomes(current, now=now())
        latest.update(current)

    logger.debug('The %s of the operator is over.', cause.activity)
    return latest
