"""
Field sets: the owned fields of an object, in the form of ``managedFields[].fieldsV1``.

A set is a tree of dicts. The keys are the steps of a path: ``f:`` and a name for a field, ``k:``
and the identifying fields for an item of a list that is a map, ``v:`` and the value for an item of
a list that is a set, ``i:`` and a number for an index. A step leads to a member of the set if its
node is an empty dict, or a dict with the key ``.``; other nodes only lead to members.

Sets are values: no function here modifies its arguments, and the results share parts with them. The
keys are in the order of the API. The empty dict at the root is the empty set.
"""

import functools
import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf._sandbox.meta import go_format, schemas

FieldSet: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

SELF: Final = '.'
LEAF: Final[FieldSet] = {}
"""The node of a field with nothing inside. Shared by all sets; must not be modified."""

_ALONE: Final[FieldSet] = {SELF: LEAF}  # a leaf as an operand: with its member explicit
_KINDS: Final = {SELF: 0, 'f:': 1, 'k:': 2, 'v:': 3, 'i:': 4}


def union(one: FieldSet, two: FieldSet) -> FieldSet:
    """Return the fields that are in either of the sets."""
    if not one or not two:
        return one or two

    result = dict(one)
    extended = False
    for step, node in two.items():
        known = one.get(step)
        if known is None:
            result[step] = node
            extended = True
        elif known != node:
            result[step] = union(known or _ALONE, node or _ALONE)

    return sort_steps(result) if extended else result


def difference(one: FieldSet, two: FieldSet) -> FieldSet:
    """
    Return the fields of the first set that are not in the second one. Parents and children are
    separate members.
    """
    if not two:
        return one

    result = {}
    for step, node in one.items():
        other = two.get(step)
        if other is None:
            result[step] = node
        elif step != SELF and (rest := difference(node or _ALONE, other or _ALONE)):
            result[step] = _collapse(rest)

    return result


def intersection(one: FieldSet, two: FieldSet) -> FieldSet:
    """Return the fields that are in both sets."""
    result = {}
    for step, node in one.items():
        other = two.get(step)
        if other is None:
            continue
        if step == SELF:
            result[step] = node
        elif common := intersection(node or _ALONE, other or _ALONE):
            result[step] = _collapse(common)

    return result


def exclude(fields: FieldSet, path: Path) -> FieldSet:
    """Return the set without a field and everything inside of it."""
    step, *rest = path
    if step not in fields:
        return fields

    result = dict(fields)
    node = exclude(fields[step], tuple(rest)) if rest else None
    if node or (node is not None and not fields[step]):
        result[step] = _collapse(node)
    else:
        del result[step]

    return result


def _collapse(node: FieldSet) -> FieldSet:
    return LEAF if not node or (len(node) == 1 and SELF in node) else node


def is_member(node: FieldSet) -> bool:
    """Return whether the step that leads to this node leads to a member of the set."""
    return not node or SELF in node


def has_path(fields: FieldSet, path: Path) -> bool:
    """Return whether a field is in the set."""
    node: FieldSet | None = fields
    for step in path:
        node = node.get(step) if node is not None else None
    return node is not None and is_member(node)


def iter_paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Yield the fields of the set as the API does: members of a level first, then children."""
    steps = [step for step in fields if step != SELF]
    yield from ((*prefix, step) for step in steps if is_member(fields[step]))
    for step in steps:
        yield from iter_paths(fields[step], (*prefix, step))


def render_path(path: Path) -> str:
    """Format a field as in the messages: ``.spec.containers[name="app"].image``."""
    return ''.join(map(render_step, path))


def render_step(step: str) -> str:
    kind = step[:2]
    content = step[2:]
    match kind:
        case 'f:':
            return f'.{content}'
        case 'k:':
            fields = json.loads(content)
            listed = (f'{name}={go_format.quoted(fields[name])}' for name in sorted(fields))
            return f'[{",".join(listed)}]'
        case 'v:':
            return f'[={go_format.quoted(json.loads(content))}]'
        case _:
            return f'[{content}]'


@functools.lru_cache(maxsize=65536)
def build_field_step(name: str) -> str:
    """Return the step of a field or a map's key. The strings are cached to save memory."""
    return f'f:{name}'


def build_item_step(item: Any, schema: schemas.Schema) -> str:
    """Return the step of a list's item; raise `ValueError` if the item has no identity."""
    if schema.list_type == 'map':
        keys = _read_keys(item, schema)
        encode = go_format.encode
        listed = (f'{encode(name)}:{encode(keys[name])}' for name in sorted(keys))
        return f'k:{{{",".join(listed)}}}'

    if isinstance(item, dict):
        raise ValueError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ValueError('not supported: associative list with lists as elements')
    if item is None:
        raise ValueError("associative list without keys has an element that's an explicit null")
    return f'v:{go_format.encode(item)}'


def _read_keys(item: Any, schema: schemas.Schema) -> dict[str, Any]:
    if item is None:
        raise ValueError('associative list with keys may not have a null element')
    if not isinstance(item, dict):
        raise ValueError('associative list with keys may not have non-map elements')

    fields = schema.items.properties if schema.items is not None else {}
    keys = {}
    for name in schema.list_map_keys:
        if name in item:
            keys[name] = item[name]
        elif name in fields and fields[name].default not in (schemas.UNSET, None):
            keys[name] = fields[name].default

    if not keys:
        listed = ' '.join(map(go_format.quoted, schema.list_map_keys))
        raise ValueError(
            f'associative list with keys has an element that omits all key fields [{listed}] '
            f"(and doesn't have default values for any key fields)"
        )

    return keys


def sort_steps(node: FieldSet) -> FieldSet:
    """Order one level of the tree as the API does. Returns the same node if it is ordered."""
    if len(node) < 2:
        return node
    return {step: node[step] for step in sorted(node, key=_build_sort_key)}


@functools.lru_cache(maxsize=16384)
def _build_sort_key(step: str) -> tuple[Any, ...]:
    kind = step[:2]
    content = step[2:]
    match kind:
        case 'k:':
            fields = dict(json.loads(content))
            return (
                _KINDS[kind],
                *((name, *_build_value_key(fields[name])) for name in sorted(fields)),
            )
        case 'v:':
            return _KINDS[kind], *_build_value_key(json.loads(content))
        case 'i:':
            return _KINDS[kind], int(content)
        case _:
            return _KINDS[kind], content


def _build_value_key(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, go_format.encode(value))


def parse(raw: Any) -> FieldSet:
    """
    Parse a set sent by a user: steps of unknown kinds are dropped, the rest is ordered.

    Raises `ValueError` if the value is not a set.
    """
    if not isinstance(raw, dict):
        raise ValueError('not a map of fields')

    result: FieldSet = {}
    for step, node in raw.items():
        if step != SELF and (len(step) < 2 or step[1] != ':'):
            raise ValueError(f'not a step of a path: {step}')
        if step[:2] not in _KINDS:
            continue
        if not _is_valid(step):
            raise ValueError(f'not a step of a path: {step}')
        result[step] = parse(node) if step != SELF else LEAF

    return _collapse(sort_steps(result))


def _is_valid(step: str) -> bool:
    try:
        return bool(_build_sort_key(step))
    except (TypeError, ValueError):
        return False
