"""
Rules of CRDs: the requirements for custom resource definitions, with the API's error messages.

The API stores the parts that are equal in all versions (schemas, subresources, columns, selectable
fields) once, and reports them by other paths: ``spec.validation`` instead of
``spec.versions[0].schema``, and so on.
"""

import dataclasses
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.apiextensions import jsonschemas, schema_rules, webhook_rules
from kopf._sandbox.meta import errors, naming

Problems = Iterator[errors.FieldError]

APPROVAL: Final = 'api-approved.kubernetes.io'
_PROTECTED: Final = ('k8s.io', 'kubernetes.io')
_ADVICE: Final = 'see https://github.com/kubernetes/enhancements/pull/1111'
_COLUMN_TYPES: Final = ('boolean', 'date', 'integer', 'number', 'string')
_COLUMN_FORMATS: Final = (
    'byte',
    'date',
    'date-time',
    'double',
    'float',
    'int32',
    'int64',
    'password',
)
_MAX_SELECTABLE: Final = 8
_SHARED: Final = {
    'schema': 'validation',
    'subresources': 'subresources',
    'selectableFields': 'selectableFields',
    'additionalPrinterColumns': 'additionalPrinterColumns',
}
_IMMUTABLE: Final = 'field is immutable'
_MIXED_CASE: Final = 'may have mixed case, but should otherwise match: '


def check_types(spec: Mapping[str, Any]) -> None:
    """Raise the API's 400 if some values in the schemas have wrong types."""
    for version in versions_of(spec):
        raw = mapping(version.get('schema')).get('openAPIV3Schema')
        try:
            if raw is not None:
                jsonschemas.check_types(raw, 'spec.versions.schema.openAPIV3Schema')
        except jsonschemas.UndecodableError as e:
            kind = 'CustomResourceDefinition'
            raise errors.bad_request(
                f'{kind} in version "v1" cannot be handled as a {kind}: {e}'
            ) from None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def versions_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    versions = spec.get('versions')
    return [mapping(version) for version in versions] if isinstance(versions, list) else []


def _list(owner: Mapping[str, Any], name: str) -> list[Any]:
    value = owner.get(name)
    return value if isinstance(value, list) else []


def text(owner: Mapping[str, Any], name: str) -> str:
    value = owner.get(name)
    return value if isinstance(value, str) else ''


def check_name(crd: Mapping[str, Any], spec: Mapping[str, Any]) -> Problems:
    name = mapping(crd.get('metadata')).get('name')
    if name and name != f'{text(mapping(spec.get("names")), "plural")}.{text(spec, "group")}':
        yield errors.invalid_value(
            'metadata.name', name, 'must be spec.names.plural+"."+spec.group'
        )


def check_spec(spec: Mapping[str, Any]) -> Problems:
    shared = _find_shared(spec)
    yield from _check_group(text(spec, 'group'))
    yield from _check_choice('spec.scope', text(spec, 'scope'), ('Cluster', 'Namespaced'))

    for index, version in enumerate(versions_of(spec)):
        if mapping(version.get('schema')).get('openAPIV3Schema') is None:
            yield errors.required(f'spec.versions[{index}].schema.openAPIV3Schema')

    yield from _check_versions(spec, shared)
    yield from _check_version_set(spec, shared)
    yield from _check_names(mapping(spec.get('names')))
    yield from _check_parts(shared.parts, 'spec', shared.parts, schema_field='validation')
    yield from webhook_rules.check_conversion(mapping(spec.get('conversion')), 'spec.conversion')


@dataclasses.dataclass(frozen=True)
class _Shared:
    """The parts that are equal in all versions, by the names of the version's fields."""

    parts: Mapping[str, Any]

    def strip(self, version: Mapping[str, Any]) -> dict[str, Any]:
        """Return the version's fields except for the shared parts."""
        return {name: value for name, value in version.items() if name not in self.parts}


