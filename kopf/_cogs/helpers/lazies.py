"""
Lazies: properties that are computed on the first access.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar('T')


class lazy(Generic[T]):
    """`functools.cached_property` for one thread, without the lock of Python before 3.12."""

    def __init__(self, fn: Callable[[Any], T]) -> None:
        self._fn = fn
        self._name = fn.__name__
        self.__doc__ = fn.__doc__

    @overload
    def __get__(self, obj: None, owner: type) -> 'lazy[T]': ...

    @overload
    def __get__(self, obj: object, owner: type) -> T: ...

    def __get__(self, obj: object | None, owner: type) -> 'T | lazy[T]':
        if obj is None:
            return self
        value = obj.__dict__[self._name] = self._fn(obj)
        return value
