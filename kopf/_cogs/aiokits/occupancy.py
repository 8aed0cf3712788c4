"""
Occupancy: which connections of a server are open, and which of them makes room for a new one.

These are decisions only: nothing is accepted or closed here.
"""

import enum
import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

MemberT = TypeVar('MemberT')

FILES_SHARE = 2
"""Which part of the files that the process may open is for the connections of one server: one of so many."""


class Stage(enum.Enum):
    """How far a connection has gone with its current request."""

    OPENING = enum.auto()  # the request has not come in full yet, or has not begun
    BUSY = enum.auto()  # the request has come in full, and is being answered
    IDLE = (
        enum.auto()
    )  # the request is answered; the client may read the answer and make the next request


class Occupancy(Generic[MemberT]):
    """
    The members of a limited number, ordered by the time when they entered their current stages.

    Whoever has made no complete request is the first to leave, then those who have made one and do nothing now.
    But requests that are made once do not occupy the place for ever: at least a half is for new connections.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: dict[Stage, dict[MemberT, None]] = {stage: {} for stage in Stage}

    def __len__(self) -> int:
        return sum(map(len, self._members.values()))

    def __contains__(self, member: object) -> bool:
        return any(member in members for members in self._members.values())

    def __iter__(self) -> Iterator[MemberT]:
        return itertools.chain.from_iterable(list(members) for members in self._members.values())

    @property
    def is_full(self) -> bool:
        return len(self) >= self._limit

    def enter(self, member: MemberT) -> None:
        """Add a new member, which has made no request yet."""
        self._members[Stage.OPENING][member] = None

    def leave(self, member: MemberT) -> None:
        """Forget the member, if it is known at all."""
        for members in self._members.values():
            members.pop(member, None)

    def move(self, member: MemberT, stage: Stage) -> None:
        """Move a known member to the end of the stage; those who are there already keep their places."""
        if member in self and member not in self._members[stage]:
            self.leave(member)
            self._members[stage][member] = None

    def choose_leaver(self) -> MemberT | None:
        """Choose the member that should make room for a new one; ``None`` if all of them are busy."""
        opening, idle = self._members[Stage.OPENING], self._members[Stage.IDLE]
        is_crowded = 2 * len(opening) >= len(self)
        chosen = opening if is_crowded or not idle else idle
        return next(iter(chosen), None)


def choose_limit(wanted: int, files: int | None) -> int:
    """Choose how many connections can be open if the process may open so many files, for everything that it does."""
    return wanted if files is None else max(1, min(wanted, files // FILES_SHARE))
