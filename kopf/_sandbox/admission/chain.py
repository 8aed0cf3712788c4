"""
The chain: webhooks and policies change or reject objects before they are stored.

Mutating webhooks are called one after another, in the order of the names of their configurations;
each sees the changes of the previous ones. Validating webhooks are called concurrently.
"""

import asyncio
import dataclasses
import functools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from kopf._sandbox.admission import (
    admission_review,
    json_patch,
    matching,
    webhook_client,
)
from kopf._sandbox.cel import availability
from kopf._sandbox.meta import errors, kinds, requests
from kopf._sandbox.storage import memory

MUTATING = kinds.Home(matching.GROUP, 'mutatingwebhookconfigurations')
VALIDATING = kinds.Home(matching.GROUP, 'validatingwebhookconfigurations')

Conversion = Callable[[kinds.Resource, dict[str, Any], str], Awaitable[dict[str, Any]]]
"""Converts an object of a resource to an API version by a webhook."""

_CACHED_CONFIGURATIONS = 256
_OPTIONS_KINDS = {'CREATE': 'CreateOptions', 'UPDATE': 'UpdateOptions', 'DELETE': 'DeleteOptions'}


def _make_id() -> str:
    return str(uuid.uuid4())


class Gate:
    """
    The admission of requests by webhooks. Any number of requests may be in progress at once.

    With no webhooks configured, nothing awaits. The connections are closed in `close`.
    """

    def __init__(
        self,
        store: memory.Storage,
        catalog: kinds.Catalog,
        new_id: Callable[[], str] = _make_id,
        *,
        caller: webhook_client.Caller | None = None,
        convert: Conversion | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._new_id = new_id
        self._caller = caller or webhook_client.Caller(webhook_client.Services())
        self._convert = convert
        self.services = self._caller.services
        self._parse = functools.lru_cache(maxsize=_CACHED_CONFIGURATIONS)(_parse_stored)

    async def close(self) -> None:
        """Close the connections to the webhooks."""
        await self._caller.close()

    async def mutate(
        self,
        request: requests.Request,
        operation: str,
        new: dict[str, Any],
        old: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """
        Let the mutating webhooks change an object; return the changed one, or the same object if
        nothing has changed.

        The given object is not modified. For deletions, the mutating webhooks are called in
        `validate`. Raises the API's errors if a webhook denies the request, or fails while its
        policy is not to ignore failures.
        """
        if not self._store.shelf(MUTATING).keys:
            return new

        attempt = matching.Attempt(request, operation, new, old, build_options(request, operation))
        return await self._mutate(attempt) or new

    async def validate(
        self,
        request: requests.Request,
        operation: str,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Evaluate the policies for an object to be stored or deleted; call the validating webhooks,
        concurrently.

        For deletions, ``options`` are the options in the body, and the mutating webhooks are called
        first. Raises the API's error of the first webhook, in their order, that denies the request,
        or fails while its policy is not to ignore failures.
        """
        if self._is_idle():
            return

        attempt = matching.Attempt(
            request, operation, new, old, build_options(request, operation, options)
        )
        if new is None:
            await self._mutate(attempt)
        self._enforce(attempt)
        matched = [
            (hook, self._match(hook, attempt)) for hook in self._list_hooks(VALIDATING, request)
        ]
        called = [(hook, resource) for hook, resource in matched if resource is not None]
        if not called:
            return

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self._validate_once(hook, resource, attempt), name=f'webhook {hook.name}'
                )
                for hook, resource in called
            ]

        outcomes = [task.result() for task in tasks]
        for outcome in outcomes:
            request.warnings.extend(
                outcome.warnings if isinstance(outcome, admission_review.Verdict) else ()
            )

        for (hook, _), outcome in zip(called, outcomes, strict=True):
            if isinstance(outcome, errors.ApiError):
                raise outcome
            if outcome is not None and not outcome.allowed:
                raise admission_review.build_denial(hook, outcome)

    def _is_idle(self) -> bool:
        homes = (VALIDATING, MUTATING, matching.BINDINGS)
        return not any(self._store.shelf(home).keys for home in homes)

    def _enforce(self, attempt: matching.Attempt) -> None:
        """Evaluate the policies. CEL is imported only if there are any."""
        if self._store.shelf(matching.BINDINGS).keys and availability.is_available():
            from kopf._sandbox.admission import policies

            policies.Enforcer(self._store, self._catalog).enforce(attempt)

    async def _mutate(self, attempt: matching.Attempt) -> dict[str, Any] | None:
        configured = self._list_hooks(MUTATING, attempt.request)
        recalls = _Recalls()
        original = attempt.new

        for is_again in (False, True):
            for hook in configured:
                if is_again and hook.id not in recalls.due:
                    continue
                changed = await self._mutate_once(hook, attempt, recalls)
                if changed is not attempt.new:
                    recalls.require_again()
                    attempt = dataclasses.replace(attempt, new=changed)
                recalls.remember(hook)

        return original if attempt.new == original else attempt.new

    async def _mutate_once(
        self, hook: matching.Hook, attempt: matching.Attempt, recalls: '_Recalls'
    ) -> dict[str, Any] | None:
        resource = self._match(hook, attempt)
        if resource is None:
            return attempt.new

        recalls.called.add(hook.id)
        verdict = await self._consult(hook, resource, attempt, is_mutating=True)
        if verdict is None:
            return attempt.new

        attempt.request.warnings.extend(verdict.warnings)
        if not verdict.allowed:
            raise admission_review.build_denial(hook, verdict)
        if not verdict.operations:
            return attempt.new
        return await self._apply(hook, resource, attempt, verdict)

    async def _apply(
        self,
        hook: matching.Hook,
        resource: kinds.Resource,
        attempt: matching.Attempt,
        verdict: admission_review.Verdict,
    ) -> dict[str, Any]:
        source = attempt.request.resource
        seen = await self._view(attempt.new, source, resource)
        if seen is None or attempt.new is None:
            raise errors.internal(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                f'supported for this operation'
            )

        patched = json_patch.apply_operations(seen, verdict.operations)
        if not isinstance(patched, dict):
            raise errors.internal(
                "couldn't get version/kind; json parse error: the patched object is not an object"
            )

        changed = await self._view(patched, resource, source) or patched
        return attempt.new if changed == attempt.new else changed

    async def _view(
        self, body: dict[str, Any] | None, source: kinds.Resource, target: kinds.Resource
    ) -> dict[str, Any] | None:
        """Return an object in another version of its resource: perhaps, by a webhook."""
        is_plain = self._convert is None or source is target or source.conversion is None
        if is_plain or body is None or not admission_review.is_of_resource(body, source):
            return admission_review.convert(body, source, target)
        assert self._convert is not None, 'it is checked above'
        return await self._convert(source, body, target.api_version)

    async def _validate_once(
        self,
        hook: matching.Hook,
        resource: kinds.Resource,
        attempt: matching.Attempt,
    ) -> admission_review.Verdict | errors.ApiError | None:
        try:
            return await self._consult(hook, resource, attempt, is_mutating=False)
        except errors.ApiError as error:
            return error

    async def _consult(
        self,
        hook: matching.Hook,
        resource: kinds.Resource,
        attempt: matching.Attempt,
        *,
        is_mutating: bool,
    ) -> admission_review.Verdict | None:
        """Call a webhook; return ``None`` if it failed and its policy is to ignore failures."""
        if attempt.request.dry_run and hook.side_effects not in ('None', 'NoneOnDryRun'):
            raise errors.bad_request(f'admission webhook "{hook.name}" does not support dry run')

        try:
            version = admission_review.choose_version(hook)
            review = admission_review.build_review(attempt, resource, self._new_id(), version)
            for field, body in (('object', attempt.new), ('oldObject', attempt.old)):
                review['request'][field] = await self._view(
                    body, attempt.request.resource, resource
                )
            raw = await self._caller.ask(hook, review)
            return admission_review.parse_answer(raw, review, is_mutating=is_mutating)
        except admission_review.CallError as error:
            if hook.fails_open:
                return None
            raise errors.internal(f'failed calling webhook "{hook.name}": {error}') from error

    def _list_hooks(self, home: kinds.Home, request: requests.Request) -> list[matching.Hook]:
        configurations = self._store.shelf(home).select('')
        if not configurations or matching.is_exempt(request.resource):
            return []
        return [hook for stored in configurations for hook in self._parse(stored)]

    def _match(self, hook: matching.Hook, attempt: matching.Attempt) -> kinds.Resource | None:
        resource = matching.match(hook, attempt, self._catalog, self._find_labels)
        if resource is None or not hook.conditions or not availability.is_available():
            return resource

        from kopf._sandbox.admission import match_conditions, policies  # only if there are any

        conditions = match_conditions.parse_conditions(hook.conditions)
        try:
            is_met = match_conditions.are_met(conditions, policies.build_data(attempt, resource))
        except match_conditions.ConditionError as error:
            if hook.fails_open:
                return None
            request = attempt.request
            raise errors.forbidden(
                request.resource.group, request.resource.plural, attempt.name, str(error)
            ) from error

        return resource if is_met else None

    def _find_labels(self, namespace: str) -> Mapping[str, str] | None:
        stored = self._store.get(matching.NAMESPACES, '', namespace)
        return stored.labels if stored is not None else None


class _Recalls:
    """The webhooks to call again, because other webhooks changed the object after them."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.due: set[str] = set()
        self._reinvocable: set[str] = set()

    def remember(self, hook: matching.Hook) -> None:
        """Record a webhook that was called and must be called again if the object changes later."""
        if hook.is_reinvocable and hook.id in self.called:
            self._reinvocable.add(hook.id)

    def require_again(self) -> None:
        """Mark all recorded webhooks as due: the object has changed after them."""
        self.due |= self._reinvocable
        self._reinvocable.clear()


def build_options(
    request: requests.Request, operation: str, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Build the options of the operation from the query, or from the body of a deletion."""
    query = request.options
    options: dict[str, Any] = {
        'kind': _OPTIONS_KINDS.get(operation, 'CreateOptions'),
        'apiVersion': 'meta.k8s.io/v1',
    }
    options.update(
        _select(
            given or {},
            ('gracePeriodSeconds', 'preconditions', 'orphanDependents', 'propagationPolicy'),
        )
    )

    if operation == 'DELETE':
        if query.get('gracePeriodSeconds', '').isdigit():
            options['gracePeriodSeconds'] = int(query['gracePeriodSeconds'])
        options.update(_select(query, ('propagationPolicy',)))

    if request.dry_run:
        options['dryRun'] = ['All']
    if operation != 'DELETE':
        options.update(_select(query, ('fieldManager', 'fieldValidation')))
    return options


def _select(source: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: source[key] for key in keys if source.get(key) is not None and source[key] != ''}


def _parse_stored(stored: memory.Stored) -> tuple[matching.Hook, ...]:
    return matching.parse_configuration(stored.load())
