"""
Resource types: the classes that stand for kinds of resources, and how the kinds are declared.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

ATTRIBUTE: Final = '__kopf_declaration__'
"""Where a class has its declaration."""

Naming = Literal['camel', 'none']
"""How the names of fields in Python become those in the API: ``min_size`` is ``minSize`` or itself."""


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
    columns: Sequence[Mapping[str, Any]] = ()
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


def make_camel(name: str) -> str:
    """
    Return the name in the API: ``min_size`` is ``minSize``; underscores at the end are dropped.
    """
    head, *rest = [part for part in name.split('_') if part] or ['']
    return head + ''.join(part[:1].upper() + part[1:] for part in rest)
