"""
Sandboxing: run an operator on a cluster of its own, in this process, that is gone when the operator ends.

While it lives, ``KUBECONFIG`` leads there, so that no client in the handlers can reach other clusters by mistake.
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
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kopf._cogs.structs import vaults
from kopf._core.intents import registries
from kopf._core.reactor import stopping
from kopf._kits import libraries
from kopf._kits.commands import directories
from kopf._kits.sandbox import commands, errors, manifests, options, sandboxes

logger = logging.getLogger('kopf.cli')

HOST = '127.0.0.1'

GREETING = """\
The operator runs on a sandbox, served at {url}
Point kubectl at it from another terminal, e.g.:

    export KUBECONFIG={kubeconfig}
    kubectl get namespaces

Press Ctrl-C to stop both."""


class CommandSandbox(sandboxes.Sandbox):
    """A sandbox for one command, with its kubeconfig at a known path."""

    def __init__(self, kubeconfig: pathlib.Path, **chosen: Any) -> None:
        super().__init__(**chosen)
        self._options = dataclasses.replace(self._options, kubeconfig=kubeconfig)

    def abandon(self) -> None:
        """Remove the temporary files, as they have secrets, before the process is ended with nothing else done."""
        if self._host is not None:
            self._host.abandon()


@contextlib.contextmanager
def serve_sandbox(
    sources: Sequence[str], kubeconfig: pathlib.Path | None
) -> Iterator[CommandSandbox]:
    """Serve a sandbox with these manifests (``-`` is for the standard input) applied; let all clients find it."""
    path, port = directories.choose_place(os.environ, os.getcwd())
    with contextlib.ExitStack() as stack:
        try:
            bodies = [body for source in sources for body in _read(source)]
            if kubeconfig is None:
                kubeconfig = stack.enter_context(_private_directory(path)) / 'kubeconfig'
            sandbox = stack.enter_context(_start(kubeconfig, port, apply=bodies))
        except (
            manifests.ManifestError,
            errors.ApiError,
            options.MissingLibraryError,
            OSError,
        ) as e:
            raise commands.Failure(e) from e
        stack.enter_context(stopping.sudden_exit(sandbox.abandon))
        stack.enter_context(stopping.sudden_exit(libraries.remove_files))
        stack.enter_context(libraries.pointed_at(sandbox.kubeconfig))
        yield sandbox


def _start(kubeconfig: pathlib.Path, port: int, **chosen: Any) -> CommandSandbox:
    """Prepare a sandbox at this port, or at any other one if this is busy."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            port = 0
    return CommandSandbox(kubeconfig, port=port, host=HOST, **chosen)


@contextlib.contextmanager
def _private_directory(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Take the usual directory, or make another one, and say so; it is removed in the end, however it ends."""
    try:
        directory = directories.take_directory(path)
    except OSError:
        directory = directories.make_directory()
        logger.warning(
            'The usual directory for the kubeconfig, %s, is in use by another sandbox, or is not private: '
            'it is %s this time.',
            path,
            directory.path,
        )
    try:
        with stopping.sudden_exit(directory.remove):
            yield directory.path
    finally:
        directory.remove()


def greet(sandbox: sandboxes.Sandbox) -> None:
    """Tell the user how to reach the sandbox."""
    path = shlex.quote(str(sandbox.kubeconfig))
    click.echo(GREETING.format(url=sandbox.url, kubeconfig=path))


def connect(sandbox: sandboxes.Sandbox) -> vaults.Vault:
    """Make the credentials for the sandbox, and let the client libraries be ready for handlers."""
    registry = registries.get_default_registry()
    asyncio.run(libraries.configure(registry))
    return libraries.make_vault(sandbox, registry)


def _read(source: str) -> list[dict[str, Any]]:
    if source == '-':
        return manifests.load_manifests(sys.stdin.buffer.read(), source='the standard input')
    return manifests.read_manifests([source])
