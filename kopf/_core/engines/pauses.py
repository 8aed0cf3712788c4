"""
Pauses: which parts of an operator handle nothing at the moment, and why.

A part is one namespace; the whole operator is the part ``None``. Namespaces do not affect each other.
"""

import weakref
from collections.abc import Callable, Hashable, Iterator

from kopf._cogs.aiokits import toggles
from kopf._cogs.structs import references

OnChange = Callable[[references.Namespace, bool], None]
"""Takes notice that a part has just begun or ended to have reasons to pause, whatever the other parts do."""


class Pauses:
    """The pauses of one operator. Belongs to its event loop."""

    def __init__(self, on_change: OnChange = lambda namespace, is_on: None) -> None:
        self.whole = toggles.Toggles()
        self._on_change = on_change
        self._reasons: dict[
            references.Namespace, set[Hashable]
        ] = {}  # only of those parts that have any
        self._parts: weakref.WeakValueDictionary[references.Namespace, toggles.Toggles] = (
            weakref.WeakValueDictionary()
        )

    def __iter__(self) -> Iterator[tuple[references.Namespace, Hashable]]:
        """All parts with their reasons."""
        return iter(
            [
                (namespace, reason)
                for namespace, reasons in self._reasons.items()
                for reason in reasons
            ]
        )

    @property
    def is_any(self) -> bool:
        return bool(self._reasons)

    def is_paused(self, namespace: references.Namespace) -> bool:
        """Return whether nothing is handled there, be it because of the namespace or of the whole."""
        return bool(self._reasons) and (None in self._reasons or namespace in self._reasons)

    def has_reasons(self, namespace: references.Namespace) -> bool:
        """Return whether this very part has reasons to pause."""
        return namespace in self._reasons

    def turn(self, reason: Hashable, is_on: bool, namespace: references.Namespace = None) -> None:
        """Add or remove a reason to pause there."""
        reasons = self._reasons.get(namespace, set())
        before = bool(reasons)
        if is_on:
            self._reasons[namespace] = {*reasons, reason}
        elif reasons <= {reason}:
            self._reasons.pop(namespace, None)
        else:
            reasons.discard(reason)
        if self.has_reasons(namespace) != before:
            self._spread(namespace, is_on)

    def follow(self, namespace: references.Namespace) -> toggles.Toggles:
        """Return the state of this part, which is on while it is paused; it is valid for as long as it is kept."""
        if namespace is None:
            return self.whole
        part = self._parts.get(namespace)
        if part is None:
            part = self._parts[namespace] = toggles.Toggles()
            for scope in (None, namespace):
                part.turn(scope, self.has_reasons(scope))
        return part

    def _spread(self, namespace: references.Namespace, is_on: bool) -> None:
        if namespace is None:
            self.whole.turn(None, is_on)
        for name, part in list(self._parts.items()):
            if namespace is None or namespace == name:
                part.turn(namespace, is_on)
        self._on_change(namespace, is_on)
