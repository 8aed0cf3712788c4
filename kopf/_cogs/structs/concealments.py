"""
Concealments: Secrets that can be used, but are not shown.

Handlers get all values of Secrets. When these values are printed or logged as a part of a bigger
structure, they are masked. The last handled states of Secrets can be kept with digests of the
values: these reveal only whether the values have changed. The digests are keyed by the uid of the
object, so equal values of different objects have different digests. Still, short or guessable
values can be found by trial.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from kopf._cogs.structs import bodies, dicts, diffs

MASK = bodies.MASK
PREFIX = 'digest:'  # cannot occur in base64

_STANZAS = ('data', 'stringData')


class ConcealedObject(dict[str, Any]):
    """An object or its essence that is shown without the values of its data and annotations."""

    def __repr__(self) -> str:
        return repr(bodies.conceal(dict(self)))


class ConcealedValues(dict[str, Any]):
    """A part of an object that is shown with its keys only."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, MASK))


class ConcealedItem(diffs.DiffItem):
    """A changed field that is shown without values."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = [None if value is None else MASK for value in (self.old, self.new)]
        return repr((self.operation, self.field, *shown))


def conceal_state(state: Any, field: dicts.FieldPath | None = None) -> Any:
    """Return the same state of an object or its field, but shown with masks, if it is a dict."""
    if not isinstance(state, dict):
        return state
    _register_in_yaml()
    return ConcealedValues(state) if field else ConcealedObject(state)


def conceal_diff(diff: diffs.Diff) -> diffs.Diff:
    """Return the same diff, but shown with masks."""
    return diffs.Diff(ConcealedItem(*item) for item in diff)


def conceal_event(event: bodies.RawEvent) -> bodies.RawEvent:
    """Return the same event, but shown with masks."""
    _register_in_yaml()
    return {**event, 'object': ConcealedObject(event['object'])}  # type: ignore[typeddict-item]


@functools.cache
def _register_in_yaml() -> None:
    """Make PyYAML write these classes as dicts: unlike other libraries, it refuses them."""
    import yaml

    for name in ('SafeDumper', 'Dumper', 'CSafeDumper', 'CDumper'):
        dumper = getattr(yaml, name, None)  # the dumpers in C may be absent
        for cls in (ConcealedObject, ConcealedValues):
            if dumper is not None:
                dumper.add_representer(cls, dumper.represent_dict)


def digest(essence: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Replace the values with their digests, except for those that already are digests."""
    return _replace(
        essence, lambda path, value: value if is_digest(value) else make_digest(value, uid)
    )


def restore(essence: Mapping[str, Any], origin: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Replace digests with the values of another state where they match, or else with masks."""

    def replace(path: dicts.FieldPath, value: Any) -> Any:
        if not is_digest(value):
            return value
        candidate = dicts.resolve(origin, path)
        return candidate if candidate is not None and make_digest(candidate, uid) == value else MASK

    return _replace(essence, replace)


def make_digest(value: Any, uid: str) -> str:
    """Make a digest of a value, different for each object."""
    # It loads the TLS library, and most operators do not handle Secrets.
    import hashlib

    raw = str(value).encode('utf-8', errors='surrogatepass')
    return PREFIX + hashlib.blake2b(raw, key=uid.encode()[:64], digest_size=16).hexdigest()


def is_digest(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)


def _replace(
    essence: Mapping[str, Any], replace: Callable[[dicts.FieldPath, Any], Any]
) -> dict[str, Any]:
    replaced = dict(essence)
    for stanza in _STANZAS:
        if dicts.is_mapping(essence.get(stanza)):
            replaced[stanza] = {
                key: replace((stanza, key), value) for key, value in essence[stanza].items()
            }
    return replaced
