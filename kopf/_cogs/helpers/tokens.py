"""
Tokens in files: when to read them again.

The files are updated well before their tokens expire. Nothing is verified here: that is up to the
server.
"""

import base64
import binascii
import datetime
from typing import Any

from kopf._cogs.helpers import jsons

REREADING = 60.0
"""Seconds for which a token from a file is used at most."""

MARGIN = 10.0
"""Seconds before the expiration when the file is read again: it should have a new token."""

SHORTEST = 1.0
"""Seconds for which a token is used at least, even if expired: the clock here can be wrong."""


def choose_rereading(token: str, now: datetime.datetime) -> datetime.datetime:
    """Choose when to read the file again: in a minute, or sooner if the token expires."""
    end = read_expiration(token)
    moment = now + datetime.timedelta(seconds=REREADING)
    if end is not None:
        moment = min(moment, end - datetime.timedelta(seconds=MARGIN))
    return max(moment, now + datetime.timedelta(seconds=SHORTEST))


def read_expiration(token: str) -> datetime.datetime | None:
    """Return when a JSON web token expires; ``None`` if it never does or is of another kind."""
    payload = _parse_payload(token)
    moment = payload.get('exp') if isinstance(payload, dict) else None
    try:
        return None if moment is None else datetime.datetime.fromtimestamp(moment, datetime.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _parse_payload(token: str) -> Any:
    parts = token.split('.')
    if len(parts) != 3:
        return None
    try:
        return jsons.loads(base64.urlsafe_b64decode(parts[1] + '=' * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
