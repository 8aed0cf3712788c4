"""
Conventions: how the storages name, mark and hide their data in the objects.

The names of annotations are a contract with other versions of the framework and with other
operators. Essences share their nested values with the bodies that they are made of, and are
read-only. Only custom storages of users get copies, which they may change.
"""

import base64
import functools
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any, cast

from kopf._cogs.helpers import documents
from kopf._cogs.structs import bodies, dicts

MARKER = 'kopf-managed'
"""The name of the annotation by which other operators recognise that its prefix is not theirs."""

LAST_HANDLED = 'last-handled-configuration'
"""The default name of the annotation with the last handled state."""

GARBAGE = frozenset({'kubectl.kubernetes.io/last-applied-configuration'})
"""The annotations of other tools that change together with any other field."""

_KNOWN_DOMAIN = 'kopf.zalando.org'
ANNOTATIONS = ('metadata', 'annotations')
_LONGEST_NAME = 63
_NOTHING: Mapping[str, Any] = {}
_KNOWN_KEYS = 1000  # the number of ids of sub-handlers is unlimited
_LONGEST_PREFIX = 253 - len('/') - _LONGEST_NAME


class StanzaCleaning:
    """Removal of non-essential parts from the essences, in place."""

    @staticmethod
    def remove_annotations(essence: bodies.BodyEssence, keys_to_remove: Collection[str]) -> None:
        """Remove these annotations, if present."""
        annotations = dicts.resolve(essence, ANNOTATIONS)
        if keys_to_remove and isinstance(annotations, MutableMapping):
            for key in [key for key in annotations if key in keys_to_remove]:
                del annotations[key]

    @staticmethod
    def remove_empty_stanzas(essence: bodies.BodyEssence) -> None:
        """Remove the labels, annotations, metadata and status, if they are empty."""
        stanzas: Any = essence
        metadata = stanzas.get('metadata', _NOTHING)
        for name in ('labels', 'annotations'):
            if name in metadata and not metadata[name]:
                del metadata[name]

        for name in ('metadata', 'status'):
            if name in stanzas and not stanzas[name]:
                del stanzas[name]


class KeyForming:
    """
    The names of annotations under one prefix.

    Names are limited in length; long ones are cut and end with a digest. There are two ways to do
    this; the older one is for operators of older versions to read.
    """

    def __init__(self, *, prefix: str, v1: bool = True) -> None:
        super().__init__()
        if not prefix:
            raise ValueError('The prefix of annotations cannot be empty.')

        if len(prefix) > _LONGEST_PREFIX:
            warnings.warn(
                f'The prefix of annotations is too long for long names: {len(prefix)} characters, '
                f'while only {_LONGEST_PREFIX} are safe.',
                UserWarning,
                stacklevel=3,
            )

        self.prefix = prefix
        self.v1 = v1
        self._keys: dict[str, tuple[str, ...]] = {}

    def make_keys(self, key: str, *, body: Mapping[str, Any] | None = None) -> Iterable[str]:
        """Return all annotations of the key: write to all, read from the first one present."""
        marked = key if body is None else self.mark_key(key, body=body)
        known = self._keys.get(marked)
        if known is None:
            newer = self.make_v2_key(marked)
            older = self.make_v1_key(marked) if self.v1 else newer
            known = (newer,) if newer == older else (newer, older)
            if len(self._keys) < _KNOWN_KEYS:
                self._keys[marked] = known

        return known

    def make_v1_key(self, key: str, max_length: int = _LONGEST_NAME) -> str:
        """Make an annotation limited in length with its prefix; the digest is of the uncut name."""
        name = _make_name(key)
        return f'{self.prefix}/{self._cut(name, name, max_length - len(self.prefix) - 1)}'

    def make_v2_key(self, key: str, max_length: int = _LONGEST_NAME) -> str:
        """Make an annotation limited in length without its prefix; the digest is of the key."""
        return f'{self.prefix}/{self._cut(_make_name(key), key, max_length)}'

    def _cut(self, name: str, origin: str, max_length: int) -> str:
        if len(name) <= max_length:
            return name
        suffix = self.make_suffix(origin)
        return name[: max(1, max_length - len(suffix))] + suffix

    def make_suffix(self, key: str) -> str:
        """Make a digest of the key, with a leading dash."""
        return _make_suffix(key)

    @staticmethod
    def make_safe_key(key: str) -> str:
        """Replace characters of ids of handlers that are not allowed in names of annotations."""
        return key.replace('/', '.').replace('<', '_').replace('>', '_')

    def mark_key(self, key: str, *, body: Mapping[str, Any]) -> str:
        """Distinguish ReplicaSets from their Deployments, whose annotations Kubernetes copies."""
        if body.get('kind') == 'ReplicaSet':
            owners = dicts.resolve(body, ('metadata', 'ownerReferences'), ())
            if any(
                isinstance(owner, Mapping) and owner.get('kind') == 'Deployment' for owner in owners
            ):
                return f'{key}-ofDRS'

        return key


