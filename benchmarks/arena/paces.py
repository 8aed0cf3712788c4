"""
Changes at a given rate, each sent on time, or as soon as a connection is free after that.

The schedule does not depend on how fast the server answers: if one change is late, the lateness of
the next ones is measured, too. There is a thread per connection, and only the standard library is
used, so that the senders add as little as possible to the measurements.
"""

import concurrent.futures
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

ATTEMPTS, BUSY = 30, {429, 500, 503, 504}


class Sender:
    """Sends merge patches to one server."""

    def __init__(
        self, server: str, headers: dict[str, str], context: ssl.SSLContext, *, connections: int
    ) -> None:
        self._address, self._context = urllib.parse.urlsplit(server), context
        self._headers = [f'{name}: {value}' for name, value in headers.items()]
        self._connections = connections

    def send(
        self, urls: Iterable[str], make: Callable[[float], Any], *, rate: float
    ) -> list[float]:
        """
        Patch the objects on schedule, with bodies made from the due times.

        Returns the seconds of each request.
        """
        since = time.time()
        places = ((since + number / rate, url) for number, url in enumerate(urls))
        lock = threading.Lock()

        def work() -> list[float]:
            taken = []
            with contextlib.closing(self._connect()) as connection:
                while True:
                    with lock:
                        place = next(places, None)
                    if place is None:
                        return taken
                    due, url = place
                    if due > time.time():
                        time.sleep(due - time.time())
                        due = time.time()  # sleeping itself is late
                    taken.append(self._patch(connection, url, json.dumps(make(due)).encode()))

        with concurrent.futures.ThreadPoolExecutor(self._connections) as pool:
            tasks = [pool.submit(work) for _ in range(self._connections)]
            return [one for task in tasks for one in task.result()]

    def _connect(self) -> ssl.SSLSocket:
        host, port = self._address.hostname or '', self._address.port or 443
        connection = socket.create_connection((host, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._context.wrap_socket(connection, server_hostname=host)

    def _patch(self, connection: ssl.SSLSocket, url: str, body: bytes) -> float:
        lines = [
            f'PATCH {url} HTTP/1.1',
            f'Host: {self._address.netloc}',
            f'Content-Length: {len(body)}',
            'Content-Type: application/merge-patch+json',
            *self._headers,
            '',
            '',
        ]
        request = '\r\n'.join(lines).encode() + body
        for _ in range(ATTEMPTS):
            since = time.time()
            connection.sendall(request)
            response = http.client.HTTPResponse(connection, method='PATCH')
            response.begin()
            text = response.read()
            if response.status not in BUSY:
                break
            time.sleep(1)
        if response.status != 200:
            raise SystemExit(f'PATCH {url}: {response.status}: {text[:500]!r}')
        return time.time() - since
