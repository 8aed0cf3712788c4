"""
CRDs: from custom resource definitions to the served resources.

Here the definitions are defaulted and validated, get their status, and become `kinds.Resource`. All
functions are pure, except for those that modify their argument and say so.
"""

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.apiextensions import crd_rules
from kopf._sandbox.meta import discovery, errors, kinds, schemas
from kopf._sandbox.schema import formats

CLEANUP_FINALIZER: Final = 'customresourcecleanup.apiextensions.k8s.io'
"""Added to CRDs that are being deleted, until all of their objects are gone."""

VERBS: Final = ('delete', 'deletecollection', 'get', 'list', 'patch', 'create', 'update', 'watch')
_DEFAULT_PORT: Final = 443
_NAME_REASONS: Final = {
    'plural': 'PluralConflict',
    'singular': 'SingularConflict',
    'shortNames': 'ShortNamesConflict',
    'kind': 'KindConflict',
    'listKind': 'ListKindConflict',
}
_NAME_ORDER: Final = ('plural', 'singular', 'shortNames', 'kind', 'listKind', 'categories')
_REQUIRED_NAMES: Final = ('plural', 'kind')
_KIND_KEYS: Final = ('kind', 'listKind')


def default_crd(body: dict[str, Any]) -> None:
    """Set the defaults of a CRD. Modifies it."""
    spec = body.setdefault('spec', {})
    if not isinstance(spec, dict):
        return

    names = spec.setdefault('names', {})
    if isinstance(names, dict):
        _default_names(names)
    if spec.get('conversion') is None:
        spec['conversion'] = {'strategy': 'None'}
    service = _dig(spec, 'conversion', 'webhook', 'clientConfig', 'service')
    if isinstance(service, dict) and service.get('port') is None:
        service['port'] = _DEFAULT_PORT
    if spec.get('preserveUnknownFields') is False:
        del spec['preserveUnknownFields']
    for version in spec.get('versions') or ():
        if isinstance(version, dict):
            version.setdefault('served', False)
            version.setdefault('storage', False)


def _default_names(names: dict[str, Any]) -> None:
    kind = names.setdefault('kind', '')
    names.setdefault('plural', '')
    if isinstance(kind, str) and kind:
        names['singular'] = names.get('singular') or kind.lower()
        names['listKind'] = names.get('listKind') or f'{kind}List'


