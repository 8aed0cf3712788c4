"""
The writer: creations, updates, patches and deletions, from a decoded request to a stored version.

While webhooks are called, other requests go on, so every write ends with a check that the object is
unchanged since it was read; if not, the write is refused or retried on the newer state, as in the
API. Without webhooks, nothing awaits.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kopf._sandbox.admission import chain, matching
from kopf._sandbox.apply import managed_fields, server_side
from kopf._sandbox.cel import availability
from kopf._sandbox.meta import equality, errors, kinds, metadata, requests, selectors
from kopf._sandbox.registry import (
    allocations,
    approvals,
    conversion_webhooks,
    conversions,
    deletion,
    prepare,
    scale_subresource,
    strategies,
)
from kopf._sandbox.registry.plugins import admitters
from kopf._sandbox.schema import pruning
from kopf._sandbox.storage import memory

MODIFIED = (
    'the object has been modified; please apply your changes to the latest version and try again'
)
ATTEMPTS = 5
IMMORTAL = ('default', 'kube-system', 'kube-public')

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the new state of an object from its current state, which it may modify or reuse."""

Guard = Callable[[requests.Request, Mapping[str, Any], Mapping[str, Any] | None], None]
"""Refuses the new states (given with the old ones) that the user may not create."""


class Stale(Exception):
    """The object was changed by another request while this one was being admitted."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a write; the state is not stored in dry runs."""

    stored: memory.Stored
    is_created: bool = False
    is_removed: bool = False


