"""
The builder: the published schemas of the served resources.

Clients use them to explain fields and to merge changes of lists. The documents are built when first
requested, one per group and version, and are cached until their resources change. The schemas of
custom resources differ from their CRDs: as in the API, the common fields of all objects are added.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kopf._cogs.helpers import jsons
from kopf._sandbox.meta import builtins, discovery, kinds
from kopf._sandbox.openapi import descriptions, paths, v2

_META: Final = 'io.k8s.apimachinery.pkg.apis.meta.v1'
_GVK: Final = 'x-kubernetes-group-version-kind'
_ALWAYS_PUBLISHED: Final = (paths.STATUS, paths.PATCH, paths.DELETE_OPTIONS)
_SECURITY_SCHEMES: Final = {
    'BearerToken': {
        'type': 'apiKey',
        'description': 'Bearer Token authentication',
        'name': 'authorization',
        'in': 'header',
    }
}
_SUBSCHEMAS: Final = ('items', 'additionalProperties', 'not')
_SUBSCHEMA_LISTS: Final = ('allOf', 'oneOf', 'anyOf')
_UNKNOWN_IN_V2: Final = frozenset(('default', 'nullable', 'allOf', 'oneOf', 'anyOf', 'not'))
_SCALARS_IN_V2: Final[Mapping[str, Mapping[str, Any]]] = {
    'io.k8s.apimachinery.pkg.api.resource.Quantity': {'type': 'string'},
    'io.k8s.apimachinery.pkg.util.intstr.IntOrString': {
        'type': 'string',
        'format': 'int-or-string',
    },
}


class Document(NamedTuple):
    """A document as it is sent to clients."""

    body: bytes  # JSON or protobuf
    etag: str  # without quotes


class Publisher:
    """
    All documents of a catalog.

    Used only by the loop that serves requests, as the catalog is. Documents are built when
    requested; if the catalog changes, only the v3 documents of the changed groups and versions are
    built again.
    """

    def __init__(self, catalog: kinds.Catalog) -> None:
        self._catalog = catalog
        self._generation = -1
        self._served: dict[str, tuple[kinds.Resource, ...]] = {}
        self._documents: dict[str, tuple[tuple[kinds.Resource, ...], Document]] = {}
        self._swagger: Document | None = None
        self._packed: Document | None = None

    def build_index(self) -> dict[str, Any]:
        """Build the response for ``/openapi/v3``: the paths of documents with their hashes."""
        self._refresh()
        return {
            'paths': {
                path: {
                    'serverRelativeURL': f'/openapi/v3/{path}?hash={self._load_document(path).etag}'
                }
                for path in sorted(self._served)
            }
        }

    def find_document(self, path: str) -> Document | None:
        """Return the document for ``/openapi/v3/{path}``, e.g. ``api/v1`` or ``apis/apps/v1``."""
        self._refresh()
        return self._load_document(path) if path in self._served else None

    def load_swagger(self) -> Document:
        """Return the document for ``/openapi/v2``: the definitions of all resources."""
        self._refresh()
        if self._swagger is None:
            self._swagger = _encode(build_swagger(self._catalog))
        return self._swagger

    def load_packed_swagger(self) -> Document:
        """Return the same document in protobuf: the only form that kubectl accepts."""
        etag = self.load_swagger().etag
        if self._packed is None:
            self._packed = Document(v2.encode(build_swagger(self._catalog)), etag)
        return self._packed

    def _refresh(self) -> None:
        if self._generation == self._catalog.generation:
            return

        served: dict[str, list[kinds.Resource]] = {}
        for resource in self._catalog:
            prefix = 'apis' if resource.group else 'api'
            served.setdefault(f'{prefix}/{resource.api_version}', []).append(resource)

        self._served = {path: tuple(resources) for path, resources in served.items()}
        self._documents = {
            path: made
            for path, made in self._documents.items()
            if self._served.get(path) == made[0]
        }
        self._swagger = self._packed = None
        self._generation = self._catalog.generation

    def _load_document(self, path: str) -> Document:
        if path not in self._documents:
            resources = self._served[path]
            self._documents[path] = resources, _encode(build_document(resources))
        return self._documents[path][1]


def build_document(resources: Sequence[kinds.Resource]) -> dict[str, Any]:
    """Build an OpenAPI v3 document for the resources of one group and version."""
    names = {**builtins.load_definition_names(), **_name_customs(resources)}
    published = dict(_publish_customs(resources))
    roots = {*_ALWAYS_PUBLISHED, *_list_roots(resources, names)}
    refs = {ref for schema in published.values() for ref in _find_refs(schema)}
    standard = _collect_definitions((roots | refs) - published.keys())
    schemas = {**published, **{name: load_definition(name) for name in standard}}
    custom = all(resource.custom for resource in resources)
    major, minor, _ = discovery.KUBERNETES_VERSION

    return {
        'openapi': '3.0.0',
        'info': {'title': 'Kubernetes CRD Swagger', 'version': 'v0.1.0'}
        if custom
        else {'title': 'Kubernetes', 'version': f'{major}.{minor}'},
        'paths': paths.build_paths(resources, names),
        'components': {
            'schemas': dict(sorted(schemas.items())),
            **({} if custom else {'securitySchemes': _SECURITY_SCHEMES}),
        },
    }


def build_swagger(catalog: kinds.Catalog) -> dict[str, Any]:
    """Build an OpenAPI v2 document for all resources; it has only the definitions, no paths."""
    published: dict[str, Mapping[str, Any]] = {
        name: load_definition(name) for name in builtins.load_definitions()
    }
    published.update(_publish_customs(catalog))
    definitions = {
        name: _SCALARS_IN_V2.get(name) or _downgrade(schema) for name, schema in published.items()
    }
    major, minor, _ = discovery.KUBERNETES_VERSION

    return {
        'swagger': '2.0',
        'info': {'title': 'Kubernetes', 'version': f'{major}.{minor}'},
        'paths': {},
        'definitions': dict(sorted(definitions.items())),
        'securityDefinitions': _SECURITY_SCHEMES,
        'security': [{'BearerToken': []}],
    }


def name_custom(resource: kinds.Resource) -> str:
    """Return the name of a custom resource's definition: ``dev.kopf.v1.KopfExample``."""
    return '.'.join([*reversed(resource.group.split('.')), resource.version, resource.kind])


