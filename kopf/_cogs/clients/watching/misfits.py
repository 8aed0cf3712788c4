"""
Misfits: objects that exist, but cannot be handled, e.g. because they are nested too deeply.

They are reported and skipped individually; the streams continue without them. If they were handled
before, they stay in their last seen state; they are handled again as soon as they are corrected.
Their deletion is noticed as usual.
"""

from collections.abc import Collection, Mapping
from typing import Any

from kopf._cogs.clients.watching import watch_events
from kopf._cogs.helpers import repeats
from kopf._cogs.structs import references


class Misfits:
    """The currently known misfits of one stream. Belongs to the task of the stream."""

    def __init__(self) -> None:
        self._seen: dict[watch_events.Key, watch_events.Seen] = {}
        self.reports = repeats.Repeats()  # by their texts

    def add(self, misfit: watch_events.Misfit) -> bool:
        """Remember an object, and return whether it is new here, or has changed."""
        is_new = self._seen.get(misfit.key) != misfit.seen
        self._seen[misfit.key] = misfit.seen
        return is_new

    def discard(self, key: watch_events.Key) -> None:
        """Forget an object that either is fit again, or does not exist."""
        if self._seen:
            self._seen.pop(key, None)

    def retain(self, listed: Collection[watch_events.Key]) -> None:
        """Forget the objects that are absent in a complete listing."""
        self._seen = {key: seen for key, seen in self._seen.items() if key in listed}

    def has(self, key: watch_events.Key, uid: str) -> bool:
        """Return whether exactly this object is a misfit, and not another one of the same name."""
        return key in self._seen and self._seen[key].uid == uid

    def has_object(self, body: Mapping[str, Any]) -> bool:
        """Return whether the object is a misfit now, even if it was not when last received."""
        if not self._seen:
            return False
        key, seen = watch_events.identify(body)
        return self.has(key, seen.uid)


def describe(misfit: watch_events.Misfit, resource: references.Resource, finalizer: str) -> str:
    """Describe the problem, the object, and what to do about it."""
    name = '/'.join(filter(None, misfit.key))
    advice = 'Correct the object, or delete it. All other objects are handled as usual.'
    if finalizer in misfit.finalizers:
        advice = (
            f'Its deletion is blocked: correct the object, or remove the finalizer {finalizer!r} '
            'from it.'
        )

    return (
        f'The object {name} of {resource!r} is left alone, as it cannot be handled: '
        f'{misfit.flaw}. {advice}'
    )
