"""
The admin client: direct access of the sandbox's user to its objects, without the network.

The requests are made as the administrator, and get the same responses and errors as requests of
clients.
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Literal, NamedTuple

from kopf._cogs.helpers import jsons
from kopf._sandbox import clusters
from kopf._sandbox.codec import manifests
from kopf._sandbox.endpoints import negotiation, verbs
from kopf._sandbox.http import routing
from kopf._sandbox.meta import errors, kinds, request_info, requests, rest_mapper, selectors
from kopf._sandbox.registry import conversions, reader, watcher
from kopf._sandbox.storage import memory

MANAGER = 'kopf-sandbox'
"""The field manager of everything this client writes."""

DEFAULT_NAMESPACE = 'default'
NO_QUERY: Mapping[str, str] = {}

Body = dict[str, Any]
Bodies = list[Body]
PatchType = Literal['merge', 'json', 'strategic', 'apply']
Selection = str | Mapping[str, str] | None

PATCH_TYPES: Mapping[PatchType, str] = {
    'merge': verbs.MERGE_PATCH,
    'json': verbs.JSON_PATCH,
    'strategic': verbs.STRATEGIC_PATCH,
    'apply': verbs.APPLY_PATCH,
}

_FIRST = ('CustomResourceDefinition', 'Namespace')


@dataclasses.dataclass(frozen=True)
class Target:
    """A reference to one object, or to one subresource of it."""

    resource: str  # in any form that `rest_mapper` accepts
    name: str = ''
    namespace: str = ''  # ignored for cluster-scoped resources
    subresource: str = ''


@dataclasses.dataclass(frozen=True)
class Query:
    """A selection of objects of one resource."""

    resource: str  # in any form that `rest_mapper` accepts
    namespace: str | None = None  # None for all; ignored for cluster-scoped resources
    labels: Selection = None
    fields: Selection = None


Refusal = Callable[[errors.ApiError, int], Awaitable[bool]]
"""Takes an error and the number of the attempt; waits, and returns whether to retry."""


class Operator:
    """A client of one cluster with the administrator's rights, in the event loop of the cluster."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster
        self._handler = verbs.Handler(cluster)
        self.is_closed = False
        self.on_refusal: Refusal | None = None  # decides whether to retry refused requests

    def close(self) -> None:
        """End all watches and follows: no more events will come."""
        self.is_closed = True
        for _, shelf in self._cluster.store:
            shelf.is_closed = True
            shelf.notify()

    async def get(self, target: Target) -> Body:
        """Return an object. Raises `ApiError` if it does not exist."""
        resource = rest_mapper.find_resource(self._cluster.catalog, target.resource)
        namespace = target.namespace if resource.namespaced else ''
        stored = reader.get_object(self._cluster.store, resource, namespace, target.name, {})
        return await self._read(resource, stored)

    async def list(self, query: Query) -> Bodies:
        """Return the objects in the order in which the API lists them."""
        resource = rest_mapper.find_resource(self._cluster.catalog, query.resource)
        listing = reader.list_objects(
            self._cluster.store, resource, _build_interest(resource, query), {}
        )
        return [await self._read(resource, stored) for stored in listing.items]

    async def create(self, body: Mapping[str, Any]) -> Body:
        """Create an object, in the default namespace if its metadata has none."""
        resource = self._find_kind(body)
        return await self._ask(
            'create', resource, dataclasses.replace(_locate(body), name=''), body
        )

    async def update(self, body: Mapping[str, Any], subresource: str) -> Body:
        """Replace an object."""
        resource = self._find_kind(body)
        target = dataclasses.replace(_locate(body), subresource=subresource)
        return await self._ask('update', resource, target, body)

    async def patch(self, target: Target, patch: Any, type: PatchType) -> Body:
        """Patch an object. A configuration to apply may omit its kind and API version."""
        if type not in PATCH_TYPES:
            raise ValueError(
                f'The type of a patch must be one of {", ".join(PATCH_TYPES)}, not {type!r}.'
            )
        resource = rest_mapper.find_resource(self._cluster.catalog, target.resource)
        if type == 'apply' and isinstance(patch, Mapping):
            patch = {'apiVersion': resource.api_version, 'kind': resource.kind, **patch}
        return await self._ask('patch', resource, target, patch, content_type=PATCH_TYPES[type])

    async def delete(self, target: Target, *, propagation: str, grace_period: int | None) -> None:
        """Delete an object, or mark it as being deleted."""
        resource = rest_mapper.find_resource(self._cluster.catalog, target.resource)
        options = {'propagationPolicy': propagation or None, 'gracePeriodSeconds': grace_period}
        given = {key: value for key, value in options.items() if value is not None}
        await self._ask(
            'delete', resource, target, {'kind': 'DeleteOptions', 'apiVersion': 'v1', **given}
        )

    async def apply(self, bodies: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> Bodies:
        """
        Create or update the objects to match the manifests; return them in the same order.

        CRDs and namespaces go first. All kinds are checked before the first write: raises
        `ManifestError` if some are not served. If the API refuses an object, the objects before it
        stay applied, and the error has a note with the refused object and its source. In a dry run,
        nothing is stored.
        """
        query = {'force': 'true', **({'dryRun': 'All'} if dry_run else {})}
        self._check(bodies)
        applied: dict[int, Body] = {}

        for index, body in sorted(
            enumerate(bodies), key=lambda item: item[1]['kind'] not in _FIRST
        ):
            resource = self._find_kind(body)
            with _explain(body):
                applied[index] = await self._ask(
                    'patch',
                    resource,
                    _locate(body),
                    body,
                    content_type=verbs.APPLY_PATCH,
                    query=query,
                )

        return [applied[index] for index in range(len(bodies))]

    def watch(self, query: Query, *, since: str | None, timeout: float) -> AsyncGenerator[Body]:
        """
        Yield the events after a version; without a version, all current objects as added, then the
        changes.

        The objects are current as of this call, not as of the first event taken. Ends with the
        sandbox or after the timeout.
        """
        resource = rest_mapper.find_resource(self._cluster.catalog, query.resource)
        interest = _build_interest(resource, query)
        version = watcher.parse_version(since or '') or None
        current = (
            []
            if version is not None
            else self._cluster.store.shelf(resource.home).select(interest.namespace)
        )
        initial = [stored for stored in current if interest.wants(stored)]
        watch = watcher.Watch(
            interest, self._cluster.store.version if version is None else version, timeout
        )

        return self._stream(resource, initial, watch)

    async def _stream(
        self, resource: kinds.Resource, initial: Iterable[memory.Stored], watch: watcher.Watch
    ) -> AsyncGenerator[Body]:
        renderer = negotiation.Renderer(resource, negotiation.Form(), self._cluster.sources.now)
        prepare = functools.partial(self._cluster.converter.prepare, resource)
        form = watcher.Format(renderer.render_line, renderer.render_bookmark, prepare)
        await prepare(initial)
        for stored in initial:
            yield jsons.loads(renderer.render_line('ADDED', stored))
        if self.is_closed:
            return

        async with contextlib.aclosing(
            watcher.stream(self._cluster.store, resource.home, watch, form)
        ) as batches:
            async for batch in batches:
                for line in batch.splitlines():
                    yield jsons.loads(line)

    def follow(self, target: Target, timeout: float) -> AsyncGenerator[Body | None]:
        """
        Yield all states of one object, from the current one on; ``None`` while it does not exist.

        The state is current as of this call, not as of the first state taken. Ends with the
        sandbox, or after ``timeout`` seconds of the loop's clock. Abandoning or cancelling it
        leaves nothing behind.
        """
        resource = rest_mapper.find_resource(self._cluster.catalog, target.resource)
        key = memory.make_key(target.namespace if resource.namespaced else '', target.name)
        return self._follow(
            resource, key, self._look(resource, key), asyncio.get_running_loop().time() + timeout
        )

    async def _follow(
        self, resource: kinds.Resource, key: str, sight: '_Sight', deadline: float
    ) -> AsyncGenerator[Body | None]:
        clock = asyncio.get_running_loop().time
        while True:
            yield None if sight.stored is None else await self._read(resource, sight.stored)
            async for change in _follow_changes(sight.shelf, sight.version, deadline):
                if change.new.key == key:
                    is_gone = change.type == 'DELETED'
                    yield None if is_gone else await self._read(resource, change.new)
            if self.is_closed or clock() + memory.TICK >= deadline:
                return
            sight = self._look(resource, key)

    async def _read(self, resource: kinds.Resource, stored: memory.Stored) -> Body:
        await self._cluster.converter.prepare(resource, [stored])
        return conversions.read(resource, stored)

    def _look(self, resource: kinds.Resource, key: str) -> '_Sight':
        shelf = self._cluster.store.shelf(resource.home)
        return _Sight(shelf, self._cluster.store.version, shelf.objects.get(key))

    async def _ask(
        self,
        verb: str,
        resource: kinds.Resource,
        target: Target,
        body: Any,
        *,
        content_type: str = negotiation.JSON,
        query: Mapping[str, str] = NO_QUERY,
    ) -> Body:
        """Make a request with the same checks as for clients."""
        namespace = target.namespace if resource.namespaced else ''
        path = request_info.Target(
            resource.group,
            resource.version,
            resource.plural,
            namespace,
            target.name,
            target.subresource,
        )
        if not routing.is_served(resource, path, verb):
            raise errors.method_not_allowed()

        request = requests.Request(
            verb,
            resource,
            clusters.ADMIN,
            namespace=namespace,
            name=target.name,
            subresource=target.subresource,
            options={'fieldManager': MANAGER, **query},
            field_manager=MANAGER,
            dry_run='dryRun' in query,
        )
        asking = verbs.Asking(_encode(body), content_type)
        for attempt in itertools.count():
            try:
                answer = await self._handler.handle(request, asking)
                break
            except errors.ApiError as error:
                if self.on_refusal is None or not await self.on_refusal(error, attempt):
                    raise

        result: Body = jsons.loads(answer.body)
        return result

    def _find_kind(self, body: Mapping[str, Any]) -> kinds.Resource:
        resource = self._cluster.find(str(body.get('apiVersion')), str(body.get('kind')))
        if resource is None:
            raise errors.no_such_resource()
        return resource

    def _check(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        defined = {kind for body in bodies for kind in _list_defined_kinds(body)}
        for body in bodies:
            name = body['metadata'].get('name')
            source = manifests.get_source(body)
            if not isinstance(name, str) or not name:
                raise manifests.ManifestError(
                    f'{body["kind"]} in {source} has no name: it cannot be applied.'
                )
            kind = body['apiVersion'], body['kind']
            if kind not in defined and self._cluster.find(*kind) is None:
                raise manifests.ManifestError(
                    f'Cannot apply {name!r} from {source}: there is no kind {kind[1]} in version '
                    f'{kind[0]}.'
                )


class _Sight(NamedTuple):
    """The state of an object at one moment."""

    shelf: memory.Shelf
    version: int
    stored: memory.Stored | None


@contextlib.contextmanager
def _explain(body: Mapping[str, Any]) -> Iterator[None]:
    """Add a note to API errors about the refused object. The message of the API is not changed."""
    try:
        yield
    except errors.ApiError as e:
        source = manifests.get_source(body)
        name = f'{body["kind"]} {errors.render(body["metadata"]["name"])}'
        e.add_note(source if e.message.startswith(name) else f'{source}: {name}')
        raise


async def _follow_changes(
    shelf: memory.Shelf, since: int, deadline: float
) -> AsyncGenerator[memory.Change]:
    """Yield the changes after a version until the deadline, or until some of them are compacted."""
    clock = asyncio.get_running_loop().time
    while since >= shelf.compacted and not shelf.is_closed:
        changes = shelf.changes[shelf.find_since(since) :]
        for change in changes:
            since = change.version
            yield change
        if not changes and clock() + memory.TICK >= deadline:
            return
        if not changes:
            await shelf.wait(until=deadline)


def _build_interest(resource: kinds.Resource, query: Query) -> selectors.Interest:
    selected = {
        'labelSelector': join_selection(query.labels),
        'fieldSelector': join_selection(query.fields),
    }
    namespace = query.namespace if resource.namespaced else None
    return selectors.parse_interest(
        selected, namespace or '', resource.selectable, custom=resource.custom
    )


def join_selection(selection: Selection) -> str:
    """Return the text of a selector of labels or fields."""
    if isinstance(selection, Mapping):
        return ','.join(f'{key}={value}' for key, value in selection.items())
    return selection or ''


def _locate(body: Mapping[str, Any]) -> Target:
    """Return the reference to an object by its own metadata."""
    meta = body.get('metadata')
    meta = meta if isinstance(meta, Mapping) else {}
    return Target(
        str(body.get('kind')),
        str(meta.get('name') or ''),
        str(meta.get('namespace') or DEFAULT_NAMESPACE),
    )


def _list_defined_kinds(body: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the API versions and kinds that a CRD will serve; nothing for other objects."""
    if body['kind'] != 'CustomResourceDefinition':
        return []

    try:
        spec = body['spec']
        return [
            (f'{spec["group"]}/{version["name"]}', spec['names']['kind'])
            for version in spec['versions']
        ]
    except (KeyError, TypeError):
        return []


def _encode(body: Any) -> bytes:
    """Encode a value of the user, with any types of mappings and sequences."""
    return jsons.dumps(_simplify(body))


def _simplify(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _simplify(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_simplify(item) for item in value]
    return value
