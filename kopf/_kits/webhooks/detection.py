"""
Detection: the kind of the local cluster, and the host name by which it reaches this machine.

The cluster is recognised by the names in the certificate of its API server. Nothing is sent to the
server except for the TLS handshake.
"""

import asyncio
import itertools
import logging
import ssl
import urllib.parse
from collections.abc import Collection

from kopf._cogs.structs import credentials
from kopf._kits.webhooks import x509_fields

logger = logging.getLogger(__name__)

DELAYS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between the attempts to get the certificate; the last delay is repeated forever."""

CONNECTION_TIMEOUT = 10.0
"""Seconds for one attempt."""

K3D_HOST = 'host.k3d.internal'
MINIKUBE_HOST = 'host.minikube.internal'
DOCKER_HOST = 'host.docker.internal'


class ClusterDetector:
    """A mixin for servers and tunnels that detect how the cluster can reach them."""

    @staticmethod
    async def guess_host() -> str | None:
        """
        Find the host name of this machine for the operator's cluster; ``None`` if it is unknown.

        Waits until the operator is logged in, and until the API server is reachable. Raises
        `RuntimeError` if not called by an operator, `LoginError` if the operator cannot log in.
        """
        from kopf._core.reactor import running

        vault = running.get_current_vault()
        if vault is None:
            raise RuntimeError(
                'There is no cluster to detect: it can be done only while an operator is running, '
                'and only in its own tasks.'
            )

        names = await _read_names(await vault.select())
        host = choose_host(names)
        logger.debug(
            'The API server is known as %s; so, the host is %s.', ', '.join(sorted(names)), host
        )

        return host


def choose_host(names: Collection[str]) -> str | None:
    """Return the name of this machine in a cluster whose certificate has these names."""
    for name in names:
        if name == 'k3s' or name.startswith(('k3s-server-ca', 'k3d-')):
            return K3D_HOST
        if name in ('minikube', 'minikubeCA') or name.endswith('.minikube.internal'):
            return MINIKUBE_HOST
        if name == 'docker-for-desktop':
            return DOCKER_HOST

    return None


async def _read_names(selected: tuple[str, credentials.Credentials]) -> Collection[str]:
    _, info = selected
    if urllib.parse.urlsplit(info.server).scheme != 'https':
        return ()

    if isinstance(info, credentials.ConnectionInfo) and info.proxy_url is not None:
        logger.info('The API server is behind a proxy, so the kind of the cluster is not detected.')
        return ()

    for delay in itertools.chain(DELAYS, itertools.repeat(DELAYS[-1])):
        try:
            return x509_fields.read_der(await _fetch_certificate(info)).names
        except OSError as error:  # including TLS errors and timeouts
            logger.warning(
                'Cannot detect the kind of the cluster, and will try again in %.0f s: %s',
                delay,
                error,
            )
        await asyncio.sleep(delay)

    raise AssertionError('the attempts are not limited')


async def _fetch_certificate(info: credentials.Credentials) -> bytes:
    """
    Get the certificate of the API server, verified according to the credentials.

    Raises `OSError` if it cannot be obtained.
    """
    context = _build_blind_context()
    name = None
    if isinstance(info, credentials.ConnectionInfo):
        context = await asyncio.to_thread(info.as_ssl_context)
        name = info.tls_server_name

    parts = urllib.parse.urlsplit(info.server)
    async with asyncio.timeout(CONNECTION_TIMEOUT):
        _, writer = await asyncio.open_connection(
            parts.hostname, parts.port or 443, ssl=context, server_hostname=name
        )
        try:
            shown: bytes = writer.get_extra_info('ssl_object').getpeercert(True)
            return shown
        finally:
            writer.transport.abort()  # do not wait for a graceful TLS shutdown, which can be slow


def _build_blind_context() -> ssl.SSLContext:
    """
    Build a context that trusts every server.

    It is for ready-made sessions, which do not expose what they trust; only the names are needed.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    return context
