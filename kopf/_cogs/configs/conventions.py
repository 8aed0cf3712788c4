"""
Conventions: how the storages name, mark and hide what they keep on the objects.

The names of annotations are a contract with other versions of the framework and with other operators.
Essences share their nested values with the bodies that they are made of, and are only for reading, except for those
that are given to users' own storages: these have copies, free to be changed.
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
"""The name of the annotation by which other operators know that its prefix is not theirs."""

LAST_HANDLED = 'last-handled-configuration'
"""The name of the annotation with the last handled state, by default."""

GARBAGE = frozenset({'kubectl.kubernetes.io/last-applied-configuration'})
"""The annotations of other tools that change with anything else."""

_KNOWN_DOMAIN = 'kopf.zalando.org'
ANNOTATIONS = ('metadata', 'annotations')
_LONGEST_NAME = 63
_NOTHING: Mapping[str, Any] = {}
_KNOWN_KEYS = 1000  # ids of sub-handlers can be of any number
_LONGEST_PREFIX = 253 - len('/') - _LONGEST_NAME


class StanzaCleaning:
    """Removes what is not essential from the essences, in place."""

    @staticmethod
    def remove_annotations(essence: bodies.BodyEssence, keys_to_remove: Collection[str]) -> None:
        """Remove these annotations, if they are there."""
        annotations = dicts.resolve(essence, ANNOTATIONS)
        if keys_to_remove and isinstance(annotations, MutableMapping):
            for key in [key for key in annotations if key in keys_to_remove]:
                del annotations[key]

    @staticmethod
    def remove_empty_stanzas(essence: bodies.BodyEssence) -> None:
        """Remove the labels, annotations, metadata and status, if there is nothing in them."""
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
    Makes the names of annotations under one prefix.

    Names are limited in length, and long ones are cut and closed with a digest. There were two ways to do so;
    the older one is for the operators of older versions to read.
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
        """Make all the annotations of the key: to write to all of them, to read from the first one that is there."""
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
        """Make an annotation, limited in length with its prefix; the digest is of the name as it would be uncut."""
        name = _make_name(key)
        return f'{self.prefix}/{self._cut(name, name, max_length - len(self.prefix) - 1)}'

    def make_v2_key(self, key: str, max_length: int = _LONGEST_NAME) -> str:
        """Make an annotation, limited in length of its name; the digest is of the key."""
        return f'{self.prefix}/{self._cut(_make_name(key), key, max_length)}'

    def _cut(self, name: str, origin: str, max_length: int) -> str:
        if len(name) <= max_length:
            return name
        suffix = self.make_suffix(origin)
        return name[: max(1, max_length - len(suffix))] + suffix

    def make_suffix(self, key: str) -> str:
        """Make a digest of the key, with a dash."""
        return _make_suffix(key)

    @staticmethod
    def make_safe_key(key: str) -> str:
        """Replace what is usual in the ids of handlers, but not allowed in the names of annotations."""
        return key.replace('/', '.').replace('<', '_').replace('>', '_')

    def mark_key(self, key: str, *, body: Mapping[str, Any]) -> str:
        """Distinguish ReplicaSets from their Deployments, from which Kubernetes copies the annotations to them."""
        if body.get('kind') == 'ReplicaSet':
            owners = dicts.resolve(body, ('metadata', 'ownerReferences'), ())
            if any(
                isinstance(owner, Mapping) and owner.get('kind') == 'Deployment' for owner in owners
            ):
                return f'{key}-ofDRS'
        return key


class AnnotationStoring(KeyForming, StanzaCleaning):
    """Keeps JSON values in annotations."""

    def _fetch_value(self, body: Mapping[str, Any], key: str) -> dict[str, Any] | None:
        """Get the first of those that can be read, the preferred ones first."""
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
        """Put the value under all names of the key, unless it is there already, or something of the same meaning."""
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
        """Claim the prefix together with the first value stored under it; usual prefixes are known anyway."""
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
        """Remove everything under the prefix: also before it is marked, for the essence to be the same after that."""
        annotations = dicts.resolve_mapping(essence, ANNOTATIONS)
        if annotations:
            self.remove_annotations(essence, set(filter(self._is_own, annotations)))

    def _is_own(self, name: str) -> bool:
        return name.startswith(f'{self.prefix}/')


def put(body: Mapping[str, Any], patch: dict[str, Any], path: dicts.FieldPath, value: Any) -> None:
    """
    Let the patch bring the value to the body, or remove what is there if it is ``None``.

    If the body is already so, nothing is left in the patch, whatever was put there before.
    """
    present = dicts.resolve(body, path)
    if present is value or dicts.is_same(present, value):
        if len(patch):
            dicts.remove(patch, path)
    else:
        dicts.ensure(patch, path, value)


def decode(value: Any) -> dict[str, Any] | None:
    """Read a JSON object; anything else, maybe edited by hand, is as if there is nothing."""
    if not isinstance(value, str):
        return None
    try:
        decoded = documents.read_shallow(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None


def is_equivalent(present: Any, value: str, meaning: Mapping[str, Any] | None) -> bool:
    """Tell if the text that is there is the same, or means the same, whatever the order of its keys and the spaces."""
    if present is None or present == value or meaning is None:
        return bool(present == value)
    decoded = decode(present)
    return decoded == meaning and dicts.is_same(
        decoded, meaning
    )  # the former is much faster, but true is 1 for it


def parse_location(field: dicts.FieldSpec, *, name: str) -> dicts.FieldPath:
    """Get the path of a storage in the body, with the name of the storage put where it belongs."""
    path = tuple(key.replace('{name}', name) for key in dicts.parse_field(field))
    if not path:
        raise ValueError('The field of a storage cannot be empty.')
    return path


def select_garbage(annotations: Collection[str]) -> set[str]:
    """Choose the annotations of kubectl and of all operators of this framework: their changes mean nothing."""
    split = {key: key.rpartition('/') for key in annotations}
    managed = {prefix for prefix, _, name in split.values() if _is_managed(prefix, name)}
    return {key for key, (prefix, _, _) in split.items() if prefix in managed or key in GARBAGE}


def has_empty_stanzas(essence: Mapping[str, Any]) -> bool:
    """Return whether `StanzaCleaning.remove_empty_stanzas` can have anything to remove."""
    if not essence.get('status', True):
        return True
    metadata = essence.get('metadata')
    if type(metadata) is not dict:
        return 'metadata' in essence
    return not metadata or not metadata.get('labels', True) or not metadata.get('annotations', True)


def is_custom(storage: object) -> bool:
    """Tell if the storage is of users' own class: unlike ours, it can change the essences in place."""
    return not type(storage).__module__.startswith('kopf._cogs.configs.')


