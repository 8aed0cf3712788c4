"""
Runner: the command in the background, for tests.

It behaves as in a terminal, but runs in a thread of this process.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click
import click.testing

from kopf._cogs.aiokits import flags
from kopf._cogs.helpers import loaders
from kopf._core.actions import loggers
from kopf._core.intents import registries
from kopf._kits import collectors, libraries
from kopf._kits.commands import groups, options

if TYPE_CHECKING:
    from kopf._cogs.configs import settings as settings_

READINESS_TIMEOUT = 5.0
"""Seconds to wait for the operator before the block: its readiness can depend on the block."""


class KopfRunner:
    """
    Runs the command in a thread while the block is executed, and stops it at the end of the block.

    The positional arguments, and the named ones not listed below, are those of
    ``click.testing.CliRunner.invoke()``:
    ``with KopfRunner(['run', '-A', 'handlers.py'], env={'KUBECONFIG': ...}) as runner:``.
    In coroutines, use ``async with``: the operator has its own event loop, and does not block the
    loop of the test while starting and stopping.

    The output and the exit code of the command are available after the block. The error of the
    operator is raised at its end, unless ``reraise`` is false or the block itself has failed. If
    the command does not stop within ``timeout`` seconds, it is abandoned, and `TimeoutError` is
    raised. ``registry`` and ``settings`` replace the default ones.

    The handlers of the files given to the command are forgotten when it ends, so the next runner
    does not have them. The handlers of imported modules stay, as modules are imported only once;
    use ``registry`` to isolate them.
    """

    def __init__(
        self,
        *args: Any,
        reraise: bool = True,
        timeout: float | None = None,
        registry: registries.OperatorRegistry | None = None,
        settings: 'settings_.OperatorSettings | None' = None,
        **kwargs: Any,
    ) -> None:
        self._args = args
        self._kwargs = kwargs
        self._reraise = reraise
        self._timeout = timeout
        self._registry = registry
        self._settings = settings
        self._future: concurrent.futures.Future[click.testing.Result] = concurrent.futures.Future()
        self._stop_flag: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name='kopf-runner', daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(READINESS_TIMEOUT)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        flags.raise_flag(self._stop_flag)
        self._thread.join(self._timeout)
        self._conclude(exc)

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.to_thread(self._begun.wait, READINESS_TIMEOUT)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        flags.raise_flag(self._stop_flag)
        await asyncio.to_thread(self._thread.join, self._timeout)
        self._conclude(exc)

    @property
    def future(self) -> 'concurrent.futures.Future[click.testing.Result]':
        """The result of the command, when it ends."""
        return self._future

    @property
    def output(self) -> str:
        """Everything printed and logged, in the order of appearance."""
        return self._result.output

    @property
    def stdout(self) -> str:
        """Everything printed to the standard output."""
        return self._result.stdout

    @property
    def stdout_bytes(self) -> bytes:
        """The same as ``stdout``, not decoded."""
        return self._result.stdout_bytes

    @property
    def stderr(self) -> str:
        """Everything printed and logged to the standard error output."""
        return self._result.stderr

    @property
    def stderr_bytes(self) -> bytes:
        """The same as ``stderr``, not decoded."""
        return self._result.stderr_bytes or b''

    @property
    def exit_code(self) -> int:
        """The exit code of the command; 0 means success."""
        return self._result.exit_code

    @property
    def exception(self) -> BaseException | None:
        """The error that ended the command, if any."""
        return self._result.exception

    @property
    def exc_info(self) -> tuple[type[BaseException], BaseException, TracebackType] | None:
        """The type, the value and the traceback of that error."""
        return self._result.exc_info

    @property
    def _result(self) -> click.testing.Result:
        if not self._future.done():
            raise RuntimeError('It is not known yet: the operator has not ended.')
        return self._future.result()

    def _run(self) -> None:
        controls = self._kwargs.pop('obj', None) or options.CLIControls()
        given = {'registry': self._registry, 'settings': self._settings}
        controls = dataclasses.replace(
            controls,
            stop_flag=self._stop_flag,
            ready_flag=self._begun,
            **{name: value for name, value in given.items() if value is not None},
        )

        try:
            with _restored_logging(), _forgotten_scripts(registries.get_default_registry()):
                result = _Invoker().invoke(
                    _build_command(), *self._args, **self._kwargs, obj=controls
                )
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)
        finally:
            self._begun.set()

    def _conclude(self, exc: BaseException | None) -> None:
        """
        Raise the error of the operator; if the block has failed, only add a note to its error.
        """
        error: BaseException | None = None
        if not self._future.done():
            error = TimeoutError(
                f'The operator has not stopped in {self._timeout} s, and is abandoned.'
            )
        elif self._reraise:
            error = self._future.exception() or self._result.exception

        if error is not None and exc is None:
            raise error

        if error is not None and exc is not None and exc is not error:
            exc.add_note(f'Also, the operator has failed: {error!r}')


class _Invoker(click.testing.CliRunner):
    """
    Flushes the printed output immediately, so that it keeps its order among the log lines.

    The client libraries that are already imported use the environment variables of the command, as
    in a new process.
    """

    @contextlib.contextmanager
    def isolation(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with super().isolation(*args, **kwargs) as streams:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(write_through=True)
            libraries.refresh()
            yield streams
        libraries.refresh()


class _Command(groups.LazyGroup):
    """The command that shows the errors of operators, then raises them instead of exiting."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as shown:
            if shown.__cause__ is None or isinstance(shown, click.UsageError):
                raise
            shown.show()
            raise shown.__cause__ from None


def _build_command() -> click.Command:
    main = groups.main
    return _Command(
        main.name,
        params=main.params,
        callback=main.callback,
        help=main.help,
        context_settings=main.context_settings,
        subcommands=groups.SUBCOMMANDS,
    )


@contextlib.contextmanager
def _restored_logging() -> Iterator[None]:
    """Undo the changes of logging made by the command, and keep those made by others."""
    root = logging.getLogger()
    level = root.level
    before = _list_console_handlers()

    try:
        yield
    finally:
        root.setLevel(level)
        for handler in _list_console_handlers():
            root.removeHandler(handler)
        for handler in before:
            root.addHandler(handler)


def _list_console_handlers() -> list[logging.Handler]:
    return [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, loggers.ConsoleHandler)
    ]


@contextlib.contextmanager
def _forgotten_scripts(registry: registries.OperatorRegistry) -> Iterator[None]:
    """Forget the handlers and metrics of the files loaded in the block, for the next runs."""
    before = {id(handler) for handler in registry._iter_handlers()}
    collectors.watch()
    known = collectors.list_paths()

    try:
        yield
    finally:
        collectors.forget(path for path in collectors.list_paths() if path not in known)
        registry._discard(
            [
                handler
                for handler in registry._iter_handlers()
                if id(handler) not in before and loaders.is_script(_get_module(handler.fn))
            ]
        )


def _get_module(fn: Callable[..., Any]) -> str:
    """Return the name of the module that defines a function or the class of a callable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, '__module__', None) or type(fn).__module__)
