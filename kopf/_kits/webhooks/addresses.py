"""
Addresses: how clients reach the server, and which webhook a path means. Pure.
"""

import dataclasses
import ipaddress
import urllib.parse
from collections.abc import Iterable

LOCALHOST = 'localhost'

_PATH_SAFE = "/-._~!$&'()*+,;=:@%"


@dataclasses.dataclass(frozen=True)
class Place:
    """The address at which clients reach the server."""

    scheme: str
    host: str
    port: int
    path: str = ''  # the common prefix of all paths, e.g. "/webhooks", with no trailing slash

    @property
    def url(self) -> str:
        host = f'[{self.host}]' if is_ipv6(self.host) else self.host
        return f'{self.scheme}://{host}:{self.port}{urllib.parse.quote(self.path, safe=_PATH_SAFE)}'


def choose_host(host: str | None, addr: str | None) -> str:
    """Choose the host name for the clients: the configured one, the address, or localhost."""
    if host:
        return strip_brackets(host)
    if not addr:
        return LOCALHOST

    ip = parse_ip(addr)
    # All addresses of the machine: clients cannot connect to such an address.
    if ip is not None and ip.is_unspecified:
        return '127.0.0.1' if ip.version == 4 else '::1'
    return strip_brackets(addr)


def list_hostnames(host: str | None, addr: str | None, extra: Iterable[str] = ()) -> list[str]:
    """List the names and addresses for the server's certificate, the most important one first."""
    named = [choose_host(host, addr), *([addr] if addr else []), *extra]
    return list(dict.fromkeys(strip_brackets(name) for name in named))


def normalize_path(path: str | None) -> str:
    """Normalize the prefix of paths: with a leading slash and no trailing one, or empty."""
    stripped = (path or '').strip('/')
    return f'/{stripped}' if stripped else ''


def parse_webhook(path: str, prefix: str) -> str | None:
    """
    Return the id of the requested webhook; ``None`` if the path names none.

    Ids can have slashes inside, as the API server decodes and encodes the URLs in its own way.
    Raises `LookupError` if the path is outside of the prefix. The path must be decoded, and the
    prefix must be normalized.
    """
    decoded = urllib.parse.unquote(prefix)
    if path != decoded and not path.startswith(f'{decoded}/'):
        raise LookupError(path)
    return path[len(decoded) :].strip('/') or None


def is_ipv6(host: str) -> bool:
    ip = parse_ip(host)
    return ip is not None and ip.version == 6


def strip_brackets(host: str) -> str:
    """Remove the brackets that IPv6 addresses have in URLs."""
    return host[1:-1] if host.startswith('[') and host.endswith(']') else host


def parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address; return ``None`` for a host name."""
    try:
        return ipaddress.ip_address(strip_brackets(host))
    except ValueError:
        return None
