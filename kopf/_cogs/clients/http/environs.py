"""
Environs: the proxies from the environment of the process, and the passwords from ``~/.netrc``.

This is not left to the HTTP library: it would combine these passwords with tokens, which it
refuses, and would send them over plain HTTP.
"""

import dataclasses
import urllib.parse

from kopf._cogs.structs import credentials


def resolve(info: credentials.ConnectionInfo) -> credentials.ConnectionInfo:
    """Add the proxy and the passwords of a trusted environment to credentials without them."""
    if not info.trust_env:
        return info

    parts = urllib.parse.urlsplit(info.server)
    proxy_url = info.proxy_url or _find_proxy(parts)
    proxy_url = proxy_url and _add_password(proxy_url)
    username = info.username
    password = info.password
    if not info.as_http_headers() and '@' not in parts.netloc:
        username, password = _find_password(parts.hostname) or (username, password)
    return dataclasses.replace(
        info, proxy_url=proxy_url, username=username, password=password, trust_env=False
    )


def _find_proxy(server: urllib.parse.SplitResult) -> str | None:
    # It imports the whole HTTP client of Python, which is not needed otherwise.
    import urllib.request

    proxy = urllib.request.getproxies().get(server.scheme)
    return None if not proxy or urllib.request.proxy_bypass(server.hostname or '') else proxy


def _add_password(url: str) -> str:
    """Add the credentials to the URL of a proxy, unless present; keep malformed URLs as is."""
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
    """Find the credentials of a host; return ``None`` if the file is absent or malformed."""
    import netrc
    import os

    path = os.environ.get('NETRC') or os.path.expanduser('~/.netrc')
    try:
        found = netrc.netrc(path).authenticators(host or '')
    except (OSError, ValueError, netrc.NetrcParseError):
        return None

    return None if found is None else (found[0] or found[1], found[2] or '')
