"""
Dicts: nested mappings, as in JSON, addressed by the paths of their keys.

If a path leads through anything but a mapping, there is no value at its end. ``None`` is the same
as absence, as in Kubernetes. Lists are values: there are no paths into them.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from kopf._cogs.helpers import jsons

FieldPath = tuple[str, ...]
FieldSpec = str | FieldPath | list[str] | None

V = TypeVar('V')

SCALARS = frozenset({str, int, bool, float, type(None)})
"""The types of values without nested values: they are compared and copied directly."""

_PLAIN = SCALARS | {list, tuple}  # never mappings


def parse_field(spec: FieldSpec) -> FieldPath:
    """Return the path from any of its notations; by default, the empty path, i.e. everything."""
    match spec:
        case None | '':
            return ()
        case str():
            return tuple(spec.split('.'))
        case list() | tuple() if all(isinstance(key, str) for key in spec):
            return tuple(spec)

    raise ValueError(f'A field is a dotted string, or a tuple or a list of strings, not {spec!r}.')


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return the same as `isinstance`, but faster for the usual dicts and scalars."""
    kind = type(value)
    return kind is dict or (kind not in _PLAIN and isinstance(value, Mapping))


def resolve(d: object, path: FieldPath, default: Any = None) -> Any:
    """Return the value at the path, or the default if there is none."""
    for key in path:
        if type(d) is not dict:  # the exact type is checked much faster, and is the usual one
            if isinstance(d, LiveView):
                d = (
                    d._content
                    if d._path or type(d._holder.content) is not dict
                    else d._holder.content
                )
            elif type(d) in _PLAIN or not isinstance(d, Mapping):
                return default
        d = d.get(key)

    return default if d is None else d


def resolve_mapping(d: object, path: FieldPath) -> Mapping[str, Any]:
    """Return the mapping at the path; an empty one if it is absent or is not a mapping."""
    value = resolve(d, path)
    return value if is_mapping(value) else {}


def has(d: object, path: FieldPath) -> bool:
    """Return whether there is a value at the path."""
    return resolve(d, path) is not None


def ensure(d: MutableMapping[str, Any], path: FieldPath, value: Any) -> None:
    """
    Put the value at the path, in place.

    Absent parents are created. Parents that are not mappings are replaced; read-only ones are
    copied first.
    """
    *parents, last = path
    for key in parents:
        child = d.get(key)
        if type(child) is not dict and not isinstance(child, MutableMapping):
            child = d[key] = dict(child) if isinstance(child, Mapping) else {}
        d = child

    d[last] = value


def remove(d: MutableMapping[str, Any], path: FieldPath) -> None:
    """Remove the value at the path, if any, in place, with the parents that become empty."""
    parents = [d]
    for key in path[:-1]:
        child = parents[-1].get(key)
        if child is None or (type(child) is not dict and not isinstance(child, MutableMapping)):
            return
        parents.append(child)

    if not path or path[-1] not in parents[-1]:
        return

    for parent, key in zip(reversed(parents), reversed(path), strict=True):
        del parent[key]
        if parent:
            return


def cut(d: Mapping[str, Any], path: FieldPath) -> Mapping[str, Any]:
    """
    Return the same mapping as if nothing had ever been put at the path.

    Parents that become empty are removed too, even if they were empty before: their origin is
    unknown. Nothing is changed in place: the mappings on the path are copied, and all other values
    are shared.
    """
    if not path or path[0] not in d:
        return d

    key = path[0]
    rest = path[1:]
    old = d[key]
    new = {} if not rest else cut(old, rest) if isinstance(old, Mapping) else old
    if isinstance(new, Mapping) and not new:
        return {k: v for k, v in d.items() if k != key}
    return d if new is old else {**d, key: new}


def plain(value: Any) -> Any:
    """Copy mappings and sequences of any kind deeply, as dicts and lists; share other values."""
    if type(value) in SCALARS:
        return value
    if is_mapping(value):
        return {key: item if type(item) in SCALARS else plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def copy_json(value: Any) -> Any:
    """Copy a value read from JSON deeply, in the fastest way; copy other values by `plain`."""
    if not jsons.IS_FAST or type(value) is not dict:
        return plain(value)
    try:
        return jsons.loads(jsons.dumps(value))
    except (TypeError, ValueError):
        return plain(value)


def is_surely_same(a: Any, b: Any) -> bool:
    """Return whether the values are the same in JSON; false if that cannot be checked quickly."""
    try:
        return jsons.IS_FAST and jsons.dumps(a, sort_keys=True) == jsons.dumps(b, sort_keys=True)
    except (TypeError, ValueError):
        return False


def is_same(a: Any, b: Any) -> bool:
    """Return whether the values are the same in JSON: true is not 1, but tuples are lists."""
    if a is b:
        return True
    if isinstance(a, str):
        return bool(a == b)
    if is_mapping(a):
        return is_mapping(b) and a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)


class Holder:
    """A container for a mapping, so that it can be replaced for all its views at once."""

    __slots__ = ('content',)

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content


class LiveView:
    """
    The current content of a mapping inside of another one. A view of a view follows the same
    origin.

    It is separate from `MappingView`, as instances of abstract classes are recognised more slowly.
    """

    __slots__ = ('_holder', '_path')

    def __init__(self, src: Mapping[str, Any], path: FieldPath = (), /) -> None:
        if isinstance(src, LiveView):
            self._holder: Holder = src._holder
            self._path: FieldPath = (*src._path, *path)
        else:
            self._holder = Holder(src)
            self._path = path

    @property
    def _content(self) -> Mapping[str, Any]:
        content: Any = self._holder.content
        if not self._path and type(content) is dict:
            return content
        # The same as `resolve_mapping`, but inlined: it is called too often.
        for key in self._path:
            if type(content) is not dict and not isinstance(content, Mapping):
                return {}
            content = content.get(key)

        return content if type(content) is dict or isinstance(content, Mapping) else {}


class MappingView(LiveView, Mapping[str, V]):
    """
    A read-only live view of a mapping inside of another mapping; it is empty if the inner mapping
    is absent.

    Nothing is copied: nested values are returned as they are. Copies of views, shallow and deep,
    are plain dicts, which can be changed.
    """

    __slots__ = ()

    def __getitem__(self, key: str) -> V:
        value: V = self._content[key]
        return value

    if not TYPE_CHECKING:  # the base class already types them

        def get(self, key, default=None):
            return self._content.get(key, default)

        def keys(self):
            return self._content.keys()

        def values(self):
            return self._content.values()

        def items(self):
            return self._content.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __repr__(self) -> str:
        return repr(dict(self._content))

    def __copy__(self) -> dict[str, V]:
        return dict(self._content)

    def __deepcopy__(self, memo: object) -> dict[str, V]:
        copied: dict[str, V] = plain(self._content)
        return copied
