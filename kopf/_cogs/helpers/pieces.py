"""
Pieces: large JSON documents, read in small pieces to let other threads run in between.

JSON parsers hold the interpreter for the whole document, even in a thread: hundreds of milliseconds
for a few megabytes. Here, the document is cut at its commas at any level; the containers that are
open at the cut are closed in the piece, and are continued by the next one. Every byte is parsed by
the library once.

No step takes longer than a piece does, except for long strings, which are copied as a whole. Later
steps may take longer: freeing the value, and scanning it for garbage, are not interruptible.
Therefore, the number of containers in the document is limited.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from kopf._cogs.helpers import jsons

PIECE_SIZE = 32 * 1024
"""The size of a piece, in bytes, but for long strings. It takes less than a millisecond."""

DEPTH_LIMIT = 10_000
"""How deep containers can be nested; the same as in Kubernetes."""

CONTAINERS_LIMIT = 250_000
"""
How many lists and objects there can be: it takes 20 milliseconds to free that many. Usual objects
have one per 50 bytes or more, so the two largest objects that fit in one review have half as many.
"""

UNCUT_LIMIT = 256 * 1024
"""
How many bytes in a row can have no commas, except in a string: real documents do not have as many
brackets, spaces or digits.
"""

Buffer = Any  # an object with bytes in it: `bytes`, `mmap.mmap`

_SPACES = b' \t\r\n'
_BRACKETS = re.compile(rb'[\[\]{}]')
_COMMA = ord(',')
_CLOSINGS = {ord('['): b']', ord('{'): b'}'}


class TooManyContainersError(jsons.JSONDecodeError):
    """The document can be JSON, but there are too many lists and objects in it."""


@dataclasses.dataclass(slots=True)
class _Container:
    """A container that is open at the current position."""

    start: int  # its position in the document
    closing: bytes  # the closing bracket
    # The part that was read; none if the container is wholly in the current piece.
    value: Any = None


def loads(buffer: Buffer) -> Any:
    """
    Read one JSON document; raise `JSONDecodeError`, which is a `ValueError`, for anything else.

    Raises `TooManyContainersError`, which is a `JSONDecodeError`, for more containers than
    `CONTAINERS_LIMIT`.
    """
    return _Reader(buffer).read()


class _Reader:
    """
    The reader of one document.

    Containers that were cut have values; other open containers are inside of them. The first piece
    begins at the start of the document, each other one after an item: with a comma or the end.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._stack: list[_Container] = []
        self._known = 0  # how many containers of the stack have values
        self._since = 0  # the start of the current piece
        self._count = 0  # of all containers

    def read(self) -> Any:
        for position, mark in _iter_marks(self._buffer):
            if mark == _COMMA:
                self._cut(position)
            elif mark in _CLOSINGS:
                self._open(position, mark)
            else:
                root = self._close(position, mark)
                if root is not None:
                    return root.value

        if self._stack:
            _refuse('Unterminated document', len(self._buffer))
        return jsons.loads(self._buffer[:])  # a scalar

    def _open(self, position: int, mark: int) -> None:
        self._count += 1
        if self._count > CONTAINERS_LIMIT:
            raise TooManyContainersError('Too many lists and objects', doc='', pos=position)
        if len(self._stack) == DEPTH_LIMIT:
            _refuse('Nested too deeply', position)
        self._stack.append(_Container(position, _CLOSINGS[mark]))

    def _close(self, position: int, mark: int) -> _Container | None:
        """Close the last container; return it if it is the whole document."""
        if not self._stack or self._stack[-1].closing[0] != mark:
            _refuse('Unexpected end of a list or an object', position)
        if self._known == len(self._stack):
            self._take(position)
            self._since = position + 1

        closed = self._stack.pop()
        self._known = min(self._known, len(self._stack))
        return None if self._stack else self._finish(closed, position + 1)

    def _finish(self, root: _Container, end: int) -> _Container:
        if self._buffer[end:].strip(_SPACES):
            _refuse('Extra data', end)
        if root.value is None:
            root.value = jsons.loads(self._buffer[:end])
        return root

    def _cut(self, position: int) -> None:
        """Read everything before a comma."""
        if not self._stack:
            _refuse('Extra data', position)
        self._take(position)
        if not self._stack[-1].value:
            _refuse('Expected an item', position)
        self._since = position

    def _take(self, until: int) -> None:
        """Read the piece before this position; set the values of the open containers."""
        text = self._buffer[self._since : until]
        base = max(0, self._known - 1)
        if self._known:
            self._extend(self._stack[base], text)
        else:
            self._stack[0].value = jsons.loads(text + self._build_closings(0))

        for index in range(base + 1, len(self._stack)):
            outer = self._stack[index - 1]
            inner = self._stack[index]
            is_listed = isinstance(outer.value, list)
            inner.value = outer.value[-1 if is_listed else self._find_key(inner.start)]

        self._known = len(self._stack)

    def _extend(self, base: _Container, text: bytes) -> None:
        text = text.lstrip(_SPACES)
        if not text:
            return

        items = text[1:]
        if text[0] != _COMMA or not items.strip(_SPACES):
            _refuse('Expected an item', self._since)
        if isinstance(base.value, list):
            base.value.extend(jsons.loads(b'[' + items + self._build_closings(self._known - 1)))
        else:
            base.value.update(jsons.loads(b'{' + items + self._build_closings(self._known - 1)))

    def _build_closings(self, since: int) -> bytes:
        return b''.join(container.closing for container in reversed(self._stack[since:]))

    def _find_key(self, position: int) -> Any:
        """Read the key before this position; there must be one, as the piece is JSON."""
        end = start = self._buffer.rfind(b'"', 0, position)
        is_escaped = True
        while is_escaped:
            start = self._buffer.rfind(b'"', 0, start)
            slashes = start
            while self._buffer[slashes - 1] == ord('\\'):
                slashes -= 1
            is_escaped = (start - slashes) % 2 == 1

        return jsons.loads(self._buffer[start : end + 1])


def _iter_marks(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Yield all brackets, and some commas where the document can be cut, with their positions."""
    uncut = 0
    for position, outline in _iter_outlines(buffer):
        comma = outline.rfind(b',')
        for found in _BRACKETS.finditer(outline, 0, max(0, comma)):
            yield position + found.start(), outline[found.start()]
        if comma >= 0:
            yield position + comma, _COMMA
        for found in _BRACKETS.finditer(outline, max(0, comma)):
            yield position + found.start(), outline[found.start()]
        uncut = 0 if comma >= 0 else uncut + len(outline)
        if uncut > UNCUT_LIMIT:
            _refuse('Expected a comma', position)


def _iter_outlines(buffer: Buffer) -> Iterator[tuple[int, bytes]]:
    """Yield parts, with strings masked by dots, and their positions; skip parts of one string."""
    position = 0
    is_inside = False  # whether the part begins inside of a string
    while position < len(buffer):
        part = buffer[position : position + PIECE_SIZE]
        if (len(part) - len(part.rstrip(b'\\'))) % 2:  # an escape ends in the next part
            part += buffer[position + PIECE_SIZE : position + PIECE_SIZE + 1]
        texts = part.replace(b'\\\\', b'..').replace(b'\\"', b'..').split(b'"')
        if len(texts) > 1 or not is_inside:
            for index in range(0 if is_inside else 1, len(texts), 2):
                texts[index] = b'.' * len(texts[index])
            yield position, b'"'.join(texts)
        position += len(part)
        is_inside ^= len(texts) % 2 == 0


def _refuse(message: str, position: int) -> NoReturn:
    raise jsons.JSONDecodeError(message, doc='', pos=position)
