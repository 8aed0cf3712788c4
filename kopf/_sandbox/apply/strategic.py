"""
Strategic merge patches: merge patches with lists merged by keys.

The keys are defined in the schemas of built-in resources; the API refuses these patches for custom
resources. The patched objects are new; they share unchanged parts with the original, which is not
modified. As in the API, most user errors in these patches are reported as internal errors with no
reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, go_format, schemas

DIRECTIVE: Final = '$patch'
RETAIN_KEYS: Final = '$retainKeys'
DELETE_PREFIX: Final = '$deleteFromPrimitiveList'
ORDER_PREFIX: Final = '$setElementOrder'


def strategic_merge(
    target: Mapping[str, Any], patch: Any, schema: schemas.Schema | None
) -> dict[str, Any]:
    """Apply a strategic merge patch to an object; null is a patch that changes nothing."""
    if patch is None:
        return dict(target)
    if not isinstance(patch, dict):
        raise errors.bad_request(
            f'json: cannot unmarshal {go_format.json_type(patch)} '
            f'into Go value of type map[string]interface {{}}'
        )
    return _merge_maps(target, patch, schema)


def _merge_maps(
    original: Mapping[str, Any], patch: Mapping[str, Any], schema: schemas.Schema | None
) -> dict[str, Any]:
    if DIRECTIVE in patch:
        return _follow_directive(patch)

    result = _retain_keys(original, patch)
    ordered = _merge_ordered_lists(result, patch, schema)
    for key, value in patch.items():
        if key in ordered or key == RETAIN_KEYS or key.startswith(ORDER_PREFIX):
            continue
        if key.startswith(DELETE_PREFIX):
            _delete_scalars(result, key, value)
        elif value is None:
            result.pop(key, None)
        else:
            _merge_field(result, key, value, schema)

    return result


def _follow_directive(patch: Mapping[str, Any]) -> dict[str, Any]:
    match patch[DIRECTIVE]:
        case 'replace':
            replaced: dict[str, Any] = _clean(
                {key: value for key, value in patch.items() if key != DIRECTIVE}
            )
            return replaced
        case 'delete':
            return {}
        case other:
            raise _failure(
                f'unknown patch type: {go_format.plain(other)} in map: {go_format.plain(patch)}'
            )


def _retain_keys(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    if RETAIN_KEYS not in patch:
        return dict(original)

    retained = patch[RETAIN_KEYS]
    mentioned = [
        key
        for key, value in patch.items()
        if value is not None
        and key != RETAIN_KEYS
        and not key.startswith((DELETE_PREFIX, ORDER_PREFIX))
    ]
    if not isinstance(retained, list) or any(key not in retained for key in mentioned):
        raise errors.bad_request('invalid patch format of retainKeys')
    return {key: value for key, value in original.items() if key in retained}


def _merge_field(
    result: dict[str, Any], key: str, value: Any, schema: schemas.Schema | None
) -> None:
    current = result.get(key)
    field = schema.child(key) if schema is not None else None
    strategies = field.patch_strategies if field is not None else frozenset()

    if isinstance(current, dict) and isinstance(value, dict):
        result[key] = (
            _clean(value) if 'replace' in strategies else _merge_maps(current, value, field)
        )
    elif isinstance(current, list) and isinstance(value, list):
        result[key] = (
            _merge_lists(current, value, field) if 'merge' in strategies else _clean(value)
        )
    else:
        _put_clean(result, key, value)


def _put_clean(result: dict[str, Any], key: str, value: Any) -> None:
    """Set a value that has nothing to merge with: its nulls and directives are dropped."""
    if isinstance(value, dict) and DIRECTIVE in value:
        result.pop(key, None)
    else:
        result[key] = _clean(value)


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _clean(item)
            for key, item in value.items()
            if item is not None and not (isinstance(item, dict) and DIRECTIVE in item)
        }
    if isinstance(value, list):
        return [
            _clean(item) for item in value if not (isinstance(item, dict) and DIRECTIVE in item)
        ]
    return value


def _delete_scalars(result: dict[str, Any], key: str, value: Any) -> None:
    name = _strip_prefix(key, DELETE_PREFIX, 'invalid patch format of primitive list')
    current = result.get(name)
    if value is None:
        result.pop(name, None)
    elif isinstance(current, list) and isinstance(value, list):
        result[name] = [item for item in current if item not in value]


def _merge_lists(original: list[Any], patch: list[Any], schema: schemas.Schema | None) -> list[Any]:
    """Merge the lists; the items of the patch go in its order, other items keep their positions."""
    if not original and not patch:
        return original

    merge_key = schema.patch_merge_key if schema is not None else ''
    if not _has_maps(original, patch):
        merged = list(dict.fromkeys([*original, *patch]))
        return _restore_order(merged, patch, original, '')

    if not merge_key:
        raise _failure('cannot merge lists without merge key for ')

    kept, added = _follow_item_directives(original, patch, merge_key)
    merged = _merge_items(kept, added, merge_key, schema.items if schema is not None else None)
    return _restore_order(merged, added, kept, merge_key)


def _has_maps(*lists: Sequence[Any]) -> bool:
    """Return whether the items are maps rather than scalars; they must be all of the same type."""
    types = {type(item) for items in lists for item in items}
    if len(types) > 1:
        raise _failure(f'list element types are not identical: {go_format.plain(list(lists))}')
    if list in types:
        raise errors.ApiError(
            422,
            'Invalid',
            details={},
            message='the server rejected our request due to an error in our request',
        )
    return dict in types


def _follow_item_directives(
    original: list[Any], patch: list[Any], merge_key: str
) -> tuple[list[Any], list[Any]]:
    kept = original
    added = []
    replaced = False

    for item in patch:
        match item.get(DIRECTIVE):
            case None if DIRECTIVE not in item:
                added.append(item)
            case 'delete':
                kept = [
                    other for other in kept if other.get(merge_key) != _read_key(item, merge_key)
                ]
            case 'replace':
                replaced = True
            case 'merge':
                raise _failure('merging lists cannot yet be specified in the patch')
            case other:
                raise _failure(
                    f'unknown patch type: {go_format.plain(other)} in map: {go_format.plain(item)}'
                )

    return (added, []) if replaced else (kept, added)


def _merge_items(
    original: list[Any], patch: list[Any], merge_key: str, schema: schemas.Schema | None
) -> list[Any]:
    merged = list(original)
    for item in patch:
        value = _read_key(item, merge_key)
        index = next((i for i, other in enumerate(merged) if other.get(merge_key) == value), None)
        if index is None:
            merged.append(_clean(item))
        else:
            merged[index] = _merge_maps(merged[index], item, schema)

    return merged


def _read_key(item: Any, merge_key: str) -> Any:
    if not isinstance(item, dict) or merge_key not in item:
        raise _failure(
            f'map: {go_format.plain(item)} does not contain declared merge key: {merge_key}'
        )
    return item[merge_key]


def _merge_ordered_lists(
    result: dict[str, Any], patch: Mapping[str, Any], schema: schemas.Schema | None
) -> set[str]:
    """Merge the lists whose order is in the patch; return their names. Modifies the result."""
    ordered = set()
    for key, order in patch.items():
        if not key.startswith(ORDER_PREFIX):
            continue
        name = _read_order(key, order)
        current = result.get(name)
        value = patch.get(name)
        for items in (current, value):
            if not isinstance(items, list | None):
                raise _failure(
                    f'expected a []interface {{}}, but received a {go_format.go_type(items)}'
                )
        field = schema.child(name) if schema is not None else None
        merge_key = field.patch_merge_key if field is not None else ''
        _check_order(value or [], order, merge_key)
        merged = _merge_in_order(current, value, field)
        if merged is not None:
            result[name] = _restore_order(merged, order, current or [], merge_key)
            ordered.add(name)

    return ordered


def _read_order(key: str, order: Any) -> str:
    if not isinstance(order, list):
        raise _failure(f'expected a []interface {{}}, but received a {go_format.go_type(order)}')
    return _strip_prefix(key, ORDER_PREFIX, 'invalid patch format of setElementOrder list')


def _merge_in_order(
    current: list[Any] | None, value: list[Any] | None, field: schemas.Schema | None
) -> list[Any] | None:
    if value is None:
        return current
    if current is not None and field is not None and 'merge' in field.patch_strategies:
        return _merge_lists(current, value, field)
    added: list[Any] = _clean(value)
    return added


def _check_order(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """Raise an error if the items of a patch are not in the order that it requires."""
    if not patch or not order:
        return

    remaining = [
        _identify(item, merge_key)
        for item in patch
        if not (isinstance(item, dict) and DIRECTIVE in item)
    ]
    for item in order:
        if remaining and _identify(item, merge_key) == remaining[0]:
            remaining.pop(0)

    if remaining:
        raise _failure(
            f'The order in patch list:\n{go_format.plain(patch)}\n '
            f"doesn't match {ORDER_PREFIX} list:\n{go_format.plain(order)}\n"
        )


def _restore_order(
    merged: list[Any], order: list[Any], original: list[Any], merge_key: str
) -> list[Any]:
    """
    Order the merged items: the listed ones in the given order, the unlisted ones of the server
    between them.

    An unlisted item goes before a listed one if it was before it in the original list.
    """
    wanted = [_identify(item, merge_key) for item in order]
    identified = [(_identify(item, merge_key), item) for item in merged]
    ours = sorted(
        (pair for pair in identified if pair[0] in wanted), key=lambda pair: wanted.index(pair[0])
    )
    others = [pair for pair in identified if pair[0] not in wanted]
    before = [_identify(item, merge_key) for item in original]
    others.sort(key=lambda pair: before.index(pair[0]) if pair[0] in before else len(before))
    result = []

    while ours and others:
        one = ours[0][0]
        two = others[0][0]
        first = (
            others
            if one in before and two in before and before.index(two) < before.index(one)
            else ours
        )
        result.append(first.pop(0)[1])

    return result + [item for _, item in ours + others]


def _identify(item: Any, merge_key: str) -> Any:
    return _read_key(item, merge_key) if merge_key else item


def _strip_prefix(key: str, prefix: str, complaint: str) -> str:
    head, _, name = key.partition('/')
    if head != prefix or not name:
        raise errors.bad_request(complaint)
    return name


def _failure(message: str) -> errors.ApiError:
    return errors.ApiError(500, '', message)
