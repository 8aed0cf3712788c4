"""
Request info: the target and the verb of a request by its URL and method.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

_OBJECT_VERBS: Final = {
    'GET': 'get',
    'HEAD': 'get',
    'PUT': 'update',
    'PATCH': 'patch',
    'DELETE': 'delete',
}
_COLLECTION_VERBS: Final = {
    'GET': 'list',
    'HEAD': 'list',
    'POST': 'create',
    'DELETE': 'deletecollection',
}


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
    group, version, rest = _split_version(parts)
    if not rest:
        return None

    is_watch = rest[0] == 'watch' and len(rest) > 1
    namespace, rest = _split_namespace(group, rest[1:] if is_watch else rest)
    depth = 1 if is_watch else 3
    if len(rest) > depth or not all(rest):
        return None

    name, subresource = [*rest[1:], '', ''][:2]
    return Target(group, version, rest[0], namespace, name, subresource, is_watch)


def _split_version(parts: list[str]) -> tuple[str, str, list[str]]:
    """Split the group and the version from the rest of the path; nothing for other paths."""
    match parts:
        case ['api', version, *rest]:
            return '', version, rest
        case ['apis', group, version, *rest]:
            return group, version, rest
        case _:
            return '', '', []


def _split_namespace(group: str, parts: list[str]) -> tuple[str, list[str]]:
    """Split the namespace from the path of its objects; keep the path of a namespace itself."""
    if parts[0] != 'namespaces' or len(parts) < 3:
        return '', parts
    is_subresource = not group and parts[2] in ('status', 'finalize')
    if is_subresource:
        return '', parts
    return parts[1], parts[2:]


def detect_verb(method: str, target: Target, options: Mapping[str, str]) -> str | None:
    """Return the verb of a request; ``None`` if the method is not supported there."""
    if target.is_watch:
        return 'watch' if method == 'GET' else None
    if target.subresource and method == 'POST':
        return 'create'

    verbs = _OBJECT_VERBS if target.name else _COLLECTION_VERBS
    verb = verbs.get(method)
    if verb == 'list' and options.get('watch') in ('1', 'true', 'True'):
        return 'watch'
    return verb
