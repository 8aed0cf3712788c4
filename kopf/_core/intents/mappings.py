"""
Mappings: which parents an object belongs to.

The parents are the objects that are reconciled; the targets are the objects they own or watch.
Mappings are declared with the handlers and checked at once. All decisions here are pure functions
of the bodies of parents and targets; what they return are keys: uids, or namespaces with names.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from kopf._cogs.structs import bodies, dicts, objects, references, selectors
from kopf._core.actions import signatures

OWNER_LABEL = 'kopf.dev/owner-uid'
"""The label of the objects that are owned by label; its value is the uid of the owner."""


class MappingError(Exception):
    """A mapping function returned something that does not name any objects."""


class ObjectKey(NamedTuple):
    """The name of an object; without a namespace for cluster-scoped objects."""

    namespace: str | None
    name: str


class Owner(NamedTuple):
    """An owner of an object, as the object names it."""

    uid: str
    by: Literal['controller', 'reference', 'label']


@dataclasses.dataclass(frozen=True)
class Owns:
    """
    The resource of children, and how they name their parent.

    By reference: by ``metadata.ownerReferences``, by default only those of the controller. By
    label: by the label ``kopf.dev/owner-uid``, for children in other namespaces, or cluster-scoped
    ones.
    """

    resource: Any
    by: Literal['reference', 'label'] = 'reference'
    controller: bool = True

    def __post_init__(self) -> None:
        if self.by not in ('reference', 'label'):
            raise TypeError(f"Children are owned by='reference' or by='label'; got {self.by!r}.")
        if not isinstance(self.controller, bool):
            raise TypeError(f'controller= is True or False; got {self.controller!r}.')
        _ = self.selector  # checks the notation

    @functools.cached_property
    def selector(self) -> selectors.Selector:
        """The parsed resource."""
        return selectors.parse_selector(self.resource)

    def accepts(self, owner: Owner) -> bool:
        """Return whether the object with this owner is a child in this sense."""
        if self.by == 'label':
            return owner.by == 'label'
        return owner.by == 'controller' or (owner.by == 'reference' and not self.controller)


@dataclasses.dataclass(frozen=True)
class Ref:
    """The fields of a parent that name its targets, see `ref`."""

    path: dicts.FieldPath
    namespace: dicts.FieldPath | None = None


@dataclasses.dataclass(frozen=True)
class LabelField:
    """The field of a parent that selects its targets by their labels, see `selector`."""

    path: dicts.FieldPath


MappingFn = Callable[..., Any]
"""A function of a target that returns the names of its parents."""

Link = Ref | LabelField | MappingFn
"""Any way to find the parents of a watched object."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """The resource of targets that are watched for their parents, and how these are found."""

    resource: Any
    link: Link

    @functools.cached_property
    def selector(self) -> selectors.Selector:
        """The parsed resource."""
        return selectors.parse_selector(self.resource)


def ref(path: dicts.FieldSpec, *, namespace: dicts.FieldSpec = None) -> Ref:
    """
    Find the targets by the names in a field of the parent: ``kopf.ref('spec.secretName')``.

    The field has a name or a list of names. If there are lists on the path, all of their items are
    followed. The targets are in the namespace of the parent, unless another field has the
    namespace.
    """
    return Ref(
        _parse_path('kopf.ref', path),
        None if namespace is None else _parse_path('kopf.ref', namespace),
    )


def selector(path: dicts.FieldSpec) -> LabelField:
    """
    Find the targets by the label selector in a field of the parent: ``kopf.selector('spec.pods')``.

    The field has ``matchLabels`` and ``matchExpressions``, or just labels with their values. As in
    Kubernetes, an empty selector selects all objects, and an absent one selects none. The targets
    are in the namespace of the parent, or anywhere if the parent is cluster-scoped.
    """
    return LabelField(_parse_path('kopf.selector', path))


def _parse_path(what: str, path: dicts.FieldSpec) -> dicts.FieldPath:
    try:
        parsed = dicts.parse_field(path)
    except ValueError as e:
        raise TypeError(f'{what}() takes the path of a field; got {path!r}.') from e
    if not parsed or '' in parsed:
        raise TypeError(f"{what}() takes the path of a field, e.g. 'spec.name'; got {path!r}.")
    return parsed


def parse_owns(owns: Any) -> tuple[Owns, ...]:
    """
    Parse the option ``owns=``: resources in any notation, or instances of `Owns`.

    Raises `TypeError` for anything else.
    """
    if owns is None:
        return ()
    if isinstance(owns, str | Mapping) or not isinstance(owns, Iterable):
        raise TypeError(
            f"owns= is a list of resources, e.g. ['pods', kopf.Owns('services')]; got {owns!r}."
        )

    parsed = (item if isinstance(item, Owns) else Owns(item) for item in owns)
    return tuple(dict.fromkeys(parsed))


def parse_watches(watches: Any) -> tuple[Watch, ...]:
    """
    Parse the option ``watches=``: a dict of resources with one or several links each.

    Raises `TypeError` for anything else.
    """
    if watches is None:
        return ()
    if not isinstance(watches, Mapping):
        raise TypeError(
            f"watches= is a dict, e.g. {{'secrets': kopf.ref('spec.secretName')}}; got {watches!r}."
        )
    return tuple(
        Watch(resource, _check_link(resource, link))
        for resource, links in watches.items()
        for link in (links if isinstance(links, list | tuple) else [links])
    )


def _check_link(resource: Any, link: Any) -> Link:
    selectors.parse_selector(resource)
    if isinstance(link, Ref | LabelField):
        return link
    if not callable(link) or isinstance(link, type):
        raise TypeError(
            f'watches= of {resource!r} is kopf.ref(), kopf.selector(), a function, or a list of '
            f'these; got {link!r}.'
        )
    if inspect.iscoroutinefunction(link) or inspect.isasyncgenfunction(link):
        raise TypeError(
            f'The function {get_name(link)} for watches= of {resource!r} is asynchronous: it is '
            f'called for every event, so it must be a plain function that does not wait.'
        )

    signature = signatures.read_signature(link)
    mismatch = None if signature is None else signatures.find_mismatch(signature, _KWARGS)
    if mismatch is not None:
        raise TypeError(
            f'The function {get_name(link)} for watches= of {resource!r} {mismatch}. '
            f'It gets {", ".join(_KWARGS)}.'
        )

    fn: MappingFn = link
    return fn


def get_name(fn: MappingFn) -> str:
    """Return the name of a function for messages."""
    return getattr(fn, '__qualname__', None) or type(fn).__qualname__


# Targets: the objects that are owned or watched.


def extract_owners(body: Mapping[str, Any]) -> tuple[Owner, ...]:
    """Extract all owners that the object names, in any way."""
    listed = dicts.resolve(body, ('metadata', 'ownerReferences'))
    references = listed if isinstance(listed, list | tuple) else ()
    owners = [
        Owner(uid, 'controller' if reference.get('controller') is True else 'reference')
        for reference in references
        if dicts.is_mapping(reference) and isinstance(uid := reference.get('uid'), str)
    ]
    label = dicts.resolve(body, ('metadata', 'labels', OWNER_LABEL))
    if isinstance(label, str) and label:
        owners.append(Owner(label, 'label'))
    return tuple(owners)


_KWARGS = ('body', 'spec', 'status', 'meta', 'labels', 'annotations', 'name', 'namespace', 'uid')


def call_function(
    fn: MappingFn, target: bodies.RawBody, *, namespaced: bool
) -> frozenset[ObjectKey]:
    """
    Call the user's function for a target, and return the keys of its parents.

    Names without namespaces are in the namespace of the target, or of no namespace if the parents
    are cluster-scoped. Raises what the function raises; `MappingError` if it returns something
    else.
    """
    body = objects.Body(target)
    result = signatures.narrow(fn)(
        body=body,
        spec=body.spec,
        status=body.status,
        meta=body.metadata,
        labels=body.metadata.labels,
        annotations=body.metadata.annotations,
        name=body.metadata.name,
        namespace=body.metadata.namespace,
        uid=body.metadata.uid,
    )
    try:
        return frozenset(_iter_returned(result, body.metadata.namespace, namespaced))
    except MappingError as e:
        raise MappingError(f'The function {get_name(fn)} {e}') from None


def _iter_returned(result: Any, namespace: str | None, namespaced: bool) -> Iterator[ObjectKey]:
    if result is None:
        return

    if isinstance(result, str):
        result = [result]
    if inspect.iscoroutine(result):
        result.close()
    if not isinstance(result, Iterable) or isinstance(result, bytes | Mapping):
        raise MappingError(f'returned {_describe(result)} instead of names of objects.')
    if isinstance(result, tuple) and len(result) == 2 and all(isinstance(x, str) for x in result):
        raise MappingError(
            'returned a tuple of 2 strings, which is ambiguous. Return a list: of 2 names, or of '
            'one tuple of a namespace and a name.'
        )

    for item in result:
        yield _parse_returned(item, namespace, namespaced)


def _parse_returned(item: Any, namespace: str | None, namespaced: bool) -> ObjectKey:
    match item:
        case str() if item and namespaced and not namespace:
            raise MappingError(
                'returned a name without a namespace for a cluster-scoped object. '
                'Return tuples of namespaces and names.'
            )
        case str() if item:
            return ObjectKey(namespace if namespaced else None, item)
        case (str() | None as given, str(name)) if name:
            return ObjectKey(given if namespaced and given else None, name)

    raise MappingError(
        f'returned {_describe(item)} among the names: '
        f'names are strings, or tuples of a namespace and a name.'
    )


def _describe(value: Any) -> str:
    """Describe a value by its type: it can contain secrets."""
    return 'an empty string' if value == '' else f'an object of the type {type(value).__qualname__}'


# Parents: the objects that are reconciled.


def extract_references(
    parent: Mapping[str, Any], link: Ref, target: references.Resource
) -> frozenset[ObjectKey]:
    """
    Extract the keys of all targets that the parent names.

    Values that cannot be names are skipped, as they come from the users of the cluster.
    """
    home = dicts.resolve(parent, ('metadata', 'namespace'))
    keys = (
        ObjectKey(None if target.namespaced is False else namespace, name)
        for namespace, name in _iter_references(parent, link, home)
    )
    return frozenset(key for key in keys if key.namespace or target.namespaced is not True)


def _iter_references(
    parent: Mapping[str, Any], link: Ref, home: str | None
) -> Iterator[tuple[str | None, str]]:
    common = _count_common(link.path, link.namespace or ())
    for value in _iter_values(parent, link.path[:common]):
        given = () if link.namespace is None else _iter_names(value, link.namespace[common:])
        namespace = next(iter(given), home)
        for name in _iter_names(value, link.path[common:]):
            yield namespace, name


def _count_common(path: dicts.FieldPath, other: dicts.FieldPath) -> int:
    """Count the common keys at the beginning of two paths, the last key of the first one aside."""
    for index, (one, two) in enumerate(zip(path[:-1], other[:-1], strict=False)):
        if one != two:
            return index
    return min(len(path), len(other)) - 1 if other else 0


def _iter_names(value: Any, path: dicts.FieldPath) -> Iterator[str]:
    for item in _iter_values(value, path):
        if isinstance(item, str) and item:
            yield item


def _iter_values(value: Any, path: dicts.FieldPath) -> Iterator[Any]:
    """Iterate over all values at the path, through all items of the lists on it."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _iter_values(item, path)
    elif not path:
        yield value
    elif dicts.is_mapping(value):
        yield from _iter_values(value.get(path[0]), path[1:])


