"""
Endpoints: the URLs of the probes and the metrics, e.g. ``http://0.0.0.0:8080/healthz``.
"""

import dataclasses
import urllib.parse

DEFAULT_HOST = 'localhost'
DEFAULT_PORT = 80


class EndpointError(Exception):
    """The probes cannot be served at the requested endpoint."""


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An address to listen at, and the path of the liveness probe."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    path: str = '/'  # decoded

    def __str__(self) -> str:
        host = f'[{self.host}]' if ':' in self.host else self.host
        return f'http://{host}:{self.port}{urllib.parse.quote(self.path)}'


def parse_endpoint(url: str) -> Endpoint:
    """
    Parse the URL; the default host is this machine only, and the default port is that of HTTP.

    Raises `EndpointError` for URLs that cannot be served. The URL is not shown in full, as it can
    contain a password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except (AttributeError, TypeError, ValueError) as error:
        raise EndpointError(
            f'The liveness endpoint is not a URL with a port of 1 to 65535: {error}'
        ) from error

    if parts.scheme != 'http':
        raise EndpointError(
            f'The liveness endpoint can only be served by HTTP, as http://host:port/path, '
            f'not by {repr(parts.scheme) if parts.scheme else "an unknown protocol"}.'
        )
    if port == 0:
        raise EndpointError('The liveness endpoint needs a port of 1 to 65535, not 0.')
    if '@' in parts.netloc or parts.query or parts.fragment:
        raise EndpointError(
            'The liveness endpoint has only a host, a port, and a path, as http://host:port/path: '
            'no users, queries, or fragments.'
        )

    path = urllib.parse.unquote(parts.path)
    return Endpoint(parts.hostname or DEFAULT_HOST, port or DEFAULT_PORT, path or '/')
