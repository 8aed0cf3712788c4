"""
Duplicates: the repeated fields in JSON and YAML. Decoders keep only the last value; the API reports
the repetitions.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from kopf._sandbox.codec import manifests


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all of its fields as they were written."""


@dataclasses.dataclass(frozen=True)
class Findings:
    """The repeated fields of a body in JSON, and where all of its fields are in the text."""

    # The paths (``spec.containers[0].name``), each once, in the order of the text.
    paths: tuple[str, ...] = ()
    # The numbers of the fields; the second ones of the repeated fields. Empty with no repetitions.
    positions: Mapping[str, int] = dataclasses.field(default_factory=dict)


def find_duplicates(raw: bytes) -> Findings:
    """
    Find the repeated fields of JSON.

    For malformed JSON, return nothing: it is reported elsewhere.
    """
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len(dict(pairs)) != len(pairs)

    try:
        json.loads(raw, object_pairs_hook=look)
        if not found:
            return Findings()
        walked = list(_walk(json.loads(raw, object_pairs_hook=_Pairs), ''))
    except (ValueError, RecursionError):
        return Findings()

    positions: dict[str, int] = {}
    repeated: dict[str, int] = {}
    for number, (path, is_repeated) in enumerate(walked):
        if is_repeated:
            repeated.setdefault(path, number)
        positions.setdefault(path, number)

    return Findings(tuple(repeated), {**positions, **repeated})


def find_repeated_lines(raw: bytes) -> list[str]:
    """
    Return the messages about the repeated keys of YAML, with the numbers of their lines.

    For malformed YAML, return nothing: it is reported elsewhere.
    """
    if raw.lstrip()[:1] == b'{' and _is_unique_json(raw):
        return []
    root = manifests.compose_yaml(raw)
    return [] if root is None else list(_walk_nodes(root, set()))


def _is_unique_json(raw: bytes) -> bool:
    """Return whether it is JSON without repeated fields: much cheaper than to compose YAML."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return not find_duplicates(raw).paths


def _walk(value: Any, path: str) -> Iterator[tuple[str, bool]]:
    if isinstance(value, _Pairs):
        seen = set()
        for key, item in value:
            field = f'{path}.{key}' if path else key
            yield field, key in seen
            seen.add(key)
            yield from _walk(item, field)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f'{path}[{index}]')


def _walk_nodes(node: Any, walked: set[int]) -> Iterator[str]:
    if isinstance(node.value, str) or id(node) in walked:
        return

    walked.add(id(node))
    seen = set()
    for item in node.value:
        if not isinstance(item, tuple):
            yield from _walk_nodes(item, walked)
            continue
        key, value = item
        if isinstance(key.value, str) and key.value in seen:
            line = key.start_mark.line + 1
            yield f'line {line}: key {json.dumps(key.value, ensure_ascii=False)} already set in map'
        seen.add(key.value if isinstance(key.value, str) else None)
        yield from _walk_nodes(value, walked)
