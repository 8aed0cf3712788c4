"""
Permits: the limits of simultaneous calls of single functions, over all objects of an operator.
"""

import collections
import dataclasses
from collections.abc import Callable

Wake = Callable[[], None]
"""Wakes up an object that waits for a permit; it requests the permit again."""


@dataclasses.dataclass(slots=True)
class _Limit:
    taken: int = 0
    waiting: collections.deque[Wake] = dataclasses.field(default_factory=collections.deque)


class Permits:
    """
    The permits of all limited functions, given in the order of requests. Belongs to its event loop.
    """

    def __init__(self) -> None:
        self._limits: dict[object, _Limit] = {}

    def take(self, name: object, limit: int | None, wake: Wake) -> bool:
        """Take a permit; if there is none, return false, and wake up the object when there is."""
        if limit is None:
            return True
        state = self._limits.setdefault(name, _Limit())
        if state.taken >= limit:
            state.waiting.append(wake)
            return False

        state.taken += 1
        return True

    def free(self, name: object) -> None:
        """Return a permit, if the function is limited, and wake up the next object."""
        state = self._limits.get(name)
        if state is None:
            return
        state.taken -= 1
        if state.waiting:
            state.waiting.popleft()()
        elif not state.taken:
            del self._limits[name]
