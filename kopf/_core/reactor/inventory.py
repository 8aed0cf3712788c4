"""
Inventory: what is remembered of each object while it exists, and nothing of the others.

A memory is all that an object costs between its cycles. It is lost with the process: what must survive, is on
the object.
"""

import asyncio
import collections
import copy
import dataclasses
import itertools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NewType

from kopf._cogs.structs import bodies, ids, patches, references
from kopf._core.actions import breakers, throttlers
from kopf._core.engines import lives as lives_
from kopf._core.reactor import cycles

Key = NewType('Key', str)
"""What tells one object from all others of the cluster: objects of the same name are not the same object."""


TRUST_PERIOD = 600.0
"""
Seconds for which older versions that come after our own change are believed to be late. If they come even later,
it is rather a cluster restored from its past, where the versions were lower.
"""

NOBODY: frozenset[ids.HandlerId] = frozenset()
"""No handlers. Every other empty set would take 216 bytes, and there would be several of them for each object."""


@dataclasses.dataclass(frozen=True, slots=True)
class Awaited:
    """A change of ours that has not come back from the cluster yet."""

    version: str
    deadline: float  # loop time, after which it is not waited for
    body: bodies.RawBody | None = (
        None  # of that version; None if it is not known to be the newest one
    )
    is_doubted: bool = False  # whether anything older has come, though it is too late for that


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """What the server has made of the handlers' own changes: the handlers know it without being called."""

    ids: frozenset[ids.HandlerId]
    before: cycles.Essence  # what these handlers were called with
    after: cycles.Essence  # what was there after their changes were accepted


