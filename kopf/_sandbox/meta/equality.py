"""
Equality: whether two JSON values are the same for the API.

In Python, ``1``, ``1.0`` and ``true`` are equal. In JSON, they are different values, and replacing
one with another is a change.
"""

from typing import Any


def is_same(one: Any, another: Any) -> bool:
    """Return whether two values are the same, including their types. Fast for different values."""
    return one is another or (bool(one == another) and _is_alike(one, another))


def _is_alike(one: Any, another: Any) -> bool:
    """Compare the types inside of two equal values."""
    if isinstance(one, dict):
        return all(_is_alike(value, another[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_is_alike, one, another))
    return type(one) is type(another)
