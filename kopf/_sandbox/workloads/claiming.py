"""
Claiming: controllers take over the matching objects that have no controller, and let go those that
do not match anymore.
"""

from typing import Any

from kopf._sandbox.meta import kinds
from kopf._sandbox.workloads import dependents, lookups, requesting

Body = dict[str, Any]


async def claim(
    lookup: lookups.Lookup, client: requesting.Client, owner: Body, home: kinds.Home
) -> list[Body]:
    """Adopt and release the objects of a resource; return those of the owner."""
    meta = owner['metadata']
    selector = (owner.get('spec') or {}).get('selector')
    found = dependents.claim(
        owner,
        selector,
        lookup.list_controlled(meta['uid'], home),
        lookup.select(home, meta['namespace']),
    )
    for body in found.released:
        await client.change(home, body, lambda obj: _release(obj, meta['uid']))
    adopted = []
    for body in found.adopted:
        changed = await client.change(home, body, lambda obj: _adopt(obj, owner))
        adopted += [changed] if changed is not None else []

    return [*found.owned, *adopted]


def _adopt(body: Body, owner: Body) -> None:
    references = body['metadata'].setdefault('ownerReferences', [])
    if not any(reference.get('controller') for reference in references):
        references.append(dependents.build_reference(owner))


def _release(body: Body, uid: str) -> None:
    references = body['metadata'].pop('ownerReferences', None) or []
    kept = [reference for reference in references if reference.get('uid') != uid]
    body['metadata'].update({'ownerReferences': kept} if kept else {})
