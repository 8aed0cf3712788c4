"""
Servers: HTTP and HTTPS endpoints in the operator's process, for API servers that can reach it.

A server is called with the function that makes reviews, and yields the client configurations with
which it can be reached: when it is ready, and every time they change. It serves as long as it is
iterated, or until its context is exited.
"""

# ruff: noqa: PLR0913  # there are as many arguments as there are options
import asyncio
import base64
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from typing import TYPE_CHECKING

from kopf._cogs.aiokits import clocks, sockets
from kopf._cogs.structs import reviews
from kopf._kits.webhooks import addresses, contexts, detection, server_options

if TYPE_CHECKING:
    import datetime
    import ssl

    from kopf._cogs.aiokits import listeners
    from kopf._kits.webhooks import certificates

logger = logging.getLogger(__name__)

OVERLAP = 5.0
"""
Seconds to let all API servers learn the new authority before the new certificate is presented.

Until then, they trust both the new and the old authority, and no request fails.
"""

LONGEST_NAP = 3600.0
"""Seconds between checks of the wall clock: it diverges from the loop's clock in system sleep."""


class WebhookServer(contexts.WebhookContextManager):
    """
    A local HTTP or HTTPS endpoint.

    ``addr`` and ``port`` are where to listen: by default, on all interfaces and at a random port.
    ``path`` is the common prefix of all webhooks. ``host`` is the host name of this machine for
    clients, if it differs from the address.

    ``certfile``, ``pkeyfile`` and ``password`` are the certificate of the server; by default, a
    self-signed certificate is made for the host, the address, and ``extra_sans``. ``cafile`` or
    ``cadata`` are the authority that the clients should trust; ``cadump`` is a file to save it to.
    ``verify_...`` define how the clients are verified, if at all. ``context`` is the TLS context to
    use instead of the default one. With ``insecure``, there is no TLS.

    The files are checked every ``file_check_interval`` seconds. When they change, new connections
    get the new certificate; a self-signed certificate is renewed long before it expires.

    All requests in flight take at most ``inflight_bytes``, 64 MiB by default: requests above that
    wait for a while, then get the status 503 with ``Retry-After``. A lower limit saves memory, a
    higher one accepts more large reviews at once.
    """

    DEFAULT_HOST: str | None = None

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        host: str | None = None,
        cadata: bytes | None = None,
        cafile: server_options.FilePath | None = None,
        cadump: server_options.FilePath | None = None,
        context: 'ssl.SSLContext | None' = None,
        insecure: bool = False,
        certfile: server_options.FilePath | None = None,
        pkeyfile: server_options.FilePath | None = None,
        password: str | None = None,
        extra_sans: Iterable[str] = (),
        verify_mode: 'ssl.VerifyMode | None' = None,
        verify_cafile: server_options.FilePath | None = None,
        verify_capath: server_options.FilePath | None = None,
        verify_cadata: str | bytes | None = None,
        file_check_interval: float = 60.0,
        inflight_bytes: int = server_options.INFLIGHT_BYTES,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.host = host
        self.cadata = cadata
        self.cafile = cafile
        self.cadump = cadump
        self.context = context
        self.insecure = insecure
        self.certfile = certfile
        self.pkeyfile = pkeyfile
        self.password = password
        self.extra_sans = extra_sans
        self.verify_mode = verify_mode
        self.verify_cafile = verify_cafile
        self.verify_capath = verify_capath
        self.verify_cadata = verify_cadata
        self.file_check_interval = file_check_interval
        self.inflight_bytes = inflight_bytes

    def __call__(self, fn: reviews.WebhookFn) -> AsyncIterator[reviews.WebhookClientConfig]:
        """
        Serve requests with this function, and iterate over the client configurations.

        Raises `WebhookServerError` at the first iteration if the server cannot start with these
        options.
        """
        return self._track(lambda run: self._serve(fn, run))

    @staticmethod
    def build_certificate(
        hostnames: Collection[str], password: str | None = None
    ) -> tuple[bytes, bytes]:
        """
        Make a self-signed certificate for these names and addresses; return it and its key, in PEM.

        The subject is the first name, or the first address if there are no names. Unspecified
        addresses, such as 0.0.0.0, are left out.
        """
        from kopf._kits.webhooks import certificates

        return certificates.build_certificate(hostnames, password)

    async def _detect_host(self) -> str | None:
        """Find the host name of this machine for clients, if it is not configured."""
        return self.DEFAULT_HOST

    async def _serve(self, fn: reviews.WebhookFn, run: contexts.Run) -> contexts.Configs:
        from kopf._cogs.aiokits import listeners
        from kopf._kits.webhooks import certificates, payloads, review_endpoints

        given = self._collect_options()
        host = given.host or await self._detect_host()
        path = addresses.normalize_path(given.path)
        hostnames = addresses.list_hostnames(host, given.addr, given.extra_sans)
        source = certificates.Source(given, hostnames, self.build_certificate)
        identity = await asyncio.to_thread(source.obtain)
        bound = await _bind(given.addr, given.port or 0)
        endpoint = review_endpoints.ReviewEndpoint(fn, path, payloads.Budget(given.inflight_bytes))
        listener = listeners.Listener(bound, endpoint.answer, review_endpoints.LIMITS, logger)
        place = addresses.Place(
            'http' if given.insecure else 'https',
            addresses.choose_host(host, given.addr),
            bound[0].getsockname()[1],
            path,
        )
        renewals = _Renewals(listener, source, run, given.file_check_interval)

        try:
            listener.use(identity.activate())
            await asyncio.to_thread(source.dump, identity.authority)
            listener.start()
            logger.debug('The webhook server listens for %s.', place.url)
            if identity.problem is not None:
                logger.warning(
                    'The webhooks are not going to be trusted by API servers: %s', identity.problem
                )
            async with contextlib.aclosing(renewals.follow(identity)) as authorities:
                async for authority in authorities:
                    yield _build_config(place, authority)
        finally:
            await listener.close()

    def _collect_options(self) -> server_options.ServerOptions:
        values = {name: getattr(self, name) for name in server_options.NAMES}
        if not isinstance(self.extra_sans, str | bytes) and isinstance(self.extra_sans, Iterable):
            # It can be a one-time iterator, but is needed many times.
            values['extra_sans'] = tuple(self.extra_sans)
        given = server_options.ServerOptions(**values)
        server_options.check_options(given)
        return given


