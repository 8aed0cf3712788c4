"""
Equality: whether two values of JSON are the same for the API.

Python takes ``1``, ``1.0`` and ``true`` for equal. In JSON they are different values, and changing one to another
is a change like any other.
"""

from typing import Any


def is_same(one: Any, another: Any) -> bool:
    """Compare two values, however deep. Different values are told apart quickly."""
    return one is another or (bool(one == another) and _is_alike(one, another))


def _is_alike(one: Any, another: Any) -> bool:
    """Compare the types inside of two values that are equal."""
    if isinstance(one, dict):
        return all(_is_alike(value, another[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_is_alike, one, another))
    return type(one) is type(another)
