"""
Duplicates: the fields that are repeated in JSON, of which decoders keep only the last ones, and the API tells.
"""

import json
from collections.abc import Iterator
from typing import Any


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON with everything that was written in it."""


def find_duplicates(raw: bytes) -> list[str]:
    """
    Name the repeated fields (``spec.containers[0].name``), each once, in the order of the text.

    Nothing is found in what is not JSON: it is for others to complain.
    """
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len(dict(pairs)) != len(pairs)

    try:
        json.loads(raw, object_pairs_hook=look)
        return (
            list(dict.fromkeys(_walk(json.loads(raw, object_pairs_hook=_Pairs), '')))
            if found
            else []
        )
    except (ValueError, RecursionError):
        return []


def _walk(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen = set()
        for key, item in value:
            field = f'{path}.{key}' if path else key
            if key in seen:
                yield field
            seen.add(key)
            yield from _walk(item, field)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f'{path}[{index}]')
