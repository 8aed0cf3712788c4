"""
Formats: the formats of strings in schemas (``date-time``, ``ipv4``, …), as far as the API checks
them.

Other formats are only hints and are not checked. Dashes in the names of formats are ignored.
"""

import datetime
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

Check = Callable[[str], bool]

_WORD: Final = r"[\w!#$%&'*+/=?^`{|}~-]+"
_ADDRESS: Final = (
    rf'(?:{_WORD}(?:\.{_WORD})*|"(?:[^"\\]|\\.)*")@(?:{_WORD}(?:\.{_WORD})*|\[[^\]]*\])'
)
_UUID: Final = r'(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{}-?{}-?[0-9a-f]{{12}}'
_ANY_QUAD = '[0-9a-f]{4}'
_VARIANT_QUAD = '[89ab][0-9a-f]{3}'
_SHORT_NAME: Final = '[a-z0-9]([-a-z0-9]*[a-z0-9])?'
_COLOR: Final = r'\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*'
_BASE64: Final = r'([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})'
_CARD: Final = (
    r'4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|'
    r'3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}'
)

_date_regex = re.compile(r'\d{4}-\d{2}-\d{2}', re.ASCII)
_time_regex = re.compile(r'(\d{2}):(\d{2}):(\d{2})(.\d+)?(z|[+-]\d{2}:\d{2})', re.ASCII)
_duration_regex = re.compile(r'[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)', re.ASCII)
# One digit is enough, and faster to find than the whole number.
_long_duration_regex = re.compile(r'\d\s*([A-Za-zµ]+)', re.ASCII)
_octet_regex = re.compile('0*[0-9]{1,3}')
_email_regex = re.compile(rf'{_ADDRESS}|[^<>@]*<{_ADDRESS}>')
_scheme_regex = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*:')
_host_regex = re.compile(
    r"([^/@]*@)?(\[[0-9A-Fa-f:.]+(%25[^\]]+)?\]|([\w.~!$&'()*+,;=-]|[^\x00-\x7f]|%[0-9A-Fa-f]{2})*)(:\d*)?"
)
_hostname_regex = re.compile(
    r'[a-zA-Z0-9](-?[a-zA-Z0-9]{0,62})?|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,63}'
)
_mac_regex = re.compile(
    '|'.join(
        rf'[0-9A-Fa-f]{{2}}({sign}[0-9A-Fa-f]{{2}}){{{size - 1}}}'
        for sign in ':-'
        for size in (6, 8, 20)
    )
    + '|'
    + '|'.join(rf'[0-9A-Fa-f]{{4}}(\.[0-9A-Fa-f]{{4}}){{{size - 1}}}' for size in (3, 4, 10))
)
_card_regex = re.compile(_CARD, re.ASCII)

_UNITS: Final = (
    ('ns', 'nano'),
    ('us', 'µs', 'micro'),
    ('ms', 'milli'),
    ('s', 'sec'),
    ('m', 'min'),
    ('h', 'hr', 'hour'),
    ('d', 'day'),
    ('w', 'wk', 'week'),
)


def find_check(name: str) -> Check | None:
    """Return the check of a format; ``None`` if the API does not check it."""
    return _CHECKS.get(name.replace('-', ''))


def _matching(pattern: str, limit: int | None = None) -> Check:
    regex = re.compile(pattern, re.ASCII)
    return lambda value: (
        regex.fullmatch(value) is not None and (limit is None or len(value) <= limit)
    )


def _is_date(value: str) -> bool:
    if _date_regex.fullmatch(value) is None:
        return False
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_date_time(value: str) -> bool:
    date, *times = value.lower().split('t')
    match = _time_regex.fullmatch(times[0]) if times and _is_date(date) else None
    return match is not None and match[1] <= '23' and match[2] <= '59' and match[3] <= '59'


def _is_duration(value: str) -> bool:
    if _duration_regex.fullmatch(value):
        return True
    found = [unit.lower() for unit in _long_duration_regex.findall(value)]
    return any(unit in units or unit.startswith(units[-1]) for unit in found for units in _UNITS)


def _is_email(value: str) -> bool:
    return _email_regex.fullmatch(value) is not None


