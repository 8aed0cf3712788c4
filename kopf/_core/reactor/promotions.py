"""
Promotions: what an operator does when its replica becomes the leader, and when it no longer is.

A standing-by replica handles nothing, and writes nothing. When it is promoted, its handlers of the
promotion are called first, then it handles objects. When it stops, everything is finished before
the Lease is released; when it loses the Lease, everything is interrupted. Without an election,
there is nothing to do here.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable

from kopf._cogs.clients import fences, requests
from kopf._core.engines.activities import operator_handlers
from kopf._core.engines.events import recorder
from kopf._core.engines.leading import candidates, replicas
from kopf._core.engines.peering import pauses
from kopf._core.intents import causes
from kopf._core.reactor import guards, stopping
from kopf._core.reactor import slots as slots_

logger = logging.getLogger(__name__)

EXIT_CODE = 1
"""The exit code of operators that have lost their leadership."""

STANDBY = 'standby'
"""The reason to pause a replica that neither leads nor watches objects."""


class Leadership:
    """The part of one operator in the election of its leader. Belongs to its event loop."""

    def __init__(
        self,
        *,
        context: requests.Context,
        fence: fences.Fence,
        pauses: pauses.Pauses,
        slots: slots_.Slots,
        poster: recorder.Poster,
        run_activity: Callable[[causes.Activity], Awaitable[None]],
    ) -> None:
        self.elected = asyncio.Event()  # also set if there is no election
        self.candidate: candidates.Candidate | None = None
        self._context = context
        self._fence = fence
        self._pauses = pauses
        self._slots = slots
        self._poster = poster
        self._run_activity = run_activity
        self._task: asyncio.Task[None] | None = None
        self._guard: guards.Guard | None = None

    def prepare(self) -> None:
        """Prepare for the election if the settings require one. Raises `PlaceError`."""
        settings = self._context.settings.leadership
        place = replicas.find_place(settings)
        if place is None:
            self.elected.set()
            return

        self.candidate = candidates.Candidate(
            place,
            identity=replicas.make_identity(os.environ),
            context=self._context,
            fence=self._fence,
        )
        if settings.standby == 'hot':
            self._slots.hold()
        else:
            self._pauses.turn(STANDBY, True)

    def start(self) -> list[asyncio.Task[None]]:
        """
        Start the election, if any. The task ends only by errors: `LeadershipLostError`,
        `LoginError`.
        """
        if self.candidate is None:
            return []
        self._task = asyncio.create_task(self.candidate.run(), name='leadership')
        return [self._task]

    async def lead(self) -> None:
        """Wait for the promotion, and let the operator work. Raises errors of its handlers."""
        candidate = self.candidate
        if candidate is None:
            return

        await candidate.wait_until_promoted()
        self._watch_over()
        self._post(candidate)
        await self._run_activity(causes.Activity.PROMOTION)
        self.elected.set()
        self._slots.release()
        self._pauses.turn(STANDBY, False)

    async def stop(self) -> None:
        """
        Release the Lease, after the handlers of the demotion; these have little time if it is lost.
        """
        if self._guard is not None:
            self._guard.dismiss()
        if self.candidate is None or self._task is None:
            return

        try:
            if self.candidate.epoch_led is not None:
                await self._demote()
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # it was raised already, or no longer matters
            await self.candidate.resign()

    def _watch_over(self) -> None:
        if stopping.is_ending_with_operator():
            settings = self._context.settings.leadership
            margin = (settings.lease_duration - settings.renew_deadline) / 2
            self._guard = guards.Guard(
                self._fence, margin, leave=lambda: stopping.exit_at_once(EXIT_CODE)
            )
            self._guard.start()

    async def _demote(self) -> None:
        settings = self._context.settings.leadership
        limit = settings.lease_duration - settings.renew_deadline if self._fence.is_lost else None
        try:
            async with asyncio.timeout(limit):
                await self._run_activity(causes.Activity.DEMOTION)
        except operator_handlers.ActivityError as error:
            logger.error('%s', error)
        except TimeoutError:
            logger.error('The handlers of the demotion have not ended in %s s.', limit)

    def _post(self, candidate: candidates.Candidate) -> None:
        """Post a k8s-event about the Lease, as other programs with such elections do."""
        posting = self._context.settings.posting
        body = candidate.body
        if not posting.enabled or body is None:
            return

        with contextlib.suppress(KeyError):
            self._poster.put(
                {
                    'apiVersion': replicas.LEASES.api_version,
                    'kind': replicas.LEASES.kind,
                    'name': body['metadata']['name'],
                    'namespace': body['metadata']['namespace'],
                    'uid': body['metadata']['uid'],
                    'resourceVersion': body['metadata']['resourceVersion'],
                },
                type='Normal',
                reason='LeaderElection',
                message=f'{candidate.identity} became leader',
                backoffs=posting.default_backoffs,
                is_optional=True,
            )
