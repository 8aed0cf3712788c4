"""
Tables: objects in the tabular form for people, and partial objects with metadata only.

All functions are pure: objects are not modified, though they become parts of the results. Malformed
objects (no spec, values of wrong types) are shown as if the wrong fields were empty.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.endpoints import columns
from kopf._sandbox.endpoints.printers import cells
from kopf._sandbox.meta import errors, kinds

_API_VERSION = 'meta.k8s.io/v1'
_INITIAL_EVENTS_END = 'k8s.io/initial-events-end'


def parse_include(text: str) -> str:
    """
    Return the part of objects to include in rows, by the query: ``None``, ``Metadata`` (the
    default), ``Object``.
    """
    if text not in ('', 'None', 'Metadata', 'Object'):
        problem = errors.invalid_value(
            'includeObject', text, "must be 'Metadata', 'Object', 'None', or empty"
        )
        raise errors.bad_request(f'Unable to convert to Table as requested: {problem}')

    return text or 'Metadata'


def build_table(
    resource: kinds.Resource,
    objects: Sequence[dict[str, Any]],
    *,
    now: datetime.datetime,
    include: str = 'Metadata',
    list_metadata: Mapping[str, Any] | None = None,
    with_headers: bool = True,
) -> dict[str, Any]:
    """
    Build a table of objects.

    ``list_metadata`` is given for lists, but not for single objects. ``now`` must have a time zone.
    In watches, only the first event has the headers.
    """
    printer = columns.find_printer(resource)
    metadata = (
        cells.mapping(objects[0], 'metadata')
        if list_metadata is None and objects
        else list_metadata or {}
    )
    rows = [_build_row(resource, printer, obj, include, now) for obj in objects]

    return {
        'kind': 'Table',
        'apiVersion': _API_VERSION,
        'metadata': _select_list_metadata(metadata),
        'columnDefinitions': [_build_header(header) for header in printer.headers]
        if with_headers
        else None,
        'rows': None if printer.null_if_empty and not rows else rows,
    }


def build_partial(resource: kinds.Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its metadata only."""
    return {
        'kind': 'PartialObjectMetadata',
        'apiVersion': _API_VERSION,
        'metadata': cells.mapping(obj, 'metadata'),
    }


def build_partial_list(
    resource: kinds.Resource, objects: Sequence[Mapping[str, Any]], list_metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Build a list of objects with their metadata only; it has null instead of an empty list."""
    return {
        'kind': 'PartialObjectMetadataList',
        'apiVersion': _API_VERSION,
        'metadata': _select_list_metadata(list_metadata),
        'items': [build_partial(resource, obj) for obj in objects] or None,
    }


def _select_list_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    fields = ('resourceVersion', 'continue', 'remainingItemCount')
    return {field: metadata[field] for field in fields if metadata.get(field) not in (None, '')}


def _build_header(header: cells.Header) -> dict[str, Any]:
    return {
        'name': header.name,
        'type': header.type,
        'format': header.format,
        'description': header.description,
        'priority': header.priority,
    }


def _build_row(
    resource: kinds.Resource,
    printer: cells.Printer,
    obj: dict[str, Any],
    include: str,
    now: datetime.datetime,
) -> dict[str, Any]:
    row: dict[str, Any] = {'cells': list(printer.print(obj, now))}
    if conditions := printer.conditions(obj):
        row['conditions'] = list(conditions)
    row['object'] = _build_included(resource, obj, include)
    return row


def _build_included(
    resource: kinds.Resource, obj: dict[str, Any], include: str
) -> dict[str, Any] | None:
    if include == 'Object':
        return obj
    # The end of the initial events is marked by an annotation: include the metadata in any case.
    is_marked = _INITIAL_EVENTS_END in cells.mapping(obj, 'metadata', 'annotations')
    return build_partial(resource, obj) if include == 'Metadata' or is_marked else None
