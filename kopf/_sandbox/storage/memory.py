"""
Storage: all objects in memory, their versions, and the history of their changes.

Objects are kept as encoded JSON: it is compact, cheap to list and to watch, and cannot be modified
by accident. There is one increasing version for all objects; each write takes the next one. The
history of each resource is kept for a while, so that watches can be resumed and pages of lists can
be continued from a past version.

Only `Shelf.wait` awaits: all other operations are atomic for the loop that serves requests.
"""

import asyncio
import bisect
import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kopf._cogs.helpers import jsons
from kopf._sandbox.meta import kinds

RETENTION = 20_000
"""The number of latest changes of each resource that are kept for watches."""

TICK = 1e-5
"""Seconds by which a wait may end too early: clocks of event loops are rounded."""

CROWD = 16
PAUSE = 0.005
"""Seconds between wake-ups of the watchers of one resource if there are more than `CROWD`."""

NOTHING: Mapping[str, str] = {}


@dataclasses.dataclass(slots=True, eq=False)
class Stored:
    """
    One state of one object. A new state is a new instance; only the views are added later.
    """

    version: int
    uid: str
    namespace: str
    name: str
    raw: bytes
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)  # for field selectors
    is_leaving: bool = False  # the object is being deleted
    views: Mapping[kinds.Resource, bytes] | None = None  # in other versions, made by webhooks

    @property
    def key(self) -> str:
        return make_key(self.namespace, self.name)

    def load(self) -> dict[str, Any]:
        """Decode a fresh copy of the object."""
        body: dict[str, Any] = jsons.loads(self.raw)
        return body


@dataclasses.dataclass(slots=True, eq=False)
class Change:
    """One write: the states before and after it (for deletions, the last state is the new one)."""

    version: int
    type: str  # ADDED, MODIFIED, DELETED
    home: kinds.Home
    new: Stored
    old: Stored | None


Observer = Callable[[Change], None]


def make_key(namespace: str, name: str) -> str:
    """Return the key of an object inside of its home; keys sort as the API sorts lists."""
    return f'{namespace}/{name}' if namespace else name


class Shelf:
    """All objects of one resource, sorted, with the history of their changes."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []  # sorted
        self.changes: list[Change] = []
        self.compacted = 0  # older states are forgotten
        self.is_closed = False  # the resource is no longer served
        self._waiters: set[asyncio.Future[None]] = set()
        self._releasing: asyncio.TimerHandle | None = None

    def select(self, namespace: str) -> list[Stored]:
        """Return all objects, or those of one namespace, in the order of lists."""
        if not namespace:
            return [self.objects[key] for key in self.keys]
        first = bisect.bisect_left(self.keys, f'{namespace}/')
        last = bisect.bisect_left(self.keys, f'{namespace}0')  # "0" follows "/"
        return [self.objects[key] for key in self.keys[first:last]]

    def record(self, change: Change) -> None:
        key = change.new.key
        if change.type == 'ADDED':
            bisect.insort(self.keys, key)
        if change.type == 'DELETED':
            del self.objects[key]
            del self.keys[bisect.bisect_left(self.keys, key)]
        else:
            self.objects[key] = change.new

        self.changes.append(change)
        if len(self.changes) >= 2 * RETENTION:
            self._forget(RETENTION)
        self.notify()

    def find_since(self, version: int) -> int:
        """Return the index of the first retained change after the version."""
        return bisect.bisect_right(self.changes, version, key=lambda change: change.version)

    def compact(self, version: int) -> None:
        self._forget(self.find_since(version))
        self.compacted = max(self.compacted, version)

    def rewind(self, version: int) -> dict[str, Stored]:
        """Return the objects as of a version that is not compacted yet."""
        objects = dict(self.objects)
        for change in reversed(self.changes[self.find_since(version) :]):
            objects.pop(change.new.key, None)
            if change.old is not None:
                objects[change.old.key] = change.old
        return objects

    async def wait(self, until: float) -> None:
        """
        Wait for the next change, a notification, or the time of the loop's clock, whichever comes
        first.

        Any number of watchers may wait. Cancelling one wait does not affect the others.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        handle = loop.call_at(until, _release, waiter)
        self._waiters.add(waiter)

        try:
            await waiter
        finally:
            handle.cancel()
            self._waiters.discard(waiter)

    def notify(self) -> None:
        """
        Wake up the watchers: immediately if they are few; otherwise, after a pause, for several
        changes at once.
        """
        if len(self._waiters) <= CROWD:
            self._release_all()
        elif self._releasing is None:
            self._releasing = (
                next(iter(self._waiters)).get_loop().call_later(PAUSE, self._release_all)
            )

    def _release_all(self) -> None:
        if self._releasing is not None:
            self._releasing.cancel()
            self._releasing = None
        for waiter in self._waiters:
            _release(waiter)
        self._waiters.clear()

    def _forget(self, count: int) -> None:
        if count > 0:
            self.compacted = max(self.compacted, self.changes[count - 1].version)
            del self.changes[:count]


