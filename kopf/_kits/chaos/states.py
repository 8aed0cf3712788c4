"""
States: the objects of a cluster in the end of a run, without what differs from run to run, and how two of them differ.
"""

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kopf._cogs.structs import dicts, diffs

WEBHOOKS = frozenset({'MutatingWebhookConfiguration', 'ValidatingWebhookConfiguration'})
"""The kinds in which operators tell where they serve webhooks: at random ports, with new certificates every time."""

VOLATILE = (
    'resourceVersion',
    'uid',
    'creationTimestamp',
    'generation',
    'managedFields',
    'selfLink',
)
"""What is in the metadata of objects by the will of the API, and is never the same."""

IGNORED = frozenset({'Event', 'Lease', 'CustomResourceDefinition'})
"""The kinds that tell nothing of what an operator has achieved."""

LONGEST = 200  # characters of a shown value

State = Mapping[str, Sequence[Mapping[str, Any]]]
"""The objects by their kinds and names. Those with generated names can be several under one name."""


@dataclasses.dataclass(frozen=True)
class Blindness:
    """Which fields are not compared: dotted paths, of all kinds (``status.since``) or of one (``Pod.status``)."""

    fields: tuple[str, ...] = ()

    def select(self, kind: str) -> Iterable[tuple[str, ...]]:
        for field in self.fields:
            head, _, rest = field.partition('.')
            if head[:1].isupper():
                if head == kind and rest:
                    yield dicts.parse_field(rest)
            else:
                yield dicts.parse_field(field)


def build_state(objects: Collection[Mapping[str, Any]], blindness: Blindness) -> State:
    """Take what is to be compared of all objects of a cluster."""
    labels = {body['metadata'].get('uid'): name_object(body) for body in objects}
    state: dict[str, list[Mapping[str, Any]]] = {}
    for body in objects:
        if body.get('kind') not in IGNORED:
            state.setdefault(name_object(body), []).append(_strip(body, labels, blindness))
    return {name: sorted(bodies, key=_dump) for name, bodies in sorted(state.items())}


def name_object(body: Mapping[str, Any]) -> str:
    """Name an object so that it has the same name in all runs, even if the name is generated."""
    meta = body['metadata']
    name = f'{meta["generateName"]}*' if meta.get('generateName') else meta['name']
    return (
        f'{body.get("kind")} {meta["namespace"]}/{name}'
        if meta.get('namespace')
        else f'{body.get("kind")} {name}'
    )


def compare_states(expected: State, actual: State) -> list[str]:
    """Tell what is different, in lines; there are none if all is the same."""
    return [
        line
        for name in sorted({*expected, *actual})
        for line in _compare_namesakes(name, expected.get(name, ()), actual.get(name, ()))
    ]


def _compare_namesakes(
    name: str, expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    if len(expected) == len(actual) == 1:
        for _, field, old, new in diffs.diff(expected[0], actual[0]):
            yield f'{name}: {".".join(field)} is {_show(new)}, not {_show(old)}'
    elif len(expected) != len(actual):
        texts = {0: 'absent', 1: 'there'}
        told = [
            texts.get(len(bodies), f'{len(bodies)} times there') for bodies in (actual, expected)
        ]
        yield f'{name}: is {told[0]}, not {told[1]}'
    elif expected != actual:
        yield f'{name}: some of {len(actual)} are different'


def _strip(
    body: Mapping[str, Any], labels: Mapping[str, str], blindness: Blindness
) -> Mapping[str, Any]:
    """Drop the volatile fields, and call other objects by their names, not by their identifiers."""
    kept: dict[str, Any] = _relabel(body, labels)
    metadata = kept['metadata']
    for field in (*VOLATILE, *(['name'] if metadata.get('generateName') else [])):
        metadata.pop(field, None)
    if 'deletionTimestamp' in metadata:
        metadata['deletionTimestamp'] = 'some time ago'
    for webhook in kept.get('webhooks', ()) if body.get('kind') in WEBHOOKS else ():
        webhook.pop('clientConfig', None)
    for path in blindness.select(body.get('kind', '')):
        dicts.remove(kept, path)
    return kept


def _relabel(value: Any, labels: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _relabel(item, labels) for key, item in value.items()}
    if isinstance(value, list):
        return [_relabel(item, labels) for item in value]
    return labels.get(value, value) if isinstance(value, str) else value


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _show(value: Any) -> str:
    text = 'absent' if value is None else _dump(value)
    return text if len(text) <= LONGEST else f'{text[:LONGEST]}...'