def is_ours(storage: object) -> bool:
    """Return whether the storage and all storages inside of it are of our own classes."""
    return not is_custom(storage) and all(map(is_ours, getattr(storage, 'storages', ())))


def copy_essence(essence: Mapping[str, Any], *, fully: bool) -> bodies.BodyEssence:
    """Copy an essence in full, or only as much as is needed to remove stanzas and annotations from it in place."""
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
    # Such prefixes are never marked, but their operators are seen by what all of them store in the end.
    return prefix.startswith('kopf.') and name == LAST_HANDLED


@functools.lru_cache(maxsize=1000)
def _make_name(key: str) -> str:
    """
    Make a name that Kubernetes accepts, whatever the key is, though it can be too long.

    A key such as ``_fn`` or ``naïve`` could not be stored by older versions at all, so it can get any name.
    """
    name = KeyForming.make_safe_key(key)
    if re.fullmatch(r'[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?', name):
        return name
    readable = re.sub(r'[^A-Za-z0-9._-]', '_', name).strip('._-')
    return (readable or 'id') + _make_suffix(key)


def _make_suffix(key: str) -> str:
    import hashlib  # it loads the TLS library, and long ids are rare

    digest = hashlib.blake2b(key.encode('utf-8', errors='surrogatepass'), digest_size=4).digest()
    return '-' + base64.b64encode(digest, altchars=b'-.').decode('ascii').rstrip('=-.')
