"""
Echoes: our own changes, recognised when they come back in the stream.

What has come back is known already from the answer to our request, so it is not read again: a half of all events of
a busy operator are such. Whatever is in doubt, is read as usual.
"""

from collections.abc import Mapping
from typing import Any

LIMIT = 100
"""How many changes are remembered at most: they come back soon, or never, e.g. if the stream was replaced."""

_MODIFIED = b'{"type":"MODIFIED","object":{'
_VERSION = b'"resourceVersion":"'


class Echoes:
    """The objects as our own changes have left them, by their versions. Belongs to one stream and its event loop."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, Mapping[str, Any]] = {}

    def expect(self, body: Mapping[str, Any]) -> None:
        """Remember an object as it was answered to our change."""
        version = str(body['metadata'].get('resourceVersion') or '')
        if version.isdecimal() and body['metadata'].get('uid'):
            self._bodies[version.encode()] = body
            if len(self._bodies) > LIMIT:
                del self._bodies[next(iter(self._bodies))]

    def clear(self) -> None:
        """Forget everything: what comes next is not related to what was before."""
        self._bodies.clear()

    def recognise(self, line: bytes) -> Mapping[str, Any] | None:
        """
        Tell which of the remembered objects it is in a line of the stream, if any; and forget it.

        Quotes in texts are escaped, so it is surely a field of an object, and not a part of a text. With only one such
        field, it is surely that of the object itself.
        """
        if not self._bodies or not line.startswith(_MODIFIED):
            return None
        start = line.find(_VERSION)
        end = line.find(b'"', start + len(_VERSION))
        body = self._bodies.get(line[start + len(_VERSION) : end]) if start >= 0 else None
        if (
            body is None
            or line.find(_VERSION, end) >= 0
            or f'"uid":"{body["metadata"]["uid"]}"'.encode() not in line
        ):
            return None
        del self._bodies[line[start + len(_VERSION) : end]]
        return body
