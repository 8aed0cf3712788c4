"""
Worlds: sandboxes in virtual time with an operator that is killed as planned and restarted.

A killed operator can do nothing more, as far as possible: its requests are not answered from that
moment on, and all its tasks are cancelled repeatedly until they end. Only its threads continue, as
they cannot be ended.
"""

import asyncio
import contextlib
import contextvars
import os
import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._cogs.helpers import loaders
from kopf._core.intents import handlers as handlers_
from kopf._core.intents import registries
from kopf._kits import simulations
from kopf._kits.chaos import meddlers, plans, recreations, server_behaviours, timelines, watchdogs
from kopf._sandbox import async_sandbox
from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory

Handlers = (
    registries.OperatorRegistry
    | types.ModuleType
    | str
    | os.PathLike[str]
    | Callable[[registries.OperatorRegistry], object]
)

CANCELLATIONS = 100
TURNS = 10
"""The cancellations of the tasks of a killed operator, and the turns of the loop after each one."""

RESTART_DELAY = 10.0
"""Seconds until the restart of an operator that has ended by itself."""

LOOKING_INTERVAL = 60.0
"""Seconds between the checks that an operator is at rest."""

INSISTING_DELAY = 5.0
"""Seconds between the retries of a scenario's request that the operator could not review."""

MOST_INSISTING = 720
"""The limit of these retries: the operator can be down for an hour, but not forever."""

UNREVIEWED = (500, 'failed calling webhook')

MOST_RESTARTS = 50
READINESS_TIMEOUT = 60.0

REVIEWING_TIMEOUT = 3600.0
"""Seconds until an operator with admission handlers is first ready, including restarts."""

_life: 'contextvars.ContextVar[weakref.WeakSet[asyncio.Task[Any]] | None]' = contextvars.ContextVar(
    'kopf-chaos-life', default=None
)
"""All tasks of the operator started in this context, however deep."""


