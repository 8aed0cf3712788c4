"""
Allocations: the addresses and ports that the API assigns to services.
"""

import ipaddress
import random
from typing import Any, Final

from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

SERVICES: Final = kinds.Home('', 'services')
ADDRESSES: Final = ipaddress.IPv4Network('10.96.0.0/12')
PORTS: Final = range(30000, 32768)


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

    def _load_specs(self) -> list[dict[str, Any]]:
        return [
            stored.load().get('spec') or {} for stored in self._store.shelf(SERVICES).select('')
        ]
