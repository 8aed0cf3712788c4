"""
Pauses: which parts of an operator are paused, and why.

A part is one namespace; the whole operator is the part ``None``. Namespaces do not affect each
other.
"""

import weakref
from collections.abc import Callable, Hashable, Iterator

from kopf._cogs.aiokits import toggles
from kopf._cogs.structs import references

OnChange = Callable[[references.Namespace, bool], None]
"""
Called when a part gets its first reason to pause or loses the last one, regardless of other parts.
"""


class Pauses:
    """The pauses of one operator. Belongs to its event loop."""

    def __init__(self, on_change: OnChange = lambda namespace, is_on: None) -> None:
        self.whole = toggles.Toggles()
        self._on_change = on_change
        # Only of the parts with any reasons.
        self._reasons: dict[references.Namespace, set[Hashable]] = {}
        self._parts: weakref.WeakValueDictionary[references.Namespace, toggles.Toggles] = (
            weakref.WeakValueDictionary()
        )

    def __iter__(self) -> Iterator[tuple[references.Namespace, Hashable]]:
        """Iterate over all parts with their reasons."""
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
        """Return whether the namespace is paused, by itself or with the whole operator."""
        return bool(self._reasons) and (None in self._reasons or namespace in self._reasons)

    def has_reasons(self, namespace: references.Namespace) -> bool:
        """Return whether this part itself has reasons to pause."""
        return namespace in self._reasons

    def turn(self, reason: Hashable, is_on: bool, namespace: references.Namespace = None) -> None:
        """Add or remove a reason to pause the part."""
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
        """Return the toggles of this part, on while it is paused; updated while referenced."""
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
