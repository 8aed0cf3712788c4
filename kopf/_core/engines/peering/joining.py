"""
Joining: in which peering objects the operator takes part, and what is paused because of them.

The operator is a member of one cluster-wide peering object, or of one in each served namespace, if
there are such objects. If it must give way to others in one of the namespaces, it pauses only
there: writers of one namespace must not affect the others. Cluster-scoped objects are paused when
all namespaces are.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from kopf._cogs.clients import discovery, errors, outages, requests, retries
from kopf._cogs.clients.patching import targets
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import references
from kopf._core.engines.peering import keepalive, pauses, ranking

logger = logging.getLogger(__package__)

CASUAL_PERIOD = 300.0
"""Seconds between the checks for the resource of peering objects if peering is optional."""

UNDECIDED = 'undecided'
"""The reason to pause until it is known whether there are other operators."""

EVERYWHERE = 'everywhere'
"""The reason to pause the whole operator when all namespaces are paused."""


class Scope(Protocol):
    """The currently served namespaces."""

    @property
    def namespaces(self) -> Collection[references.Namespace]: ...

    @property
    def is_namespaces_known(self) -> bool: ...

    @property
    def revision(self) -> int: ...

    async def wait_until_changed(self, since: int) -> None: ...


@dataclasses.dataclass(eq=False)
class _Seat:
    """A membership, and the task that runs it."""

    member: keepalive.Member
    task: asyncio.Task[None]
    is_leaving: bool = False

    def leave(self) -> None:
        """Request the member to leave, but only once: further cancellations would interrupt it."""
        if not self.is_leaving:
            self.is_leaving = True
            self.task.cancel()


class Peering:
    """
    The presence of one operator among others. Belongs to its event loop.

    It is started when the settings are final, and stopped when no more objects are handled, but
    while there are still credentials. In between, it turns the pauses on and off; it never turns
    off pauses of other origins.
    """

    def __init__(
        self,
        *,
        context: requests.Context,
        identity: ranking.Identity,
        scope: Scope,
        pauses: pauses.Pauses,
    ) -> None:
        self._context = context
        self._identity = identity
        self._scope = scope
        self._pauses = pauses
        self._seats: dict[references.Namespace, _Seat] = {}
        self._is_noticed = False  # whether it is logged that the operator is alone
        # Whether at least the initial peerings are joined.
        self._is_adjusted = False
        self._task: asyncio.Task[None] | None = None

    @property
    def _settings(self) -> settings_.PeeringSettings:
        return self._context.settings.peering

    @property
    def _is_alone(self) -> bool:
        """Whether others are ignored: with an election, also those in the usual peering."""
        settings = self._settings
        is_usual = settings.name == settings_.PeeringSettings.name and not settings.mandatory
        is_elected = self._context.settings.leadership.name is not None
        return settings.standalone or (is_elected and is_usual)

    def start(self) -> asyncio.Task[None]:
        """
        Start to look for other operators; pause until they are known, each namespace separately.

        The task ends only by an error: `LoginError` if there are no credentials.
        """
        if not self._is_alone:
            self._pauses.turn(UNDECIDED, True)
        self._task = asyncio.create_task(self._run(), name='peering')
        return self._task

    async def stop(self) -> None:
        """Leave all peerings, in a limited time. If cancelled, some of the records can be left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # it was raised already, or no longer matters

    async def _run(self) -> None:
        if self._is_alone:
            await asyncio.Event().wait()
        try:
            resource = await self._wait_for_resource()
            while True:
                revision = self._scope.revision
                self._adjust(resource)
                await self._wait_for_changes(revision)
                self._collect()
        finally:
            await self._leave_all()

    async def _wait_for_resource(self) -> references.Resource:
        """
        Find the resource of peering objects; if absent, wait for it, paused or not, as configured.
        """
        attempts = 0
        while True:
            attempts += 1
            delay = retries.choose_backoff(attempts, self._context.chance())
            try:
                resource = await find_resource(
                    self._context, clusterwide=self._settings.clusterwide
                )
            except (errors.RequestError, OSError) as error:
                logger.log(
                    outages.choose_level(error),
                    'It is not known if there is any peering, and will be asked for again: %s',
                    error,
                )
            else:
                if resource is not None:
                    return resource
                self._note_absence()
                delay = delay if self._settings.mandatory else CASUAL_PERIOD
            await asyncio.sleep(delay)

    def _note_absence(self) -> None:
        """Continue without peering, unless it is mandatory."""
        if not self._settings.mandatory:
            self._pauses.turn(UNDECIDED, False)
        if not self._is_noticed and self._settings.mandatory:
            logger.warning(
                'The operator pauses until the resource of peerings is there: the cluster does '
                'not serve it. Apply the peering.yaml of the framework.'
            )
        elif not self._is_noticed:
            logger.info('The operator is on its own: the cluster has no peerings.')

        self._is_noticed = True

    def _adjust(self, resource: references.Resource) -> None:
        """Join the peerings of new namespaces; leave those of namespaces no longer served."""
        namespaces = self._list_namespaces()
        # The operator is active, and must not be paused.
        was_alone = not self._is_adjusted and not self._pauses.has_reasons(None)
        for namespace, seat in self._seats.items():
            if namespace not in namespaces:
                seat.leave()

        for namespace in namespaces:
            if namespace not in self._seats:
                self._pauses.turn(UNDECIDED, not was_alone, namespace)
                self._seats[namespace] = self._join(resource, namespace)

        self._is_adjusted = True
        self._check_whole()

    def _list_namespaces(self) -> Collection[references.Namespace]:
        if self._settings.clusterwide:
            return {None}
        return {namespace for namespace in self._scope.namespaces if namespace is not None}

    def _join(self, resource: references.Resource, namespace: references.Namespace) -> _Seat:
        name = self._settings.name
        membership = keepalive.Membership(
            ranking.ally(self._identity, self._context.settings.leadership.name),
            targets.Target(resource, namespace, name),
            keepalive.isolate(self._context, name),
        )
        member = keepalive.Member(
            membership,
            on_decided=self._take_decision,
            on_absent=self._take_absence,
            is_sharded=bool(self._context.settings.watching.shard_selectors),
        )

        return _Seat(member, asyncio.create_task(member.run(), name=f'member of {membership}'))

    def _take_decision(self, member: keepalive.Member, is_paused: bool) -> None:
        namespace = member.membership.target.namespace
        self._pauses.turn(member, is_paused, namespace)
        self._pauses.turn(UNDECIDED, False, namespace)
        self._check_whole()

    def _take_absence(self, member: keepalive.Member) -> None:
        level = logging.DEBUG if self._is_noticed else logging.INFO
        logger.log(
            level, 'The operator is on its own: there is no such object as %s.', member.membership
        )
        self._is_noticed = True

    def _check_whole(self) -> None:
        """Pause the whole operator only until namespaces are known or while all of them pause."""
        if self._settings.clusterwide:
            return
        served = [namespace for namespace, seat in self._seats.items() if not seat.is_leaving]
        is_paused = bool(served) and all(map(self._pauses.has_reasons, served))
        self._pauses.turn(EVERYWHERE, is_paused)
        if self._scope.is_namespaces_known:
            self._pauses.turn(UNDECIDED, False)

    async def _wait_for_changes(self, revision: int) -> None:
        """
        Wait until the namespaces change or any membership ends. Cancellation affects no membership.
        """
        waiter = asyncio.create_task(
            self._scope.wait_until_changed(revision), name='scope of peering'
        )
        try:
            await asyncio.wait(
                {waiter, *(seat.task for seat in self._seats.values())},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiter.cancel()
            await asyncio.wait({waiter})

    def _collect(self) -> None:
        """Forget the members that have left; raise the errors of the failed ones."""
        for namespace, seat in [
            (namespace, seat) for namespace, seat in self._seats.items() if seat.task.done()
        ]:
            del self._seats[namespace]
            self._pauses.turn(seat.member, False, namespace)
            self._pauses.turn(UNDECIDED, False, namespace)
            if not seat.task.cancelled():
                seat.task.result()

    async def _leave_all(self) -> None:
        tasks = [seat.task for seat in self._seats.values()]
        for seat in self._seats.values():
            seat.leave()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # either it was raised already, or it is too late


async def find_resource(
    context: requests.Context, *, clusterwide: bool
) -> references.Resource | None:
    """Find the resource of peering objects by requesting only its possible groups."""
    found: list[references.Resource] = []
    for group in ranking.GROUPS:
        version = discovery.GroupVersion(group, ranking.VERSION)
        try:
            answer = await requests.get(
                version.url, context=context, options=requests.Options(answers=(403, 404))
            )
        except (errors.APIForbiddenError, errors.APINotFoundError):
            continue
        if isinstance(answer, Mapping):
            found.extend(discovery.parse_resource_list(answer, version))
        resource = ranking.select_resource(found, clusterwide=clusterwide)
        if resource is not None:
            return resource

    return None
