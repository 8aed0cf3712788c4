"""
ObjectMeta: how the API decodes the metadata of custom resources and of embedded resources.

Schemas of custom resources do not cover the metadata: it is decoded into a fixed structure. So,
unknown fields are dropped, empty ones disappear, and values of wrong types are refused with the
message of the API's decoder.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kopf._sandbox.meta import go_format

Decoder = Callable[[Any, str], None]
"""Raises `UndecodableError` if the value cannot be decoded; the field's name is for the message."""

_TIME: Final = re.compile(r'\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}([.,]\d+)?(Z|[+-]\d{2}:\d{2})')
_TIME_LAYOUT: Final = '2006-01-02T15:04:05Z07:00'
_REQUIRED_OF_OWNERS: Final = ('apiVersion', 'kind', 'name', 'uid')


class UndecodableError(Exception):
    """The metadata has a value of a wrong type; the message is that of the API's decoder."""


def coerce(metadata: Any, path: str) -> list[str]:
    """
    Convert the metadata as if it was decoded and encoded by the API. Modifies it.

    Returns the paths of the unknown fields, which are dropped.
    """
    if not isinstance(metadata, dict):
        kind = go_format.json_type(metadata)
        raise UndecodableError(f'json: cannot unmarshal {kind} into Go value of type v1.ObjectMeta')

    unknown = []
    for name, value in list(metadata.items()):
        decode = _FIELDS.get(name)
        if decode is None:
            unknown.append(f'{path}.{name}')
            del metadata[name]
        elif value is None:
            del metadata[name]
        else:
            decode(value, f'ObjectMeta.{name}')
            if not value and name not in _POINTERS:
                del metadata[name]

    for name, known in _NESTED.items():
        if name in metadata:
            unknown += _coerce_entries(metadata[name], known, f'{path}.{name}')

    return unknown


def _coerce_entries(entries: list[Any], known: Mapping[str, Decoder], path: str) -> list[str]:
    unknown = []
    for index, entry in enumerate(entries):
        if entry is None:
            entries[index] = entry = {}
        for name in [name for name, value in entry.items() if name not in known or value is None]:
            if name not in known:
                unknown.append(f'{path}[{index}].{name}')
            del entry[name]
        if known is _OWNER_FIELDS:
            entry.update({name: '' for name in _REQUIRED_OF_OWNERS if name not in entry})

    return unknown


def _refuse(value: Any, field: str, wanted: str) -> UndecodableError:
    kind = f'number {value}' if isinstance(value, float) else go_format.json_type(value)
    return UndecodableError(
        f'json: cannot unmarshal {kind} into Go struct field {field} of type {wanted}'
    )


def _decode_scalar(kind: type, wanted: str) -> Decoder:
    def decode(value: Any, field: str) -> None:
        if value is not None and type(value) is not kind:
            raise _refuse(value, field, wanted)

    return decode


def _decode_time(value: Any, field: str) -> None:
    if not isinstance(value, str):
        raise UndecodableError(
            f'json: cannot unmarshal {go_format.json_type(value)} into Go value of type string'
        )
    if not _is_time(value):
        raise UndecodableError(
            f'parsing time "{value}" as "{_TIME_LAYOUT}": cannot parse "{value}" as "2006"'
        )


def _is_time(value: str) -> bool:
    if _TIME.fullmatch(value) is None:
        return False
    try:
        datetime.datetime.fromisoformat(value[:19])
    except ValueError:
        return False
    return True


def _decode_strings(value: Any, field: str) -> None:
    if not isinstance(value, dict):
        raise _refuse(value, field, 'map[string]string')
    for key, item in value.items():
        if item is None:
            value[key] = ''
        elif not isinstance(item, str):
            raise _refuse(item, field, 'string')


def _decode_list(wanted: str, decode_item: Decoder) -> Decoder:
    def decode(value: Any, field: str) -> None:
        if not isinstance(value, list):
            raise _refuse(value, field, f'[]{wanted}')
        for item in value:
            decode_item(item, field)

    return decode


def _decode_entry(kind: str, known: Mapping[str, Decoder]) -> Decoder:
    def decode(value: Any, field: str) -> None:
        if value is None:
            return
        if not isinstance(value, dict):
            raise _refuse(value, field, f'v1.{kind}')
        stem = field.partition('.')[2]
        for name, item in value.items():
            if name in known and item is not None:
                known[name](item, f'{kind}.{stem}.{name}')

    return decode


def _decode_anything(value: Any, field: str) -> None:
    """Accept any value: field sets are parsed where they are used."""


_string = _decode_scalar(str, 'string')
_uid = _decode_scalar(str, 'types.UID')
_number = _decode_scalar(int, 'int64')
_boolean = _decode_scalar(bool, 'bool')

_OWNER_FIELDS: Final[Mapping[str, Decoder]] = {
    'apiVersion': _string,
    'kind': _string,
    'name': _string,
    'uid': _uid,
    'controller': _boolean,
    'blockOwnerDeletion': _boolean,
}
_ENTRY_FIELDS: Final[Mapping[str, Decoder]] = {
    'manager': _string,
    'operation': _decode_scalar(str, 'v1.ManagedFieldsOperationType'),
    'apiVersion': _string,
    'time': _decode_time,
    'fieldsType': _string,
    'fieldsV1': _decode_anything,
    'subresource': _string,
}
_NESTED: Final = {'ownerReferences': _OWNER_FIELDS, 'managedFields': _ENTRY_FIELDS}
_POINTERS: Final = frozenset(('deletionGracePeriodSeconds',))  # their zeros differ from absence
_FIELDS: Final[Mapping[str, Decoder]] = {
    'name': _string,
    'generateName': _string,
    'namespace': _string,
    'selfLink': _string,
    'uid': _uid,
    'resourceVersion': _string,
    'generation': _number,
    'creationTimestamp': _decode_time,
    'deletionTimestamp': _decode_time,
    'deletionGracePeriodSeconds': _number,
    'labels': _decode_strings,
    'annotations': _decode_strings,
    'finalizers': _decode_list('string', _string),
    'ownerReferences': _decode_list(
        'v1.OwnerReference', _decode_entry('OwnerReference', _OWNER_FIELDS)
    ),
    'managedFields': _decode_list(
        'v1.ManagedFieldsEntry', _decode_entry('ManagedFieldsEntry', _ENTRY_FIELDS)
    ),
}