class World(simulations.Simulation):
    """
    One run of a scenario with an operator and a plan.

    ``with World(plan, handlers, options, apply=[...]) as world: world.begin(); ...; world.end()``.
    """

    def __init__(
        self,
        plan: plans.Plan,
        handlers: Handlers,
        options: Mapping[str, Any],
        *,
        server: Sequence[server_behaviours.Behaviour] = (),
        bounds: watchdogs.Bounds | None = None,
        insist: bool = True,
        **sandbox: Any,
    ) -> None:
        super().__init__(**sandbox)
        self._plan = plan
        self._handlers = handlers
        self._options_of_operator = options
        self._insist = insist
        self._is_reviewing = False
        self._server = server_behaviours.BehavingServer(server, plan.server)
        self.watchdog = watchdogs.Watchdog(bounds or watchdogs.Bounds(), lambda: self.elapsed)
        self.timeline = timelines.Timeline(lambda: self.elapsed, self.watchdog.note_moment)
        self.starts = 0
        self.meddler: meddlers.Meddler
        self.recreator: recreations.Recreator
        self._supervisor: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._peace = asyncio.Event()

    def begin(self) -> None:
        """Start the operator, and wait until it is ready, but not for too long."""
        self._call(self._begin())
        assert self._supervisor is not None
        self._stepping.guards.append(self._supervisor)

    def check_always(self, check: Callable[[dict[str, Any]], object]) -> None:
        """Pass every new state of every object to the function; its error ends the run."""

        def notice(change: memory.Change) -> None:
            try:
                check(change.new.load())
            except Exception as error:
                self.watchdog.fail(error)

        assert self._host is not None
        self._host.cluster.store.observe(notice)

    def calm_down(self, calm: float, patience: float) -> None:
        """
        Wait for ``calm`` seconds with no changes in the cluster, at most for ``patience`` seconds.
        """
        self._call(self._calm_down(calm, patience))

    def lift(self) -> None:
        """Stop all faults, and wait until the operator is running."""
        self._call(self._lift())

    def rest(self, seconds: float) -> None:
        """Let the time pass. Raises `RestlessOperatorError` if the operator does anything."""
        self._call(self._rest(seconds))

    def end(self) -> None:
        """Stop the operator."""
        self._stepping.guards.clear()
        self._call(self._end())

    def collect(self) -> list[dict[str, Any]]:
        """Return all existing objects."""
        assert self._host is not None
        return [
            stored.load()
            for _, shelf in self._host.cluster.store
            for stored in shelf.objects.values()
        ]

    def run_scenario(self, scenario: Callable[[Any], Any]) -> None:
        """
        Run the scenario; coroutine functions get the asynchronous sandbox, others get this one.
        """
        if asyncio.iscoroutinefunction(scenario):
            self._call(scenario(self._running))
        else:
            scenario(self)

    async def _begin(self) -> None:
        assert self._host is not None
        cluster = self._host.cluster
        await self._set_up_server()
        self.meddler = meddlers.Meddler(
            self._plan, cluster.store, cluster.faults, self.timeline, self.watchdog
        )
        self.recreator = recreations.Recreator(
            self._plan, cluster.store, cluster.sources, self._server, self.timeline
        )
        self._host.server.interceptor = self.meddler
        self._host.operator.on_refusal = self._decide_on_refusal
        asyncio.get_running_loop().set_task_factory(_make_task)
        self._supervisor = asyncio.create_task(
            self._supervise(self._running), name='supervisor of the operator'
        )
        await self._wait_until_ready()
        if self._is_reviewing:
            await self._wait_until_reviewing()

    async def _decide_on_refusal(self, error: errors.ApiError, attempt: int) -> bool:
        """
        Return whether to retry a request of the scenario that the operator could not review.

        Sleeps before the retry.
        """
        is_unreviewed = error.code == UNREVIEWED[0] and UNREVIEWED[1] in error.message
        if not self._insist or not is_unreviewed or attempt >= MOST_INSISTING:
            return False

        if not attempt:
            self.timeline.note('retry', f'the scenario repeats its request: {error.message}')
        await asyncio.sleep(INSISTING_DELAY)
        return True

    async def _set_up_server(self) -> None:
        if self._plan.server:
            await self._running.add_service(
                server_behaviours.SERVICE['namespace'],
                server_behaviours.SERVICE['name'],
                self._server.review,
            )
            await self._running.create(server_behaviours.build_configuration())

    async def _wait_until_ready(self, timeout: float = READINESS_TIMEOUT) -> None:
        waiting = asyncio.create_task(self._is_ready.wait(), name='readiness')
        await asyncio.wait(
            {waiting, *filter(None, [self._supervisor])},
            timeout=timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
        waiting.cancel()
        await asyncio.wait({waiting})

    async def _wait_until_reviewing(self) -> None:
        """
        Wait until the webhooks exist, so that the scenario does not begin with nothing reviewed.

        An operator that was killed while it wrote them counts as ready until it is started again.
        """
        assert self._supervisor is not None
        deadline = asyncio.get_running_loop().time() + REVIEWING_TIMEOUT
        while self.meddler.crashed.is_set() or not self._is_ready.is_set():
            if self._supervisor.done() or asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(1)

    async def _wait_for_peace(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._peace.wait()

    async def _calm_down(self, calm: float, patience: float) -> None:
        assert self._host is not None
        store = self._host.cluster.store
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        version = -1

        while version != store.version and clock() < deadline:
            version = store.version
            await asyncio.sleep(min(calm, deadline - clock()))

    async def _rest(self, seconds: float) -> None:
        self.timeline.note('rest', f'Nothing has to happen for {seconds:g} s.')
        before = self.watchdog.take_stock()
        since = self.elapsed

        while self.elapsed - since < seconds:
            await asyncio.sleep(min(LOOKING_INTERVAL, seconds))
            unrest = watchdogs.describe_unrest(
                before, self.watchdog.take_stock(), self.elapsed - since
            )
            if unrest:
                raise watchdogs.RestlessOperatorError(unrest)

    async def _lift(self) -> None:
        self.timeline.note('peace', 'Everything is well from now on.')
        self.meddler.lift()
        self.recreator.lift()
        self._peace.set()
        await self._wait_until_ready()

    async def _end(self) -> None:
        assert self._supervisor is not None
        self._supervisor.cancel()
        await asyncio.wait({self._supervisor})
        if not self._supervisor.cancelled():
            self._supervisor.result()

    async def _supervise(self, sandbox: async_sandbox.AsyncSandbox) -> None:
        """Run the operator, and restart it whenever it is killed or ends."""
        while self.starts < MOST_RESTARTS:
            self.starts += 1
            self.timeline.note('start', f'the operator is started for the time {self.starts}')
            await self._live(sandbox)
            self._is_ready.clear()
            if self.meddler.crash is None:
                await asyncio.sleep(RESTART_DELAY)
            else:
                await self._wait_for_peace(self.meddler.crash.downtime)
            self.meddler.revive()

        raise RuntimeError(
            f'The operator has ended {MOST_RESTARTS} times, and is not started again.'
        )

    async def _live(self, sandbox: async_sandbox.AsyncSandbox) -> None:
        """Run the operator until it is killed or ends; stop it gracefully if cancelled."""
        operator = make_operator(
            sandbox, self._handlers, {**self._options_of_operator, 'ready_flag': self._is_ready}
        )
        tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        context = contextvars.copy_context()
        context.run(_life.set, tasks)
        task = context.run(operator.spawn, context)
        self.watchdog.note_start(self.starts, operator.list_endless())
        self._is_reviewing = operator.is_reviewing
        dying = asyncio.create_task(self.meddler.crashed.wait(), name='death of the operator')
        running = asyncio.create_task(self.watchdog.tripped.wait(), name='circles of the operator')

        try:
            await asyncio.wait({task, dying, running}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await operator.stop()
            raise
        finally:
            dying.cancel()
            running.cancel()
            await asyncio.wait({dying, running})

        if self.meddler.crash is not None or self.watchdog.error is not None:
            await kill(tasks, self.timeline)
        else:
            error = None if task.cancelled() else task.exception()
            self.timeline.note('end', f'the operator has ended by itself: {error!r}')

        await operator.abandon()
        if self.watchdog.error is not None:
            raise self.watchdog.error


class Operator(simulations.Operator):
    """An operator whose handlers are known."""

    def __init__(
        self,
        sandbox: async_sandbox.AsyncSandbox,
        *paths: str | os.PathLike[str],
        registry: registries.OperatorRegistry,
        **options: Any,
    ) -> None:
        super().__init__(sandbox, *paths, registry=registry, **options)
        self._handlers = registry

    @property
    def is_reviewing(self) -> bool:
        """Whether there are admission handlers."""
        return bool(self._handlers.reviewed_selectors())

    def list_endless(self) -> frozenset[str]:
        """
        Return the ids of handlers that are called not only for changes, but also by time or event.
        """
        declared = self._handlers._iter_handlers()
        return frozenset(
            handler.id for handler in declared if not isinstance(handler, handlers_.ChangingHandler)
        )


def make_operator(
    sandbox: async_sandbox.AsyncSandbox, handlers: Handlers, options: Mapping[str, Any]
) -> Operator:
    """
    Make an operator from what is given as its handlers.

    Files are executed, and functions are called, at every start, so that crashes lose their state
    in memory.
    """
    if isinstance(handlers, str | os.PathLike):
        return Operator(sandbox, handlers, registry=registries.OperatorRegistry(), **options)
    return Operator(sandbox, registry=make_registry(handlers), **options)


def make_registry(handlers: Any) -> registries.OperatorRegistry:
    """Return the given registry, or a new one filled by the function or from the module."""
    if isinstance(handlers, registries.OperatorRegistry):
        return handlers

    registry = registries.OperatorRegistry()
    if isinstance(handlers, types.ModuleType):
        declared = registries.get_default_registry()._iter_handlers()
        for handler in [
            handler for handler in declared if handler.fn.__module__ == handlers.__name__
        ]:
            registry._append(handler)
    elif callable(handlers):
        handlers(registry)
    else:
        raise TypeError(
            'Handlers are a registry, a module, a path of a file, or a function that declares '
            f'them in a registry; got {handlers!r}.'
        )

    return registry


async def kill(tasks: 'weakref.WeakSet[asyncio.Task[Any]]', timeline: timelines.Timeline) -> None:
    """Cancel these tasks, and the tasks that they start, until all of them end; no time passes."""
    for number in range(CANCELLATIONS * TURNS):
        alive = [task for task in tasks if not task.done()]
        if not alive:
            return
        for task in alive if number % TURNS == 0 else ():
            task.cancel()
        await asyncio.sleep(0)

    names: Sequence[str] = sorted(task.get_name() for task in tasks if not task.done())
    timeline.note('crash', f'some tasks of the killed operator refuse to end: {", ".join(names)}')


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> 'asyncio.Task[Any]':
    """Make a task as usual, and remember it as a task of the operator that creates it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **kwargs)
    context = kwargs.get('context')
    life = _life.get() if context is None else context.get(_life)
    if life is not None:
        life.add(task)
    return task


def forget_scripts(before: set[str]) -> None:
    """Forget the files that were executed in the meantime."""
    for name in [name for name in sys.modules if name not in before and loaders.is_script(name)]:
        del sys.modules[name]
