"""
Execution: the attempts to execute handlers, with their limits and outcomes.

An attempt consists of a check for the remaining time and attempts, the call of the function, and
the outcome: whether the handler is finished, and if not, when to retry it. Nothing is stored here:
the progress comes from the caller, and the outcomes are returned to the caller. Declaring handlers
needs this module too, so it does not load asyncio.
"""

import concurrent.futures
import contextlib
import contextvars
import dataclasses
import datetime
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from kopf._cogs.configs import settings
from kopf._cogs.helpers import lazies, meters
from kopf._cogs.structs import backoffs, ids
from kopf._core.actions import diagnostics, failures, lifecycles, outcomes, progression, signatures

Logger: TypeAlias = 'logging.Logger | logging.LoggerAdapter[Any]'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handler:
    """A declared function with its id and options, of any kind."""

    NOUN: ClassVar[str] = 'Handler'  # its name in log lines
    # Whether its successes are so usual that they are logged only at the debug level.
    IS_ROUTINE: ClassVar[bool] = False
    # Whether the timeout is for each call separately, not for all attempts with their delays.
    LIMITS_CALLS: ClassVar[bool] = False

    id: ids.HandlerId
    fn: Callable[..., Any]
    param: Any = None
    errors: failures.ErrorsMode | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | backoffs.Backoff | None = None

    def __str__(self) -> str:
        return f'{self.NOUN} {self.id!r}'

    @lazies.lazy
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        from kopf._core.actions import invocation  # loads asyncio

        return invocation.is_async(self.fn)

    @lazies.lazy
    def signature(self) -> signatures.Signature | None:
        """The arguments the function accepts; ``None`` if it accepts all, or they are unknown."""
        signature = signatures.read_signature(self.fn)
        return None if signature is None or signature.is_open else signature

    @property
    def is_retried(self) -> bool:
        """Whether the handler is retried if the first attempt fails."""
        return True

    def convert(self, kwargs: Mapping[str, Any], cause: Any) -> Mapping[str, Any]:
        """
        Return the arguments as the function wants them. Raises `InvalidObjectError` if impossible.
        """
        return kwargs

    def choose_report(self, result: Any) -> str:
        """Choose the log message of a success."""
        return '%s succeeded.'

    def check_result(self, result: Any) -> None:
        """Raise an error if the function must not return such values."""

    def is_denial(self, error: Exception) -> bool:
        """
        Return whether the error is a decision of the handler, as is usual for admission handlers.
        """
        return False


class Cause(Protocol):
    """The reason to execute handlers, as far as the execution needs it."""

    @property
    def logger(self) -> Logger: ...

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """
        The arguments of handlers except for ``param``, ``retry``, ``started`` and ``runtime``.
        """

    @property
    def indices(self) -> Mapping[str, Any]:
        """The indices by their names: they override all other arguments."""


class Scope(Protocol):
    """The context of one attempt, such as its sub-handlers."""

    async def finish(self) -> None:
        """
        Do the remaining work after the function has returned.

        It is a part of the attempt: its errors and its time count as those of the handler.
        """

    def close(self) -> None:
        """End the scope after any outcome of the attempt."""


