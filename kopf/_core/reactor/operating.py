"""
Operating: the life of one operator, from its startup handlers to its cleanup handlers.

The operator stops in the reverse order of its start: it accepts no more changes, the running
handlers finish or are interrupted, the cleanup handlers are called while the API is still usable,
and the connections are closed.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import string
from collections.abc import Collection
from types import TracebackType

from kopf._cogs.aiokits import bells, clocks, flags, pools, pulses
from kopf._cogs.clients import fences, limits, requests
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.configs import checks
from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import versions
from kopf._cogs.structs import credentials, references, selectors
from kopf._core.actions import execution
from kopf._core.engines.activities import authentication, operator_handlers
from kopf._core.engines.admission import reviewer as reviewer_
from kopf._core.engines.admission import runner
from kopf._core.engines.daemons import spawning
from kopf._core.engines.events import posting, recorder
from kopf._core.engines.indexing import indexers as indexers_
from kopf._core.engines.leading import current, replicas
from kopf._core.engines.peering import joining, pauses, ranking
from kopf._core.engines.reconciling import caches
from kopf._core.intents import arguments, causes
from kopf._core.reactor import (
    monitoring,
    neighbourhoods,
    observation,
    operator_plans,
    orchestration,
    promotions,
    resolution,
    sites,
    stopping,
    streams,
    summaries,
    supervision,
    triggering,
)
from kopf._core.reactor import slots as slots_

logger = logging.getLogger(__name__)

CROWD = 10
"""The number of waiting requests or synchronous handlers that keeps the operator fully busy."""

FLIGHT_SHARE = 0.5
"""The share of the limit of requests in flight beyond which there is a crowd."""


class Operator:
    """One run of an operator, in one event loop. It cannot be run again."""

    def __init__(self, plan: operator_plans.Plan) -> None:
        self.plan = plan
        self.now = clocks.Clock()
        self.fence = fences.Fence()
        self.context = requests.Context(
            vault=plan.vault,
            settings=plan.settings,
            logger=logger,
            gates=limits.get_common_gates(),
            now=self.now,
            get_permit=self.fence.get_permit,
        )
        indexers = indexers_.Indexers(
            plan.registry, plan.settings, self.now, meter=self.context.meter
        )
        # Of the namespaces, or of the whole operator.
        self.pauses = pauses.Pauses(self._pause_or_resume)
        self.spawner = spawning.Spawner(
            self.context, now=self.now, indices=indexers.indices, pauses=self.pauses
        )
        self.site = sites.Site(
            registry=plan.registry,
            settings=plan.settings,
            context=self.context,
            memories=plan.memories,
            memo=plan.memo,
            now=self.now,
            lifecycle=plan.lifecycle,
            indexers=indexers,
            spawner=self.spawner,
            caches=caches.Caches(
                timeout=plan.settings.persistence.consistency_timeout, clock=_read_clock
            ),
            fence=self.fence,
        )
        self.slots = slots_.Slots(
            lambda: plan.settings.queueing.worker_limit, is_crowded=self._is_crowded
        )
        # Rings when a resource is listed, or no longer needs to be listed.
        self.listed = bells.Bell()
        self.poster = recorder.Poster(
            dataclasses.replace(self.context, get_permit=self.fence.get_lenient_permit)
        )
        self.leadership = promotions.Leadership(
            context=self.context,
            fence=self.fence,
            pauses=self.pauses,
            slots=self.slots,
            poster=self.poster,
            run_activity=self._run_activity,
        )
        self.streams: dict[orchestration.Key, stream_states.StreamState] = {}
        # Includes the watchers that have ended but are not retired.
        self.watchers: dict[orchestration.Key, streams.Watcher] = {}
        self.neighbourhood = neighbourhoods.Neighbourhood(
            self.site,
            insights=plan.insights,
            watchers=self.watchers,
            states=self.streams,
            pauses=self.pauses,
        )
        self.peering = joining.Peering(
            context=dataclasses.replace(self.context, get_permit=fences.require_nothing),
            scope=plan.insights,
            pauses=self.pauses,
            identity=self._detect_identity(),
        )
        # Reviews cannot wait for other handlers.
        self.reviewing_threads = pools.OwnPool(reviewer_.THREADS_LIMIT)
        self.admission = self._make_admission()
        self.is_started = False  # whether the startup handlers have succeeded
        self.is_indexed = False  # whether the indices were filled at least once, or there are none
        self.warned: set[str] = set()  # the logged warnings about ambiguous declarations

    async def run(self, stopper: stopping.Stopper) -> None:
        """
        Run until requested to stop, or until an unrecoverable error, which is raised.

        When cancelled, the operator stops in the same way. A second cancellation interrupts the
        stopping.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._report_end)
            stack.callback(self._release_threads)
            stack.callback(self._release_objects)
            stack.push_async_callback(self.plan.vault.close)
            stack.enter_context(current.fenced(self.fence))
            stack.enter_context(posting.attached(self.poster))
            stack.enter_context(triggering.attached(self.neighbourhood))
            # In case the startup fails or is stopped; otherwise, it is closed by a callback below.
            stack.push_async_callback(self.poster.close)
            if not await supervision.run_until_stopped(stopper, {'startup': self._start_up()}):
                return
            self.is_started = True
            self._report_start()
            monitor = self._make_monitor(
                stack.enter_context(pulses.feeling_pulse(self._get_blocking_limit))
            )
            stack.push_async_callback(monitor.close)
            if self.admission.is_ready:
                self._report_ready()
            authenticator = asyncio.create_task(self._authenticate(), name='authentication')
            stack.push_async_callback(supervision.stop_task, authenticator)
            stack.enter_context(posting.listening(self.poster))
            stack.push_async_callback(self.poster.close)
            stack.push_async_exit(self._clean_up)
            stack.push_async_callback(self.admission.stop)
            stack.push_async_callback(self.peering.stop)
            stack.push_async_callback(self.leadership.stop)
            stack.push_async_callback(self.poster.flush)
            stack.push_async_callback(self._stop_daemons)
            self.poster.start()
            await monitor.serve(self.plan.endpoint)
            besides = [
                authenticator,
                self.peering.start(),
                *self.admission.start(),
                *self.leadership.start(),
            ]
            await supervision.run_until_stopped(
                stopper,
                {
                    'observer of resources': self._observe_resources(),
                    'observer of namespaces': self._observe_namespaces(),
                    'orchestrator': self._orchestrate(),
                    'gatekeeper': self._open_when_indexed(),
                    'keeper of caches': self.neighbourhood.run(),
                    'promotion': self.leadership.lead(),
                },
                besides=besides,
                ending=self.spawner.begin_exit,
            )

    def _make_monitor(self, pulse: pulses.Pulse) -> monitoring.Monitor:
        return monitoring.Monitor(
            self.site,
            insights=self.plan.insights,
            streams=self.streams,
            pauses=self.pauses,
            pulse=pulse,
            admission=self.admission,
            leadership=self.leadership,
        )

    def _make_admission(self) -> runner.Admission:
        env = execution.Environment(
            settings=self.plan.settings,
            now=self.now,
            meter=self.context.meter,
            executor=self.reviewing_threads,
        )
        reviewer = reviewer_.Reviewer(
            self.plan.registry,
            scope=self.plan.insights,
            memos=self.site,
            indices=self.site.indices,
            env=env,
            is_ready=self._is_reviewable,
        )
        return runner.Admission(
            reviewer,
            context=self.context,
            scope=self.plan.insights,
            elected=self.leadership.elected,
            on_ready=self._report_ready,
        )

    def _report_start(self) -> None:
        plan = self.plan
        info = self.plan.vault.preferred
        logger.info(
            'The operator is started: kopf %s, for %s.',
            versions.version,
            summaries.describe_scope(plan.patterns, clusterwide=plan.clusterwide),
        )
        logger.info('Handlers: %s.', summaries.describe_handlers(plan.registry._iter_handlers()))

        if info is not None:
            logger.info(
                'The operator has credentials for %s, and does not log in.',
                credentials.describe(info),
            )

    def _report_end(self) -> None:
        if self.is_started:
            runs, failed = summaries.count_runs(self.context.meter)
            logger.info('The operator is stopped. Runs of handlers: %d, failed: %d.', runs, failed)

    def _report_ready(self) -> None:
        flags.raise_flag(self.plan.ready_flag)

    def _is_reviewable(self) -> bool:
        """Return whether resources are known and, unless paused for others, indices are filled."""
        is_decided = all(reason != joining.UNDECIDED for _, reason in self.pauses)
        is_paused_for_others = self.pauses.whole.is_on and is_decided
        return self.plan.insights.is_resources_known and (self.is_indexed or is_paused_for_others)

    def _is_crowded(self) -> bool:
        """Return whether more requests or synchronous handlers would only have to wait."""
        limit = self.plan.settings.networking.inflight_limit
        executor = self.plan.settings.execution.executor
        flying, waiting = self.context.gates.count_requests()
        threads = executor.waiting if isinstance(executor, pools.OwnPool) else 0

        return max(waiting, threads) >= CROWD or (
            limit is not None and flying + waiting >= limit * FLIGHT_SHARE
        )

    def _get_blocking_limit(self) -> float | None:
        return self.plan.settings.execution.blocking_limit

    def _release_threads(self) -> None:
        busy = (
            settings_.release_threads(self.plan.settings.execution)
            + self.reviewing_threads.release()
        )
        if busy:
            logger.warning(
                '%d synchronous handlers still run: they cannot be interrupted, and are left as '
                'they are. The process waits for them in its very end.',
                busy,
            )

    def _release_objects(self) -> None:
        """
        Make the next operator begin with no memories of objects, even in the same container.

        The indices stay unchanged for all functions still running, including those in abandoned
        threads.
        """
        for watcher in self.watchers.values():
            watcher.release()

    async def _start_up(self) -> None:
        arguments.check_signatures(self.plan.registry._iter_handlers())
        await self._run_activity(causes.Activity.STARTUP)
        if self.admission.is_needed:
            self.plan.settings.admission._fall_back()
        declared = list(self.plan.registry._iter_handlers())
        arguments.check_all(declared, indices=arguments.list_indices(declared))
        complaints = checks.check_settings(self.plan.settings)
        if complaints:
            raise operator_plans.SettingsError(f'Some settings are wrong: {"; ".join(complaints)}')

        try:
            self.leadership.prepare()
        except replicas.PlaceError as error:
            raise operator_plans.SettingsError(str(error)) from None

        if self.admission.is_needed and self.plan.settings.admission.server is None:
            raise operator_plans.SettingsError(
                'There are handlers of admission, but no server that would call them. In a startup '
                'handler, set settings.admission.server, e.g. to kopf.WebhookServer().'
            )

    async def _clean_up(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """
        Call the cleanup handlers. Their error is only logged if the operator has already failed.
        """
        try:
            await self._run_activity(causes.Activity.CLEANUP)
        except operator_handlers.ActivityError as error:
            if exc is None:
                raise
            logger.error('%s', error)

    async def _run_activity(self, activity: causes.Activity) -> None:
        plan = self.plan
        await operator_handlers.run_activity(
            activity=activity,
            registry=plan.registry,
            settings=plan.settings,
            memo=plan.memo,
            indices=self.site.indices,
            now=self.now,
            meter=self.context.meter,
        )

    async def _authenticate(self) -> None:
        plan = self.plan
        await authentication.run_authentication(
            registry=plan.registry,
            settings=plan.settings,
            vault=plan.vault,
            memo=plan.memo,
            indices=self.site.indices,
            now=self.now,
            meter=self.context.meter,
        )

    async def _observe_resources(self) -> None:
        registry = self.plan.registry
        demand = resolution.Demand(
            registry.watched_selectors(),
            registry.patched_selectors(),
            registry.reviewed_selectors(),
        )
        await observation.run_resource_observer(
            context=self.context, demand=demand, insights=self.plan.insights
        )

    async def _observe_namespaces(self) -> None:
        await observation.run_namespace_observer(
            context=self.context,
            patterns=self.plan.patterns,
            clusterwide=self.plan.clusterwide,
            insights=self.plan.insights,
        )

    async def _orchestrate(self) -> None:
        timeout = self.plan.settings.queueing.exit_timeout + orchestration.STOPPING_TIMEOUT
        await orchestration.run_orchestrator(
            insights=self.plan.insights,
            spawn=self._watch,
            retire=self._retire,
            stopping_timeout=timeout,
        )

    async def _watch(self, resource: references.Resource, namespace: references.Namespace) -> None:
        key = orchestration.Key(resource, namespace)
        state = stream_states.StreamState()
        self.streams[key] = state

        try:
            self._warn_of_namesakes(resource)
            self.neighbourhood.declare()
            served = sites.Served(self.site, resource, self._get_selectors)
            # Set if the resource was redefined and must be watched in another way.
            before = self.watchers.pop(key, None)
            watcher = streams.Watcher(
                served,
                namespace,
                slots=self.slots,
                state=state,
                on_listed=self._note_listed,
                neighbours=self.neighbourhood.links,
                remains=None if before is None else before.release(),
            )
            self.watchers[key] = watcher
            await watcher.run(self.pauses.follow(namespace))
        finally:
            del self.streams[key]
            self._note_listed()

    def _note_listed(self) -> None:
        self.listed.ring()
        self.neighbourhood.release()

    def _warn_of_namesakes(self, resource: references.Resource) -> None:
        """Warn once about functions with the same id: renamed or reordered, they lose progress."""
        registry = self.plan.registry
        resolved = self._get_selectors(resource)
        for handlers in (registry._changing, registry._spawning):
            for id, places in handlers.find_namesakes(resource, resolved).items():
                listed = ', '.join(f'{number!r} at {place}' for number, place in places.items())
                warning = f'Several functions have the id {id!r} for the same resource: {listed}.'
                if warning not in self.warned:
                    self.warned.add(warning)
                    logger.warning(
                        '%s All of them are called. Rename them, or give them different ids with '
                        'id=.',
                        warning,
                    )

    def _retire(self, key: orchestration.Key) -> None:
        watcher = self.watchers.pop(key, None)
        if watcher is not None:
            watcher.forget()

    async def _open_when_indexed(self) -> None:
        """
        Run no handlers until all indexed resources known at the start are listed.

        The same happens after every pause of the whole operator, since the indices are outdated
        then. Paused namespaces are not waited for, neither now nor when they resume: a pause of one
        namespace must not affect the others.
        """
        self.site.indexers.prepare()
        if self.site.indexers.is_empty:
            self.is_indexed = True
            return

        self.slots.shut()
        await self.plan.insights.ready.wait()
        while True:
            await self.pauses.whole.wait_until(False)
            while not self._is_indexed():
                await self.listed.wait()
            self.slots.open()
            self.is_indexed = True
            await self.pauses.whole.wait_until(True)
            self.slots.shut()

    def _is_indexed(self) -> bool:
        insights = self.plan.insights
        indexers = self.site.indexers
        keys = orchestration.select_keys(insights.resources, insights.namespaces)
        indexed = [
            key
            for key in keys
            if indexers.is_indexed(key.resource, self._get_selectors(key.resource))
        ]
        awaited = [key for key in indexed if not self.pauses.is_paused(key.namespace)]

        return all(key in self.streams and self.streams[key].is_listed for key in awaited)

    def _pause_or_resume(self, namespace: references.Namespace, is_paused: bool) -> None:
        """Stop the daemons, which events will restart. The watchers handle pauses themselves."""
        if is_paused:
            self.spawner.pause(namespace)
            self._note_listed()

    async def _stop_daemons(self) -> None:
        await self.spawner.stop(is_urgent=self.fence.is_lost)

    def _detect_identity(self) -> ranking.Identity:
        tail = ''.join(random.choices(string.ascii_lowercase + string.digits, k=3))
        return ranking.Identity(
            self.plan.identity
            or ranking.detect_identity(environ=os.environ, now=self.now(), tail=tail)
        )

    def _get_selectors(self, resource: references.Resource) -> Collection[selectors.Selector]:
        return self.plan.insights.resolved.select_selectors(resource)


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
