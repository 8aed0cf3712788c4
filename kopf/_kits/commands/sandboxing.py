"""
Sandboxing: run an operator on a cluster of its own, in this process, until the operator ends.

Meanwhile, ``KUBECONFIG`` points to that cluster, so that no client in the handlers can reach other
clusters by mistake.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kopf._cogs.aiokits import flags
from kopf._core.intents import registries
from kopf._core.reactor import stopping
from kopf._kits import libraries
from kopf._kits.commands import options as command_options
from kopf._kits.commands import sandbox_command, sandbox_directories
from kopf._sandbox import options, sandboxes
from kopf._sandbox.codec import manifests
from kopf._sandbox.meta import errors

logger = logging.getLogger('kopf.cli')

HOST = '127.0.0.1'

EARLY = ('CustomResourceDefinition', 'Namespace')
"""The kinds applied before the operator starts; other objects can need its admission handlers."""

FAILURES = (manifests.ManifestError, errors.ApiError, options.MissingLibraryError, OSError)

GREETING = """\
The operator runs on a sandbox, served at {url}
Point kubectl at it from another terminal, e.g.:

    export KUBECONFIG={kubeconfig}
    kubectl get {resource}

Press Ctrl-C to stop both."""


class CommandSandbox(sandboxes.Sandbox):
    """A sandbox for one command, with its kubeconfig at a known path."""

    def __init__(self, kubeconfig: pathlib.Path, **chosen: Any) -> None:
        super().__init__(**chosen)
        self._options = dataclasses.replace(self._options, kubeconfig=kubeconfig)

    def check(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Raise the errors that applying these objects now would raise."""
        if self._host is not None:
            self._call(self._host.operator.apply(bodies, dry_run=True))

    def abandon(self) -> None:
        """Remove the temporary files, which contain secrets, before a sudden exit."""
        if self._host is not None:
            self._host.abandon()


@contextlib.contextmanager
def serve_sandbox(
    bodies: Sequence[Mapping[str, Any]],
    kubeconfig: pathlib.Path | None,
    *,
    has_workloads: bool = False,
) -> Iterator[CommandSandbox]:
    """
    Serve a sandbox, and point all clients to it.

    Of these objects, only the definitions and the namespaces are applied; the others are checked.
    """
    with contextlib.ExitStack() as stack:
        try:
            path, port = sandbox_directories.choose_place(os.environ, os.getcwd())
            port = _choose_port(port)
            if kubeconfig is None:
                directory = stack.enter_context(_private_directory(path))
                kubeconfig = directory / 'kubeconfig'
                # The owner of the usual directory takes the usual port, now or in a moment.
                port = port if directory == path else 0
            early = select_early(bodies)
            sandbox = stack.enter_context(
                CommandSandbox(
                    kubeconfig, port=port, host=HOST, apply=early, workloads=has_workloads
                )
            )
            sandbox.check([body for body in bodies if body['kind'] not in EARLY])
        except FAILURES as e:
            raise sandbox_command.Failure(e) from e
        stack.enter_context(stopping.sudden_exit(sandbox.abandon))
        stack.enter_context(stopping.sudden_exit(libraries.remove_files))
        stack.enter_context(libraries.pointed_at(sandbox.kubeconfig))
        yield sandbox


def _choose_port(port: int) -> int:
    """Return this port, or 0 for any other one if this is busy."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            logger.info('The usual port of the sandbox, %d, is busy: another one is taken.', port)
            return 0

    return port


@contextlib.contextmanager
def _private_directory(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Take the usual directory, or create another one and log it; remove it at the end."""
    try:
        directory = sandbox_directories.take_directory(path)
    except OSError:
        directory = sandbox_directories.make_directory()
        logger.warning(
            'The usual directory for the kubeconfig, %s, is in use by another sandbox, or is not '
            'private: it is %s this time.',
            path,
            directory.path,
        )

    try:
        with stopping.sudden_exit(directory.remove):
            yield directory.path
    finally:
        directory.remove()


