"""
Patches: merge patches (RFC 7386) and JSON patches (RFC 6902), with the quirks of the API's own
implementation.

The patched objects are new; they share unchanged parts with the original, which is not modified.
The quirks: JSON patches can replace absent values, copy absent values as null, and accept negative
array indices, counted from the end; the API gives no reason why a JSON patch failed.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kopf._sandbox.meta import errors, go_format

MAX_OPERATIONS: Final = 10_000

_INDEX: Final = re.compile(r'[+-]?[0-9]{1,18}')
_ABSENT: Final = object()

Container: TypeAlias = 'dict[str, Any] | list[Any]'


def merge(target: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """Apply a merge patch: nulls remove fields, objects are merged, other values replaced."""
    if patch is None:
        raise errors.bad_request('Invalid JSON Patch')
    if not isinstance(patch, dict):
        raise errors.bad_request(
            f'error decoding patch: json: cannot unmarshal {go_format.json_type(patch)} '
            f'into Go value of type map[string]interface {{}}'
        )
    return _merge_objects(target, patch)


def _merge_objects(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(target)
    for key, value in patch.items():
        current = result.get(key)
        if value is None:
            result.pop(key, None)
        elif not isinstance(current, dict):
            result[key] = _without_nulls(value)
        elif isinstance(value, dict):
            result[key] = _merge_objects(current, value)
        else:
            result[key] = value

    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def apply_json_patch(target: Mapping[str, Any], operations: Any) -> Any:
    """Apply a JSON patch to an object. The result may be of any type if the root is replaced."""
    for operation in _check_operations(operations):
        _check_operation(operation)
    if len(operations or ()) > MAX_OPERATIONS:
        raise errors.too_large(
            f'Request entity too large: The allowed maximum operations in a JSON patch '
            f'is {MAX_OPERATIONS}, got {len(operations)}'
        )

    document = _Document(target)
    try:
        for operation in operations or ():
            document.perform(operation or {})
    except _InapplicableError:
        raise errors.ApiError(
            422,
            'Invalid',
            'the server rejected our request due to an error in our request',
            details={},
        ) from None

    return document.root


def _check_operations(operations: Any) -> Iterable[Any]:
    if operations is None:
        return ()
    if not isinstance(operations, list):
        raise errors.bad_request(
            f'error decoding patch: json: cannot unmarshal {go_format.json_type(operations)} '
            f'into Go value of type []handlers.jsonPatchOp'
        )
    return operations


def _check_operation(operation: Any) -> None:
    if operation is None:
        return
    if not isinstance(operation, dict):
        raise errors.bad_request(
            f'error decoding patch: json: cannot unmarshal {go_format.json_type(operation)} '
            f'into Go value of type handlers.jsonPatchOp'
        )

    for name in ('op', 'path', 'from'):
        if not isinstance(operation.get(name, ''), str | None):
            raise errors.bad_request(
                'error decoding patch: json: cannot unmarshal '
                f'{go_format.json_type(operation[name])} into Go struct field jsonPatchOp.{name} '
                'of type string'
            )


class _InapplicableError(Exception):
    """An operation is malformed, or its path does not exist, or its test fails."""


class _Document:
    """A document that is being patched; its containers are copied when they are first modified."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._copies: dict[int, Container] = {}  # kept alive, so that their ids are not reused

    def perform(self, operation: Mapping[str, Any]) -> None:
        performers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            'add': self._add,
            'remove': self._remove,
            'replace': self._replace,
            'move': self._move,
            'copy': self._copy,
            'test': self._test,
        }
        performer = performers.get(operation.get('op') or '')
        if performer is None:
            raise _InapplicableError

        performer(operation)

    def _add(self, operation: Mapping[str, Any]) -> None:
        self._insert(_read(operation, 'path'), operation.get('value'))

    def _remove(self, operation: Mapping[str, Any]) -> None:
        self._extract(_read(operation, 'path'))

    def _replace(self, operation: Mapping[str, Any]) -> None:
        path = _read(operation, 'path')
        value = operation.get('value')
        if path:
            parent, key = self._locate(path)
            if isinstance(parent, list):
                parent[_existing_index(parent, key)] = value
            else:
                parent[key] = value
        elif isinstance(value, dict | list):
            self.root = value
        else:
            raise _InapplicableError

    def _move(self, operation: Mapping[str, Any]) -> None:
        value = self._extract(_read(operation, 'from'))
        self._insert(_read(operation, 'path'), value)

    def _copy(self, operation: Mapping[str, Any]) -> None:
        value = self._find(_read(operation, 'from'))
        self._insert(_read(operation, 'path'), copy.deepcopy(value))

    def _test(self, operation: Mapping[str, Any]) -> None:
        path = _read(operation, 'path')
        value = self._find(path) if path else self.root
        if not _is_same(value, operation.get('value')):
            raise _InapplicableError

    def _insert(self, path: str, value: Any) -> None:
        parent, key = self._locate(path)
        if isinstance(parent, dict):
            parent[key] = value
        elif key == '-':
            parent.append(value)
        else:
            parent.insert(_index(key, len(parent) + 1), value)

    def _extract(self, path: str) -> Any:
        parent, key = self._locate(path)
        if isinstance(parent, list):
            return parent.pop(_existing_index(parent, key))
        value = parent.pop(key, _ABSENT)
        if value is _ABSENT:
            raise _InapplicableError
        return value

    def _find(self, path: str) -> Any:
        parent, key = self._locate(path)
        return parent[_existing_index(parent, key)] if isinstance(parent, list) else parent.get(key)

    def _locate(self, path: str) -> tuple[Container, str]:
        """Return the container of the path's last key; make all containers up to it modifiable."""
        _, *keys = (key.replace('~1', '/').replace('~0', '~') for key in path.split('/'))
        if not keys:
            raise _InapplicableError

        container = self.root = self._own(self.root)
        for key in keys[:-1]:
            place: Any = _existing_index(container, key) if isinstance(container, list) else key
            child = container[place] if isinstance(container, list) else container.get(place)
            owned = self._own(child)
            container[place] = owned
            container = owned

        return container, keys[-1]

    def _own(self, value: Any) -> Container:
        if not isinstance(value, dict | list):
            raise _InapplicableError
        if id(value) in self._copies:
            return value
        owned = value.copy()
        self._copies[id(owned)] = owned
        return owned


def _read(operation: Mapping[str, Any], name: str) -> str:
    value = operation.get(name)
    if value is None:
        raise _InapplicableError
    return str(value)


def _existing_index(items: list[Any], key: str) -> int:
    return _index(key, len(items))


def _index(key: str, length: int) -> int:
    if not _INDEX.fullmatch(key) or not -length <= int(key) < length:
        raise _InapplicableError
    return int(key) % length


def _is_same(one: Any, two: Any) -> bool:
    """Compare by the JSON text: ``1``, ``1.0`` and ``true`` are all different."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(
            _is_same(value, two[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_is_same, one, two))
    return bool(one == two)
