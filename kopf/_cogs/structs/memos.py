"""
Memos: the users' data about their objects and operators, kept while the process lives.
"""

from typing import Any, Self

AnyMemo = Any
"""A container of any type: users can bring their own."""


class Memo(dict[Any, Any]):
    """
    A dict whose keys are also accessible as attributes.

    The attributes of dicts are not overridden: a value under such a key is accessible only by the
    key.
    """

    def __copy__(self) -> Self:
        """Copy the memo, as is done for every object; the generic way is slow."""
        copied = type(self).__new__(type(self))
        copied.update(self)
        vars(copied).update(vars(self))
        return copied

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f'{type(self).__name__} has no {name!r}.', name=name, obj=self
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(
                f'{type(self).__name__} has no {name!r}.', name=name, obj=self
            ) from None
