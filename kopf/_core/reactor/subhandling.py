"""
Sub-handling: handlers inside of handlers.

While a handler of changes is running, it can register other functions as its sub-handlers. They
have their own progress, errors and retries. The handler is finished when all of them are; until
then, it is called repeatedly to register them again, but only the unfinished sub-handlers are
called.

The current handler is taken from the context variables, both in coroutines and in threads.
"""

import contextvars
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kopf._cogs.structs import ids
from kopf._core.actions import execution, failures, lifecycles, outcomes, progression, signatures
from kopf._core.intents import causes, filters, handlers, naming, registries

Fns: TypeAlias = Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]]
Registry: TypeAlias = registries.ChangingRegistry | registries.OperatorRegistry
Outcomes: TypeAlias = dict[ids.HandlerId, outcomes.Outcome]


_current: contextvars.ContextVar['_Scope'] = contextvars.ContextVar('kopf-subhandling')


async def execute(
    *,
    fns: Fns | None = None,
    handlers: Iterable[handlers.ChangingHandler] | None = None,
    registry: Registry | None = None,
    lifecycle: lifecycles.LifecycleFn | None = None,
    cause: causes.ChangingCause | None = None,
) -> None:
    """
    Execute the sub-handlers of the current handler now: the given ones, or those registered so far.

    Returns when all of them are finished. Otherwise, raises an internal error, so that the handler
    is called again later. Raises `LookupError` outside of handlers of changes, and `TypeError` if
    sub-handlers are given in several ways.
    """
    if sum(source is not None for source in (fns, handlers, registry)) > 1:
        raise TypeError('Only one of fns=, handlers=, registry= can be given to kopf.execute().')

    scope = _get_scope()
    cause = cause if cause is not None else scope.cause
    if fns is not None:
        given = _build_registry(scope.build_handlers(fns))
    elif handlers is not None:
        given = _build_registry(handlers)
    elif registry is not None:
        given = (
            registry._changing if isinstance(registry, registries.OperatorRegistry) else registry
        )
    else:
        given = scope.registry

    await scope.execute(given.iter_handlers(cause), cause, lifecycle)
    scope.check()


def register(handler: handlers.ChangingHandler) -> None:
    """
    Add a sub-handler to the current handler. Raises `LookupError` outside of handlers of changes.
    """
    _get_scope().registry.append(handler)


def get_parent() -> handlers.ChangingHandler:
    """Return the current handler. Raises `LookupError` outside of handlers of changes."""
    return _get_scope().parent


async def run_handlers(
    handlers: Sequence[handlers.ChangingHandler],
    cause: causes.ChangingCause,
    state: progression.State,
    env: execution.Environment,
    *,
    results: Outcomes | None = None,
) -> Mapping[ids.HandlerId, outcomes.Outcome]:
    """
    Execute the handlers that are due and selected by the lifecycle, with their sub-handlers.

    Returns the outcomes of both, by their ids. Raises only exceptions not meant for handlers, such
    as cancellations; ``results`` is filled as the handlers run, and is then available despite the
    exception.
    """
    run = Run(state, env, results)
    await execution.run_handlers(handlers, cause, state, run.env)
    return run.results


class Run:
    """
    One execution of handlers with all their sub-handlers, at any depth.

    The handlers are executed in its environment; ``results`` is filled with the outcomes of both as
    they run.
    """

    def __init__(
        self, state: progression.State, env: execution.Environment, results: Outcomes | None = None
    ) -> None:
        self.state = state  # of the sub-handlers, updated as they run
        self._env = env
        self.results: Outcomes = {} if results is None else results
        self._subrefs: dict[ids.HandlerId, frozenset[ids.HandlerId]] = {}
        # The topmost parents of the sub-handlers.
        self.families: dict[ids.HandlerId, ids.HandlerId] = {}

    @property
    def env(self) -> execution.Environment:
        """The environment of the handlers, not kept in order to avoid a reference cycle."""
        return self._env.accompanied_by(self)

    def open(self, handler: handlers.ChangingHandler, cause: causes.ChangingCause) -> '_Scope':
        """
        Begin an attempt of a handler; if it is for a field, its sub-handlers get only that field.
        """
        if handler.field is not None:
            cause = dataclasses.replace(cause, **handler.adjust(cause))
        return _Scope(self, handler, cause)

    def note_subrefs(self, parent: handlers.ChangingHandler, subrefs: set[ids.HandlerId]) -> None:
        self._subrefs[parent.id] = frozenset(subrefs)

    def complete(
        self, handler: handlers.ChangingHandler, outcome: outcomes.Outcome
    ) -> outcomes.Outcome:
        subrefs = self._subrefs.pop(handler.id, None)
        outcome = dataclasses.replace(outcome, subrefs=subrefs) if subrefs else outcome
        self.results[handler.id] = outcome
        return outcome


