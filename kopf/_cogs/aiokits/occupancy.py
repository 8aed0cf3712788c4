"""
Occupancy: which connections of a server are open, and which of them makes room for a new one.

Only decisions: nothing is accepted or closed here.
"""

import enum
import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

MemberT = TypeVar('MemberT')

FILES_SHARE = 2
"""Connections of one server get the limit of open files of the process divided by this number."""


class Stage(enum.Enum):
    """The stage of a connection in serving its current request."""

    OPENING = enum.auto()  # the request is not fully received yet, or has not begun
    BUSY = enum.auto()  # the request is fully received and is being answered
    # The request is answered; the client may read the response and send the next request.
    IDLE = enum.auto()


class Occupancy(Generic[MemberT]):
    """
    A limited number of members, ordered by the time when they entered their current stages.

    Members without a complete request leave first, then idle members that have made one. However,
    one request does not reserve a place forever: at least half of the places are for new
    connections.
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
        """Add a new member, which has made no requests yet."""
        self._members[Stage.OPENING][member] = None

    def leave(self, member: MemberT) -> None:
        """Forget the member, if it is known."""
        for members in self._members.values():
            members.pop(member, None)

    def move(self, member: MemberT, stage: Stage) -> None:
        """Move a known member to the end of the stage, unless it is already in this stage."""
        if member in self and member not in self._members[stage]:
            self.leave(member)
            self._members[stage][member] = None

    def choose_leaver(self) -> MemberT | None:
        """Choose the member to make room for a new one; return ``None`` if all members are busy."""
        opening = self._members[Stage.OPENING]
        idle = self._members[Stage.IDLE]
        is_crowded = 2 * len(opening) >= len(self)
        chosen = opening if is_crowded or not idle else idle
        return next(iter(chosen), None)


def choose_limit(wanted: int, files: int | None) -> int:
    """Choose the limit of connections by the wanted one and by the process's limit of files."""
    return wanted if files is None else max(1, min(wanted, files // FILES_SHARE))
