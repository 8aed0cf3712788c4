"""
Kubernetes: the functions that its API adds to CEL, and their types: quantities, versions, URLs,
addresses, formats.
"""

import dataclasses
import decimal
import functools
import ipaddress
import re
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

from kopf._sandbox.cel import functions, values
from kopf._sandbox.meta import naming, quantities
from kopf._sandbox.schema import formats

LIBRARY: Final = functions.Library()
_NO_CIDR: Final = 'network address parse error during conversion from string: '
_VERSION: Final = re.compile(
    r'(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)'
    r'(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?'
)
_LOOSE_VERSION: Final = re.compile(r'v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)')

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclasses.dataclass(frozen=True)
class Quantity:
    amount: decimal.Decimal


@dataclasses.dataclass(frozen=True)
class Url:
    parts: urllib.parse.SplitResult
    text: str


@dataclasses.dataclass(frozen=True)
class Ip:
    address: Address


@dataclasses.dataclass(frozen=True)
class Cidr:
    address: Address
    network: ipaddress.IPv4Network | ipaddress.IPv6Network


@functools.total_ordering
@dataclasses.dataclass(frozen=True)
class Semver:
    """A semantic version; the build metadata does not matter."""

    numbers: tuple[int, int, int]
    release: tuple[tuple[int, int, str], ...]  # the parts of the pre-release; the last if absent

    def __lt__(self, other: 'Semver') -> bool:
        return (self.numbers, self.release) < (other.numbers, other.release)


@dataclasses.dataclass(frozen=True)
class Format:
    name: str


values.CLASSES.update(
    {Quantity: 'Quantity', Url: 'URL', Ip: 'IP', Cidr: 'CIDR', Semver: 'Semver', Format: 'Format'}
)


def _parse_quantity(text: str) -> Quantity:
    try:
        return Quantity(quantities.parse_quantity(text))
    except quantities.QuantityError as error:
        raise values.EvaluationError(str(error)) from None


def _is(parse: Callable[..., Any], *arguments: Any) -> bool:
    try:
        parse(*arguments)
    except values.EvaluationError:
        return False
    return True


def _is_integer(value: Quantity) -> bool:
    is_whole = value.amount == value.amount.to_integral_value()
    return is_whole and values.MIN_INT <= value.amount <= values.MAX_INT


def _to_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise values.EvaluationError('cannot convert value to integer')
    return int(value.amount)


def _operand(value: Quantity | int) -> decimal.Decimal:
    return value.amount if isinstance(value, Quantity) else decimal.Decimal(value)


def _parse_url(text: str) -> Url:
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:
        raise values.EvaluationError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for '
            'request'
        ) from None

    is_absolute = bool(parts.scheme) or text.startswith('/')
    if not is_absolute or ' ' in text:
        raise values.EvaluationError(
            f'URL parse error during conversion from string: parse "{text}": '
            'invalid URI for request'
        )
    return Url(parts, text)


def _get_host(url: Url) -> str:
    return url.parts.netloc.rpartition('@')[2]


def _get_hostname(url: Url) -> str:
    host = _get_host(url)
    return host[1 : host.index(']')] if host.startswith('[') else host.partition(':')[0]


def _get_query(url: Url) -> dict[str, list[str]]:
    return urllib.parse.parse_qs(url.parts.query, keep_blank_values=True)


def _parse_ip(text: str) -> Ip:
    try:
        address = ipaddress.ip_address(text)
        if '%' in text or (address.version == 6 and _is_mapped(address)):
            raise ValueError('with a zone, or mapped')
    except ValueError:
        raise values.EvaluationError(
            f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): '
            'unable to parse IP'
        ) from None

    return Ip(address)


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _parse_cidr(text: str) -> Cidr:
    address, slash, length = text.partition('/')
    try:
        if not slash or not length.isdigit():
            raise ValueError('no prefix')
        found = _parse_ip(address).address
        network = ipaddress.ip_network(text, strict=False)
    except (ValueError, values.EvaluationError):
        raise values.EvaluationError(
            f'{_NO_CIDR}{_NO_CIDR}netip.ParsePrefix("{text}"): no \'/\''
            if not slash
            else f'{_NO_CIDR}{_NO_CIDR}'
            f'netip.ParsePrefix("{text}"): bad bits after slash: "{length}"'
        ) from None

    return Cidr(found, network)


