"""
Moments as they are written on objects, by us, by other operators, or by people.

What we write ourselves is understood at once; all other forms of ISO 8601 are left to the library, which is slower.
"""

import datetime
from typing import Any


def parse_moment(value: Any) -> datetime.datetime | None:
    """Understand a moment, in UTC if it has no offset; ``None`` if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        found = _parse_unusual(value)
        if found is None:
            return None
        moment = found
    try:
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return aware.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None


def _parse_unusual(text: str) -> datetime.datetime | None:
    import iso8601  # with its regular expressions, which are seldom needed

    try:
        return iso8601.parse_date(text)
    except (iso8601.ParseError, OverflowError):
        return None
