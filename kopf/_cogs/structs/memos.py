"""
Memos: what users remember about their objects and operators while the process lives.
"""

from typing import Any, Self

AnyMemo = Any
"""Users can bring containers of their own, of any type."""


class Memo(dict[Any, Any]):
    """
    A dict whose keys are accessible as attributes too.

    The attributes of dicts stay what they are: a value under such a key is accessible only by that key.
    """

    def __copy__(self) -> Self:
        """Copy the memo: the operator's one is copied for every object, and the general way is slow."""
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
