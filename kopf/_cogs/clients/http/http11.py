"""
HTTP/1.1: how requests are written, and responses are read, in arbitrary chunks of bytes.

Only bytes in, bytes out: their transport is up to the connections.
"""

import re
import zlib
from collections.abc import Mapping

HEAD_LIMIT = 64 * 1024
"""The limit of the status line with all headers, in bytes, and of any other line."""

BODY_LIMIT = 1024**3
"""
Bytes of a body that are received but not taken yet, decompressed: a few kilobytes can expand to
gigabytes. A page with 500 objects of the biggest size is smaller. Streams are taken as they come,
so they are not limited in total.
"""

_VERSION = b'HTTP/1.'
_SIZE = re.compile(rb'\s*([0-9A-Fa-f]+)\s*(?:;|$)')
_LENGTH = re.compile('[0-9]{1,18}')
_BODILESS = frozenset({204, 304})


class WireError(Exception):
    """These bytes are not an HTTP/1.1 response."""


class CutError(Exception):
    """The response was truncated."""


def write_request(method: str, target: str, headers: str, body: bytes | None) -> bytes:
    """Write a request with headers from `write_headers`; the length of the body is added."""
    is_told = body is not None or method != 'GET'
    length = f'Content-Length: {len(body or b"")}\r\n' if is_told else ''
    head = f'{method} {target} HTTP/1.1\r\n{headers}{length}\r\n'.encode('latin-1')
    return head + body if body else head


def write_headers(headers: Mapping[str, str]) -> str:
    """Write some headers, to be concatenated with others. They must be clean: see `is_clean`."""
    return ''.join([f'{name}: {value}\r\n' for name, value in headers.items()])


def is_clean(value: str) -> bool:
    """Return whether the text can be a header: it has no line breaks or unencodable characters."""
    return value.isprintable() and all(ord(symbol) < 256 for symbol in value)


