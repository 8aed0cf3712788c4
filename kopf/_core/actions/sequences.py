"""
Sequences: in which requests an object is changed, and in which order.

Our records mean that the work is done, so they are sent last, together with the last changes of the
users: an operator that is killed in between finds no such record, and repeats the work. Pure
decisions, made again after every request.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Any

from kopf._cogs.clients import patching
from kopf._cogs.structs import dicts

_NOTHING: Mapping[str, Any] = {}


class Place(enum.Enum):
    """The part of an object to change; without a status subresource, all of it is the body."""

    __hash__ = object.__hash__  # members are looked up for every request; the hash of enums is slow

    BODY = enum.auto()
    STATUS = enum.auto()


MERGES = {Place.BODY: patching.Step.MERGE_BODY, Place.STATUS: patching.Step.MERGE_STATUS}
AMENDMENTS = {Place.BODY: patching.Step.AMEND_BODY, Place.STATUS: patching.Step.AMEND_STATUS}


@dataclasses.dataclass(frozen=True)
class Request:
    """One request, either a merge-patch, or an amendment of the object by the patch functions."""

    place: Place
    users: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_amending: bool = False

    @property
    def merge(self) -> Mapping[str, Any]:
        return join(self.own, self.users, _NOTHING)

    @property
    def step(self) -> patching.Step:
        return AMENDMENTS[self.place] if self.is_amending else MERGES[self.place]


def plan(
    users: Mapping[str, Any],
    own: Mapping[str, Any],
    touched: Collection[Place] = (),
    *,
    has_status: bool,
) -> list[Request]:
    """
    List the requests for the users' merge-patch, the changes by functions, and our records.

    The functions see the object with all merge-patches applied, so no users' merge-patch is sent
    after them for the same place. Our records go with the last request of the users or after it.
    """
    if not users and not touched and not (has_status and 'status' in own):
        return [Request(Place.BODY, own=own)] if own else []

    ours = split(own, has_status=has_status)
    is_versioned = dicts.has(users, ('metadata', 'resourceVersion'))
    is_recorded_in_status = has_records(ours[Place.STATUS]) and not has_records(ours[Place.BODY])
    order = (Place.STATUS, Place.BODY)
    if is_versioned or is_recorded_in_status:
        order = (Place.BODY, Place.STATUS)

    requests = _plan_users(split(users, has_status=has_status), touched, order)
    return _join_own(requests, ours, order)


def _plan_users(
    theirs: Mapping[Place, Mapping[str, Any]],
    touched: Collection[Place],
    order: tuple[Place, Place],
) -> list[Request]:
    first, last = order
    sequence = [
        Request(first, theirs[first]),
        Request(first, is_amending=True),
        Request(last, theirs[last]),
    ]
    if last in touched:
        sequence.insert(1, sequence.pop())
        sequence.append(Request(last, is_amending=True))
    return [
        request
        for request in sequence
        if (request.place in touched if request.is_amending else request.users)
    ]


def _join_own(
    requests: list[Request], ours: Mapping[Place, Mapping[str, Any]], order: tuple[Place, Place]
) -> list[Request]:
    """Add our part: records to the last request or after it, mere removals to any request."""
    joined = list(requests)
    last = requests[-1].place if requests else None
    # A stable sort: in the given order if there are no requests.
    places = sorted(order, key=lambda place: place is not last)
    for place in places:
        if not ours[place]:
            continue
        fitting = [index for index, request in enumerate(joined) if request.place is place]
        if place is last:
            joined[-1] = dataclasses.replace(joined[-1], own=ours[place])
        elif has_records(ours[place]):
            joined.append(Request(place, own=ours[place]))
        elif fitting:
            joined[fitting[0]] = dataclasses.replace(joined[fitting[0]], own=ours[place])
        else:
            joined.insert(0, Request(place, own=ours[place]))
    return joined


def split(merge: Mapping[str, Any], *, has_status: bool) -> dict[Place, Mapping[str, Any]]:
    """Split the merge-patch by places. Empty sections change nothing."""
    steps = patching.split_merge(merge, has_status=has_status)
    return {place: steps.get(step, _NOTHING) for place, step in MERGES.items()}


def has_records(own: Mapping[str, Any]) -> bool:
    """Return whether there is anything besides removals."""
    return any(
        has_records(value) if dicts.is_mapping(value) else value is not None
        for value in own.values()
    )


def join(
    own: Mapping[str, Any], users: Mapping[str, Any], body: Mapping[str, Any]
) -> dict[str, Any]:
    """
    Join two merge-patches into one; in case of a conflict, the users' value wins.

    If the users remove a whole mapping, our values in it stay: all other keys are removed one by
    one.
    """
    joined = dict(own)
    for key, value in users.items():
        ours, present = joined.get(key), dicts.resolve_mapping(body, (key,))
        if dicts.is_mapping(ours) and dicts.is_mapping(value):
            joined[key] = join(ours, value, present)
        elif dicts.is_mapping(ours) and value is None:
            joined[key] = {**dict.fromkeys(present), **ours}
        else:
            joined[key] = value
    return joined


def separate(
    own: Mapping[str, Any], users: Mapping[str, Any], body: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the two merge-patches independent, with the same effect as if joined by `join`."""
    ours, theirs = {key: value for key, value in own.items() if key not in users}, dict(users)
    for key in own.keys() & users.keys():
        mine, other, present = own[key], users[key], dicts.resolve_mapping(body, (key,))
        if dicts.is_mapping(mine) and dicts.is_mapping(other):
            mine, rest = separate(mine, other, present)
        elif dicts.is_mapping(mine) and other is None:
            rest = dict.fromkeys(name for name in present if name not in mine)
        else:
            continue
        ours |= {key: mine} if mine else {}
        theirs[key] = rest
        if not rest:
            del theirs[key]
    return ours, theirs
