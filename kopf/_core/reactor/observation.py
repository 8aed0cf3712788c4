"""
Observation: which resources and namespaces are served at any moment.

Each is watched live by one task; nothing is polled while nothing changes. If the cluster does not
permit the watch, the operator serves the configured namespaces and the resources found at the
start.
"""

import asyncio
import contextlib
import dataclasses
import enum
import math
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from typing import Any

from kopf._cogs.aiokits import bells
from kopf._cogs.clients import discovery, errors, outages, requests, retries
from kopf._cogs.clients.watching import event_streams, stream_states, watch_events
from kopf._cogs.structs import references, selectors
from kopf._core.reactor import definitions, resolution

NAMESPACES = references.Resource(
    '',
    'v1',
    'namespaces',
    kind='Namespace',
    singular='namespace',
    shortcuts=frozenset({'ns'}),
    namespaced=False,
)

CRDS = references.Resource(
    'apiextensions.k8s.io',
    'v1',
    'customresourcedefinitions',
    kind='CustomResourceDefinition',
    singular='customresourcedefinition',
    shortcuts=frozenset({'crd', 'crds'}),
    categories=frozenset({'api-extensions'}),
    namespaced=False,
)

PATIENCE = 1.0
"""
Seconds in which the CRDs are usually listed. The first scan waits for that, to avoid a second scan.
"""

DEBOUNCING = 0.1
"""
Seconds in which related changes usually arrive: the definition, its conditions, other definitions.
"""

SPACING = 1.0
"""Seconds between the scans of the cluster during a burst of changes."""

LONGEST_DOUBT = 120.0
"""The maximum seconds between the scans while the results are inconsistent or incomplete."""

PERMISSION_PERIOD = 300.0
"""Seconds between the silent attempts to repeat a forbidden request."""


@dataclasses.dataclass(eq=False)
class Insights:
    """
    The known resources and namespaces of the cluster.

    Changed only by the observers, each in its own half. Can be read by any task of the same event
    loop.
    """

    resolved: resolution.Resolution = dataclasses.field(default_factory=resolution.Resolution)
    # Contains only ``None`` if the whole cluster is served.
    namespaces: frozenset[references.Namespace] = frozenset()
    is_resources_known: bool = False  # at least once
    is_namespaces_known: bool = False
    revision: int = 0  # grows with every change
    # Set by the orchestrator.
    ready: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    resources_stream: stream_states.StreamState = dataclasses.field(
        default_factory=stream_states.StreamState
    )
    namespaces_stream: stream_states.StreamState = dataclasses.field(
        default_factory=stream_states.StreamState
    )
    _bell: bells.Bell = dataclasses.field(default_factory=bells.Bell)

    @property
    def resources(self) -> resolution.Resources:
        """The resources to watch; none until they are known."""
        return self.resolved.resources

    @property
    def reviewed(self) -> Mapping[selectors.Selector, Collection[references.Resource]]:
        """The resources whose requests are reviewed, by selector."""
        return self.resolved.reviewed

    @property
    def is_known(self) -> bool:
        return self.is_resources_known and self.is_namespaces_known

    def learn_resources(self, resolved: resolution.Resolution) -> None:
        self.resolved = resolved
        self.is_resources_known = True
        self._announce()

    def learn_namespaces(self, namespaces: Iterable[references.Namespace]) -> None:
        before = self.namespaces if self.is_namespaces_known else None
        self.namespaces = frozenset(namespaces)
        self.is_namespaces_known = True
        if self.namespaces != before:
            self._announce()

    async def wait_until_changed(self, since: int) -> None:
        """Wait until the revision differs from this one. Any number of tasks may wait."""
        while self.revision == since:
            await self._bell.wait()

    def _announce(self) -> None:
        self.revision += 1
        self._bell.ring()


class _Marker(enum.Enum):
    """The markers in the stream besides the events."""

    # Listing is forbidden; the next attempt follows after a long pause.
    REFUSED = enum.auto()


async def run_namespace_observer(
    *,
    context: requests.Context,
    patterns: Collection[references.NamespacePattern],
    clusterwide: bool,
    insights: Insights,
) -> None:
    """
    Keep the served namespaces in line with those in the cluster that match any of the patterns.

    If watching is not permitted or not wanted, only the exactly named namespaces are served,
    whether they exist or not. A cluster-wide operator watches no namespaces. Ends only by
    cancellation, or by `LoginError`.
    """
    exact = references.select_exact(patterns)
    if clusterwide or context.settings.scanning.disabled:
        insights.learn_namespaces({None} if clusterwide else exact)
        await asyncio.Event().wait()

    seen: set[references.NamespaceName] = set()
    items = _observe(
        NAMESPACES,
        context=context,
        state=insights.namespaces_stream,
        consequence='Only the namespaces named exactly are served, whether they exist or not',
    )
    async with contextlib.aclosing(items):
        async for item in items:
            if isinstance(item, _Marker):
                insights.learn_namespaces(seen | exact)
                continue
            if not isinstance(item, stream_states.Marker):
                _update_namespaces(seen, item, patterns)
            if insights.namespaces_stream.is_listed:
                insights.learn_namespaces(seen)


