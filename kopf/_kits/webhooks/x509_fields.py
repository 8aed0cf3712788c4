"""
X.509 fields: what certificates say, parsed without libraries, as they are optional.

Only the small part of X.509 that the servers need is supported. Nothing is verified here.
"""

import dataclasses
import datetime
import functools
from collections.abc import Iterator

_SEQUENCE = 0x30
_OCTETS = 0x04
_UTC_TIME = 0x17
_TIME = 0x18
_VERSION = 0xA0
_TEXTS = frozenset({0x0C, 0x13, 0x16, 0x82})  # UTF-8, printable, IA5 (as ASCII), and DNS names
_CONSTRUCTED = 0x20


@dataclasses.dataclass(frozen=True)
class CertificateFields:
    """The fields of a certificate. None of them is secret."""

    names: frozenset[str]  # of the subject and the issuer: common names, organizations, DNS names
    since: datetime.datetime
    until: datetime.datetime
    is_self_signed: bool


@dataclasses.dataclass(frozen=True)
class _Element:
    """One value of DER: a primitive one, or a sequence of values."""

    tag: int
    content: bytes
    whole: bytes

    @functools.cached_property
    def elements(self) -> 'tuple[_Element, ...]':
        return tuple(_split(self.content))


def read_pem(pem: bytes) -> CertificateFields:
    """Read the first certificate in PEM, the holder's own. Raises `ValueError` if there is none."""
    import ssl

    begin = pem.find(b'-----BEGIN CERTIFICATE-----')
    end = pem.find(b'-----END CERTIFICATE-----')
    if not 0 <= begin < end:
        raise ValueError('There are no certificates in PEM.')
    return read_der(
        ssl.PEM_cert_to_DER_cert(pem[begin:end].decode('ascii') + '-----END CERTIFICATE-----')
    )


def read_der(der: bytes) -> CertificateFields:
    """Read a certificate. Raises `ValueError` if it is not a certificate."""
    try:
        fields = list(next(_split(der)).elements[0].elements)
        if fields[0].tag == _VERSION:
            del fields[0]
        _, _, issuer, validity, subject, *rest = fields
        since, until = (_parse_time(element) for element in validity.elements)
        names = frozenset(
            name for element in (issuer, subject, *rest) for name in _iter_texts(element)
        )
    except (IndexError, StopIteration, RecursionError) as error:
        raise ValueError('It is not a certificate.') from error

    return CertificateFields(names, since, until, is_self_signed=issuer.whole == subject.whole)


def _split(der: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(der):
        tag = der[position]
        size = der[position + 1]
        begin = position + 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(der[begin : begin + width], 'big')
            begin += width
        if begin + size > len(der):
            raise ValueError('It is not a certificate, or not the whole one.')
        yield _Element(tag, der[begin : begin + size], der[position : begin + size])
        position = begin + size


def _iter_texts(element: _Element) -> Iterator[str]:
    if element.tag in _TEXTS:
        yield element.content.decode('utf-8', 'replace')
    elif element.tag & _CONSTRUCTED:
        for inner in element.elements:
            yield from _iter_texts(inner)
    elif element.tag == _OCTETS and element.content[:1] == bytes([_SEQUENCE]):
        try:
            inner_texts = [text for inner in element.elements for text in _iter_texts(inner)]
        except (IndexError, ValueError):
            return  # not an extension after all: octets can contain anything
        yield from inner_texts


def _parse_time(element: _Element) -> datetime.datetime:
    text = element.content.decode('ascii')
    if element.tag == _UTC_TIME:  # years of two digits are 1950-2049
        text = ('19' if text[:2] >= '50' else '20') + text
    elif element.tag != _TIME:
        raise ValueError('It is not a certificate: it has no dates.')
    return datetime.datetime.strptime(text, '%Y%m%d%H%M%SZ').replace(tzinfo=datetime.UTC)
