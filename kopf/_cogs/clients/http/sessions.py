"""
Sessions: connections to the API, shared by the requests with the same credentials.

A session has one pool of connections and one TLS context. It is made of credentials and closed with
them. Servers that are reached directly get our own sessions; proxies and ready-made sessions are
left to the HTTP library.
"""

import logging
import urllib.parse

from kopf._cogs.aiokits import offloads
from kopf._cogs.clients.http import aiohttp_sessions, connections, direct, environs, http11, models
from kopf._cogs.structs import credentials

logger = logging.getLogger(__name__)


async def open_session(info: credentials.Credentials) -> models.Session:
    """
    Make a session of the credentials; the caller must close it.

    Nothing is sent to the server yet. Raises `LoginError` if the credentials are unusable. For
    plain HTTP to another machine, the credentials are left out.
    """
    parts = _check_server(info.server)
    if isinstance(info, credentials.AiohttpSession):
        return aiohttp_sessions.adopt_session(info)

    info = environs.resolve(info)
    if credentials.is_exposed(info) and credentials.has_secrets(info):
        info = credentials.disarm(info)
        parts = _check_server(info.server)
        logger.warning(
            'The credentials are not sent to %s, as all on the way could read them over plain '
            'HTTP. Use https:// in the address of the server.',
            credentials.describe(info),
        )

    context = await offloads.read_aside(info.as_ssl_context) if parts.scheme == 'https' else None
    if info.proxy_url is not None or '@' in parts.netloc:
        return aiohttp_sessions.make_session(info, context)

    headers = {'User-Agent': models.USER_AGENT, 'Accept-Encoding': 'gzip', **info.as_http_headers()}
    if not all(http11.is_clean(value) for value in headers.values()):
        raise credentials.LoginError(
            'The credentials cannot be sent in a header: they have line breaks or alike. '
            'Remove these from the token, the username, or the password.'
        )

    host = _encode_host(parts.hostname or '')
    port = parts.port or (80 if context is None else 443)
    return direct.DirectSession(
        info.server, connections.Address(host, port, context, info.tls_server_name), headers
    )


def _check_server(server: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(server)
        host = _encode_host(parts.hostname or '')
        is_correct = parts.scheme in ('http', 'https') and bool(host) and parts.port != 0
    except ValueError:
        is_correct = False

    if not is_correct:
        raise credentials.LoginError(
            f'The server must be a URL of HTTP or HTTPS, not {credentials.hide_userinfo(server)!r}.'
        )
    return parts


def _encode_host(host: str) -> str:
    """Encode the names in other alphabets. Raises `ValueError` for invalid names."""
    if not host.isascii():
        # Only for such names: the tables for that take a megabyte.
        return host.encode('idna').decode('ascii')
    if not all(0 < len(label) < 64 for label in host.removesuffix('.').split('.')):
        raise ValueError('there are empty or too long labels')
    return host
