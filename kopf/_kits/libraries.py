"""
Libraries: operators on sandboxes, and the client libraries that their handlers use.

The operator itself always uses the sandbox, whatever its login handlers return: they are called
only for their side effects, e.g. to set up clients. The libraries are kept from other clusters as
far as possible: ``KUBECONFIG`` points to the sandbox, and the variables of pods are hidden.
"""

import contextlib
import logging
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Protocol

from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import kubeconfigs
from kopf._cogs.structs import credentials, vaults
from kopf._core.intents import causes, piggybacking, registries

logger = logging.getLogger(__name__)

LOOPBACK = '127.0.0.1'

CONFIGURATIONS = 'admission.sandbox.kopf.dev'
"""The name of the webhook configurations of operators that do not set any."""

VARIABLE = 'KUBECONFIG'

HIDDEN = (
    'KUBERNETES_SERVICE_HOST',
    'KUBERNETES_SERVICE_PORT',
    'PYKUBE_KUBERNETES_SERVICE_HOST',
    'PYKUBE_KUBERNETES_SERVICE_PORT',
)
"""The variables with which the libraries find the cluster of their pod, e.g. of a CI job."""

REMEMBERED = 'KUBE_CONFIG_DEFAULT_LOCATION'

REMEMBERING = (
    'kubernetes.config',
    'kubernetes.config.kube_config',
    'kubernetes.aio.config',
    'kubernetes.aio.config.kube_config',
    'kubernetes_asyncio.config',
    'kubernetes_asyncio.config.kube_config',
)
"""
The modules that store ``KUBECONFIG`` in this constant when they are imported.

Another library, kr8s, stores whole connections.
"""


class Sandbox(Protocol):
    """The connection details of a running sandbox, however it is run."""

    @property
    def url(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def ca_data(self) -> bytes: ...
    @property
    def kubeconfig(self) -> pathlib.Path: ...


class Environment:
    """
    The environment variables for the libraries while any sandboxes are in use.

    They point to the sandbox entered last. The sandboxes can be left in any order. Variables
    changed by other code in the meantime are not restored.
    """

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._before: dict[str, str] = {}

    def enter(self, path: pathlib.Path) -> None:
        if not self._paths:
            names = (VARIABLE, *HIDDEN)
            self._before = {name: os.environ[name] for name in names if name in os.environ}

        for name in HIDDEN:
            os.environ.pop(name, None)
        self._paths.append(str(path))
        os.environ[VARIABLE] = str(path)
        refresh()

    def leave(self, path: pathlib.Path) -> None:
        is_ours = os.environ.get(VARIABLE) in self._paths
        latest = len(self._paths) - 1 - self._paths[::-1].index(str(path))
        del self._paths[latest]

        if is_ours and self._paths:
            os.environ[VARIABLE] = self._paths[-1]
        elif is_ours:
            del os.environ[VARIABLE]

        if not self._paths:
            self._restore(is_ours=is_ours)
        refresh()

    def _restore(self, *, is_ours: bool) -> None:
        for name, value in self._before.items():
            if name != VARIABLE or is_ours:
                os.environ.setdefault(name, value)


_environment = Environment()


@contextlib.contextmanager
def pointed_at(kubeconfig: pathlib.Path) -> Iterator[None]:
    """Let the libraries find this sandbox, and no other clusters, inside the block."""
    _environment.enter(kubeconfig)
    try:
        yield
    finally:
        _environment.leave(kubeconfig)


def make_vault(sandbox: Sandbox, registry: registries.OperatorRegistry) -> vaults.Vault:
    """
    Make the vault of an operator, with the credentials of the sandbox and no others.

    Login handlers must be called before the first request: if there are any, the vault is empty at
    first.
    """
    info = credentials.ConnectionInfo(
        server=sandbox.url,
        token=sandbox.token,
        ca_data=sandbox.ca_data or None,
        default_namespace='default',
    )
    fixed = {'sandbox': info}
    return vaults.Vault(None if _has_logins(registry) else fixed, fixed=fixed)


def adjust_settings(
    settings: settings_.OperatorSettings | None,
) -> settings_.OperatorSettings:
    """Let admission handlers work without a configured server: by default, serve on loopback."""
    from kopf._kits.webhooks import servers

    settings = settings if settings is not None else settings_.OperatorSettings()
    server = servers.WebhookServer(addr=LOOPBACK, host=LOOPBACK)
    settings.admission._fall_back_to(server, CONFIGURATIONS)
    return settings


async def configure(registry: registries.OperatorRegistry) -> None:
    """
    Configure the libraries in use, as the default login does.

    Without login handlers, the libraries that the default login would import are configured, too.
    Other libraries need no configuration: they read the kubeconfig when they are used.
    """
    if _is_used('kubernetes', registry):
        with _tolerated('kubernetes'):
            piggybacking.login_via_client(logger=logger)

    if _is_used('kubernetes_asyncio', registry):
        with _tolerated('kubernetes_asyncio'):
            await piggybacking.login_via_async_client(logger=logger)


def _is_used(library: str, registry: registries.OperatorRegistry) -> bool:
    names = [login.__name__ for login in piggybacking.list_default_logins()]
    by_default = {'kubernetes': 'login_via_client', 'kubernetes_asyncio': 'login_via_async_client'}
    return library in sys.modules or (not _has_logins(registry) and by_default[library] in names)


def _has_logins(registry: registries.OperatorRegistry) -> bool:
    return bool(registry._activities.select(causes.Activity.AUTHENTICATION))


@contextlib.contextmanager
def _tolerated(library: str) -> Iterator[None]:
    """Continue without the library if it is broken: the handlers might not use it."""
    try:
        yield
    except credentials.LoginError as error:
        logger.warning('The library %r is not configured for handlers: %s', library, error)


def refresh() -> None:
    """Make the libraries that are already imported look for the cluster again."""
    path = os.environ.get(VARIABLE) or kubeconfigs.DEFAULT_PATH
    for name in REMEMBERING:
        module = sys.modules.get(name)
        if hasattr(module, REMEMBERED):
            setattr(module, REMEMBERED, path)

    connections = getattr(getattr(sys.modules.get('kr8s._api'), 'Api', None), '_instances', None)
    if isinstance(connections, dict):
        connections.clear()


def remove_files() -> None:
    """
    Remove the certificates that the libraries have saved to temporary files.

    The libraries do it themselves only at the normal exit of the process.
    """
    for name in REMEMBERING:
        remove = getattr(sys.modules.get(name), '_cleanup_temp_files', None)
        if remove is not None:
            remove()
