"""
Patches: changes to apply to an object.

A patch is collected in two parts: a mapping, which is merged into the object in any state, and
functions, which change a copy of the object depending on its state. The result of the functions can
be sent as a JSON patch.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Literal, TypedDict, TypeVar, cast

from kopf._cogs.structs import bodies, dicts

PatchFn = Callable[[bodies.RawBody], None]
"""
A function that changes the given body in place; it can be called many times, for different states
of the object.
"""

AnyPatchFn = PatchFn | Callable[[dict[str, Any]], None]
"""
The same, but its argument can also be annotated as a plain dict, which it is; type checkers
distinguish them.
"""


class JSONPatchItem(TypedDict, total=False):
    """One operation of a JSON patch; removals have no value."""

    op: Literal['add', 'replace', 'remove']
    path: str
    value: Any


JSONPatch = list[JSONPatchItem]


class PatchView(MutableMapping[str, Any]):
    """
    A live view of one stanza of a patch.

    The stanza is created when a value is put there, and is removed when it becomes empty.
    """

    __slots__ = ('__weakref__', '_patch', '_path')

    def __init__(self, patch: 'Patch', path: dicts.FieldPath, /) -> None:
        self._patch = patch
        self._path = path

    @property
    def _content(self) -> Mapping[str, Any]:
        return dicts.resolve_mapping(self._patch, self._path)

    def __getitem__(self, key: str) -> Any:
        return self._content[key]

    def __setitem__(self, key: str, value: Any) -> None:
        dicts.ensure(self._patch, (*self._path, key), value)

    def __delitem__(self, key: str) -> None:
        if key not in self._content:
            raise KeyError(key)
        dicts.remove(self._patch, (*self._path, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __repr__(self) -> str:
        return repr(dict(self._content))


ViewT = TypeVar('ViewT', bound=PatchView)


class MetaPatch(PatchView):
    """The metadata of a patch."""

    __slots__ = ()

    @property
    def labels(self) -> PatchView:
        """The labels to change; ``None`` removes a label."""
        return self._patch._get_view(PatchView, (*self._path, 'labels'))

    @property
    def annotations(self) -> PatchView:
        """The annotations to change; ``None`` removes an annotation."""
        return self._patch._get_view(PatchView, (*self._path, 'annotations'))


class Patch(dict[str, Any]):
    """
    The changes to apply to one object.

    The mapping part is a merge-patch: ``None`` deletes, mappings are merged, everything else
    overwrites. The functions are applied after it, in their order. `as_json_patch` is relative to
    the body by default.
    """

    def __init__(
        self,
        src: Mapping[str, Any] | None = None,
        /,
        body: Mapping[str, Any] | None = None,
        fns: Iterable[AnyPatchFn] = (),
    ) -> None:
        self._body: Mapping[str, Any] | None = body
        self._fns: list[AnyPatchFn] = list(fns)
        if src is None:  # the usual case, many times per object
            return
        self.update(_copy_mappings(src))
        if isinstance(src, Patch):
            self._body = body if body is not None else src._body
            self._fns[:0] = src._fns

    @property
    def fns(self) -> list[AnyPatchFn]:
        """Functions that change the freshest object in place when the patch is applied."""
        return self._fns

    @property
    def metadata(self) -> MetaPatch:
        """The metadata to change."""
        return self._get_view(MetaPatch, ('metadata',))

    @property
    def meta(self) -> MetaPatch:
        """The same as ``metadata``."""
        return self.metadata

    @property
    def spec(self) -> PatchView:
        """The fields of the spec to change; ``None`` removes a field."""
        return self._get_view(PatchView, ('spec',))

    @spec.setter
    def spec(self, value: Any) -> None:
        self['spec'] = _dump(value)

    @property
    def status(self) -> PatchView:
        """The fields of the status to change; ``None`` removes a field."""
        return self._get_view(PatchView, ('status',))

    @status.setter
    def status(self, value: Any) -> None:
        self['status'] = _dump(value)

    def _get_view(self, cls: type[ViewT], path: dicts.FieldPath) -> ViewT:
        """Return the same view while it is in use; weak references prevent reference cycles."""
        views = self.__dict__.setdefault('_views', {})
        view = views[path]() if path in views else None
        if view is None:
            view = cls(self, path)
            views[path] = weakref.ref(view)
        return cast(ViewT, view)

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the views: copies have their own ones."""
        return {key: value for key, value in self.__dict__.items() if key != '_views'}

    def __repr__(self) -> str:
        content = [super().__repr__()] if len(self) > 0 else []
        fns = [f'fns={self._fns!r}'] if self._fns else []
        return f'{type(self).__name__}({", ".join([*content, *fns])})'

    def __bool__(self) -> bool:
        return len(self) > 0 or len(self._fns) > 0

    def clear(self) -> None:
        super().clear()
        self._fns.clear()

    def as_json_patch(self, body: Mapping[str, Any] | None = None) -> JSONPatch:
        """Return the operations that do the same to this or the original body, unless redundant."""
        if not self:
            return []

        before = body if body is not None else self._body
        if before is None:
            raise ValueError(
                'A JSON patch is relative to a body: give it to the patch or to this call.'
            )

        after = merge(before, self)
        return build_json_patch(before, apply_fns(self._fns, after) if self._fns else after)


def merge(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the target after the merge-patch. Nothing is changed in place; unchanged values are
    shared.

    It follows RFC 7386, except that nothing is created only to delete something in it.
    """
    merged = dict(target)
    for key, value in patch.items():
        present = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif not dicts.is_mapping(value):
            merged[key] = value
        else:
            child = merge(present if dicts.is_mapping(present) else {}, value)
            if child or not value or present is not None:
                merged[key] = child

    return merged


def apply_fns(fns: Iterable[AnyPatchFn], body: Mapping[str, Any]) -> bodies.RawBody:
    """Return the body after the functions; all of them change the same deep copy."""
    copied: Any = dicts.plain(body)
    for fn in fns:
        fn(copied)
    return cast(bodies.RawBody, copied)


def build_json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> JSONPatch:
    """Return the operations that turn one body into the other. Lists are replaced as a whole."""
    return list(_compare(before, after, ''))


def _compare(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str
) -> Iterator[JSONPatchItem]:
    for key, old in before.items():
        new = after.get(key)
        if new is old and new is not None:  # most values are shared, not copied
            continue
        child = f'{path}/{_escape(key)}'
        if key not in after:
            yield {'op': 'remove', 'path': child}
        elif dicts.is_mapping(old) and dicts.is_mapping(new):
            yield from _compare(old, new, child)
        elif not dicts.is_same(old, new):
            yield {'op': 'replace', 'path': child, 'value': dicts.plain(new)}

    for key, new in after.items():
        if key not in before:
            yield {'op': 'add', 'path': f'{path}/{_escape(key)}', 'value': dicts.plain(new)}


def _escape(key: str) -> str:
    return key.replace('~', '~0').replace('/', '~1')


def _dump(value: Any) -> Any:
    """Return a stanza of mappings that can be changed; instances of classes become mappings."""
    if not dicts.is_mapping(value):
        from kopf._cogs.codecs import conversions  # only for typed resources

        value = conversions.dump(value)
    return _copy_mappings(value) if dicts.is_mapping(value) else value


def _copy_mappings(src: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the mappings, as the views change them in place; lists and other values are shared."""
    return {
        key: _copy_mappings(value) if dicts.is_mapping(value) else value
        for key, value in src.items()
    }
