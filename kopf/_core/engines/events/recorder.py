"""
Recorder: the queue of an operator's k8s-events, and the workers that post them.

Reports are accepted from any thread without waiting. Reports about one object are posted one after
another, in the order of arrival; objects do not wait for each other, unless the number of workers
is limited. Posting never causes errors: events that cannot be posted are dropped, and that is
logged.
"""

import asyncio
import collections
import contextvars
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from kopf._cogs.aiokits import bells
from kopf._cogs.clients import errors, events, requests
from kopf._cogs.configs import connecting
from kopf._cogs.configs import settings as settings_
from kopf._core.engines.events import correlation

logger = logging.getLogger(__name__)

FORBIDDEN_PERIOD = 600.0
"""
Seconds for which repeated k8s-events are posted as new ones if patching them is forbidden; also,
for which optional ones are not posted if creating them is forbidden.
"""


@dataclasses.dataclass(slots=True, eq=False)
class _Worker:
    """The task that posts the reports about one object."""

    key: correlation.Key
    # Set if there are more reports, or if the worker must leave.
    bell: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    pending: correlation.Pending | None = None  # the report being posted
    task: asyncio.Task[None] | None = None


class Poster:
    """
    The poster of one operator's k8s-events. Belongs to the event loop it was made in.

    Only `put` can be called from any thread. Nothing is posted until `start` is called. The workers
    are tasks of the poster: they end by themselves after being idle for a while, or are ended by
    `close`.
    """

    def __init__(self, context: requests.Context) -> None:
        self.settings: settings_.OperatorSettings = context.settings
        self._context = context
        self._loop = asyncio.get_running_loop()
        # So that the workers do not keep the contexts of the callers.
        self._vars = contextvars.copy_context()
        self._inbox: collections.deque[correlation.Report] = collections.deque()
        self._backlog = correlation.Backlog()
        self._history = correlation.History()
        self._waiting: dict[correlation.Key, None] = {}  # for a worker
        self._workers: dict[correlation.Key, _Worker] = {}
        self._progress = bells.Bell()
        self._dropped = 0
        self._forbidden_until = 0.0
        # Until when creating events is forbidden, by namespaces.
        self._denied: dict[str, float] = {}
        self._is_overflown = False
        self._is_woken = self._is_started = self._is_closed = False

    def put(
        self,
        ref: Mapping[str, Any],
        *,
        type: str,
        reason: str,
        message: str,
        backoffs: connecting.Backoffs,
        is_optional: bool = False,
    ) -> None:
        """
        Queue a k8s-event to be posted. Never waits and never raises, in any thread.

        If the queue is full, the oldest events are dropped. K8s-events about k8s-events are
        silently skipped: they would never end. Optional ones are skipped for a while after one was
        forbidden.
        """
        if events.is_about_event(ref):
            return
        if self._is_closed and is_optional:
            return

        if self._is_closed:
            logger.warning(
                'A k8s-event is not posted, as the operator is stopped: %s (%s: %s)',
                ref.get('name'),
                type,
                reason,
            )
            return

        self._inbox.append(
            correlation.Report(
                ref=ref,
                type=type,
                reason=events.cut(reason or type, events.REASON_LIMIT),
                message=events.cut(message, events.MESSAGE_LIMIT),
                time=self._context.now(),
                backoffs=backoffs,
                is_optional=is_optional,
            )
        )
        # Only if the event loop is blocked.
        while len(self._inbox) > self.settings.posting.queue_limit:
            self._inbox.popleft()
            self._dropped += 1  # threads can miscount it a bit: it is only for the logs

        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._wake, context=self._vars)
            except RuntimeError:  # the loop is closed, but the poster was not
                self._is_closed = True

    def start(self) -> None:
        """Start posting, including the earlier reports."""
        self._is_started = True
        self._wake()

    async def flush(self) -> None:
        """Wait until all reports are posted, within the exit timeout of the settings."""
        self._wake()
        try:
            async with asyncio.timeout(self.settings.posting.exit_timeout):
                while self._backlog or any(
                    worker.pending is not None for worker in self._workers.values()
                ):
                    await self._progress.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """
        Post the remaining reports within the same timeout; end the workers, drop the rest.

        If cancelled, it drops the rest immediately, and still awaits the workers. Can be repeated.
        """
        try:
            if self._is_started and not self._is_closed:
                await self.flush()
        finally:
            self._is_closed = True
            self._wake()
            unfinished = [
                worker.pending.count
                for worker in self._workers.values()
                if worker.pending is not None
            ]
            left = sum(unfinished) + self._backlog.clear() + self._dropped
            self._dropped = 0
            if left:
                logger.warning('%d k8s-events are not posted, as the operator is stopped.', left)
            await self._cancel_workers()

    async def _cancel_workers(self) -> None:
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wake(self) -> None:
        """Move all reports from the inbox to the backlog, and have them posted."""
        self._is_woken = False  # before the inbox is emptied: later reports will wake it again
        while self._inbox:
            key = self._backlog.put(self._inbox.popleft())
            worker = self._workers.get(key)
            if worker is None:
                self._waiting[key] = None
            else:
                worker.bell.set()

        while len(self._backlog) > self.settings.posting.queue_limit:
            self._dropped += self._backlog.drop()
        if self._dropped and not self._is_overflown:
            self._is_overflown = True
            logger.warning(
                'K8s-events come faster than they are posted: the oldest ones are dropped.'
            )

        self._serve()

    def _serve(self) -> None:
        """Start workers for the waiting objects, as many as permitted."""
        limit = self.settings.posting.worker_limit
        while self._is_started and not self._is_closed and self._waiting:
            if limit is not None and len(self._workers) >= limit:
                self._dismiss_idle()
                break
            key = next(iter(self._waiting))
            del self._waiting[key]
            if key in self._backlog:
                self._begin(key)

    def _dismiss_idle(self) -> None:
        for worker in self._workers.values():
            if worker.pending is None:
                worker.bell.set()

    def _begin(self, key: correlation.Key) -> None:
        worker = self._workers[key] = _Worker(key)
        worker.task = self._loop.create_task(self._work(worker), name=f'poster of {"/".join(key)}')
        worker.task.add_done_callback(lambda _: self._end(worker))

    def _end(self, worker: _Worker) -> None:
        del self._workers[worker.key]
        if worker.key in self._backlog:  # has arrived at the last moment
            self._waiting[worker.key] = None
        self._serve()

    async def _work(self, worker: _Worker) -> None:
        """Post all reports about an object; leave when idle for a while or if others wait."""
        while True:
            while (pending := self._backlog.take(worker.key)) is not None:
                worker.pending = pending
                await self._post(pending)
                worker.pending = None
                self._note_progress()
            if self._waiting:
                return
            worker.bell.clear()
            try:
                async with asyncio.timeout(self.settings.posting.idle_timeout):
                    await worker.bell.wait()
            except TimeoutError:
                return

    def _note_progress(self) -> None:
        self._progress.ring()
        if self._is_overflown and not self._backlog:
            logger.warning(
                'K8s-events are posted in time again; %d of them were dropped.', self._dropped
            )
            self._dropped = 0
            self._is_overflown = False

    async def _post(self, pending: correlation.Pending) -> None:
        """Post a report, unless there were too many about this object; then it is only counted."""
        report = pending.report
        posting = self.settings.posting
        if report.is_optional and self._is_denied(report):
            return

        series = self._history.add(pending)
        if posting.burst_limit is not None:
            allowance = self._history.draw(
                correlation.identify(report.ref),
                now=self._loop.time(),
                burst=posting.burst_limit,
                interval=posting.burst_interval,
            )
            if allowance.denied == 1 and not allowance.is_granted:
                logger.warning(
                    'There are too many k8s-events about %s: from now on, one in %s s is posted.',
                    series.build_new(report),
                    posting.burst_interval,
                )
            if not allowance.is_granted:
                return

        try:
            await self._send(series, report)
        except Exception:  # errors in users' values must not affect other events
            logger.exception('Failed to post a k8s-event about %s.', series.build_new(report))

    async def _send(self, series: correlation.Series, report: correlation.Report) -> None:
        """Increase the count of the posted k8s-event if possible, or post a new one."""
        if series.posted is not None and self._loop.time() >= self._forbidden_until:
            repetition = await events.repeat_event(
                series.posted,
                series.build_repeated(report),
                context=self._context,
                backoffs=report.backoffs,
            )
            if repetition is events.Repetition.DONE:
                series.extend()
            if repetition is events.Repetition.FORBIDDEN:
                logger.info(
                    'It is not permitted to patch k8s-events, so the repeated ones are posted as '
                    'new ones.'
                )
                self._forbidden_until = self._loop.time() + FORBIDDEN_PERIOD
            if repetition in (events.Repetition.DONE, events.Repetition.FAILED):
                return

        try:
            posted = await events.post_event(
                series.build_new(report),
                context=self._context,
                backoffs=report.backoffs,
                answers=(403,) if report.is_optional else (),
            )
        except errors.APIForbiddenError as error:
            if not error.has_cause('NamespaceTerminating'):
                self._deny(report, error)
            return

        if posted is not None:
            series.renew(posted)

    def _is_denied(self, report: correlation.Report) -> bool:
        """Return whether optional k8s-events are not posted in this namespace for now."""
        return self._loop.time() < self._denied.get(_get_namespace(report), 0.0)

    def _deny(self, report: correlation.Report, error: errors.APIForbiddenError) -> None:
        """Stop posting optional k8s-events in the namespace for a while, as it is forbidden."""
        now = self._loop.time()
        if not self._is_denied(report):
            logger.info(
                'It is not permitted to create k8s-events in %s, so failures of handlers are only '
                'logged: %s. Grant the verb "create" for "events", or set '
                'settings.posting.failures = False.',
                _get_namespace(report) or 'the default namespace',
                error,
            )

        self._denied = {place: until for place, until in self._denied.items() if now < until}
        self._denied[_get_namespace(report)] = now + FORBIDDEN_PERIOD


def _get_namespace(report: correlation.Report) -> str:
    return str(report.ref.get('namespace') or '')
