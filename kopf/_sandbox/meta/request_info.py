"""
Request info: the target and the verb of a request by its URL and method.
"""

import dataclasses
from collections.abc import Mapping
from urllib.parse import unquote


@dataclasses.dataclass(frozen=True)
class Target:
    """A resource, or an object of it, or a subresource of the object, as named in a URL."""

    group: str
    version: str
    plural: str
    namespace: str = ''
    name: str = ''
    subresource: str = ''
    is_watch: bool = False  # a watch by its path, regardless of the query


def parse_path(path: str) -> Target | None:
    """
    Parse the path of a resource; return ``None`` for other paths (discovery, health, …).

    The old watch paths (``/api/v1/watch/pods``) are supported, except for single objects.
    """
    parts = [unquote(part) for part in path.strip('/').split('/')]
    if parts[0] == 'api' and len(parts) >= 3:
        group, version, rest = '', parts[1], parts[2:]
    elif parts[0] == 'apis' and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    is_watch = rest[0] == 'watch' and len(rest) > 1
    namespace, rest = '', rest[1:] if is_watch else rest
    if (
        rest[0] == 'namespaces'
        and len(rest) >= 3
        and (group or rest[2] not in ('status', 'finalize'))
    ):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > (1 if is_watch else 3) or not all(rest):
        return None
    name, subresource = [*rest[1:], '', ''][:2]
    return Target(group, version, rest[0], namespace, name, subresource, is_watch)


def detect_verb(method: str, target: Target, options: Mapping[str, str]) -> str | None:
    """Return the verb of a request; ``None`` if the method is not supported there."""
    if target.is_watch:
        return 'watch' if method == 'GET' else None
    match method, bool(target.name):
        case (('GET' | 'HEAD'), True):
            return 'get'
        case (('GET' | 'HEAD'), False):
            return 'watch' if options.get('watch') in ('1', 'true', 'True') else 'list'
        case 'POST', named:
            return 'create' if not named or target.subresource else None
        case 'PUT', True:
            return 'update'
        case 'PATCH', True:
            return 'patch'
        case 'DELETE', named:
            return 'delete' if named else 'deletecollection'
        case _:
            return None