class Writer:
    """All writes to one storage. Any number of requests may be in progress at once."""

    def __init__(
        self,
        store: memory.Storage,
        gate: chain.Gate,
        converter: conversion_webhooks.Converter,
        sources: prepare.Sources,
        guard: Guard,
    ) -> None:
        self._store = store
        self._gate = gate
        self._sources = sources
        self._guard = guard
        self._admitter = admitters.Admitter(store)
        self._converter = converter

    async def create(self, request: requests.Request, body: Any) -> Outcome:
        """Store a new object, or refuse."""
        obj = prepare.decode_object(request, body)
        metadata.wipe(obj)
        self._check_namespace(request, obj)
        prepare.set_defaults(request, obj)
        self._record(request, None, obj)
        return await self._create(request, obj)

    async def update(self, request: requests.Request, body: Any) -> Outcome:
        """Replace an object, or refuse."""
        resource = request.resource
        obj = prepare.decode_object(request, body)
        if self._is_absent(request) and strategies.allows_create_on_update(
            resource.group, resource.kind
        ):
            return await self.create(dataclasses.replace(request, verb='create'), obj)

        if request.resource.conversion is not None:
            await self._converter.prepare(request.resource, [self._find(request)], again=True)
        self._check_uid(request, obj['metadata'].get('uid') or '')
        if not obj['metadata'].get('resourceVersion'):
            self._check_unconditional(request)
        return await self._modify(request, lambda old: pruning.clone(obj))

    async def patch(self, request: requests.Request, change: Change) -> Outcome:
        """Store the patched object, or refuse."""
        return await self._modify(request, lambda old: prepare.decode_object(request, change(old)))

    async def apply(self, request: requests.Request, config: Any, *, force: bool) -> Outcome:
        """Apply a configuration on behalf of its manager: create the object, or merge into it."""
        prepare.check_applied(request, config)
        if not request.subresource and self._is_absent(request):
            creation = dataclasses.replace(request, verb='create')
            obj = self._merge(creation, None, config, force)
            self._check_namespace(creation, obj)
            prepare.set_defaults(creation, obj)
            try:
                return await self._create(creation, obj)
            except errors.ApiError as e:
                # Another request could create the object while the webhooks were called.
                if e.reason != 'AlreadyExists':
                    raise

        return await self._modify(
            request, lambda old: self._merge(request, old, config, force), is_recorded=True
        )

    async def delete(self, request: requests.Request, options: deletion.Options) -> Outcome:
        """Remove an object, or mark it as being deleted."""
        resource = request.resource
        stored = self._find(request)
        deletion.check_preconditions(resource, stored, options)
        if resource.home == kinds.NAMESPACES and stored.name in IMMORTAL:
            raise errors.forbidden(
                '', 'namespaces', stored.name, 'this namespace may not be deleted'
            )

        await self._converter.prepare(resource, [stored], again=True)
        await self._gate.validate(
            request, 'DELETE', None, conversions.read(resource, stored), options.body
        )
        current = self._store.get(resource.home, stored.namespace, stored.name)
        if current is None or current.uid != stored.uid:
            raise errors.not_found(resource.group, resource.plural, stored.name)

        deletion.check_preconditions(resource, current, options)
        return self._delete(resource, current, options, dry_run=request.dry_run)

    async def delete_collection(
        self, request: requests.Request, interest: selectors.Interest, options: deletion.Options
    ) -> list[memory.Stored]:
        """Remove or mark all selected objects; return their states before that."""
        items = self._store.shelf(request.resource.home).select(interest.namespace)
        wanted = [stored for stored in items if interest.wants(stored)]
        for stored in wanted:
            try:
                await self.delete(
                    dataclasses.replace(request, name=stored.name, namespace=stored.namespace),
                    options,
                )
            except errors.ApiError as e:
                if e.code != 404:
                    raise

        return wanted

    async def _create(self, request: requests.Request, obj: dict[str, Any]) -> Outcome:
        """Pass a new object through all checks, and store it."""
        self._check_definition(request, obj)
        obj = await self._admit(request, 'CREATE', obj, None)
        prepare.prepare_create(request, obj, self._sources)
        prepare.validate(request, obj)
        self._check_allocations(request, obj, None)
        self._guard(request, obj, None)
        self._admitter.validate(request, obj, None)
        await self._gate.validate(request, 'CREATE', obj, None)
        storable = await self._converter.make_storable(request.resource, obj)
        # The state of the cluster could change while the webhooks were called.
        self._check_definition(request, obj)
        self._check_namespace(request, obj)
        self._check_absent(request, obj)
        self._admitter.charge(request, obj, None)

        return Outcome(self._put(request, storable), is_created=True)

    async def _modify(
        self, request: requests.Request, change: Change, *, is_recorded: bool = False
    ) -> Outcome:
        """Change an object; retry if it was changed by another request in the meantime."""
        for _ in range(ATTEMPTS):
            stored = self._find(request)
            await self._converter.prepare(request.resource, [stored], again=True)
            old = conversions.read(request.resource, stored)
            obj = change(conversions.read(request.resource, stored))
            version = metadata.parse_version(obj)
            if version and version != stored.version:
                break
            prepare.set_defaults(request, obj)
            if not is_recorded:
                self._record(request, old, obj)
            try:
                return await self._replace(request, stored, old, obj)
            except Stale:
                continue

        raise errors.conflict(
            request.resource.group, request.resource.plural, request.name, MODIFIED
        )

    async def _replace(
        self,
        request: requests.Request,
        stored: memory.Stored,
        old: dict[str, Any],
        obj: dict[str, Any],
    ) -> Outcome:
        """
        Pass a new state through all checks, and store it; raise `Stale` if the object has changed
        since it was read.
        """
        resource = request.resource
        obj['metadata']['resourceVersion'] = str(stored.version)
        obj = await self._admit(request, 'UPDATE', obj, old)
        obj = prepare.prepare_update(request, obj, old, self._sources)
        prepare.validate(request, obj, old)
        self._check_allocations(request, obj, old)
        self._guard(request, obj, old)
        self._admitter.validate(request, obj, old)
        await self._gate.validate(request, 'UPDATE', obj, old)
        is_released = deletion.is_released(resource, obj)
        is_same = equality.is_same(obj, old)
        storable = await self._converter.make_storable(resource, obj)
        if self._store.get(resource.home, stored.namespace, stored.name) is not stored:
            raise Stale

        self._admitter.charge(request, obj, old)
        if is_released:
            if not request.dry_run:
                self._store.remove(resource.home, stored)
            return Outcome(memory.build_stored(storable, stored.version, {}), is_removed=True)

        return Outcome(stored if is_same else self._put(request, storable))

    def _delete(
        self,
        resource: kinds.Resource,
        stored: memory.Stored,
        options: deletion.Options,
        *,
        dry_run: bool,
    ) -> Outcome:
        obj = stored.load()
        verdict = deletion.mark(resource, obj, options, self._sources.now())
        if verdict is deletion.Verdict.REMOVE:
            return Outcome(
                stored if dry_run else self._store.remove(resource.home, stored), is_removed=True
            )
        if verdict is deletion.Verdict.WAIT or dry_run:
            return Outcome(stored)

        marked = self._store.put(resource.home, obj, fields=prepare.extract_fields(resource, obj))
        if verdict is deletion.Verdict.DISMISS:
            return Outcome(self._store.remove(resource.home, marked), is_removed=True)
        return Outcome(marked)

    def _merge(
        self,
        request: requests.Request,
        old: dict[str, Any] | None,
        config: dict[str, Any],
        force: bool,
    ) -> dict[str, Any]:
        merged = server_side.apply(
            old, config, schema=request.resource.schema, author=self._author(request), force=force
        )
        return prepare.decode_object(request, pruning.clone(merged))

    async def _admit(
        self,
        request: requests.Request,
        operation: str,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Let mutating webhooks change the object. As in the API, their changes are not owned."""
        self._admitter.mutate(request, obj, old)
        admitted = await self._gate.mutate(request, operation, obj, old)
        if admitted is not obj:
            tolerant = dataclasses.replace(
                request, options={**request.options, 'fieldValidation': 'Ignore'}
            )
            admitted = prepare.decode_object(tolerant, pruning.clone(admitted))
            prepare.set_defaults(request, admitted)

        return admitted

    def _record(
        self, request: requests.Request, old: Mapping[str, Any] | None, obj: dict[str, Any]
    ) -> None:
        if (
            request.subresource == 'scale'
            and old is not None
            and not scale_subresource.is_owned(request.resource, old)
        ):
            return
        if request.resource.home == approvals.REQUESTS:
            return  # as in the API

        managed = server_side.record_update(
            old, obj, schema=request.resource.schema, author=self._author(request)
        )
        if managed:
            obj['metadata']['managedFields'] = managed
        else:
            obj['metadata'].pop('managedFields', None)

    def _author(self, request: requests.Request) -> managed_fields.Author:
        reset = prepare.list_reset_fields(request)
        now = self._sources.format_now()
        return managed_fields.Author(
            request.field_manager, request.resource.api_version, now, request.subresource, reset
        )

    def _put(self, request: requests.Request, obj: dict[str, Any]) -> memory.Stored:
        """Store an object in its stored form, unless it is a dry run."""
        if request.resource.group == matching.GROUP and not availability.is_available():
            request.warnings.extend(matching.list_unsupported(obj))
        if request.dry_run:
            return memory.build_stored(obj, 0, {})
        return self._store.put(
            request.resource.home, obj, fields=prepare.extract_fields(request.resource, obj)
        )

    def _find(self, request: requests.Request) -> memory.Stored:
        stored = self._store.get(request.resource.home, request.namespace, request.name)
        if stored is None:
            raise errors.not_found(request.resource.group, request.resource.plural, request.name)
        return stored

    def _is_absent(self, request: requests.Request) -> bool:
        return self._store.get(request.resource.home, request.namespace, request.name) is None

    def _check_allocations(
        self, request: requests.Request, obj: dict[str, Any], old: dict[str, Any] | None
    ) -> None:
        """Refuse the services with addresses and ports that others have."""
        if request.resource.home != allocations.SERVICES or request.subresource:
            return
        problems = self._sources.allocator.check_service(obj, old)
        if problems:
            raise errors.invalid('', 'Service', obj['metadata'].get('name') or '', problems)

    def _check_absent(self, request: requests.Request, obj: Mapping[str, Any]) -> None:
        name = obj['metadata'].get('name') or ''
        stored = self._store.get(request.resource.home, request.namespace, name) if name else None
        if stored is not None:
            raise errors.already_exists(
                request.resource.group,
                request.resource.plural,
                name,
                is_leaving=stored.is_leaving,
            )

    def _check_uid(self, request: requests.Request, uid: str) -> None:
        """Do not overwrite a new object that reuses a deleted object's name."""
        resource = request.resource
        stored = self._find(request)
        if uid and uid != stored.uid:
            group = f'{resource.group}/' if resource.custom else ''
            why = (
                'StorageError: invalid object, Code: 4, Key: '
                f'/registry/{group}{resource.plural}/{stored.key}, ResourceVersion: 0, '
                f'AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in '
                f'object meta: {stored.uid}'
            )
            raise errors.conflict(resource.group, resource.plural, request.name, why)

    def _check_unconditional(self, request: requests.Request) -> None:
        """Refuse updates without ``resourceVersion`` for the kinds that require it."""
        resource = request.resource
        if not strategies.allows_unconditional_update(resource.group, resource.kind):
            self._find(request)
            problem = errors.invalid_value(
                'metadata.resourceVersion', 0, 'must be specified for an update'
            )
            raise errors.invalid(resource.group, resource.plural, request.name, [problem])

    def _check_definition(self, request: requests.Request, obj: Mapping[str, Any]) -> None:
        """Refuse to create objects if their CRD is being deleted, or is deleted already."""
        resource = request.resource
        definition = f'{resource.plural}.{resource.group}'
        stored = self._store.get(kinds.CRDS, '', definition) if resource.custom else None
        if resource.custom and stored is None:
            raise errors.no_such_resource()
        if stored is not None and stored.is_leaving:
            raise errors.forbidden(
                resource.group,
                resource.plural,
                obj['metadata'].get('name') or '',
                'create not allowed while custom resource definition is terminating',
            )

    def _check_namespace(self, request: requests.Request, obj: Mapping[str, Any]) -> None:
        """Refuse to create objects in namespaces that do not exist or are being deleted."""
        name = request.namespace
        namespace = self._store.get(kinds.NAMESPACES, '', name) if name else None
        if name and namespace is None:
            raise errors.not_found('', 'namespaces', name)
        if namespace is not None and namespace.is_leaving:
            raise errors.namespace_terminating(
                request.resource.group,
                request.resource.plural,
                obj['metadata'].get('name') or '',
                name,
            )
