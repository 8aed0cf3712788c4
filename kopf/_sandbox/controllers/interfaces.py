"""
Interfaces of controllers, and of the writes that they make.

A controller notices changes synchronously, remembers the affected objects, and does its work later
in `settle`, outside of the request that caused the change.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory


class Hands(Protocol):
    """The writes of controllers, provided by the internal client."""

    def create(
        self, home: kinds.Home, body: dict[str, Any], *, owned: Mapping[str, Any] | None = None
    ) -> None: ...
    def update(self, home: kinds.Home, stored: memory.Stored, body: dict[str, Any]) -> None: ...
    def delete(self, home: kinds.Home, stored: memory.Stored, propagation: str) -> None: ...


class Controller(Protocol):
    """A controller that reacts to changes, with a small delay."""

    def notice(self, change: memory.Change) -> None: ...
    def settle(self) -> bool: ...
