"""
Filters: the check of the ``Host`` header before anything else, and the tokens in paths.

A web page can resolve its own domain to this machine (DNS rebinding), and call the sandbox as its
own site; but the browser sends that domain in the header. So, only the names of the sandbox itself
are accepted.
"""

import functools
import ipaddress
import socket
import urllib.parse

from kopf._sandbox.auth import certificates
from kopf._sandbox.meta import errors

TOKEN_PREFIX = '/token/'
"""The prefix of paths with tokens. Without TLS, kubectl sends no credentials but in the URL."""

WILDCARDS = ('', '0.0.0.0', '::')
"""The hosts that mean listening on all addresses."""


@functools.lru_cache(maxsize=64)
def is_host_served(header: str, host: str) -> bool:
    """
    Return whether the header ``Host`` names the address where the sandbox listens, or this machine.

    If it listens on all addresses, any address is accepted: only names can be rebound.
    """
    name = _read_name(header)
    address = _parse_address(name)
    if not name or name == host.lower():
        return bool(name)
    if address is not None:
        return address.is_loopback or host in WILDCARDS

    is_local = name in certificates.LOCAL_HOSTS or name.endswith('.localhost')
    return is_local or (host in WILDCARDS and name == socket.gethostname().lower())


def refuse_host() -> errors.ApiError:
    return errors.ApiError(
        403,
        'Forbidden',
        'the sandbox is not served under this host: use 127.0.0.1 or localhost, '
        'or start it with the host that you need',
    )


def add_token(url: str, token: str) -> str:
    """Return the server's URL with a token in its path."""
    return f'{url}{TOKEN_PREFIX}{urllib.parse.quote(token, safe="")}'


def split_token(path: str) -> tuple[str, str]:
    """Split a path into the token, if there is any, and the path of the API."""
    if not path.startswith(TOKEN_PREFIX):
        return '', path
    token, _, rest = path.removeprefix(TOKEN_PREFIX).partition('/')
    return token, f'/{rest}'


def _read_name(header: str) -> str:
    """Return the name or the address without the port; empty if the header is malformed."""
    try:
        return (urllib.parse.urlsplit(f'//{header}').hostname or '').rstrip('.')
    except ValueError:
        return ''


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return getattr(address, 'ipv4_mapped', None) or address
