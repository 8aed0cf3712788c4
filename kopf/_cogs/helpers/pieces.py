"""
Pieces: large JSON documents, read by small pieces, so that other threads get their turns in between.

The libraries that read JSON hold the interpreter for the whole document, also in a thread: hundreds of milliseconds for
a few megabytes. Here, the document is cut after its items, wherever they are; the containers that are open at the cut
are closed in the piece, and are continued by the next one. Every byte is read by the library once.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from kopf._cogs.helpers import jsons

PIECE_SIZE = 32 * 1024
"""The size of a piece, in bytes; it can be longer only because of a long string. It takes less than a millisecond."""

DEPTH_LIMIT = 10_000
"""How many containers can be one in another; the same as in Kubernetes."""

_UNCUT = 5 * DEPTH_LIMIT
"""
How many gaps between tokens in a row can have no commas: at most two at each level where containers open, one where
they close. What has more is not JSON, and there is no need to look through the rest of it.
"""

Buffer = Any  # anything with bytes in it: `bytes`, `mmap.mmap`

_ESCAPES = 50_000
"""How many escaped characters are looked at in a row; there can be millions of them in one string."""

_LEAF = rb'[\[{](?:[^\[\]{}"]++|"[^"\\]*+"){0,64}+([\]}])'  # a small container with no others in it
_STRING = (
    rb'"[^"\\]*+(?:\\.[^"\\]*+){0,%d}+(")?+' % _ESCAPES
)  # or only the beginning of it: then with no groups
_TOKENS = re.compile(_LEAF + b'|' + _STRING + rb'|([\[\]{}])', re.DOTALL)
_REST = re.compile(_STRING[1:], re.DOTALL)  # of a string
_OPENINGS, _CLOSINGS = b'[{', b']}'
_PAIRS = dict(zip(_CLOSINGS, _OPENINGS, strict=True))


@dataclasses.dataclass(slots=True)
class _Container:
    """A container that is open at the current position."""

    opening: int  # its first byte
    key: tuple[int, int] | None  # where its key is, if it is in an object
    value: Any = None  # what is read of it; nothing if it is in the current piece as a whole

    @property
    def closing(self) -> bytes:
        return b']' if self.opening == ord('[') else b'}'


def loads(buffer: Buffer) -> Any:
    """Read one JSON document; raise `JSONDecodeError`, which is a `ValueError`, if it is anything else."""
    return _Reader(buffer).read()


class _Reader:
    """
    The reading of one document. The containers in which there was a cut have values; the others are inside of them.

    The first piece begins with the document, each other one with what follows an item: a comma or the end.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._stack: list[_Container] = []
        self._known = 0  # how many containers of the stack have values
        self._since = 0  # where the current piece begins
        self._uncut = 0  # in how many places in a row it could not be cut, though it is long enough

    def read(self) -> Any:
        until = 0
        span: tuple[int, int] = (0, 0)
        for start, end in _iter_tokens(self._buffer):
            if start - self._since > PIECE_SIZE:
                self._cut_between(until, start)
            first = self._buffer[start]
            if end - start > 1:
                span = (start, end)
            elif first in _OPENINGS:
                self._open(first, span)
            else:
                root = self._close(first, start, end)
                if root is not None:
                    return root.value
            until = end
        if self._stack:
            _refuse('Unterminated document', len(self._buffer))
        return jsons.loads(self._buffer[:])  # a scalar, or one small container

    def _open(self, first: int, span: tuple[int, int]) -> None:
        is_valued = bool(self._stack) and self._stack[-1].opening == ord('{')
        self._stack.append(_Container(first, span if is_valued else None))
        if len(self._stack) > DEPTH_LIMIT:
            _refuse('Nested too deeply', 0)

    def _close(self, first: int, start: int, end: int) -> _Container | None:
        """Close the last container; return it if it is the whole document."""
        if not self._stack or self._stack[-1].opening != _PAIRS[first]:
            _refuse('Unexpected end of a list or an object', start)
        if self._known == len(self._stack):
            self._take(start)
            self._since = end
        closed = self._stack.pop()
        self._known = min(self._known, len(self._stack))
        if self._stack:
            return None
        if self._buffer[end:].strip(b' \t\r\n'):
            _refuse('Extra data', end)
        if closed.value is None:
            closed.value = jsons.loads(self._buffer[:end])
        return closed

    def _cut_between(self, since: int, until: int) -> None:
        """Cut the document at commas, in a part of it with no strings, lists and objects."""
        while until - self._since > PIECE_SIZE:
            position: int = self._buffer.find(b',', max(since, self._since + PIECE_SIZE), until)
            if position < 0:
                position = self._buffer.rfind(b',', max(since, self._since + 1), until)
            if position < 0:
                self._uncut += 1
                if self._uncut > _UNCUT:
                    _refuse('Expected a comma', until)
                return
            self._uncut = 0
            self._take(position)
            if not self._stack[-1].value:
                _refuse('Expected an item', position)
            self._since = position

    def _take(self, until: int) -> None:
        """Read the piece before this position, and let the containers that are open there have values."""
        if not self._stack:
            _refuse('Extra data', until)
        text = self._buffer[self._since : until]
        base = self._stack[max(0, self._known - 1)]
        if self._known:
            self._extend(base.value, base, text)
        else:
            base.value = jsons.loads(text + self._build_closings(0))
        for outer, inner in zip(
            self._stack[max(0, self._known - 1) :], self._stack[max(1, self._known) :], strict=False
        ):
            inner.value = outer.value[
                -1 if inner.key is None else jsons.loads(self._buffer[slice(*inner.key)])
            ]
        self._known = len(self._stack)

    def _extend(self, value: Any, base: _Container, text: bytes) -> None:
        text = text.lstrip(b' \t\r\n')
        if not text:
            return
        items = text[1:]
        if text[:1] != b',' or not items.strip(b' \t\r\n'):
            _refuse('Expected an item', self._since)
        read = jsons.loads(bytes([base.opening]) + items + self._build_closings(self._known - 1))
        if isinstance(value, list):
            value.extend(read)
        else:
            value.update(read)

    def _build_closings(self, since: int) -> bytes:
        return b''.join(container.closing for container in reversed(self._stack[since:]))


def _iter_tokens(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Iterate over the positions of strings, of small containers, and of the beginnings and ends of the others."""
    position: int | None = 0
    while position is not None:
        tokens = _TOKENS.finditer(buffer, position)
        position = None
        for token in tokens:
            start, end = token.span()
            if token.lastindex is None:
                position = end = _find_end(buffer, end)
            yield start, end
            if position is not None:
                break


def _find_end(buffer: Buffer, position: int) -> int:
    """Find the end of a string that has too many escapes to be looked at at once."""
    while True:
        rest = _REST.match(buffer, position)
        if rest is None or rest.end() == position:
            _refuse('Unterminated string', position)
        if rest.lastindex is not None:
            return rest.end()
        position = rest.end()


def _refuse(message: str, position: int) -> NoReturn:
    raise jsons.JSONDecodeError(message, doc='', pos=position)
