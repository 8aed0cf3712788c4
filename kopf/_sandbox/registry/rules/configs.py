"""
Configs: config maps and secrets.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.meta import errors, naming
from kopf._sandbox.registry.rules import checks, entries, pod_defaults

_SIZE_LIMIT: Final = 1024 * 1024
_FROZEN: Final = 'field is immutable when `immutable` is set'
_ACCOUNT: Final = 'kubernetes.io/service-account.name'
_REQUIRED_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    'kubernetes.io/tls': ('tls.crt', 'tls.key'),
    'kubernetes.io/ssh-auth': ('ssh-privatekey',),
    'kubernetes.io/dockercfg': ('.dockercfg',),
    'kubernetes.io/dockerconfigjson': ('.dockerconfigjson',),
}
_FILLED_KEYS: Final = frozenset(('ssh-privatekey',))
_JSON_KEYS: Final = frozenset(('.dockercfg', '.dockerconfigjson'))
_AUTH_KEYS: Final = ('username', 'password')


def default_secret(obj: dict[str, Any]) -> None:
    """Set the defaults of a secret, and encode the values written as text. Modifies it."""
    pod_defaults.fill(obj, {'type': 'Opaque'})
    texts = obj.pop('stringData', None)
    if texts:
        encoded = {
            key: base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()
            for key, text in texts.items()
        }
        obj['data'] = {**(obj.get('data') or {}), **encoded}


def _validate_keys(obj: entries.Object, field: str) -> entries.Problems:
    return [
        errors.invalid_value(f'{field}[{key}]', key, text)
        for key in obj.get(field) or ()
        for text in naming.check_config_key(key)
    ]


def _measure(values: Mapping[str, str]) -> int:
    return sum(len(value.encode('utf-8', 'surrogatepass')) for value in values.values())


def _measure_encoded(values: Mapping[str, str]) -> int:
    return sum(len(value) // 4 * 3 - value[-2:].count('=') for value in values.values())


def validate_config_map(obj: entries.Object) -> entries.Problems:
    texts = obj.get('data') or {}
    blobs = obj.get('binaryData') or {}
    problems = _validate_keys(obj, 'data')
    problems += [
        errors.invalid_value(f'data[{key}]', key, 'duplicate of key present in binaryData')
        for key in texts
        if key in blobs
    ]
    problems += _validate_keys(obj, 'binaryData')
    if _measure(texts) + _measure_encoded(blobs) > _SIZE_LIMIT:
        problems.append(errors.too_long('[]', _SIZE_LIMIT))
    return problems


def validate_config_map_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    return _validate_frozen(new, old, 'data', 'binaryData')


def validate_secret(obj: entries.Object) -> entries.Problems:
    values = obj.get('data') or {}
    kind = obj.get('type') or ''
    problems = _validate_keys(obj, 'data')
    if _measure_encoded(values) > _SIZE_LIMIT:
        problems.append(errors.too_long('data', _SIZE_LIMIT))
    for key in _REQUIRED_KEYS.get(kind, ()):
        problems += _validate_required_key(values, key)
    if kind == 'kubernetes.io/basic-auth' and values.keys().isdisjoint(_AUTH_KEYS):
        problems += [errors.required(f'data[{key}]') for key in _AUTH_KEYS]
    if kind == 'kubernetes.io/service-account-token':
        problems += _validate_account(obj)
    return problems


def _validate_required_key(values: Mapping[str, str], key: str) -> entries.Problems:
    field = f'data[{key}]'
    if key not in values or (key in _FILLED_KEYS and not values[key]):
        return [errors.required(field)]
    text = _explain_json(values[key]) if key in _JSON_KEYS else ''
    return [errors.invalid_value(field, '<secret contents redacted>', text)] if text else []


def _validate_account(obj: entries.Object) -> entries.Problems:
    account = checks.dig(obj, 'metadata', 'annotations', _ACCOUNT)
    return [] if account else [errors.required(f'metadata.annotations[{_ACCOUNT}]')]


def _explain_json(encoded: str) -> str:
    try:
        value = json.loads(base64.b64decode(encoded))
    except (binascii.Error, ValueError):
        text = base64.b64decode(encoded).decode('utf-8', 'replace').lstrip()
        if not text:
            return 'unexpected end of JSON input'
        return f"invalid character '{text[0]}' looking for beginning of value"

    kinds = {str: 'string', list: 'array', bool: 'bool', int: 'number', float: 'number'}
    if value is None or isinstance(value, dict):
        return ''
    return (
        f'json: cannot unmarshal {kinds[type(value)]} into Go value of type '
        'map[string]interface {}'
    )


def validate_secret_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    return [
        *checks.check_immutable(new.get('type'), old.get('type'), 'type'),
        *_validate_frozen(new, old, 'data'),
    ]


def _validate_frozen(new: entries.Object, old: entries.Object, *fields: str) -> entries.Problems:
    if not old.get('immutable'):
        return []
    problems = [] if new.get('immutable') else [errors.forbidden_field('immutable', _FROZEN)]
    return problems + [
        errors.forbidden_field(field, _FROZEN)
        for field in fields
        if (new.get(field) or {}) != (old.get(field) or {})
    ]


RULES: Final = {
    ('', 'ConfigMap'): entries.Rules(
        changes_first=True, validate=validate_config_map, validate_update=validate_config_map_update
    ),
    ('', 'Secret'): entries.Rules(
        changes_first=True,
        defaults=default_secret,
        validate=validate_secret,
        validate_update=validate_secret_update,
    ),
}
