"""
Watch events: what the lines and errors of watch-streams mean, and how listings differ from the
known objects.

Decisions only: nothing is requested or remembered here.
"""

import dataclasses
import enum
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from kopf._cogs.clients import errors, listing
from kopf._cogs.helpers import documents
from kopf._cogs.structs import bodies, references

EventType = Literal[None, 'ADDED', 'MODIFIED', 'DELETED']
"""``None`` is for objects that existed before the stream began."""

RawEvent = bodies.RawEvent


class Key(NamedTuple):
    """The identity of an object of a resource at a moment."""

    namespace: str
    name: str


class Seen(NamedTuple):
    """The record of an object that was handed over. With 50,000 objects, each byte counts."""

    uid: str
    version: str


@dataclasses.dataclass(frozen=True)
class Change:
    """A raw event, and the record to remember when it is handed over."""

    event: RawEvent
    key: Key
    seen: Seen | None  # None if the object is deleted
    version: str = ''  # to continue from; empty if unknown


@dataclasses.dataclass(frozen=True)
class Misfit:
    """An object that is unfit for handling: it is reported and left in its last known state."""

    key: Key
    seen: Seen
    flaw: str
    # The finalizers that block the deletion, if it is being deleted.
    finalizers: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        """The version to continue from."""
        return self.seen.version


@dataclasses.dataclass(frozen=True)
class Bookmark:
    """A notice that nothing has changed up to this version."""

    version: str


@dataclasses.dataclass(frozen=True)
class Oddity:
    """A line with an event of an unknown type: it is skipped, but reported."""

    type: str


class Trouble(enum.Enum):
    """The remedy for a failed stream."""

    EXPIRED = enum.auto()  # the version is no longer valid: everything must be listed again
    FAILURE = enum.auto()  # anything else: the stream continues from the same version


Signal = Change | Misfit | Bookmark | Oddity | errors.RequestError
Finding = listing.Page | Change | Misfit | Bookmark


def classify_line(line: bytes, read: Callable[[bytes], Any] = documents.read) -> Signal:
    """Parse a line of a watch-stream into a signal; errors are returned, not raised."""
    try:
        parsed = read(line)
    except ValueError:
        return errors.APIGarbledError(f'A line of the stream is not JSON ({len(line)} bytes).')

    type_, body = (
        (parsed.get('type'), parsed.get('object')) if isinstance(parsed, dict) else (None, None)
    )
    if not isinstance(type_, str) or not isinstance(body, dict):
        return errors.APIGarbledError('A line of the stream is not an event.')

    match type_:
        case 'ERROR':
            return errors.build_error(errors.parse_status(body))
        case 'BOOKMARK':
            metadata = body.get('metadata')
            return Bookmark(
                str(metadata.get('resourceVersion') or '') if isinstance(metadata, dict) else ''
            )
        case 'ADDED' | 'MODIFIED' | 'DELETED':
            if not listing.is_object(body):
                return errors.APIGarbledError('A line of the stream has an event of no object.')
            if isinstance(body, documents.Salvaged):
                return _build_deletion(body) if type_ == 'DELETED' else build_misfit(body)
            return build_change(type_, listing.clean_object(body))

    return Oddity(type_)


def classify_error(error: Exception) -> Trouble:
    """
    Choose the remedy for a failed stream or listing.

    Besides versions that are too old, there are versions that are too new: after the cluster is
    restored from a backup. Invalid versions are of no use either.
    """
    match error:
        case errors.APIGoneError() | errors.APIInvalidError() | errors.APIClientError(code=400):
            return Trouble.EXPIRED
        case errors.APIError(details={'causes': [*causes]}) if any(map(_is_of_future, causes)):
            return Trouble.EXPIRED

    return Trouble.FAILURE


def build_change(type: EventType, body: Mapping[str, Any]) -> Change:
    """Build the change of a cleaned object."""
    key, seen = identify(body)
    event: RawEvent = {'type': type, 'object': cast(bodies.RawBody, body)}
    return Change(event, key, None if type == 'DELETED' else seen, seen.version)


def build_misfit(body: documents.Salvaged) -> Misfit:
    """Build the notice of an object that is unfit for handling."""
    key, seen = identify(body)
    metadata = body['metadata']
    is_deleted = bool(metadata.get('deletionTimestamp'))

    return Misfit(
        key,
        seen,
        body.flaw,
        frozenset(metadata.get('finalizers') or ()) if is_deleted else frozenset(),
    )


def _build_deletion(body: documents.Salvaged) -> Change:
    """Build the deletion of an object with usable metadata only: minimal, but with its labels."""
    key, seen = identify(body)
    fields = (
        'name',
        'namespace',
        'uid',
        'labels',
        'annotations',
        'creationTimestamp',
        'deletionTimestamp',
    )
    metadata = {
        field: body['metadata'][field]
        for field in fields
        if body['metadata'].get(field) is not None
    }
    kinds = {
        field: body[field] for field in ('apiVersion', 'kind') if isinstance(body.get(field), str)
    }
    stripped = cast(bodies.RawBody, {**kinds, 'metadata': metadata})

    return Change({'type': 'DELETED', 'object': stripped}, key, None, seen.version)


