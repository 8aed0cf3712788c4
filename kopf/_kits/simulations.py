"""
Simulations: operators on sandboxes, for tests.

In coroutines, operators run in the event loop of the test, with its clock. In plain functions, they
run in an event loop of the simulation, with virtual time, and only while the test waits for
something in it: so the tests are deterministic.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import datetime
import os
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from kopf._cogs.aiokits import flags
from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import loaders
from kopf._cogs.structs import vaults
from kopf._core.intents import registries
from kopf._core.reactor import running
from kopf._kits import collectors, libraries, loops
from kopf._sandbox import async_sandbox, sandboxes, threads

T = TypeVar('T')

HOUR = 60 * 60.0


class Seconds(float):
    """
    A duration rounded to milliseconds.

    So are its differences: 61.1 - 1.1 is 60, not 59.99999999999999.
    """

    def __sub__(self, other: float) -> float:
        return round(float(self) - float(other), 3)

    def __rsub__(self, other: float) -> float:
        return round(float(other) - float(self), 3)


class Operator:
    """
    An operator on a sandbox, in the event loop of the sandbox.

    Use it as ``async with Operator(sandbox, 'handlers.py'): ...``. The handlers are those of the
    files; with no files, those of the registry, by default the global one. Other options are the
    same as for ``kopf.operator()``; by default, all namespaces are served. The operator always runs
    on the sandbox: login handlers are called only for their side effects, e.g. to set up clients.
    The block begins when the operator is ready. Errors of the operator are raised at the beginning
    or at the end of the block.
    """

    def __init__(
        self,
        sandbox: async_sandbox.AsyncSandbox,
        *paths: str | os.PathLike[str],
        registry: registries.OperatorRegistry | None = None,
        settings: settings_.OperatorSettings | None = None,
        **options: Any,
    ) -> None:
        for path in paths:
            if not isinstance(path, str | os.PathLike):
                raise TypeError(
                    f'Files with handlers are given by their paths, not as {path!r}. '
                    f'A registry is given by its name: registry=...'
                )

        self._sandbox = sandbox
        self._paths = paths
        self._registry = registry
        self._settings = settings
        self._options = options
        self._stop_flag: flags.Flag = options.setdefault('stop_flag', asyncio.Event())
        self._ready_flag: flags.Flag = options.setdefault('ready_flag', asyncio.Event())
        self._task: asyncio.Task[None] | None = None
        self._vault: vaults.Vault | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        except Exception as error:
            if exc is None:
                raise
            exc.add_note(f'Also, the operator has failed: {error!r}')

    @property
    def task(self) -> 'asyncio.Task[None]':
        """The task in which the operator runs."""
        if self._task is None:
            raise RuntimeError('The operator is not started.')
        return self._task

    async def start(self) -> None:
        """Start the operator, and wait until it is ready. Raises its error if it fails earlier."""
        task = self.spawn()
        readiness = asyncio.create_task(flags.wait_until_raised(self._ready_flag), name='readiness')
        try:
            await asyncio.wait({task, readiness}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            readiness.cancel()
            await asyncio.wait({readiness})

        if task.done():
            task.result()

    async def stop(self) -> None:
        """Stop the operator gracefully. Raises its error if it has failed."""
        flags.raise_flag(self._stop_flag)
        try:
            if self._task is not None:
                await self._task
        finally:
            collectors.forget(self._paths)

    def spawn(self, context: contextvars.Context | None = None) -> 'asyncio.Task[None]':
        """Start the operator, optionally in this context, and do not wait until it is ready."""
        if self._task is not None:
            raise RuntimeError('The operator is started already.')

        surroundings = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            stack.enter_context(libraries.pointed_at(self._sandbox.kubeconfig))
            registry = self._load()
            surroundings = stack.pop_all()

        self._vault = libraries.make_vault(self._sandbox, registry)
        self._task = asyncio.create_task(
            self._run(registry, self._vault), name='operator on a sandbox', context=context
        )
        self._task.add_done_callback(lambda _: surroundings.close())

        return self._task

    async def abandon(self) -> None:
        """Close the connections of an operator that was killed before it could close them."""
        if self._vault is not None:
            await self._vault.close()

    def _load(self) -> registries.OperatorRegistry:
        default = registries.get_default_registry()
        if not self._paths:
            return self._registry if self._registry is not None else default

        registry = self._registry if self._registry is not None else registries.OperatorRegistry()
        registries.set_default_registry(registry)
        collectors.watch()

        try:
            loaders.preload(self._paths, ())
        finally:
            registries.set_default_registry(default)

        return registry

    async def _run(self, registry: registries.OperatorRegistry, vault: vaults.Vault) -> None:
        options = {
            'vault': vault,
            'clusterwide': 'namespaces' not in self._options,
            **self._options,
        }
        await libraries.configure(registry)
        settings = libraries.adjust_settings(self._settings)
        await running.operator(registry=registry, settings=settings, **options)


class Simulation(sandboxes.Sandbox):
    """
    A sandbox with operators in virtual time: hours pass instantly, only inside its methods.

    ``with Simulation(apply=[...]) as simulation:`` has the same methods and options as `Sandbox`.
    By default, it has no TLS, and the timestamps in objects are virtual too. It is for plain
    functions, not for coroutines. While handlers run in threads, the time is real. Other programs
    can access the sandbox only while the test waits in a method of the simulation.
    """

    def __init__(self, *, tls: bool = False, **options: Any) -> None:
        super().__init__(tls=tls, **{'now': self.now, **options})
        self._stepping = SteppingThread()
        self._origin = datetime.datetime.now(datetime.UTC)
        self._operators: list[Operator] = []

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._stepping.guards.clear()
            for operator in self._operators:
                if operator.task not in self._stepping.reported:
                    self._call(operator.__aexit__(exc_type, exc, traceback))
        finally:
            super().__exit__(exc_type, exc, traceback)

    def run(
        self,
        *paths: str | os.PathLike[str],
        registry: registries.OperatorRegistry | None = None,
        settings: settings_.OperatorSettings | None = None,
        **options: Any,
    ) -> 'SimulatedOperator':
        """
        Run an operator with the handlers of the files or of the registry; wait until it is ready.

        The operator is stopped with the simulation, if not earlier. If it fails, its error is
        raised from the method in which the test waits.
        """
        operator = self._running_thread.call(
            self._start_operator(paths, {'registry': registry, 'settings': settings, **options})
        )
        self._operators.append(operator)
        self._stepping.guards.append(operator.task)

        return SimulatedOperator(operator, self._stepping)

    def sleep(self, seconds: float) -> None:
        """Let this time pass, with everything that happens in it."""
        self._running_thread.call(asyncio.sleep(seconds))

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the beginning, rounded to milliseconds, as are the differences."""
        return Seconds(round(self._stepping.elapsed, 3))

    def now(self) -> datetime.datetime:
        """Return the virtual time of day."""
        return self._origin + datetime.timedelta(seconds=self._stepping.elapsed)

    def wait(
        self,
        resource: str,
        name: str,
        condition: async_sandbox.Condition,
        namespace: str = 'default',
        *,
        timeout: float = HOUR,
    ) -> 'dict[str, Any] | None':
        """Wait until an object is as expected, as in `Sandbox`, but longer: the time is virtual."""
        return super().wait(resource, name, condition, namespace, timeout=timeout)

    async def _start_operator(
        self, paths: tuple[str | os.PathLike[str], ...], options: dict[str, Any]
    ) -> Operator:
        operator = Operator(self._running, *paths, **options)
        await operator.start()
        return operator

    def _make_thread(self) -> threads.LoopThread:
        self._stepping = SteppingThread()
        self._operators = []
        return self._stepping


