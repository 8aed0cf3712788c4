"""
Built-ins: the resources that every cluster serves, and the schemas of their objects.

The resources were extracted from a real API (see ``definitions/``); here they become
`kinds.Resource`. The schemas are loaded and compiled when first needed: most runs use only a few of
them. Also here: the fields for selectors of built-in objects, and the conversion of events, the
only objects that are served in two shapes.
"""

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from kopf._cogs.helpers import jsons
from kopf._sandbox.meta import kinds, schemas

DEFINITIONS: Final = pathlib.Path(__file__).with_name('definitions')
REF_PREFIX: Final = '#/components/schemas/'

SERVED_SUBRESOURCES: Final = frozenset(
    ('status', 'scale', 'approval', 'finalize', 'token', 'eviction', 'binding')
)
"""Other subresources (logs, proxies, …) need nodes, which the sandbox does not have."""

EVENTS: Final = kinds.Home('', 'events')

_SCALE: Final = kinds.Scale(
    spec_path='.spec.replicas', status_path='.status.replicas', selector_path='.spec.selector'
)

_WARNINGS: Final = {
    'componentstatuses': 'v1 ComponentStatus is deprecated in v1.19+',
    'endpoints': 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice',
}

_REFERENCE_FIELDS: Final = (
    'kind',
    'namespace',
    'name',
    'uid',
    'apiVersion',
    'resourceVersion',
    'fieldPath',
)

_SELECTABLE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ('', 'pods'): (
        '.spec.nodeName',
        '.spec.restartPolicy',
        '.spec.schedulerName',
        '.spec.serviceAccountName',
        '.spec.hostNetwork',
        '.status.phase',
        '.status.podIP',
        '.status.podIPs',
        '.status.nominatedNodeName',
        '.spec.host',
    ),
    ('', 'nodes'): ('.spec.unschedulable',),
    ('', 'replicationcontrollers'): ('.status.replicas',),
    ('', 'events'): (
        *(f'.involvedObject.{name}' for name in _REFERENCE_FIELDS),
        '.reason',
        '.reportingComponent',
        '.source',
        '.type',
    ),
    ('', 'namespaces'): ('.status.phase',),
    ('', 'secrets'): ('.type',),
    ('', 'services'): ('.spec.clusterIP', '.spec.type'),
    ('events.k8s.io', 'events'): (
        *(f'.regarding.{name}' for name in _REFERENCE_FIELDS),
        '.reason',
        '.reportingController',
        '.type',
    ),
    ('batch', 'jobs'): ('.status.successful',),
    ('certificates.k8s.io', 'certificatesigningrequests'): ('.spec.signerName',),
}

# The details of values with custom Go decoders, which the published definitions lack.
_SPECIAL_MARKS: Final[Mapping[str, Mapping[str, Any]]] = {
    'io.k8s.apimachinery.pkg.api.resource.Quantity': {'type': 'string', 'format': 'quantity'},
    **{
        name: {'x-kubernetes-preserve-unknown-fields': True}
        for name in (
            'io.k8s.apimachinery.pkg.runtime.RawExtension',
            'io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1',
            'io.k8s.apimachinery.pkg.apis.meta.v1.Patch',
            'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON',
            'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray',
            'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool',
            'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray',
        )
    },
}

_compiled: Final[dict[str, schemas.Schema]] = {}


def load_resources() -> list[kinds.Resource]:
    """Load all built-in resources, in the order of the API."""
    return [
        _build_resource(facts)
        for facts in jsons.loads((DEFINITIONS / 'resources.json').read_bytes())
    ]


@functools.cache
def load_definitions() -> Mapping[str, Any]:
    """Load the published definitions of all built-in objects, by name. Must not be modified."""
    definitions: dict[str, Any] = jsons.loads((DEFINITIONS / 'schemas.json').read_bytes())
    return definitions


@functools.cache
def load_definition_names() -> Mapping[tuple[str, str, str], str]:
    """Load the names of the definitions by the group, version and kind of the objects."""
    return {
        (gvk['group'], gvk['version'], gvk['kind']): name
        for name, definition in load_definitions().items()
        for gvk in definition.get('x-kubernetes-group-version-kind', ())
    }


def load_schema(name: str) -> schemas.Schema:
    """
    Load the compiled schema of a definition, such as ``io.k8s.api.core.v1.Pod``.

    The nodes are shared by all schemas, and may be recursive. Quantities are strings with the
    format ``quantity``, but numbers are accepted too. A node's default is either the default of the
    API or the zero value that Go writes for unset fields (``""``, ``0``, ``{}``).
    """
    schema = _compiled.get(name)
    if schema is None:
        raw = {**load_definitions()[name], **_SPECIAL_MARKS.get(name, {})}
        schema = _compiled[name] = schemas.Schema(raw=raw)
        schemas.fill_schema(schema, raw, _resolve)

    return schema


