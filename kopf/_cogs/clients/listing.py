"""
Listing: all objects of a resource as they are now, in pages.

No more than one page is in memory; the objects come without ``managedFields``, and always with their kind. Those that
are not fit for handling come apart from the others.
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
"""The first page is not retried here: with nothing done yet, the caller can decide better."""

PATIENTLY = requests.Options(verb='list')


@dataclasses.dataclass(frozen=True)
class Page:
    """A part of a listing."""

    items: list[Body]
    version: str  # of the whole listing, to watch from; empty if the server has none
    following: str = ''  # how to ask for the next page; empty for the last one
    is_first: bool = (
        True  # also when the listing starts over: what came before is possibly outdated
    )
    misfits: Sequence[documents.Salvaged] = ()  # those that exist, but are not fit for handling


async def list_pages(
    resource: references.Resource, namespace: references.Namespace, *, context: requests.Context
) -> AsyncGenerator[Page]:
    """
    List the objects, selected and paged as the settings say; the next page is requested only when it is needed.

    If the listing expires in the middle, it starts over, once. The first request is made once; the next ones,
    with what is listed to lose, are retried as any others. Raises `RequestError`.
    """
    following, may_start_over = '', True
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
            following, may_start_over = '', False
            continue
        page = parse_page(answer, is_first=not following)
        yield page
        if not page.following:
            return
        following = page.following


def build_page_params(
    watching: connecting.WatchingSettings, resource: references.Resource, following: str = ''
) -> dict[str, str]:
    """Build the query for the first page, or for the following one."""
    paging = {} if watching.chunk_size is None else {'limit': str(watching.chunk_size)}
    return {
        **build_selection(watching, resource),
        **paging,
        **({'continue': following} if following else {}),
    }


def build_selection(
    watching: connecting.WatchingSettings, resource: references.Resource
) -> dict[str, str]:
    """Build the part of a query, both of listing and of watching, that selects the objects to be seen."""
    selection = {
        'labelSelector': watching.label_selectors.join(resource),
        'fieldSelector': watching.field_selectors.join(resource),
        'shardSelector': watching.shard_selectors.first(resource),
    }
    return {name: text for name, text in selection.items() if text}


def parse_page(answer: Any, *, is_first: bool = True) -> Page:
    """Read the list as the server has sent it. Raises `APIGarbledError` if it is anything else."""
    metadata = answer.get('metadata') if isinstance(answer, Mapping) else None
    items = (
        answer.get('items') or [] if isinstance(answer, Mapping) else None
    )  # null if it is of zero size in Go
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
    """Tell if it looks like an object: it has a name."""
    metadata = item.get('metadata') if isinstance(item, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get('name'), str)


def clean_object(item: Body, origin: Mapping[str, str | None] | None = None) -> Body:
    """Drop what nobody needs but what takes the most of memory; add the kind if it is only known from the list."""
    item['metadata'].pop('managedFields', None)
    missing = {
        field: text for field, text in (origin or {}).items() if text and not item.get(field)
    }
    return (
        {**missing, **{field: value for field, value in item.items() if field not in missing}}
        if missing
        else item
    )
