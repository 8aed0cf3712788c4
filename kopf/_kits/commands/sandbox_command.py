"""
The sandbox command: ``kopf sandbox``, which serves a Kubernetes API until it is interrupted.

All errors are reported in one line with the exit code 2. The signals are caught before the rest of
the sandbox is loaded, as loading takes a while.
"""

import contextlib
import logging
import os
import pathlib
import shlex
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kopf._kits.commands import options

if TYPE_CHECKING:
    from kopf._sandbox import hosting

STOPPING_SIGNALS = ('SIGINT', 'SIGTERM', 'SIGHUP')
"""The signals that stop the sandbox, if the system has them."""

SAME_SIGNAL = 0.5
"""Seconds within which signals count as one, e.g. when a whole process group is signalled."""

GREETING = """\
The sandbox is served at {url}
Point kubectl and operators at it from another terminal, e.g.:

    export KUBECONFIG={kubeconfig}
    kubectl get namespaces

Press Ctrl-C to stop it."""


class Failure(click.ClickException):
    """An error shown to the user in one line."""

    exit_code = 2

    def __init__(self, error: Exception) -> None:
        text = str(error)
        if isinstance(error, OSError) and error.strerror:
            text = (
                error.strerror if error.filename is None else f'{error.strerror}: {error.filename}'
            )
        super().__init__(' '.join(': '.join([*getattr(error, '__notes__', ()), text]).split()))


class Stopped(BaseException):
    """A signal was received before there was anything to stop."""


class Signals:
    """The effects of signals: the first one stops the sandbox, the next one ends the process."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._on_first: Callable[[], object] = _interrupt
        self._on_next: Callable[[], object] = lambda: None

    @property
    def is_caught(self) -> bool:
        return self._first is not None

    def handle(self, number: int, frame: types.FrameType | None) -> None:
        if self._first is None:
            self._first = time.monotonic()
            self._on_first()
        elif time.monotonic() - self._first > SAME_SIGNAL:
            self._on_next()
            os._exit(128 + number)

    def stop_by(self, on_first: Callable[[], object], on_next: Callable[[], object]) -> None:
        """
        Set the callbacks for the first signal and for the next one.

        If the first signal was received before, its callback is called immediately.
        """
        self._on_first = on_first
        self._on_next = on_next
        if self.is_caught:
            on_first()


def _interrupt() -> None:
    raise Stopped


def _refuse_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if any(
        path in ('', pathlib.Path()) for path in (value if isinstance(value, tuple) else [value])
    ):
        raise Failure(ValueError(f'The path in {parameter.opts[0]} is empty.'))
    return value


@click.command
@options.option(
    '--port',
    type=click.IntRange(0, 65535),
    default=0,
    show_default='any free',
    help='The port to listen on.',
)
@options.option('--host', default='127.0.0.1', show_default=True, help='The address to listen on.')
@options.option(
    '--kubeconfig',
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    metavar='FILE',
    show_default='a temporary file',
    callback=_refuse_empty,
    help='Where to write the kubeconfig, and to leave it there.',
)
@options.option(
    '--apply',
    'sources',
    envvar='KOPF_SANDBOX_APPLY',
    multiple=True,
    metavar='FILE',
    callback=_refuse_empty,
    shell_complete=options.complete_paths,
    help='Manifests to begin with: a file, a directory, or - for the standard input. Can be '
    'repeated.',
)
@options.option('--rbac', is_flag=True, help='Allow only what the roles and their bindings grant.')
@options.option(
    '--save',
    type=click.Path(file_okay=False),
    metavar='DIR',
    callback=_refuse_empty,
    help='Keep the objects over restarts.',
)
@options.option(
    '--workloads',
    is_flag=True,
    help='Let deployments roll out, jobs complete, and pods become ready on nodes that do not '
    'exist.',
)
@options.option(
    '--tls/--no-tls', default=True, show_default='HTTPS', help='Serve HTTPS or plain HTTP.'
)
@options.option('-v', '--verbose', is_flag=True, help='Show the requests, one per line.')
@options.option('-q', '--quiet', is_flag=True, help='Show nothing but errors.')
def sandbox(verbose: bool, quiet: bool, **chosen: Any) -> None:
    """Serve a Kubernetes API in memory, for development, until Ctrl-C."""
    closing = 'The sandbox is stopped.'
    with _catch_signals() as signals:
        logging.basicConfig(format='%(asctime)s %(message)s', datefmt='%H:%M:%S')
        level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
        logging.getLogger('kopf.sandbox').setLevel(level)
        with contextlib.suppress(Stopped):
            _run(signals, quiet=quiet, **chosen)
            closing = f'The sandbox is saved to {chosen["save"]}.' if chosen['save'] else closing
        if not quiet:
            click.echo(closing)


def _run(
    signals: Signals, *, sources: Sequence[str], quiet: bool, workloads: bool, **chosen: Any
) -> None:
    import asyncio

    from kopf._sandbox import hosting, options, persistence, threads
    from kopf._sandbox.codec import manifests
    from kopf._sandbox.meta import errors

    moving = options.parse_workloads(workloads)
    failures = (
        manifests.ManifestError,
        errors.ApiError,
        persistence.SaveError,
        options.MissingLibraryError,
        OSError,
    )
    try:
        bodies = [body for source in sources for body in _read(source)]
        host = hosting.Host(options.Options(apply=bodies, workloads=moving, **chosen))
        with asyncio.Runner(loop_factory=threads.choose_loop_factory()) as runner:
            runner.run(_serve(host, signals, quiet=quiet))
    except failures as e:
        raise Failure(e) from e


async def _serve(host: 'hosting.Host', signals: Signals, *, quiet: bool) -> None:
    """Serve until a signal."""
    import asyncio

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    signals.stop_by(lambda: loop.call_soon_threadsafe(stopping.set), host.abandon)
    await host.start()

    try:
        if not quiet and not signals.is_caught:
            click.echo(
                GREETING.format(url=host.server.url, kubeconfig=shlex.quote(str(host.kubeconfig)))
            )
        await stopping.wait()
    finally:
        await host.stop()


@contextlib.contextmanager
def _catch_signals() -> Iterator[Signals]:
    signals = Signals()
    numbers = [getattr(signal, name) for name in STOPPING_SIGNALS if hasattr(signal, name)]
    # A process started by ``nohup`` must survive the hangup.
    caught = [
        number
        for number in numbers
        if number != getattr(signal, 'SIGHUP', None) or signal.getsignal(number) != signal.SIG_IGN
    ]
    previous = {number: signal.signal(number, signals.handle) for number in caught}

    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _read(source: str) -> list[dict[str, Any]]:
    from kopf._sandbox.codec import manifests

    if source == '-':
        return list(manifests.load_manifests(sys.stdin.buffer.read(), source='the standard input'))
    return list(manifests.read_manifests([source]))
