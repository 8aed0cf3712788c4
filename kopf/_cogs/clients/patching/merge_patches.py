"""
Merge-patches: what they change in an object, and how two of them are joined or separated.

Pure comparisons and transformations of values; nothing given is changed.
"""

from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import dicts

EMPTIED = ('metadata.annotations', 'metadata.labels', 'metadata.finalizers')
"""The fields that the cluster removes when they are empty."""


def prune(merge: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Keep only the difference from the object: equal values need no request."""
    pruned: dict[str, Any] = {}
    for key, value in merge.items():
        present = body.get(key)
        if dicts.is_mapping(value) and dicts.is_mapping(present):
            nested = prune(value, present)
            if nested:
                pruned[key] = nested
        elif dicts.is_mapping(value):
            cleaned = _without_removals(value)
            if cleaned or (present is not None and not dicts.is_mapping(present)) or not value:
                pruned[key] = cleaned
        elif not dicts.is_same(value, present):
            pruned[key] = dicts.plain(value)

    return pruned


def find_mismatches(merge: Mapping[str, Any], body: Mapping[str, Any], path: str = '') -> list[str]:
    """List the fields that differ from the requested values: dropped or changed by the cluster."""
    found: list[str] = []
    for key, value in merge.items():
        field = f'{path}.{key}' if path else key
        present = body.get(key)
        if dicts.is_mapping(value):
            found.extend(
                find_mismatches(value, present if dicts.is_mapping(present) else {}, field)
            )
        elif not dicts.is_same(value, present) and not (
            field in EMPTIED and not value and not present
        ):
            found.append(field)

    return found


def _without_removals(merge: Mapping[str, Any]) -> dict[str, Any]:
    """
    Keep only the values to set: there is nothing to remove from a mapping that does not exist.
    """
    cleaned: dict[str, Any] = {}
    for key, value in merge.items():
        nested = _without_removals(value) if dicts.is_mapping(value) else dicts.plain(value)
        if nested is not None and (nested or not dicts.is_mapping(value) or not value):
            cleaned[key] = nested

    return cleaned


def has_records(own: Mapping[str, Any]) -> bool:
    """Return whether there is anything besides removals."""
    return any(
        has_records(value) if dicts.is_mapping(value) else value is not None
        for value in own.values()
    )


def join(
    own: Mapping[str, Any], users: Mapping[str, Any], body: Mapping[str, Any]
) -> dict[str, Any]:
    """
    Join two merge-patches into one; in case of a conflict, the users' value wins.

    If the users remove a whole mapping, our values in it stay: all other keys are removed one by
    one.
    """
    joined = dict(own)
    for key, value in users.items():
        ours = joined.get(key)
        present = dicts.resolve_mapping(body, (key,))
        if dicts.is_mapping(ours) and dicts.is_mapping(value):
            joined[key] = join(ours, value, present)
        elif dicts.is_mapping(ours) and value is None:
            joined[key] = {**dict.fromkeys(present), **ours}
        else:
            joined[key] = value

    return joined


def separate(
    own: Mapping[str, Any], users: Mapping[str, Any], body: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the two merge-patches independent, with the same effect as if joined by `join`."""
    ours = {key: value for key, value in own.items() if key not in users}
    theirs = dict(users)
    for key in own.keys() & users.keys():
        mine = own[key]
        other = users[key]
        present = dicts.resolve_mapping(body, (key,))
        if dicts.is_mapping(mine) and dicts.is_mapping(other):
            mine, rest = separate(mine, other, present)
        elif dicts.is_mapping(mine) and other is None:
            rest = dict.fromkeys(name for name in present if name not in mine)
        else:
            continue
        ours |= {key: mine} if mine else {}
        theirs[key] = rest
        if not rest:
            del theirs[key]

    return ours, theirs
