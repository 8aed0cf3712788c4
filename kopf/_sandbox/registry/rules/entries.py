"""
Entries: the special rules of one kind.

All objects here are decoded: values have the right types, empty optional fields are absent. The
functions of an entry get whole objects; the preparing functions modify them, the validating ones do
not.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kopf._sandbox.meta import equality, errors, metadata, naming

Object = Mapping[str, Any]
Problems = list[errors.FieldError]


class Allocator(Protocol):
    """Allocates the addresses and ports of services."""

    def allocate_address(self) -> str: ...
    def allocate_port(self) -> int: ...
    def check_service(self, obj: Object, old: Object | None) -> Problems: ...


@dataclasses.dataclass(frozen=True)
class Site:
    """The context of the cluster for the preparation of objects."""

    now: str  # in the format of the API
    allocator: Allocator
    # The existing PriorityClasses by name.
    priorities: Mapping[str, Object] = dataclasses.field(default_factory=dict)


def _keep(obj: dict[str, Any]) -> None:
    pass


def _keep_new(obj: dict[str, Any], site: Site) -> None:
    pass


def _keep_updated(new: dict[str, Any], old: Object, site: Site) -> None:
    pass


def _accept(obj: Object) -> Problems:
    return []


def _accept_update(new: Object, old: Object) -> Problems:
    return []


def never_bumped(new: Object, old: Object) -> bool:
    return False


def bumped_by_spec(new: Object, old: Object) -> bool:
    return not equality.is_same(new.get('spec'), old.get('spec'))


def bumped_by_content(new: Object, old: Object) -> bool:
    """Return whether anything besides the metadata and the status has changed."""
    names = {*new, *old} - {'metadata', 'apiVersion', 'kind', 'status'}
    return not all(equality.is_same(new.get(name), old.get(name)) for name in names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of one kind; the defaults are for custom resources and simple kinds."""

    # None if only the common rules apply to the metadata.
    name_rule: naming.Check | None = naming.check_subdomain
    standard_finalizers: bool = True
    has_generation: bool = False
    is_bumped: Callable[[Object, Object], bool] = never_bumped
    initial_status: Object | None = None  # replaces the status of new objects, if not None
    defaults: Callable[[dict[str, Any]], None] = _keep
    prepare_create: Callable[[dict[str, Any], Site], None] = _keep_new
    prepare_update: Callable[[dict[str, Any], Object, Site], None] = _keep_updated
    validate: Callable[[Object], Problems] = _accept
    validate_new: Callable[[Object], Problems] = _accept  # only checked on creation
    # Only the checks that depend on the old object.
    validate_update: Callable[[Object, Object], Problems] = _accept_update
    changes_first: bool = False  # forbidden changes are reported before wrong values
    repeats_update: bool = True  # the kind's own rules check the changes of the metadata again
    repeats_metadata: bool = True  # … and the new metadata too
    validates_updated: bool = True  # … and the new object, as if it was created
    allows_unconditional_update: bool = True  # updates without resourceVersion
    allows_create_on_update: bool = False  # PUT creates objects that do not exist

    def validate_metadata(self, obj: Object, *, namespaced: bool) -> Problems:
        """Return the problems of the metadata by the rules of the kind."""
        if self.name_rule is None:
            return []
        return metadata.validate_metadata(
            obj['metadata'],
            namespaced=namespaced,
            name_rule=self.name_rule,
            standard_finalizers=self.standard_finalizers,
        )


def build_admission_rules(**options: Any) -> Rules:
    """Return the rules of a kind that configures the admission: they differ in these options."""
    return Rules(
        standard_finalizers=False,
        has_generation=True,
        is_bumped=bumped_by_content,
        repeats_update=False,
        allows_unconditional_update=False,
        **options,
    )
