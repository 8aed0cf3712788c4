"""
Sockets: addresses to listen at, bound before anything is served there.
"""

import asyncio
import contextlib
import errno
import socket
from typing import Any

ATTEMPTS = 10
"""How many random ports are tried to find one that is free at all addresses."""


async def bind(host: str | None, port: int) -> list[socket.socket]:
    """
    Bind sockets to all addresses of the host that this machine has; without a host, to all
    addresses of the machine.

    Port 0 means a random free port, the same for all addresses. Raises `OSError` if there are no
    such addresses, or any is in use.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys(found))

    for _ in range(ATTEMPTS - 1 if port == 0 and len(addresses) > 1 else 0):
        try:
            return _bind_all(addresses)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise

    return _bind_all(addresses)


def _bind_all(addresses: list[tuple[Any, ...]]) -> list[socket.socket]:
    absence: OSError | None = None
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        for family, kind, protocol, _, address in addresses:
            port = address[1] or (sockets[0].getsockname()[1] if sockets else 0)
            try:
                sock = stack.enter_context(socket.socket(family, kind, protocol))
                _bind(sock, (address[0], port, *address[2:]))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                absence = error
            else:
                sockets.append(sock)
        if not sockets and absence is not None:
            raise absence
        stack.pop_all()

    return sockets


def _bind(sock: socket.socket, address: tuple[Any, ...]) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
