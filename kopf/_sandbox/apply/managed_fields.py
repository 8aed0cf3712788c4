"""
Managed fields: the records of the owners of an object's fields.

There is one entry in ``metadata.managedFields`` for each manager, operation and subresource (and,
for updates, API version). Entries are values: no function here modifies its arguments.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from kopf._sandbox.apply import fieldsets, ownership

MAX_UPDATE_MANAGERS: Final = 10
ANCIENT_MANAGER: Final = 'ancient-changes'

Entry: TypeAlias = dict[str, Any]
"""One entry of the managed fields, in the form of the objects."""

Identity: TypeAlias = tuple[str, str, str, str]
"""The unique key of an entry: the manager, the operation, the API version, the subresource."""


@dataclasses.dataclass(frozen=True)
class Author:
    """
    The author of a change: the manager, the API version, the time, and the subresource.

    The reset fields cannot be changed through this subresource, so the author does not come to own
    them.
    """

    manager: str
    api_version: str
    now: str  # RFC 3339, in UTC, with seconds
    subresource: str = ''
    reset_fields: tuple[str, ...] = ()  # e.g. status, metadata.labels


def choose_entries(
    live: Mapping[str, Any] | None, new: Mapping[str, Any], author: Author
) -> list[Entry]:
    """Return the entries sent by the user if they are valid and changed, else the known entries."""
    known = read_entries(live)
    sent = _get_managed_fields(new)
    if author.subresource or sent is None or sent is known or sent == known:
        return known
    if sent == [] or sent == [{}]:
        return []

    try:
        return _parse_entries(sent)
    except ValueError:
        return known


def read_entries(obj: Mapping[str, Any] | None) -> list[Entry]:
    """Return the recorded entries of an object."""
    entries = _get_managed_fields(obj) if obj is not None else None
    return entries if isinstance(entries, list) else []


def _get_managed_fields(obj: Mapping[str, Any]) -> Any:
    metadata = obj.get('metadata')
    return metadata.get('managedFields') if isinstance(metadata, dict) else None


def _parse_entries(sent: Any) -> list[Entry]:
    if not isinstance(sent, list) or not all(isinstance(entry, dict) for entry in sent):
        raise ValueError('not a list of maps')

    entries = {}
    for entry in sent:
        texts = (entry.get(name) or '' for name in ('manager', 'apiVersion', 'subresource', 'time'))
        if not all(isinstance(text, str) for text in texts) or not entry.get('apiVersion'):
            raise ValueError('apiVersion must not be empty')
        if (
            entry.get('operation') not in ('Apply', 'Update')
            or entry.get('fieldsType') != 'FieldsV1'
        ):
            raise ValueError('operation must be `Apply` or `Update`')
        identity = identify(entry)
        fields = entry.get('fieldsV1')
        entries[identity] = build_entry(
            identity,
            entry['apiVersion'],
            fieldsets.parse({} if fields is None else fields),
            entry.get('time'),
        )

    return sorted((entry for entry in entries.values() if entry['fieldsV1']), key=build_sort_key)


def record(
    entries: Iterable[Entry], comparison: ownership.Comparison, author: Author
) -> list[Entry]:
    """Give the changed fields to the author of an update, and take them from the other owners."""
    result = disown(entries, comparison)
    if comparison.changed:
        mine = identify_author(author, 'Update')
        index = next((i for i, entry in enumerate(result) if identify(entry) == mine), None)
        known = result.pop(index)['fieldsV1'] if index is not None else {}
        fields = fieldsets.union(known, comparison.changed)
        result.append(build_entry(mine, author.api_version, fields, author.now))

    return sorted(result, key=build_sort_key)


def disown(entries: Iterable[Entry], comparison: ownership.Comparison) -> list[Entry]:
    """Take the changed and removed fields from their owners; drop the entries that become empty."""
    result = []
    for entry in entries:
        known = entry['fieldsV1']
        fields = fieldsets.difference(
            fieldsets.difference(known, comparison.changed), comparison.removed
        )
        if fields:
            result.append(entry if fields == known else {**entry, 'fieldsV1': fields})

    return result


def merge_oldest(entries: list[Entry]) -> list[Entry]:
    """Merge the oldest updates of each API version if there are too many entries."""
    updates = [entry for entry in entries if entry['operation'] == 'Update']
    excess = len(updates) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return entries

    remaining = {identify(entry): entry for entry in entries}
    oldest: dict[str, Identity] = {}
    for entry in updates:
        version = entry['apiVersion']
        identity = identify(entry)
        bucket: Identity = (ANCIENT_MANAGER, 'Update', version, '')
        if excess <= 0 or oldest.setdefault(version, identity) == identity or identity == bucket:
            continue
        base = remaining[bucket] if bucket in remaining else remaining.pop(oldest[version])
        fields = fieldsets.union(base['fieldsV1'], entry['fieldsV1'])
        remaining[bucket] = build_entry(bucket, version, fields, entry.get('time'))
        del remaining[identity]
        excess -= 1

    return sorted(remaining.values(), key=build_sort_key)


def identify(entry: Entry) -> Identity:
    """Return the key of an entry; for applied entries, the API version is not a part of it."""
    operation = entry['operation']
    version = '' if operation == 'Apply' else entry['apiVersion']
    return entry.get('manager') or '', operation, version, entry.get('subresource') or ''


def identify_author(author: Author, operation: str) -> Identity:
    version = '' if operation == 'Apply' else author.api_version
    return author.manager or 'unknown', operation, version, author.subresource


def build_entry(
    identity: Identity, api_version: str, fields: fieldsets.FieldSet, time: str | None
) -> Entry:
    """Build an entry; without ``time`` if the apply has not changed the object."""
    manager, operation, _, subresource = identity
    entry: Entry = {'manager': manager} if manager else {}
    entry['operation'] = operation
    entry['apiVersion'] = api_version
    if time is not None:
        entry['time'] = time
    entry['fieldsType'] = 'FieldsV1'
    entry['fieldsV1'] = fields
    if subresource:
        entry['subresource'] = subresource
    return entry


def build_sort_key(entry: Entry) -> tuple[str, ...]:
    """Return the key to sort entries as the API does: applies before updates, then by time."""
    return (
        entry['operation'],
        entry.get('time') or '',
        entry.get('manager', ''),
        entry['apiVersion'],
        entry.get('subresource', ''),
    )


def put_entries(obj: Mapping[str, Any], entries: list[Entry]) -> dict[str, Any]:
    """Return the object with these entries instead of its own."""
    metadata = {
        name: value
        for name, value in (obj.get('metadata') or {}).items()
        if name != 'managedFields'
    }
    if entries:
        metadata['managedFields'] = sorted(entries, key=build_sort_key)
    return {**obj, 'metadata': metadata}
