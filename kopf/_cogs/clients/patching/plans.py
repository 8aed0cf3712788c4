"""
Plans: in which requests an object is changed, and in which order.

Our records mean that the work is done, so they are sent last, together with the last changes of the
users: an operator that is killed in between finds no such record, and repeats the work. Pure
decisions, made again after every request.
"""

import dataclasses
import enum
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kopf._cogs.clients import retries
from kopf._cogs.clients.patching import merge_patches
from kopf._cogs.structs import dicts

RawBody = Mapping[str, Any]
Operation = Mapping[str, Any]  # of JSON patches, with ``op``, ``path``, ``value``

_NOTHING: Mapping[str, Any] = {}


class Kind(enum.Enum):
    """
    The kinds of patches: which part of the object they change, and how.

    Merge-patches are for any version of the object; amendments are JSON patches, made for one
    version of the object by the patch functions, or for our finalizer. Without a status
    subresource, the status is a part of the body.
    """

    # Members are looked up with every request; the hash of enums is slow.
    __hash__ = object.__hash__

    MERGE_BODY = (None, retries.MERGE_PATCH)
    MERGE_STATUS = ('status', retries.MERGE_PATCH)
    AMEND_BODY = (None, retries.JSON_PATCH)
    AMEND_STATUS = ('status', retries.JSON_PATCH)

    def __init__(self, subresource: str | None, media_type: str) -> None:
        self.subresource = subresource
        self.media_type = media_type
        self.is_status = subresource is not None
        self.is_amending = media_type == retries.JSON_PATCH


_SEQUENCES = {
    # By the last part to change, and by whether the functions change it, too.
    (Kind.MERGE_BODY, False): (Kind.MERGE_STATUS, Kind.AMEND_STATUS, Kind.MERGE_BODY),
    (Kind.MERGE_BODY, True): (
        Kind.MERGE_STATUS,
        Kind.MERGE_BODY,
        Kind.AMEND_STATUS,
        Kind.AMEND_BODY,
    ),
    (Kind.MERGE_STATUS, False): (Kind.MERGE_BODY, Kind.AMEND_BODY, Kind.MERGE_STATUS),
    (Kind.MERGE_STATUS, True): (
        Kind.MERGE_BODY,
        Kind.MERGE_STATUS,
        Kind.AMEND_BODY,
        Kind.AMEND_STATUS,
    ),
}
"""
The order of the users' requests; those with nothing to send are left out.

The functions see the object with all merge-patches applied, so no users' merge-patch of the same
part is sent after them.
"""

_AMENDMENTS = {Kind.MERGE_BODY: Kind.AMEND_BODY, Kind.MERGE_STATUS: Kind.AMEND_STATUS}


@dataclasses.dataclass(frozen=True)
class Request:
    """One request with its changes; of the functions, only the kind of their request is known."""

    kind: Kind
    users: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def merge(self) -> Mapping[str, Any]:
        """Both parts of the merge-patch together."""
        return merge_patches.join(self.own, self.users, _NOTHING)


def plan(
    users: Mapping[str, Any],
    own: Mapping[str, Any],
    touched: Collection[Kind] = (),
    *,
    has_status: bool,
) -> list[Request]:
    """
    List the requests for the users' merge-patch, the changes by functions, and our records.

    ``touched`` are the amendments by the functions. Our records go with the last request of the
    users or after it.
    """
    if not users and not touched and not (has_status and 'status' in own):
        return [Request(Kind.MERGE_BODY, own=own)] if own else []

    ours = split_merge(own, has_status=has_status)
    theirs = split_merge(users, has_status=has_status)
    last = _choose_last(users, ours)
    requests = [
        Request(kind, theirs.get(kind, _NOTHING))
        for kind in _SEQUENCES[last, _AMENDMENTS[last] in touched]
        if kind in theirs or kind in touched
    ]

    return _join_own(requests, ours, last)


def _choose_last(users: Mapping[str, Any], ours: Mapping[Kind, Mapping[str, Any]]) -> Kind:
    """
    Choose the part to change last: usually, the body. The status goes last if only it has our
    records, or if the version is checked with the body.
    """
    is_recorded_in_status = merge_patches.has_records(ours.get(Kind.MERGE_STATUS, _NOTHING))
    is_recorded_in_body = merge_patches.has_records(ours.get(Kind.MERGE_BODY, _NOTHING))
    if is_versioned(users) or (is_recorded_in_status and not is_recorded_in_body):
        return Kind.MERGE_STATUS
    return Kind.MERGE_BODY


def _join_own(
    requests: list[Request], ours: Mapping[Kind, Mapping[str, Any]], last: Kind
) -> list[Request]:
    """Add our part: records to the last request or after it, mere removals to any request."""
    joined = list(requests)
    # The part of the last request goes first; if there are no requests, the last one goes last.
    is_status_first = joined[-1].kind.is_status if joined else not last.is_status
    kinds = (Kind.MERGE_STATUS, Kind.MERGE_BODY)

    for kind in kinds if is_status_first else reversed(kinds):
        own = ours.get(kind)
        if not own:
            continue
        fitting = [
            index
            for index, request in enumerate(joined)
            if request.kind.is_status is kind.is_status
        ]
        if requests and kind.is_status is is_status_first:
            joined[-1] = dataclasses.replace(joined[-1], own=own)
        elif merge_patches.has_records(own):
            joined.append(Request(kind, own=own))
        elif fitting:
            joined[fitting[0]] = dataclasses.replace(joined[fitting[0]], own=own)
        else:
            joined.insert(0, Request(kind, own=own))

    return joined


def is_versioned(merge: Mapping[str, Any]) -> bool:
    """Return whether the changes are for one version of the object only."""
    return dicts.has(merge, ('metadata', 'resourceVersion'))


def split_merge(merge: Mapping[str, Any], *, has_status: bool) -> dict[Kind, Mapping[str, Any]]:
    """
    Choose what to merge and where, in the order of sending. Empty sections change nothing, so they
    are not sent.

    The status goes first: if the operator is killed between the two requests, it has not recorded
    yet that the work is done, and repeats it. But if the changes are for one version of the object,
    the status goes last, as the version is checked with the body.
    """
    merge = {key: value for key, value in merge.items() if not dicts.is_mapping(value) or value}
    body = {key: value for key, value in merge.items() if key != 'status' or not has_status}
    status = {key: value for key, value in merge.items() if key == 'status' and has_status}
    parts = [(Kind.MERGE_STATUS, status), (Kind.MERGE_BODY, body)]
    ordered = reversed(parts) if is_versioned(merge) else parts

    return {kind: part for kind, part in ordered if part}


def split_operations(
    operations: Sequence[Operation], *, has_status: bool
) -> dict[Kind, list[Operation]]:
    """Choose which operations to send and where; their order is preserved."""
    parts: dict[Kind, list[Operation]] = {Kind.AMEND_BODY: [], Kind.AMEND_STATUS: []}
    for operation in operations:
        is_status = has_status and f'{operation["path"]}/'.startswith('/status/')
        parts[Kind.AMEND_STATUS if is_status else Kind.AMEND_BODY].append(operation)
    return {kind: part for kind, part in parts.items() if part}


def guard(operations: Sequence[Operation], body: RawBody) -> list[Operation]:
    """Add tests so that the operations are executed only on this version of the object."""
    metadata = body['metadata']
    guards = [
        {'op': 'test', 'path': '/metadata/resourceVersion', 'value': metadata['resourceVersion']}
    ]
    if metadata.get('uid'):
        guards.append({'op': 'test', 'path': '/metadata/uid', 'value': metadata['uid']})
    return [*guards, *operations]
