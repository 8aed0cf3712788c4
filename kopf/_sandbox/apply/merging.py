"""
Merging: the result of applying a configuration to an object, regardless of field ownership.

Configurations are checked first: unlike updates, they are refused if they do not fit the schema.
The results are new; they share unchanged parts with the arguments.
"""

from collections.abc import Mapping
from typing import Any

from kopf._sandbox.apply import fieldsets, ownership
from kopf._sandbox.meta import go_format, schemas


def check(
    value: Any, schema: schemas.Schema | None, path: str = '', *, lenient: bool = False
) -> list[str]:
    """Return all mismatches with the schema, with paths. If lenient, unknown fields are allowed."""
    if schema is None or value is None:
        return []
    if schema.type == 'object' or (not schema.type and isinstance(value, dict)):
        return _check_map(value, schema, path, lenient or schema.preserve_unknown)
    if schema.type == 'array' or (not schema.type and isinstance(value, list)):
        return _check_list(value, schema, path, lenient)
    complaint = _check_scalar(value, schema)
    return [f'{path}: {complaint}'] if complaint else []


def _check_scalar(value: Any, schema: schemas.Schema) -> str:
    untyped = schema.type == 'string' and schema.raw.get('format', 'byte') != 'byte'
    match '' if untyped else schema.type:
        case 'string' if not isinstance(value, str):
            return (
                f'expected string, got &value.valueUnstructured{{Value:{go_format.literal(value)}}}'
            )
        case 'boolean' if not isinstance(value, bool):
            return f'expected boolean, got &{{{go_format.plain(value)}}}'
        case 'integer' | 'number' if isinstance(value, bool) or not isinstance(value, int | float):
            return f'expected numeric (int or float), got {go_format.go_type(value)}'
        case '' if not isinstance(value, str | int | float):
            return f'expected any scalar, got &{{{go_format.plain(value)}}}'

    return ''


def _check_map(value: Any, schema: schemas.Schema, path: str, lenient: bool) -> list[str]:
    if not isinstance(value, dict):
        return [f'{path}: expected map, got &{{{go_format.plain(value)}}}']

    complaints = []
    for name in sorted(value):
        child = ownership.find_child(schema, name)
        if child is None and schema.properties and not lenient:
            complaints.append(f'{path}.{name}: field not declared in schema')
        else:
            complaints += check(value[name], child, f'{path}.{name}', lenient=lenient)

    return complaints


def _check_list(value: Any, schema: schemas.Schema, path: str, lenient: bool) -> list[str]:
    if not isinstance(value, list):
        return [f'{path}: expected list, got &{{{go_format.plain(value)}}}']

    complaints: list[str] = []
    seen = set()
    for index, item in enumerate(value):
        step = f'i:{index}'
        if ownership.is_associative(schema):
            try:
                step = fieldsets.build_item_step(item, schema)
            except ValueError as e:
                return [*complaints, f'{path}: element {index}: {e}']
            if step in seen:
                complaints.append(
                    f'{path}: duplicate entries for key {fieldsets.render_step(step)}'
                )
            seen.add(step)
        complaints += check(item, schema.items, path + fieldsets.render_step(step), lenient=lenient)

    return complaints


def merge(live: Any, config: Any, schema: schemas.Schema | None) -> Any:
    """
    Merge a configuration into a value; fields that it does not mention stay.

    Raises `ValueError` if some items of lists have no identity.
    """
    if not live:
        return config
    if isinstance(live, dict) and isinstance(config, dict | None) and ownership.is_granular(schema):
        return {
            **live,
            **{
                name: merge(live.get(name), value, ownership.find_child(schema, name))
                for name, value in (config or {}).items()
            },
        }
    if (
        isinstance(live, list)
        and isinstance(config, list | None)
        and schema
        and ownership.is_associative(schema)
    ):
        return _merge_lists(live, config or [], schema)
    return config


def _merge_lists(live: list[Any], config: list[Any], schema: schemas.Schema) -> list[Any]:
    """
    Merge the items; the items of the configuration go in its order.

    Other items keep their positions relative to the shared items.
    """
    known = ownership.group_items(live, schema)
    added = {fieldsets.build_item_step(item, schema): item for item in config}
    pending = list(added)
    shared = [step for step in added if step in known]
    result: list[Any] = []

    for item in live:
        step = fieldsets.build_item_step(item, schema)
        if step not in added:
            result.append(item)
        elif shared and step == shared[0]:
            shared.pop(0)
            place = pending.index(step) + 1
            result += [_merge_item(each, added, known, schema) for each in pending[:place]]
            del pending[:place]

    return result + [_merge_item(each, added, known, schema) for each in pending]


def _merge_item(
    step: str, added: Mapping[str, Any], known: Mapping[str, list[Any]], schema: schemas.Schema
) -> Any:
    same = known.get(step, ())
    return merge(same[0], added[step], schema.items) if len(same) == 1 else added[step]


def remove(value: Any, fields: fieldsets.FieldSet, schema: schemas.Schema | None) -> Any:
    """Remove the fields and items of a set; containers that become empty turn into nulls."""
    if isinstance(value, dict) and ownership.is_granular(schema):
        return _remove_fields(value, fields, schema) or None
    if isinstance(value, list) and schema is not None and ownership.is_associative(schema):
        return _remove_items(value, fields, schema) or None
    return value


def _remove_fields(
    value: Mapping[str, Any], fields: fieldsets.FieldSet, schema: schemas.Schema | None
) -> dict[str, Any]:
    result = {}
    for name, inner in value.items():
        node = fields.get(f'f:{name}')
        if node is None:
            result[name] = inner
        elif not fieldsets.is_member(node):
            result[name] = remove(inner, node, ownership.find_child(schema, name))

    return result


def _remove_items(
    value: list[Any], fields: fieldsets.FieldSet, schema: schemas.Schema
) -> list[Any]:
    result = []
    for item in value:
        node = fields.get(fieldsets.build_item_step(item, schema))
        if node is None:
            result.append(item)
        elif not fieldsets.is_member(node):
            result.append(remove(item, node, schema.items))

    return result
