"""
Sandboxing: run an operator on a cluster of its own, in this process, that is gone when the operator ends.

While it lives, ``KUBECONFIG`` leads there, so that no client in the handlers can reach other clusters by mistake.
"""

import asyncio
import contextlib
import importlib
import os
import pathlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kopf._cogs.structs import credentials, vaults
from kopf._kits.commands import sandbox_command
from kopf._sandbox import options, sandboxes
from kopf._sandbox.codec import manifests
from kopf._sandbox.meta import errors

GREETING = """\
The operator runs on a sandbox, served at {url}
Point kubectl at it from another terminal, e.g.:

    export KUBECONFIG={kubeconfig}
    kubectl get namespaces

Press Ctrl-C to stop both."""


@contextlib.contextmanager
def serve_sandbox(sources: Sequence[str], *, is_quiet: bool) -> Iterator[sandboxes.Sandbox]:
    """Serve a sandbox with these manifests (``-`` is for the standard input) applied; say how to reach it."""
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
            raise sandbox_command.Failure(e) from e
        stack.enter_context(_kubeconfig_variable(sandbox.kubeconfig))
        if not is_quiet:
            click.echo(
                GREETING.format(url=sandbox.url, kubeconfig=shlex.quote(str(sandbox.kubeconfig)))
            )
        yield sandbox


def make_vault(sandbox: sandboxes.Sandbox) -> vaults.Vault:
    """Make credentials for the sandbox; there is no login then."""
    info = credentials.ConnectionInfo(
        server=sandbox.url,
        token=sandbox.token,
        ca_data=sandbox.ca_data,
        default_namespace='default',
    )
    return vaults.Vault({'sandbox': info})


def configure_clients(kubeconfig: pathlib.Path) -> None:
    """Let the client libraries that are in use be ready for handlers, as they are after the usual login."""
    if 'kubernetes' in sys.modules:
        _load('kubernetes.config').load_kube_config(config_file=str(kubeconfig))
    if 'kubernetes_asyncio' in sys.modules:
        asyncio.run(
            _load('kubernetes_asyncio.config').load_kube_config(config_file=str(kubeconfig))
        )


def _load(name: str) -> Any:
    return importlib.import_module(name)


def _read(source: str) -> list[dict[str, Any]]:
    if source == '-':
        return manifests.load_manifests(sys.stdin.buffer.read(), source='the standard input')
    return manifests.read_manifests([source])


@contextlib.contextmanager
def _kubeconfig_variable(path: pathlib.Path) -> Iterator[None]:
    previous = os.environ.get('KUBECONFIG')
    os.environ['KUBECONFIG'] = str(path)
    try:
        yield
    finally:
        if previous is None:
            del os.environ['KUBECONFIG']
        else:
            os.environ['KUBECONFIG'] = previous
