"""
The webhook client: the requests of the sandbox to webhooks over HTTPS.

Webhooks are trusted by the certificates in their configurations. The sandbox runs no services: a
service that webhooks refer to must be registered with the address or the function that serves it.
"""

import asyncio
import base64
import binascii
import dataclasses
import functools
import json
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kopf._cogs.helpers import jsons
from kopf._sandbox.admission import admission_review, matching

if TYPE_CHECKING:
    import aiohttp

Handler = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Serves a service in this process: takes the path and the review, returns the review answered."""

_HEADERS = {
    'Accept': 'application/json, */*',
    'Content-Type': 'application/json',
    'User-Agent': 'kube-apiserver-admission',
}
_CACHED_CONTEXTS = 64
_UNTRUSTED_CODES = (18, 19, 20, 21)  # OpenSSL: self-signed, or the issuer is unknown
_EXPIRED_CODES = (9, 10)
_MISMATCH_CODES = (62, 64)  # the host name, the address

_STATUS_TEXTS = {
    400: 'the server rejected our request for an unknown reason',
    401: 'the server has asked for the client to provide credentials',
    404: 'the server could not find the requested resource',
    405: 'the server does not allow this method on the requested resource',
    409: 'the server reported a conflict',
    422: 'the server rejected our request due to an error in our request',
    429: 'the server has received too many requests and has asked us to try again later',
    503: 'the server is currently unable to handle the request',
    504: 'the server was unable to return a response in the time allotted, but may still be '
    'processing the request',
}


class Services:
    """The services that webhooks may refer to. Modified only by the loop that serves requests."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str, str, int], str | Handler] = {}

    def register(
        self, namespace: str, name: str, endpoint: str | Handler, *, port: int = 443
    ) -> None:
        """Register the URL (``https://127.0.0.1:9443``) or the function that serves a service."""
        self._endpoints[namespace, name, port] = endpoint

    def find(self, service: matching.Service) -> str | Handler | None:
        return self._endpoints.get((service.namespace, service.name, service.port))


class Caller:
    """
    Calls webhooks. Any number of calls may be in progress at once.

    The session is opened when it is first needed, and is closed in `close`.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self._session: aiohttp.ClientSession | None = None
        self._contexts = functools.lru_cache(maxsize=_CACHED_CONTEXTS)(_build_context)

    async def close(self) -> None:
        """Close all connections. The next call opens new ones."""
        session = self._session
        self._session = None
        if session is not None:
            await session.close()

    async def ask(self, hook: matching.Hook, review: Mapping[str, Any]) -> bytes:
        """
        Call a webhook; return the body of its response.

        Takes at most the webhook's own timeout. Raises `admission_review.CallError` if there is no
        valid response by then.
        """
        url = build_url(hook)
        try:
            async with asyncio.timeout(hook.timeout):
                return await self._ask(hook, url, review)
        except TimeoutError as error:
            raise _failed(url, 'context deadline exceeded') from error

    async def _ask(self, hook: matching.Hook, url: str, review: Mapping[str, Any]) -> bytes:
        if hook.service is None:
            return await self._post(hook, url, url, review)

        endpoint = self.services.find(hook.service)
        if endpoint is None:
            raise _failed(url, f'service {json.dumps(hook.service.name)} not found')

        if isinstance(endpoint, str):
            query = urllib.parse.urlsplit(url).query
            return await self._post(
                hook, url, f'{endpoint.rstrip("/")}{hook.service.path}?{query}', review
            )

        try:
            # A copy, as if it was received over the network: the function may modify it.
            shown = jsons.loads(jsons.dumps(review))
            return jsons.dumps(await endpoint(hook.service.path, shown))
        except Exception as error:  # foreign code: any error is a failure of the webhook
            raise _failed(url, f'{type(error).__name__}: {error}') from error

    async def _post(
        self, hook: matching.Hook, url: str, address: str, review: Mapping[str, Any]
    ) -> bytes:
        import aiohttp

        context = self._contexts(hook.ca_bundle) if address.startswith('https:') else True
        host = f'{hook.service.name}.{hook.service.namespace}.svc' if hook.service else None
        trip = _Trip(
            address, jsons.dumps(review), context, host if address.startswith('https:') else None
        )

        try:
            try:
                return await self._travel(trip)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not trip.is_on_old_connection:
                    raise
                # The idle connection was closed by the server just before it was reused.
                return await self._travel(trip)
        except aiohttp.ClientConnectorCertificateError as error:
            wanted = host or urllib.parse.urlsplit(url).hostname or ''
            raise _failed(url, explain_certificate(error.certificate_error, wanted)) from error
        except aiohttp.ClientError as error:
            raise _failed(url, explain_connection(error, address)) from error

    async def _travel(self, trip: '_Trip') -> bytes:
        if self._session is None:
            self._session = _open_session()
        trip.is_on_old_connection = False
        async with self._session.post(
            trip.address,
            data=trip.content,
            ssl=trip.context,
            server_hostname=trip.host,
            trace_request_ctx=trip,
        ) as response:
            raw = await response.read()
            check_response(response.status, response.headers.get('Content-Type', ''), raw)
            return raw


@dataclasses.dataclass
class _Trip:
    """One request to a webhook. Modified by the session that makes it."""

    address: str
    content: bytes = dataclasses.field(repr=False)  # may contain secrets
    context: ssl.SSLContext | bool
    host: str | None  # the name in the certificate, if it is not that of the address
    is_on_old_connection: bool = False


def _open_session() -> 'aiohttp.ClientSession':
    import aiohttp

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_old_connection)
    return aiohttp.ClientSession(
        headers=_HEADERS, timeout=aiohttp.ClientTimeout(total=None), trace_configs=[tracing]
    )


async def _note_old_connection(session: object, context: Any, params: object) -> None:
    context.trace_request_ctx.is_on_old_connection = True


def build_url(hook: matching.Hook) -> str:
    """Build the URL of a webhook as the API reports it, including the timeout."""
    service = hook.service
    base = (
        f'https://{service.name}.{service.namespace}.svc:{service.port}{service.path}'
        if service
        else hook.url
    )
    return f'{base}?timeout={hook.timeout}s'


def check_response(status: int, content_type: str, raw: bytes) -> None:
    """Reject responses that cannot be reviews by their status or length."""
    if not 200 <= status <= 206:
        raise admission_review.CallError(f'failed to call webhook: {_explain_status(status, raw)}')
    if not raw:
        raise admission_review.CallError(
            f'failed to call webhook: 0-length response with status code: {status} '
            f'and content type: {content_type}'
        )


def explain_certificate(error: Exception, host: str) -> str:
    """Return the API's message about an invalid certificate of a server."""
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in _UNTRUSTED_CODES:
        problem = 'certificate signed by unknown authority'
    elif code in _EXPIRED_CODES:
        problem = 'certificate has expired or is not yet valid'
    elif code in _MISMATCH_CODES:
        problem = f'certificate is not valid for any names, but wanted to match {host}'
    else:
        problem = getattr(error, 'verify_message', '') or str(error)

    return f'tls: failed to verify certificate: x509: {problem}'


