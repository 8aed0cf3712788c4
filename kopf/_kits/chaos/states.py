"""
States: the objects of a cluster at the end of a run, and the differences between two of them.

The fields that differ from run to run are left out.
"""

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kopf._cogs.structs import dicts, diffs

WEBHOOKS = frozenset({'MutatingWebhookConfiguration', 'ValidatingWebhookConfiguration'})
"""The kinds with the addresses of webhooks, with random ports and new certificates every time."""

VOLATILE = (
    'resourceVersion',
    'uid',
    'creationTimestamp',
    'generation',
    'managedFields',
    'selfLink',
)
"""The fields of metadata that the API sets, and that differ in every run."""

IGNORED = frozenset({'Event', 'Lease', 'CustomResourceDefinition'})
"""The kinds that do not show what an operator has achieved."""

PUBLISHED = frozenset(
    (
        'Service default/kubernetes',
        'Endpoints default/kubernetes',
        'EndpointSlice default/kubernetes',
        'ServiceCIDR kubernetes',
    )
)
"""The objects with the address and the time of the start of the API server."""

LONGEST = 200  # characters of a shown value

State = Mapping[str, Sequence[Mapping[str, Any]]]
"""The objects by kind and name; objects with generated names can share one name."""


@dataclasses.dataclass(frozen=True)
class Blindness:
    """The fields not to compare, of all kinds (``status.since``) or of one (``Pod.status``)."""

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
    """Extract the comparable parts of all objects of a cluster."""
    labels = {body['metadata'].get('uid'): name_object(body) for body in objects}
    state: dict[str, list[Mapping[str, Any]]] = {}
    for body in objects:
        name = name_object(body)
        if body.get('kind') not in IGNORED and name not in PUBLISHED:
            state.setdefault(name, []).append(_strip(body, labels, blindness))

    return {name: sorted(bodies, key=_dump) for name, bodies in sorted(state.items())}


def name_object(body: Mapping[str, Any]) -> str:
    """Name an object the same in all runs, even if its name is generated."""
    meta = body['metadata']
    name = f'{meta["generateName"]}*' if meta.get('generateName') else meta['name']
    return (
        f'{body.get("kind")} {meta["namespace"]}/{name}'
        if meta.get('namespace')
        else f'{body.get("kind")} {name}'
    )


def compare_states(expected: State, actual: State) -> list[str]:
    """Return the differences, one per line."""
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
    """Drop the volatile fields, and replace the identifiers of other objects with their names."""
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