class Companion(Protocol):
    """The provider of a scope for each attempt."""

    def open(self, handler: Any, cause: Any) -> Scope:
        """Begin the scope of an attempt in the current context."""

    def complete(self, handler: Any, outcome: outcomes.Outcome) -> outcomes.Outcome:
        """Process the outcome when the attempt is over, and add to it if needed."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """The environment shared by all handlers that are executed together."""

    settings: settings.OperatorSettings
    now: Callable[[], datetime.datetime]  # in UTC, by the clock of the event loop
    lifecycle: lifecycles.LifecycleFn = lifecycles.all_at_once
    # Extra arguments, depending on the handler and the cause.
    extras: Callable[[Any, Any], Mapping[str, Any]] | None = None
    companion: Companion | None = None
    # For functions in threads, if it is not the one from the settings.
    executor: concurrent.futures.Executor | None = None
    # Whether all successes are logged only at the debug level.
    is_quiet: bool = False
    meter: meters.Meter | None = None  # where the attempts are counted
    # Called for failures, in addition to the logs.
    complain: Callable[[Exception, outcomes.Outcome, 'Attempt', Any], None] | None = None
    # The name to count the attempts by instead of the ids: those of sub-handlers can be countless.
    family: str | None = None

    def accompanied_by(self, companion: Companion) -> 'Environment':
        """
        Return a copy with a companion, as `dataclasses.replace` does, but several times faster.
        """
        environment = object.__new__(Environment)
        vars(environment).update(vars(self), companion=companion)
        return environment


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt of a handler: when the first and this one began, and how many were before it."""

    handler: Handler
    started: datetime.datetime
    began: datetime.datetime
    retry: int

    @property
    def runtime(self) -> datetime.timedelta:
        """The time since the handler was first started until this attempt began."""
        return max(self.began - self.started, datetime.timedelta(0))

    @property
    def remaining(self) -> float | None:
        """The seconds left to the handler when this attempt began; `None` if unlimited."""
        if self.handler.timeout is None or self.handler.LIMITS_CALLS:
            return self.handler.timeout
        return self.handler.timeout - self.runtime.total_seconds()

    @property
    def number(self) -> int:
        """The number of this attempt, counting from 1."""
        return self.retry + 1


class _Binding:
    """A value of a context variable for a block of code. Three times faster than a generator."""

    __slots__ = ('_previous', '_value', '_variable')

    def __init__(self, variable: contextvars.ContextVar[Any], value: Any) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._previous = self._variable.get()
        self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        # Not by a token: abandoned coroutines are closed in other contexts.
        self._variable.set(self._previous)


_handled: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar(
    'kopf-handled', default=None
)
"""The object of the current handler, also in all threads and tasks started from it."""


def get_handled_body() -> Mapping[str, Any] | None:
    """Return the object being handled in this context; ``None`` if there is none."""
    return _handled.get()


def handling(body: Mapping[str, Any] | None) -> contextlib.AbstractContextManager[None]:
    """Set the object being handled for a block of code."""
    return _Binding(_handled, body)


_attempted: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar(
    'kopf-attempted', default=None
)
"""The current attempt, also in all threads and tasks started from it."""


def get_current_attempt() -> Attempt | None:
    """Return the current attempt; ``None`` outside of handlers."""
    return _attempted.get()


def attempting(attempt: Attempt) -> contextlib.AbstractContextManager[None]:
    """Set the current attempt for a block of code."""
    return _Binding(_attempted, attempt)


async def run_handlers(
    handlers: Sequence[Handler],
    cause: Cause,
    state: progression.State,
    env: Environment,
    *,
    default_errors: failures.ErrorsMode = failures.ErrorsMode.TEMPORARY,
) -> Mapping[ids.HandlerId, outcomes.Outcome]:
    """
    Execute the handlers that are due and selected by the lifecycle, one after another.

    Their ids must be unique. Errors of one handler do not affect the others: they are in the
    outcomes. Raises only exceptions not meant for handlers: cancellations, exits, and errors of the
    lifecycle function; the outcomes of this run are lost then.
    """
    now = env.now()
    due = [handler for handler in handlers if state.is_due(handler.id, now)]
    taken = _choose(due, cause, state, env.lifecycle)
    results: dict[ids.HandlerId, outcomes.Outcome] = {}
    known = {handler.id: handler for handler in due}

    # Lifecycles can return a handler several times.
    for id in dict.fromkeys(handler.id for handler in taken if handler.id in known):
        results[id] = await run_attempt(
            known[id], cause, state.get(id), env, default_errors=default_errors
        )

    return results