@dataclasses.dataclass(frozen=True, slots=True)
class Outbox:
    """What is left to be sent: the last attempt has failed, or is known to be refused for the known version."""

    patch: Mapping[str, Any]  # of the users
    fns: tuple[patches.AnyPatchFn, ...]  # of the users, for a newer version of the object
    own: Mapping[str, Any]  # our records; until they are accepted, they are believed to be there
    recorded: str | None  # a digest of the last handled state under these records
    makers: frozenset[ids.HandlerId] = NOBODY  # the finished handlers whose changes these are
    seen: cycles.Essence | None = None  # what they were called with
    refused: str | None = (
        None  # the version for which the functions are refused whenever they are sent
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CycleMemory:
    """What is known of the cycles of an object, besides what is recorded on the object."""

    is_initial: bool = False  # existed before the operator, and is not resumed yet
    resumed: frozenset[ids.HandlerId] = (
        NOBODY  # the resuming handlers done so far, while it is not resumed
    )
    is_released: bool = (
        False  # all deletion handlers are finished, though our finalizer can be still there
    )
    version: str | None = None  # the last one that was made by this operator's cycles
    is_settled: bool = False  # whether there is nothing to do for that version
    own: Own | None = None  # the handlers' own changes, until they are recorded as handled
    base: cycles.Essence | None = (
        None  # what the first handlers have seen, if it is too big to be recorded
    )
    handled: cycles.Essence | None = (
        None  # under this version, if the resource has several; else it is on the object
    )

    def at(
        self, version: str | None, own: Own | None = None, *, is_settled: bool = False
    ) -> 'CycleMemory':
        """Remember that the object was left in this version."""
        return CycleMemory(
            self.is_initial,
            self.resumed,
            self.is_released,
            version,
            is_settled,
            own or self.own,
            self.base,
            self.handled,
        )

    def is_foreign(self, version: str | None) -> bool:
        """Return whether others have made this version, or any since this operator has handled the object."""
        return self.version is None or not cycles.is_echo(self.version, str(version))


@dataclasses.dataclass(frozen=True, slots=True)
class Throttle:
    """For how long an object is left alone, and why; it is for errors beyond handlers and for refusals."""

    delays: throttlers.Throttler
    until: float | None = (
        None  # loop time; None if it only counts, and the object is not left alone
    )


NEW, INITIAL = CycleMemory(), CycleMemory(is_initial=True)
"""What is known of objects at first: those that have just come, and those that existed before the operator."""


@dataclasses.dataclass(slots=True)
class Memory:
    """What is remembered of one object. Replaced by parts, only by its worker, or by its daemons if it is said so."""

    memo: Any
    cycle: CycleMemory = NEW
    awaited: Awaited | None = None
    outbox: Outbox | None = None
    throttle: Throttle | None = None
    breaker: breakers.Breaker | None = (
        None  # if it was handled several times with no change by others
    )
    refusals: int = 0  # how many times in a row the known version was outdated for our changes
    lives: lives_.Lives | None = None  # the daemons and timers, if there can be any

    def expect(self, version: str, deadline: float, body: bodies.RawBody | None = None) -> None:
        """Wait for this version, unless a newer one is expected already; daemons make their changes any time."""
        if self.awaited is None or not cycles.is_echo(self.awaited.version, version):
            self.awaited = Awaited(version, deadline, body)

    def choose_newest(self, body: bodies.RawBody, *, is_new: bool, now: float) -> bodies.RawBody:
        """Choose what is newer: the object as it came last time, or as our own change has made it; just now, or not."""
        awaited, version = self.awaited, (body.get('metadata') or {}).get('resourceVersion')
        if awaited is None or cycles.is_echo(version, awaited.version):
            self.awaited = None
            return body
        is_older = cycles.is_older(version, awaited.version)
        is_trusted = now < awaited.deadline + TRUST_PERIOD
        if is_new and is_older and now > awaited.deadline:
            awaited = dataclasses.replace(awaited, is_doubted=True)
        if awaited.is_doubted and not is_trusted:  # it will never come
            self.awaited = None
            return body
        if is_new and not is_older:
            awaited = dataclasses.replace(awaited, body=None)
        self.awaited = awaited
        return body if awaited.body is None else awaited.body

    def measure_mistrust(
        self, body: bodies.RawBody, known: bodies.RawBody, *, now: float
    ) -> float | None:
        """Tell for how many seconds the object, as it came, will not be believed though our change is not coming."""
        if self.awaited is None or known is body or now <= self.awaited.deadline:
            return None
        return max(0.0, self.awaited.deadline + TRUST_PERIOD - now)


class Memories:
    """
    All objects that exist, as far as it is known. Belongs to the event loop of the operator.

    Versions of one resource are different resources, each with its own memory of an object. They share only the memo.
    """

    def __init__(self) -> None:
        self._parts: dict[references.Resource | None, dict[Key, Memory]] = {}
        self.alone: set[int] = (
            set()
        )  # those handled right now with no regard to other versions of the resource
        self._served: set[references.Resource] = set()
        self._versioned: frozenset[references.Resource] = frozenset()
        self._locks: weakref.WeakValueDictionary[Key, asyncio.Lock] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def __iter__(self) -> Iterator[Memory]:
        return itertools.chain.from_iterable(part.values() for part in self._parts.values())

    def is_known(
        self, body: bodies.RawBody | Mapping[str, Any], resource: references.Resource | None = None
    ) -> bool:
        part = self._parts.get(resource)
        return part is not None and identify(body) in part

    def recall(
        self,
        body: bodies.RawBody | Mapping[str, Any],
        resource: references.Resource | None = None,
        *,
        memo: Any,
        is_initial: bool = False,
    ) -> Memory:
        """Get the memory of an object, or begin a new one, with a copy of the operator's memo."""
        key = identify(body)
        part = self._parts.get(resource)
        memory = part.get(key) if part is not None else None
        if memory is None:
            twin = self._find(key)
            memory = Memory(
                copy.copy(memo) if twin is None else twin.memo,
                INITIAL if is_initial else NEW,
            )
            self._parts.setdefault(resource, {})[key] = memory
        return memory

    def find_memo(self, body: Mapping[str, Any]) -> Any | None:
        """Find the memo of an object under any version of its resource; ``None`` if there is none."""
        memory = self._find(identify(body))
        return None if memory is None else memory.memo

    def forget(
        self, body: bodies.RawBody | Mapping[str, Any], resource: references.Resource | None = None
    ) -> None:
        """Forget an object that exists no more. It is harmless to forget the unknown ones."""
        self.forget_key(identify(body), resource)

    def forget_key(self, key: Key, resource: references.Resource | None = None) -> Memory | None:
        """Forget an object by its identifier, and return what was remembered, if anything."""
        part = self._parts.get(resource)
        if part is None:
            return None
        memory = part.pop(key, None)
        if not part:
            del self._parts[resource]
        return memory

    def serve(self, resource: references.Resource) -> None:
        """Take notice of a resource whose objects will come."""
        self._served.add(resource)
        versions = collections.Counter((served.group, served.plural) for served in self._served)
        self._versioned = frozenset(
            served for served in self._served if versions[served.group, served.plural] > 1
        )

    def has_versions(self, resource: references.Resource) -> bool:
        """Return whether the objects come also under other versions of this resource."""
        return (
            bool(self._versioned) and resource in self._versioned
        )  # usually there are none, and hashes take time

    def lock(self, key: Key) -> asyncio.Lock:
        """Get the lock of an object that is handled under several versions: only by one at a time."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def is_handled_alone(self, key: Key) -> bool:
        """Return whether the object is handled under a version that was the only one when the handling began."""
        return any(id(part[key]) in self.alone for part in self._parts.values() if key in part)

    def note_written(self, key: Key, version: str) -> None:
        """Let all versions of the resource know that the object was changed by this operator."""
        for part in self._parts.values():
            if key in part:
                memory = part[key]
                memory.cycle = memory.cycle.at(version)

    def iter_twins(
        self, key: Key, resource: references.Resource
    ) -> Iterator[tuple[references.Resource, Memory]]:
        """Iterate over the memories of the same object under the other versions of its resource."""
        for other, part in self._parts.items():
            if other is not None and other != resource and key in part:
                yield other, part[key]

    def _find(self, key: Key) -> Memory | None:
        found = (part[key] for part in self._parts.values() if key in part)
        return next(found, None)


def identify(body: bodies.RawBody | Mapping[str, Any]) -> Key:
    """Tell which object it is, by its uid; by its kind and names if there is none, as in made-up objects."""
    metadata: Mapping[str, Any] = body.get('metadata') or {}
    uid = metadata.get('uid')
    if uid:
        return Key(str(uid))
    names = (
        body.get('apiVersion'),
        body.get('kind'),
        metadata.get('namespace'),
        metadata.get('name'),
    )
    return Key('/'.join(str(name or '') for name in names))
