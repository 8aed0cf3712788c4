"""
Reviewer: calls the admission handlers for the reviews that come to a webhook server.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, cast

from kopf._cogs.aiokits import offloads
from kopf._cogs.helpers import lazies
from kopf._cogs.structs import dicts, diffs, objects, patches, references, reviews, selectors
from kopf._core.actions import execution, failures, loggers
from kopf._core.engines.admission import admission_review, paths
from kopf._core.intents import causes, filters, handlers, naming, registries

logger = logging.getLogger(__name__)

READINESS_LOOKS = 80
READINESS_PERIOD = 0.1
"""
How many times and at which interval in seconds to check whether the operator knows enough about the
cluster, before a review is refused. By default, the API server waits for 10 seconds.
"""

TIMEOUT = 29.0
"""
Seconds from the arrival of a review until its decision, regardless of the handlers. The API server
waits for 30 seconds at most, so it gets the reason of the failure in time, and no abandoned reviews
pile up here.
"""

THREADS_LIMIT = 100
"""
How many handlers can run in threads at the same time; the others wait. They cannot be interrupted,
so they keep their threads even if their results are no longer needed.
"""

UNKNOWN = 404
UNREADY = 503

UNFIT = 422
"""The code for objects that do not fit the types of the handlers."""

PATH_LIMIT = 100
"""How many characters of an unknown path are shown; the API cuts warnings longer than 256."""


class Scope(Protocol):
    """The resources currently matched by the selectors of the handlers."""

    @property
    def reviewed(self) -> Mapping[selectors.Selector, Collection[references.Resource]]: ...


class Memos(Protocol):
    """The memos of objects, shared by all their handlers."""

    def get_memo(self, body: Mapping[str, Any], /, *, is_existing: bool) -> Any:
        """Get the memo of an existing object if it is known; otherwise, a separate one."""


@dataclasses.dataclass(eq=False)
class _Call:
    """
    One handler called for one review, with its own cause: handlers do not see each other's changes.
    """

    handler: handlers.WebhookHandler
    cause: causes.WebhookCause
    error: Exception | None = None

    async def run(self, env: execution.Environment, deadline: float) -> None:
        """
        Call the handler once, until this time of the event loop. Raises only cancellations.

        At the deadline, coroutines are cancelled, and functions in threads are abandoned.
        """
        if self.error is not None:
            return

        try:
            async with asyncio.timeout_at(deadline):
                outcome = await execution.run_attempt(
                    self.handler,
                    self.cause,
                    None,
                    env,
                    default_errors=failures.ErrorsMode.PERMANENT,
                )
                self.error = outcome.exception
        except TimeoutError:  # only of the deadline: those of the handler are in the outcome
            self.error = failures.HandlerTimeoutError(
                f'{self.handler} has not decided in {TIMEOUT:g} seconds.'
            )
            self.cause.logger.error('%s', self.error)
            if env.meter is not None:
                env.meter.count_attempt(self.handler.id, 'failed', TIMEOUT)

    @property
    def is_mutating(self) -> bool:
        return self.handler.type is causes.WebhookType.MUTATING

    @property
    def denial(self) -> Exception | None:
        """The error that denies the request, if any: a decision, or a failure unless ignored."""
        if self.error is None or self.is_tolerated:
            return None
        failure = None if self.handler.ignore_failures else self.error
        if isinstance(failure, failures.InvalidObjectError):
            failure = failures.AdmissionError(str(failure), code=UNFIT)
        return admission_review.find_decision(self.error) or failure

    @lazies.lazy
    def is_tolerated(self) -> bool:
        """
        Whether the object does not fit the types of the handler, but was stored so before.

        Such objects must remain editable and deletable, but new ones would evade the handler.
        """
        if not isinstance(self.error, failures.InvalidObjectError):
            return False
        is_deleted = self.cause.body.metadata.deletion_timestamp is not None
        return is_deleted or self.cause.operation == 'DELETE' or not self._was_fit()

    def _was_fit(self) -> bool:
        old = self.cause.old
        if old is None:
            return True
        earlier = dataclasses.replace(self.cause, body=old, old=None, new=old)
        try:
            self.handler.convert(earlier.kwargs, earlier)
        except failures.InvalidObjectError:
            return False

        return True

    @property
    def warnings(self) -> list[Any]:
        """The warnings of the handler, including its own failure if it is ignored."""
        failure = (
            f'{self.handler} failed, and is ignored: {admission_review.describe_error(self.error)}'
            if self.error is not None and self.denial is None
            else None
        )
        return [*self.cause.warnings, *([] if failure is None else [failure])]


class Reviewer:
    """
    The reviewer of requests to the API, any number at a time. Belongs to one event loop.

    Nothing is remembered of a review after the response.
    """

    def __init__(
        self,
        registry: registries.OperatorRegistry,
        *,
        scope: Scope,
        memos: Memos,
        indices: Mapping[str, Any],
        env: execution.Environment,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._registry = registry
        self._scope = scope
        self._memos = memos
        self._indices = indices
        self._env = dataclasses.replace(env, is_quiet=True)
        self._is_ready = is_ready
        self._known: list[handlers.WebhookHandler] = []
        self._webhooks: Sequence[paths.Webhook] = ()

    @property
    def webhooks(self) -> Sequence[paths.Webhook]:
        """All webhooks declared so far."""
        declared = list(self._registry._webhooks)
        if declared != self._known:
            self._known = declared
            self._webhooks = paths.build_webhooks(declared)
        return self._webhooks

    async def review(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
        sslpeer: Mapping[str, Any] | None = None,
    ) -> reviews.Response:
        """
        Call the matching handlers, of one webhook or of all, and return the response.

        It takes as long as the handlers do, but no longer than `TIMEOUT`: late handlers count as
        failed. If cancelled, the handlers are cancelled too. Handlers in threads do not block
        others. Raises `ReviewRefused` if it is not a review, or if the operator cannot answer it.
        Unknown webhooks admit anything.
        """
        peer = _Peer(dict(headers or {}), dict(sslpeer or {}))
        try:
            return await self._review(request, (webhook or '').strip('/'), peer)
        except RecursionError:
            raise reviews.ReviewRefused(
                'The review is nested too deeply.', code=admission_review.MALFORMED
            ) from None

    async def _review(
        self, request: Mapping[str, Any], path: str, peer: '_Peer'
    ) -> reviews.Response:
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        question = admission_review.parse_review(request)
        candidates = (
            paths.find_handlers(self.webhooks, path) if path else [*self._registry._webhooks]
        )
        if path and not candidates:
            return admission_review.build_response(question, _admit_unknown(path))

        await self._wait_until_ready()
        run = offloads.choose_run(request.size if isinstance(request, reviews.LargeReview) else 0)
        diff = await run(diffs.diff, question.old, question.new)
        calls = select_calls(candidates, self._build_cause(question, diff, peer))
        received = (
            await run(dicts.plain, question.new)
            if any(call.is_mutating for call in calls)
            else None
        )
        await _run_calls(calls, self._env, deadline)
        verdict = await run(conclude, calls, received)
        del received  # a separate step: it takes time to free large objects

        return await run(admission_review.build_response, question, verdict)

    async def _wait_until_ready(self) -> None:
        for _ in range(READINESS_LOOKS):
            if self._is_ready():
                return
            await asyncio.sleep(READINESS_PERIOD)
        raise reviews.ReviewRefused('The operator is not ready yet.', code=UNREADY)

    def _build_cause(
        self, question: admission_review.Question, diff: diffs.Diff, peer: '_Peer'
    ) -> causes.WebhookCause:
        resource, chosen = self._find_resource(question.resource)
        body = objects.Body(question.body)
        old = question.old
        is_posted = question.is_about_existing and not question.is_dryrun
        make_logger = loggers.ObjectLogger if is_posted else loggers.LocalObjectLogger

        return causes.WebhookCause(
            logger=make_logger(body=body, settings=self._env.settings),
            indices=self._indices,
            memo=self._memos.get_memo(question.body, is_existing=question.is_about_existing),
            resource=resource,
            selectors=chosen,
            body=body,
            patch=patches.Patch(body=body),
            old=None if old is None else objects.Body(old),
            new=None if question.new is None else body,
            diff=diff,
            dryrun=question.is_dryrun,
            operation=question.operation,
            subresource=question.subresource,
            userinfo=cast(reviews.UserInfo, dict(question.userinfo)),
            headers=peer.headers,
            sslpeer=peer.certificate,
        )

    def _find_resource(
        self,
        asked: references.Resource,
    ) -> tuple[references.Resource, Collection[selectors.Selector]]:
        """Find the discovered resource, and the selectors that match it."""
        found = {
            selector: resource
            for selector, resources in self._scope.reviewed.items()
            for resource in resources
            if resource == asked
        }
        if not found:
            raise reviews.ReviewRefused('The resource is not served by the operator.', code=UNKNOWN)
        return next(iter(found.values())), frozenset(found)


@dataclasses.dataclass(frozen=True)
class _Peer:
    """The sender of the review."""

    headers: reviews.Headers = dataclasses.field(repr=False)  # can contain credentials
    certificate: reviews.SSLPeer


def _admit_unknown(path: str) -> admission_review.Verdict:
    """
    Admit requests to unknown webhooks. The path comes from the network, and can be of any length.
    """
    text = (
        f'There is no admission handler {path[:PATH_LIMIT]!r} in the operator, so the '
        'request is admitted.'
    )
    logger.warning('%s Check the URLs in the webhook configurations.', text)
    return admission_review.Verdict(warnings=[text])


def select_calls(
    candidates: Sequence[handlers.WebhookHandler], cause: causes.WebhookCause
) -> list[_Call]:
    """Select the handlers to call, each function once per id; failed filters fail the handler."""
    calls: dict[int, _Call] = {}
    for handler in candidates:
        own = _copy_cause(cause) if len(candidates) > 1 else cause
        try:
            if handler.selector in (cause.selectors or ()) and filters.match(handler, own):
                calls[id(handler)] = _Call(handler, own)
        except Exception as error:
            cause.logger.error('%s failed in its filters.', handler, exc_info=error)
            calls[id(handler)] = _Call(handler, own, error)

    unique = naming.deduplicate(call.handler for call in calls.values())
    return [calls[id(handler)] for handler in unique]


def _copy_cause(cause: causes.WebhookCause) -> causes.WebhookCause:
    return dataclasses.replace(cause, patch=patches.Patch(body=cause.body), warnings=[])


async def _run_calls(calls: Sequence[_Call], env: execution.Environment, deadline: float) -> None:
    """Call all handlers concurrently. If cancelled, they are too."""
    if len(calls) == 1:  # the usual case, which needs no tasks
        await calls[0].run(env, deadline)
        return
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call.run(env, deadline), name=f'admission by {call.handler.id}')


def conclude(
    calls: Sequence[_Call], received: admission_review.RawBody | None
) -> admission_review.Verdict:
    """
    Decide on the request by the results of the handlers; ``received`` is the unmodified object.

    It is `None` if there is nothing to patch, as when the object is deleted: then the API accepts
    no patches.
    """
    patch = None
    if all(call.denial is None for call in calls):
        patch = _collect_patch(calls, received)
    error = admission_review.choose_error(call.denial for call in calls if call.denial is not None)
    warnings = [warning for call in calls for warning in call.warnings]
    return admission_review.Verdict(error, warnings, patch if error is None else None)


def _collect_patch(
    calls: Sequence[_Call], received: admission_review.RawBody | None
) -> bytes | None:
    """
    Join the patches in the order of the handlers. If a patch is invalid, its handler has failed.
    """
    patch: bytes | None = None
    current = received
    for call in calls:
        if not call.cause.patch or call.error is not None:
            continue
        if not call.is_mutating or current is None or received is None:
            reason = (
                'the object is being deleted'
                if call.is_mutating
                else 'it only validates; use @kopf.on.mutate'
            )
            call.cause.logger.warning('%s has a patch, which is ignored: %s.', call.handler, reason)
            continue
        try:
            following = admission_review.apply_patch(call.cause.patch, current)
            patch = admission_review.encode_patch(received, following)
            current = following
        except Exception as error:
            call.cause.logger.error('%s failed in its patch.', call.handler, exc_info=error)
            call.error = error

    return patch
