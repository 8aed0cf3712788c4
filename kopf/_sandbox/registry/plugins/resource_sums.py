"""
Resource sums: what pods request and what they are limited to, as a whole.
"""

import decimal
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._sandbox.meta import quantities
from kopf._sandbox.registry.plugins import subjects

Amounts = Mapping[str, str]


def sum_pod(spec: subjects.Body, side: str) -> dict[str, str]:
    """
    Sum up the ``requests`` or the ``limits`` of a pod: its containers run at once, after those that
    run one by one before them.
    """
    total: dict[str, str] = {}
    for container in spec.get('containers') or ():
        total = add(total, _get(container, side))
    ahead: dict[str, str] = {}
    sidecars: dict[str, str] = {}
    for container in spec.get('initContainers') or ():
        amounts = _get(container, side)
        if container.get('restartPolicy') == 'Always':
            total = add(total, amounts)
            sidecars = add(sidecars, amounts)
            amounts = sidecars
        else:
            amounts = add(sidecars, amounts)
        ahead = take_largest(ahead, amounts)

    total = take_largest(total, ahead)
    overhead = spec.get('overhead') or {}
    if side == 'limits':
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return add(total, overhead)


def add(one: Amounts, other: Amounts) -> dict[str, str]:
    """Add up the amounts by the names of their resources."""
    total = dict(one)
    for name, amount in other.items():
        total[name] = add_texts((total[name], amount)) if name in total else amount
    return total


def take_largest(one: Amounts, other: Amounts) -> dict[str, str]:
    """Take the larger amount of each resource."""
    total = dict(one)
    for name, amount in other.items():
        if name not in total or parse(amount) > parse(total[name]):
            total[name] = amount
    return total


def add_texts(amounts: Iterable[str]) -> str:
    """Add up some amounts; the sum is written as the first one that is not zero."""
    known = [(amount, parse(amount)) for amount in amounts]
    total = sum((value for _, value in known), decimal.Decimal(0))
    first = next((text for text, value in known if value), '0')
    if first.endswith('i') and total % 1024 == 0:
        return quantities.format_quantity(f'{total / 1024:f}Ki')
    return quantities.format_quantity(f'{total:f}')


def parse(amount: Any) -> decimal.Decimal:
    """Return the value of an amount."""
    return quantities.parse_quantity(amount)


def _get(container: subjects.Body, side: str) -> Amounts:
    return (container.get('resources') or {}).get(side) or {}
