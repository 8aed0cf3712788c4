"""
Times: moments as they are written in objects, by us, by other operators, or by people.

The usual formats are parsed by Python itself; other forms of ISO 8601 are left to the slower
library.
"""

import datetime
from typing import Any


def parse_moment(value: Any) -> datetime.datetime | None:
    """Parse a moment, in UTC if it has no offset; return ``None`` for anything else."""
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
    # Its regular expressions are slow to compile and seldom needed.
    import iso8601

    try:
        return iso8601.parse_date(text)
    except (iso8601.ParseError, OverflowError):
        return None
