"""
Stream states: what a watch-stream does now, and which objects it has handed over.

For the stream itself, for the probes and the metrics.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any

from kopf._cogs.clients.watching import misfits, own_writes, watch_events


class Phase(enum.Enum):
    """The current activity of the stream."""

    IDLE = enum.auto()  # not begun yet
    LISTING = enum.auto()  # getting the current objects, by pages or in the stream
    CONNECTING = enum.auto()  # opening the connection for future changes
    CONNECTED = enum.auto()  # getting the changes
    PAUSING = enum.auto()  # between two connections, without errors
    WAITING = enum.auto()  # between two attempts, after a failure
    ENDED = enum.auto()  # no longer needed, or given up permanently


class Marker(enum.Enum):
    """A marker among the events."""

    # All existing objects are handed over, and the vanished ones are reported as deleted.
    LISTED = enum.auto()


Item = watch_events.RawEvent | Marker

Step = Iterator[watch_events.Change | Marker]
"""The changes found in one page or line. Each is remembered before the next one is requested."""


@dataclasses.dataclass
class StreamState:
    """
    The state of the stream, for probes and metrics, and the objects it has handed over.

    Changed only by the task that iterates over `stream_events`; other tasks can read it in the same
    event loop. All moments are by the loop's clock. If passed to the next stream of the same
    objects (e.g. after a pause), it lets that stream report the changes in between; used by one
    stream at a time.
    """

    phase: Phase = Phase.IDLE
    begun: float | None = None  # when the stream (possibly not the first one) began
    since: float | None = None  # when the phase began
    fed: float | None = None  # when the last page or line came, even a bookmark
    failing_since: float | None = None  # the first failure since it was last fed
    failures: int = 0  # in a row
    reconnects: int = 0  # of all kinds
    relists: int = 0  # all listings but the first
    error: Exception | None = None  # the last one ever
    is_listed: bool = False  # at least once
    version: str | None = None  # of the last list
    known: dict[watch_events.Key, watch_events.Seen] = dataclasses.field(default_factory=dict)
    unfit: misfits.Misfits = dataclasses.field(default_factory=misfits.Misfits)
    own: own_writes.OwnWrites = dataclasses.field(default_factory=own_writes.OwnWrites)

    def enter(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self.since = now

    def feed(self, now: float) -> None:
        self.fed = now
        self.failing_since = None

    def fail(self, error: Exception, now: float) -> None:
        self.error = error
        self.failures = self.failures + 1
        self.failing_since = now if self.failing_since is None else self.failing_since

    def remember(self, change: watch_events.Change) -> None:
        self.unfit.discard(change.key)
        if change.seen is None:
            self.known.pop(change.key, None)
        else:
            self.known[change.key] = change.seen

    def expect(self, body: Mapping[str, Any]) -> None:
        """Expect the object returned for our own change in the stream, unless it already came."""
        key, seen = watch_events.identify(body)
        known = self.known.get(key)
        is_released = body['metadata'].get('deletionTimestamp') and not body['metadata'].get(
            'finalizers'
        )
        # Released objects are deleted, and are shown with the version of their previous state.
        if known is not None and not is_released and _is_newer(seen.version, known.version):
            self.own.expect(body)


def _is_newer(version: str, other: str) -> bool:
    """Compare versions that are numbers; other versions are not comparable."""
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def describe(state: StreamState, now: float) -> dict[str, Any]:
    """
    Describe a stream for people and programs: in words, numbers, and seconds up to this moment of
    the loop's clock.

    Silence is the time since the last page or line, or since the beginning if there was none since
    then; while it is below ``watching.inactivity_timeout``, the stream is alive. ``failing`` is
    ``None`` if there are no failures.
    """
    moments = [moment for moment in (state.begun, state.fed) if moment is not None]
    return {
        'phase': state.phase.name.lower(),
        'lasts': _measure(state.since, now),
        'silence': _measure(max(moments, default=None), now),
        'failing': _measure(state.failing_since, now),
        'failures': state.failures,
        'reconnects': state.reconnects,
        'relists': state.relists,
        'is_listed': state.is_listed,
        'objects': len(state.known),
        'error': None if state.error is None else f'{type(state.error).__name__}: {state.error}',
    }


def _measure(since: float | None, now: float) -> float | None:
    return None if since is None else round(max(0.0, now - since), 3)