class Reader:
    """
    One response, parsed from the bytes as they come: first its head, then pieces of its body, then
    its end.

    Raises `WireError` or `CutError`; after that, it must not be used.
    """

    __slots__ = (
        '_expects_break',
        '_head',
        '_inflate',
        '_is_chunked',
        '_is_in_trailers',
        '_left',
        '_pieces',
        '_rest',
        'code',
        'has_head',
        'is_begun',
        'is_complete',
        'is_reusable',
        'size',
    )

    def __init__(self) -> None:
        self.code = 0
        self.is_begun = False  # whether any bytes have come
        self.has_head = False
        self.is_complete = False
        # Whether the connection can be used for the next request; only for complete responses.
        self.is_reusable = False
        self.size = 0  # how many bytes can be taken
        self._head = ''
        self._pieces: list[bytes] = []
        self._rest = b''  # the incomplete rest, to be parsed with the next bytes
        self._is_chunked = self._is_in_trailers = self._expects_break = False
        # Bytes until the end of the body or of the chunk; None if it ends with the connection.
        self._left: int | None = 0
        self._inflate: zlib._Decompress | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers; their names are capitalized as in "Retry-After"."""
        return _parse_headers(self._head)

    def feed(self, data: bytes) -> None:
        """Parse more bytes."""
        self.is_begun = True
        if self._rest:
            data, self._rest = self._rest + data, b''
        if not self.has_head:
            position = self._read_head(data)
            if not self.has_head:
                return
            data = data[position:]
        if self.is_complete:
            self.is_reusable = self.is_reusable and not data
        elif self._is_chunked:
            self._read_chunks(data)
        elif data:
            self._read_plainly(data)

    def feed_end(self) -> None:
        """Note that there will be no more bytes."""
        if self.has_head and self._left is None:
            self._complete()
            self.is_reusable = False
        if not self.is_complete:
            raise CutError(
                'the connection was closed in the middle of the answer'
                if self.is_begun
                else 'the connection was closed without an answer'
            )

    def take(self) -> bytes:
        """Take the part of the body that has come since the last call."""
        pieces, self._pieces, self.size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b''.join(pieces)

    def _read_head(self, data: bytes) -> int:
        """Parse the head if it is complete; return where the body begins."""
        if not data.startswith(_VERSION) and not _VERSION.startswith(data):
            raise WireError('it is not HTTP')
        position = 0
        while (end := data.find(b'\r\n\r\n', position)) >= 0:
            self._head = data[position:end].decode('latin-1')
            self.code = _parse_status(self._head)
            position = end + 4
            if self.code >= 200 or self.code == 101:
                self.has_head = True
                self._prepare()
                return position
        self._rest = data[position:]
        if len(self._rest) > HEAD_LIMIT:
            raise WireError('the headers are too long')
        return position

    def _prepare(self) -> None:
        """Choose how to read the body."""
        head = self._head.lower()
        self.is_reusable = head.startswith('http/1.1') and not _is_last(_find(head, 'connection'))
        if _find(head, 'content-encoding') in ('gzip', 'x-gzip', 'deflate'):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        encoding, length = _find(head, 'transfer-encoding'), _find(head, 'content-length')
        if self.code in _BODILESS:
            self.is_complete = True
        elif encoding is not None:
            if encoding != 'chunked':
                raise WireError(f'the transfer encoding is not known: {encoding!r}')
            self._is_chunked = True
        elif length is not None:
            if not _LENGTH.fullmatch(length) or head.count('\r\ncontent-length:') > 1:
                raise WireError(f'the length is not a number, or not the only one: {length[:20]!r}')
            self._left = int(length)
            self.is_complete = not self._left
        else:
            self._left, self.is_reusable = None, False

    def _read_plainly(self, data: bytes) -> None:
        if self._left is not None:
            if len(data) > self._left:
                data, self.is_reusable = data[: self._left], False
            self._left -= len(data)
        self._add(data)
        if self._left == 0:
            self._complete()

    def _read_chunks(self, data: bytes) -> None:
        position, total = 0, len(data)
        while position < total and not self.is_complete:
            if self._left:
                piece = data[position : position + self._left]
                self._add(piece)
                position += len(piece)
                self._left -= len(piece)
                self._expects_break = not self._left
            else:
                end = data.find(b'\r\n', position)
                if end < 0:
                    break
                self._read_line(data[position:end])
                position = end + 2
        if self.is_complete:
            self.is_reusable = self.is_reusable and position == total
        elif position < total:
            self._rest = data[position:]
            if len(self._rest) > HEAD_LIMIT:
                raise WireError('a line of the chunked body is too long')

    def _read_line(self, line: bytes) -> None:
        """Parse a line between the chunks, or after the last of them."""
        if self._is_in_trailers:
            if not line:
                self._complete()
        elif self._expects_break:
            if line:
                raise WireError('a chunk is longer than it says')
            self._expects_break = False
        else:
            size = _SIZE.match(line)
            if size is None:
                raise WireError(
                    f'the size of a chunk is not a number: {line[:20].decode("latin-1")!r}'
                )
            self._left = int(size[1], 16)
            self._is_in_trailers = not self._left

    def _add(self, piece: bytes) -> None:
        if self._inflate is not None:
            try:
                piece = self._decompress(piece)
            except zlib.error as error:
                raise WireError(f'the body cannot be decompressed: {error}') from error
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)
        if self.size > BODY_LIMIT:
            raise WireError(f'the body is larger than {BODY_LIMIT} bytes')

    def _decompress(self, piece: bytes) -> bytes:
        """Decompress the next piece, up to the limit; it can have several compressed parts."""
        found = b''
        while piece and self.size + len(found) <= BODY_LIMIT:
            if self._inflate is None or self._inflate.eof:
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            found += self._inflate.decompress(piece, BODY_LIMIT + 1 - self.size - len(found))
            piece = self._inflate.unused_data
        return found

    def _complete(self) -> None:
        if self._inflate is not None and not self._inflate.eof:
            raise WireError('the compressed body is cut')
        self.is_complete = True


def _is_last(connection: str | None) -> bool:
    """Return whether the header announces the closing of the connection after this response."""
    return connection is not None and 'close' in (word.strip() for word in connection.split(','))


def _parse_status(head: str) -> int:
    status = head.partition('\r\n')[0]
    version, _, rest = status.partition(' ')
    code = rest[:3]
    is_code = len(code) == 3 and code.isdecimal() and rest[3:4] in ('', ' ')
    if len(version) != 8 or not version.startswith('HTTP/1.') or not is_code:
        raise WireError(f'the status line is wrong: {status[:50]!r}')
    return int(code)


def _find(head: str, name: str) -> str | None:
    """Find one header without parsing the others: few of them matter, and rarely all of them."""
    start = head.find(f'\r\n{name}:')
    if start < 0:
        return None
    end = head.find('\r\n', start + 2)
    return head[start + len(name) + 3 : len(head) if end < 0 else end].strip()


def _parse_headers(head: str) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for line in head.split('\r\n')[1:]:
        name, _, value = line.partition(':')
        name, value = name.title(), value.strip()
        headers[name] = f'{headers[name]}, {value}' if name in headers else value
    return headers