def explain_connection(error: Exception, address: str) -> str:
    """Return the API's message about a failed or broken connection to a server."""
    import aiohttp

    parts = urllib.parse.urlsplit(address)
    host = parts.hostname or ''
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f'dial tcp: lookup {host}: no such host'

    if isinstance(error, aiohttp.ClientConnectorError):
        target = '127.0.0.1' if host == 'localhost' else f'[{host}]' if ':' in host else host
        return (
            f'dial tcp {target}:{parts.port or 443}: connect: {_explain_os_error(error.os_error)}'
        )

    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return 'EOF'
    return str(error) or type(error).__name__


def _explain_os_error(error: OSError) -> str:
    text = str(error).lower()
    if isinstance(error, ConnectionRefusedError) or 'connect call failed' in text:
        return 'connection refused'
    return (error.strerror or str(error)).lower()


def _explain_status(status: int, raw: bytes) -> str:
    try:
        body = jsons.loads(raw)
    except ValueError:
        body = None

    if isinstance(body, dict) and body.get('kind') == 'Status' and body.get('message'):
        return str(body['message'])

    text = raw.decode('utf-8', 'replace').strip() or 'unknown'
    if status in (403, 406, 415):
        return text
    if status in _STATUS_TEXTS:
        return _STATUS_TEXTS[status]

    if status >= 500:
        quoted = json.dumps(text, ensure_ascii=False)
        return f'an error on the server ({quoted}) has prevented the request from succeeding'

    return f'the server responded with the status code {status} but did not return more information'


def _build_context(ca_bundle: str) -> ssl.SSLContext:
    """Build a TLS context that trusts the bundle as Go does: even a server's own certificate."""
    if not ca_bundle:
        return ssl.create_default_context()

    try:
        context = ssl.create_default_context(
            cadata=base64.b64decode(ca_bundle, validate=True).decode('ascii')
        )
    except (ssl.SSLError, binascii.Error, ValueError) as error:
        raise admission_review.CallError(
            'could not get REST client: unable to load root certificates: '
            'unable to parse bytes as PEM block'
        ) from error

    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _failed(url: str, text: str) -> admission_review.CallError:
    return admission_review.CallError(f'failed to call webhook: Post {json.dumps(url)}: {text}')
