"""
Slots: the limit of simultaneous workers, and the order in which the objects get them.

Initially listed objects can be many, and have a low priority. They are served after all others, and
are held back while the operator is crowded, e.g. with requests: otherwise, live changes would have
to wait behind them.
"""

import asyncio
import collections
from collections.abc import Callable, Hashable

from kopf._cogs.aiokits import bells

TURN = 20
BURDEN = 4
"""
How many objects are examined in one iteration of the event loop, and how many of them one started
worker counts for: each start takes a fraction of a millisecond at least.
"""

SHARE = 5
"""One of this many started objects is a low-priority one in any case, to prevent starvation."""

CROWD_DELAY = 0.1
"""Seconds before a low-priority object is started despite a crowd that has not ended."""

CALM = 100
CALM_TIMEOUT = 0.5
"""
How many low-priority objects may wait, and for how many seconds the listing is held back if there
are more: bodies are much bigger than memories, but listings must end before they expire.
"""


Begin = Callable[[], bool]
"""Starts a waiting object. Returns false if there is nothing to start."""


class Slots:
    """
    The limit of simultaneous workers, shared by all queues of an operator.

    The waiting objects are served in turn; the low-priority ones are served after the others, and
    rarely while the operator is crowded.
    """

    def __init__(
        self, get_limit: Callable[[], int | None], *, is_crowded: Callable[[], bool] = lambda: False
    ) -> None:
        self._get_limit = get_limit
        self._is_crowded = is_crowded
        self._taken = 0
        self._waiting: collections.deque[Begin] = collections.deque()
        self._yielding: collections.deque[Begin] = collections.deque()  # of low priority
        self._overtakings = 0  # how many objects have started since the last low-priority one
        self.is_held = False  # whether objects are only examined, and none are started
        self._held: dict[Hashable, Begin] = {}  # the objects put aside
        self._is_open = True
        self._begun = 0  # the cost of the objects examined or started in this iteration of the loop
        self._calmed = bells.Bell()
        self._timer: asyncio.TimerHandle | None = None  # only while they wait for the crowd to end

    @property
    def is_contended(self) -> bool:
        """Whether any object waits for a slot."""
        return bool(self._waiting or self._yielding)

    def hold(self) -> None:
        """Begin to stand by: see `is_held`."""
        self.is_held = True

    def release(self) -> None:
        """End the standing by: the objects with something to do are started."""
        self.is_held = False
        self._yielding.extend(self._held.values())
        self._held.clear()
        self._serve()

    def put_aside(self, key: Hashable, begin: Begin) -> None:
        """Start the object when the standing by ends, unless it is taken back before."""
        self._held[key] = begin

    def take_back(self, key: Hashable) -> None:
        """Do not start the object that was put aside, if it was."""
        self._held.pop(key, None)

    def shut(self) -> None:
        """Start no objects until reopened."""
        self._is_open = False

    def open(self) -> None:
        """Start the waiting objects, a few at a time to keep the event loop responsive."""
        self._is_open = True
        self._serve()

    def take(self, begin: Begin, *, is_yielding: bool = False) -> None:
        """
        Call the function as soon as there is a free slot, possibly now.

        If it returns true, the slot is taken until `free` is called; otherwise, the slot is not
        needed.
        """
        (self._yielding if is_yielding else self._waiting).append(begin)
        self._serve()

    async def wait_until_calm(self) -> None:
        """
        Wait until few low-priority objects are left, unless the slots are shut, but not for long.
        """
        try:
            async with asyncio.timeout(CALM_TIMEOUT):
                while self._is_open and len(self._yielding) > CALM:
                    await self._calmed.wait()
        except TimeoutError:
            pass

    def free(self) -> None:
        """Release a slot."""
        self._taken -= 1
        self._serve()

    def _serve(self) -> None:
        while self._begun < TURN:
            begin = self._pick() if self._has_room() else None
            if begin is None:
                break
            self._begin(begin)

        is_held = self._begun < TURN and self.is_contended and self._has_room()
        if is_held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CROWD_DELAY, self._insist)

    def _begin(self, begin: Begin) -> None:
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._continue)
        self._taken += 1
        if begin():
            self._begun += BURDEN
        else:
            self._begun += 1
            self._taken -= 1

    def _has_room(self) -> bool:
        limit = self._get_limit()
        return self._is_open and (limit is None or self._taken < limit)

    def _pick(self) -> Begin | None:
        """Choose the next object to start; ``None`` if there is none that may start now."""
        may_yield = bool(self._yielding) and (not self._waiting or self._overtakings >= SHARE - 1)
        if may_yield and not self._is_crowded():
            self._overtakings = 0
            return self._pop_yielding()

        if not self._waiting:
            return None
        self._overtakings += 1
        return self._waiting.popleft()

    def _continue(self) -> None:
        self._begun = 0
        self._serve()

    def _insist(self) -> None:
        self._timer = None
        if self._yielding and self._has_room():
            self._begin(self._pop_yielding())
        self._serve()

    def _pop_yielding(self) -> Begin:
        begin = self._yielding.popleft()
        if len(self._yielding) <= CALM:
            self._calmed.ring()
        return begin