def _contains_address(cidr: Cidr, ip: Ip) -> bool:
    return ip.address.version == cidr.network.version and ip.address in cidr.network


def _contains_network(cidr: Cidr, other: Cidr) -> bool:
    longer = cidr.network.prefixlen <= other.network.prefixlen
    return longer and _contains_address(cidr, Ip(other.address))


def _is_canonical(text: str) -> bool:
    return str(_parse_ip(text).address) == text


def _parse_semver(text: str, normalize: bool = False) -> Semver:
    match = _VERSION.fullmatch(_normalize(text) if normalize else text)
    if match is None:
        raise values.EvaluationError(_explain_version(text))

    numbers = int(match[1]), int(match[2]), int(match[3])
    parts = tuple(
        (0, int(part), '') if part.isdigit() else (1, 0, part)
        for part in (match[4] or '').split('.')
        if part
    )
    return Semver(numbers, parts or ((2, 0, ''),))


def _explain_version(text: str) -> str:
    if not text:
        return 'Version string empty'
    if text.count('.') < 2:
        return 'No Major.Minor.Patch elements found'
    return f'Invalid character(s) found in major number "{text.partition(".")[0]}"'


def _normalize(text: str) -> str:
    match = _LOOSE_VERSION.fullmatch(text.strip())
    if match is None:
        return text
    numbers = '.'.join(str(int(number or 0)) for number in match.groups()[:3])
    return numbers + match[4]


_FORMATS: Final[dict[str, Callable[[str], list[str]]]] = {
    'dns1123Label': naming.check_label,
    'dns1123Subdomain': naming.check_subdomain,
    'dns1035Label': naming.check_old_label,
    'qualifiedName': naming.check_key,
    'labelValue': naming.check_label_value,
}
_SCHEMA_FORMATS: Final = ('uri', 'uuid', 'byte', 'date', 'datetime')


def _validate_format(kind: Format, text: str) -> values.Optional:
    if kind.name in _FORMATS:
        problems = _FORMATS[kind.name](text)
    else:
        check = formats.find_check({'datetime': 'date-time'}.get(kind.name, kind.name))
        problems = [] if check is None or check(text) else [f'invalid {kind.name}']
    return values.Optional(problems, True) if problems else values.NONE


def _add_quantities() -> None:
    method = LIBRARY.method
    LIBRARY.function('quantity', 'string -> Quantity', _parse_quantity)
    LIBRARY.function('isQuantity', 'string -> bool', functools.partial(_is, _parse_quantity))
    method('isInteger', 'Quantity -> bool', _is_integer)
    method('asInteger', 'Quantity -> int', _to_integer)
    method('asApproximateFloat', 'Quantity -> double', lambda a: float(a.amount))
    method('sign', 'Quantity -> int', lambda a: int(a.amount.compare(0)))

    for other in ('Quantity', 'int'):
        method(
            'add', f'Quantity, {other} -> Quantity', lambda a, b: Quantity(a.amount + _operand(b))
        )
        method(
            'sub', f'Quantity, {other} -> Quantity', lambda a, b: Quantity(a.amount - _operand(b))
        )

    method('isGreaterThan', 'Quantity, Quantity -> bool', lambda a, b: a.amount > b.amount)
    method('isLessThan', 'Quantity, Quantity -> bool', lambda a, b: a.amount < b.amount)
    method('compareTo', 'Quantity, Quantity -> int', lambda a, b: int(a.amount.compare(b.amount)))


def _add_urls() -> None:
    method = LIBRARY.method
    LIBRARY.function('url', 'string -> URL', _parse_url)
    LIBRARY.function('isURL', 'string -> bool', functools.partial(_is, _parse_url))
    method('getScheme', 'URL -> string', lambda url: url.parts.scheme)
    method('getHost', 'URL -> string', _get_host)
    method('getHostname', 'URL -> string', _get_hostname)
    method('getPort', 'URL -> string', lambda url: str(url.parts.port or ''))
    method('getEscapedPath', 'URL -> string', lambda url: url.parts.path)
    method('getQuery', 'URL -> map(string, list(string))', _get_query)