class SimulatedOperator:
    """An operator in a simulation."""

    def __init__(self, operator: Operator, thread: 'SteppingThread') -> None:
        self._operator = operator
        self._thread = thread

    def stop(self) -> None:
        """Stop the operator gracefully. Raises its error if it has failed."""
        task = self._operator.task
        if task in self._thread.guards:
            self._thread.guards.remove(task)
            self._thread.reported.add(task)
            self._thread.call(self._operator.stop())


class SteppingThread(threads.LoopThread):
    """
    A thread with an event loop in virtual time, which runs only during calls into it.

    All calls fail if any of the guards fails: the tasks of the loop on which everything depends.
    """

    def __init__(self) -> None:
        super().__init__(name='kopf-simulation')
        self.guards: list[asyncio.Task[None]] = []
        self.reported: set[asyncio.Task[None]] = set()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix='kopf-simulation'
        )
        self._runner = asyncio.Runner(loop_factory=self._make_loop)
        self._loop: loops.VirtualTimeLoop | None = None
        self._since = 0.0
        self._ident = 0
        self._step: asyncio.Task[Any] | None = None
        self._is_stepping = False

    @property
    def is_running(self) -> bool:
        return self._loop is not None and not self._loop.is_closed()

    @property
    def elapsed(self) -> float:
        return 0.0 if self._loop is None else self._loop.time() - self._since

    def start(self) -> None:
        self._pool.submit(self._runner.get_loop).result()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None or loop.is_closed() or threading.get_ident() == self._ident:
            coroutine.close()
            raise RuntimeError(
                'The simulation is not running.'
                if loop is None or loop.is_closed()
                else 'The simulation cannot be used from its own event loop.'
            )

        if self._is_stepping:  # handlers in threads can call it while the test waits
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

        self._is_stepping = True
        future: concurrent.futures.Future[T] = self._pool.submit(
            self._runner.run, self._guard(coroutine)
        )
        try:
            return future.result()
        finally:
            self._is_stepping = False
            if not future.done():  # this thread was interrupted, e.g. by Ctrl-C
                loop.call_soon_threadsafe(self._interrupt)

    def stop(self) -> None:
        if self.is_running:
            self._pool.submit(self._runner.close).result()
        self._pool.shutdown()

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        self._loop = loops.VirtualTimeLoop()
        self._since = self._loop.time()
        self._ident = threading.get_ident()
        return self._loop

    async def _guard(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._step = step = asyncio.create_task(coroutine, name='step of the simulation')
        try:
            while not step.done():
                self._check_guards()
                pending = [guard for guard in self.guards if not guard.done()]
                await asyncio.wait({step, *pending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            step.cancel()
            await asyncio.wait({step})

        return step.result()

    def _check_guards(self) -> None:
        """Raise the errors of the guards, each error once."""
        for guard in self.guards:
            if guard.done() and guard not in self.reported:
                self.reported.add(guard)
                guard.result()

    def _interrupt(self) -> None:
        if self._step is not None:
            self._step.cancel()
