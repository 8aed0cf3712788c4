"""
Metrics: all counters of an operator, in the format of Prometheus.

Everything is collected on request, from the plain numbers of meters and from the current state of
the operator. The default registry of the library is exposed too: it has the users' own metrics, and
those of the process. The labels contain resources, handlers, and indices, but never objects or
namespaces: their number is unlimited. All names are listed in the documentation, with their
meaning.
"""

import collections
import dataclasses
import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import core, exposition, registry
from typing_extensions import override

from kopf._cogs.aiokits import pulses
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.helpers import meters, versions
from kopf._core.engines.daemons import daemon_tasks, tasks
from kopf._core.engines.indexing import indices
from kopf._core.engines.peering import keepalive
from kopf._core.engines.reconciling import stores

logger = logging.getLogger(__name__)

Sample = tuple[Sequence[str], float]
Family = core.Metric


@dataclasses.dataclass(frozen=True)
class Sources:
    """The sources of the numbers; all of them belong to one event loop."""

    meter: meters.Meter
    pulse: pulses.Pulse
    indices: Mapping[str, indices.LiveIndex]
    get_streams: Callable[
        [], Iterable[tuple[str, stream_states.StreamState]]
    ]  # with their resources
    get_daemons: Callable[[], Iterable[tasks.SpawnedTask[Any]]]
    # The scopes of the peerings that currently cause pauses.
    get_pauses: Callable[[], Iterable[str]]
    clock: Callable[[], float]  # of the event loop
    # The Lease of the election, and whether this replica leads; None without an election.
    get_leadership: Callable[[], tuple[str, bool] | None] = lambda: None
    # The stores of the reconciled, owned and watched resources.
    stored: Iterable[stores.Store] = ()
    mapping_errors: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by functions


OPENMETRICS = 'application/openmetrics-text'

REST = 10
"""
The metrics are cached for this many times the duration of their collection: dozens of milliseconds.
"""


class Exposition:
    """The metrics of one operator, separate from other operators, with those of the process."""

    def __init__(
        self,
        sources: Sources,
        clock: Callable[[], float] = time.monotonic,
        common: registry.Collector = registry.REGISTRY,
    ) -> None:
        self._collector = _Joint(_Collector(sources), common)
        self._clock = clock
        # By content type, with the time until which it is valid.
        self._written: dict[str, tuple[bytes, float]] = {}

    def expose(self, accepted: str = '') -> tuple[bytes, str]:
        """
        Encode all metrics in the best format that the client accepts; return the content type too.

        If requested again immediately, the same metrics are returned: this limits the share of time
        that they take.
        """
        encode, content_type = exposition.choose_encoder(_choose_format(accepted))
        since = self._clock()
        written, until = self._written.get(content_type, (b'', since))

        if since >= until:
            written = encode(self._collector)
            until = self._clock() + REST * (self._clock() - since)
            self._written[content_type] = (written, until)

        return written, content_type


def _choose_format(accepted: str) -> str:
    """
    Choose one of the two formats.

    Other parameters of the accepted types, such as versions, are ignored: their number is
    unlimited, and each would be collected and cached separately.
    """
    formats = [part.partition(';')[0].strip() for part in accepted.split(',')]
    return OPENMETRICS if OPENMETRICS in formats else ''


class _Joint(registry.Collector):
    """
    Our own metrics, and those of the users.

    Names are not repeated, as the whole page would be refused. Errors in the users' metrics do not
    affect ours.
    """

    def __init__(self, own: registry.Collector, common: registry.Collector) -> None:
        self._own = own
        self._common = common

    @override
    def collect(self) -> Iterator[Family]:
        known: set[str] = set()
        for family in self._own.collect():
            known.add(family.name)
            yield family

        try:
            for family in self._common.collect():
                if family.name not in known:
                    known.add(family.name)
                    yield family
        except Exception as error:
            logger.error('Some metrics of the default registry are not exposed: %r', error)


class _Collector(registry.Collector):
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @override
    def collect(self) -> Iterator[Family]:
        sources = self._sources
        yield core.InfoMetricFamily(
            'kopf_build',
            'What this operator is run by.',
            value={'version': versions.version, 'python': platform.python_version()},
        )
        yield from _collect_flows(sources.meter.flows)
        yield from _collect_attempts(sources.meter.attempts)
        yield _count(
            'kopf_conversion_errors',
            'Calls of handlers that were not made, as the objects do not fit their types.',
            ['resource'],
            [([name], count) for name, count in sources.meter.conversion_errors.items()],
        )
        yield from _collect_calls(sources.meter.calls)
        yield from _collect_streams(list(sources.get_streams()), sources.clock())
        yield from _collect_daemons(sources.get_daemons())
        yield from _collect_indices(sources.indices)
        yield from _collect_stores(sources.stored, sources.mapping_errors)
        yield from _collect_pauses(sources.meter.pauses, sources.get_pauses())
        yield from _collect_pulse(sources.pulse)
        yield from _collect_leadership(sources.get_leadership())