def _add_addresses() -> None:
    method = LIBRARY.method
    LIBRARY.function('ip', 'string -> IP', _parse_ip)
    LIBRARY.function('isIP', 'string -> bool', functools.partial(_is, _parse_ip))
    LIBRARY.function('ip.isCanonical', 'string -> bool', _is_canonical)
    LIBRARY.function('string', 'IP -> string', lambda ip: str(ip.address))
    method('family', 'IP -> int', lambda ip: ip.address.version)
    method('isUnspecified', 'IP -> bool', lambda ip: ip.address.is_unspecified)
    method('isLoopback', 'IP -> bool', lambda ip: ip.address.is_loopback)
    method('isLinkLocalUnicast', 'IP -> bool', lambda ip: ip.address.is_link_local)
    method(
        'isLinkLocalMulticast',
        'IP -> bool',
        lambda ip: str(ip.address).lower().startswith(('224.0.0.', 'ff02:')),
    )
    method(
        'isGlobalUnicast',
        'IP -> bool',
        lambda ip: (
            not (
                ip.address.is_multicast
                or ip.address.is_loopback
                or ip.address.is_link_local
                or ip.address.is_unspecified
                or str(ip.address) == '255.255.255.255'
            )
        ),
    )
    LIBRARY.function('cidr', 'string -> CIDR', _parse_cidr)
    LIBRARY.function('isCIDR', 'string -> bool', functools.partial(_is, _parse_cidr))
    LIBRARY.function(
        'string', 'CIDR -> string', lambda cidr: f'{cidr.address}/{cidr.network.prefixlen}'
    )
    method('containsIP', 'CIDR, IP -> bool', _contains_address)
    method('containsIP', 'CIDR, string -> bool', lambda a, b: _contains_address(a, _parse_ip(b)))
    method('containsCIDR', 'CIDR, CIDR -> bool', _contains_network)
    method(
        'containsCIDR', 'CIDR, string -> bool', lambda a, b: _contains_network(a, _parse_cidr(b))
    )
    method('ip', 'CIDR -> IP', lambda cidr: Ip(cidr.address))
    method('prefixLength', 'CIDR -> int', lambda cidr: cidr.network.prefixlen)
    method('masked', 'CIDR -> CIDR', lambda cidr: Cidr(cidr.network.network_address, cidr.network))


def _add_versions() -> None:
    method = LIBRARY.method
    LIBRARY.function('semver', 'string -> Semver', _parse_semver)
    LIBRARY.function('semver', 'string, bool -> Semver', _parse_semver)
    check = functools.partial(_is, _parse_semver)
    LIBRARY.function('isSemver', 'string -> bool', check)
    LIBRARY.function('isSemver', 'string, bool -> bool', check)
    for index, name in enumerate(('major', 'minor', 'patch')):
        method(name, 'Semver -> int', lambda version, index=index: version.numbers[index])
    method('isGreaterThan', 'Semver, Semver -> bool', lambda a, b: a > b)
    method('isLessThan', 'Semver, Semver -> bool', lambda a, b: a < b)
    method('compareTo', 'Semver, Semver -> int', lambda a, b: (a > b) - (a < b))


def _add_formats() -> None:
    for name in (*_FORMATS, *_SCHEMA_FORMATS):
        LIBRARY.function(f'format.{name}', '-> Format', functools.partial(Format, name))
    LIBRARY.function('format.named', 'string -> optional(Format)', _find_format)
    LIBRARY.method('validate', 'Format, string -> optional(list(string))', _validate_format)


def _find_format(name: str) -> values.Optional:
    is_known = name in _FORMATS or name in _SCHEMA_FORMATS
    return values.Optional(Format(name), True) if is_known else values.NONE


_add_quantities()
_add_urls()
_add_addresses()
_add_versions()
_add_formats()
