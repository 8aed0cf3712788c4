"""
Runtime classes: pods get the overhead, the nodes and the tolerations of theirs.
"""

from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.meta import kinds, quantities
from kopf._sandbox.registry.plugins import subjects

CLASSES: Final = kinds.Home('node.k8s.io', 'runtimeclasses')

_UNDEFINED: Final = (
    'pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead'
)
_MISMATCH: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def mutate(subject: subjects.Subject) -> None:
    """Merge the class of a new pod into the pod. Raises the API's 403 if they disagree."""
    spec = subject.obj['spec']
    name = spec.get('runtimeClassName') or ''
    stored = subject.store.get(CLASSES, '', name) if name else None
    if name and stored is None:
        raise subject.forbid(f'pod rejected: RuntimeClass "{name}" not found')

    found = {} if stored is None else stored.load()
    overhead = (found.get('overhead') or {}).get('podFixed')
    if spec.get('overhead') and not overhead:
        raise subject.forbid(_UNDEFINED)
    if overhead and not _is_same(spec.setdefault('overhead', dict(overhead)), overhead):
        raise subject.forbid(_MISMATCH)

    _schedule(subject, spec, found.get('scheduling') or {})


def _schedule(
    subject: subjects.Subject, spec: dict[str, Any], scheduling: Mapping[str, Any]
) -> None:
    """Merge the selector of nodes and the tolerations of a class. Modifies the spec of the pod."""
    known = spec.get('nodeSelector') or {}
    wanted = scheduling.get('nodeSelector') or {}
    for key, value in wanted.items():
        if known.get(key, value) != value:
            raise subject.forbid(
                f'conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; '
                f'pod.spec.nodeSelector[{key}] = {known[key]}'
            )

    if wanted:
        spec['nodeSelector'] = {**known, **wanted}
    tolerations = spec.get('tolerations') or []
    added = [item for item in scheduling.get('tolerations') or () if item not in tolerations]
    if added:
        spec['tolerations'] = [*tolerations, *added]


def _is_same(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return given.keys() == wanted.keys() and all(
        quantities.parse_quantity(given[name]) == quantities.parse_quantity(wanted[name])
        for name in wanted
    )