def _find_shared(spec: Mapping[str, Any]) -> _Shared:
    versions = versions_of(spec)
    parts = {}
    for name in _SHARED:
        values = [version.get(name) or None for version in versions]
        if values and all(value == values[0] for value in values):
            parts[name] = values[0]
    return _Shared(parts)


def _check_group(group: str) -> Problems:
    if not group:
        yield errors.required('spec.group')
    elif problems := naming.check_subdomain(group):
        yield errors.invalid_value('spec.group', group, ','.join(problems))
    elif '.' not in group:
        yield errors.invalid_value('spec.group', group, 'should be a domain with at least one dot')


def _check_choice(path: str, value: str, options: Sequence[str]) -> Problems:
    if not value:
        yield errors.required(path)
    elif value not in options:
        yield errors.not_supported(path, value, options)


def _check_versions(spec: Mapping[str, Any], shared: _Shared) -> Problems:
    for index, version in enumerate(versions_of(spec)):
        path = f'spec.versions[{index}]'
        name = text(version, 'name')
        if problems := naming.check_old_label(name):
            yield errors.invalid_value(f'{path}.name', name, ','.join(problems))
        for problem in _find_warning_problems(version):
            yield errors.invalid_value(
                f'{path}.deprecationWarning', version.get('deprecationWarning'), problem
            )
        yield from _check_parts(shared.strip(version), path, version)


def _find_warning_problems(version: Mapping[str, Any]) -> Iterator[str]:
    text = version.get('deprecationWarning')
    if not isinstance(text, str):
        return

    if not version.get('deprecated'):
        yield 'can only be set for deprecated versions'
        return

    if len(text.encode('utf-8', 'replace')) > 256:
        yield 'must be <= 256 characters long'
    if not text:
        yield 'must not be an empty string'
    bad = next((index for index, char in enumerate(text) if not char.isprintable()), None)
    if bad is not None:
        place = len(text[:bad].encode('utf-8', 'replace'))
        yield (
            'must only contain printable UTF-8 characters; non-printable character found '
            f'at index {place}'
        )


def _check_version_set(spec: Mapping[str, Any], shared: _Shared) -> Problems:
    versions = versions_of(spec)
    names = [text(version, 'name') for version in versions]
    if len(set(names)) < len(names):
        yield _refuse_versions(spec, shared, 'must contain unique version names')
    if sum(bool(version.get('storage')) for version in versions) != 1:
        yield _refuse_versions(
            spec, shared, 'must have exactly one version marked as storage version'
        )

    if names and names[0] and (problems := naming.check_old_label(names[0])):
        yield errors.invalid_value('spec.version', names[0], ','.join(problems))


def _refuse_versions(spec: Mapping[str, Any], shared: _Shared, why: str) -> errors.FieldError:
    dumped = [_dump_version(shared.strip(version)) for version in versions_of(spec)]
    is_given = isinstance(spec.get('versions'), list)
    shown = json.dumps(dumped, separators=(',', ':'), ensure_ascii=False) if is_given else 'null'
    return errors.FieldError('FieldValueInvalid', 'spec.versions', f'Invalid value: {shown}: {why}')


def _dump_version(version: Mapping[str, Any]) -> dict[str, Any]:
    raw = mapping(version.get('schema')).get('openAPIV3Schema')
    return {
        'Name': text(version, 'name'),
        'Served': bool(version.get('served')),
        'Storage': bool(version.get('storage')),
        'Deprecated': bool(version.get('deprecated')),
        'DeprecationWarning': version.get('deprecationWarning'),
        'Schema': {'OpenAPIV3Schema': jsonschemas.dump(raw)} if raw is not None else None,
        'Subresources': version.get('subresources'),
        'AdditionalPrinterColumns': version.get('additionalPrinterColumns'),
        'SelectableFields': version.get('selectableFields'),
    }


