"""
Inventory: what is remembered of each object while it exists, and nothing of the others.

A memory is all that an object costs between its cycles. It is lost with the process: what must survive, is on
the object.
"""
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NewType

from kopf._cogs.structs import bodies, ids, patches
from kopf._core.actions import throttlers
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


@dataclasses.dataclass(slots=True)
class Awaited:
    """A change of ours that has not come back from the cluster yet."""
    version: str
    deadline: float  # loop time, after which it is not waited for
    body: bodies.RawBody | None = None  # of that version; None if it is not known to be the newest one
    is_doubted: bool = False  # has anything older come, though it is too late for that?


@dataclasses.dataclass(slots=True)
class Unrecorded:
    """What handlers were called with, until it is recorded on the object."""
    essence: cycles.Essence
    old: bodies.BodyEssence | None  # what was recorded before it
    is_complete: bool = False  # are all of the handlers finished?
    is_unfit: bool = False  # is it too big to be recorded before the cycle ends?


@dataclasses.dataclass(slots=True)
class Memory:
    """What is remembered of one object. Changed only by its worker, or by its daemons if it is said so."""
    memo: Any
    is_initial: bool = False  # existed before the operator, and is not resumed yet
    resumed: frozenset[ids.HandlerId] = NOBODY  # the resuming handlers done so far, while it is not resumed
    recorded: frozenset[ids.HandlerId] = NOBODY  # those with records in the current cycle, be it not seen yet
    is_released: bool = False  # all deletion handlers are finished, though our finalizer can be still there
    awaited: Awaited | None = None
    settled: str | None = None  # the version of it with nothing to do, made by our own last change
    fns: tuple[patches.PatchFn, ...] = ()  # refused by the cluster for an outdated version; to be applied anew
    unsent: dict[str, Any] | None = None  # the rest of the users' patch, if it is not known to be accepted or refused
    records: dict[str, Any] | None = None  # of ours, that all of this is done; they wait for the functions
    unrecorded: Unrecorded | None = None
    refusals: int = 0  # how many times in a row the known version was outdated for our changes
    lives: lives_.Lives | None = None  # the daemons and timers, if there can be any
    throttler: throttlers.Throttler | None = None  # if there were errors beyond handlers
    throttled: float | None = None  # loop time, until which it is left alone after them

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
        awaited.is_doubted = awaited.is_doubted or (is_new and is_older and now > awaited.deadline)
        if awaited.is_doubted and not is_trusted:  # it will never come
            self.awaited = None
            return body
        if is_new and not is_older:
            awaited.body = None
        return body if awaited.body is None else awaited.body

    def measure_mistrust(self, body: bodies.RawBody, known: bodies.RawBody, *, now: float) -> float | None:
        """Tell for how many seconds the object, as it came, will not be believed though our change is not coming."""
        if self.awaited is None or known is body or now <= self.awaited.deadline:
            return None
        return max(0.0, self.awaited.deadline + TRUST_PERIOD - now)


class Memories:
    """All objects that exist, as far as it is known. Belongs to the event loop of the operator."""

    def __init__(self) -> None:
        self._memories: dict[Key, Memory] = {}

    def __len__(self) -> int:
        return len(self._memories)

    def __iter__(self) -> Iterator[Memory]:
        return iter(self._memories.values())

    def is_known(self, body: bodies.RawBody | Mapping[str, Any]) -> bool:
        return identify(body) in self._memories

    def recall(self, body: bodies.RawBody | Mapping[str, Any], *, memo: Any, is_initial: bool = False) -> Memory:
        """Get the memory of an object, or begin a new one, with a copy of the operator's memo."""
        key = identify(body)
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = Memory(copy.copy(memo), is_initial=is_initial)
        return memory

    def forget(self, body: bodies.RawBody | Mapping[str, Any]) -> None:
        """Forget an object that exists no more. It is harmless to forget the unknown ones."""
        self.forget_key(identify(body))

    def forget_key(self, key: Key) -> Memory | None:
        """The same, if only its identifier is known; returns what was remembered, if anything."""
        return self._memories.pop(key, None)


def identify(body: bodies.RawBody | Mapping[str, Any]) -> Key:
    """Tell which object it is, by its uid; by its kind and names if there is none, as in made-up objects."""
    metadata: Mapping[str, Any] = body.get('metadata') or {}
    uid = metadata.get('uid')
    if uid:
        return Key(str(uid))
    names = (body.get('apiVersion'), body.get('kind'), metadata.get('namespace'), metadata.get('name'))
    return Key('/'.join(str(name or '') for name in names))
