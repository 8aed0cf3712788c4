"""
Interfaces: what a controller is, and what it can do to objects.

Each controller notices changes synchronously, remembers what is to be looked at, and does its work later in `settle`,
outside of the request that has caused it.
"""

from typing import Any, Protocol

from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory


class Hands(Protocol):
    """What the controllers do to objects; provided by the writing side."""

    def update(self, home: kinds.Home, stored: memory.Stored, body: dict[str, Any]) -> None: ...
    def delete(self, home: kinds.Home, stored: memory.Stored, propagation: str) -> None: ...


class Controller(Protocol):
    """Something that acts on changes by itself, a bit later."""

    def notice(self, change: memory.Change) -> None: ...
    def settle(self) -> bool: ...
