"""
JSON patches of webhooks, with the API's errors for operations that do not fit the object.

Unlike the patches of clients, which fail without a reason, these errors explain the cause to the
webhook's author.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._sandbox.apply import patches
from kopf._sandbox.meta import errors

_OPERATIONS = ('add', 'remove', 'replace', 'move', 'copy', 'test')
_INDEX = re.compile(r'[+-]?[0-9]{1,18}')
_MISSING = 'missing value'


def apply_operations(body: dict[str, Any], operations: Iterable[Mapping[str, Any]]) -> Any:
    """Apply the operations to a copy of an object; raise the API's 500 for the first that fails."""
    for operation in operations:
        try:
            body = patches.apply_json_patch(body, [operation])
        except errors.ApiError as error:
            raise errors.internal(explain(body, operation)) from error
    return body


def explain(body: Any, operation: Mapping[str, Any]) -> str:
    """Return the API's message about an operation that does not fit the object."""
    kind = operation.get('op')
    path = operation.get('path')
    if kind not in _OPERATIONS:
        return f'Unexpected kind: {kind if isinstance(kind, str) else "unknown"}'
    if not isinstance(path, str):
        return f'{kind} operation failed to decode path: {_MISSING}'
    if kind in ('move', 'copy'):
        return _explain_transfer(body, operation, str(kind), path)

    parent = _find(body, path.split('/')[1:-1]) if path else None
    if not isinstance(parent, dict | list):
        return _explain_missing_parent(str(kind), path)
    if kind == 'test':
        return f'testing value {path} failed: test failed'
    return (
        f"error in {'add' if kind == 'add' else 'remove'} for path: '{path}': "
        f'{_explain_key(parent, path)}'
    )


def _explain_missing_parent(kind: str, path: str) -> str:
    if kind == 'test':
        return (
            f'test operation does not apply: is missing path: {path}: {_MISSING}'
            if path
            else f'testing value {path} failed: test failed'
        )
    shown = path if kind == 'replace' else f'"{path}"'
    return f'{kind} operation does not apply: doc is missing path: {shown}: {_MISSING}'


def _explain_transfer(body: Any, operation: Mapping[str, Any], kind: str, path: str) -> str:
    source = operation.get('from')
    if not isinstance(source, str):
        return f'{kind} operation failed to decode from: operation, missing from field: {_MISSING}'

    parent = _find(body, source.split('/')[1:-1]) if source else None
    if not isinstance(parent, dict | list):
        return f'{kind} operation does not apply: doc is missing from path: {source}: {_MISSING}'

    key = _unescape(source.rpartition('/')[2])
    if isinstance(parent, list) or (kind == 'move' and key not in parent):
        return f"error in {kind} for path: '{key}': {_explain_key(parent, source)}"
    return f'{kind} operation does not apply: doc is missing destination path: {path}: {_MISSING}'


def _explain_key(parent: Any, path: str) -> str:
    key = _unescape(path.rpartition('/')[2])
    if isinstance(parent, dict):
        return f'Unable to remove nonexistent key: {key}: {_MISSING}'
    if not _INDEX.fullmatch(key):
        return (
            f"value was not a proper array index: '{key}': strconv.Atoi: parsing "
            f'"{key}": invalid syntax'
        )
    return f'Unable to access invalid index: {key}: invalid index referenced'


def _find(value: Any, keys: Iterable[str]) -> Any:
    for key in map(_unescape, keys):
        if isinstance(value, dict):
            value = value.get(key)
        elif (
            isinstance(value, list)
            and _INDEX.fullmatch(key)
            and -len(value) <= int(key) < len(value)
        ):
            value = value[int(key)]
        else:
            return None

    return value


def _unescape(key: str) -> str:
    return key.replace('~1', '/').replace('~0', '~')
