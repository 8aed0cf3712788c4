"""
Default classes: of storages and of ingresses, for the objects that name none.
"""

from typing import Any, Final

from kopf._sandbox.meta import kinds
from kopf._sandbox.registry.plugins import subjects

STORAGE_CLASSES: Final = kinds.Home('storage.k8s.io', 'storageclasses')
INGRESS_CLASSES: Final = kinds.Home('networking.k8s.io', 'ingressclasses')
INGRESSES: Final = kinds.Home('networking.k8s.io', 'ingresses')

_STORAGE_MARKS: Final = (
    'storageclass.kubernetes.io/is-default-class',
    'storageclass.beta.kubernetes.io/is-default-class',
)
_INGRESS_MARKS: Final = ('ingressclass.kubernetes.io/is-default-class',)
_OLD_CLASS: Final = 'kubernetes.io/ingress.class'


def mutate(subject: subjects.Subject) -> None:
    """Set the default class in a new claim or ingress."""
    spec = subject.obj.get('spec') or {}
    annotations = subject.obj['metadata'].get('annotations') or {}
    if subject.home == subjects.CLAIMS and spec.get('storageClassName') is None:
        chosen = _choose(subject.list(STORAGE_CLASSES), _STORAGE_MARKS)
        subject.obj['spec'] = {**spec, 'storageClassName': chosen} if chosen else spec
    elif subject.home == INGRESSES and spec.get('ingressClassName') is None:
        chosen = (
            ''
            if _OLD_CLASS in annotations
            else _choose(subject.list(INGRESS_CLASSES), _INGRESS_MARKS)
        )
        subject.obj['spec'] = {**spec, 'ingressClassName': chosen} if chosen else spec


def _choose(classes: list[dict[str, Any]], marks: tuple[str, ...]) -> str:
    """Return the name of the default class: of several ones, of the newest."""
    marked = [item['metadata'] for item in classes if _is_marked(item['metadata'], marks)]
    latest = max((meta['creationTimestamp'] for meta in marked), default='')
    return min((meta['name'] for meta in marked if meta['creationTimestamp'] == latest), default='')


def _is_marked(meta: subjects.Body, marks: tuple[str, ...]) -> bool:
    annotations = meta.get('annotations') or {}
    return any(annotations.get(mark) == 'true' for mark in marks)