class AnnotationStoring(KeyForming, StanzaCleaning):
    """Storage of JSON values in annotations."""

    def _fetch_value(self, body: Mapping[str, Any], key: str) -> dict[str, Any] | None:
        """Return the first readable value, in the order of preference of its annotations."""
        annotations = dicts.resolve_mapping(body, ANNOTATIONS)
        if annotations:
            for name in self.make_keys(key, body=body):
                value = decode(annotations[name]) if name in annotations else None
                if value is not None:
                    return value

        return None

    def _store_value(
        self,
        body: Mapping[str, Any],
        patch: dict[str, Any],
        key: str,
        value: str,
        meaning: Mapping[str, Any] | None = None,
    ) -> None:
        """Put the value under all names of the key, unless an equivalent value is there."""
        for name in self.make_keys(key, body=body):
            path = (*ANNOTATIONS, name)
            present = dicts.resolve(body, path)
            put(body, patch, path, present if is_equivalent(present, value, meaning) else value)
        self._mark_prefix(body, patch)

    def _remove_value(self, body: Mapping[str, Any], patch: dict[str, Any], key: str) -> None:
        present = dicts.resolve_mapping(body, ANNOTATIONS)
        planned = dicts.resolve_mapping(patch, ANNOTATIONS) if len(patch) else _NOTHING
        if not present and not planned:
            return

        names = [
            name for name in self.make_keys(key, body=body) if name in present or name in planned
        ]
        for name in names:
            put(body, patch, (*ANNOTATIONS, name), None)
        if names:
            self._mark_prefix(body, patch)

    def _mark_prefix(self, body: Mapping[str, Any], patch: dict[str, Any]) -> None:
        """Mark the prefix with the first value stored under it; the usual prefixes need no mark."""
        if self.prefix.startswith('kopf.'):
            return

        marker = f'{self.prefix}/{MARKER}'
        stored = {
            name
            for name, value in dicts.resolve_mapping(patch, ANNOTATIONS).items()
            if value is not None
        }
        if any(name.startswith(f'{self.prefix}/') for name in stored - {marker}):
            put(body, patch, (*ANNOTATIONS, marker), 'yes')
        else:
            dicts.remove(patch, (*ANNOTATIONS, marker))

    def _remove_own_annotations(self, essence: bodies.BodyEssence) -> None:
        """
        Remove everything under the prefix, even if it is not marked yet: the mark must not change
        the essence.
        """
        annotations = dicts.resolve_mapping(essence, ANNOTATIONS)
        if annotations:
            self.remove_annotations(essence, set(filter(self._is_own, annotations)))

    def _is_own(self, name: str) -> bool:
        return name.startswith(f'{self.prefix}/')


def put(body: Mapping[str, Any], patch: dict[str, Any], path: dicts.FieldPath, value: Any) -> None:
    """
    Make the patch set the value in the body, or remove the field if the value is ``None``.

    If the body already has this value, the field is removed from the patch.
    """
    present = dicts.resolve(body, path)
    if present is value or dicts.is_same(present, value):
        if len(patch):
            dicts.remove(patch, path)
    else:
        dicts.ensure(patch, path, value)


