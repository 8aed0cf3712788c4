"""
Patches and diffs: what they make of one object is exactly the other one.

The first line is one object, the second line is the other one. The rest does not matter.
"""

from typing import Any

from kopf._cogs.helpers import jsons
from kopf._cogs.structs import dicts, diffs, patches
from kopf._sandbox.apply import patches as server

DEEPEST = 100


def check(source: bytes) -> None:
    raws = source.split(b'\n')
    try:
        one, two = jsons.loads(raws[0]), jsons.loads(raws[1])
    except (jsons.JSONDecodeError, IndexError):
        return
    if (
        not isinstance(one, dict)
        or not isinstance(two, dict)
        or max(_measure(one), _measure(two)) > DEEPEST
    ):
        return
    before = jsons.dumps([one, two])
    _check_json_patch(one, two)
    _check_merge_patch(one, two)
    _check_diff(one, two)
    _check_copies(one)
    assert jsons.dumps([one, two]) == before, 'the objects are changed in place'


def _measure(value: Any) -> int:
    """Count how deep it is: those nested too deeply are another topic."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [item for inner in level for item in _list_items(inner)]
    return depth


def _list_items(value: Any) -> list[Any]:
    return (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )


def _check_json_patch(one: dict[str, Any], two: dict[str, Any]) -> None:
    operations = patches.build_json_patch(one, two)
    assert dicts.is_same(server.apply_json_patch(one, operations), two), (
        'the JSON patch makes something else'
    )
    assert bool(operations) is not dicts.is_same(one, two), (
        'there is a patch with no difference, or none with one'
    )
    assert patches.build_json_patch(one, one) == []


def _check_merge_patch(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Take the second object for a patch."""
    merged = patches.merge(one, two)
    assert dicts.is_same(patches.merge(merged, two), merged), (
        'the patch changes more if it is repeated'
    )
    assert diffs.diff(_prune(merged), _prune(server.merge(one, two))) == diffs.EMPTY, (
        'the server merges it otherwise'
    )
    patch = patches.Patch(two, body=one)
    operations = patch.as_json_patch()
    assert dicts.is_same(server.apply_json_patch(one, operations), merged)
    for view in (
        patch.spec,
        patch.status,
        patch.metadata,
        patch.metadata.labels,
        patch.metadata.annotations,
    ):
        assert len(dict(view)) == len(view)


def _prune(value: Any) -> Any:
    """
    Drop what is empty, as the two ways of merging differ in it: we create nothing only to delete
    something in it.
    """
    if not isinstance(value, dict):
        return value
    pruned = {key: _prune(item) for key, item in value.items()}
    return {key: item for key, item in pruned.items() if item is not None and item != {}}


def _check_diff(one: dict[str, Any], two: dict[str, Any]) -> None:
    diff = diffs.diff(one, two)
    made: dict[str, Any] = dicts.plain(one)
    for operation, field, old, new in diff:
        assert dicts.is_same(dicts.resolve(one, field), old)
        assert dicts.is_same(dicts.resolve(two, field), new)
        assert operation == ('add' if old is None else 'remove' if new is None else 'change')
        _put(made, field, new)
    assert diffs.diff(made, two) == diffs.EMPTY, (
        'the diff does not make the second object of the first one'
    )
    assert len(diffs.diff(two, one)) == len(diff)
    for key in {*one, *two}:
        assert diffs.reduce(diff, (key,)) == diffs.diff(one.get(key), two.get(key)), (
            'the diff of a field is different'
        )
    copied = diffs.copy(one, two, diff)
    assert copied['diff'] == diff


def _put(made: dict[str, Any], field: dicts.FieldPath, value: Any) -> None:
    for key in field[:-1]:
        made = made[key]
    made[field[-1]] = value


def _check_copies(one: dict[str, Any]) -> None:
    assert dicts.is_same(dicts.copy_json(one), one)
    assert dicts.is_same(dicts.plain(dicts.MappingView(one)), one)
    for key, value in one.items():
        assert not dicts.has(dicts.cut(one, (key,)), (key,))
        assert dicts.resolve(one, (key,), default=None) is value