def _check_names(names: Mapping[str, Any]) -> Problems:
    for name in ('plural', 'singular', 'kind', 'listKind'):
        if not text(names, name):
            yield errors.required(f'spec.names.{name}')

    for name in ('plural', 'singular', 'kind', 'listKind'):
        value = text(names, name)
        is_kind = name in ('kind', 'listKind')
        if value and (problems := naming.check_old_label(value.lower() if is_kind else value)):
            prefix = _MIXED_CASE if is_kind else ''
            yield errors.invalid_value(f'spec.names.{name}', value, prefix + ','.join(problems))

    yield from _check_labels(names, 'shortNames')
    if text(names, 'kind') and names.get('kind') == names.get('listKind'):
        yield errors.invalid_value(
            'spec.names.listKind', names['listKind'], 'kind and listKind may not be the same'
        )

    yield from _check_labels(names, 'categories')


def _check_labels(names: Mapping[str, Any], name: str) -> Problems:
    for index, value in enumerate(_list(names, name)):
        if problems := naming.check_old_label(str(value)):
            yield errors.invalid_value(f'spec.names.{name}[{index}]', value, ','.join(problems))


def _check_parts(
    parts: Mapping[str, Any], path: str, version: Mapping[str, Any], *, schema_field: str = 'schema'
) -> Problems:
    """Check the schema, subresources, columns and fields of one version, or of all versions."""
    raw = mapping(parts.get('schema')).get('openAPIV3Schema')
    subresources = mapping(parts.get('subresources'))
    if raw is not None:
        has_status = mapping(version.get('subresources')).get('status') is not None
        yield from schema_rules.check_schema(
            raw, f'{path}.{schema_field}.openAPIV3Schema', has_status=has_status
        )

    if subresources.get('scale') is not None:
        yield from _check_scale(mapping(subresources['scale']), f'{path}.subresources.scale')
    for index, column in enumerate(_list(parts, 'additionalPrinterColumns')):
        yield from _check_column(mapping(column), f'{path}.additionalPrinterColumns[{index}]')
    if fields := _list(parts, 'selectableFields'):
        whole = mapping(mapping(version.get('schema')).get('openAPIV3Schema'))
        yield from _check_selectable(fields, whole, f'{path}.selectableFields')


def _check_scale(scale: Mapping[str, Any], path: str) -> Problems:
    for name, roots, must in (
        ('specReplicasPath', ('.spec.',), 'should be a json path under .spec'),
        ('statusReplicasPath', ('.status.',), 'should be a json path under .status'),
        (
            'labelSelectorPath',
            ('.spec.', '.status.'),
            'should be a json path under either .spec or .status',
        ),
    ):
        value = text(scale, name)
        if not value and name != 'labelSelectorPath':
            yield errors.required(f'{path}.{name}')
        elif value and not value.startswith('.'):
            yield errors.invalid_value(
                f'{path}.{name}', value, 'must be a simple json path starting with .'
            )
        elif value and not value.startswith(roots):
            yield errors.invalid_value(f'{path}.{name}', value, must)


def _check_column(column: Mapping[str, Any], path: str) -> Problems:
    kind = text(column, 'type')
    form = text(column, 'format')
    where = text(column, 'jsonPath')
    if not text(column, 'name'):
        yield errors.required(f'{path}.name')
    if not kind:
        yield errors.required(f'{path}.type', f'must be one of {",".join(_COLUMN_TYPES)}')
    elif kind not in _COLUMN_TYPES:
        yield errors.invalid_value(
            f'{path}.type', kind, f'must be one of {",".join(_COLUMN_TYPES)}'
        )

    if form and form not in _COLUMN_FORMATS:
        yield errors.invalid_value(
            f'{path}.format', form, f'must be one of {",".join(_COLUMN_FORMATS)}'
        )

    if not where:
        yield errors.required(f'{path}.JSONPath')
    elif not where.startswith('.'):
        yield errors.invalid_value(
            f'{path}.JSONPath', where, 'must be a simple json path starting with .'
        )


