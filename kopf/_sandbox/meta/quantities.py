"""
Quantities: amounts of resources as ``100m``, ``1.5Gi``, ``2e3``, and their canonical form.

The API rewrites a quantity to the largest suffix that needs no fraction, in the family of the
suffix it came with.
"""

import dataclasses
import decimal
import functools
import re
from typing import Any, Final

_MISMATCH: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_BAD_NUMBER: Final = 'unable to parse numeric part of quantity'
_BAD_SUFFIX: Final = "unable to parse quantity's suffix"

_regex = re.compile(r'([+-]?)0*(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?[0-9]*)')
_exponent_regex = re.compile(r'[eE][+-]?\d{1,3}')
_DECIMAL: Final = {
    'n': -9,
    'u': -6,
    'm': -3,
    '': 0,
    'k': 3,
    'M': 6,
    'G': 9,
    'T': 12,
    'P': 15,
    'E': 18,
}
_BINARY: Final = {'Ki': 1, 'Mi': 2, 'Gi': 3, 'Ti': 4, 'Pi': 5, 'Ei': 6}
_SUFFIXES: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_LIMIT: Final = decimal.Decimal(2**63 - 1)
_NANO: Final = decimal.Decimal('1e-9')
_MILLI: Final = decimal.Decimal('1e-3')
_context = decimal.Context(prec=60, rounding=decimal.ROUND_UP)


class QuantityError(ValueError):
    """The value is not a quantity; the message is that of the API."""


@dataclasses.dataclass(frozen=True)
class _Quantity:
    amount: decimal.Decimal
    family: str  # decimal, binary, exponent
    text: str  # the original text, if it is preserved


def parse_quantity(value: Any) -> decimal.Decimal:
    """Return the amount; raise `QuantityError` if the value is not a quantity."""
    return _parse(_spell(value)).amount


def format_quantity(value: Any, *, milli: bool = False) -> str:
    """
    Return the canonical form, rounded up to thousandths with ``milli``; raise `QuantityError` if it
    is not a quantity.
    """
    return _format(_spell(value), milli)


def _spell(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    raise QuantityError(_MISMATCH)


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> _Quantity:
    match = _regex.fullmatch(text)
    if match is None or not any(char.isdigit() for char in text):
        raise QuantityError(_MISMATCH)

    whole = match[2] or '0'
    fraction = match[3] or ''
    suffix = match[4]
    number = decimal.Decimal(f'{match[1]}{whole}.{fraction}0')

    if suffix in _BINARY:
        family = 'binary'
        amount = min(number * 1024 ** _BINARY[suffix], _LIMIT)
        is_kept = _is_binary_kept(whole, fraction) and amount < _LIMIT
    else:
        family, power = _read_power(suffix)
        amount = number.scaleb(power, _context)
        is_kept = _is_decimal_kept(whole + fraction, scale=power - len(fraction))

    return _Quantity(_round(amount), family, text if is_kept else '')


def _read_power(suffix: str) -> tuple[str, int]:
    """Parse a decimal suffix; return its family and power of ten."""
    if suffix in _DECIMAL:
        return 'decimal', _DECIMAL[suffix]
    if _exponent_regex.fullmatch(suffix):
        return 'exponent', int(suffix[1:])
    raise QuantityError(_BAD_SUFFIX)


def _is_binary_kept(whole: str, fraction: str) -> bool:
    """Return whether a number with a binary suffix stays as it was written."""
    return not fraction and int(whole[-3:]) % 8 != 0


def _is_decimal_kept(digits: str, *, scale: int) -> bool:
    """Return whether a number with any other suffix stays as it was written."""
    is_suffixed = scale % 3 == 0 and scale >= -9
    is_trimmed = digits[0] != '0' and not digits.endswith('000')
    return is_suffixed and is_trimmed and len(digits) <= 18


def _round(amount: decimal.Decimal) -> decimal.Decimal:
    try:
        return amount.quantize(_NANO, context=_context)
    except decimal.InvalidOperation:
        raise QuantityError(_BAD_NUMBER) from None


@functools.lru_cache(maxsize=1024)
def _format(text: str, milli: bool) -> str:
    quantity = _parse(text)
    amount = quantity.amount.quantize(_MILLI, context=_context) if milli else quantity.amount
    if quantity.text and amount == quantity.amount:
        return quantity.text
    if amount == 0:
        return '0'
    if quantity.family == 'binary' and abs(amount) >= 1024 and amount == int(amount):
        return _format_binary(int(amount))
    return _format_decimal(amount, exponential=quantity.family == 'exponent')


def _format_binary(amount: int) -> str:
    suffix = ''
    for candidate in _BINARY:
        if amount % 1024:
            break
        amount = amount // 1024
        suffix = candidate
    return f'{amount}{suffix}'


def _format_decimal(amount: decimal.Decimal, *, exponential: bool) -> str:
    power = -9
    count = int(amount.scaleb(9, _context))
    while power < 18 and count % 1000 == 0:
        power = power + 3
        count = count // 1000

    if exponential:
        return f'{count}e{power}' if power else str(count)
    return f'{count}{_SUFFIXES[power]}'
