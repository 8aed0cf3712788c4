"""
Dependents: how controllers make their objects, and which of the existing ones are theirs. All pure.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._sandbox.meta import metadata
from kopf._sandbox.registry.rules import checks
from kopf._sandbox.workloads import pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

_OFFSET = 2166136261
_PRIME = 16777619


@dataclasses.dataclass(frozen=True)
class Claim:
    """Which objects a controller has, which ones it takes over, and which ones it lets go."""

    owned: Sequence[Body]
    adopted: Sequence[Body]
    released: Sequence[Body]


def claim(
    owner: Body, selector: Object | None, controlled: Iterable[Body], others: Iterable[Body]
) -> Claim:
    """
    Compare the objects with the selector of their controller.

    ``controlled`` are those that refer to it; of the ``others``, those with no controller match.
    """
    owned = []
    released = []
    adopted = []

    for body in controlled:
        if checks.matches(selector, body['metadata'].get('labels') or {}):
            owned.append(body)
        elif not pod_states.is_leaving(owner):
            released.append(body)

    if not pod_states.is_leaving(owner):
        adopted = [body for body in others if _is_free(body, selector)]
    return Claim(owned, adopted, released)


def _is_free(body: Body, selector: Object | None) -> bool:
    meta = body['metadata']
    return (
        checks.matches(selector, meta.get('labels') or {})
        and not pod_states.is_leaving(body)
        and not any(item.get('controller') for item in meta.get('ownerReferences') or ())
    )


def build_reference(owner: Object) -> Body:
    """Build the reference to a controller."""
    return {
        'apiVersion': owner['apiVersion'],
        'kind': owner['kind'],
        'name': owner['metadata']['name'],
        'uid': owner['metadata']['uid'],
        'controller': True,
        'blockOwnerDeletion': True,
    }


def build_pod(owner: Object, template: Object) -> Body:
    """Build a pod of a template, with a name to be generated."""
    meta = template.get('metadata') or {}
    prefix = f'{owner["metadata"]["name"]}-'
    kept = {key: meta[key] for key in ('labels', 'annotations', 'finalizers') if meta.get(key)}

    return {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {
            'generateName': prefix,
            'namespace': owner['metadata']['namespace'],
            **kept,
            'ownerReferences': [build_reference(owner)],
        },
        'spec': dict(template.get('spec') or {}),
    }


def compute_hash(value: Any, collisions: int = 0) -> str:
    """Return a short hash of a JSON value, with the characters of generated names."""
    text = json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    return encode_hash(
        hash_multiplying(text.encode() + (str(collisions).encode() if collisions else b''))
    )


def hash_multiplying(content: bytes) -> int:
    """Return the 32-bit FNV-1 hash, which the controllers of clusters use."""
    number = _OFFSET
    for byte in content:
        number = (number * _PRIME % 2**32) ^ byte
    return number


def encode_hash(number: int) -> str:
    """Encode a hash with the characters of generated names."""
    alphabet = metadata.SUFFIX_ALPHABET
    return ''.join(alphabet[ord(char) % len(alphabet)] for char in str(number))


def drop_label(template: Object, label: str) -> Body:
    """Return a pod template without a label."""
    meta = dict(template.get('metadata') or {})
    labels = {key: value for key, value in (meta.pop('labels', None) or {}).items() if key != label}
    return {**template, 'metadata': {**meta, **({'labels': labels} if labels else {})}}


def count_by_node(pods: Iterable[Object]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pod in pods:
        node = (pod.get('spec') or {}).get('nodeName') or ''
        counts[node] = counts.get(node, 0) + 1
    return counts