class _Scope:
    """One attempt of a handler that can have sub-handlers."""

    def __init__(
        self, run: Run, parent: handlers.ChangingHandler, cause: causes.ChangingCause
    ) -> None:
        self.run = run
        self.parent = parent
        self.cause = cause
        self.registry = registries.ChangingRegistry()
        # The sub-handlers executed in this attempt or finished before.
        self.subrefs: set[ids.HandlerId] = set()
        self.is_open = True
        self.is_idle = False  # whether the lifecycle has selected none of the due sub-handlers
        self._unnamed: list[handlers.ChangingHandler] = []  # given with no ids in this attempt
        self._token = _current.set(self)

    def build_handlers(self, fns: Fns) -> Sequence[handlers.ChangingHandler]:
        """Build sub-handlers from functions; repeated functions without ids get numbers."""
        if isinstance(fns, Mapping):
            return [registries.build_subhandler(self.parent, fn, id=id) for id, fn in fns.items()]
        before = len(self._unnamed)
        self._unnamed.extend(registries.build_subhandler(self.parent, fn) for fn in fns)
        return naming.number_namesakes(self._unnamed, filters.list_reasons)[before:]

    async def finish(self) -> None:
        """Execute the remaining registered sub-handlers; raise an error if any is unfinished."""
        if not self.registry.is_empty:
            registered = self.registry.iter_handlers(self.cause)
            left = [subhandler for subhandler in registered if subhandler.id not in self.subrefs]
            await self.execute(left, self.cause)
        if self.subrefs:
            self.check()

    def close(self) -> None:
        """End the attempt: no more sub-handlers can be registered."""
        _current.reset(self._token)
        self.is_open = False
        self.run.note_subrefs(self.parent, self.subrefs)

    async def execute(
        self,
        subhandlers: Sequence[handlers.ChangingHandler],
        cause: causes.ChangingCause,
        lifecycle: lifecycles.LifecycleFn | None = None,
    ) -> None:
        """Execute the sub-handlers that are unfinished and due, as selected by the lifecycle."""
        if not subhandlers:
            return

        self.subrefs |= {subhandler.id for subhandler in subhandlers}
        self.run.state = state = self.run.state.including(self.subrefs)
        top = self.run.families.get(self.parent.id, self.parent.id)
        self.run.families |= {subhandler.id: top for subhandler in subhandlers}
        env = self.run.env
        lifecycle = env.lifecycle if lifecycle is None else signatures.narrow(lifecycle)
        env = dataclasses.replace(env, lifecycle=lifecycle, family=f'{top}/*')
        is_due = any(state.is_due(subhandler.id, env.now()) for subhandler in subhandlers)
        results = await execution.run_handlers(subhandlers, cause, state, env)
        self.is_idle = is_due and not results
        self.run.state = self.run.state.with_outcomes(results, now=env.now())

    def check(self) -> None:
        """Raise an error if there are unfinished sub-handlers."""
        delay = self.run.state.delay(self.subrefs, self.run.env.now())
        if delay is not None:
            raise failures.HandlerChildrenRetry(
                delay=lifecycles.IDLE_DELAY if not delay and self.is_idle else delay
            )


def _get_scope() -> _Scope:
    scope = _current.get(None)
    if scope is None or not scope.is_open:
        raise LookupError(
            'Sub-handlers can be registered and executed only inside of running handlers '
            'of creation, update, deletion, resuming, or of changes of fields.'
        )
    return scope


def _build_registry(subhandlers: Iterable[handlers.ChangingHandler]) -> registries.ChangingRegistry:
    registry = registries.ChangingRegistry()
    for subhandler in subhandlers:
        registry.append(subhandler)
    return registry
