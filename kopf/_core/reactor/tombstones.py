"""
Tombstones: the kept parts of objects whose deletion can be missed.

When an object is deleted in a gap between two streams or in a pause, its deletion event is
synthesized from its names and uid: nothing else is remembered of most objects. The filters of event
handlers cannot decide by these fields. For them, a part of the last seen object is kept, and added
to the synthetic event.

As there can be many objects, the part is as small as possible: with it, the filters decide as with
the whole object; and it includes at least the metadata if the object matches any of the filtered
handlers. Hence nothing is kept if the resource has no filtered handlers, and usually nothing of the
objects that match none of them. The exceptions are ``kopf.ABSENT``, which would match a mere name,
and functions, which are not called here, as they can be slow or can fail: if the decision depends
on them, the whole object is kept.

The parts are kept as JSON: it takes a fraction of the memory, and is protected from functions that
modify their arguments.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from kopf._cogs.clients.watching import watch_events
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import bodies, dicts
from kopf._core.intents import callbacks, filters, handlers
from kopf._core.reactor import inventory

GetHandlers = Callable[[], Sequence[handlers.WatchingHandler]]
"""Returns the event handlers of the resource, as declared by now."""


class Part(enum.IntEnum):
    """The kept part of an object, besides the names and the uid, which are always known."""

    NAMES = 0
    METADATA = 1
    WHOLE = 2


class Tombstones:
    """
    The kept parts of the objects of one resource, including the inherited ones.

    Belongs to the task of the watcher.
    """

    def __init__(self, get_handlers: GetHandlers, parts: dict[inventory.Key, bytes]) -> None:
        self._get_handlers = get_handlers
        self.parts = parts

    def update(self, event: bodies.RawEvent) -> bodies.RawEvent:
        """
        Keep the needed part of an object before handlers can modify it; complete a synthetic event.
        """
        selective = [handler for handler in self._get_handlers() if filters.is_selective(handler)]
        if not selective and not self.parts:
            return event
        if event['type'] == 'DELETED':
            return self._complete(event)

        body = event['object']
        part = choose_part(body, selective)
        if part is Part.NAMES:
            self.parts.pop(inventory.identify(body), None)
        else:
            self.parts[inventory.identify(body)] = _write(body, part)

        return event

    def _complete(self, event: bodies.RawEvent) -> bodies.RawEvent:
        kept = self.parts.pop(inventory.identify(event['object']), None)
        if kept is None or not watch_events.is_made_up(event):
            return event
        return complete(event, jsons.loads(kept))


def choose_part(body: bodies.RawBody, selective: Iterable[handlers.WatchingHandler]) -> Part:
    """Choose the smallest part of the object that is enough for the filters of these handlers."""
    return max((_choose_part(body, handler) for handler in selective), default=Part.NAMES)


def _choose_part(body: bodies.RawBody, handler: handlers.WatchingHandler) -> Part:
    verdict = decide(handler, body)
    if verdict is False and decide(handler, extract(body, Part.NAMES)) is False:
        return Part.NAMES
    if verdict is not None and decide(handler, extract(body, Part.METADATA)) is verdict:
        return Part.METADATA
    return Part.WHOLE


def decide(handler: handlers.WatchingHandler, body: bodies.RawBody) -> bool | None:
    """Decide whether the object matches the filters; ``None`` if that depends on functions."""
    verdicts = list(_iter_verdicts(handler, body))
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _iter_verdicts(
    handler: handlers.WatchingHandler, body: bodies.RawBody
) -> Iterator[bool | None]:
    for name, criterion in (handler.labels or {}).items():
        yield _accept(criterion, dicts.resolve(body, ('metadata', 'labels', name)))
    for name, criterion in (handler.annotations or {}).items():
        yield _accept(criterion, dicts.resolve(body, ('metadata', 'annotations', name)))
    if handler.field is not None:
        criterion = callbacks.PRESENT if handler.value is None else handler.value
        yield _accept(criterion, dicts.resolve(body, handler.field))

    if handler.when is not None:
        yield None


def _accept(criterion: Any, value: Any) -> bool | None:
    if criterion is callbacks.PRESENT:
        return value is not None
    if criterion is callbacks.ABSENT:
        return value is None
    return None if callable(criterion) else bool(criterion == value)


def extract(body: bodies.RawBody, part: Part) -> bodies.RawBody:
    """Extract a part of the object; the smallest part is known for every object."""
    if part is Part.WHOLE:
        return body

    metadata: Mapping[str, Any] = body.get('metadata') or {}
    if part is Part.NAMES:
        metadata = {
            name: metadata[name] for name in ('namespace', 'name', 'uid') if name in metadata
        }

    kinds = {name: value for name, value in body.items() if name in ('apiVersion', 'kind')}
    return cast(bodies.RawBody, {**kinds, 'metadata': metadata})


def complete(event: bodies.RawEvent, part: bodies.RawBody) -> bodies.RawEvent:
    """Complete a synthetic event with the kept part of its object."""
    body = event['object']
    metadata = {**part.get('metadata', {}), **body.get('metadata', {})}
    return {**event, 'object': cast(bodies.RawBody, {**part, **body, 'metadata': metadata})}


def _write(body: bodies.RawBody, part: Part) -> bytes:
    try:
        text = jsons.dumps(extract(body, part))
    except ValueError:  # too deep: the metadata of objects are flat
        text = jsons.dumps(extract(body, Part.METADATA))
    # A copy, as orjson allocates a buffer of at least 4 kB for each of its results.
    return memoryview(text).tobytes()