def select_early(bodies: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Select the objects that are applied before the operator starts."""
    return [body for body in bodies if body['kind'] in EARLY]


def install(
    names: Sequence[str], bodies: Sequence[Mapping[str, Any]], sandbox: CommandSandbox
) -> None:
    """Apply the definitions of the resources that are declared as classes; check the objects."""
    from kopf._kits.schemas import crds

    try:
        sandbox.apply([crds.build_crd(name) for name in names])
        sandbox.check([body for body in bodies if body['kind'] not in EARLY])
    except FAILURES as e:
        raise sandbox_command.Failure(e) from e


def greet(sandbox: sandboxes.Sandbox) -> None:
    """Show the user how to reach the sandbox, and what to look at there."""
    path = shlex.quote(str(sandbox.kubeconfig))
    resource = _choose_example(registries.get_default_registry())
    click.echo(GREETING.format(url=sandbox.url, kubeconfig=path, resource=resource))


def _choose_example(registry: registries.OperatorRegistry) -> str:
    """Choose the first resource that the handlers name; if they name none, the namespaces."""
    for handler in registry._iter_handlers():
        selector = getattr(handler, 'selector', None)
        if selector is not None and not selector.is_multiple:
            name = selector.name or selector.plural or selector.singular or selector.shortcut
            return str(name or selector.kind).lower()
    return 'namespaces'


def connect(
    controls: command_options.CLIControls, sandbox: sandboxes.Sandbox
) -> command_options.CLIControls:
    """
    Return the controls with which the operator runs on the sandbox.

    Also configure the client libraries for its handlers.
    """
    registry = registries.get_default_registry()
    asyncio.run(libraries.configure(registry))
    return dataclasses.replace(
        controls,
        vault=libraries.make_vault(sandbox, registry),
        settings=libraries.adjust_settings(controls.settings),
    )


def read_manifests(sources: Sequence[str]) -> list[dict[str, Any]]:
    """Read the manifests from files and directories, and from the standard input for ``-``."""
    try:
        return [body for source in sources for body in _read(source)]
    except FAILURES as e:
        raise sandbox_command.Failure(e) from e


@contextlib.contextmanager
def applied(
    bodies: Sequence[Mapping[str, Any]],
    sandbox: sandboxes.Sandbox,
    controls: command_options.CLIControls,
) -> Iterator[command_options.CLIControls]:
    """
    Apply the remaining objects: immediately, or when the operator is ready to review them.

    If the operator has admission handlers, a thread applies the objects while the operator runs in
    the block with the changed controls.
    """
    late = [body for body in bodies if body['kind'] not in EARLY]
    if not late or not registries.get_default_registry().reviewed_selectors():
        try:
            sandbox.apply(*late)
        except FAILURES as e:
            raise sandbox_command.Failure(e) from e
        yield controls
        return

    is_ready = threading.Event()
    is_over = threading.Event()

    def apply() -> None:
        is_ready.wait()
        if not is_over.is_set():
            _apply(late, sandbox)
            _raise_flag(controls)

    thread = threading.Thread(target=apply, name='kopf-applying', daemon=True)
    thread.start()
    try:
        yield dataclasses.replace(controls, ready_flag=is_ready)
    finally:
        is_over.set()
        is_ready.set()
        thread.join()


def _apply(bodies: Sequence[Mapping[str, Any]], sandbox: sandboxes.Sandbox) -> None:
    for body in bodies:
        try:
            sandbox.apply(body)
        except FAILURES as e:
            logger.error('Cannot apply: %s', sandbox_command.Failure(e).message)


def _raise_flag(controls: command_options.CLIControls) -> None:
    if controls.loop is not None:
        controls.loop.call_soon_threadsafe(flags.raise_flag, controls.ready_flag)
    else:
        flags.raise_flag(controls.ready_flag)


def _read(source: str) -> list[dict[str, Any]]:
    if source == '-':
        return manifests.load_manifests(sys.stdin.buffer.read(), source='the standard input')
    return manifests.read_manifests([source])
