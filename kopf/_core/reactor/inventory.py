"""
Inventory: the memories of the existing objects.

A memory is all that an object costs between its cycles. It is lost with the process: everything
that must survive a restart is stored on the object.
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
from kopf._core.engines.daemons import tasks
from kopf._core.engines.reconciling import levels
from kopf._core.reactor import cycles

Key = NewType('Key', str)
"""
The identifier of an object in the cluster. A recreated object of the same name gets another one.
"""


TRUST_PERIOD = 600.0
"""
Seconds for which older versions that arrive after our own change are considered late. Beyond that
time, they rather come from a cluster restored from a backup, where the versions are lower.
"""

NOBODY: frozenset[ids.HandlerId] = frozenset()
"""No handlers. Each separate empty set would take 216 bytes, several times per object."""


@dataclasses.dataclass(frozen=True, slots=True)
class Awaited:
    """Our change of an object that has not come back from the watch-stream yet."""

    version: str
    deadline: float  # loop time, after which the change is no longer awaited
    # The object in that version; None if it may be not the newest one.
    body: bodies.RawBody | None = None
    is_doubted: bool = False  # whether an older version has arrived after the deadline


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """The effect of the handlers' own changes: the handlers know it without being called."""

    ids: frozenset[ids.HandlerId]
    before: cycles.Essence  # the essence these handlers were called with
    after: cycles.Essence  # the essence after their changes were accepted


@dataclasses.dataclass(frozen=True, slots=True)
class Outbox:
    """
    Changes that remain to be sent: the last attempt failed or was refused for the known version.
    """

    patch: Mapping[str, Any]  # by the users' functions
    # By the users' functions, for a newer version of the object.
    fns: tuple[patches.AnyPatchFn, ...]
    own: Mapping[str, Any]  # our records; until accepted, they are treated as stored
    recorded: str | None  # a digest of the last handled state under these records
    makers: frozenset[ids.HandlerId] = NOBODY  # the finished handlers that made these changes
    seen: cycles.Essence | None = None  # the essence they were called with
    # The version for which the functions are always refused.
    refused: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CycleMemory:
    """The state of the object's cycles beyond the records on the object."""

    is_initial: bool = False  # existed before the operator started, and is not resumed yet
    # The resuming handlers finished so far, while the object is not resumed.
    resumed: frozenset[ids.HandlerId] = NOBODY
    # Whether all deletion handlers are finished, though our finalizer can still be present.
    is_released: bool = False
    version: str | None = None  # the last version made by this operator's cycles
    is_settled: bool = False  # whether there is nothing to do for that version
    own: Own | None = None  # the handlers' own changes, until they are recorded as handled
    # The essence seen by the first handlers, if it is too big to be recorded.
    base: cycles.Essence | None = None
    # The last handled state of this version, if several are served; otherwise it is on the object.
    handled: cycles.Essence | None = None

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
        """Return whether this version, or any since our last one, was made by other writers."""
        return self.version is None or not cycles.is_echo(self.version, str(version))


@dataclasses.dataclass(frozen=True, slots=True)
class Throttle:
    """
    The time until which an object is not processed after errors outside of handlers or refusals.
    """

    delays: throttlers.Throttler
    # Loop time; None if the errors are only counted and the object is processed as usual.
    until: float | None = None


NEW = CycleMemory()
INITIAL = CycleMemory(is_initial=True)
"""The initial states of objects created while the operator runs, and of objects older than it."""