def _collect_flows(flows: Mapping[str, meters.Flow]) -> Iterator[Family]:
    yield _count(
        'kopf_events_received',
        'Events that have come in the watch-streams, the initial ones included.',
        ['resource', 'type'],
        [
            ([name, (type or 'initial').lower()], number)
            for name, flow in flows.items()
            for type, number in flow.events.items()
        ],
    )
    yield _count(
        'kopf_cycles',
        'Cycles of handling: an object is looked at, and all that is due for it is done.',
        ['resource', 'outcome'],
        [
            ([name, outcome], number)
            for name, flow in flows.items()
            for outcome, number in flow.cycles.items()
        ],
    )
    yield _distribute(
        'kopf_cycle_duration_seconds',
        'How long the cycles took.',
        ['resource'],
        {name: flow.durations for name, flow in flows.items()},
    )
    yield _distribute(
        'kopf_queue_wait_seconds',
        'How long events, or planned cycles, waited for their workers.',
        ['resource'],
        {name: flow.waits for name, flow in flows.items()},
    )

    for title, text, measure in _BACKLOGS:
        yield _gauge(
            title,
            text,
            ['resource'],
            [([name], sum(map(measure, flow.backlogs))) for name, flow in flows.items()],
        )

    yield _count(
        'kopf_breaker_pauses',
        'How many times objects were slowed down, as they were handled in circles.',
        ['resource'],
        [([name], flow.loops) for name, flow in flows.items()],
    )
    yield _count(
        'kopf_misfit_objects',
        'How many times objects came that cannot be handled, and are left alone.',
        ['resource'],
        [([name], flow.misfits) for name, flow in flows.items()],
    )
    for title, text, count in _STREAMS:
        yield _count(
            title, text, ['resource'], [([name], count(flow)) for name, flow in flows.items()]
        )


_BACKLOGS: list[tuple[str, str, Callable[[meters.Backlog], int]]] = [
    ('kopf_queue_depth', 'Objects that wait for their workers.', lambda backlog: backlog.waiting),
    ('kopf_workers_busy', 'Objects that are being handled.', lambda backlog: backlog.working),
    (
        'kopf_retries_pending',
        'Objects that wait for the time of their retries or other planned cycles.',
        lambda backlog: backlog.pending,
    ),
]

_STREAMS: list[tuple[str, str, Callable[[meters.Flow], int]]] = [
    (
        'kopf_stream_reconnects',
        'How many times the watch-streams were reconnected.',
        lambda flow: flow.reconnects,
    ),
    (
        'kopf_stream_relists',
        'How many times the objects were listed again.',
        lambda flow: flow.relists,
    ),
    (
        'kopf_stream_failures',
        'How many times the watch-streams have failed.',
        lambda flow: flow.failures,
    ),
]


def _collect_attempts(handlers: Mapping[str, meters.Attempts]) -> Iterator[Family]:
    yield _count(
        'kopf_handler_runs',
        'Attempts of handlers; those that were interrupted are not counted.',
        ['handler', 'outcome'],
        [
            ([name, outcome], number)
            for name, attempts in handlers.items()
            for outcome, number in attempts.outcomes.items()
        ],
    )
    yield _distribute(
        'kopf_handler_duration_seconds',
        'How long the attempts of handlers took.',
        ['handler'],
        {name: attempts.durations for name, attempts in handlers.items()},
    )


def _collect_calls(verbs: Mapping[str, meters.Calls]) -> Iterator[Family]:
    yield _count(
        'kopf_api_requests',
        'Requests to the API that were answered or have failed, retries included.',
        ['verb', 'code'],
        [
            ([verb, str(code)], number)
            for verb, calls in verbs.items()
            for code, number in calls.answers.items()
        ],
    )
    yield _distribute(
        'kopf_api_request_duration_seconds',
        'How long the requests took; for watches, to their start.',
        ['verb'],
        {verb: calls.durations for verb, calls in verbs.items()},
    )
    yield _count(
        'kopf_api_throttled_requests',
        'Requests that had to wait for their turn before they were made.',
        ['verb'],
        [([verb], calls.throttled) for verb, calls in verbs.items()],
    )
    yield _count(
        'kopf_api_throttled_seconds',
        'How long the requests waited for their turn, in total.',
        ['verb'],
        [([verb], calls.waits) for verb, calls in verbs.items()],
    )