@functools.cache
def load_definition(name: str) -> Mapping[str, Any]:
    """Load a built-in definition, with our descriptions. Must not be modified."""
    return descriptions.describe(name, builtins.load_definitions()[name])


def _encode(document: Mapping[str, Any]) -> Document:
    body = jsons.dumps(document)
    return Document(body, hashlib.sha512(body).hexdigest().upper())


def _name_customs(resources: Iterable[kinds.Resource]) -> dict[tuple[str, str, str], str]:
    names: dict[tuple[str, str, str], str] = {}
    for resource in resources:
        if resource.custom:
            names[resource.group, resource.version, resource.kind] = name_custom(resource)
            names[resource.group, resource.version, resource.list_kind] = _name_list(resource)
    return names


def _name_list(resource: kinds.Resource) -> str:
    return '.'.join([*reversed(resource.group.split('.')), resource.version, resource.list_kind])


def _list_roots(
    resources: Iterable[kinds.Resource], names: Mapping[tuple[str, str, str], str]
) -> Iterator[str]:
    for resource in resources:
        group = resource.group
        version = resource.version
        subkinds = [subresource.kind for subresource in discovery.list_subresources(resource)]
        found = [names.get((group, version, kind)) for kind in (resource.kind, resource.list_kind)]
        found += [
            names.get((kind.group, kind.version, kind.kind)) for kind in subkinds if kind.version
        ]
        yield from (name for name in found if name is not None)


def _collect_definitions(roots: Iterable[str]) -> set[str]:
    collected: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in collected:
            collected.add(name)
            pending.extend(_list_refs(name))

    return collected


@functools.cache
def _list_refs(name: str) -> frozenset[str]:
    return frozenset(_find_refs(builtins.load_definitions()[name]))


def _find_refs(schema: Mapping[str, Any]) -> Iterator[str]:
    if '$ref' in schema:
        yield str(schema['$ref']).removeprefix(builtins.REF_PREFIX)
    for child in _list_children(schema):
        yield from _find_refs(child)