def extract_fields(resource: kinds.Resource, obj: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the values of all fields by which an object can be selected; absent fields are empty.

    The object is in its stored form. The fields are named as in queries: ``spec.nodeName``. For
    events, the fields of both shapes are present, as events can be listed in either of them.
    """
    return {name: _show(read(obj)) for name, read in _list_readers(resource.home)}


def convert_event(obj: Mapping[str, Any], to_api_version: str) -> dict[str, Any]:
    """
    Convert an event between the shapes of ``v1`` and ``events.k8s.io/v1``, if needed.

    The result is a new dict, which shares its values with the original.
    """
    if obj.get('apiVersion') == to_api_version:
        return dict(obj)

    to_core = to_api_version == 'v1'
    names = {new: old for old, new in _EVENT_FIELDS.items()} if to_core else _EVENT_FIELDS
    converted = {names.get(key, key): value for key, value in obj.items()}
    absent, optional = (
        (_CORE_EVENT_ZEROS, frozenset[str]())
        if to_core
        else (_NEW_EVENT_ZEROS, _NEW_EVENT_OPTIONAL)
    )
    kept = {key: value for key, value in converted.items() if key not in optional or value != ''}

    return {
        'kind': 'Event',
        'apiVersion': to_api_version,
        'metadata': kept.pop('metadata', {}),
        **absent,
        **{key: value for key, value in kept.items() if key not in ('kind', 'apiVersion')},
    }


_EVENT_FIELDS: Final = {
    'involvedObject': 'regarding',
    'message': 'note',
    'reportingComponent': 'reportingController',
    'source': 'deprecatedSource',
    'firstTimestamp': 'deprecatedFirstTimestamp',
    'lastTimestamp': 'deprecatedLastTimestamp',
    'count': 'deprecatedCount',
}
_CORE_EVENT_ZEROS: Final[Mapping[str, Any]] = {
    'source': {},
    'firstTimestamp': None,
    'lastTimestamp': None,
    'eventTime': None,
    'reportingComponent': '',
    'reportingInstance': '',
}
_NEW_EVENT_ZEROS: Final[Mapping[str, Any]] = {
    'eventTime': None,
    'regarding': {},
    'deprecatedSource': {},
    'deprecatedFirstTimestamp': None,
    'deprecatedLastTimestamp': None,
}
_NEW_EVENT_OPTIONAL: Final = frozenset(('reportingController', 'reportingInstance'))


def _build_resource(facts: Mapping[str, Any]) -> kinds.Resource:
    group = facts['group']
    version = facts['version']
    plural = facts['plural']
    subresources = [name for name in facts.get('subresources', ()) if name in SERVED_SUBRESOURCES]
    is_event = plural == EVENTS.plural

    return kinds.Resource(
        group=group,
        version=version,
        plural=plural,
        singular=facts['singular'],
        kind=facts['kind'],
        namespaced=facts['namespaced'],
        verbs=tuple(facts['verbs']),
        short_names=tuple(facts.get('shortNames', ())),
        categories=tuple(facts.get('categories', ())),
        list_kind=f'{facts["kind"]}List' if 'list' in facts['verbs'] else '',
        has_status='status' in subresources,
        scale=_SCALE if 'scale' in subresources else None,
        subresources=tuple(name for name in subresources if name not in ('status', 'scale')),
        storage_version='v1' if is_event else version,
        home=EVENTS if is_event else kinds.Home(group, plural),
        selectable=_SELECTABLE.get((group, plural), ()),
        warning=_WARNINGS.get(plural, '') if not group else '',
        load_schema=functools.partial(load_schema, facts['definition']),
    )


def _resolve(ref: str) -> schemas.Schema:
    return load_schema(ref.removeprefix(REF_PREFIX))


@functools.cache
def _list_readers(home: kinds.Home) -> tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...]:
    groups = ('', 'events.k8s.io') if home == EVENTS else (home.group,)
    names = [
        field.removeprefix('.')
        for group in groups
        for field in _SELECTABLE.get((group, home.plural), ())
    ]
    return tuple((name, _DERIVED.get((home, name)) or _Path(name)) for name in names)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    return '' if value is None else str(value)


class _Path:
    """Returns the value of a nested field, if it is present."""

    def __init__(self, field: str, default: Any = None) -> None:
        self._names = field.split('.')
        self._default = default

    def __call__(self, obj: Any) -> Any:
        for name in self._names:
            obj = obj.get(name) if isinstance(obj, dict) else None
        return self._default if obj is None else obj


def _read_source(obj: Mapping[str, Any]) -> Any:
    return _Path('source.component')(obj) or obj.get('reportingComponent')


def _read_pod_ip(obj: Mapping[str, Any]) -> Any:
    addresses = _Path('status.podIPs')(obj)
    return _Path('ip')(addresses[0]) if isinstance(addresses, list) and addresses else None


def _read_nothing(obj: Mapping[str, Any]) -> Any:
    return None


# The API accepts "status.podIPs", but does not read it.
_DERIVED: Final[Mapping[tuple[kinds.Home, str], Callable[[Mapping[str, Any]], Any]]] = {
    (kinds.Home('', 'pods'), 'spec.host'): _Path('spec.nodeName'),
    (kinds.Home('', 'pods'), 'spec.hostNetwork'): _Path('spec.hostNetwork', default=False),
    (kinds.Home('', 'pods'), 'status.podIP'): _read_pod_ip,
    (
        kinds.Home('', 'pods'),
        'status.podIPs',
    ): _read_nothing,
    (kinds.Home('', 'nodes'), 'spec.unschedulable'): _Path('spec.unschedulable', default=False),
    (kinds.Home('', 'replicationcontrollers'), 'status.replicas'): _Path(
        'status.replicas', default=0
    ),
    (kinds.Home('batch', 'jobs'), 'status.successful'): _Path('status.succeeded', default=0),
    (EVENTS, 'source'): _read_source,
    (EVENTS, 'reportingController'): _Path('reportingComponent'),
    **{
        (EVENTS, f'regarding.{name}'): _Path(f'involvedObject.{name}') for name in _REFERENCE_FIELDS
    },
}