def is_namespace_served(body: Mapping[str, Any]) -> bool:
    """
    Return whether there can be anything to do in this namespace.

    While a namespace is being deleted, its conditions show what remains in it, e.g. objects with
    finalizers.
    """
    conditions = (body.get('status') or {}).get('conditions') or ()
    is_populated = any(condition.get('status') == 'True' for condition in conditions)
    return not body['metadata'].get('deletionTimestamp') or not conditions or is_populated


def _update_namespaces(
    seen: set[references.NamespaceName],
    event: watch_events.RawEvent,
    patterns: Collection[references.NamespacePattern],
) -> None:
    name = references.NamespaceName(event['object']['metadata']['name'])
    is_matching = any(references.match_namespace(name, pattern) for pattern in patterns)
    if is_matching and event['type'] != 'DELETED' and is_namespace_served(event['object']):
        seen.add(name)
    else:
        seen.discard(name)


async def run_resource_observer(
    *, context: requests.Context, demand: resolution.Demand, insights: Insights
) -> None:
    """
    Keep the served resources in line with what the cluster serves and what the handlers demand.

    Resources appear and disappear with their CRDs. If watching the CRDs is not permitted or not
    wanted, only the resources found at the start are served. Every new ambiguity is logged once.
    Ends only by cancellation, or by `LoginError`.
    """
    sight = _Sight(context, demand, insights, groups=resolution.select_groups(demand.selectors))
    is_live = not context.settings.scanning.disabled and sight.groups not in (
        frozenset(),
        frozenset({''}),
    )
    try:
        async with asyncio.TaskGroup() as group:
            if is_live:
                group.create_task(
                    _watch_definitions(sight), name='observer of resource definitions'
                )
            else:
                sight.concluded.set()
            group.create_task(_scan_when_needed(sight), name='observer of resources')
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None


@dataclasses.dataclass(eq=False)
class _Sight:
    """
    The state of the resource observer.

    Changed by its two tasks. The task that watches the definitions never awaits between an event
    and its effect.
    """

    context: requests.Context
    demand: resolution.Demand
    insights: Insights
    groups: frozenset[str] | None  # of the demanded resources; ``None`` for all
    found: definitions.Found = dataclasses.field(default_factory=dict)
    # The definitions by the names of their CRDs.
    defined: dict[definitions.Names, definitions.Definition] = dataclasses.field(
        default_factory=dict
    )
    # The deleted CRDs whose resources can still be served.
    deleted: set[definitions.Names] = dataclasses.field(default_factory=set)
    complaints: frozenset[resolution.Complaint] = frozenset()
    # Set when the CRDs are listed or refused, or are not watched at all.
    concluded: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    is_listed: bool = False  # whether the CRDs were listed
    is_certain: bool = False  # whether the last scan was complete
    attempts: int = 0  # the number of consecutive scans with unsettled results
    scanned: float = -math.inf  # loop time of the start of the last scan
    due: float = math.inf  # loop time of the start of the next scan
    bell: bells.Bell = dataclasses.field(default_factory=bells.Bell)  # rings when it is due sooner

    @property
    def is_settled(self) -> bool:
        """Whether the last scan was complete and everything is found as it is defined."""
        return (
            self.is_certain
            and self.deleted.isdisjoint(self.found)
            and all(
                definitions.is_reflected(definition, self.found)
                for definition in self.defined.values()
            )
        )

    def hasten(self) -> None:
        """Schedule the next scan soon."""
        self.attempts, self.due = (
            0,
            min(self.due, max(_read_clock() + DEBOUNCING, self.scanned + SPACING)),
        )
        self.bell.ring()


async def _scan_when_needed(sight: _Sight) -> None:
    """Scan the cluster at the start, and then whenever the known resources are in doubt."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await sight.concluded.wait()

    while True:
        sight.scanned = _read_clock()
        longest = await _scan(sight)
        if sight.is_settled:
            sight.attempts = 0
            sight.due = math.inf
        else:
            sight.attempts += 1
            sight.due = _read_clock() + choose_backoff(
                sight.attempts, longest, sight.context.chance()
            )
        await _wait_until_due(sight)


async def _wait_until_due(sight: _Sight) -> None:
    """Wait for the time of the next scan, which can be moved to an earlier time during the wait."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout_at(None if math.isinf(sight.due) else sight.due):
                await sight.bell.wait()