@dataclasses.dataclass(slots=True)
class Memory:
    """
    The memory of one object. Its parts are replaced only by its worker, or by daemons where noted.
    """

    memo: Any
    cycle: CycleMemory = NEW
    awaited: Awaited | None = None
    outbox: Outbox | None = None
    throttle: Throttle | None = None
    # Set if the object was handled several times with no changes by other writers.
    breaker: breakers.Breaker | None = None
    refusals: int = 0  # how many times in a row our changes were based on an outdated version
    daemons: tasks.ObjectDaemons | None = None  # the daemons and timers, if there can be any
    level_states: levels.Levels | None = None  # of the level-triggered functions, if there are any

    @property
    def is_alive(self) -> bool:
        """Whether any daemon or timer that holds the deletion is still running."""
        return self.daemons is not None and self.daemons.is_alive

    def expect(self, version: str, deadline: float, body: bodies.RawBody | None = None) -> None:
        """
        Wait for this version unless a newer one is expected; daemons can patch objects at any time.
        """
        if self.awaited is None or not cycles.is_echo(self.awaited.version, version):
            self.awaited = Awaited(version, deadline, body)

    def choose_newest(self, body: bodies.RawBody, *, is_new: bool, now: float) -> bodies.RawBody:
        """
        Choose the newer state: the object as last received, or as returned for our own change.

        ``is_new`` means that the object was received just now.
        """
        awaited = self.awaited
        version = (body.get('metadata') or {}).get('resourceVersion')
        if awaited is None or cycles.is_echo(version, awaited.version):
            self.awaited = None
            return body

        is_older = bodies.is_older(version, awaited.version)
        is_trusted = now < awaited.deadline + TRUST_PERIOD
        if is_new and is_older and now > awaited.deadline:
            awaited = dataclasses.replace(awaited, is_doubted=True)
        if awaited.is_doubted and not is_trusted:  # the change will never arrive
            self.awaited = None
            return body

        if is_new and not is_older:
            awaited = dataclasses.replace(awaited, body=None)
        self.awaited = awaited
        return body if awaited.body is None else awaited.body

    def measure_mistrust(
        self, body: bodies.RawBody, known: bodies.RawBody, *, now: float
    ) -> float | None:
        """
        Return for how many more seconds the received state is ignored though our change is overdue.
        """
        if self.awaited is None or known is body or now <= self.awaited.deadline:
            return None
        return max(0.0, self.awaited.deadline + TRUST_PERIOD - now)


class Memories:
    """
    The memories of all known objects. Belongs to the event loop of the operator.

    Each version of a resource is a separate resource with its own memory of an object. Only the
    memo is shared between the versions.
    """

    def __init__(self) -> None:
        self._parts: dict[references.Resource | None, dict[Key, Memory]] = {}
        # The memories of objects being handled with no regard to other versions of the resource.
        self.alone: set[int] = set()
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
        return self.find(body, resource) is not None

    def find(
        self, body: bodies.RawBody | Mapping[str, Any], resource: references.Resource | None = None
    ) -> Memory | None:
        """Find the memory of an object; ``None`` if the object is not known."""
        return self.find_by_key(identify(body), resource)

    def find_by_key(self, key: Key, resource: references.Resource | None = None) -> Memory | None:
        """Find the memory of an object by its identifier."""
        part = self._parts.get(resource)
        return None if part is None else part.get(key)

    def recall(
        self,
        body: bodies.RawBody | Mapping[str, Any],
        resource: references.Resource | None = None,
        *,
        memo: Any,
        is_initial: bool = False,
    ) -> Memory:
        """Get the memory of an object, or create one with a copy of the operator's memo."""
        memory = self.find(body, resource)
        if memory is None:
            key = identify(body)
            twin = self._find(key)
            memory = Memory(
                copy.copy(memo) if twin is None else twin.memo,
                INITIAL if is_initial else NEW,
            )
            self._parts.setdefault(resource, {})[key] = memory

        return memory

    def find_memo(self, body: Mapping[str, Any]) -> Any | None:
        """
        Find the memo of an object under any version of its resource; ``None`` if there is none.
        """
        memory = self._find(identify(body))
        return None if memory is None else memory.memo

    def forget(
        self, body: bodies.RawBody | Mapping[str, Any], resource: references.Resource | None = None
    ) -> None:
        """Forget an object that no longer exists. Unknown objects are ignored."""
        self.forget_key(identify(body), resource)

    def forget_key(self, key: Key, resource: references.Resource | None = None) -> Memory | None:
        """Forget an object by its identifier, and return its memory, if any."""
        part = self._parts.get(resource)
        if part is None:
            return None
        memory = part.pop(key, None)
        if not part:
            del self._parts[resource]
        return memory

    def serve(self, resource: references.Resource) -> None:
        """Register a resource as served."""
        self._served.add(resource)
        versions = collections.Counter((served.group, served.plural) for served in self._served)
        self._versioned = frozenset(
            served for served in self._served if versions[served.group, served.plural] > 1
        )

    def has_versions(self, resource: references.Resource) -> bool:
        """Return whether the objects are served under other versions of this resource too."""
        # Usually there are no versions, and hashing a resource takes time.
        return bool(self._versioned) and resource in self._versioned

    def lock(self, key: Key) -> asyncio.Lock:
        """
        Get the lock of an object served under several versions, which are handled one at a time.
        """
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def is_handled_alone(self, key: Key) -> bool:
        """Return whether the object is being handled as if it had only one version."""
        return any(id(part[key]) in self.alone for part in self._parts.values() if key in part)

    def note_written(self, key: Key, version: str) -> None:
        """Record for all versions of the resource that this operator has changed the object."""
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
    """
    Return the uid of the object, or its kind and names if it has no uid, as in synthetic objects.
    """
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
