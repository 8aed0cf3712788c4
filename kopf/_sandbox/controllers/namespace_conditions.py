"""
Namespace conditions: the report on the remaining contents of a namespace that is being deleted.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kopf._sandbox.meta import kinds

_SUCCESSES: Final = {
    'NamespaceDeletionDiscoveryFailure': (
        'ResourcesDiscovered',
        'All resources successfully discovered',
    ),
    'NamespaceDeletionGroupVersionParsingFailure': (
        'ParsedGroupVersions',
        'All legacy kube types successfully parsed',
    ),
    'NamespaceDeletionContentFailure': (
        'ContentDeleted',
        'All content successfully deleted, may be waiting on finalization',
    ),
    'NamespaceContentRemaining': ('ContentRemoved', 'All content successfully removed'),
    'NamespaceFinalizersRemaining': (
        'ContentHasNoFinalizers',
        'All content-preserving finalizers finished',
    ),
}


def note_contents(
    namespace: dict[str, Any], contents: Iterable[tuple[kinds.Home, Mapping[str, Any]]]
) -> None:
    """Report the remaining objects in the conditions of a namespace. Modifies the namespace."""
    resources: collections.Counter[str] = collections.Counter()
    finalizers: collections.Counter[str] = collections.Counter()
    for home, body in contents:
        resources[f'{home.plural}.{home.group} has'] += 1
        finalizers.update(f'{name} in' for name in body['metadata'].get('finalizers') or ())

    troubles = {}
    if resources:
        text = f'Some resources are remaining: {_count(resources)}'
        troubles['NamespaceContentRemaining'] = ('SomeResourcesRemain', text)

    if finalizers:
        text = f'Some content in the namespace has finalizers remaining: {_count(finalizers)}'
        troubles['NamespaceFinalizersRemaining'] = ('SomeFinalizersRemain', text)

    status = namespace.setdefault('status', {})
    status['conditions'] = [
        {
            'type': kind,
            'status': 'True' if kind in troubles else 'False',
            'lastTransitionTime': namespace['metadata'].get('deletionTimestamp'),
            'reason': reason,
            'message': message,
        }
        for kind, (reason, message) in (_SUCCESSES | troubles).items()
    ]


def _count(counter: Mapping[str, int]) -> str:
    return ', '.join(
        sorted(f'{text} {number} resource instances' for text, number in counter.items())
    )