def _choose(
    due: Sequence[Handler],
    cause: Cause,
    state: progression.State,
    lifecycle: lifecycles.LifecycleFn,
) -> Sequence[Handler]:
    """Choose the handlers to execute now; do not call the lifecycle if the choice is obvious."""
    if not due or (len(due) == 1 and lifecycle in lifecycles.OWN):
        return due
    kwargs = {key: value for key, value in cause.kwargs.items() if key != 'handlers'}
    return lifecycle(due, **{**kwargs, 'state': state})


async def run_attempt(
    handler: Handler,
    cause: Cause,
    state: progression.HandlerState | None,
    env: Environment,
    *,
    default_errors: failures.ErrorsMode = failures.ErrorsMode.TEMPORARY,
) -> outcomes.Outcome:
    """
    Execute the handler once, unless its time or attempts are exhausted, and return the outcome.

    A coroutine that exceeds the handler's time is interrupted with `asyncio.TimeoutError`;
    functions in threads are not. Cancellations and other errors that are not `Exception` are raised
    with no outcome, as if there was no attempt. Any number of attempts can run at the same time.
    """
    attempt = begin(handler, state, env.now())
    with attempting(attempt):
        try:
            check_limits(attempt)
            is_limited = attempt.remaining is not None and handler.is_async
            result = await (_call_in_time if is_limited else _call)(attempt, cause, env)
        except Exception as error:
            from kopf._core.actions import invocation  # loads asyncio

            if invocation.is_cancellation(error):
                raise
            outcome = conclude(error, attempt, env, default_errors)
            kind = classify_failure(error, outcome)
            diagnostics.log_failure(error, outcome, attempt, cause.logger)
            if env.complain is not None:
                env.complain(error, outcome, attempt, cause)
        else:
            outcome = outcomes.Outcome(
                final=True, result=result, began=attempt.began, ended=env.now()
            )
            kind = 'succeeded'
            is_quiet = env.is_quiet or handler.IS_ROUTINE
            cause.logger.log(
                logging.DEBUG if is_quiet else logging.INFO, handler.choose_report(result), handler
            )

    if outcome.ended is None:
        outcome = dataclasses.replace(outcome, began=attempt.began, ended=env.now())
    if env.meter is not None and outcome.ended is not None:
        env.meter.count_attempt(
            env.family or handler.id, kind, (outcome.ended - attempt.began).total_seconds()
        )

    return env.companion.complete(handler, outcome) if env.companion is not None else outcome


def begin(
    handler: Handler, state: progression.HandlerState | None, now: datetime.datetime
) -> Attempt:
    """Continue after the previous attempts, or begin with the first one."""
    if state is None or not state.retries:
        return Attempt(handler, started=now, began=now, retry=0)
    return Attempt(handler, started=state.started or now, began=now, retry=state.retries)


def check_limits(attempt: Attempt) -> None:
    """
    Raise an error if no time or attempts are left, e.g. because the operator was down for long.
    """
    handler = attempt.handler
    if attempt.remaining is not None and attempt.remaining <= 0:
        raise failures.HandlerTimeoutError(f'{handler} has timed out after {attempt.runtime}.')
    if handler.retries is not None and attempt.retry >= handler.retries:
        raise failures.HandlerRetriesError(f'{handler} has exceeded {attempt.retry} retries.')


def conclude(
    error: Exception, attempt: Attempt, env: Environment, default_errors: failures.ErrorsMode
) -> outcomes.Outcome:
    """Decide the outcome of the attempt by its error; the attempt ends now."""
    handler = attempt.handler
    mode = handler.errors if handler.errors is not None else default_errors
    if isinstance(error, failures.PermanentError):
        return outcomes.Outcome(final=True, exception=error)
    if isinstance(error, failures.TemporaryError):
        return _postpone(error, error.delay, attempt, env.now())
    if mode is failures.ErrorsMode.IGNORED:
        return outcomes.Outcome(final=True)
    if mode is failures.ErrorsMode.PERMANENT:
        return outcomes.Outcome(final=True, exception=error)

    backoff = (
        handler.backoff if handler.backoff is not None else env.settings.execution.default_backoff
    )
    delay = backoffs.choose_delay(backoff, attempt.number, random.random())
    return _postpone(error, delay, attempt, env.now())


