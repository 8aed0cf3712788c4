"""
Relations: which parents a change of any object concerns.

The answer must not depend on the number of objects, so each relation has an index: the names that
the parents refer to, or their label selectors, or what the users' functions have returned. The
indices follow the stores: every change of a store must be passed to `Relations.find_parents`,
exactly once, in the same order. Both the old and the new state are mapped, so that a parent that
has lost its target is found, too.
"""

import collections
import dataclasses
import logging
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from kopf._cogs.structs import references
from kopf._core.engines.reconciling import entries, multimaps, stores
from kopf._core.intents import mappings

logger = logging.getLogger(__name__)

Role = Literal['owned', 'watched']
"""What the changed object is for a parent."""

Parent = tuple[references.Resource, str]
"""The resource and the uid of a parent."""


@dataclasses.dataclass(frozen=True)
class Relation:
    """What the objects of one resource are for the objects of another one."""

    primary: references.Resource  # of the parents
    target: references.Resource  # of the owned or watched objects
    link: mappings.Owns | mappings.Link

    @property
    def role(self) -> Role:
        return 'owned' if isinstance(self.link, mappings.Owns) else 'watched'


class _Index(Protocol):
    """The parents of one relation, by whatever connects them with their targets."""

    def follow_parent(self, change: entries.Change) -> None:
        """Update the index for a change of a parent."""

    def find_parents(self, change: entries.Change) -> Iterable[str]:
        """Find the uids of the parents of a changed target; update the index if it is needed."""

    def list_targets(self, uid: str) -> list[entries.Entry]:
        """Find all existing targets of the parent."""


class Relations:
    """
    All relations of an operator, with their indices.

    They are changed in the event loop of the operator, and can be read in any thread.
    """

    def __init__(self, all_stores: stores.Stores) -> None:
        self._stores = all_stores
        self._indices: dict[Relation, _Index] = {}
        self._by_primary: dict[references.Resource, list[Relation]] = {}
        self._by_target: dict[references.Resource, list[Relation]] = {}
        self.selections: dict[Hashable, Sequence[Relation]] = {}
        """What readers have selected of the relations; it lasts until the relations change."""
        self.errors: collections.Counter[str] = collections.Counter()
        """How many times each mapping function has failed."""

    def __iter__(self) -> Iterator[Relation]:
        return iter(tuple(self._indices))

    def declare(self, relations: Iterable[Relation]) -> None:
        """
        Replace the relations with these ones, e.g. when resources appear or disappear.

        The stores of all their resources are added if needed. The remaining relations keep their
        indices; the new ones are filled with the stored objects. Stores are never removed.
        """
        declared = dict.fromkeys(relations)
        known = self._indices
        by_primary = _group(declared)
        by_target = _group(declared, 'target')
        self._indices = {
            relation: known[relation] if relation in known else self._build_index(relation)
            for relation in declared
        }
        # Readers in threads see either all old or all new relations.
        self._by_primary = by_primary
        self._by_target = by_target
        self.selections = {}

    def find_parents(
        self, resource: references.Resource, change: entries.Change
    ) -> dict[Parent, frozenset[Role]]:
        """
        Follow a change of a store; return the existing parents that the object concerns, and why.

        The changed object itself is not among them, even if it is a parent of others.
        """
        found: dict[Parent, frozenset[Role]] = {}
        if change.old is not change.new:
            for relation in self._by_primary.get(resource, ()):
                self._indices[relation].follow_parent(change)

        for relation in self._by_target.get(resource, ()):
            existing = self._stores.add(relation.primary)
            for uid in self._indices[relation].find_parents(change):
                if existing.find_entry(uid) is not None:
                    parent = (relation.primary, uid)
                    found[parent] = found.get(parent, frozenset()) | {relation.role}

        return found

    def list_relations(
        self, primary: references.Resource, links: Collection[mappings.Owns | mappings.Link]
    ) -> list[Relation]:
        """List the relations of the parents of this resource that were made from these links."""
        return [item for item in self._by_primary.get(primary, ()) if item.link in links]

    def list_targets(self, relation: Relation, uid: str) -> list[entries.Entry]:
        """Return the existing targets of the parent in this relation, by names."""
        index = self._indices.get(relation)
        return [] if index is None else entries.sort(index.list_targets(uid))

    def get_store(self, resource: references.Resource) -> stores.Store:
        """Return the store of the resource; a new one if it was not stored."""
        return self._stores.add(resource)

    def _build_index(self, relation: Relation) -> _Index:
        primary = self._stores.add(relation.primary)
        target = self._stores.add(relation.target)
        index = self._create_index(relation, target)
        for entry in primary.iter_entries():
            index.follow_parent(entries.Change(None, entry))
        if isinstance(index, _FunctionIndex):
            for entry in target.iter_entries():
                index.find_parents(entries.Change(None, entry))

        return index

    def _create_index(self, relation: Relation, target: stores.Store) -> _Index:
        match relation.link:
            case mappings.Owns():
                return _OwnerIndex(relation.link, target)
            case mappings.Ref():
                return _NameIndex(relation.link, target)
            case mappings.LabelField():
                return _LabelIndex(relation.link, target)
            case fn:
                primary = self._stores.add(relation.primary)
                return _FunctionIndex(fn, primary, target, self.errors)


