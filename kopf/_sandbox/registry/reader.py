"""
The reader: one object, or a list of them, now or as of a past version, in pages.

The pages of a list are consistent: all of them are of the same version as the first one, as long as
it is in the history. After that, the error has a token to continue with the current state.
"""

import base64
import binascii
import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from kopf._sandbox.codec import parsing
from kopf._sandbox.meta import errors, kinds, selectors
from kopf._sandbox.registry import watcher
from kopf._sandbox.storage import memory

_NOT_BASE64 = re.compile('[^A-Za-z0-9_-]')

_TOKEN_EXPIRED = (
    'The provided continue parameter is too old to display a consistent list result. You can '
    'start a new list without the continue parameter, or use the continue token in this response '
    'to retrieve the remainder of the results. Continuing with the provided token results in an '
    'inconsistent list - objects that were created, modified, or deleted between the time the '
    'first chunk was returned and now may show up in the list.'
)


_LATEST = -1  # the version in tokens for clients that agree to continue with the current state
_TOKEN_VERSION = 'meta.k8s.io/v1'


class ExpiredTokenError(errors.ApiError):
    """
    The version of a list is compacted, so the next pages are unavailable; the token is to continue
    with the current state.
    """

    def __init__(self, key: str) -> None:
        super().__init__(410, 'Expired', _TOKEN_EXPIRED)
        self.token = Position(_LATEST, key).encode()

    @property
    def status(self) -> dict[str, Any]:
        return {**super().status, 'metadata': {'continue': self.token}}


@dataclasses.dataclass(frozen=True)
class Listing:
    """A list, or a page of it."""

    items: list[memory.Stored]
    version: int
    token: str = ''  # to continue from; empty for the last page
    remaining: int | None = None  # the number of objects after this page, if known


@dataclasses.dataclass(frozen=True)
class Position:
    """The position of the next page, and the version of the list."""

    version: int
    key: str

    def encode(self) -> str:
        record = {'v': _TOKEN_VERSION, 'rv': self.version, 'start': self.key}
        return (
            base64.urlsafe_b64encode(json.dumps(record, separators=(',', ':')).encode())
            .decode()
            .rstrip('=')
        )


def get_object(
    store: memory.Storage,
    resource: kinds.Resource,
    namespace: str,
    name: str,
    options: Mapping[str, str],
) -> memory.Stored:
    """Return an object, or raise the API's 404; versions not reached yet are errors too."""
    _check_reached(store, watcher.parse_version(options.get('resourceVersion', '')))
    stored = store.get(resource.home, namespace, name)
    if stored is None:
        raise errors.not_found(resource.group, resource.plural, name)
    return stored


def list_objects(
    store: memory.Storage,
    resource: kinds.Resource,
    interest: selectors.Interest,
    options: Mapping[str, str],
) -> Listing:
    """Return the selected objects as requested in the query."""
    watcher.check_version_options(options, watch=False)
    version = _parse_version(options.get('resourceVersion', ''))
    # With version 0, the API lists from its cache, which has no pages.
    limit = max(0, watcher.parse_number(options, 'limit') or 0) if version != 0 else 0
    position = _decode_token(options.get('continue', ''))

    if position is not None:
        if version:
            raise errors.bad_request(
                'specifying resource version is not allowed when using continue'
            )
        return _continue(store, resource, interest, position, limit)

    _check_reached(store, version)
    shelf = store.shelf(resource.home)
    match = options.get('resourceVersionMatch')

    if version and (match == 'Exact' or (not match and limit)):
        if version < shelf.compacted:
            raise errors.expired('The resourceVersion for the provided list is too old.')
        return _cut(_recall(shelf, version, interest.namespace), interest, limit, version)

    return _cut(shelf.select(interest.namespace), interest, limit, store.version)


def _continue(
    store: memory.Storage,
    resource: kinds.Resource,
    interest: selectors.Interest,
    position: Position,
    limit: int,
) -> Listing:
    shelf = store.shelf(resource.home)
    version = store.version if position.version == _LATEST else position.version
    if version < shelf.compacted:
        raise ExpiredTokenError(position.key)
    items = _recall(shelf, version, interest.namespace)
    return _cut(
        [stored for stored in items if stored.key >= position.key], interest, limit, version
    )


def _cut(
    items: list[memory.Stored], interest: selectors.Interest, limit: int, version: int
) -> Listing:
    if interest.is_selective:
        items = [stored for stored in items if interest.wants(stored)]
    if not limit or len(items) <= limit:
        return Listing(items, version)
    remaining = None if interest.is_selective else len(items) - limit
    return Listing(items[:limit], version, Position(version, items[limit].key).encode(), remaining)


def _recall(shelf: memory.Shelf, version: int, namespace: str) -> list[memory.Stored]:
    objects = shelf.rewind(version)
    return [
        objects[key]
        for key in sorted(objects)
        if not namespace or objects[key].namespace == namespace
    ]


def _check_reached(store: memory.Storage, version: int | None) -> None:
    if version is not None and version > store.version:
        raise errors.timed_out(
            f'Timeout: Too large resource version: {version}, current: {store.version}',
            causes=[{'reason': 'ResourceVersionTooLarge', 'message': 'Too large resource version'}],
        )


def _decode_token(token: str) -> Position | None:
    if not token:
        return None
    try:
        if stray := _NOT_BASE64.search(token):  # decoders would skip it
            raise ValueError(f'illegal base64 data at input byte {stray.start()}')
        record = parsing.parse_json(base64.urlsafe_b64decode(token + '=' * (-len(token) % 4)))
        return _check_position(record.get('v'), record.get('rv') or 0, record.get('start') or '')
    except (ValueError, AttributeError, binascii.Error) as e:
        raise errors.bad_request(f'invalid continue token: continue key is not valid: {e}') from e


def _check_position(token_version: Any, version: Any, key: Any) -> Position:
    if token_version != _TOKEN_VERSION:
        raise ValueError(f'server does not recognize this encoded version {token_version}')
    if not isinstance(version, int) or version == 0:
        raise ValueError(f'incorrect encoded start resourceVersion (version {_TOKEN_VERSION})')
    if not isinstance(key, str) or not key:
        raise ValueError(f'encoded start key empty (version {_TOKEN_VERSION})')
    return Position(version, key)


def _parse_version(text: str) -> int | None:
    """Parse the version of a list; the errors differ from those for single objects and watches."""
    try:
        return watcher.parse_version(text)
    except errors.ApiError as e:
        raise errors.bad_request(f'invalid resource version: {e.message}') from e
