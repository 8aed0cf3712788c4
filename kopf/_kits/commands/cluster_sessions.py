"""
Cluster sessions: the connections of commands that make a few requests and exit.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from kopf._cogs.aiokits import clocks
from kopf._cogs.clients import limits, requests
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import memos, vaults
from kopf._core.engines.activities import authentication
from kopf._core.intents import registries
from kopf._kits.commands import options

logger = logging.getLogger('kopf.cli')

BACKOFFS = (1, 1, 2)
"""Seconds between the attempts of a request; few, as a person waits for the result."""


@contextlib.asynccontextmanager
async def connect(
    controls: options.CLIControls, registry: registries.OperatorRegistry | None = None
) -> AsyncIterator[requests.Context]:
    """
    Log in, by the login handlers of the registry if there are any; close all connections in the
    end.

    The first request raises `LoginError` if the login fails.
    """
    vault = vaults.Vault() if controls.vault is None else controls.vault
    settings = _make_settings() if controls.settings is None else controls.settings
    registry = registry if registry is not None else controls.registry
    now = clocks.Clock()
    context = requests.Context(
        vault=vault, settings=settings, logger=logger, gates=limits.get_common_gates(), now=now
    )
    login = asyncio.create_task(
        authentication.run_authentication(
            registry=registries.OperatorRegistry() if registry is None else registry,
            settings=settings,
            vault=vault,
            memo=memos.Memo(),
            indices={},
            now=now,
        ),
        name='login',
    )

    try:
        yield context
    finally:
        login.cancel()
        await asyncio.wait([login])
        if not login.cancelled():
            login.exception()  # the requests raise the same error
        await vault.close()


def _make_settings() -> settings_.OperatorSettings:
    settings = settings_.OperatorSettings()
    settings.networking.error_backoffs = BACKOFFS
    return settings
