"""
Paths: the operations on resources, in the form of OpenAPI v3.

For every path: its methods, their parameters, and the definitions of their bodies and responses.
Clients use them to detect the features of the API (e.g. the strict validation of fields), and to
map paths to kinds.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.meta import discovery, kinds

REF_PREFIX: Final = '#/components/schemas/'
_META: Final = 'io.k8s.apimachinery.pkg.apis.meta.v1'
STATUS: Final = f'{_META}.Status'
PATCH: Final = f'{_META}.Patch'
DELETE_OPTIONS: Final = f'{_META}.DeleteOptions'

_PARAMETER_TYPES: Final = {
    'allowWatchBookmarks': 'boolean',
    'force': 'boolean',
    'gracePeriodSeconds': 'integer',
    'ignoreStoreReadErrorWithClusterBreakingPotential': 'boolean',
    'limit': 'integer',
    'orphanDependents': 'boolean',
    'sendInitialEvents': 'boolean',
    'timeoutSeconds': 'integer',
    'watch': 'boolean',
}
_LISTING: Final = (
    'allowWatchBookmarks',
    'continue',
    'fieldSelector',
    'labelSelector',
    'limit',
    'resourceVersion',
    'resourceVersionMatch',
    'sendInitialEvents',
    'timeoutSeconds',
    'watch',
)
_WRITING: Final = ('dryRun', 'fieldManager', 'fieldValidation')
_DELETING: Final = (
    'dryRun',
    'gracePeriodSeconds',
    'ignoreStoreReadErrorWithClusterBreakingPotential',
    'orphanDependents',
    'propagationPolicy',
)
_DELETING_MANY: Final = tuple(sorted({*_LISTING, *_DELETING} - {'watch', 'allowWatchBookmarks'}))


@dataclasses.dataclass(frozen=True)
class Action:
    """The representation of one verb of the API in HTTP."""

    method: str
    name: str  # as in x-kubernetes-action
    prefix: str  # of the operation's id
    parameters: tuple[str, ...]
    codes: tuple[int, ...]


_ACTIONS: Final = {
    'list': Action('get', 'list', 'list', _LISTING, (200,)),
    'create': Action('post', 'post', 'create', _WRITING, (200, 201, 202)),
    'deletecollection': Action('delete', 'deletecollection', 'delete', _DELETING_MANY, (200,)),
    'get': Action('get', 'get', 'read', (), (200,)),
    'update': Action('put', 'put', 'replace', _WRITING, (200, 201)),
    'delete': Action('delete', 'delete', 'delete', _DELETING, (200, 202)),
    'patch': Action('patch', 'patch', 'patch', (*_WRITING, 'force'), (200, 201)),
}
# The API publishes custom resources by simpler code, which omits some parameters and responses.
_CUSTOM_ACTIONS: Final = {
    **_ACTIONS,
    'deletecollection': dataclasses.replace(_ACTIONS['deletecollection'], parameters=_LISTING),
    'get': dataclasses.replace(_ACTIONS['get'], parameters=('resourceVersion',)),
    'patch': dataclasses.replace(_ACTIONS['patch'], codes=(200,)),
}
_COLLECTION_VERBS: Final = ('list', 'create', 'deletecollection')
_OBJECT_VERBS: Final = ('get', 'update', 'delete', 'patch')
_CODES: Final = {200: 'OK', 201: 'Created', 202: 'Accepted'}


@dataclasses.dataclass(frozen=True)
class Target:
    """The subject of operations: a resource or its subresource, on one path."""

    resource: kinds.Resource
    definition: str  # the name of the definition of the object or of the list
    gvk: Mapping[str, str]
    suffix: str = ''  # a suffix of the operation's id
    everywhere: bool = False  # in all namespaces


def build_paths(
    resources: Iterable[kinds.Resource], names: Mapping[tuple[str, str, str], str]
) -> dict[str, Any]:
    """Build all paths of the resources; the names of definitions are by group, version and kind."""
    paths = {
        path: item for resource in resources for path, item in _build_resource(resource, names)
    }
    return dict(sorted(paths.items()))


def _build_resource(
    resource: kinds.Resource,
    names: Mapping[tuple[str, str, str], str],
) -> Iterator[tuple[str, dict[str, Any]]]:
    group = resource.group
    version = resource.version
    plural = resource.plural
    root = f'/apis/{group}/{version}' if group else f'/api/{version}'
    collection = (
        f'{root}/namespaces/{{namespace}}/{plural}' if resource.namespaced else f'{root}/{plural}'
    )
    gvk = {'group': group, 'version': version, 'kind': resource.kind}
    target = Target(resource, names[group, version, resource.kind], gvk)
    if any(verb in resource.verbs for verb in _COLLECTION_VERBS):
        yield collection, _build_collection(target, names.get((group, version, resource.list_kind)))
    if any(verb in resource.verbs for verb in _OBJECT_VERBS):
        verbs = [verb for verb in _OBJECT_VERBS if verb in resource.verbs]
        yield f'{collection}/{{name}}', _build_object(target, verbs)

    if resource.namespaced and 'list' in resource.verbs:
        everywhere = dataclasses.replace(
            target, definition=names[group, version, resource.list_kind], everywhere=True
        )
        operation = _build_operation(
            everywhere, dataclasses.replace(_ACTIONS['list'], parameters=())
        )
        yield (
            f'{root}/{plural}',
            {'get': operation, 'parameters': _list_parameters(*sorted((*_LISTING, 'pretty')))},
        )

    for name, kind, subverbs in discovery.list_subresources(resource):
        found = (
            (kind.group, kind.version, kind.kind) if kind.version else (group, version, kind.kind)
        )
        shown = (
            gvk if resource.custom else dict(zip(('group', 'version', 'kind'), found, strict=True))
        )
        yield (
            f'{collection}/{{name}}/{name}',
            _build_object(
                Target(resource, names[found], shown, suffix=name.capitalize()), subverbs
            ),
        )


def _build_collection(target: Target, list_definition: str | None) -> dict[str, Any]:
    actions = _get_actions(target)
    listed = dataclasses.replace(target, definition=list_definition or target.definition)
    operations = {
        actions[verb].method: _build_operation(listed if verb == 'list' else target, actions[verb])
        for verb in _COLLECTION_VERBS
        if verb in target.resource.verbs
    }

    return {**operations, 'parameters': _list_parameters(*_get_scope(target), 'pretty')}


def _build_object(target: Target, verbs: Iterable[str]) -> dict[str, Any]:
    actions = _get_actions(target)
    operations = {actions[verb].method: _build_operation(target, actions[verb]) for verb in verbs}
    return {**operations, 'parameters': _list_parameters('name', *_get_scope(target), 'pretty')}


def _get_actions(target: Target) -> Mapping[str, Action]:
    return _CUSTOM_ACTIONS if target.resource.custom else _ACTIONS


def _get_scope(target: Target) -> tuple[str, ...]:
    return ('namespace',) if target.resource.namespaced else ()


def _build_operation(target: Target, action: Action) -> dict[str, Any]:
    group = target.resource.group
    version = target.resource.version
    words = [
        word[:1].upper() + word[1:]
        for word in re.split('[.-]', group.removesuffix('.k8s.io') or 'core')
    ]
    tag = ''.join(words)
    body = _build_body(target, action)

    return {
        'tags': [f'{tag[:1].lower()}{tag[1:]}_{version}'],
        'operationId': _name_operation(target, action, f'{tag}{version[:1].upper()}{version[1:]}'),
        **({'parameters': _list_parameters(*action.parameters)} if action.parameters else {}),
        **({'requestBody': body} if body else {}),
        'responses': _build_responses(target, action),
        'x-kubernetes-action': action.name,
        'x-kubernetes-group-version-kind': target.gvk,
    }


def _name_operation(target: Target, action: Action, group_version: str) -> str:
    many = 'Collection' if action.name == 'deletecollection' else ''
    scope = 'Namespaced' if target.resource.namespaced and not target.everywhere else ''
    everywhere = 'ForAllNamespaces' if target.everywhere else ''
    kind = f'{target.resource.kind}{target.suffix}'
    return f'{action.prefix}{group_version}{many}{scope}{kind}{everywhere}'


def _build_body(target: Target, action: Action) -> dict[str, Any] | None:
    plain = ('application/json', 'application/yaml') if target.resource.custom else ('*/*',)
    strategic = () if target.resource.custom else ('application/strategic-merge-patch+json',)
    match action.name:
        case 'post' | 'put':
            return {'content': _build_content(target.definition, plain), 'required': True}
        case 'patch':
            types = (
                'application/apply-patch+yaml',
                'application/json-patch+json',
                'application/merge-patch+json',
            )
            return {'content': _build_content(PATCH, (*types, *strategic)), 'required': True}
        case 'delete' | 'deletecollection' if 'dryRun' in action.parameters:
            return {'content': _build_content(DELETE_OPTIONS, plain)}
        case _:
            return None


def _build_responses(target: Target, action: Action) -> dict[str, Any]:
    definition = STATUS if action.name in ('delete', 'deletecollection') else target.definition
    content = _build_content(definition, ('application/json', 'application/yaml'))
    responses: dict[str, Any] = {
        str(code): {'description': _CODES[code], 'content': content} for code in action.codes
    }
    return {**responses, '401': {'description': 'Unauthorized'}}


def _build_content(definition: str, types: Iterable[str]) -> dict[str, Any]:
    return {media_type: {'schema': {'$ref': REF_PREFIX + definition}} for media_type in types}


def _list_parameters(*names: str) -> list[dict[str, Any]]:
    return [_build_parameter(name) for name in names]


def _build_parameter(name: str) -> dict[str, Any]:
    place = {'in': 'path', 'required': True} if name in ('name', 'namespace') else {'in': 'query'}
    return {
        'name': name,
        **place,
        'schema': {'type': _PARAMETER_TYPES.get(name, 'string'), 'uniqueItems': True},
    }