def _is_uri(value: str) -> bool:
    if not value or any(char < ' ' or char == '\x7f' for char in value):
        return False

    scheme = _scheme_regex.match(value)
    rest = value[scheme.end() :] if scheme else value
    if not rest.startswith('/'):
        return scheme is not None and bool(rest)

    if scheme and rest.startswith('//'):
        host, *others = re.split('(?=[/?])', rest[2:], maxsplit=1)
        rest = ''.join(others)
        if _host_regex.fullmatch(host) is None:
            return False

    return re.search(r'%(?![0-9A-Fa-f]{2})', rest.partition('?')[0]) is None


def _is_hostname(value: str) -> bool:
    plain = ''.join({'S': '0', 'L': 'a'}.get(unicodedata.category(char)[0], char) for char in value)
    return (
        _hostname_regex.fullmatch(plain) is not None
        and len(value.encode('utf-8', 'replace')) <= 255
        and all(len(part.encode('utf-8', 'replace')) <= 63 for part in value.split('.'))
    )


def _is_plain_ipv4(value: str) -> bool:
    parts = value.split('.')
    return len(parts) == 4 and all(
        _octet_regex.fullmatch(part) and int(part[-3:]) <= 255 for part in parts
    )


def _is_plain_ipv6(value: str) -> bool:
    try:
        ipaddress.IPv6Address(value)
    except ValueError:
        return False
    return '%' not in value


def _is_ipv4(value: str) -> bool:
    return '.' in value and (_is_plain_ipv6(value) if ':' in value else _is_plain_ipv4(value))


def _is_ipv6(value: str) -> bool:
    return ':' in value and _is_plain_ipv6(value)


def _is_cidr(value: str) -> bool:
    address, slash, size = value.partition('/')
    if not slash or _octet_regex.fullmatch(size) is None:
        return False
    return (
        int(size[-3:]) <= 32
        if _is_plain_ipv4(address)
        else _is_plain_ipv6(address) and int(size[-3:]) <= 128
    )


def _is_mac(value: str) -> bool:
    return _mac_regex.fullmatch(value) is not None


def _is_isbn10(value: str) -> bool:
    digits = re.sub(r'[\s-]+', '', value)
    if re.fullmatch('[0-9]{9}[0-9X]', digits) is None:
        return False
    return (
        sum(place * (10 if digit == 'X' else int(digit)) for place, digit in enumerate(digits, 1))
        % 11
        == 0
    )


def _is_isbn13(value: str) -> bool:
    digits = re.sub(r'[\s-]+', '', value)
    if re.fullmatch('[0-9]{13}', digits) is None:
        return False
    return sum((1, 3)[place % 2] * int(digit) for place, digit in enumerate(digits)) % 10 == 0


def _is_isbn(value: str) -> bool:
    return _is_isbn10(value) or _is_isbn13(value)


def _is_card(value: str) -> bool:
    digits = re.sub('[^0-9]+', '', value)
    if _card_regex.fullmatch(digits) is None:
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _is_anything(value: str) -> bool:
    return True


_CHECKS: Final[Mapping[str, Check]] = {
    'bsonobjectid': _matching('[0-9a-fA-F]{24}'),
    'uri': _is_uri,
    'email': _is_email,
    'hostname': _is_hostname,
    'ipv4': _is_ipv4,
    'ipv6': _is_ipv6,
    'cidr': _is_cidr,
    'mac': _is_mac,
    'uuid': _matching(_UUID.format(_ANY_QUAD, _ANY_QUAD)),
    'uuid3': _matching(_UUID.format('3[0-9a-f]{3}', _ANY_QUAD)),
    'uuid4': _matching(_UUID.format('4[0-9a-f]{3}', _VARIANT_QUAD)),
    'uuid5': _matching(_UUID.format('5[0-9a-f]{3}', _VARIANT_QUAD)),
    'isbn': _is_isbn,
    'isbn10': _is_isbn10,
    'isbn13': _is_isbn13,
    'creditcard': _is_card,
    'ssn': _matching(r'\d{3}[- ]\d{2}[- ]\d{4}'),
    'hexcolor': _matching('#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})'),
    'rgbcolor': _matching(rf'rgb\({_COLOR},{_COLOR},{_COLOR}\)'),
    'byte': _matching(_BASE64),
    'password': _is_anything,
    'date': _is_date,
    'duration': _is_duration,
    'datetime': _is_date_time,
    'k8sshortname': _matching(_SHORT_NAME, 63),
    'k8slongname': _matching(rf'{_SHORT_NAME}(\.{_SHORT_NAME})*', 253),
}
