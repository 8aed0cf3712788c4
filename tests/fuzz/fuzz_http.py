"""
HTTP: answers are read the same however they are cut, and the same as by another reader; or they are
refused.
"""

import asyncio
import datetime
import random
import re
import zlib
from collections.abc import Coroutine, Iterator
from typing import Any

import h11

from kopf._cogs.clients import errors
from kopf._cogs.clients.http import connections, http11

REFUSED = 'refused'
CUTTINGS = 3
BARE_BREAKS = re.compile(rb'(?<!\r)\n')  # some end the lines with them, we do not
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def check(source: bytes) -> None:
    whole = _read([source])
    chance = random.Random(zlib.crc32(source))
    for _ in range(CUTTINGS):
        pieces = list(_cut(source, chance))
        assert _read(pieces) == whole, 'the answer depends on how it is cut'
        _converse(pieces)
    if (
        whole != REFUSED
        and b'content-encoding' not in source.lower()
        and not BARE_BREAKS.search(source)
    ):
        other = _read_otherwise(source)
        assert other in (REFUSED, whole[:2]), f'other readers read it as {other}'


def _cut(source: bytes, chance: random.Random) -> Iterator[bytes]:
    while source:
        size = chance.choice([1, 2, 5, 100, len(source)])
        yield source[:size]
        source = source[size:]


def _read(pieces: list[bytes]) -> Any:
    """
    Read an answer of these pieces: the code, the body, and whether the connection is usable
    afterwards.
    """
    reader = http11.Reader()
    try:
        for piece in pieces:
            reader.feed(piece)
        is_reusable = reader.is_complete and reader.is_reusable
        reader.feed_end()
    except (http11.WireError, http11.CutError):
        return REFUSED
    assert reader.is_complete
    assert all(isinstance(value, str) for value in reader.headers.values())
    body = reader.take()
    errors.parse_answer(reader.code, reader.headers, body, now=NOW)
    return reader.code, body, is_reusable


def _read_otherwise(source: bytes) -> Any:
    """Read it with a library that refuses more than we do."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method='GET', target='/', headers=[('Host', 'x')]))
    peer.send(h11.EndOfMessage())
    code, body = 0, b''
    try:
        peer.receive_data(source)
        event = peer.next_event()
        if event is h11.NEED_DATA:
            peer.receive_data(b'')
            event = peer.next_event()
        while not isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                code = event.status_code
            if isinstance(event, h11.Data):
                body += bytes(event.data)
            if event in (h11.NEED_DATA, h11.PAUSED):
                peer.receive_data(b'')
            event = peer.next_event()
    except h11.RemoteProtocolError:
        return REFUSED
    return (code, body) if isinstance(event, h11.EndOfMessage) else REFUSED


class _Transport(asyncio.Transport):
    """Sends nothing anywhere, and remembers only if it is closed."""

    is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _converse(pieces: list[bytes]) -> None:
    """
    Give the pieces to a connection that waits for a stream; whatever comes, the one who waits gets
    to know.
    """
    loop = _Loop()
    connection = connections.Connection(loop)  # type: ignore[arg-type]
    connection.connection_made(_Transport())
    reading = _step(_read_stream(connection), None)
    for piece in pieces:
        connection.data_received(piece)
        reading = _step(reading, loop.waiter)
    connection.eof_received()
    reading = _step(reading, loop.waiter)
    assert reading is None, 'somebody waits for ever'


async def _read_stream(connection: connections.Connection) -> None:
    try:
        await connection.ask_for_stream(b'', None)
        while await connection.read(None):
            pass
    except (connections.LostError, http11.WireError, http11.CutError):
        pass


class _Waiter:
    """A future for one who is woken up by hand."""

    def __init__(self) -> None:
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, _: None) -> None:
        self.is_done = True

    def __await__(self) -> Iterator[None]:
        while not self.is_done:
            yield


class _Loop:
    """A loop that never runs."""

    waiter: _Waiter | None = None

    def create_future(self) -> _Waiter:
        self.waiter = _Waiter()
        return self.waiter

    def time(self) -> float:
        return 0.0


def _step(
    coroutine: Coroutine[Any, Any, None] | None, waiter: _Waiter | None
) -> Coroutine[Any, Any, None] | None:
    """Let it go on if it can; nothing is left of it when it ends."""
    if coroutine is None or (waiter is not None and not waiter.is_done):
        return coroutine
    try:
        coroutine.send(None)
    except StopIteration:
        return None
    return coroutine