def _check_selectable(fields: list[Any], raw: Mapping[str, Any], path: str) -> Problems:
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where = f'{path}[{index}].jsonPath'
        value = text(mapping(field), 'jsonPath')
        if not value:
            yield errors.required(where)
            continue
        try:
            kind = _find_field(value, raw).get('type')
        except ValueError as e:
            yield errors.invalid_value(where, value, f'is an invalid path: {e}')
            continue
        if value.split('.')[1:2] == ['metadata']:
            yield errors.invalid_value(where, value, 'must not point to fields in metadata')
        if kind not in ('string', 'boolean', 'integer'):
            yield errors.invalid_value(
                where,
                value,
                'must point to a field of type string, boolean or integer. '
                'Enum string fields and strings with formats are allowed.',
            )
        if value in seen:
            yield errors.duplicate(where, value)
        seen.add(value)

    if len(seen) > _MAX_SELECTABLE:
        yield errors.too_many(path, len(seen), _MAX_SELECTABLE)


def _find_field(path: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field by its path; raise `ValueError` if it is unknown."""
    head, *names = path.replace('[', '.[').split('.')
    if head:
        raise ValueError(f'expected [ or . but got: {head}')

    for name in names:
        if name.startswith('['):
            raise ValueError('array notation is not allowed')
        if not name:
            raise ValueError('unexpected end of JSON path')
        properties = raw.get('properties')
        additional = raw.get('additionalProperties')
        found = properties.get(name) if properties else additional
        if found is None:
            raise ValueError('does not refer to a valid field')
        raw = mapping(found)

    return raw


def check_changes(new: Mapping[str, Any], old: Mapping[str, Any], established: bool) -> Problems:
    new_names = mapping(new.get('names'))
    old_names = mapping(old.get('names'))
    if established and new.get('scope') != old.get('scope'):
        yield errors.invalid_value('spec.scope', new.get('scope'), _IMMUTABLE)
    if established and new_names.get('kind') != old_names.get('kind'):
        yield errors.invalid_value('spec.names.kind', new_names.get('kind'), _IMMUTABLE)
    if new.get('group') != old.get('group'):
        yield errors.invalid_value('spec.group', new.get('group'), _IMMUTABLE)
    if new_names.get('plural') != old_names.get('plural'):
        yield errors.invalid_value('spec.names.plural', new_names.get('plural'), _IMMUTABLE)


def check_stored(stored: list[str], versions: list[Mapping[str, Any]]) -> Problems:
    path = 'status.storedVersions'
    names = [text(version, 'name') for version in versions]
    if not stored:
        yield errors.invalid_value(path, None, 'must have at least one stored version')
        return

    for version in versions:
        if version.get('storage') and text(version, 'name') not in stored:
            yield errors.invalid_value(
                path, stored, f'must have the storage version {text(version, "name")}'
            )

    for index, name in enumerate(stored):
        if name not in names:
            why = (
                f'missing from spec.versions; {name} was previously a storage version, and must '
                'remain in spec.versions until a storage migration ensures no data remains '
                f'persisted in {name} and removes {name} from status.storedVersions'
            )
            yield errors.invalid_value(f'{path}[{index}]', name, why)


def check_approval(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Problems:
    group = text(mapping(new.get('spec')), 'group')
    if not any(group == protected or group.endswith(f'.{protected}') for protected in _PROTECTED):
        return

    value = _get_approval(new)
    path = f'metadata.annotations[{APPROVAL}]'
    if old is not None and _is_approved(_get_approval(old)) == _is_approved(value):
        return

    if not value:
        yield errors.required(
            path, f'protected groups must have approval annotation "{APPROVAL}", {_ADVICE}'
        )
    elif not _is_approved(value):
        why = (
            f'protected groups must have approval annotation "{APPROVAL}" with either a URL or a '
            f'reason starting with "unapproved", {_ADVICE}'
        )
        yield errors.invalid_value(path, value, why)


def _get_approval(crd: Mapping[str, Any]) -> str:
    return text(mapping(mapping(crd.get('metadata')).get('annotations')), APPROVAL)


def _is_approved(value: str) -> bool:
    try:
        url = urllib.parse.urlsplit(value)
    except ValueError:
        return False
    return value.startswith('unapproved') or bool(url.scheme and url.netloc)
