"""
CRD installing: apply definitions to clusters, and read them from there.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kopf._cogs.clients import errors, requests
from kopf._cogs.structs import credentials
from kopf._core.intents import registries
from kopf._kits.commands import cluster_sessions, options

logger = logging.getLogger('kopf.cli')

URL: Final = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
MANAGER: Final = 'kopf-crd'
"""The name under which the fields of the definitions are owned."""

APPLY_PATCH: Final = 'application/apply-patch+yaml'  # of which JSON is a part

PATIENCE: Final = 60.0
"""Seconds until the definitions must be established."""

_POLLING: Final = 0.2
_ERRORS: Final = (credentials.LoginError, errors.RequestError, OSError)


class Failure(click.ClickException):
    """The cluster does not allow the operation, or does not accept a definition."""

    exit_code = 1


def install(bodies: Sequence[Mapping[str, Any]], controls: options.CLIControls) -> None:
    """Apply the definitions, and wait until they are served. Raises `Failure`."""
    asyncio.run(_install(bodies, controls))


def read(names: Sequence[str], controls: options.CLIControls) -> dict[str, Mapping[str, Any]]:
    """Read the definitions that exist in the cluster. Raises `Failure`."""
    return asyncio.run(_read(names, controls))


async def _install(bodies: Sequence[Mapping[str, Any]], controls: options.CLIControls) -> None:
    registry = registries.get_default_registry()
    name = ''
    try:
        async with cluster_sessions.connect(controls, registry) as context:
            for body in bodies:
                name = body['metadata']['name']
                await requests.patch(
                    f'{URL}/{name}?fieldManager={MANAGER}&force=true',
                    context=context,
                    payload=body,
                    media_type=APPLY_PATCH,
                    options=requests.Options(is_repeatable=True),
                )
            for body in bodies:
                name = body['metadata']['name']
                await _wait_until_established(name, context)
                logger.info('The definition %s is installed.', name)
    except _ERRORS as error:
        raise Failure(f'Cannot install the definition {name}: {error}') from error


async def _wait_until_established(name: str, context: requests.Context) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                if is_established(await requests.get(f'{URL}/{name}', context=context)):
                    return
                await asyncio.sleep(_POLLING)
    except TimeoutError as error:
        text = f'The definition {name} is not established in {PATIENCE:g} s: see its conditions.'
        raise Failure(text) from error


def is_established(body: Mapping[str, Any]) -> bool:
    """Return whether the resource is served."""
    conditions = (body.get('status') or {}).get('conditions') or ()
    states = {item.get('type'): item.get('status') for item in conditions}
    return states.get('Established') == 'True'


async def _read(
    names: Sequence[str], controls: options.CLIControls
) -> dict[str, Mapping[str, Any]]:
    found = {}
    try:
        async with cluster_sessions.connect(controls, registries.get_default_registry()) as context:
            for name in names:
                try:
                    found[name] = await requests.get(f'{URL}/{name}', context=context)
                except errors.APINotFoundError:
                    continue
    except _ERRORS as error:
        raise Failure(f'Cannot read the definitions: {error}') from error

    return found
