"""
Freezing: write the records of people into peering objects.

Includes everything that this takes: logging in, finding the peering, and closing the connections.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Sequence

import click

from kopf._cogs.clients import errors, listing, requests
from kopf._cogs.clients.patching import object_requests, targets
from kopf._cogs.structs import credentials, references
from kopf._core.engines.peering import joining, ranking
from kopf._core.reactor import observation
from kopf._kits.commands import cluster_sessions, options

logger = logging.getLogger('kopf.cli')


class Failure(click.ClickException):
    """The cluster does not allow the operation, or has no such peering."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class Order:
    """A record to write, and the peering objects to write it to."""

    name: str
    identity: str | None  # detected if None
    clusterwide: bool
    patterns: Sequence[str]
    record: ranking.Record | None  # without its time; None to remove the record


def execute(order: Order, controls: options.CLIControls) -> None:
    """
    Write the record to all chosen objects, and log where it is written.

    Raises `Failure` on the first error; some of the objects can be already written by then.
    """
    if controls.loop is not None:
        controls.loop.run_until_complete(_execute(order, controls))
    else:
        asyncio.run(_execute(order, controls))


async def _execute(order: Order, controls: options.CLIControls) -> None:
    """Log in, write the record, and close all connections."""
    try:
        async with cluster_sessions.connect(controls) as context:
            await _write(order, context)
    except (credentials.LoginError, errors.RequestError, OSError) as e:
        raise Failure(str(e)) from e


async def _write(order: Order, context: requests.Context) -> None:
    """Write to the existing objects. Raises `Failure` if any is missing: none is created."""
    resource = await joining.find_resource(context, clusterwide=order.clusterwide)
    if resource is None:
        raise Failure(
            'The cluster has no peerings of this scope. Apply the peering.yaml of the framework '
            'first.'
        )

    identity = ranking.Identity(order.identity) if order.identity else ranking.detect_user()
    record = order.record and dataclasses.replace(order.record, lastseen=context.now())
    patch = ranking.build_patch(identity, record)
    missing: list[str] = []

    for namespace in await _list_namespaces(order, context):
        where = 'the cluster' if namespace is None else f'the namespace {namespace!r}'
        patched = await object_requests.patch_object(
            targets.Target(resource, namespace, order.name), merge=patch, context=context
        )
        if patched is None:
            missing.append(where)
        elif patched.refusal is not None:
            raise patched.refusal
        else:
            logger.info(
                'The operators in the peering %r of %s will %s.',
                order.name,
                where,
                'resume' if record is None else 'pause',
            )

    if missing:
        raise Failure(f'There is no peering {order.name!r} in {", ".join(missing)}.')


async def _list_namespaces(
    order: Order, context: requests.Context
) -> Collection[references.Namespace]:
    """List the chosen namespaces; the cluster is requested only if there are patterns."""
    if order.clusterwide:
        return [None]

    exact = references.select_exact(order.patterns)
    if len(exact) == len(set(order.patterns)):
        return sorted(exact)

    found = set(exact)
    async for page in listing.list_pages(observation.NAMESPACES, None, context=context):
        names = [references.NamespaceName(item['metadata']['name']) for item in page.items]
        found.update(
            name
            for name in names
            if any(references.match_namespace(name, pattern) for pattern in order.patterns)
        )

    if not found:
        raise Failure(f'There are no such namespaces: {", ".join(order.patterns)}.')
    return sorted(found)
