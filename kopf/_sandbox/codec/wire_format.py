"""
The wire format: how protobuf lays out the fields of a message in bytes, regardless of their
meaning.

It only reads: bytes in, numbers and bytes out. The error messages are those of Kubernetes'
decoders.
"""

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
GROUP: Final = 3
GROUP_END: Final = 4
FIXED32: Final = 5

_WIDTHS: Final = {FIXED64: 8, FIXED32: 4}


class MalformedError(Exception):
    """The bytes are not the expected message."""


def read_fields(raw: bytes, name: str) -> Iterator[tuple[int, int, int | bytes]]:
    """
    Yield the fields of a message: their numbers, wire types and values. The name is for the errors.

    The values are bytes if they are delimited, else unsigned numbers. Groups, which are obsolete,
    are skipped.
    """
    position = 0
    while position < len(raw):
        tag, position = _read_varint(raw, position)
        number = convert_sign(tag >> 3, bits=32)
        wire = tag & 7
        if wire == GROUP_END:
            raise MalformedError(f'proto: {name}: wiretype end group for non-group')
        if number <= 0:
            raise MalformedError(f'proto: {name}: illegal tag {number} (wire type {tag})')
        if wire == GROUP:
            position = _skip_group(raw, position)
            continue
        value, position = _read_value(raw, position, wire)
        yield number, wire, value


def read_pair(raw: bytes, name: str) -> tuple[bytes, bytes]:
    """Read a message of two delimited fields, e.g. a map item. Absent fields are empty."""
    first = b''
    second = b''
    for number, wire, value in read_fields(raw, name):
        if number > 2:
            continue
        if not isinstance(value, bytes):
            raise MalformedError(f'proto: wrong wireType = {wire} for field {number} of {name}')
        first, second = (value, second) if number == 1 else (first, value)

    return first, second


def read_packed(raw: bytes, wire: int) -> Iterator[int]:
    """Yield the numbers of a list that is written as one delimited value."""
    position = 0
    while position < len(raw):
        number, position = _read_number(raw, position, wire)
        yield number


def convert_sign(number: int, *, bits: int) -> int:
    """Cut a number to the given bits, with the highest one as the sign."""
    number &= 2**bits - 1
    return number - 2**bits if number >> (bits - 1) else number


def _read_value(raw: bytes, position: int, wire: int) -> tuple[int | bytes, int]:
    if wire != DELIMITED:
        return _read_number(raw, position, wire)
    length, position = _read_varint(raw, position)
    if length >= 2**63:
        raise MalformedError('proto: negative length found during unmarshaling')
    if length > len(raw) - position:
        raise MalformedError('unexpected EOF')
    return raw[position : position + length], position + length


def _read_number(raw: bytes, position: int, wire: int) -> tuple[int, int]:
    if wire == VARINT:
        return _read_varint(raw, position)
    if wire not in _WIDTHS:
        raise MalformedError(f'proto: illegal wireType {wire}')
    end = position + _WIDTHS[wire]
    if end > len(raw):
        raise MalformedError('unexpected EOF')
    return int.from_bytes(raw[position:end], 'little'), end


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(raw):
            raise MalformedError('unexpected EOF')
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2**64 - 1), position

    raise MalformedError('proto: integer overflow')


def _skip_group(raw: bytes, position: int) -> int:
    """Return the position after a group, including nested groups."""
    depth = 1
    while depth:
        tag, position = _read_varint(raw, position)
        wire = tag & 7
        if wire == GROUP:
            depth += 1
        elif wire == GROUP_END:
            depth -= 1
        else:
            _, position = _read_value(raw, position, wire)

    return position