class WebhookK3dServer(WebhookServer):
    """A server for local clusters of K3d and K3s, which know this machine by a fixed host name."""

    DEFAULT_HOST = 'host.k3d.internal'


class WebhookMinikubeServer(WebhookServer):
    """A server for local clusters of Minikube, which know this machine by a fixed host name."""

    DEFAULT_HOST = 'host.minikube.internal'


class WebhookDockerDesktopServer(WebhookServer):
    """A server for the cluster of Docker Desktop, which knows this machine by a fixed host name."""

    DEFAULT_HOST = 'host.docker.internal'


class WebhookAutoServer(detection.ClusterDetector, WebhookServer):
    """A server that detects how the cluster reaches this machine; otherwise, a local server."""

    async def _detect_host(self) -> str | None:
        return await self.guess_host()


class _Renewals:
    """Renewals of the identity of a server over time. Used by one task."""

    def __init__(
        self,
        listener: 'listeners.Listener',
        source: 'certificates.Source',
        run: contexts.Run,
        interval: float,
    ) -> None:
        self._listener = listener
        self._source = source
        self._run = run
        self._interval = interval
        self._now = clocks.Clock()
        self._failures: set[str] = set()  # already logged

    async def follow(self, identity: 'certificates.Identity') -> AsyncGenerator[bytes | None]:
        """Iterate over the authorities for clients to trust: the first one, and every new one."""
        yield identity.authority
        while not await self._pause(self._choose_delay(identity)):
            if not await asyncio.to_thread(self._source.is_outdated, identity, self._now()):
                continue
            renewed = await self._renew(identity)
            if renewed is None:
                continue
            if renewed.authority and identity.authority and renewed.authority != identity.authority:
                yield join_authorities(renewed.authority, identity.authority)
                if await self._pause(min(OVERLAP, self._interval)):
                    return
            if await self._replace(renewed):
                identity = renewed
                yield identity.authority

    async def _renew(self, identity: 'certificates.Identity') -> 'certificates.Identity | None':
        try:
            return await asyncio.to_thread(self._source.renew, identity)
        except server_options.WebhookServerError as error:
            self._complain(error)
            return None

    async def _replace(self, renewed: 'certificates.Identity') -> bool:
        try:
            self._listener.use(renewed.activate())
        except server_options.WebhookServerError as error:
            self._complain(error)
            return False

        self._failures.clear()
        logger.info('The certificate of the webhook server is replaced.')
        try:
            await asyncio.to_thread(self._source.dump, renewed.authority)
        except server_options.WebhookServerError as error:
            logger.error('%s The new certificate is used nevertheless.', error)

        return True

    def _complain(self, error: Exception) -> None:
        """Log the failure, each one only once: the renewal is retried."""
        if str(error) not in self._failures:
            logger.error(
                'The certificate of the webhook server cannot be replaced; the old one is used '
                'for now: %s',
                error,
            )

        self._failures.add(str(error))

    async def _pause(self, delay: float | None) -> bool:
        """Let the server serve for some time; return whether it must stop. Raises its error."""
        serving = asyncio.create_task(self._listener.wait(), name='webhooks server')
        stopping = asyncio.create_task(self._run.wait(), name='webhooks stopper')
        try:
            await asyncio.wait(
                [serving, stopping], timeout=delay, return_when=asyncio.FIRST_COMPLETED
            )
            if serving.done():
                serving.result()
            return stopping.done()
        finally:
            serving.cancel()
            stopping.cancel()
            await asyncio.wait([serving, stopping])

    def _choose_delay(self, identity: 'certificates.Identity') -> float | None:
        return choose_delay(
            identity.renewal, self._now(), self._interval if self._source.has_files else None
        )


def choose_delay(
    renewal: 'datetime.datetime | None', now: 'datetime.datetime', interval: float | None
) -> float | None:
    """Return the delay until the next check of certificates, in seconds; ``None`` for never."""
    delays = [] if interval is None else [interval]
    if renewal is not None:
        delays.append(min(LONGEST_NAP, max(1.0, (renewal - now).total_seconds())))
    return min(delays, default=None)


def join_authorities(*pems: bytes) -> bytes:
    """Join the authorities, so that clients trust all of them."""
    return b''.join(pem if pem.endswith(b'\n') else pem + b'\n' for pem in pems)


async def _bind(addr: str | None, port: int) -> list[socket.socket]:
    try:
        return await sockets.bind(addresses.strip_brackets(addr) if addr else None, port)
    except OSError as error:
        raise server_options.WebhookServerError(
            f'The webhook server cannot listen at addr={addr!r}, port={port}: '
            f'{error.strerror or error}. Is it an address of this machine, is the port free, and '
            'are you permitted to use it?'
        ) from error


def _build_config(place: addresses.Place, authority: bytes | None) -> reviews.WebhookClientConfig:
    config = reviews.WebhookClientConfig(url=place.url)
    if authority is not None:
        config['caBundle'] = base64.b64encode(authority).decode('ascii')
    return config
