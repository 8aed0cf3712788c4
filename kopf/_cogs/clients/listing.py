"""
Listing: all current objects of a resource, in pages.

No more than one page is in memory; the objects come without ``managedFields``, and always with
their kind. Objects unfit for handling come separately.
"""

import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from kopf._cogs.clients import errors, requests
from kopf._cogs.configs import connecting
from kopf._cogs.helpers import documents
from kopf._cogs.structs import references

Body = dict[str, Any]

AT_ONCE = requests.Options(backoffs=(), verb='list')
"""The first page is not retried here: nothing is done yet, so the caller can decide better."""

PATIENTLY = requests.Options(verb='list')


@dataclasses.dataclass(frozen=True)
class Page:
    """A part of a listing."""

    items: list[Body]
    version: str  # of the whole listing, to watch from; empty if the server has none
    following: str = ''  # the token of the next page; empty for the last one
    # Also when the listing starts over: the previous pages are possibly outdated.
    is_first: bool = True
    misfits: Sequence[documents.Salvaged] = ()  # objects that exist, but are unfit for handling


async def list_pages(
    resource: references.Resource, namespace: references.Namespace, *, context: requests.Context
) -> AsyncGenerator[Page]:
    """
    List the objects, selected and paged by the settings; the next page is requested only when it is
    needed.

    If the listing expires midway, it starts over, once. The first request is made once; the next
    ones are retried as usual, as the previous pages would be lost. Raises `RequestError`.
    """
    following = ''
    may_start_over = True
    while True:
        params = build_page_params(context.settings.watching, resource, following)
        url = resource.get_url(namespace=namespace, params=params)
        try:
            answer = await requests.get(
                url, context=context, options=PATIENTLY if following else AT_ONCE
            )
        except errors.APIGoneError:
            if not following or not may_start_over:
                raise
            following = ''
            may_start_over = False
            continue
        page = parse_page(answer, is_first=not following)
        yield page
        if not page.following:
            return
        following = page.following


def build_page_params(
    watching: connecting.WatchingSettings, resource: references.Resource, following: str = ''
) -> dict[str, str]:
    """Build the query for the first page, or for the next one."""
    paging = {} if watching.chunk_size is None else {'limit': str(watching.chunk_size)}
    return {
        **build_selection(watching, resource),
        **paging,
        **({'continue': following} if following else {}),
    }


def build_selection(
    watching: connecting.WatchingSettings, resource: references.Resource
) -> dict[str, str]:
    """Build the part of a query, for both listing and watching, that selects the objects."""
    selection = {
        'labelSelector': watching.label_selectors.join(resource),
        'fieldSelector': watching.field_selectors.join(resource),
        'shardSelector': watching.shard_selectors.first(resource),
    }
    return {name: text for name, text in selection.items() if text}


def parse_page(answer: Any, *, is_first: bool = True) -> Page:
    """Parse a list from the server. Raises `APIGarbledError` for anything else."""
    metadata = answer.get('metadata') if isinstance(answer, Mapping) else None
    # Servers in Go may send null for an empty list.
    items = answer.get('items') or [] if isinstance(answer, Mapping) else None
    if (
        not isinstance(metadata, Mapping)
        or not isinstance(items, list)
        or not all(map(is_object, items))
    ):
        raise errors.APIGarbledError('The answer to the listing is not a list of objects.')

    origin = {
        'apiVersion': answer.get('apiVersion'),
        'kind': str(answer.get('kind') or '').removesuffix('List'),
    }
    return Page(
        items=[
            clean_object(item, origin) for item in items if not isinstance(item, documents.Salvaged)
        ],
        misfits=tuple(item for item in items if isinstance(item, documents.Salvaged)),
        version=str(metadata.get('resourceVersion') or ''),
        following=str(metadata.get('continue') or ''),
        is_first=is_first,
    )


def is_object(item: Any) -> bool:
    """Return whether it looks like an object, i.e. has a name."""
    metadata = item.get('metadata') if isinstance(item, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get('name'), str)


def clean_object(item: Body, origin: Mapping[str, str | None] | None = None) -> Body:
    """Drop the managed fields, which take much memory; add the kind if only the list has it."""
    item['metadata'].pop('managedFields', None)
    missing = {
        field: text for field, text in (origin or {}).items() if text and not item.get(field)
    }
    return (
        {**missing, **{field: value for field, value in item.items() if field not in missing}}
        if missing
        else item
    )