def _list_children(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (schema.get('properties') or {}).values()
    yield from (schema[key] for key in _SUBSCHEMAS if isinstance(schema.get(key), Mapping))
    for key in _SUBSCHEMA_LISTS:
        yield from schema.get(key) or ()


def _publish_customs(resources: Iterable[kinds.Resource]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in resources:
        if resource.custom:
            yield name_custom(resource), _publish_object(resource)
            yield _name_list(resource), _publish_list(resource)


def _publish_object(resource: kinds.Resource) -> dict[str, Any]:
    schema = resource.schema
    raw = (
        schema.raw
        if schema is not None
        else {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    )
    published = _publish_schema(raw)
    fields = {**(published.get('properties') or {}), **_list_common_fields()}

    return {**published, 'properties': fields, _GVK: [_build_gvk(resource, resource.kind)]}


def _publish_list(resource: kinds.Resource) -> dict[str, Any]:
    items = {'type': 'array', 'items': {'$ref': builtins.REF_PREFIX + name_custom(resource)}}
    return {
        'description': f'A list of {resource.plural}.',
        'type': 'object',
        'required': ['items'],
        'properties': {**_list_common_fields('ListMeta'), 'items': items},
        _GVK: [_build_gvk(resource, resource.list_kind)],
    }


def _build_gvk(resource: kinds.Resource, kind: str) -> dict[str, str]:
    return {'group': resource.group, 'kind': kind, 'version': resource.version}


def _list_common_fields(meta: str = 'ObjectMeta') -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {
        'apiVersion': {'type': 'string'},
        'kind': {'type': 'string'},
        'metadata': {'allOf': [{'$ref': f'{builtins.REF_PREFIX}{_META}.{meta}'}]},
    }
    return {
        name: {'description': descriptions.COMMON_FIELDS[name], **field}
        for name, field in fields.items()
    }


def _publish_schema(raw: Mapping[str, Any]) -> dict[str, Any]:
    published = _map_children(raw, _publish_schema)
    if raw.get('x-kubernetes-int-or-string') and not raw.get('anyOf') and not raw.get('allOf'):
        published['anyOf'] = [{'type': 'integer'}, {'type': 'string'}]
    if raw.get('x-kubernetes-embedded-resource'):
        required = [
            name for name in ('kind', 'apiVersion') if name not in (raw.get('required') or ())
        ]
        published['required'] = [*(raw.get('required') or ()), *required]
        published['properties'] = {**published.get('properties', {}), **_list_common_fields()}

    return published


def _downgrade(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Keep only the features that OpenAPI v2 supports."""
    ref = _find_ref(schema)
    if ref is not None:
        marks = _select_fields(schema, lambda key: key == 'description' or key.startswith('x-'))
        return {**marks, '$ref': str(ref).replace(builtins.REF_PREFIX, '#/definitions/')}

    if schema.get('x-kubernetes-preserve-unknown-fields') and _GVK in schema:
        return _select_fields(schema, lambda key: key in ('description', 'type', _GVK))
    dropped = _choose_dropped(schema)
    return _map_children(_select_fields(schema, lambda key: key not in dropped), _downgrade)


def _find_ref(schema: Mapping[str, Any]) -> Any:
    """Return the reference of a schema, possibly as the only item of ``allOf``."""
    if schema.get('$ref'):
        return schema['$ref']
    options = schema.get('allOf') or []
    return options[0].get('$ref') if len(options) == 1 else None


def _choose_dropped(schema: Mapping[str, Any]) -> set[str]:
    """Return the fields that are invalid or unknown in OpenAPI v2."""
    dropped = set(_UNKNOWN_IN_V2)
    if schema.get('x-kubernetes-int-or-string'):
        dropped |= {'type'}
    if schema.get('x-kubernetes-preserve-unknown-fields') or schema.get('nullable'):
        dropped |= {'type', 'items', 'properties', 'required'}
    return dropped


def _select_fields(schema: Mapping[str, Any], is_selected: Callable[[str], bool]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if is_selected(key)}


def _map_children(
    schema: Mapping[str, Any], convert: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Copy a schema with all of its direct children converted."""
    mapped = dict(schema)
    if schema.get('properties'):
        mapped['properties'] = {
            name: convert(child) for name, child in schema['properties'].items()
        }

    mapped.update(
        (key, convert(schema[key])) for key in _SUBSCHEMAS if isinstance(schema.get(key), Mapping)
    )
    mapped.update(
        (key, [convert(child) for child in schema[key]])
        for key in _SUBSCHEMA_LISTS
        if schema.get(key)
    )
    return mapped