def choose_backoff(attempts: int, longest: float, chance: float) -> float:
    """Choose the delay after this number of consecutive scans; ``chance`` is from 0 to 1."""
    return min(longest, math.ldexp(SPACING, min(attempts, 16) - 1)) * (
        1 + retries.BACKOFF_JITTER * chance
    )


async def _scan(sight: _Sight) -> float:
    """
    Scan the resources of the cluster; return the longest delay before the next scan if in doubt.
    """
    was_listed = sight.is_listed
    try:
        catalog = await discovery.read_catalog(context=sight.context, groups=sight.groups)
    # The certificate files can be absent for a moment.
    except (errors.RequestError, OSError) as error:
        sight.is_certain = False
        sight.context.logger.log(
            outages.choose_level(error),
            'The resources of the cluster are not known, and will be asked for again: %s',
            error,
        )
        return retries.LONGEST_BACKOFF

    known = [
        resource
        for names, resources in sight.found.items()
        if names not in sight.deleted
        for resource in resources
    ]
    sight.found = definitions.group_resources(resolution.update_resources(known, catalog))
    sight.deleted &= set(sight.found)
    # A resource found before the definitions were listed could have been deleted before the
    # listing: no event would ever report that.
    sight.is_certain = not catalog.doubtful and not catalog.absent and sight.is_listed == was_listed
    _announce(sight)

    return LONGEST_DOUBT


def _announce(sight: _Sight) -> None:
    logger = sight.context.logger
    insights = sight.insights
    found = [resource for resources in sight.found.values() for resource in resources]
    resolved = resolution.resolve(
        sight.demand, definitions.keep_patchable(found, sight.defined.values())
    )
    for complaint in sorted(resolved.complaints - sight.complaints, key=repr):
        logger.warning(complaint.text, *complaint.values)
    if insights.is_resources_known:
        before = insights.resolved.all_resources
        after = resolved.all_resources
        for resource in sorted(after - before, key=repr):
            logger.info('The resource %r has come, and is served from now on.', resource)
        for resource in sorted(before - after, key=repr):
            logger.info('The resource %r is gone, and is no longer served.', resource)

    sight.complaints = resolved.complaints
    insights.learn_resources(resolved)


async def _watch_definitions(sight: _Sight) -> None:
    items = _observe(
        CRDS,
        context=sight.context,
        state=sight.insights.resources_stream,
        consequence='Only the resources that are there now are served, but not those to come',
    )
    async with contextlib.aclosing(items):
        async for item in items:
            if not isinstance(item, _Marker | stream_states.Marker):
                _update_definitions(sight, item)
                continue
            if item is stream_states.Marker.LISTED and not sight.is_listed:
                sight.is_listed = True
                sight.is_certain = False
                sight.hasten()
            sight.concluded.set()


def _update_definitions(sight: _Sight, event: watch_events.RawEvent) -> None:
    """
    Remember the definition; schedule a scan if the cluster serves something else than it defines.
    """
    definition = definitions.parse_definition(event['object'])
    if not definitions.is_relevant(definition, sight.groups):
        return

    if event['type'] == 'DELETED':
        sight.defined.pop(definition.names, None)
        sight.deleted.add(definition.names)
        is_reflected = definition.names not in sight.found
    else:
        sight.defined[definition.names] = definition
        sight.deleted.discard(definition.names)
        is_reflected = definitions.is_reflected(definition, sight.found)

    if sight.is_listed and not is_reflected:
        sight.hasten()


async def _observe(
    resource: references.Resource,
    *,
    context: requests.Context,
    state: stream_states.StreamState,
    consequence: str,
) -> AsyncGenerator[stream_states.Item | _Marker]:
    """
    Stream the events forever if permitted; otherwise, retry from time to time.

    Only the first refusal is logged. Once permitted, the streams retry on their own.
    """
    is_refused = False
    while True:
        stream = event_streams.stream_events(
            resource, None, context=context, state=state, refusals=(403,)
        )
        try:
            async with contextlib.aclosing(stream):
                async for item in stream:
                    yield item
        except errors.APIForbiddenError as error:
            if not is_refused:
                context.logger.warning(
                    '%s, as it is not permitted to watch over %r: %s', consequence, resource, error
                )
            is_refused = True
        yield _Marker.REFUSED
        await asyncio.sleep(PERMISSION_PERIOD * (1 + retries.BACKOFF_JITTER * context.chance()))


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