def _dig(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def validate_crd(
    new: Mapping[str, Any], old: Mapping[str, Any] | None = None
) -> list[errors.FieldError]:
    """
    Return all problems of a CRD that is defaulted already; for updates, also of its changes.

    Only the match of the name with the spec is checked: the rest of the metadata is validated as
    for all objects. Raises the API's 400 if some values in the schemas have wrong types.
    """
    spec = crd_rules.mapping(new.get('spec'))
    crd_rules.check_types(spec)
    problems = [] if old is not None else list(crd_rules.check_name(new, spec))
    problems += crd_rules.check_spec(spec)

    if old is not None:
        problems += crd_rules.check_changes(
            spec, crd_rules.mapping(old.get('spec')), is_established(old)
        )

    problems += crd_rules.check_stored(find_stored_versions(new, old), crd_rules.versions_of(spec))
    problems += crd_rules.check_approval(new, old)
    if spec.get('preserveUnknownFields') and not (
        old and _dig(old, 'spec', 'preserveUnknownFields')
    ):
        why = (
            'cannot set to true, set x-kubernetes-preserve-unknown-fields to true in '
            'spec.versions[*].schema instead'
        )
        problems.append(errors.invalid_value('spec.preserveUnknownFields', True, why))

    return problems


def list_warnings(new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[str]:
    """Return warnings about suspicious parts of a CRD; for updates, only the new warnings."""
    before = set(_iterate_unknown_formats(old)) if old is not None else set()
    return [
        f'unrecognized format "{name}"'
        for name in _iterate_unknown_formats(new)
        if name not in before
    ]


def _iterate_unknown_formats(body: Mapping[str, Any]) -> Iterator[str]:
    for version in crd_rules.versions_of(crd_rules.mapping(body.get('spec'))):
        yield from _iterate_formats_in(
            crd_rules.mapping(version.get('schema')).get('openAPIV3Schema')
        )


def _iterate_formats_in(raw: Any) -> Iterator[str]:
    if isinstance(raw, Mapping):
        name = raw.get('format')
        if (
            isinstance(name, str)
            and name
            and raw.get('type') == 'string'
            and formats.find_check(name) is None
        ):
            yield name
        for key, value in raw.items():
            if key not in ('default', 'enum', 'example'):
                yield from _iterate_formats_in(value)
    elif isinstance(raw, list):
        for item in raw:
            yield from _iterate_formats_in(item)


def is_established(body: Mapping[str, Any]) -> bool:
    return any(
        condition['type'] == 'Established' and condition['status'] == 'True'
        for condition in _dig(body, 'status', 'conditions') or ()
    )


def find_stored_versions(new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[str]:
    """Return all versions in which objects were ever stored, including the current one."""
    stored = list(_dig(old, 'status', 'storedVersions') or ())
    versions = crd_rules.versions_of(crd_rules.mapping(new.get('spec')))
    current = [crd_rules.text(version, 'name') for version in versions if version.get('storage')]
    return [*stored, *(name for name in current[:1] if name not in stored)]


def build_initial_status(body: Mapping[str, Any]) -> dict[str, Any]:
    """Build the status of a new CRD, as its creator sees it in the response."""
    return {
        'conditions': None,
        'acceptedNames': {'plural': '', 'kind': ''},
        'storedVersions': find_stored_versions(body),
    }


def build_status(
    body: Mapping[str, Any], others: Iterable[Mapping[str, Any]], now: str | None = None
) -> dict[str, Any]:
    """
    Build the status that a valid CRD gets soon after it is created or changed.

    ``now`` is the time of the transitions, if there are any; by default, the time of creation. If
    some names are taken by ``others`` in the same group, they are not accepted, and the CRD is not
    served.
    """
    now = now or _dig(body, 'metadata', 'creationTimestamp')
    status = body.get('status') or build_initial_status(body)
    group = body['spec']['group']
    accepted = status.get('acceptedNames') or {}
    neighbours = [
        _dig(other, 'status', 'acceptedNames') or {}
        for other in others
        if _dig(other, 'spec', 'group') == group
    ]
    names, verdict = _accept_names(body['spec']['names'], accepted, [*neighbours, accepted])
    conditions = {condition['type']: condition for condition in status.get('conditions') or ()}
    _note(conditions, 'NamesAccepted', verdict, now)
    _note(conditions, 'Established', _decide_established(conditions), now)

    return {
        **status,
        'conditions': list(conditions.values()),
        'acceptedNames': names,
        'storedVersions': find_stored_versions(body, {'status': status}),
    }


def note_deletion(body: dict[str, Any], *, has_begun: bool) -> None:
    """Report the progress of the deletion in the status of a CRD. Modifies the CRD."""
    status = body.setdefault('status', {})
    conditions = {condition['type']: condition for condition in status.get('conditions') or ()}
    progress = (
        (True, 'InstanceDeletionInProgress', 'CustomResource deletion is in progress')
        if has_begun
        else (
            True,
            'InstanceDeletionPending',
            'CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon',
        )
    )
    _note(conditions, 'Terminating', progress, body['metadata'].get('deletionTimestamp'))
    status['conditions'] = list(conditions.values())


def _note(
    conditions: dict[str, Any], kind: str, verdict: tuple[bool, str, str], now: str | None
) -> None:
    value, reason, message = verdict
    old = conditions.get(kind)
    status = 'True' if value else 'False'
    since = old['lastTransitionTime'] if old and old['status'] == status else now
    conditions[kind] = {
        'type': kind,
        'status': status,
        'lastTransitionTime': since,
        'reason': reason,
        'message': message,
    }


def _decide_established(conditions: Mapping[str, Any]) -> tuple[bool, str, str]:
    """Decide whether the CRD is served. Once established, it stays established."""
    old = conditions.get('Established')
    if conditions['NamesAccepted']['status'] == 'True' or (old and old['status'] == 'True'):
        return True, 'InitialNamesAccepted', 'the initial names have been accepted'
    return False, 'NotAccepted', 'not all names are accepted'


def _accept_names(
    requested: Mapping[str, Any], accepted: Mapping[str, Any], taken: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], tuple[bool, str, str]]:
    """
    Accept the free names, and keep the previously accepted ones instead of the names that are
    taken. Return them with the condition about the last conflict, if any.
    """
    taken = list(taken)
    resources_taken = {name for names in taken for name in _iterate_resource_names(names)}
    kinds_taken = {names.get(key) for names in taken for key in _KIND_KEYS}

    names = dict(accepted)
    verdict = (True, 'NoConflicts', 'no conflicts found')
    for key, reason in _NAME_REASONS.items():
        used = kinds_taken if key in _KIND_KEYS else resources_taken
        conflicts = _find_conflicts(_list_names(requested, key), _list_names(accepted, key), used)
        if conflicts:
            verdict = (False, reason, _join_conflicts(conflicts))
        else:
            names[key] = requested.get(key)

    names['categories'] = requested.get('categories')
    return _arrange_names(names), verdict


def _list_names(names: Mapping[str, Any], key: str) -> list[str]:
    """Return the names under a key, which has one or many of them."""
    if key == 'shortNames':
        return names.get(key) or []
    return [names.get(key) or '']


def _find_conflicts(
    wanted: list[str], current: list[str], used: Container[str | None]
) -> list[str]:
    """Return the new names that are in use, each once."""
    return list(dict.fromkeys(name for name in wanted if name not in current and name in used))


def _join_conflicts(names: list[str]) -> str:
    texts = [f'"{name}" is already in use' for name in names]
    return texts[0] if len(texts) == 1 else f'[{", ".join(texts)}]'


def _arrange_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names in the order of the API; the empty ones only if they are required."""
    return {
        key: names.get(key) or '' for key in _NAME_ORDER if names.get(key) or key in _REQUIRED_NAMES
    }


def _iterate_resource_names(names: Mapping[str, Any]) -> Iterator[Any]:
    yield from (names.get('plural'), names.get('singular'))
    yield from names.get('shortNames') or ()


def build_resources(body: Mapping[str, Any]) -> list[kinds.Resource]:
    """Build the resources of an established CRD: one for each served version."""
    spec = body['spec']
    loaders = {
        version['name']: _make_loader(_dig(version, 'schema', 'openAPIV3Schema'))
        for version in spec['versions']
    }
    return [
        _build_resource(body, version, loaders)
        for version in spec['versions']
        if version.get('served')
    ]


def _build_resource(
    body: Mapping[str, Any],
    version: Mapping[str, Any],
    loaders: Mapping[str, Callable[[], schemas.Schema | None]],
) -> kinds.Resource:
    spec = body['spec']
    storage_version = next(
        version['name'] for version in spec['versions'] if version.get('storage')
    )
    group = spec['group']
    names = {**spec['names'], **(_dig(body, 'status', 'acceptedNames') or {})}
    names = {
        **names,
        **{key: spec['names'][key] for key in ('plural', 'kind') if not names.get(key)},
    }
    subresources = version.get('subresources') or {}
    scale = subresources.get('scale')

    return kinds.Resource(
        group=group,
        version=version['name'],
        plural=names['plural'],
        singular=names.get('singular') or '',
        kind=names['kind'],
        namespaced=spec['scope'] == 'Namespaced',
        verbs=VERBS,
        short_names=tuple(names.get('shortNames') or ()),
        categories=tuple(names.get('categories') or ()),
        list_kind=names.get('listKind') or '',
        has_status=subresources.get('status') is not None,
        scale=_build_scale(scale) if scale is not None else None,
        storage_version=storage_version,
        home=kinds.Home(group, names['plural']),
        custom=True,
        columns=tuple(
            _build_column(column) for column in version.get('additionalPrinterColumns') or ()
        ),
        selectable=tuple(field['jsonPath'] for field in version.get('selectableFields') or ()),
        warning=_build_warning(spec, version, names['kind']),
        conversion=_find_webhook(spec),
        load_schema=loaders[version['name']],
        load_stored_schema=loaders[storage_version],
    )


def _find_webhook(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conversion = spec.get('conversion') or {}
    return conversion.get('webhook') if conversion.get('strategy') == 'Webhook' else None


def _make_loader(raw: Mapping[str, Any] | None) -> Callable[[], schemas.Schema | None]:
    """Return a function that compiles the schema on the first call."""
    return functools.cache(lambda: None if raw is None else schemas.compile_schema(raw))


def _build_scale(scale: Mapping[str, Any]) -> kinds.Scale:
    return kinds.Scale(
        spec_path=scale['specReplicasPath'],
        status_path=scale['statusReplicasPath'],
        selector_path=scale.get('labelSelectorPath') or '',
    )


def _build_column(column: Mapping[str, Any]) -> kinds.Column:
    return kinds.Column(
        name=column['name'],
        type=column['type'],
        path=column['jsonPath'],
        format=column.get('format') or '',
        description=column.get('description') or '',
        priority=column.get('priority') or 0,
    )


def _build_warning(spec: Mapping[str, Any], version: Mapping[str, Any], kind: str) -> str:
    """Return the deprecation warning of a version; by default, it advises a newer version."""
    if not version.get('deprecated'):
        return ''

    group = spec['group']
    rank = discovery.rank_version(version['name'])
    better = sorted(
        (
            other['name']
            for other in spec['versions']
            if other.get('served')
            and not other.get('deprecated')
            and discovery.rank_version(other['name']) < rank
        ),
        key=discovery.rank_version,
    )
    advice = f'; use {group}/{better[0]} {kind}' if better else ''

    return (
        version.get('deprecationWarning')
        or f'{group}/{version["name"]} {kind} is deprecated{advice}'
    )


def convert(obj: dict[str, Any], resource: kinds.Resource) -> dict[str, Any]:
    """
    Return an object in another version of its resource: only ``apiVersion`` differs. The original
    is not modified.
    """
    return {**obj, 'apiVersion': resource.api_version}
