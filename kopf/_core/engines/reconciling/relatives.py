"""
Relatives: the owned and related objects of one parent, as its handlers see them.

They are read from memory: no requests are made. Each reading returns new objects in their current
state. They can be read from coroutines and from functions in threads in the same way.
"""

from collections.abc import Iterator, Sequence

from kopf._cogs.structs import objects, references, selectors
from kopf._core.engines.reconciling import entries, relations
from kopf._core.intents import mappings


class UnknownRelativesError(KeyError):
    """The handler reads a resource that it does not declare, so the objects are not in memory."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show the quoted text


class _Relatives:
    """The objects that are connected with one parent by some of the declared links."""

    _option: str

    def __init__(
        self,
        known: relations.Relations,
        parent: objects.Body,
        primary: references.Resource,
        links: Sequence[mappings.Owns | mappings.Watch],
    ) -> None:
        self._known = known
        self._primary = primary
        self._uid = str(parent.metadata.uid)
        self._namespace = parent.metadata.namespace
        self._links = tuple(links)

    def __repr__(self) -> str:
        return f'<{type(self).__name__} of {", ".join(self) or "no resources"}>'

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the declared resources."""
        return iter(dict.fromkeys(repr(link.selector) for link in self._links))

    def __contains__(self, resource: object) -> bool:
        """Return whether the resource is declared."""
        try:
            self._select_anyway(resource)  # type: ignore[arg-type]  # it refuses the wrong ones
        except (KeyError, TypeError):
            return False
        return True

    def __getitem__(self, resource: selectors.Notation) -> list[objects.Body]:
        """
        Return all of the objects, ordered by their names; none if the resource is not served now.

        The resource is in the same notation as declared, or in any other that selects it. Raises
        `KeyError` if it is not declared.
        """
        found = {
            entry.uid: entry
            for relation in self._select(resource)
            for entry in self._known.list_targets(relation, self._uid)
        }
        return [objects.Body(entry.unpack()) for entry in entries.sort(found.values())]

    def _select(self, resource: selectors.Notation) -> Sequence[relations.Relation]:
        """Select the relations of the resource as it is served now. There can be none."""
        if not isinstance(resource, str):  # functions could be new every time
            return self._select_anyway(resource)
        selections = self._known.selections  # they can be replaced meanwhile
        selection = (self._primary, self._links, resource)
        found = selections.get(selection)
        if found is None:
            found = selections[selection] = self._select_anyway(resource)
        return found

    def _select_anyway(self, resource: selectors.Notation) -> Sequence[relations.Relation]:
        wanted = selectors.parse_selector(resource)
        served = [
            relation
            for link in self._links
            for relation in self._known.list_relations(self._primary, [_reduce(link)])
            if link.selector.matches(relation.target)
            and (link.selector == wanted or wanted.matches(relation.target))
        ]
        if not served and repr(wanted) not in set(self):
            raise UnknownRelativesError(
                f'The objects of {wanted!r} are not known here. '
                f'Declared are: {", ".join(self) or "none"}. '
                f'Add the missing resource to {self._option}= of the handler.'
            )
        return served

    def _find(
        self, resource: selectors.Notation, name: str, namespace: str | None
    ) -> entries.Entry | None:
        home = self._namespace if namespace is None else namespace
        for relation in self._select(resource):
            scope = None if relation.target.namespaced is False else home
            entry = self._known.get_store(relation.target).get_entry(scope, name)
            if entry is not None and self._is_readable(entry, relation):
                return entry
        return None

    def _is_readable(self, entry: entries.Entry, relation: relations.Relation) -> bool:
        return True


class Owned(_Relatives):
    """
    The children of the object, by the resources in ``owns=``: ``owned['services']``.
    """

    _option = 'owns'

    def get(
        self, resource: selectors.Notation, name: str, namespace: str | None = None
    ) -> objects.Body | None:
        """
        Return the child of this name, or ``None`` if there is none, or if its owner is another.

        Without a namespace, it is in the namespace of the object, or cluster-scoped.
        """
        entry = self._find(resource, name, namespace)
        return None if entry is None else objects.Body(entry.unpack())

    def _is_readable(self, entry: entries.Entry, relation: relations.Relation) -> bool:
        link = relation.link
        return isinstance(link, mappings.Owns) and entries.is_owned(entry, self._uid, link)


class Related(_Relatives):
    """
    The objects that the object refers to, by the resources in ``watches=``: ``related['secrets']``.
    """

    _option = 'watches'

    def get(
        self, resource: selectors.Notation, name: str, namespace: str | None = None
    ) -> objects.Body | None:
        """
        Return the object of this name, or ``None`` if there is none.

        Without a namespace, it is in the namespace of the parent, or cluster-scoped. Any object of
        the resource can be read; only those that the parent refers to wake its handlers.
        """
        entry = self._find(resource, name, namespace)
        return None if entry is None else objects.Body(entry.unpack())


def _reduce(link: mappings.Owns | mappings.Watch) -> mappings.Owns | mappings.Link:
    return link.link if isinstance(link, mappings.Watch) else link
