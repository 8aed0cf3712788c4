"""
Compatibility of definitions: which changes of a CRD break its existing objects and clients.

A change is incompatible if something that was accepted is refused, or is lost, or means something
else. Pure functions over two definitions, or over two schemas.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kopf._kits.schemas import structural

Raw = Mapping[str, Any]

_WIDER_TYPES: Final = frozenset((('integer', 'number'), ('integer', 'int'), ('string', 'int')))
"""The types that accept everything of another type; ``int`` is for integers or strings."""

_LOWER_BOUNDS: Final = ('minimum', 'minLength', 'minItems', 'minProperties')
_UPPER_BOUNDS: Final = ('maximum', 'maxLength', 'maxItems', 'maxProperties')
_RESTRICTIONS: Final = ('pattern', 'format', 'multipleOf', 'oneOf', 'x-kubernetes-list-map-keys')


@dataclasses.dataclass(frozen=True)
class Breakage:
    """One incompatible change."""

    version: str
    path: str
    problem: str


def compare_crds(old: Raw, new: Raw) -> list[Breakage]:
    """List the incompatible changes between two definitions of one resource."""
    before = old.get('spec') or {}
    after = new.get('spec') or {}
    found = [
        Breakage('', path, f'{_dig(before, path)} is now {_dig(after, path)}')
        for path in ('group', 'scope', 'names.kind', 'names.plural')
        if _dig(before, path) != _dig(after, path)
    ]
    versions = {version['name']: version for version in after.get('versions') or ()}
    for version in before.get('versions') or ():
        found += _compare_versions(version, versions.get(version['name']))
    return found


def _compare_versions(old: Raw, new: Raw | None) -> Iterator[Breakage]:
    name = old['name']
    if new is None:
        yield Breakage(name, '', 'the version is removed')
        return

    if old.get('served') and not new.get('served'):
        yield Breakage(name, '', 'the version is not served')
    for subresource in {*(old.get('subresources') or {})} - {*(new.get('subresources') or {})}:
        yield Breakage(name, '', f'the subresource {subresource!r} is removed')
    for path in _list_selectable(old) - _list_selectable(new):
        yield Breakage(name, path, 'the field is not selectable')
    for path, problem in compare_schemas(_get_schema(old), _get_schema(new)):
        yield Breakage(name, path, problem)


def _list_selectable(version: Raw) -> set[str]:
    return {item['jsonPath'] for item in version.get('selectableFields') or ()}


def _get_schema(version: Raw) -> Raw:
    schema: Raw = (version.get('schema') or {}).get('openAPIV3Schema') or {}
    return schema


def compare_schemas(old: Raw, new: Raw, path: str = '') -> Iterator[tuple[str, str]]:
    """Iterate over the incompatible changes of a schema, as paths and explanations."""
    types = _name_type(old), _name_type(new)
    if types[0] != types[1] and types[1] != 'any' and types not in _WIDER_TYPES:
        yield path, f'the type {types[0]} is now {types[1]}'
        return  # nothing of the rest can be compared

    for check in _CHECKS:
        for problem in check(old, new):
            yield path, problem

    yield from _compare_fields(old, new, path)
    for key, mark in (('items', '[]'), ('additionalProperties', '{}')):
        if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield from compare_schemas(old[key], new[key], f'{path}{mark}')


def _compare_fields(old: Raw, new: Raw, path: str) -> Iterator[tuple[str, str]]:
    before = old.get('properties') or {}
    after = new.get('properties') or {}
    is_open = bool(new.get(structural.PRESERVE) or new.get('additionalProperties'))

    for name in before:
        if name in after:
            yield from compare_schemas(before[name], after[name], f'{path}.{name}')
        elif not is_open:
            yield f'{path}.{name}', 'the field is removed'

    required = [
        name for name in new.get('required') or () if name not in (old.get('required') or ())
    ]
    for name in required:
        if 'default' not in (after.get(name) or {}):
            yield f'{path}.{name}', 'it is required, and has no default'


def _check_enum(old: Raw, new: Raw) -> Iterator[str]:
    if 'enum' not in new:
        return
    if 'enum' not in old:
        yield f'only {_list(new["enum"])} are accepted'
        return

    removed = [value for value in old['enum'] if value not in new['enum']]
    if removed:
        yield f'{_list(removed)} are not accepted'


def _check_lower_bounds(old: Raw, new: Raw) -> Iterator[str]:
    yield from _check_bounds(old, new, _LOWER_BOUNDS, lambda before, after: after > before)


def _check_upper_bounds(old: Raw, new: Raw) -> Iterator[str]:
    yield from _check_bounds(old, new, _UPPER_BOUNDS, lambda before, after: after < before)


def _check_bounds(
    old: Raw, new: Raw, names: Iterable[str], is_narrower: Callable[[float, float], bool]
) -> Iterator[str]:
    for name in names:
        exclusive = f'exclusive{name.capitalize()}'
        if name not in new:
            continue
        if name not in old:
            yield f'{name} is {new[name]}'
        elif is_narrower(old[name], new[name]):
            yield f'{name} {old[name]} is now {new[name]}'
        elif old[name] == new[name] and new.get(exclusive) and not old.get(exclusive):
            yield f'{name} {new[name]} is now exclusive'


def _check_restrictions(old: Raw, new: Raw) -> Iterator[str]:
    for name in _RESTRICTIONS:
        if new.get(name) and new[name] != old.get(name):
            yield f'{name} is {"changed" if old.get(name) else "added"}'


def _check_null(old: Raw, new: Raw) -> Iterator[str]:
    if old.get('nullable') and not new.get('nullable') and 'enum' not in new:
        yield 'null is not accepted'


def _check_openness(old: Raw, new: Raw) -> Iterator[str]:
    was_map, is_map = (bool(schema.get('additionalProperties')) for schema in (old, new))
    keeps = bool(new.get(structural.PRESERVE))
    if (old.get(structural.PRESERVE) or was_map) and not (keeps or is_map):
        yield 'unknown fields are removed'
    elif old.get(structural.PRESERVE) and is_map and not keeps:
        yield 'unknown fields have a type'


def _check_list_type(old: Raw, new: Raw) -> Iterator[str]:
    before, after = (schema.get(structural.LIST_TYPE, 'atomic') for schema in (old, new))
    if after != before and after != 'atomic':
        yield f'the list is a {after}, and must not have duplicates'


def _check_rules(old: Raw, new: Raw) -> Iterator[str]:
    known = [rule['rule'] for rule in old.get('x-kubernetes-validations') or ()]
    for rule in new.get('x-kubernetes-validations') or ():
        if rule['rule'] not in known:
            yield f'the rule is added: {rule["rule"]}'


_CHECKS: Final[tuple[Callable[[Raw, Raw], Iterator[str]], ...]] = (
    _check_enum,
    _check_lower_bounds,
    _check_upper_bounds,
    _check_restrictions,
    _check_null,
    _check_openness,
    _check_list_type,
    _check_rules,
)


def _name_type(schema: Raw) -> str:
    if schema.get(structural.INT_OR_STRING):
        return 'int'
    return str(schema.get('type') or 'any')


def _dig(source: Raw, path: str) -> Any:
    found: Any = source
    for part in path.split('.'):
        found = (found or {}).get(part)
    return found


def _list(values: Iterable[Any]) -> str:
    return ', '.join(map(repr, values))
