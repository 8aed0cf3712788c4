"""
Approvals: the conditions of certificate signing requests, which say whether they are approved.

Approvals and denials are final, and exclude each other. Only the subresource ``approval`` sets
them; the certificates are set through the status.
"""

from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.meta import errors, kinds

REQUESTS: Final = kinds.Home('certificates.k8s.io', 'certificatesigningrequests')
DECISIONS: Final = ('Approved', 'Denied')

Body = Mapping[str, Any]


def merge_status(obj: Body, old: Body, *, is_approval: bool, now: str) -> dict[str, Any]:
    """Return the new status: an approval changes only the conditions."""
    new = dict(obj.get('status') or {})
    known = dict(old.get('status') or {})
    status = {**known, 'conditions': new.get('conditions') or []} if is_approval else new
    before = {item.get('type'): item for item in known.get('conditions') or ()}
    conditions = [
        _stamp(item, before.get(item.get('type')) or {}, now)
        for item in status.get('conditions') or ()
    ]
    if conditions:
        return {**status, 'conditions': conditions}
    return {name: value for name, value in status.items() if name != 'conditions'}


def _stamp(condition: Body, before: Body, now: str) -> dict[str, Any]:
    """Set the times of a condition; that of the last transition is kept if nothing has changed."""
    is_same = bool(before) and before.get('status') == condition.get('status')
    since = before.get('lastTransitionTime') if is_same else now
    times = {'lastUpdateTime': now, 'lastTransitionTime': since}
    if is_same:
        times['lastUpdateTime'] = before.get('lastUpdateTime') or now
    return {**condition, **{name: condition.get(name) or time for name, time in times.items()}}


def validate(obj: Body, old: Body, *, is_approval: bool) -> list[errors.FieldError]:
    """Return the problems of the conditions of an updated request."""
    field = 'status.conditions'
    conditions = _list_conditions(obj)
    types = [item.get('type') for item in conditions]
    known = [item.get('type') for item in _list_conditions(old)]
    problems = [
        errors.not_supported(f'{field}[{index}].status', item.get('status') or '', ['True'])
        for index, item in enumerate(conditions)
        if item.get('type') in (*DECISIONS, 'Failed') and item.get('status') != 'True'
    ]

    if all(name in types for name in DECISIONS):
        second = max(DECISIONS, key=types.index)
        text = 'Approved and Denied conditions are mutually exclusive'
        problems.append(errors.invalid_value(field, second, text))

    lost = [name for name in (*DECISIONS, 'Failed') if name in known and name not in types]
    problems += [_forbid(field, 'remove', name) for name in lost]
    if is_approval:
        return problems

    added = [name for name in DECISIONS if name in types and name not in known]
    return problems + [_forbid(field, 'add', name) for name in added]


def _list_conditions(obj: Body) -> list[dict[str, Any]]:
    return (obj.get('status') or {}).get('conditions') or []


def _forbid(field: str, what: str, name: str) -> errors.FieldError:
    return errors.forbidden_field(field, f'updates may not {what} a condition of type "{name}"')
