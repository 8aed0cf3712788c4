"""
Progression: the progress of an object's handlers between attempts, including restarts.

Values only: the states are read from the bodies and written to the patches; callers send the
patches. Records of other versions or damaged records never cause errors: unreadable values are
treated as absent.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from kopf._cogs.helpers import lazies, times
from kopf._cogs.structs import ids, objects
from kopf._core.actions import failures, outcomes

if TYPE_CHECKING:
    from kopf._cogs.configs import progress
    from kopf._cogs.structs import patches

_NO_SUBREFS: frozenset[ids.HandlerId] = frozenset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandlerState:
    """
    The progress of one handler in one handling cycle: blank if it was not tried yet.

    ``started`` is when the first attempt began; ``stopped``, when the last one ended; ``delayed``,
    when the next one is due, if not immediately. ``essence`` is the digest of the essence with
    which the handler has finished, if known.
    """

    started: datetime.datetime | None = None
    stopped: datetime.datetime | None = None
    delayed: datetime.datetime | None = None
    purpose: str | None = None
    retries: int = 0
    success: bool = False
    failure: bool = False
    message: str | None = None
    subrefs: frozenset[ids.HandlerId] = _NO_SUBREFS
    essence: str | None = None

    @classmethod
    def from_record(cls, record: 'progress.ProgressRecord') -> 'HandlerState':
        """Parse a stored record, made by this or another framework version."""
        raw = cast(Mapping[str, Any], record)
        return cls(
            started=times.parse_moment(raw.get('started')),
            stopped=times.parse_moment(raw.get('stopped')),
            delayed=times.parse_moment(raw.get('delayed')),
            purpose=_parse_text(raw.get('purpose')),
            retries=_parse_count(raw.get('retries')),
            success=raw.get('success') is True,
            failure=raw.get('failure') is True,
            message=_parse_text(raw.get('message')),
            subrefs=_parse_ids(raw.get('subrefs')),
            essence=_parse_text(raw.get('essence')),
        )

    def as_record(self) -> 'progress.ProgressRecord':
        """Build the record to store; absent values are `None`, except for the essence."""
        record: dict[str, Any] = {
            'started': _format_time(self.started),
            'stopped': _format_time(self.stopped),
            'delayed': _format_time(self.delayed),
            'purpose': self.purpose,
            'retries': self.retries,
            'success': self.success,
            'failure': self.failure,
            'message': self.message,
            'subrefs': sorted(self.subrefs) or None,
        }
        if self.finished and self.essence is not None:
            record['essence'] = self.essence
        return cast('progress.ProgressRecord', record)

    @property
    def finished(self) -> bool:
        return self.success or self.failure

    def sleeping(self, now: datetime.datetime) -> bool:
        """Return whether the next attempt is scheduled for later."""
        return not self.finished and self.delayed is not None and now < self.delayed

    def due(self, now: datetime.datetime) -> bool:
        """Return whether the next attempt is due now."""
        return not self.finished and not self.sleeping(now)

    def with_outcome(
        self,
        outcome: outcomes.Outcome,
        *,
        now: datetime.datetime,
        essence: str | None = None,
        purpose: str | None = None,
    ) -> 'HandlerState':
        """Add an attempt. If its times are unknown, it is considered to happen now."""
        ended = outcome.ended or now
        is_first = not self.retries or self.started is None
        return HandlerState(
            purpose=purpose or self.purpose,
            started=(outcome.began or now) if is_first else self.started,
            stopped=ended if outcome.final else None,
            delayed=_postpone(ended, outcome.delay)
            if outcome.delay and not outcome.final
            else None,
            retries=self.retries + 1,
            success=outcome.is_success,
            failure=outcome.is_failure,
            message=None if outcome.exception is None else failures.summarize(outcome.exception),
            subrefs=self.subrefs | outcome.subrefs,
            essence=essence if outcome.final else None,
        )


BLANK = HandlerState()
"""The progress of handlers that were never tried."""


class State(Mapping[ids.HandlerId, HandlerState]):
    """
    The progress of one object's handlers and their sub-handlers, by their ids.

    It is immutable. Unknown handlers are looked up in its source when they are needed.
    """

    def __init__(self, source: '_Source | None' = None, *, purpose: str | None = None) -> None:
        self._source = source
        self._purpose = purpose
        self._known: Mapping[ids.HandlerId, HandlerState] = {}
        self._stored: Mapping[ids.HandlerId, HandlerState] = {}
        self._foreign: frozenset[ids.HandlerId] = frozenset()

    @classmethod
    def read(
        cls,
        storage: 'progress.ProgressStorage',
        body: 'objects.Body',
        ids: Iterable[ids.HandlerId],
        *,
        purpose: str | None,
    ) -> 'State':
        """
        Read the records of these handlers and of their sub-handlers.

        With a purpose, records of other purposes are ignored: see `foreign`.
        """

        def fetch(id: Any) -> 'progress.ProgressRecord | None':
            return storage.fetch(key=id, body=body)

        return cls(fetch, purpose=purpose).including(ids)

    def __getitem__(self, id: ids.HandlerId, /) -> HandlerState:
        return self._known[id]

    def __iter__(self) -> Iterator[ids.HandlerId]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    if not TYPE_CHECKING:  # they are typed already; the generic ones of mappings are slow

        def get(self, id, default=None):
            return self._known.get(id, default)

        def items(self):
            return self._known.items()

        def values(self):
            return self._known.values()

    def __repr__(self) -> str:
        return f'{type(self).__name__}({dict(self._known)!r})'

    @property
    def purpose(self) -> str | None:
        return self._purpose

    @property
    def foreign(self) -> frozenset[ids.HandlerId]:
        """The handlers with records of other purposes, which are ignored."""
        return self._foreign

    @lazies.lazy
    def is_begun(self) -> bool:
        """Whether there is any past progress, of this purpose or of another one."""
        return bool(self._foreign) or any(
            state is not BLANK and state != BLANK for state in self._known.values()
        )

    def including(self, ids: Iterable[ids.HandlerId]) -> 'State':
        """Look up the unknown handlers with their sub-handlers; they are blank if never tried."""
        queue = [id for id in ids if id not in self._known]
        if not queue:
            return self

        known = dict(self._known)
        stored = dict(self._stored)
        foreign = set(self._foreign)

        while queue:
            id = queue.pop(0)
            record = self._source(id) if self._source is not None else None
            state = HandlerState.from_record(record) if record is not None else BLANK
            if record is not None:
                stored[id] = state
            if self._is_foreign(state):
                foreign.add(id)
            known[id] = BLANK if id in foreign else state
            if state.subrefs:
                queue.extend(
                    subref
                    for subref in sorted(state.subrefs)
                    if subref not in known and subref not in queue
                )

        return self._replace(known, stored, frozenset(foreign))

    def referring(self, id: ids.HandlerId, subref: ids.HandlerId) -> 'State':
        """
        Add a sub-reference to a handler; it is removed together with the handler's own record.
        """
        state = dataclasses.replace(self._known[id], subrefs=self._known[id].subrefs | {subref})
        return self._replace({**self._known, id: state}, self._stored, self._foreign)

    def forgetting(self, ids: Iterable[ids.HandlerId]) -> 'State':
        """Reset these handlers as if never tried; their stored records are ignored from now on."""
        dropped = frozenset(ids)
        if not dropped:
            return self
        known = {id: BLANK if id in dropped else state for id, state in self._known.items()}
        return self._replace(known, self._stored, self._foreign | dropped)

    def knowing(self, ids: Iterable[ids.HandlerId], *, before: str, after: str) -> 'State':
        """
        Mark these handlers as knowing the essence that they have made themselves.

        Handlers with no records have finished in a previous cycle: they need no call for their own
        changes.
        """
        extended = self.including(ids)
        known = dict(extended._known)
        for id in ids:
            state = known[id]
            if state == BLANK:
                known[id] = HandlerState(purpose=self._purpose, success=True, essence=after)
            elif state.finished and state.essence == before:
                known[id] = dataclasses.replace(state, essence=after)

        return extended._replace(known, extended._stored, extended._foreign)

    def with_outcomes(
        self,
        outcomes: Mapping[ids.HandlerId, outcomes.Outcome],
        *,
        now: datetime.datetime,
        essence: str | None = None,
    ) -> 'State':
        """
        Add the outcomes of one cycle; the finished handlers remember the digest of the essence.

        Restarted handlers still refer to all their previous sub-handlers, so that these are purged
        at the end.
        """
        subrefs = [subref for outcome in outcomes.values() for subref in sorted(outcome.subrefs)]
        extended = self.including([*outcomes, *subrefs])
        updated = {
            id: extended[id].with_outcome(
                extended._with_past_subrefs(id, outcome),
                now=now,
                essence=essence,
                purpose=self._purpose,
            )
            for id, outcome in outcomes.items()
        }

        return extended._replace(
            {**extended._known, **updated}, extended._stored, extended._foreign
        )

    def is_due(self, id: ids.HandlerId, now: datetime.datetime) -> bool:
        """Return whether the handler is due now, or is unknown."""
        return id not in self._known or self._known[id].due(now)

    def is_retried(self, id: ids.HandlerId) -> bool:
        """Return whether the handler was tried, but is not finished."""
        state = self._get(id)
        return state.retries > 0 and not state.finished

    def delay(self, ids: Iterable[ids.HandlerId], now: datetime.datetime) -> float | None:
        """
        Return the seconds until the first unfinished handler is due; `None` if there are none.
        """
        states = [self._known.get(id, BLANK) for id in ids]
        moments = [state.delayed or now for state in states if not state.finished]
        return max(0.0, (min(moments) - now).total_seconds()) if moments else None

    def subrefs_of(self, id: ids.HandlerId) -> frozenset[ids.HandlerId]:
        """Return all sub-handlers that the handler has or had in this cycle, at any depth."""
        found: set[ids.HandlerId] = set()
        queue = [id]
        while queue:
            current = queue.pop()
            subrefs = self._get(current).subrefs | self._get_stored(current).subrefs
            queue.extend(subrefs - found)
            found |= subrefs

        return frozenset(found)

    def store(
        self, storage: 'progress.ProgressStorage', body: 'objects.Body', patch: 'patches.Patch'
    ) -> None:
        """Add to the patch the records that differ from those in the body."""
        for id in self._list_changed():
            storage.store(key=id, record=self._known[id].as_record(), body=body, patch=patch)

    def _replace(
        self,
        known: Mapping[ids.HandlerId, HandlerState],
        stored: Mapping[ids.HandlerId, HandlerState],
        foreign: frozenset[ids.HandlerId],
    ) -> 'State':
        state = State(self._source, purpose=self._purpose)
        state._known = known
        state._stored = stored
        state._foreign = foreign
        return state

    def _with_past_subrefs(self, id: ids.HandlerId, outcome: outcomes.Outcome) -> outcomes.Outcome:
        past = self._get_stored(id).subrefs
        return dataclasses.replace(outcome, subrefs=outcome.subrefs | past) if past else outcome

    def _is_foreign(self, state: HandlerState) -> bool:
        return (
            self._purpose is not None
            and state.purpose is not None
            and state.purpose != self._purpose
        )

    def _list_changed(self) -> list[ids.HandlerId]:
        return [
            id for id, state in self._known.items() if state not in (self._get_stored(id), BLANK)
        ]

    def _get(self, id: ids.HandlerId) -> HandlerState:
        return self._known.get(id, BLANK)

    def _get_stored(self, id: ids.HandlerId) -> HandlerState:
        return self._stored.get(id, BLANK)


if TYPE_CHECKING:
    _Source = Callable[[ids.HandlerId], progress.ProgressRecord | None]


def _postpone(moment: datetime.datetime, delay: float) -> datetime.datetime:
    try:
        return moment + datetime.timedelta(seconds=delay)
    except (OverflowError, ValueError):  # e.g. infinity: never, for all practical purposes
        return datetime.datetime.max.replace(tzinfo=datetime.UTC)


def _format_time(moment: datetime.datetime | None) -> str | None:
    return (
        None
        if moment is None
        else moment.astimezone(datetime.UTC).isoformat(timespec='microseconds')
    )


def _parse_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _parse_count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _parse_ids(value: Any) -> frozenset[ids.HandlerId]:
    values = value if isinstance(value, list | tuple) else ()
    return frozenset(ids.HandlerId(item) for item in values if isinstance(item, str))