def build_stored(body: dict[str, Any], version: int, fields: Mapping[str, str]) -> Stored:
    """Encode an object as of a version."""
    meta = body['metadata']
    return Stored(
        version=version,
        uid=meta.get('uid') or '',
        namespace=meta.get('namespace') or '',
        name=meta['name'],
        raw=jsons.dumps(body),
        labels=meta.get('labels') or NOTHING,
        fields=fields or NOTHING,
        is_leaving=meta.get('deletionTimestamp') is not None,
    )


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Storage:
    """All stored objects. Used only from the loop that serves requests."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self._forgotten = 0  # the history up to this version is unknown for all resources
        self._shelves: dict[kinds.Home, Shelf] = {}
        self._observers: list[Observer] = []
        # The changes that the observers have not seen; the first one is being shown to them.
        self._unseen: collections.deque[Change] = collections.deque()

    def __iter__(self) -> Iterator[tuple[kinds.Home, Shelf]]:
        return iter(list(self._shelves.items()))

    def observe(self, observer: Observer) -> None:
        """Call a function synchronously after every change. It must not raise."""
        self._observers.append(observer)

    def shelf(self, home: kinds.Home) -> Shelf:
        shelf = self._shelves.get(home)
        if shelf is None:
            shelf = self._shelves[home] = Shelf()
            shelf.compacted = self._forgotten
        return shelf

    def get(self, home: kinds.Home, namespace: str, name: str) -> Stored | None:
        return self.shelf(home).objects.get(make_key(namespace, name))

    def put(
        self, home: kinds.Home, body: dict[str, Any], *, fields: Mapping[str, str] = NOTHING
    ) -> Stored:
        """Write an object as the next version. Sets the ``resourceVersion`` in the body."""
        meta = body['metadata']
        namespace = meta.get('namespace') or ''
        name = meta['name']
        shelf = self.shelf(home)
        old = shelf.objects.get(make_key(namespace, name))
        new = self._encode(body, fields)
        self._record(shelf, Change(new.version, 'MODIFIED' if old else 'ADDED', home, new, old))

        return new

    def remove(self, home: kinds.Home, stored: Stored) -> Stored:
        """Remove an object; its last state gets the version of the removal."""
        new = self._encode(stored.load(), stored.fields)
        self._record(self.shelf(home), Change(new.version, 'DELETED', home, new, stored))
        return new

    def restate(self, home: kinds.Home, stored: Stored, body: dict[str, Any]) -> None:
        """Replace a stored object without a new version or an event, e.g. for a new schema."""
        shelf = self.shelf(home)
        shelf.objects[stored.key] = dataclasses.replace(stored, raw=jsons.dumps(body), views=None)

    def resume(self, version: int) -> None:
        """Continue from a version reached before; the history up to it is unknown."""
        self.version = self._forgotten = version
        self.compact(version)

    def restore(self, home: kinds.Home, body: dict[str, Any], fields: Mapping[str, str]) -> None:
        """Restore a saved object with its own version, without history. Notifies the observers."""
        shelf = self.shelf(home)
        stored = build_stored(body, int(body['metadata']['resourceVersion']), fields)
        bisect.insort(shelf.keys, stored.key)
        shelf.objects[stored.key] = stored
        self._announce(Change(stored.version, 'ADDED', home, stored, None))

    def drop(self, home: kinds.Home) -> None:
        """Drop a deleted resource. The watchers get the remaining changes and end."""
        shelf = self._shelves.pop(home, None)
        if shelf is not None:
            shelf.is_closed = True
            shelf.notify()
            self.shelf(home).compacted = self.version

    def compact(self, version: int | None = None) -> None:
        """Forget the history up to a version (by default, all), as etcd does periodically."""
        for _, shelf in self:
            shelf.compact(self.version if version is None else min(version, self.version))
            shelf.notify()

    def _encode(self, body: dict[str, Any], fields: Mapping[str, str]) -> Stored:
        self.version += 1
        body['metadata']['resourceVersion'] = str(self.version)
        return build_stored(body, self.version, fields)

    def _record(self, shelf: Shelf, change: Change) -> None:
        shelf.record(change)
        self._announce(change)

    def _announce(self, change: Change) -> None:
        """Show a change to the observers, and then the changes that they make themselves."""
        self._unseen.append(change)
        if len(self._unseen) > 1:
            return
        while self._unseen:
            for observer in self._observers:
                observer(self._unseen[0])
            self._unseen.popleft()