class _OwnerIndex:
    """Children know their owners; and the store of the children has an index by owners."""

    def __init__(self, link: mappings.Owns, target: stores.Store) -> None:
        self._link = link
        self._target = target

    def follow_parent(self, change: entries.Change) -> None:
        pass

    def find_parents(self, change: entries.Change) -> Iterable[str]:
        known = [entry for entry in (change.old, change.new) if entry is not None]
        return {owner.uid for entry in known for owner in entry.owners if self._link.accepts(owner)}

    def list_targets(self, uid: str) -> list[entries.Entry]:
        return self._target.list_owned_entries(uid, self._link)


class _NameIndex:
    """Parents name their targets."""

    def __init__(self, link: mappings.Ref, target: stores.Store) -> None:
        self._link = link
        self._target = target
        self._parents: multimaps.Bimap[str, mappings.ObjectKey] = multimaps.Bimap()

    def follow_parent(self, change: entries.Change) -> None:
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            self._parents.set(change.old.uid, ())
        body = change.unpack_new()
        if change.new is not None and body is not None:
            keys = mappings.extract_references(body, self._link, self._target.resource)
            self._parents.set(change.new.uid, sorted(keys, key=str))

    def find_parents(self, change: entries.Change) -> Iterable[str]:
        entry = change.new or change.old
        return () if entry is None else self._parents.get_sources(entry.key)

    def list_targets(self, uid: str) -> list[entries.Entry]:
        found = (self._target.get_entry(*key) for key in self._parents.get_keys(uid))
        return [entry for entry in found if entry is not None]


_Bucket = tuple[str | None, str | None, str | None]
"""A namespace, and a label with its value that the targets must have, if any is certain."""


class _LabelIndex:
    """
    Parents select their targets by labels.

    Each selector is in the buckets of one of its required labels, so that only few selectors are
    checked for an object. The rest of them are checked for all objects of their namespaces.
    """

    def __init__(self, link: mappings.LabelField, target: stores.Store) -> None:
        self._link = link
        self._target = target
        target.keeps_labels = True
        self._selectors: dict[str, tuple[str | None, mappings.LabelRequirements]] = {}
        self._parents: multimaps.Multimap[_Bucket, str] = multimaps.Multimap()

    def follow_parent(self, change: entries.Change) -> None:
        if change.old is not None:
            self._forget(change.old.uid)
        body = change.unpack_new()
        if change.new is None or body is None:
            return

        requirements = mappings.extract_requirements(body, self._link)
        if requirements is not None:
            is_global = self._target.resource.namespaced is False
            namespace = None if is_global else change.new.namespace
            self._selectors[change.new.uid] = (namespace, requirements)
            for bucket in _choose_buckets(namespace, requirements):
                self._parents.add(bucket, change.new.uid)

    def _forget(self, uid: str) -> None:
        namespace, requirements = self._selectors.pop(uid, (None, None))
        for bucket in _choose_buckets(namespace, requirements or ()):
            self._parents.discard(bucket, uid)

    def find_parents(self, change: entries.Change) -> Iterable[str]:
        found: set[str] = set()
        if not len(self._parents):
            return found
        for entry in {id(entry): entry for entry in (change.old, change.new)}.values():
            if entry is not None:
                found |= self._find_selecting(entry.namespace, entry.get_labels())
        return found

    def _find_selecting(self, namespace: str | None, labels: Mapping[str, str]) -> set[str]:
        scopes = {None, namespace}
        buckets = [
            *((scope, None, None) for scope in scopes),
            *((scope, key, value) for scope in scopes for key, value in labels.items()),
        ]
        found = {uid for bucket in buckets for uid in self._parents[bucket]}
        return {uid for uid in found if mappings.match_labels(self._selectors[uid][1], labels)}

    def list_targets(self, uid: str) -> list[entries.Entry]:
        namespace, requirements = self._selectors.get(uid, (None, None))
        if requirements is None:
            return []
        return [
            entry
            for entry in self._target.iter_entries(namespace)
            if mappings.match_labels(requirements, entry.get_labels())
        ]


