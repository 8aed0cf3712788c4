"""
Positions: where a watch-stream is, from the attempt to the attempt.

A position is private to its stream; everything that others may know is in the state of the stream.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from kopf._cogs.clients import requests
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.helpers import meters
from kopf._cogs.structs import references

Pace = Callable[[], Awaitable[None]]
"""A function that delays the next page of a listing until the previous ones are handled."""


@dataclasses.dataclass
class Position:
    """The current position of the stream. Changed by the same task as its state."""

    resource: references.Resource
    namespace: references.Namespace
    context: requests.Context
    state: stream_states.StreamState
    version: str | None = None  # to watch from; None if unknown, so that a listing is needed
    opened: float | None = None  # when the current connection was accepted
    is_admitted: bool = False  # whether any connection was ever accepted
    is_fruitful: bool = False  # whether anything came in the current connection
    is_doubtful: bool = False  # whether the server was lost since the version was known to be good
    # Whether the server refuses to send the initial objects in the stream.
    is_streaming_refused: bool = False
    pace: Pace | None = None

    def __str__(self) -> str:
        where = 'the cluster' if self.namespace is None else f'the namespace {self.namespace!r}'
        return f'{self.resource!r} in {where}'

    @property
    def flow(self) -> meters.Flow:
        return self.context.meter.flows[repr(self.resource)]

    @property
    def is_streaming(self) -> bool:
        """Whether the objects are received in the stream itself, now or next."""
        is_wanted = self.context.settings.watching.initial_streaming
        return self.version is None and is_wanted and not self.is_streaming_refused

    def enter(self, phase: stream_states.Phase) -> None:
        self.state.enter(phase, read_clock())

    def feed(self) -> None:
        self.is_fruitful = True
        self.state.feed(read_clock())


def read_clock() -> float:
    return asyncio.get_running_loop().time()
