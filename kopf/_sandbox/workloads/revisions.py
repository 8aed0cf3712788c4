"""
Revisions: the past and present pod templates of stateful sets and daemon sets. All pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

LABEL = 'controller-revision-hash'
_ESCAPED: dict[str, str | int | None] = {'<': '\\u003c', '>': '\\u003e', '&': '\\u0026'}


def build_data(owner: Object) -> Body:
    """Build the content of a revision: a patch that restores the template."""
    return {'spec': {'template': {**owner['spec']['template'], '$patch': 'replace'}}}


def encode_data(data: Object) -> bytes:
    """Encode the content as the API server does, so that its hash is the same."""
    text = json.dumps(data, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    return text.translate(str.maketrans(_ESCAPED)).encode()


def build_revision(owner: Body, number: int, *, label: str) -> Body:
    """Build the revision of the current template; ``label`` is that with the hash."""
    meta = owner['metadata']
    spec = owner['spec']
    collisions = (owner.get('status') or {}).get('collisionCount') or 0
    data = build_data(owner)
    digest = dependents.encode_hash(
        dependents.hash_multiplying(encode_data(data) + str(collisions).encode())
    )
    labels = (spec['template'].get('metadata') or {}).get('labels') or {}
    annotations = meta.get('annotations') or {}

    return {
        'apiVersion': 'apps/v1',
        'kind': 'ControllerRevision',
        'metadata': {
            'name': f'{meta["name"]}-{digest}',
            'namespace': meta['namespace'],
            'labels': {**labels, label: digest},
            **({'annotations': dict(annotations)} if annotations else {}),
            'ownerReferences': [dependents.build_reference(owner)],
        },
        'data': data,
        'revision': number,
    }


def find_current(owner: Object, known: Sequence[Body]) -> Body | None:
    """Find the latest revision with the current template."""
    data = build_data(owner)
    found = [item for item in known if item.get('data') == data]
    return max(found, key=get_number, default=None)


def get_number(revision: Object) -> int:
    return int(revision.get('revision') or 0)


def get_template(revision: Object) -> Body:
    """Return the pod template of a revision."""
    template = revision['data']['spec']['template']
    return {name: value for name, value in template.items() if name != '$patch'}


def choose_obsolete(
    owner: Object, known: Sequence[Body], used: set[str], limit: int | None
) -> list[Body]:
    """Choose the revisions beyond the history; ``used`` are the names of those still needed."""
    unused = sorted(
        (item for item in known if item['metadata']['name'] not in used), key=get_number
    )
    return unused[: max(0, len(unused) - (10 if limit is None else limit))]


def get_pod_revision(pod: Object) -> str:
    return (pod['metadata'].get('labels') or {}).get(LABEL) or ''


def is_healthy(pod: Object) -> bool:
    """Return whether a pod runs, is ready, and stays."""
    return pod_states.is_ready(pod) and not pod_states.is_leaving(pod)
