"""
Requests: one request to a resource, with its user.

A request is decoded once, and then passed through authorization, admission and storage as one
value.
"""

import dataclasses
from collections.abc import Mapping

from kopf._sandbox.meta import kinds


@dataclasses.dataclass(frozen=True)
class User:
    """The authenticated user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ''
    extra: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Request:
    """One request to a resource."""

    verb: str  # get, list, watch, create, update, patch, delete, deletecollection
    resource: kinds.Resource
    user: User
    namespace: str = ''
    name: str = ''
    subresource: str = ''
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the query parameters
    dry_run: bool = False
    field_manager: str = ''
    duplicates: tuple[str, ...] = ()  # the repeated fields of the body in JSON
    # The order of all fields in the body, if there are repeated ones.
    positions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    repeated_lines: tuple[str, ...] = ()  # the messages about the repeated keys of the body in YAML
    # For the Warning headers of the response.
    warnings: list[str] = dataclasses.field(default_factory=list)
