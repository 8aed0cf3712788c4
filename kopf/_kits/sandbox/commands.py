"""
Commands: ``kopf sandbox``, which serves a Kubernetes API until it is interrupted.

Whatever is wrong is said in one line, with the exit code 2, before anything is done.
"""
import asyncio
import contextlib
import logging
import os
import pathlib
import shlex
import signal
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kopf._kits.sandbox import certificates, errors, hosting, manifests, options, saving, threads

FAILURES = (manifests.ManifestError, errors.ApiError, saving.SaveError, certificates.MissingLibraryError, OSError)
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)

GREETING = """\
The sandbox is served at {url}
Point kubectl and operators at it from another terminal, e.g.:

    export KUBECONFIG={kubeconfig}
    kubectl get namespaces

Press Ctrl-C to stop it."""


class Failure(click.ClickException):
    """One clear line for the user."""
    exit_code = 2

    def __init__(self, error: Exception) -> None:
        text = str(error)
        if isinstance(error, OSError) and error.strerror:
            text = error.strerror if error.filename is None else f'{error.strerror}: {error.filename}'
        super().__init__(' '.join(text.split()))


@click.command
@click.option('--port', type=click.IntRange(0, 65535), default=0, show_default='any free',
              help="The port to listen on.")
@click.option('--host', default='127.0.0.1', show_default=True, help="The address to listen on.")
@click.option('--kubeconfig', type=click.Path(dir_okay=False, path_type=pathlib.Path), metavar='FILE',
              help="Where to write the kubeconfig, and to leave it there.  [default: a temporary file]")
@click.option('--apply', 'sources', type=click.Path(allow_dash=True), multiple=True, metavar='FILE',
              help="Manifests to begin with: a file, a directory, or - for the standard input. Can be repeated.")
@click.option('--rbac', is_flag=True, help="Allow only what the roles and their bindings grant.")
@click.option('--save', type=click.Path(file_okay=False), metavar='DIR', help="Keep the objects over restarts.")
@click.option('--tls/--no-tls', default=True, help="Serve HTTPS or plain HTTP.  [default: HTTPS]")
@click.option('-v', '--verbose', is_flag=True, help="Show the requests, one per line.")
@click.option('-q', '--quiet', is_flag=True, help="Show nothing but errors.")
def sandbox(sources: Sequence[str], verbose: bool, quiet: bool, **chosen: Any) -> None:
    """Serve a Kubernetes API in memory, for development, until Ctrl-C."""
    logging.basicConfig(format='%(asctime)s %(message)s', datefmt='%H:%M:%S')
    logging.getLogger('kopf.sandbox').setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO)
    try:
        bodies = [body for source in sources for body in _read(source)]
        with asyncio.Runner(loop_factory=threads.choose_loop_factory()) as runner:
            runner.run(_serve(options.Options(apply=bodies, **chosen), quiet=quiet))
    except FAILURES as e:
        raise Failure(e) from e
    if not quiet:
        click.echo("The sandbox is stopped." if not chosen['save'] else f"The sandbox is saved to {chosen['save']}.")


async def _serve(chosen: options.Options, *, quiet: bool) -> None:
    """Serve until a signal. A second one ends the process at once."""
    stopping = asyncio.Event()
    host = hosting.Host(chosen)
    with _catch_signals(asyncio.get_running_loop(), stopping):
        await host.start()
        try:
            if not quiet:
                click.echo(GREETING.format(url=host.server.url, kubeconfig=shlex.quote(str(host.kubeconfig))))
            await stopping.wait()
        finally:
            await host.stop()


@contextlib.contextmanager
def _catch_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> Iterator[None]:
    """Let the first signal set the event, and the second one end the process."""
    seen: list[int] = []

    def catch(number: int, frame: types.FrameType | None) -> None:
        if seen:
            os._exit(128 + number)
        seen.append(number)
        loop.call_soon_threadsafe(stopping.set)

    previous = {number: signal.signal(number, catch) for number in STOPPING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _read(source: str) -> list[dict[str, Any]]:
    if source == '-':
        return manifests.load_manifests(sys.stdin.buffer.read(), source='the standard input')
    return manifests.read_manifests([source])