@dataclasses.dataclass(frozen=True)
class LabelRequirement:
    """A requirement to one label, as in ``matchExpressions``."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Return whether the labels meet the requirement; an unknown operator is never met."""
        value = labels.get(self.key)
        match self.operator:
            case 'In':
                return value in self.values
            case 'NotIn':
                return value not in self.values
            case 'Exists':
                return value is not None
            case 'DoesNotExist':
                return value is None

        return False


LabelRequirements = tuple[LabelRequirement, ...]
"""All requirements of one selector; an empty tuple selects everything."""

_OPERATORS = frozenset({'In', 'NotIn', 'Exists', 'DoesNotExist'})


def extract_requirements(parent: Mapping[str, Any], link: LabelField) -> LabelRequirements | None:
    """Extract the label selector of the parent; ``None`` if it is absent or invalid."""
    value = dicts.resolve(parent, link.path)
    if not dicts.is_mapping(value):
        return None

    is_structured = value.keys() <= {'matchLabels', 'matchExpressions'}
    labels = (value.get('matchLabels') or {}) if is_structured else value
    expressions = (value.get('matchExpressions') or ()) if is_structured else ()
    if not dicts.is_mapping(labels) or not isinstance(expressions, list | tuple):
        return None

    parsed = [
        *(
            _parse_expression({'key': k, 'operator': 'In', 'values': [v]})
            for k, v in labels.items()
        ),
        *(_parse_expression(expression) for expression in expressions),
    ]
    requirements = tuple(requirement for requirement in parsed if requirement is not None)
    return requirements if len(requirements) == len(parsed) else None


def _parse_expression(expression: Any) -> LabelRequirement | None:
    if not dicts.is_mapping(expression):
        return None

    key = expression.get('key')
    operator = expression.get('operator')
    values = expression.get('values') or ()
    if not isinstance(key, str) or operator not in _OPERATORS:
        return None
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        return None
    return LabelRequirement(key, operator, frozenset(values))


def match_labels(requirements: LabelRequirements | None, labels: Mapping[str, Any]) -> bool:
    """Return whether the labels meet all requirements; never if there is no selector."""
    return requirements is not None and all(item.matches(labels) for item in requirements)
