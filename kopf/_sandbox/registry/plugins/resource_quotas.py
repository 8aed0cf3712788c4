"""
Resource quotas: objects that would exceed the quotas of their namespace are refused.

What is used is measured on the stored objects, not read from the status of the quotas, so that it
is always exact.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kopf._sandbox.meta import kinds
from kopf._sandbox.registry.plugins import quota_usage, resource_sums, subjects
from kopf._sandbox.storage import memory

QUOTAS: Final = kinds.Home('', 'resourcequotas')


def validate(subject: subjects.Subject) -> None:
    """Raise the API's 403 if an object does not fit into some quota of its namespace."""
    namespace = subject.request.namespace
    for quota in subject.list(QUOTAS, namespace):
        hard = (quota.get('spec') or {}).get('hard') or {}
        if not hard or not quota_usage.is_selected(quota, subject.home, subject.obj):
            continue
        if subject.home == subjects.PODS and subject.is_new:
            _check_specified(subject, quota, hard)
        _check_amounts(subject, quota, hard)


def _check_specified(subject: subjects.Subject, quota: subjects.Body, hard: Any) -> None:
    missing = quota_usage.find_unspecified(subject.obj, hard)
    if missing:
        listed = '; '.join(f'{name} for: {",".join(of)}' for name, of in missing.items())
        title = quota['metadata']['name']
        raise subject.forbid(f'failed quota: {title}: must specify {listed}')


def _check_amounts(
    subject: subjects.Subject, quota: subjects.Body, hard: Mapping[str, str]
) -> None:
    usage = quota_usage.measure(subject.home, subject.obj)
    before = {} if subject.old is None else quota_usage.measure(subject.home, subject.old)
    grown = {
        name: amount for name, amount in quota_usage.subtract(usage, before).items() if name in hard
    }
    if not grown:
        return

    used = sum_usage(subject.store, quota)
    exceeded = sorted(
        name
        for name, amount in grown.items()
        if resource_sums.parse(used[name]) + amount > resource_sums.parse(hard[name])
    )
    if exceeded:
        asked = {name: usage[name] for name in exceeded}
        raise subject.forbid(
            f'exceeded quota: {quota["metadata"]["name"]}, requested: {_show(asked, exceeded)}, '
            f'used: {_show(used, exceeded)}, limited: {_show(hard, exceeded)}'
        )


def sum_usage(store: memory.Storage, quota: subjects.Body) -> dict[str, str]:
    """Return how much of each resource of a quota is used in its namespace."""
    hard = (quota.get('spec') or {}).get('hard') or {}
    amounts: dict[str, list[str]] = {name: [] for name in hard}
    for home, shelf in store:
        for stored in shelf.select(quota['metadata']['namespace']):
            body = stored.load()
            if not stored.namespace or not quota_usage.is_selected(quota, home, body):
                continue
            for name, amount in quota_usage.measure(home, body).items():
                if name in amounts:
                    amounts[name].append(amount)

    return {name: resource_sums.add_texts(items) for name, items in amounts.items()}


def _show(amounts: Mapping[str, str], names: Iterable[str]) -> str:
    return ','.join(f'{name}={amounts[name]}' for name in names)
