"""
Healths: whether an operator is alive, and whether it is ready, judged by its streams and by its event loop.

It is ready when it sees all that it should serve: all streams are listed and connected. When it does not, there is no
need to restart it, as it goes on trying. It is dead when something is wrong for so long that a restart can help.
These are decisions only; all moments are of the clock of the event loop.
"""

import dataclasses
from collections.abc import Collection, Mapping

from kopf._cogs.clients import errors, watching
from kopf._cogs.configs import settings as settings_

DEATH_TIMEOUT = 600.0
"""Seconds in which a failing or silent stream is expected to recover by itself; then the operator is dead."""

_FAULTLESS = (watching.Phase.LISTING, watching.Phase.CONNECTING, watching.Phase.PAUSING)
"""What a stream does now and then if nothing is wrong, besides being connected."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """For how long, in seconds, things can be wrong."""

    silence: float  # of a connected stream
    death: float  # of any stream, with no bytes
    lag: float | None  # of the event loop; ``None`` if any lag is fine


@dataclasses.dataclass(frozen=True)
class Vitals:
    """All that is to be known of an operator to tell its health."""

    now: float
    limits: Limits
    streams: Mapping[str, watching.StreamState] = dataclasses.field(
        default_factory=dict
    )  # by their names
    observers: Mapping[str, watching.StreamState] = dataclasses.field(
        default_factory=dict
    )  # the same, but optional
    missing: Collection[str] = ()  # the names of streams that should be there, but are not
    obstacles: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # what else prevents from being ready
    pauses: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # for other operators, which does not
    notes: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # what does not, but is good to know
    lag: float = 0.0  # of the event loop, in seconds


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of a report."""

    name: str
    is_fine: bool
    text: str
    is_notable: bool = False  # is it told of even if it is fine?


def choose_limits(settings: settings_.OperatorSettings) -> Limits:
    """Choose the limits so that an operator is given time to notice and to repair everything by itself."""
    inactivity, answering = (
        settings.watching.inactivity_timeout,
        settings.networking.request_timeout,
    )
    return Limits(
        silence=inactivity,
        death=max(inactivity, answering or 0) + DEATH_TIMEOUT,
        lag=settings.execution.blocking_limit,
    )


def find_deaths(vitals: Vitals) -> list[str]:
    """Tell what is wrong for so long that the operator should be restarted; nothing if it is alive."""
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
    """Tell of everything that matters to the readiness: the operator is ready if everything is fine."""
    return [
        *(Finding(name, False, text) for name, text in vitals.obstacles.items()),
        *(Finding(name, True, text, is_notable=True) for name, text in vitals.pauses.items()),
        *(Finding(name, False, 'not begun yet') for name in vitals.missing),
        *(_inspect(name, state, vitals) for name, state in vitals.streams.items()),
        *(_inspect_observer(name, state, vitals) for name, state in vitals.observers.items()),
        *(Finding(name, True, text) for name, text in vitals.notes.items()),
    ]


def _describe_death(state: watching.StreamState, vitals: Vitals) -> str | None:
    """Tell why the stream is dead. If it is only not permitted, restarts would not help: it is alive, but not ready."""
    if state.phase in (watching.Phase.IDLE, watching.Phase.ENDED):
        return None
    seen = watching.describe(state, vitals.now)
    failing, silence = seen['failing'] or 0.0, seen['silence'] or 0.0
    if failing >= DEATH_TIMEOUT and not isinstance(state.error, errors.APIForbiddenError):
        return f'failing for {failing:.0f} s: {seen["error"]}'
    if silence >= vitals.limits.death and not failing:
        return f'silent for {silence:.0f} s while {seen["phase"]}'
    return None


def _inspect(name: str, state: watching.StreamState, vitals: Vitals) -> Finding:
    seen = watching.describe(state, vitals.now)
    is_silent = (seen['silence'] or 0.0) > vitals.limits.silence
    is_connected = state.phase is watching.Phase.CONNECTED and not is_silent
    is_faultless = state.phase in _FAULTLESS and state.failing_since is None
    trouble = (
        ''
        if state.failing_since is None
        else f', failing for {seen["failing"]:.0f} s: {seen["error"]}'
    )
    listed = f'{seen["objects"]} objects' if state.is_listed else 'not listed yet'
    text = f'{seen["phase"]}, {listed}, silent for {seen["silence"] or 0:.0f} s{trouble}'
    return Finding(name, state.is_listed and (is_connected or is_faultless), text)


def _inspect_observer(name: str, state: watching.StreamState, vitals: Vitals) -> Finding:
    """Tell of a stream that the operator can do without, if it was never permitted."""
    if state.is_listed:
        return _inspect(name, state, vitals)
    return Finding(name, True, 'not observed')
