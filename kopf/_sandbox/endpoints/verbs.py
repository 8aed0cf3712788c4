"""
Verbs: requests to resources and the responses to them. No HTTP here: bytes in, bytes out.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from kopf._sandbox import clusters
from kopf._sandbox.apply import patches, strategic
from kopf._sandbox.codec import decoding, duplicates
from kopf._sandbox.endpoints import negotiation, tables
from kopf._sandbox.meta import builtins, errors, requests, selectors
from kopf._sandbox.registry import (
    conversions,
    deletion,
    evictions,
    prepare,
    reader,
    scale_subresource,
    watcher,
)
from kopf._sandbox.storage import memory

JSON_PATCH = 'application/json-patch+json'
MERGE_PATCH = 'application/merge-patch+json'
STRATEGIC_PATCH = 'application/strategic-merge-patch+json'
APPLY_PATCH = 'application/apply-patch+yaml'
MAX_MANAGER = 128

DELETE_OPTIONS = 'io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions'
JOBS_WARNING = (
    'child pods are preserved by default when jobs are deleted; set propagationPolicy=Background '
    'to remove them or set propagationPolicy=Orphan to suppress this warning'
)
BODY_KINDS = {  # for the subresources with kinds other than that of the resource
    'token': ('TokenRequest', 'authentication.k8s.io/v1'),
    'eviction': ('Eviction', 'policy/v1'),
    'binding': ('Binding', 'v1'),
    'scale': ('Scale', 'autoscaling/v1'),
}
ORDERS = {'eviction': 'io.k8s.api.policy.v1.Eviction', 'binding': 'io.k8s.api.core.v1.Binding'}
SUCCESS = {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {}, 'status': 'Success'}


@dataclasses.dataclass(frozen=True)
class Asking:
    """The body of a request, and the requested form of the response."""

    body: bytes = b''
    content_type: str = ''
    accept: str = ''
    pretty: bool = False


class Handler:
    """Handles the requests to resources of one cluster, any number of them at once."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster

    async def handle(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        """Handle a request that is authorized already, or raise `ApiError`."""
        _check_options(request)
        if request.resource.warning:
            request.warnings.append(request.resource.warning)
        match request.verb:
            case 'get':
                return await self._get(request, asking)
            case 'list':
                return await self._list(request, asking)
            case 'watch':
                return self._watch(request, asking)
            case 'create':
                return await self._create(request, asking)
            case 'update':
                return await self._update(request, asking)
            case 'patch':
                return await self._patch(request, asking)
            case 'delete':
                return await self._delete(request, asking)
            case _:
                return await self._delete_collection(request, asking)

    async def _get(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        stored = reader.get_object(
            self._cluster.store, request.resource, request.namespace, request.name, request.options
        )
        return await self._answer(request, asking, stored)

    async def _list(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        renderer = self._choose_renderer(request, asking)
        interest = _parse_interest(request)
        listing = reader.list_objects(
            self._cluster.store, request.resource, interest, request.options
        )
        await self._cluster.converter.prepare(request.resource, listing.items)

        return negotiation.Answer(
            body=renderer.render_list(listing), media_type=renderer.form.media_type
        )

    def _watch(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        renderer = dataclasses.replace(self._choose_renderer(request, asking), pretty=False)
        interest = _parse_interest(request)
        watch = watcher.parse_watch(request.options, interest, version=self._cluster.store.version)
        form = watcher.Format(
            renderer.render_line,
            renderer.render_bookmark,
            functools.partial(self._cluster.converter.prepare, request.resource),
        )

        return negotiation.Answer(
            lines=watcher.stream(self._cluster.store, request.resource.home, watch, form)
        )

    async def _create(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        body = _decode_body(request, asking)
        request = _find_duplicates(request, asking)
        reviewer = self._cluster.reviewer

        if request.subresource == 'token' or reviewer.answers(request):
            if not isinstance(body, dict):
                prepare.decode_object(request, body)
            now = self._cluster.sources.now().timestamp()
            return self._answer_review(reviewer.answer(request, body, now), asking)

        if request.subresource:
            return await self._act_on_pod(request, body, asking)

        outcome = await self._cluster.writer.create(request, body)
        return await self._answer(request, asking, outcome.stored, 201)

    async def _act_on_pod(
        self, request: requests.Request, body: Any, asking: Asking
    ) -> negotiation.Answer:
        """Evict or bind a pod."""
        if not isinstance(body, dict):
            prepare.decode_object(request, body)
        kind = BODY_KINDS[request.subresource][0]
        schema = builtins.load_schema(ORDERS[request.subresource])
        decoding.decode_object(body, schema, kind=kind, version='v1')

        if request.subresource == 'eviction':
            options = deletion.parse_options(body.get('deleteOptions') or {}, {})
            await self._evict(request, options)
        else:
            node = (body.get('target') or {}).get('name') or ''
            binding = dataclasses.replace(request, verb='patch')
            await self._cluster.writer.patch(binding, lambda old: _bind(binding, old, node))

        return self._answer_value({**SUCCESS, 'code': 201}, asking, 201)

    async def _evict(self, request: requests.Request, options: deletion.Options) -> None:
        cluster = self._cluster
        budgets = cluster.catalog.find(evictions.BUDGETS.group, 'v1', evictions.BUDGETS.plural)
        assert budgets is not None, 'disruption budgets are built-in'
        now = cluster.sources.now()
        await evictions.evict(cluster.store, cluster.writer, request, budgets, options, now)

    async def _update(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        body = _decode_body(request, asking)
        request = _find_duplicates(request, asking)
        if request.subresource == 'scale':
            outcome = await self._cluster.writer.patch(
                request, lambda old: scale_subresource.scale_object(request.resource, old, body)
            )
        else:
            outcome = await self._cluster.writer.update(request, body)

        return await self._answer(request, asking, outcome.stored)

    async def _patch(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        media_type = asking.content_type.split(';')[0].strip().lower()
        _check_patch_type(request, media_type)
        if media_type == APPLY_PATCH:
            return await self._apply(request, asking)

        is_free = request.resource.custom or media_type == STRATEGIC_PATCH
        patch = negotiation.decode_patch(asking.body, custom=is_free)
        request = _find_duplicates(request, asking)
        outcome = await self._cluster.writer.patch(
            request, lambda old: _apply_patch(request, media_type, old, patch)
        )

        return await self._answer(request, asking, outcome.stored)

    async def _apply(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        config = negotiation.decode_body(asking.body, negotiation.YAML, request.resource.kind)
        force = request.options.get('force') in ('true', '1')
        lines = _find_repeated_lines(request, asking)

        if lines and prepare.is_strict(request):
            # The wrong fields are reported before the repeated ones.
            trial = dataclasses.replace(request, dry_run=True)
            await self._cluster.writer.apply(trial, config, force=True)
            raise _refuse_repeated(lines)

        if request.subresource != 'scale':
            outcome = await self._cluster.writer.apply(request, config, force=force)
            request.warnings.extend(lines)
            code = 201 if outcome.is_created else 200
            return await self._answer(request, asking, outcome.stored, code)

        scaled = scale_subresource.build_applied(request.resource, config)
        try:
            outcome = await self._cluster.writer.apply(request, scaled, force=force)
        except errors.ApiError as e:
            raise scale_subresource.reword_conflict(request.resource, e) from e

        return await self._answer(request, asking, outcome.stored)

    async def _delete(self, request: requests.Request, asking: Asking) -> negotiation.Answer:
        options = self._parse_delete_options(request, asking)
        request = dataclasses.replace(request, dry_run=options.dry_run)
        outcome = await self._cluster.writer.delete(request, options)
        if (
            outcome.is_removed
            and (request.resource.group, request.resource.plural) not in deletion.RETURNED
        ):
            return self._answer_value(
                deletion.build_answer(request.resource, outcome.stored), asking
            )
        return await self._answer(request, asking, outcome.stored)

    async def _delete_collection(
        self, request: requests.Request, asking: Asking
    ) -> negotiation.Answer:
        options = self._parse_delete_options(request, asking)
        request = dataclasses.replace(request, dry_run=options.dry_run)
        interest = _parse_interest(request)
        items = await self._cluster.writer.delete_collection(request, interest, options)
        renderer = self._choose_renderer(request, asking)
        listing = reader.Listing(items, self._cluster.store.version)
        await self._cluster.converter.prepare(request.resource, items)

        return negotiation.Answer(
            body=renderer.render_list(listing), media_type=renderer.form.media_type
        )

    def _parse_delete_options(self, request: requests.Request, asking: Asking) -> deletion.Options:
        body = _decode_delete_options(asking) if asking.body.strip() else None
        options = deletion.parse_options(body, request.options)
        if (
            options.propagation
            or (request.resource.group, request.resource.plural) not in deletion.ORPHANING
        ):
            return options

        if request.resource.plural == 'jobs':
            request.warnings.append(JOBS_WARNING)
        return dataclasses.replace(options, propagation='Orphan')

    async def _answer(
        self, request: requests.Request, asking: Asking, stored: memory.Stored, code: int = 200
    ) -> negotiation.Answer:
        renderer = self._choose_renderer(request, asking)
        await self._cluster.converter.prepare(request.resource, [stored], again=True)
        if request.subresource == 'scale':
            scale = scale_subresource.build_scale(
                request.resource, conversions.read(request.resource, stored)
            )
            renderer = dataclasses.replace(renderer, resource=scale_subresource.SCALES)
            return negotiation.Answer(code, renderer.render_body(scale), renderer.form.media_type)

        return negotiation.Answer(code, renderer.render_object(stored), renderer.form.media_type)

    def _answer_value(
        self, value: Mapping[str, Any], asking: Asking, code: int = 200
    ) -> negotiation.Answer:
        form = negotiation.choose_form(asking.accept, shapes=True)
        return negotiation.Answer(
            code, negotiation.encode_value(value, form, pretty=asking.pretty), form.media_type
        )

    def _answer_review(self, review: Mapping[str, Any], asking: Asking) -> negotiation.Answer:
        """Answer with an object that is not stored: its metadata can be had alone, but no table."""
        form = negotiation.choose_form(asking.accept, shapes=True)
        if form.shape == 'Table':
            raise errors.unknown_shape(negotiation.WRITTEN)
        if form.shape:
            meta = review.get('metadata') or {}
            review = {'kind': form.shape, 'apiVersion': 'meta.k8s.io/v1', 'metadata': meta}

        return self._answer_value(review, asking, 201)

    def _choose_renderer(self, request: requests.Request, asking: Asking) -> negotiation.Renderer:
        form = negotiation.choose_form(
            asking.accept,
            shapes=True,
            custom=request.resource.custom,
            streams=request.verb in ('list', 'watch'),
        )
        include = tables.parse_include(request.options.get('includeObject', ''))
        return negotiation.Renderer(
            request.resource, form, self._cluster.sources.now, include, asking.pretty
        )


def _decode_body(request: requests.Request, asking: Asking) -> Any:
    """Decode the object of a request; all but custom objects may be in protobuf."""
    own = (request.resource.kind, '' if request.resource.custom else request.resource.api_version)
    kind, api_version = BODY_KINDS.get(request.subresource, own)
    return negotiation.decode_body(asking.body, asking.content_type, kind, api_version)


def _parse_interest(request: requests.Request) -> selectors.Interest:
    resource = request.resource
    return selectors.parse_interest(
        request.options, request.namespace, resource.selectable, custom=resource.custom
    )


def _find_duplicates(request: requests.Request, asking: Asking) -> requests.Request:
    """Add the repeated fields of the body to the request: decoding loses them."""
    if request.options.get('fieldValidation') == 'Ignore':
        return request

    if negotiation.is_yaml(asking.content_type):
        lines = duplicates.find_repeated_lines(asking.body)
        return dataclasses.replace(request, repeated_lines=tuple(lines)) if lines else request

    found = duplicates.find_duplicates(asking.body)
    if not found.paths:
        return request
    return dataclasses.replace(request, duplicates=found.paths, positions=found.positions)


def _find_repeated_lines(request: requests.Request, asking: Asking) -> list[str]:
    """Return the messages about the repeated keys of an applied configuration."""
    is_ignored = request.options.get('fieldValidation') == 'Ignore'
    return [] if is_ignored else duplicates.find_repeated_lines(asking.body)


def _refuse_repeated(lines: list[str]) -> errors.ApiError:
    listed = prepare.YAML_ERRORS + '\n  '.join(lines)
    return errors.bad_request(
        f'error strict decoding YAML: error converting YAML to JSON: {listed}'
    )


def _decode_delete_options(asking: Asking) -> dict[str, Any]:
    body = negotiation.decode_body(asking.body, asking.content_type, 'DeleteOptions', 'v1')
    if not isinstance(body, dict):
        raise errors.bad_request('the body of a deletion must be DeleteOptions')

    kind = body.get('kind') or 'DeleteOptions'
    api_version = body.get('apiVersion') or 'v1'
    if kind != 'DeleteOptions':
        raise errors.bad_request(errors.describe_unknown_kind(kind, api_version))

    try:
        decoding.decode_object(body, builtins.load_schema(DELETE_OPTIONS), kind=kind, version='v1')
    except errors.ApiError as e:
        raise errors.bad_request(e.message.partition(f'as a {kind}: ')[2]) from e

    return body


def _apply_patch(
    request: requests.Request, media_type: str, old: dict[str, Any], patch: Any
) -> dict[str, Any]:
    """Apply a patch to an object, or to its scale; return the new state of the object."""
    resource = request.resource
    target = (
        scale_subresource.build_patchable(resource, old) if request.subresource == 'scale' else old
    )
    if media_type == JSON_PATCH:
        patched = patches.apply_json_patch(target, patch)
    elif media_type == MERGE_PATCH:
        patched = patches.merge(target, patch)
    else:
        patched = strategic.strategic_merge(
            target, patch, None if request.subresource == 'scale' else resource.schema
        )

    return (
        scale_subresource.scale_object(resource, old, patched)
        if request.subresource == 'scale'
        else patched
    )


def _bind(request: requests.Request, old: dict[str, Any], node: str) -> dict[str, Any]:
    current = (old.get('spec') or {}).get('nodeName')
    why = ''
    if old['metadata'].get('deletionTimestamp'):
        why = f'pod {request.name} is being deleted, cannot be assigned to a host'
    elif current:
        why = f'pod {request.name} is already assigned to node {errors.render(current)}'

    if why:
        raise errors.conflict('', 'pods/binding', request.name, why)
    return {**old, 'spec': {**(old.get('spec') or {}), 'nodeName': node}}


def _check_patch_type(request: requests.Request, media_type: str) -> None:
    accepted = [
        JSON_PATCH,
        MERGE_PATCH,
        *(() if request.resource.custom else [STRATEGIC_PATCH]),
        APPLY_PATCH,
    ]
    if media_type not in accepted:
        raise errors.unsupported_media_type(accepted if request.resource.custom else ())

    problem: errors.FieldError | None = None
    if media_type == APPLY_PATCH and not request.options.get('fieldManager'):
        problem = errors.required('fieldManager', 'is required for apply patch')
    elif media_type != APPLY_PATCH and 'force' in request.options:
        problem = errors.forbidden_field('force', 'may not be specified for non-apply patch')

    if problem is not None:
        raise errors.invalid('meta.k8s.io', 'PatchOptions', '', [problem])


_OPTION_KINDS = {'create': 'CreateOptions', 'update': 'UpdateOptions', 'patch': 'PatchOptions'}


def _check_options(request: requests.Request) -> None:
    kind = _OPTION_KINDS.get(request.verb, 'DeleteOptions')
    problems = []
    if (
        len(request.options.get('fieldManager', '').encode()) > MAX_MANAGER
        and request.verb in _OPTION_KINDS
    ):
        problems.append(errors.too_long('fieldManager', MAX_MANAGER))

    dry_run = request.options.get('dryRun')
    if dry_run and dry_run != 'All':
        problems.append(errors.unknown_dry_run([dry_run]))
    mode = request.options.get('fieldValidation')
    if mode and mode not in ('Strict', 'Warn', 'Ignore'):
        problems.append(
            errors.not_supported('fieldValidation', mode, ['', 'Ignore', 'Strict', 'Warn'])
        )

    if problems:
        raise errors.invalid('meta.k8s.io', kind, '', problems)
