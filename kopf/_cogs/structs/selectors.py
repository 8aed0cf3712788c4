"""
Selectors: descriptions of resources, made before it is known which resources exist.

The notations are those of the decorators' positional arguments; each is parsed in the same way
wherever it is accepted. The decorators also have keywords, for when the kind of the name matters.
Parsing needs no cluster; matching needs only a resource.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from kopf._cogs.structs import references

ResourceCheck = Callable[[references.Resource], Any]
"""A function that returns a truthy value for the resources to select."""

Notation = (
    str
    | references.Marker
    | tuple[str, str | references.Marker]
    | tuple[str, str, str | references.Marker]
    | type
    | ResourceCheck
)
"""
Any notation of a selector: ``'pods'``, ``('apps', 'v1', 'deployments')``, ``kopf.EVERYTHING``, a
function.
"""

KEYWORDS = ('kind', 'plural', 'singular', 'shortcut', 'category')
"""The parts of selectors that can be used instead of the name; only one of them at once."""

_VERSION = re.compile(r'v\d+((alpha|beta)\d+)?')


@dataclasses.dataclass(frozen=True)
class Selector:
    """
    The criteria for a resource. Parts that are ``None`` are not checked.

    Besides the group and the version, exactly one part is set: either ``name`` or one of the
    keywords after it.
    """

    group: str | None = None
    version: str | None = None
    # Any of its names, or all resources, or a function that accepts them.
    name: str | references.Marker | ResourceCheck | None = None
    kind: str | None = None
    plural: str | None = None
    singular: str | None = None
    shortcut: str | None = None
    category: str | None = None

    def __repr__(self) -> str:
        """Show the resource as it is usually named: plural names need no keyword."""
        keywords = [
            value if keyword == 'plural' else f'{keyword}={value}'
            for keyword, value in self._keywords.items()
            if value is not None
        ]
        name = (
            []
            if self.name is None
            else [self.name if isinstance(self.name, str) else repr(self.name)]
        )
        return '.'.join([*name, *keywords, *(part for part in (self.version, self.group) if part)])

    @property
    def is_multiple(self) -> bool:
        """Whether it can select several resources on purpose, not just one in any group."""
        return self.category is not None or not (self.name is None or isinstance(self.name, str))

    @property
    def _keywords(self) -> dict[str, str | None]:
        return {keyword: getattr(self, keyword) for keyword in KEYWORDS}

    def matches(self, resource: references.Resource) -> bool:
        """
        Return whether this resource is selected on its own, regardless of other resources of the
        same names.

        Without a version, only the preferred version is selected, except that functions see all
        versions. K8s-events are selected only by name, as there are usually too many of them.
        """
        if self.group not in (None, resource.group) or self.version not in (None, resource.version):
            return False
        if callable(self.name):
            return not _is_k8s_event(resource) and bool(self.name(resource))
        if self.version is None and not resource.preferred:
            return False
        if isinstance(self.name, references.Marker):
            return not _is_k8s_event(resource)
        return self._names(resource)

    def _names(self, resource: references.Resource) -> bool:
        return (
            self.name in (None, *_list_names(resource))
            and self.kind in (None, resource.kind)
            and self.plural in (None, resource.plural)
            and self.singular in (None, resource.singular)
            and self.shortcut in (None, *resource.shortcuts)
            and self.category in (None, *resource.categories)
        )


def parse_selector(notation: Notation | Selector) -> Selector:
    """
    Parse any of the notations; return a selector as it is. Equal meanings give equal selectors.

    Raises `TypeError` for anything that is not a notation.
    """
    selector = _parse(notation)
    if selector is None or '' in (selector.name, selector.version):
        raise TypeError(
            'Resources are selected by names, kopf.EVERYTHING, tuples of 2 or 3 strings with '
            f'either at the end, or functions of kopf.Resource; got {notation!r}.'
        )
    return selector


def build_selector(
    *args: object, group: str | None = None, version: str | None = None, **keywords: Any
) -> Selector:
    """
    Parse the arguments of a decorator: up to 3 positional ones, of which the last ones can be
    ``None``, and keywords.

    Raises `TypeError` if the resource is not named, or is named ambiguously, or by invalid names.
    """
    given = {keyword: value for keyword, value in keywords.items() if value is not None}
    notations = _drop_absent(args)
    _refuse_keywords(notations, group=group, version=version, **given)
    base = _parse_arguments(notations)

    return dataclasses.replace(
        base,
        group=_unite('group', base.group, group),
        version=_unite('version', base.version, version),
        **given,
    )


def _drop_absent(args: tuple[object, ...]) -> tuple[object, ...]:
    while args and args[-1] is None:
        args = args[:-1]
    return args


def _refuse_keywords(notations: tuple[object, ...], **given: object) -> None:
    """Refuse keywords that are not texts, contradict each other, or leave the resource unnamed."""
    for keyword, value in given.items():
        if not (value is None or isinstance(value, str)) or (value == '' and keyword != 'group'):
            raise TypeError(f'{keyword}= of a resource is a non-empty string; got {value!r}.')

    names = [f'{keyword}=' for keyword in KEYWORDS if given.get(keyword) is not None]
    if notations and names:
        raise TypeError(
            f'A resource is named once: either by the positional arguments or by {names[0]}; '
            f'got {", ".join(map(repr, notations))} and {", ".join(names)}.'
        )
    if len(names) > 1:
        raise TypeError(
            f'A resource is named by one of its names; got {" and ".join(names)} at once. '
            f'Keep one of them; use several decorators to serve several resources.'
        )
    if not notations and not names:
        raise TypeError(
            "No resource is specified. Name it, e.g. 'pods' or kind='Pod', or use kopf.EVERYTHING."
        )


def _parse_arguments(notations: tuple[object, ...]) -> Selector:
    match notations:
        case ():
            return Selector()
        case (str() | references.Marker() as notation,):
            return parse_selector(notation)
        case (type() as notation,):
            return parse_selector(notation)
        case (notation,) if callable(notation):
            return Selector(name=notation)
        case (notation, _, *_) if callable(notation):
            raise TypeError(
                'A function that selects resources is the only positional argument; got '
                f'{notations!r}.'
            )

    return parse_selector(notations)  # type: ignore[arg-type]  # it refuses the wrong ones


def _unite(part: str, parsed: str | None, given: str | None) -> str | None:
    if parsed is not None and given not in (None, parsed):
        raise TypeError(
            f"Two different values of the resource's {part}: {parsed!r} and {given!r}. Keep one "
            'of them.'
        )
    return parsed if given is None else given


def _parse(notation: object) -> Selector | None:
    match notation:
        case Selector():
            return notation
        case str():
            return _parse_name(notation)
        case (str(group), str() | references.Marker() as name):
            return _parse_pair(group, name)
        case (str(group), str(version), str() | references.Marker() as name):
            return Selector(group, version, name)
        case references.Marker():
            return Selector(None, None, notation)
        case type():
            return _parse_class(notation)
        case _ if callable(notation):
            return Selector(None, None, notation)

    return None


def _parse_class(cls: type) -> Selector:
    """Select the resource that the class stands for, in the version of the class."""
    from kopf._cogs.codecs import resource_types  # only for typed resources

    declared = resource_types.find_declaration(cls)
    if declared is None:
        raise TypeError(
            f'The class {cls.__name__} stands for no resource. Declare it with @kopf.crd.'
        )
    return Selector(declared.group, declared.version, plural=declared.plural)


def _parse_name(text: str) -> Selector:
    """
    Parse ``name``, ``name.group``, ``name.version``, ``name.version.group``, or any pair separated
    by a slash.
    """
    head, slash, name = text.rpartition('/')
    if slash:
        return _parse_pair(head, name)

    name, _, rest = text.partition('.')
    version, _, group = rest.partition('.')
    if _VERSION.fullmatch(version):
        return Selector(group, version, name)
    return Selector(rest or None, None, name)


def _parse_pair(group: str, name: str | references.Marker) -> Selector:
    """Parse the group, the group with the version, or the version of the core API; and the name."""
    group, slash, version = group.rpartition('/')
    if slash:
        return Selector(group, version, name)
    return Selector('', version, name) if version == 'v1' else Selector(version, None, name)


def _list_names(resource: references.Resource) -> set[str | None]:
    return {resource.plural, resource.singular, resource.kind, *resource.shortcuts}


def _is_k8s_event(resource: references.Resource) -> bool:
    return resource.plural == 'events' and resource.group in ('', 'events.k8s.io')