def decode(value: Any) -> dict[str, Any] | None:
    """Read a JSON object; return ``None`` for anything else, which may be edited by hand."""
    if not isinstance(value, str):
        return None
    try:
        decoded = documents.read_shallow(value)
    except ValueError:
        return None

    return decoded if isinstance(decoded, dict) else None


def is_equivalent(present: Any, value: str, meaning: Mapping[str, Any] | None) -> bool:
    """Return whether the present text is the same, except for the order of keys and spaces."""
    if present is None or present == value or meaning is None:
        return bool(present == value)
    decoded = decode(present)
    # The first comparison is much faster, but it confuses true with 1.
    return decoded == meaning and dicts.is_same(decoded, meaning)


def parse_location(field: dicts.FieldSpec, *, name: str) -> dicts.FieldPath:
    """Return the path of a storage in the body, with the name of the storage substituted."""
    path = tuple(key.replace('{name}', name) for key in dicts.parse_field(field))
    if not path:
        raise ValueError('The field of a storage cannot be empty.')
    return path


def select_garbage(annotations: Collection[str]) -> set[str]:
    """Select the annotations of kubectl and of all our operators: their changes do not matter."""
    split = {key: key.rpartition('/') for key in annotations}
    managed = {prefix for prefix, _, name in split.values() if _is_managed(prefix, name)}
    return {key for key, (prefix, _, _) in split.items() if prefix in managed or key in GARBAGE}


def has_empty_stanzas(essence: Mapping[str, Any]) -> bool:
    """Return whether `StanzaCleaning.remove_empty_stanzas` may have anything to remove."""
    if not essence.get('status', True):
        return True
    metadata = essence.get('metadata')
    if type(metadata) is not dict:
        return 'metadata' in essence
    return not metadata or not metadata.get('labels', True) or not metadata.get('annotations', True)


def is_custom(storage: object) -> bool:
    """Return whether the storage is of a user's class, which can change essences in place."""
    return not type(storage).__module__.startswith('kopf._cogs.configs.')


def is_ours(storage: object) -> bool:
    """Return whether the storage and all storages inside of it are of our own classes."""
    return not is_custom(storage) and all(map(is_ours, getattr(storage, 'storages', ())))


def copy_essence(essence: Mapping[str, Any], *, fully: bool) -> bodies.BodyEssence:
    """Copy an essence in full, or only enough to remove its stanzas and annotations in place."""
    if fully:
        return cast(bodies.BodyEssence, dicts.plain(essence))
    copied = dict(essence)
    if 'metadata' in copied:
        copied['metadata'] = dict(copied['metadata'])
        if 'annotations' in copied['metadata']:
            copied['metadata']['annotations'] = dict(copied['metadata']['annotations'])

    return cast(bodies.BodyEssence, copied)


def _is_managed(prefix: str, name: str) -> bool:
    if (
        prefix == _KNOWN_DOMAIN
        or prefix.endswith(f'.{_KNOWN_DOMAIN}')
        or (prefix and name == MARKER)
    ):
        return True
    # Such prefixes are never marked, but all their operators finally store this annotation.
    return prefix.startswith('kopf.') and name == LAST_HANDLED


@functools.lru_cache(maxsize=1000)
def _make_name(key: str) -> str:
    """
    Make a name that Kubernetes accepts from any key, though it can be too long.

    Older versions could not store keys such as ``_fn`` or ``naïve`` at all, so these can get any
    name.
    """
    name = KeyForming.make_safe_key(key)
    if re.fullmatch(r'[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?', name):
        return name

    readable = re.sub(r'[^A-Za-z0-9._-]', '_', name).strip('._-')
    return (readable or 'id') + _make_suffix(key)


def _make_suffix(key: str) -> str:
    # It loads the TLS library, and long ids are rare.
    import hashlib

    digest = hashlib.blake2b(key.encode('utf-8', errors='surrogatepass'), digest_size=4).digest()
    return '-' + base64.b64encode(digest, altchars=b'-.').decode('ascii').rstrip('=-.')
