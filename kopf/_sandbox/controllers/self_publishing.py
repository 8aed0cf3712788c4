"""
Self-publishing: the API server keeps the objects by which clients in the cluster find it.
"""

from collections.abc import Callable
from typing import Any, Final

from kopf._sandbox.controllers import initial_objects, interfaces
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

_FOLLOWING: Final = (
    initial_objects.SERVICES,
    initial_objects.ENDPOINTS,
    initial_objects.SLICES,
)
"""The objects with the address in them."""

_HOMES: Final = frozenset((*_FOLLOWING, initial_objects.NETWORKS, initial_objects.ADDRESSES))
_NAMES: Final = (initial_objects.NAME, initial_objects.SERVICE_ADDRESS)


class SelfPublisher:
    """
    Creates the objects about the API server once its address is known, again if they are deleted.

    Changes by others stay until the address is published the next time.
    """

    def __init__(
        self, store: memory.Storage, hands: interfaces.Hands, format_now: Callable[[], str]
    ) -> None:
        self._store = store
        self._hands = hands
        self._format_now = format_now
        self._place: tuple[str, int] | None = None
        self._is_pending = False

    def publish(self, host: str, port: int) -> None:
        """Remember the address of the API server, and publish it now."""
        self._place = (host, port)
        self._restore(is_following=True)

    def notice(self, change: memory.Change) -> None:
        if change.type == 'DELETED' and change.home in _HOMES and change.new.name in _NAMES:
            self._is_pending = True

    def settle(self) -> bool:
        """Create what was deleted; return whether there was any work."""
        if not self._is_pending:
            return False
        self._is_pending = False
        self._restore(is_following=False)
        return True

    def _restore(self, *, is_following: bool) -> None:
        if self._place is None:
            return
        for home, body in initial_objects.build_objects(*self._place, self._format_now()):
            self._put(home, body, is_following=is_following and home in _FOLLOWING)

    def _put(self, home: kinds.Home, body: dict[str, Any], *, is_following: bool) -> None:
        meta = body['metadata']
        stored = self._store.get(home, meta.get('namespace', ''), meta['name'])
        if stored is None:
            self._hands.create(home, body)
        elif is_following and not stored.is_leaving:
            content = {name: value for name, value in body.items() if name != 'metadata'}
            self._hands.update(home, stored, {**stored.load(), **content})
