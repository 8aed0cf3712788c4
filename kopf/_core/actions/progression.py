"""
Progression: how far the handlers of an object have gone, from one attempt to another, restarts included.

Values only: the states are read from the bodies, and are put into the patches; it is up to others to send them.
What was left there by other versions, or is damaged, never fails: what cannot be understood is as if absent.
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

    ``started`` is when the first attempt began; ``stopped``, when the last one ended; ``delayed``, when the next one
    is due, if not at once. ``essence`` is a digest of what the handler has finished with, if known.
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
        """Read what is stored, by us or by others."""
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
        """Build what is to be stored; absent values are `None`, except for the essence."""
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
        """Tell if the next attempt is to be made later."""
        return not self.finished and self.delayed is not None and now < self.delayed

    def due(self, now: datetime.datetime) -> bool:
        """Tell if the next attempt is to be made now."""
        return not self.finished and not self.sleeping(now)

    def with_outcome(
        self,
        outcome: outcomes.Outcome,
        *,
        now: datetime.datetime,
        essence: str | None = None,
        purpose: str | None = None,
    ) -> 'HandlerState':
        """Add one more attempt. What it does not tell of the time has happened right now."""
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
"""The progress of those who were never tried."""


class State(Mapping[ids.HandlerId, HandlerState]):
    """
    The progress of the handlers of one object, by their ids: of those asked for, and of their sub-handlers.

    It never changes. Handlers that it does not know are looked up where it was read from when they are needed.
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
        Read the records of these handlers, and of their sub-handlers.

        With a purpose, records of other purposes are left out, as if there were none: see `foreign`.
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

    if not TYPE_CHECKING:  # they are typed already; those of mappings in general are slow

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
        """The handlers with records of other purposes, of no use now."""
        return self._foreign

    @lazies.lazy
    def is_begun(self) -> bool:
        """Whether there is any progress of the past, of this purpose or of another one."""
        return bool(self._foreign) or any(
            state is not BLANK and state != BLANK for state in self._known.values()
        )

    def including(self, ids: Iterable[ids.HandlerId]) -> 'State':
        """Look up the handlers that are not known yet, with their sub-handlers: they are blank if never tried."""
        queue = [id for id in ids if id not in self._known]
        if not queue:
            return self
        known, stored, foreign = dict(self._known), dict(self._stored), set(self._foreign)
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
        """Let one handler have one more part, which goes when the handler's own record goes."""
        state = dataclasses.replace(self._known[id], subrefs=self._known[id].subrefs | {subref})
        return self._replace({**self._known, id: state}, self._stored, self._foreign)

    def forgetting(self, ids: Iterable[ids.HandlerId]) -> 'State':
        """Let these handlers be as if never tried; what is stored of them is of no use any more."""
        dropped = frozenset(ids)
        if not dropped:
            return self
        known = {id: BLANK if id in dropped else state for id, state in self._known.items()}
        return self._replace(known, self._stored, self._foreign | dropped)

    def knowing(self, ids: Iterable[ids.HandlerId], *, before: str, after: str) -> 'State':
        """
        Let these handlers know an essence that they have made themselves of the one that they were called with.

        Those with no records have finished in a previous cycle: they need no call for what they have made.
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
        Add the outcomes of one cycle. With them, finished handlers remember the digest of the essence.

        Those who begin anew still refer to all their sub-handlers of before, so that those are purged in the end.
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
        """Tell if the handler is to be tried now; unknown ones are."""
        return id not in self._known or self._known[id].due(now)

    def is_retried(self, id: ids.HandlerId) -> bool:
        """Return whether the handler was tried, and is not finished."""
        state = self._get(id)
        return state.retries > 0 and not state.finished

    def delay(self, ids: Iterable[ids.HandlerId], now: datetime.datetime) -> float | None:
        """Tell in how many seconds the earliest of the unfinished handlers is due; `None` if all are finished."""
        states = [self._known.get(id, BLANK) for id in ids]
        moments = [state.delayed or now for state in states if not state.finished]
        return max(0.0, (min(moments) - now).total_seconds()) if moments else None

    def subrefs_of(self, id: ids.HandlerId) -> frozenset[ids.HandlerId]:
        """Tell which sub-handlers the handler has or had in this cycle, and those have, at any depth."""
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
        """Put into the patch the records that differ from those in the body."""
        for id in self._list_changed():
            storage.store(key=id, record=self._known[id].as_record(), body=body, patch=patch)

    def _replace(
        self,
        known: Mapping[ids.HandlerId, HandlerState],
        stored: Mapping[ids.HandlerId, HandlerState],
        foreign: frozenset[ids.HandlerId],
    ) -> 'State':
        state = State(self._source, purpose=self._purpose)
        state._known, state._stored, state._foreign = known, stored, foreign
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
    except (OverflowError, ValueError):  # such as of an infinity: never, for all practical purposes
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
