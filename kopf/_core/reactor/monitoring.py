"""
Monitoring: the state of an operator, for probes and metrics.

The state is collected only on request.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kopf._cogs.aiokits import pulses
from kopf._cogs.clients.watching import stream_states
from kopf._core.actions import execution, threads
from kopf._core.engines.activities import operator_handlers
from kopf._core.engines.admission import runner
from kopf._core.engines.peering import joining, keepalive, pauses
from kopf._core.engines.probing import endpoints, health, probe_handlers
from kopf._core.intents import causes
from kopf._core.reactor import observation, orchestration, promotions, sites

if TYPE_CHECKING:
    from kopf._core.engines.probing import server

Streams = Mapping[orchestration.Key, stream_states.StreamState]


class Monitor:
    """The observer of one operator. Belongs to its event loop."""

    def __init__(
        self,
        site: sites.Site,
        *,
        insights: observation.Insights,
        streams: Streams,
        pauses: pauses.Pauses,
        pulse: pulses.Pulse,
        admission: runner.Admission,
        leadership: promotions.Leadership,
    ) -> None:
        self._site = site
        self._insights = insights
        self._streams = streams
        self._pauses = pauses
        self._pulse = pulse
        self._admission = admission
        self._leadership = leadership
        self._prober: probe_handlers.Prober | None = None
        self._server: server.Server | None = None

    async def serve(self, endpoint: endpoints.Endpoint | None) -> None:
        """Start the server of probes, if configured. Raises `EndpointError` if it cannot."""
        if endpoint is None:
            return

        # These modules load libraries that no other module needs.
        from kopf._core.engines.probing import metrics, server

        self._prober = self._make_prober()
        exposition = metrics.Exposition(
            metrics.Sources(
                meter=self._site.context.meter,
                pulse=self._pulse,
                indices=self._site.indexers.indices,
                get_streams=self._iter_streams,
                get_daemons=lambda: self._site.spawner,
                get_pauses=self._iter_scopes_of_pauses,
                clock=_read_clock,
                get_leadership=self._describe_leadership,
                stored=self._site.caches.stores,
                mapping_errors=self._site.caches.relations.errors,
            )
        )
        self._server = server.Server(
            endpoint,
            {
                server.READINESS_PATH: server.build_readiness_page(self.examine),
                server.METRICS_PATH: server.build_metrics_page(exposition.expose),
                endpoint.path: server.build_liveness_page(self._prober, self.examine),
            },
        )
        await self._server.start()

    async def close(self) -> None:
        """Stop the server and the probe handlers."""
        if self._server is not None:
            await self._server.close()
        if self._prober is not None:
            await self._prober.close()

    def examine(self) -> health.Vitals:
        """Collect the current state of the operator."""
        insights = self._insights
        wanted = orchestration.select_keys(insights.resources, insights.namespaces)
        # Their streams have ended on purpose.
        paused = {key for key in self._streams if self._pauses.is_paused(key.namespace)}

        return health.Vitals(
            now=_read_clock(),
            limits=health.choose_limits(self._site.settings),
            streams={str(key): state for key, state in self._streams.items() if key not in paused},
            observers={repr(resource): state for resource, state in self._iter_observers()},
            missing=[str(key) for key in wanted if key not in self._streams],
            obstacles=dict(self._iter_obstacles()),
            pauses=dict(self._iter_pauses_for_others()),
            notes={str(key): 'paused' for key in paused} | dict(self._iter_leadership()),
            lag=self._pulse.lag,
        )

    def _iter_obstacles(self) -> Iterator[tuple[str, str]]:
        """
        Iterate over the obstacles to the operator's work. Pausing for a peer is not an obstacle.
        """
        if self._site.spawner.is_exiting:
            yield 'operator', 'stopping'
        if not self._insights.ready.is_set():
            yield 'discovery', 'the resources or namespaces are not known yet'
        if not self._admission.is_ready:
            yield 'admission', 'the webhook server is not reachable yet'
        candidate = self._leadership.candidate
        if candidate is not None and candidate.trouble and not candidate.is_leading:
            yield 'leadership', candidate.trouble
        for namespace, reason in self._pauses:
            if reason == joining.UNDECIDED:
                where = (
                    'peering' if namespace is None else f'peering in the namespace {namespace!r}'
                )
                yield where, 'paused, as it is not known yet if there are other operators'
            elif isinstance(reason, keepalive.Member) and reason.is_awaited:
                yield (
                    str(reason.membership),
                    'paused, as it does not exist, or is not permitted to be watched',
                )

    def _iter_leadership(self) -> Iterator[tuple[str, str]]:
        candidate = self._leadership.candidate
        if candidate is not None:
            text = 'leads' if candidate.is_leading else f'stands by, held by {candidate.holder!r}'
            yield f'the Lease {candidate.place}', text

    def _describe_leadership(self) -> tuple[str, bool] | None:
        candidate = self._leadership.candidate
        return None if candidate is None else (candidate.place.name, candidate.is_leading)

    def _iter_pauses_for_others(self) -> Iterator[tuple[str, str]]:
        for member in self._iter_pauses():
            text = member.describe_pause()
            if text:
                yield str(member.membership), text

    def _iter_scopes_of_pauses(self) -> Iterator[str]:
        return (member.membership.scope for member in self._iter_pauses())

    def _iter_pauses(self) -> Iterator[keepalive.Member]:
        """Iterate over the memberships that cause the current pauses."""
        return (reason for _, reason in self._pauses if isinstance(reason, keepalive.Member))

    def _iter_observers(self) -> Iterator[tuple[object, stream_states.StreamState]]:
        pairs = [
            (observation.CRDS, self._insights.resources_stream),
            (observation.NAMESPACES, self._insights.namespaces_stream),
        ]
        return (
            (resource, state)
            for resource, state in pairs
            if state.phase is not stream_states.Phase.IDLE
        )

    def _iter_streams(self) -> Iterator[tuple[str, stream_states.StreamState]]:
        yield from ((repr(key.resource), state) for key, state in self._streams.items())
        yield from ((repr(resource), state) for resource, state in self._iter_observers())

    def _make_prober(self) -> probe_handlers.Prober:
        site = self._site
        cause = operator_handlers.build_cause(
            causes.Activity.PROBE, settings=site.settings, memo=site.memo, indices=site.indices
        )
        env = execution.Environment(
            settings=site.settings,
            now=site.now,
            is_quiet=True,
            meter=site.context.meter,
            executor=threads.OwnThreads(f'kopf {cause.activity}'),
        )

        return probe_handlers.Prober(
            site.registry._activities.select(causes.Activity.PROBE), cause, env
        )


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
