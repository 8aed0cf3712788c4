"""
Replicas: where the Lease of an operator is, and how its replicas are named in it.
"""

import dataclasses
import os
import pathlib
import socket
import uuid
from collections.abc import Mapping

from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import references
from kopf._core.engines.leading import elections
from kopf._core.intents import piggybacking

LEASES = references.Resource(
    'coordination.k8s.io', 'v1', 'leases', kind='Lease', singular='lease', namespaced=True
)


class PlaceError(Exception):
    """The namespace of the Lease is not known."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a Lease."""

    namespace: references.NamespaceName
    name: str

    @property
    def url(self) -> str:
        return LEASES.get_url(namespace=self.namespace, name=self.name)

    @property
    def parent_url(self) -> str:
        return LEASES.get_url(namespace=self.namespace)

    def __str__(self) -> str:
        return f'{self.namespace}/{self.name}'


def find_place(settings: settings_.LeadershipSettings) -> Place | None:
    """Find where the Lease is; ``None`` if there is no election. Raises `PlaceError`."""
    if settings.name is None:
        return None

    namespace = settings.namespace or _read_namespace()
    if not namespace:
        raise PlaceError(
            f'The namespace of the Lease {settings.name!r} is not known, as the operator runs '
            'outside of pods. Set settings.leadership.namespace, or run with '
            '--leader-elect-namespace.'
        )
    return Place(references.NamespaceName(namespace), settings.name)


def choose_terms(settings: settings_.LeadershipSettings) -> elections.Terms:
    """Return the times of the election."""
    return elections.Terms(settings.lease_duration, settings.renew_deadline, settings.retry_period)


def make_identity(environ: Mapping[str, str]) -> str:
    """Make a unique identity that names the pod or the machine."""
    return f'{environ.get("POD_NAME") or socket.gethostname()}_{uuid.uuid4()}'


def _read_namespace() -> str:
    """Return the namespace of the pod; empty outside of pods."""
    given = os.environ.get('POD_NAMESPACE')
    if given:
        return given
    try:
        return (pathlib.Path(piggybacking.SERVICE_ACCOUNT) / 'namespace').read_text().strip()
    except OSError:
        return ''
