"""
Addresses: how the server is reached, and what is asked of it by the path. Pure.
"""

import dataclasses
import ipaddress
import urllib.parse
from collections.abc import Iterable

LOCALHOST = 'localhost'

_PATH_SAFE = "/-._~!$&'()*+,;=:@%"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the clients find the server."""

    scheme: str
    host: str
    port: int
    path: str = ''  # the common beginning of all paths, e.g. "/webhooks", with no slash in the end

    @property
    def url(self) -> str:
        host = f'[{self.host}]' if is_ipv6(self.host) else self.host
        return f'{self.scheme}://{host}:{self.port}{urllib.parse.quote(self.path, safe=_PATH_SAFE)}'


def choose_host(host: str | None, addr: str | None) -> str:
    """Choose how the clients call the server: as they are told to, or by the address, or as on the same machine."""
    if host:
        return strip_brackets(host)
    if not addr:
        return LOCALHOST
    ip = parse_ip(addr)
    if (
        ip is not None and ip.is_unspecified
    ):  # all addresses of the machine; nobody can connect to that
        return '127.0.0.1' if ip.version == 4 else '::1'
    return strip_brackets(addr)


def list_hostnames(host: str | None, addr: str | None, extra: Iterable[str] = ()) -> list[str]:
    """List what the server's certificate is for, the most important name being the first."""
    named = [choose_host(host, addr), *([addr] if addr else []), *extra]
    return list(dict.fromkeys(strip_brackets(name) for name in named))


def normalize_path(path: str | None) -> str:
    """Make the common beginning of paths regular: with a slash before, with none after; empty if there is none."""
    stripped = (path or '').strip('/')
    return f'/{stripped}' if stripped else ''


def parse_webhook(path: str, prefix: str) -> str | None:
    """
    Tell which webhook is asked for; ``None`` if it is none in particular.

    Ids can have slashes inside, as the API server decodes and encodes the URLs in its own way.
    Raises `LookupError` if the path is somewhere else. The path is decoded already, the prefix is normalized.
    """
    decoded = urllib.parse.unquote(prefix)
    if path != decoded and not path.startswith(f'{decoded}/'):
        raise LookupError(path)
    return path[len(decoded) :].strip('/') or None


def is_ipv6(host: str) -> bool:
    ip = parse_ip(host)
    return ip is not None and ip.version == 6


def strip_brackets(host: str) -> str:
    """Take an IPv6 address out of the notation of URLs."""
    return host[1:-1] if host.startswith('[') and host.endswith(']') else host


def parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address; ``None`` if it is a name."""
    try:
        return ipaddress.ip_address(strip_brackets(host))
    except ValueError:
        return None
