"""
Health: whether an operator is alive and ready, judging by its streams and its event loop.

It is ready when it sees everything it should serve: all streams are listed and connected. If it is
not ready, it needs no restart, as it keeps trying. It is dead when something is wrong for so long
that a restart can help. These are decisions only; all times are by the clock of the event loop.
"""

import dataclasses
from collections.abc import Collection, Mapping

from kopf._cogs.clients import errors
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.configs import settings as settings_

DEATH_TIMEOUT = 600.0
"""Seconds for a failing or silent stream to recover by itself; then the operator is dead."""

_FAULTLESS = (
    stream_states.Phase.LISTING,
    stream_states.Phase.CONNECTING,
    stream_states.Phase.PAUSING,
)
"""The phases of a healthy stream, besides being connected."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of problems, in seconds."""

    silence: float  # of a connected stream
    death: float  # of any stream, with no bytes received
    lag: float | None  # of the event loop; ``None`` if any lag is fine


@dataclasses.dataclass(frozen=True)
class Vitals:
    """The state of an operator needed to determine its health."""

    now: float
    limits: Limits
    # The streams by their names.
    streams: Mapping[str, stream_states.StreamState] = dataclasses.field(default_factory=dict)
    # The optional streams by their names.
    observers: Mapping[str, stream_states.StreamState] = dataclasses.field(default_factory=dict)
    missing: Collection[str] = ()  # the names of streams that should exist, but do not
    # Other reasons for not being ready.
    obstacles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Pauses for other operators, which do not affect the readiness.
    pauses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Other information that does not affect the readiness.
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lag: float = 0.0  # of the event loop, in seconds


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of a report."""

    name: str
    is_fine: bool
    text: str
    is_notable: bool = False  # whether it is reported even if it is fine


def choose_limits(settings: settings_.OperatorSettings) -> Limits:
    """
    Choose the limits so that an operator has time to detect and repair all problems by itself.
    """
    inactivity = settings.watching.inactivity_timeout
    answering = settings.networking.request_timeout
    return Limits(
        silence=inactivity,
        death=max(inactivity, answering or 0) + DEATH_TIMEOUT,
        lag=settings.execution.blocking_limit,
    )


def find_deaths(vitals: Vitals) -> list[str]:
    """List the problems that require a restart of the operator; empty if it is alive."""
    streams = {**vitals.streams, **vitals.observers}
    deaths = [
        f'{name}: {text}'
        for name, state in streams.items()
        if (text := _describe_death(state, vitals))
    ]
    if vitals.limits.lag is not None and vitals.lag >= vitals.limits.lag:
        deaths.append(f'event loop: blocked for {vitals.lag:.1f} s')
    return deaths


def report_readiness(vitals: Vitals) -> list[Finding]:
    """List all findings about the readiness: the operator is ready if all of them are fine."""
    return [
        *(Finding(name, False, text) for name, text in vitals.obstacles.items()),
        *(Finding(name, True, text, is_notable=True) for name, text in vitals.pauses.items()),
        *(Finding(name, False, 'not begun yet') for name in vitals.missing),
        *(_inspect(name, state, vitals) for name, state in vitals.streams.items()),
        *(_inspect_observer(name, state, vitals) for name, state in vitals.observers.items()),
        *(Finding(name, True, text) for name, text in vitals.notes.items()),
    ]


def _describe_death(state: stream_states.StreamState, vitals: Vitals) -> str | None:
    """Describe why the stream is dead. A forbidden stream is not: restarts would not help."""
    if state.phase in (stream_states.Phase.IDLE, stream_states.Phase.ENDED):
        return None

    seen = stream_states.describe(state, vitals.now)
    failing = seen['failing'] or 0.0
    silence = seen['silence'] or 0.0
    if failing >= DEATH_TIMEOUT and not isinstance(state.error, errors.APIForbiddenError):
        return f'failing for {failing:.0f} s: {seen["error"]}'
    if silence >= vitals.limits.death and not failing:
        return f'silent for {silence:.0f} s while {seen["phase"]}'
    return None


def _inspect(name: str, state: stream_states.StreamState, vitals: Vitals) -> Finding:
    seen = stream_states.describe(state, vitals.now)
    is_silent = (seen['silence'] or 0.0) > vitals.limits.silence
    is_connected = state.phase is stream_states.Phase.CONNECTED and not is_silent
    is_faultless = state.phase in _FAULTLESS and state.failing_since is None
    trouble = (
        ''
        if state.failing_since is None
        else f', failing for {seen["failing"]:.0f} s: {seen["error"]}'
    )
    listed = f'{seen["objects"]} objects' if state.is_listed else 'not listed yet'
    text = f'{seen["phase"]}, {listed}, silent for {seen["silence"] or 0:.0f} s{trouble}'

    return Finding(name, state.is_listed and (is_connected or is_faultless), text)


def _inspect_observer(name: str, state: stream_states.StreamState, vitals: Vitals) -> Finding:
    """Inspect an optional stream; it is fine even if it was never permitted."""
    if state.is_listed:
        return _inspect(name, state, vitals)
    return Finding(name, True, 'not observed')