def _choose_buckets(
    namespace: str | None, requirements: mappings.LabelRequirements
) -> list[_Bucket]:
    """Choose the buckets of a selector: a selected object is in at least one of them."""
    certain = [item for item in requirements if item.operator == 'In']
    if not certain:
        return [(namespace, None, None)]
    best = min(certain, key=lambda item: (len(item.values), item.key))
    return [(namespace, best.key, value) for value in sorted(best.values)]


class _FunctionIndex:
    """The users' function names the parents of a target. It is called once for each change."""

    def __init__(
        self,
        fn: mappings.MappingFn,
        primary: stores.Store,
        target: stores.Store,
        errors: collections.Counter[str],
    ) -> None:
        self._fn = fn
        self._primary = primary
        self._target = target
        self._errors = errors
        self._targets: multimaps.Bimap[str, mappings.ObjectKey] = multimaps.Bimap()

    def follow_parent(self, change: entries.Change) -> None:
        pass

    def find_parents(self, change: entries.Change) -> Iterable[str]:
        keys: set[mappings.ObjectKey] = set()
        if change.old is not None:
            keys.update(self._targets.get_keys(change.old.uid))
            if change.new is None or change.new.uid != change.old.uid:
                self._targets.set(change.old.uid, ())

        if change.new is not None:
            keys.update(self._call(change, change.new))
        found = (self._primary.get_entry(*key) for key in keys)
        return {entry.uid for entry in found if entry is not None}

    def _call(self, change: entries.Change, entry: entries.Entry) -> Collection[mappings.ObjectKey]:
        """Call the function with a copy of the object: it can do with it what it wants."""
        if change.new is change.old:
            return self._targets.get_keys(entry.uid)

        is_namespaced = self._primary.resource.namespaced is not False
        try:
            keys = mappings.call_function(self._fn, entry.unpack(), namespaced=is_namespaced)
        except Exception as e:
            self._report(entry, e)
            keys = frozenset()

        self._targets.set(entry.uid, sorted(keys, key=str))
        return keys

    def _report(self, entry: entries.Entry, error: Exception) -> None:
        name = mappings.get_name(self._fn)
        self._errors[name] += 1
        is_raised = not isinstance(error, mappings.MappingError)
        logger.error(
            'The mapping function %s failed for %s %s, so it wakes no objects: %s',
            name,
            self._target.resource.name,
            entry.name if entry.namespace is None else f'{entry.namespace}/{entry.name}',
            f'it raised {type(error).__name__}.' if is_raised else error,
            exc_info=error if is_raised else None,
        )

    def list_targets(self, uid: str) -> list[entries.Entry]:
        parent = self._primary.find_entry(uid)
        if parent is None:
            return []
        found = (
            self._target.find_entry(target) for target in self._targets.get_sources(parent.key)
        )
        return [entry for entry in found if entry is not None]


def _group(
    relations: Iterable[Relation], by: Literal['primary', 'target'] = 'primary'
) -> dict[references.Resource, list[Relation]]:
    grouped: dict[references.Resource, list[Relation]] = {}
    for relation in relations:
        grouped.setdefault(getattr(relation, by), []).append(relation)
    return grouped


def list_resources(relations: Iterable[Relation]) -> frozenset[references.Resource]:
    """List all resources whose objects must be stored for these relations."""
    return frozenset(
        resource for relation in relations for resource in (relation.primary, relation.target)
    )


def merge_roles(
    found: Iterable[Mapping[Parent, frozenset[Role]]],
) -> dict[Parent, frozenset[Role]]:
    """Merge the parents of several changes."""
    merged: dict[Parent, frozenset[Role]] = {}
    for parents in found:
        for parent, roles in parents.items():
            merged[parent] = merged.get(parent, frozenset()) | roles
    return merged
