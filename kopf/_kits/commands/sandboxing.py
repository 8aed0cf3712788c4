"""
Sandboxing: run an operator on a cluster of its own, in this process, that is gone when the operator ends.

While it lives, ``KUBECONFIG`` leads there, so that no client in the handlers can reach other clusters by mistake.
"""

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kopf._cogs.structs import vaults
from kopf._core.intents import registries
from kopf._kits import libraries
from kopf._kits.sandbox import commands, errors, manifests, options, sandboxes

GREETING = """\
The operator runs on a sandbox, served at {url}
Point kubectl at it from another terminal, e.g.:

    export KUBECONFIG={kubeconfig}
    kubectl get namespaces

Press Ctrl-C to stop both."""


@contextlib.contextmanager
def serve_sandbox(sources: Sequence[str]) -> Iterator[sandboxes.Sandbox]:
    """Serve a sandbox with these manifests (``-`` is for the standard input) applied; let all clients find it."""
    with contextlib.ExitStack() as stack:
        try:
            bodies = [body for source in sources for body in _read(source)]
            sandbox = stack.enter_context(sandboxes.Sandbox(apply=bodies))
        except (
            manifests.ManifestError,
            errors.ApiError,
            options.MissingLibraryError,
            OSError,
        ) as e:
            raise commands.Failure(e) from e
        stack.enter_context(libraries.pointed_at(sandbox.kubeconfig))
        yield sandbox


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
