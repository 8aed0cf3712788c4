"""
Resource types: the classes that stand for kinds of resources, and how the kinds are declared.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, Literal

ATTRIBUTE: Final = '__kopf_declaration__'
"""Where a class has its declaration."""

Naming = Literal['camel', 'none']
"""How fields in Python are named in the API: ``min_size`` is ``minSize`` or itself."""


_declared: dict[tuple[str, str], type] = {}
"""All declared classes by the names of their CRDs and by their versions."""


class DeclarationError(TypeError):
    """A class cannot stand for a resource, or for a part of it."""


class MissingLibraryError(ImportError):
    """The library for typed resources is not installed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """One version of a kind, as it is declared for its class."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str | None = None
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    is_namespaced: bool = True
    is_served: bool = True
    is_stored: bool = True
    deprecated: str | bool = False
    selectable: Sequence[str] = ()
    scale: Sequence[str] = ()
    naming: Naming = 'camel'

    @property
    def name(self) -> str:
        """The name of the CRD."""
        return f'{self.plural}.{self.group}'

    @property
    def api_version(self) -> str:
        return f'{self.group}/{self.version}'


def find_declaration(cls: object) -> Declaration | None:
    """Return how the class is declared; its bases do not count."""
    found = vars(cls).get(ATTRIBUTE) if isinstance(cls, type) else None
    return found if isinstance(found, Declaration) else None


def register(cls: type, declaration: Declaration) -> None:
    """Remember the class; a later class for the same version of the same kind replaces it."""
    _declared[declaration.name, declaration.version] = cls


def list_classes(name: str) -> list[type]:
    """List the classes of all versions of one kind, by the name of its CRD."""
    return [cls for (declared, _), cls in _declared.items() if declared == name]


@contextlib.contextmanager
def collecting() -> Iterator[list[str]]:
    """
    Collect the names of the CRDs whose classes are declared in the block; all are known at its end.

    Versions that were declared before the block are not those of these kinds.
    """
    before = dict(_declared)
    _declared.clear()
    names: list[str] = []

    try:
        yield names
    finally:
        names += dict.fromkeys(name for name, _ in _declared)
        after = dict(_declared)
        _declared.clear()
        _declared.update({key: cls for key, cls in before.items() if key[0] not in names})
        _declared.update(after)


def make_camel(name: str) -> str:
    """
    Return the name in the API: ``min_size`` is ``minSize``; underscores at the end are dropped.
    """
    head, *rest = [part for part in name.split('_') if part] or ['']
    return head + ''.join(part[:1].upper() + part[1:] for part in rest)
