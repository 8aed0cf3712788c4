"""
Correlation: which k8s-events to post, and how many times each of them has happened.

Equal reports about the same object are one k8s-event with a count. Objects that are reported too
often are rate-limited. Decisions and their memory only: callers know the time and do the posting.
All of it belongs to one event loop, and is limited in size.
"""

import collections
import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, TypeAlias

from kopf._cogs.clients import events
from kopf._cogs.configs import connecting

MEMORY = 4096
"""How many objects and how many different k8s-events are remembered: the most recent ones."""

Key: TypeAlias = tuple[str, ...]  # of an object
Fold: TypeAlias = tuple[Key, str, str, str]  # equal reports have the same fold


def identify(ref: Mapping[str, Any]) -> Key:
    """Return the key of an object, even if only a few of its fields are known."""
    fields = ('uid',) if ref.get('uid') else ('apiVersion', 'kind', 'namespace', 'name')
    return tuple(str(ref.get(field) or '') for field in fields)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A report about an object, to be posted as a k8s-event."""

    ref: Mapping[str, Any]
    type: str
    reason: str
    message: str
    time: datetime.datetime
    backoffs: connecting.Backoffs
    is_optional: bool = False

    @property
    def fold(self) -> Fold:
        return identify(self.ref), self.type, self.reason, self.message


@dataclasses.dataclass(slots=True)
class Pending:
    """A report that waits to be posted, with all its repetitions."""

    report: Report
    last: datetime.datetime
    count: int = 1


class Backlog:
    """The reports waiting to be posted, in the order of arrival, with repetitions folded."""

    def __init__(self) -> None:
        self._pending: dict[Fold, Pending] = {}
        self._folds: dict[Key, dict[Fold, None]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: Key) -> bool:
        return key in self._folds

    def put(self, report: Report) -> Key:
        """Add a report to those of its object; return the key of the object."""
        fold = report.fold
        key, *_ = fold
        pending = self._pending.get(fold)

        if pending is None:
            self._pending[fold] = Pending(report, report.time)
            self._folds.setdefault(key, {})[fold] = None
        else:
            pending.count += 1
            pending.last = max(pending.last, report.time)

        return key

    def take(self, key: Key) -> Pending | None:
        """Remove and return the oldest report of an object; ``None`` if there are no more."""
        fold = next(iter(self._folds.get(key, ())), None)
        return None if fold is None else self._remove(fold)

    def drop(self) -> int:
        """Drop the oldest report of all objects; return its number of repetitions."""
        return self._remove(next(iter(self._pending))).count

    def clear(self) -> int:
        """Drop all reports; return their number with repetitions."""
        count = sum(pending.count for pending in self._pending.values())
        self._pending.clear()
        self._folds.clear()
        return count

    def _remove(self, fold: Fold) -> Pending:
        key, *_ = fold
        del self._folds[key][fold]
        if not self._folds[key]:
            del self._folds[key]
        return self._pending.pop(fold)


TOLERANCE = 1e-6
"""By how much the remaining number may be short of one: differences of loop times are inexact."""


@dataclasses.dataclass(frozen=True, slots=True)
class Allowance:
    """The remaining k8s-events of an object: a burst at first, then one per interval."""

    remaining: float
    since: float  # when the remaining number was counted
    denied: int = 0  # how many were denied since the limit was last unused
    is_granted: bool = True


def draw(allowance: Allowance | None, *, now: float, burst: int, interval: float) -> Allowance:
    """Request to post a k8s-event; the result shows whether it is granted, and how many remain."""
    if allowance is None:
        return Allowance(burst - 1, now)
    remaining = min(burst, allowance.remaining + (now - allowance.since) / interval)
    if remaining < 1 - TOLERANCE:
        return dataclasses.replace(allowance, denied=allowance.denied + 1, is_granted=False)
    return Allowance(
        max(0, remaining - 1), now, denied=0 if remaining >= burst else allowance.denied
    )


@dataclasses.dataclass(slots=True, eq=False)
class Series:
    """One k8s-event with all its repetitions. Changed only by the worker of its object."""

    since: datetime.datetime  # of the first repetition not posted yet
    last: datetime.datetime
    fresh: int = 0  # the number of repetitions not posted yet
    told: int = 0  # the number of repetitions in the posted k8s-event
    posted: events.Posted | None = None

    def add(self, pending: Pending) -> None:
        self.since = self.since if self.fresh else pending.report.time
        self.fresh += pending.count
        self.last = max(self.last, pending.last)

    def build_new(self, report: Report) -> events.Event:
        """Build a k8s-event of the repetitions not posted yet."""
        return events.Event(
            report.ref,
            report.type,
            report.reason,
            report.message,
            self.since,
            self.last,
            self.fresh,
        )

    def build_repeated(self, report: Report) -> events.Event:
        """Build a k8s-event of all repetitions."""
        return dataclasses.replace(self.build_new(report), count=self.told + self.fresh)

    def renew(self, posted: events.Posted) -> None:
        """Record that a new k8s-event is posted."""
        self.posted = posted
        self.told = self.fresh
        self.fresh = 0

    def extend(self) -> None:
        """Record that the posted k8s-event includes all repetitions."""
        self.told = self.told + self.fresh
        self.fresh = 0


class History:
    """The recently posted k8s-events, and their rates."""

    def __init__(self, size: int = MEMORY) -> None:
        self._size = size
        self._series: collections.OrderedDict[Fold, Series] = collections.OrderedDict()
        self._allowances: collections.OrderedDict[Key, Allowance] = collections.OrderedDict()

    def add(self, pending: Pending) -> Series:
        """Remember a report; return the series with all its previous repetitions."""
        fold = pending.report.fold
        series = self._series.setdefault(fold, Series(pending.report.time, pending.last))
        series.add(pending)
        _keep_recent(self._series, fold, self._size)
        return series

    def draw(self, key: Key, *, now: float, burst: int, interval: float) -> Allowance:
        """Request to post a k8s-event of an object."""
        allowance = draw(self._allowances.get(key), now=now, burst=burst, interval=interval)
        self._allowances[key] = allowance
        _keep_recent(self._allowances, key, self._size)
        return allowance


def _keep_recent(items: collections.OrderedDict[Any, Any], key: Any, size: int) -> None:
    items.move_to_end(key)
    if len(items) > size:
        items.popitem(last=False)
