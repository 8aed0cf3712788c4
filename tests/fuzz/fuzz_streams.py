"""
Watch-streams and lists: whatever the lines are, they are events, or errors that the streams
survive.
"""

import random
import zlib
from typing import Any

from kopf._cogs.clients import errors, listing
from kopf._cogs.clients.http import line_decoder
from kopf._cogs.clients.watching import watch_events
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import objects, references

RESOURCE = references.Resource(
    'kopf.dev', 'v1', 'kopfexamples', kind='KopfExample', singular='kopfexample'
)


def check(source: bytes) -> None:
    found = _split(source)
    assert found == [line for line in source.split(b'\n') if line.strip()], (
        'the lines depend on how they are cut'
    )
    known: dict[watch_events.Key, watch_events.Seen] = {}
    census = watch_events.Census(known, RESOURCE, is_initial=True)
    for line in found:
        for change in census.take(_read(line)):
            assert isinstance(objects.Body(change.event['object']).metadata.name, str)
            watch_events.is_made_up(change.event)
            if change.seen is None:
                known.pop(change.key, None)
            else:
                known[change.key] = change.seen


def _split(source: bytes) -> list[bytes]:
    splitter, chance, found, position = (
        line_decoder.LineDecoder(),
        random.Random(zlib.crc32(source)),
        [],
        0,
    )
    while position < len(source):
        size = chance.choice([1, 3, 50, 1000])
        found += splitter.feed(source[position : position + size])
        position += size
    return found + splitter.finish()


def _read(line: bytes) -> Any:
    """Read the line as a page of a list if it is one, or as a line of a stream."""
    signal = watch_events.classify_line(line)
    if isinstance(signal, errors.RequestError):
        str(signal), watch_events.classify_error(signal)
    if isinstance(signal, watch_events.Change | watch_events.Bookmark):
        return signal
    try:
        return listing.parse_page(jsons.loads(line))
    except (jsons.JSONDecodeError, errors.APIGarbledError):
        return None
