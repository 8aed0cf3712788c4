"""
Invariants: the requirements for custom objects besides their schemas.

Lists declared as sets or maps have no duplicates; embedded resources are valid objects themselves.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kopf._sandbox.meta import errors, metadata, naming, schemas


def check_lists(value: Any, schema: schemas.Schema, path: str) -> Iterator[errors.FieldError]:
    """Yield errors for duplicates in all sets and maps inside of the value."""
    if isinstance(value, list):
        if schema.list_type != 'atomic':
            yield from _check_list(value, schema, path)
        if schema.items is not None:
            for index, item in enumerate(value):
                yield from check_lists(item, schema.items, f'{path}[{index}]')
    elif isinstance(value, dict):
        for name, item in sorted(value.items()):
            if name in schema.properties:
                yield from check_lists(item, schema.properties[name], _join_path(path, name))
            elif schema.additional is not None:
                yield from check_lists(item, schema.additional, f'{path}[{name}]')


def check_embedded(value: Any, schema: schemas.Schema, path: str) -> Iterator[errors.FieldError]:
    """Yield the problems of all embedded resources inside of the value."""
    if isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from check_embedded(item, schema.items, f'{path}[{index}]')
    elif isinstance(value, dict):
        if schema.embedded:
            yield from check_resource(value, path)
        for name, item in sorted(value.items()):
            if name in schema.properties:
                yield from check_embedded(item, schema.properties[name], _join_path(path, name))
            elif schema.additional is not None:
                yield from check_embedded(item, schema.additional, f'{path}[{name}]')


def has_duplicates(values: Sequence[Any]) -> bool:
    """Return whether a set has duplicates; the order of keys is ignored, types are not."""
    return len(values) > 1 and len({_identify(value) for value in values}) < len(values)


def is_good_map(values: Sequence[Any], keys: Sequence[str]) -> bool:
    """Return whether a list is valid as a map: its items are objects with different keys."""
    if len(keys) == 1:
        try:
            if len({value[keys[0]] for value in values}) == len(values):
                return True
        except (KeyError, TypeError, IndexError):
            pass  # unusual items: to be checked in detail below

    if any(not isinstance(value, dict) for value in values if value is not None):
        return False
    return not has_duplicates(_extract_keys(values, keys))


def _check_list(
    values: list[Any], schema: schemas.Schema, path: str
) -> Iterator[errors.FieldError]:
    if schema.list_type == 'set':
        for index in _find_duplicates(values):
            yield errors.duplicate(f'{path}[{index}]', values[index])
        return

    for index, value in enumerate(values):
        if value is not None and not isinstance(value, dict):
            yield errors.invalid_value(
                f'{path}[{index}]', value, 'must be an object for an array of list-type map'
            )
            return

    identities = _extract_keys(values, schema.list_map_keys)
    for index in _find_duplicates(identities):
        yield errors.duplicate(f'{path}[{index}]', identities[index])


def _extract_keys(values: Sequence[Any], keys: Sequence[str]) -> list[dict[str, Any]]:
    return [{key: value[key] for key in keys if key in value} if value else {} for value in values]


def _find_duplicates(values: Sequence[Any]) -> Iterator[int]:
    """Yield the indices where values occur for the second time; further repetitions are ignored."""
    times: dict[Any, int] = {}
    for index, value in enumerate(values):
        identity = _identify(value)
        times[identity] = times.get(identity, 0) + 1
        if times[identity] == 2:
            yield index


def _identify(value: Any) -> tuple[type, Any]:
    return type(value), json.dumps(value, sort_keys=True) if isinstance(
        value, dict | list
    ) else value


def check_resource(resource: dict[str, Any], path: str) -> Iterator[errors.FieldError]:
    """Yield the problems of one embedded resource; its metadata is decoded by pruning."""
    for name in ('apiVersion', 'kind'):
        yield from _check_type_field(resource, name, _join_path(path, name))
    api_version, kind, meta = (resource.get(name) for name in ('apiVersion', 'kind', 'metadata'))
    if isinstance(api_version, str) and api_version.count('/') > 1:
        why = f'unexpected GroupVersion string: {api_version}'
        yield errors.invalid_value(_join_path(path, 'apiVersion'), api_version, why)

    if isinstance(kind, str) and kind:
        yield from _check_kind(kind, _join_path(path, 'kind'))
    if isinstance(meta, dict):
        yield from metadata.validate_metadata(
            {'name': 'any', **meta},
            namespaced=bool(meta.get('namespace')),
            name_rule=naming.check_path_segment,
            field=_join_path(path, 'metadata'),
        )


def _check_type_field(
    resource: dict[str, Any], name: str, path: str
) -> Iterator[errors.FieldError]:
    if name not in resource:
        yield errors.required(path)
    elif not isinstance(resource[name], str):
        yield errors.invalid_value(path, resource[name], 'must be a string')
    elif not resource[name]:
        yield errors.invalid_value(path, '', 'must not be empty')


def _check_kind(kind: str, path: str) -> Iterator[errors.FieldError]:
    problems = naming.check_old_label(kind.lower())
    if problems:
        why = f'may have mixed case, but should otherwise match: {",".join(problems)}'
        yield errors.invalid_value(path, kind, why)


def _join_path(path: str, name: str) -> str:
    return f'{path}.{name}' if path else name
