"""
Deadlines: the times that clients give to their requests.

They are only checked: no request lasts here, besides those that are meant to.
"""

import re
from typing import Final

from kopf._sandbox.meta import errors

_AMOUNT: Final = re.compile(r'[0-9]+(?:\.[0-9]*)?|\.[0-9]+')
_UNIT: Final = re.compile(r'[^0-9.]+')
_UNITS: Final = {
    'ns': 1.0,
    'us': 1e3,
    'µs': 1e3,
    'μs': 1e3,
    'ms': 1e6,
    's': 1e9,
    'm': 60e9,
    'h': 3600e9,
}
_LONGEST: Final = 2**63  # nanoseconds


def check_timeout(text: str) -> None:
    """Raise the API's 400 if this is not a duration as Go writes them: ``1h30m``, ``0.5s``."""
    why = _explain(text) if text else ''
    if why:
        raise errors.bad_request(f'invalid timeout specified in the request URL - time: {why}')


def _explain(text: str) -> str:
    """Return what is wrong with a duration; nothing if it is right."""
    shown = errors.render(text)
    rest = text[1:] if text[0] in '+-' else text
    total = 0.0
    if rest == '0':
        return ''
    if not rest:
        return f'invalid duration {shown}'

    while rest:
        amount = _AMOUNT.match(rest)
        if amount is None:
            return f'invalid duration {shown}'
        unit = _UNIT.match(rest, amount.end())
        if unit is None:
            return f'missing unit in duration {shown}'
        if unit[0] not in _UNITS:
            return f'unknown unit {errors.render(unit[0])} in duration {shown}'
        total += float(amount[0]) * _UNITS[unit[0]]
        rest = rest[unit.end() :]

    return f'invalid duration {shown}' if total >= _LONGEST else ''