def classify_failure(error: Exception, outcome: outcomes.Outcome) -> str:
    """Name the result of an error for the metrics."""
    if outcome.final:
        return 'ignored' if outcome.exception is None else 'failed'
    return 'waiting' if isinstance(error, failures.HandlerChildrenRetry) else 'retried'


def _postpone(
    error: Exception, delay: float | None, attempt: Attempt, now: datetime.datetime
) -> outcomes.Outcome:
    """Schedule a retry, unless the limits of the handler would prevent it anyway."""
    handler = attempt.handler
    limit: failures.PermanentError | None = None
    text = failures.describe(error)
    runtime = (now - attempt.started).total_seconds() + (delay or 0)

    if handler.retries is not None and attempt.retry + 1 >= handler.retries:
        limit = failures.HandlerRetriesError(
            f'{handler} has exceeded {attempt.retry + 1} retries: {text}'
        )
    elif handler.timeout is not None and not handler.LIMITS_CALLS and runtime >= handler.timeout:
        limit = failures.HandlerTimeoutError(
            f'{handler} has timed out after {now - attempt.started}: {text}'
        )

    if limit is not None:
        limit.__cause__ = error
        return outcomes.Outcome(final=True, exception=limit)

    return outcomes.Outcome(final=False, delay=delay, exception=error)


async def _call(attempt: Attempt, cause: Cause, env: Environment) -> Any:
    """Call the function of the handler in its scope, and return the result of the function."""
    from kopf._core.actions import invocation  # loads asyncio

    handler = attempt.handler
    kwargs = _convert(handler, build_kwargs(attempt, cause, env), cause, env)
    given = kwargs if handler.signature is None else handler.signature.choose(kwargs)
    executor = env.executor if env.executor is not None else env.settings.execution.executor
    scope = env.companion.open(handler, cause) if env.companion is not None else None
    cause.logger.debug('%s is invoked.', handler)

    try:
        with handling(getattr(cause, 'body', None)):
            result = await invocation.invoke(
                handler.fn, executor=executor, kwargs=given, is_coroutine=handler.is_async
            )
        if scope is not None:
            await scope.finish()
        handler.check_result(result)
    except TypeError:
        invocation.check_arguments(handler.fn, kwargs)
        raise
    finally:
        if scope is not None:
            scope.close()

    return result


def _convert(
    handler: Handler, kwargs: Mapping[str, Any], cause: Cause, env: Environment
) -> Mapping[str, Any]:
    """Return the arguments as the function wants them; count the objects that do not fit."""
    try:
        return handler.convert(kwargs, cause)
    except failures.InvalidObjectError as error:
        if env.meter is not None:
            env.meter.conversion_errors[error.resource] += 1
        raise


async def _call_in_time(attempt: Attempt, cause: Cause, env: Environment) -> Any:
    """Call the function, but interrupt it when the time of the handler is over."""
    from kopf._core.actions import invocation  # loads asyncio

    assert attempt.remaining is not None
    try:
        return await invocation.limit(_call(attempt, cause, env), attempt.remaining)
    except invocation.LimitError as error:
        if attempt.handler.LIMITS_CALLS:
            raise TimeoutError(f'The call of {attempt.handler} has timed out.') from error
        duration = env.now() - attempt.started
        raise failures.HandlerTimeoutError(
            f'{attempt.handler} has timed out after {duration}.'
        ) from error


def build_kwargs(attempt: Attempt, cause: Cause, env: Environment) -> dict[str, Any]:
    """Collect the arguments of the handler's function."""
    return {
        'param': attempt.handler.param,
        'retry': attempt.retry,
        'started': attempt.started,
        'runtime': attempt.runtime,
        **cause.kwargs,
        **(env.extras(attempt.handler, cause) if env.extras is not None else {}),
        **cause.indices,
    }
