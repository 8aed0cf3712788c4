"""
Selections: texts for some of the resources, in the settings.

The keys are selectors of resources in any of their notations, and are kept parsed: notations of the
same meaning are the same key.
"""

from collections.abc import Iterator, Mapping, MutableMapping

from kopf._cogs.structs import references, selectors

Key = selectors.Notation | selectors.Selector


class Selections(MutableMapping[Key, str]):
    """
    A mapping from selectors of resources to texts, in the order of definition: ``selections['pods']
    = 'app=web'``.

    Iteration yields the parsed selectors. Keys of wrong types raise `TypeError` in all operations.
    The texts are for the server: they are neither parsed nor checked here.
    """

    def __init__(self, source: Mapping[Key, str] | None = None) -> None:
        self._texts: dict[selectors.Selector, str] = {}
        self.update(source or {})

    def __repr__(self) -> str:
        return repr(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._texts)

    def __getitem__(self, key: Key) -> str:
        return self._texts[selectors.parse_selector(key)]

    def __setitem__(self, key: Key, text: str) -> None:
        self._texts[selectors.parse_selector(key)] = text

    def __delitem__(self, key: Key) -> None:
        del self._texts[selectors.parse_selector(key)]

    def select(self, resource: references.Resource) -> list[str]:
        """Select the texts of all entries that match the resource, in the order of definition."""
        return [text for selector, text in self._texts.items() if selector.matches(resource)]

    def join(self, resource: references.Resource) -> str | None:
        """Join the distinct texts for the resource to require all of them; ``None`` if none."""
        return ','.join(sorted(set(self.select(resource)))) or None

    def first(self, resource: references.Resource) -> str | None:
        """Return the first defined text that matches the resource; ``None`` if there are none."""
        return next(iter(self.select(resource)), None)
