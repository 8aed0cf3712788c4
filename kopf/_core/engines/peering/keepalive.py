"""
Keep-alive: the presence of this operator in one peering object, from joining to leaving.

Other operators are detected by watching the object. Our own record is written there, and renewed
while the operator runs; the object itself is never created. If the object or the API fails, the
operator keeps to its last decision.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kopf._cogs.aiokits import bells
from kopf._cogs.clients import errors, outages, requests, retries
from kopf._cogs.clients.patching import object_requests, targets
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.configs import selections
from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import repeats
from kopf._cogs.structs import credentials, references
from kopf._core.engines.peering import ranking

logger = logging.getLogger(__name__)

WRITING_TIMEOUT = 5.0
"""Seconds to write a record once; then it is written again with the current time."""

LEAVING_TIMEOUT = 10.0
"""Seconds for all attempts to remove the record when the operator leaves, including a new login."""

LONGEST_BACKOFF = 10.0
"""The maximum seconds between the attempts to write a record."""

REFUSAL_PERIOD = 30.0
"""Seconds between the attempts to watch a resource that is forbidden or was just deleted."""

REPORTS = 10
"""
How many times in 10 minutes the peers are logged: any writer of the object can change it often.
"""

PRECISION = 0.001
"""
Seconds to wait beyond a deadline, to be sure that it has passed: event loops can be a bit early.
"""

SCOPES = CLUSTER, NAMESPACE = 'cluster', 'namespace'
"""The scopes of pauses because of one peering, as in the metrics."""

FAILURES = errors.RequestError, credentials.LoginError, TimeoutError, OSError


@dataclasses.dataclass(frozen=True)
class Membership:
    """The operator and its peering object. The peering settings are read when they are needed."""

    identity: ranking.Identity
    target: targets.Target
    context: requests.Context  # made by `isolate`

    @property
    def settings(self) -> settings_.PeeringSettings:
        return self.context.settings.peering

    @property
    def scope(self) -> str:
        """The scope of its pauses: the whole operator, or one namespace."""
        return CLUSTER if self.target.namespace is None else NAMESPACE

    def build_record(self) -> ranking.Record:
        """Build the record of this operator, as of now."""
        settings = self.settings
        return ranking.Record(
            ranking.limit_priority(settings.priority),
            ranking.limit_lifetime(settings.lifetime),
            self.context.now(),
        )

    def __str__(self) -> str:
        where = (
            '' if self.target.namespace is None else f' in the namespace {self.target.namespace!r}'
        )
        return f'the peering {self.target.name!r}{where}'


def isolate(context: requests.Context, name: str) -> requests.Context:
    """
    Make a context for the peering objects of this name, without the selectors of handled objects.
    """
    settings = context.settings
    watched = dataclasses.replace(
        settings.watching,
        label_selectors=selections.Selections(),
        shard_selectors=selections.Selections(),
        field_selectors=selections.Selections({references.EVERYTHING: f'metadata.name={name}'}),
    )
    networking = dataclasses.replace(settings.networking, error_backoffs=())

    return dataclasses.replace(
        context, settings=dataclasses.replace(settings, watching=watched, networking=networking)
    )


class Member:
    """
    The operator in one peering object. It is run by one task, once.

    Every decision is passed to ``on_decided``: whether its part of the operator must pause.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        on_decided: Callable[['Member', bool], None],
        is_sharded: bool,
        on_absent: Callable[['Member'], None] = lambda member: None,
    ) -> None:
        self.membership = membership
        self.stream = stream_states.StreamState()
        self.is_decided = False
        self._on_decided = on_decided
        self._on_absent = on_absent
        self._is_sharded = is_sharded
        self._bell = bells.Bell()
        self._is_known = self._is_present = self._is_released = False
        self._records: Mapping[ranking.Identity, ranking.Record] = {}
        self._peers: ranking.Peers = {}
        self._reported: Any = None
        self._decision = ranking.Decision()
        self._is_pausing = False
        # Times: of the last writing, and the limits of the next one.
        self._written = self._earliest = self._renewal = -math.inf
        self._failures = 0
        self._reports = repeats.Repeats(REPORTS)
        self._is_leaving_needed = False

    @property
    def is_awaited(self) -> bool:
        """Whether the operator pauses because the peering object is absent or forbidden."""
        return not self._is_present and self.membership.settings.mandatory and not self._is_released

    def describe_pause(self) -> str:
        """Describe which operators cause the pause, and until when; empty if there are none."""
        others = [*self._decision.superiors, *self._decision.equals]
        return (
            f'paused by {ranking.join_names(others)} until {self._date(self._decision.end)}'
            if others
            else ''
        )

    async def run(self) -> None:
        """
        Be a member until cancelled. Raises `LoginError` if there are no credentials.

        At the end, the record is removed; it takes a limited time, and failures are only logged.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(), name=f'watcher of {self.membership}')
                group.create_task(self._keep(), name=f'keeper of {self.membership}')
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None
        finally:
            await self._leave()

    async def _watch(self) -> None:
        """Watch the object: whether it exists, and which operators are there."""
        target = self.membership.target
        context = self.membership.context
        while True:
            stream = event_streams.stream_events(
                target.resource,
                target.namespace,
                context=context,
                state=self.stream,
                refusals=(403, 404),
            )
            try:
                async with contextlib.aclosing(stream):
                    async for item in stream:
                        await self._take(item)
            except (errors.APIForbiddenError, errors.APINotFoundError) as error:
                if not self._is_known:
                    logger.warning(
                        'It is not possible to watch over %s: %s', self.membership, error
                    )
                self._learn(None)
            await asyncio.sleep(REFUSAL_PERIOD * (1 + retries.BACKOFF_JITTER * context.chance()))

    async def _take(self, item: stream_states.Item) -> None:
        if isinstance(item, stream_states.Marker):
            if not self._is_known:
                self._learn(None)
        elif item['object']['metadata']['name'] == self.membership.target.name:
            is_gone = item['type'] == 'DELETED'
            self._is_released = is_gone and await self._is_place_going()
            self._learn(None if is_gone else item['object'])

    async def _is_place_going(self) -> bool:
        """Return whether the namespace is being deleted, so that its objects must not wait."""
        namespace = self.membership.target.namespace
        context = self.membership.context
        if namespace is None or not self.membership.settings.mandatory:
            return False

        try:
            body = await requests.get(
                f'/api/v1/namespaces/{namespace}',
                context=context,
                options=requests.Options(answers=(403, 404)),
            )
        except errors.APINotFoundError:
            return True
        except (errors.RequestError, OSError):
            return False

        return bool(body['metadata'].get('deletionTimestamp'))

    def _learn(self, body: Mapping[str, Any] | None) -> None:
        self._is_known = True
        self._is_present = body is not None
        self._records = ranking.parse_records(body)
        self._peers = ranking.update_peers(
            self._peers, self._records, now=_read_clock(), today=self.membership.context.now()
        )
        self._bell.ring()

    async def _keep(self) -> None:
        """Write the record when it is due, and decide when anything changes."""
        while not self._is_known:
            await self._bell.wait()
        while True:
            decision = self._decide()
            due = self._choose_due(decision)
            if self.is_decided or due > _read_clock():
                self._conclude(decision)
            if due <= _read_clock():
                await self._write(decision.dead)
                continue
            # No await between the decision and the bell: changes would be missed.
            moment = min(due, decision.deadline) + PRECISION
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if math.isinf(moment) else moment):
                    await self._bell.wait()

    def _decide(self) -> ranking.Decision:
        priority = ranking.limit_priority(self.membership.settings.priority)
        rank = ranking.Rank(
            self.membership.identity,
            priority,
            self._is_sharded,
            self.membership.context.settings.leadership.name,
        )
        return ranking.decide(self._peers, rank, now=_read_clock())

    def _choose_due(self, decision: ranking.Decision) -> float:
        """Choose when to write next: at the renewal, or sooner if the record is wrong."""
        if not self._is_present:
            return math.inf

        is_fine = ranking.is_recorded(
            self._records, self.membership.identity, self.membership.build_record()
        )
        is_fine = is_fine and not decision.dead and self._written > -math.inf
        return max(
            self._earliest, self._renewal if is_fine else self._written + ranking.SHORTEST_INTERVAL
        )

    async def _write(self, dead: Collection[ranking.Peer]) -> None:
        """
        Write our record, remove those of dead peers, and read the result.

        If cancelled, it is unknown whether the record was written.
        """
        membership = self.membership
        self._written = _read_clock()
        self._is_leaving_needed = True
        patch = ranking.build_patch(membership.identity, membership.build_record(), dead)

        try:
            async with asyncio.timeout(WRITING_TIMEOUT):
                patched = await object_requests.patch_object(
                    membership.target, merge=patch, context=membership.context
                )
            if patched is not None and patched.refusal is not None:
                raise patched.refusal
        except (errors.RequestError, TimeoutError, OSError) as error:
            self._failures += 1
            delay = min(
                LONGEST_BACKOFF, retries.choose_backoff(self._failures, membership.context.chance())
            )
            self._earliest = _read_clock() + delay
            logger.log(
                outages.choose_level(error),
                'The keep-alive of %s is not sent, and will be in %.1f s: %s',
                membership,
                delay,
                str(error) or 'there is no answer.',
            )
            return

        lifetime = ranking.limit_lifetime(membership.settings.lifetime)
        interval = ranking.choose_interval(lifetime, membership.context.chance())
        self._failures = 0
        self._renewal = self._written + interval
        if patched is not None and not membership.settings.stealth:
            logger.info('The keep-alive of %s is sent.', membership)
        self._learn(None if patched is None else patched.body)

    def _conclude(self, decision: ranking.Decision) -> None:
        """
        Pass on the decision; log the reasons if they have changed, unless they change too often.
        """
        is_awaited = self.is_awaited
        reasons = (
            is_awaited,
            *({peer.identity for peer in group} for group in (decision.superiors, decision.equals)),
        )
        is_reported = reasons == self._reported

        if not is_reported and self._reports.admit(REPORTS, now=_read_clock()) is not None:
            self._report(decision, is_awaited=is_awaited)
            self._reported = reasons

        self.is_decided = True
        self._decision = decision
        is_pausing = is_awaited or decision.is_pausing

        if is_pausing and not self._is_pausing:
            self.membership.context.meter.pauses[
                self.membership.scope, _choose_reason(decision)
            ] += 1

        self._is_pausing = is_pausing
        self._on_decided(self, is_pausing)

    def _report(self, decision: ranking.Decision, *, is_awaited: bool) -> None:
        if decision.equals:
            logger.warning(
                'The operator pauses: there are others with the same priority in %s: %s. None of '
                'them is active until %s, or longer. Give them different priorities.',
                self.membership,
                ranking.join_names(decision.equals),
                self._date(decision.end),
            )
        elif decision.superiors:
            logger.warning(
                'The operator pauses: there are others with higher priorities in %s: %s. They are '
                'believed to be active until %s, and longer if they renew their records.',
                self.membership,
                ranking.join_names(decision.superiors),
                self._date(decision.end),
            )
        elif is_awaited:
            logger.warning('The operator pauses until %s is created.', self.membership)
        elif not self._is_present:
            self._on_absent(self)
        elif self._reported is not None:
            logger.info('There is no one left to pause for in %s.', self.membership)

    def _date(self, moment: float) -> str:
        """Convert a time of the loop's clock to the time of day, in UTC."""
        date = self.membership.context.now() + datetime.timedelta(seconds=moment - _read_clock())
        return f'{date.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}'

    async def _leave(self) -> None:
        if not self._is_leaving_needed or not self._is_present:
            return

        membership = self.membership
        patch = ranking.build_patch(membership.identity, None, self._decide().dead)
        try:
            async with asyncio.timeout(LEAVING_TIMEOUT):
                await self._remove(patch)
        except FAILURES as error:
            logger.warning(
                'The record of this operator is left in %s; it will count as dead in %s s: %s',
                membership,
                membership.settings.lifetime,
                str(error) or 'there is no answer.',
            )

    async def _remove(self, patch: Mapping[str, Any]) -> None:
        """Remove the record, with retries; the object can already be deleted."""
        membership = self.membership
        while True:
            try:
                async with asyncio.timeout(WRITING_TIMEOUT):
                    await object_requests.patch_object(
                        membership.target, merge=patch, context=membership.context
                    )
                return
            except errors.RequestError as error:
                logger.debug('The record is not removed from %s yet: %s', membership, error)
            await asyncio.sleep(ranking.SHORTEST_INTERVAL)


def _choose_reason(decision: ranking.Decision) -> str:
    """Return the reason of a pause, as in the metrics."""
    if decision.equals:
        return 'same-priority'
    return 'higher-priority' if decision.superiors else 'no-peering'


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
