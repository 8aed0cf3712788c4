"""
Permits: the limits of simultaneous calls of single functions, over all objects of an operator.
"""

import dataclasses
from collections.abc import Callable, Hashable

Wake = Callable[[], bool]
"""
Wakes up an object that waits for a permit, to request it again; false if it waits no longer.
"""


@dataclasses.dataclass(slots=True)
class _Limit:
    taken: int = 0
    waiting: dict[Hashable, Wake] = dataclasses.field(default_factory=dict)


class Permits:
    """
    The permits of all limited functions, given in the order of requests. Belongs to its event loop.

    Free permits are not reserved: the objects that are woken up can be deleted before they request
    them again. So, free permits must also be offered after other objects are handled.
    """

    def __init__(self) -> None:
        self._limits: dict[Hashable, _Limit] = {}

    def take(self, name: Hashable, limit: int | None, key: Hashable, wake: Wake) -> bool:
        """Take a permit; if there is none, return false, and wake up the object when there is."""
        if limit is None:
            return True
        state = self._limits.setdefault(name, _Limit())
        if state.taken >= limit:
            state.waiting.setdefault(key, wake)
            return False

        state.waiting.pop(key, None)
        state.taken += 1
        return True

    def free(self, name: Hashable) -> None:
        """Return a permit, if the function is limited, and wake up the next object."""
        state = self._limits.get(name)
        if state is not None:
            state.taken -= 1
            self._pass_on(name, state)

    def offer(self, name: Hashable, limit: int | None) -> None:
        """Wake up the next object if there is a free permit."""
        state = self._limits.get(name)
        if state is not None and limit is not None and state.taken < limit:
            self._pass_on(name, state)

    def _pass_on(self, name: Hashable, state: _Limit) -> None:
        while state.waiting:
            wake = state.waiting.pop(next(iter(state.waiting)))
            if wake():
                return
        if not state.taken:
            del self._limits[name]
