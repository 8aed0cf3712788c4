"""
Environs: what the environment of the process tells of connections: the proxies, and the passwords in ``~/.netrc``.

It is not left to the HTTP library: that would combine these passwords with tokens, which it refuses, and would send
them over plain HTTP.
"""

import dataclasses
import urllib.parse

from kopf._cogs.structs import credentials


def resolve(info: credentials.ConnectionInfo) -> credentials.ConnectionInfo:
    """Add the proxy and the passwords of the environment, if it is trusted, to the credentials that have none."""
    if not info.trust_env:
        return info
    parts = urllib.parse.urlsplit(info.server)
    proxy_url = info.proxy_url or _find_proxy(parts)
    proxy_url = proxy_url and _add_password(proxy_url)
    username, password = info.username, info.password
    if not info.as_http_headers() and '@' not in parts.netloc:
        username, password = _find_password(parts.hostname) or (username, password)
    return dataclasses.replace(
        info, proxy_url=proxy_url, username=username, password=password, trust_env=False
    )


def _find_proxy(server: urllib.parse.SplitResult) -> str | None:
    import urllib.request  # with all of HTTP, which is not needed otherwise

    proxy = urllib.request.getproxies().get(server.scheme)
    return None if not proxy or urllib.request.proxy_bypass(server.hostname or '') else proxy


def _add_password(url: str) -> str:
    """Add the name and the password to the URL of a proxy, unless it has them; malformed ones are left as they are."""
    scheme, _, address = url.rpartition('://')
    try:
        host = urllib.parse.urlsplit(f'//{address}').hostname
    except ValueError:
        host = None
    found = None if '@' in address else _find_password(host)
    if found is None:
        return url
    userinfo = ':'.join(urllib.parse.quote(part, safe='') for part in found)
    return f'{scheme or "http"}://{userinfo}@{address}'


def _find_password(host: str | None) -> tuple[str, str] | None:
    """Find the name and the password for a host in the file; nothing if the file is absent, unreadable or malformed."""
    import netrc
    import os

    path = os.environ.get('NETRC') or os.path.expanduser('~/.netrc')
    try:
        found = netrc.netrc(path).authenticators(host or '')
    except (OSError, ValueError, netrc.NetrcParseError):
        return None
    return None if found is None else (found[0] or found[1], found[2] or '')
