"""
Allocations: the addresses and ports that the API assigns to services.
"""

import ipaddress
import random
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.meta import errors, kinds
from kopf._sandbox.storage import memory

SERVICES: Final = kinds.Home('', 'services')
ADDRESSES: Final = ipaddress.IPv4Network('10.96.0.0/12')
PORTS: Final = range(30000, 32768)
_RANGE: Final = f'The range of valid ports is {PORTS[0]}-{PORTS[-1]}'

Object = Mapping[str, Any]


class Allocator:
    """Allocates free addresses and ports. The stored services define which ones are in use."""

    def __init__(self, store: memory.Storage) -> None:
        self._store = store

    def allocate_address(self) -> str:
        used = {address for spec in self._load_specs() for address in spec.get('clusterIPs') or ()}
        while True:
            address = str(ADDRESSES[random.randrange(1, ADDRESSES.num_addresses - 1)])
            if address not in used:
                return address

    def allocate_port(self) -> int:
        used = {
            port.get('nodePort') for spec in self._load_specs() for port in spec.get('ports') or ()
        }
        free = [port for port in PORTS if port not in used]
        return random.choice(free or PORTS)

    def check_service(self, obj: Object, old: Object | None) -> list[errors.FieldError]:
        """Return the problems with the addresses and ports that a service takes newly."""
        spec = obj.get('spec') or {}
        known = (old or {}).get('spec') or {}
        names = tuple(obj['metadata'].get(name) for name in ('namespace', 'name'))
        others = self._load_specs(names)
        problems = []
        addresses = spec.get('clusterIPs') or []
        fresh = [item for item in addresses if item not in (known.get('clusterIPs') or ('None',))]
        taken = {address for other in others for address in other.get('clusterIPs') or ()}
        problems += [
            errors.invalid_value(
                'spec.clusterIPs',
                addresses,
                f'failed to allocate IP {address}: provided IP is already allocated',
            )
            for address in fresh
            if address in taken - {'None'}
        ]

        return problems + _check_ports(spec, known, _list_ports(others))

    def _load_specs(self, besides: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        return [
            stored.load().get('spec') or {}
            for stored in self._store.shelf(SERVICES).select('')
            if (stored.namespace, stored.name) != besides
        ]


def _list_ports(specs: list[dict[str, Any]]) -> set[int]:
    """Return the ports of nodes that these services take."""
    ports = {port.get('nodePort') for spec in specs for port in spec.get('ports') or ()}
    return {port for port in ports | {spec.get('healthCheckNodePort') for spec in specs} if port}


def _check_ports(spec: Object, known: Object, taken: set[int]) -> list[errors.FieldError]:
    """Return the problem of the first port that is out of range or not free."""
    kept = {port.get('nodePort') for port in known.get('ports') or ()}
    for index, port in enumerate(spec.get('ports') or ()):
        number = port.get('nodePort')
        if not number or number in kept:
            continue
        field = f'spec.ports[{index}].nodePort'
        if number not in PORTS:
            why = f'provided port is not in the valid range. {_RANGE}'
            return [errors.invalid_value(field, number, why)]
        if number in taken:
            return [errors.invalid_value(field, number, 'provided port is already allocated')]

    return []