def identify(body: Mapping[str, Any]) -> tuple[Key, Seen]:
    """Return the identity and the state of the object."""
    metadata = body['metadata']
    # Many objects share a few namespaces.
    key = Key(sys.intern(str(metadata.get('namespace') or '')), metadata['name'])
    return key, Seen(str(metadata.get('uid') or ''), str(metadata.get('resourceVersion') or ''))


def compare_listing(
    known: Mapping[Key, Seen],
    items: Iterable[Mapping[str, Any]],
    *,
    is_initial: bool,
    resource: references.Resource,
) -> Iterator[Change]:
    """
    Compare the listed objects, all or some, with the known ones; yield only the changes.

    Objects that were deleted and created again are first deleted. During the first listing, objects
    are of the type ``None``, not added or modified. For objects that are not listed, see
    `detect_vanished`.
    """
    for item in items:
        key, seen = identify(item)
        before = known.get(key)
        if before is not None and before.uid != seen.uid:
            yield _build_vanished(key, before, resource)
            before = None
        if before != seen or not seen.version:
            yield build_change(
                None if is_initial else 'ADDED' if before is None else 'MODIFIED', item
            )


def detect_vanished(
    known: Mapping[Key, Seen], listed: Collection[Key], resource: references.Resource
) -> list[Change]:
    """Find the known objects that are absent in a complete listing; their bodies are minimal."""
    return [
        _build_vanished(key, seen, resource) for key, seen in known.items() if key not in listed
    ]


def detect_replaced(
    known: Mapping[Key, Seen], misfit: Misfit, resource: references.Resource
) -> list[Change]:
    """Find the known object that was replaced by a misfit of the same name."""
    before = known.get(misfit.key)
    return (
        []
        if before is None or before.uid == misfit.seen.uid
        else [_build_vanished(misfit.key, before, resource)]
    )


def is_made_up(event: RawEvent) -> bool:
    """Return whether the event was not received, but deduced: its object is absent in a listing."""
    return event['type'] == 'DELETED' and not event['object']['metadata'].get('resourceVersion')


class Census:
    """
    One listing in pages, and the concurrent changes: how they differ, together, from the known
    objects.

    The caller must update the known objects with each of the changes before requesting the next
    one.
    """

    def __init__(
        self, known: Mapping[Key, Seen], resource: references.Resource, *, is_initial: bool
    ) -> None:
        self._known = known
        self._resource = resource
        self._is_initial = is_initial
        self._present: set[Key] = set()  # both listed and changed
        self._changed: set[Key] = set()  # since the first page: the next pages are older than that
        self.version = ''  # the version up to which everything is taken, after all pages

    @property
    def present(self) -> Collection[Key]:
        """All objects that exist, when all pages are taken."""
        return self._present

    def take(self, finding: Finding) -> Iterator[Change | Misfit]:
        """Take the next page or change; after the last page, report vanished objects as deleted."""
        match finding:
            case listing.Page():
                yield from self._take_page(finding)
            case Change():
                yield from self._take_change(finding)
                self.version = finding.version or self.version
            case Misfit():
                self._changed.add(finding.key)
                yield from self._take_misfit(finding)
                self.version = finding.version or self.version
            case Bookmark():
                self.version = finding.version or self.version

    def _take_page(self, page: listing.Page) -> Iterator[Change | Misfit]:
        if page.is_first:  # even if it starts over
            self._present.clear()
            self._changed.clear()
            self.version = page.version

        valid = [item for item in page.items if identify(item)[0] not in self._changed]
        self._present.update(identify(item)[0] for item in valid)
        yield from self._compare(valid)

        for misfit in map(build_misfit, page.misfits):
            if misfit.key not in self._changed:
                yield from self._take_misfit(misfit)

        if not page.following:
            yield from detect_vanished(self._known, self._present, self._resource)

    def _take_change(self, change: Change) -> Iterator[Change]:
        """
        Yield a change. If the object is not listed yet, it will not be, as the listing is older
        than the change: then, the existence of the object is yielded first.
        """
        self._changed.add(change.key)
        self._present.add(change.key)
        known = self._known.get(change.key)
        body = change.event['object']
        type_ = change.event['type']
        is_known = known is not None and known.uid == identify(body)[1].uid

        if not is_known and type_ == 'MODIFIED':
            yield from self._compare([body])
        elif not is_known and known is not None:
            yield _build_vanished(change.key, known, self._resource)

        if is_known or type_ != 'DELETED':
            yield change

    def _take_misfit(self, misfit: Misfit) -> Iterator[Change | Misfit]:
        self._present.add(misfit.key)
        yield from detect_replaced(self._known, misfit, self._resource)
        yield misfit

    def _compare(self, items: Iterable[Mapping[str, Any]]) -> Iterator[Change]:
        return compare_listing(
            self._known, items, is_initial=self._is_initial, resource=self._resource
        )


def _build_vanished(key: Key, seen: Seen, resource: references.Resource) -> Change:
    body: bodies.RawBody = {'apiVersion': resource.api_version}
    if resource.kind:
        body['kind'] = resource.kind
    body['metadata'] = {'name': key.name, 'uid': seen.uid}
    if key.namespace:
        body['metadata']['namespace'] = key.namespace
    return Change({'type': 'DELETED', 'object': body}, key, None)


def _is_of_future(cause: Any) -> bool:
    return isinstance(cause, Mapping) and cause.get('reason') == 'ResourceVersionTooLarge'
