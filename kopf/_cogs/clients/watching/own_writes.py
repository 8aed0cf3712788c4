"""
Own writes: our own changes, recognised when they come back in the stream.

Their content is already known from the response to our request, so they are not parsed again: half
of all events of a busy operator are echoes. In case of any doubt, the event is parsed as usual.
"""

from collections.abc import Mapping
from typing import Any

LIMIT = 100
"""How many changes are remembered: they come back soon, or never if the stream was replaced."""

_MODIFIED = b'{"type":"MODIFIED","object":{'
_VERSION = b'"resourceVersion":"'


class OwnWrites:
    """The objects after our own changes, by versions. Belongs to one stream and its event loop."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, Mapping[str, Any]] = {}

    def expect(self, body: Mapping[str, Any]) -> None:
        """Remember an object from the response to our change."""
        version = str(body['metadata'].get('resourceVersion') or '')
        if version.isdecimal() and body['metadata'].get('uid'):
            self._bodies[version.encode()] = body
            if len(self._bodies) > LIMIT:
                del self._bodies[next(iter(self._bodies))]

    def clear(self) -> None:
        """Forget everything: the next events are unrelated to the previous ones."""
        self._bodies.clear()

    def recognise(self, line: bytes) -> Mapping[str, Any] | None:
        """
        Return the remembered object that is in this line of the stream, if any, and forget it.

        Quotes in texts are escaped, so a match is always a field of an object, never a part of a
        text. If there is only one such field, it belongs to the object itself.
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