def _collect_streams(
    streams: Sequence[tuple[str, stream_states.StreamState]], now: float
) -> Iterator[Family]:
    phases: collections.Counter[tuple[str, str]] = collections.Counter()
    silences: dict[str, float] = {}
    objects: collections.Counter[str] = collections.Counter()

    for name, state in streams:
        phases.update(
            {(name, phase.name.lower()): int(phase is state.phase) for phase in stream_states.Phase}
        )
        if state.phase not in (stream_states.Phase.IDLE, stream_states.Phase.ENDED):
            silences[name] = max(
                silences.get(name, 0.0), stream_states.describe(state, now)['silence'] or 0.0
            )
        objects[name] += len(state.known)

    yield _gauge(
        'kopf_streams',
        'Watch-streams by what they are doing.',
        ['resource', 'phase'],
        phases.items(),
    )
    yield _gauge(
        'kopf_stream_silence_seconds',
        'How long nothing has come, not even a bookmark; of the worst stream.',
        ['resource'],
        [([name], silence) for name, silence in silences.items()],
    )
    yield _gauge(
        'kopf_objects',
        'Objects that are known to exist.',
        ['resource'],
        [([name], number) for name, number in objects.items()],
    )


def _collect_daemons(running: Iterable[tasks.SpawnedTask[Any]]) -> Iterator[Family]:
    daemons: collections.Counter[str] = collections.Counter()
    timers: collections.Counter[str] = collections.Counter()
    for task in running:
        (daemons if isinstance(task, daemon_tasks.DaemonTask) else timers)[task.handler.id] += 1
    yield _gauge(
        'kopf_daemons_running',
        'Daemons that live beside objects.',
        ['handler'],
        [([name], number) for name, number in daemons.items()],
    )
    yield _gauge(
        'kopf_timers_running',
        'Timers that live beside objects, be they called now or not.',
        ['handler'],
        [([name], number) for name, number in timers.items()],
    )


def _collect_indices(live: Mapping[str, indices.LiveIndex]) -> Iterator[Family]:
    yield _gauge(
        'kopf_index_keys',
        'Keys in the indices.',
        ['index'],
        [([name], len(index)) for name, index in live.items()],
    )
    yield _gauge(
        'kopf_index_objects',
        'Objects in the indices.',
        ['index'],
        [([name], index.objects) for name, index in live.items()],
    )


def _collect_stores(
    all_stores: Iterable[stores.Store], mapping_errors: Mapping[str, int]
) -> Iterator[Family]:
    known = [([repr(store.resource)], store) for store in all_stores]
    yield _gauge(
        'kopf_stored_objects',
        'Objects that are kept in memory for level-triggered functions.',
        ['resource'],
        [(labels, len(store)) for labels, store in known],
    )
    yield _gauge(
        'kopf_stored_bytes',
        'The packed size of these objects.',
        ['resource'],
        [(labels, store.size) for labels, store in known],
    )
    yield _count(
        'kopf_mapping_errors',
        'How many times the functions that map watched objects to reconciled ones have failed.',
        ['function'],
        [([name], number) for name, number in mapping_errors.items()],
    )


def _collect_pauses(
    begun: Mapping[tuple[str, str], int], pausing: Iterable[str]
) -> Iterator[Family]:
    yield _count(
        'kopf_peering_pauses',
        'How many times the operator, or its part, has paused because of its peerings.',
        ['scope', 'reason'],
        begun.items(),
    )
    now = collections.Counter(pausing)
    yield _gauge(
        'kopf_peering_paused',
        'Peerings because of which the operator, or its part, is paused now.',
        ['scope'],
        [([scope], now[scope]) for scope in keepalive.SCOPES],
    )


def _collect_leadership(leadership: tuple[str, bool] | None) -> Iterator[Family]:
    """Also under the name by which Go programs report it, for their dashboards and alerts."""
    for name, help in [
        ('kopf_leader', 'Whether this replica of the operator leads.'),
        ('leader_election_master_status', 'The same as kopf_leader.'),
    ]:
        if leadership is not None:
            yield _gauge(name, help, ['name'], [([leadership[0]], int(leadership[1]))])


def _collect_pulse(pulse: pulses.Pulse) -> Iterator[Family]:
    yield _distribute(
        'kopf_event_loop_lag_seconds',
        'How late the event loop is with what is due.',
        [],
        {'': pulse.lags},
    )
    yield _count(
        'kopf_event_loop_blockages',
        'How many times the event loop was blocked for too long.',
        [],
        [([], pulse.blockages)],
    )


def _count(name: str, text: str, labels: Sequence[str], samples: Iterable[Sample]) -> Family:
    family = core.CounterMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _gauge(name: str, text: str, labels: Sequence[str], samples: Iterable[Sample]) -> Family:
    family = core.GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _distribute(
    name: str, text: str, labels: Sequence[str], histograms: Mapping[str, meters.Histogram]
) -> Family:
    family = core.HistogramMetricFamily(name, text, labels=labels)
    for value, histogram in histograms.items():
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, number in zip(
            [*map(str, histogram.bounds), '+Inf'], histogram.counts, strict=True
        ):
            total += number
            buckets.append((bound, total))
        family.add_metric([value] if labels else [], buckets, histogram.total)

    return family
