"""
Duplicates: the repeated fields in JSON. Decoders keep only the last value; the API reports the
repetitions.
"""

import json
from collections.abc import Iterator
from typing import Any


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all of its fields as they were written."""


def find_duplicates(raw: bytes) -> list[str]:
    """
    Return the paths of repeated fields (``spec.containers[0].name``), each once, in the order of
    the text.

    For malformed JSON, return nothing: it is reported elsewhere.
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
