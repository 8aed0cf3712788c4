"""
Initial lists: the existing objects, in pages, compared with those handed over before.

The first listing can be long. Then, the changes are watched while it lasts.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from kopf._cogs.aiokits import mergers
from kopf._cogs.clients import errors, listing, requests
from kopf._cogs.clients.watching import event_lines, positions, stream_states, watch_events

LONGEST_LEAD = 1000
"""How many changes of an early stream can wait until the listed objects are handed over."""


class Lister:
    """The comparison of one listing with the objects handed over before. For one attempt."""

    def __init__(self, position: positions.Position) -> None:
        state = position.state
        self._position = position
        self._census = watch_events.Census(
            state.known, position.resource, is_initial=not state.is_listed
        )

    def take(self, finding: watch_events.Finding) -> stream_states.Step:
        """Take the next page, or an early change."""
        self._position.feed()
        for change in self._census.take(finding):
            if isinstance(change, watch_events.Misfit):
                event_lines.leave_alone(self._position, change)
            else:
                yield change

    def conclude(self) -> stream_states.Step:
        """Note that all objects are listed; the version to watch from is known."""
        position = self._position
        state = self._position.state
        census = self._census
        state.unfit.retain(census.present)
        position.version = census.version
        position.is_doubtful = False
        state.is_listed = True
        state.version = census.version
        yield stream_states.Marker.LISTED


async def find_objects(position: positions.Position) -> AsyncGenerator[watch_events.Finding]:
    """
    Iterate over all pages of the objects, and over early changes. A long first listing takes time,
    as its objects are being handled already: then, the changes are watched concurrently, so that
    they do not have to wait for the last page.
    """
    async with mergers.Merger[watch_events.Finding]() as merger:
        merger.add(_list_in_pace(position), name=f'listing of {position}')
        early: list[asyncio.Task[None]] = []
        async with contextlib.aclosing(merger.iterate()) as findings:
            async for finding in findings:
                if (
                    isinstance(finding, listing.Page)
                    and finding.is_first
                    and not position.state.is_listed
                ):
                    await merger.drop(*early)
                    early = (
                        [
                            merger.add(
                                _watch_early(position, finding.version),
                                ahead=LONGEST_LEAD,
                                name=f'early stream of {position}',
                            )
                        ]
                        if _is_long(finding)
                        else []
                    )
                yield finding
                if isinstance(finding, listing.Page) and not finding.following:
                    break


async def _list_in_pace(position: positions.Position) -> AsyncGenerator[watch_events.Finding]:
    pages = listing.list_pages(position.resource, position.namespace, context=position.context)
    async with contextlib.aclosing(pages):
        async for page in pages:
            yield page
            if page.following and position.pace is not None:
                await position.pace()


def _is_long(page: listing.Page) -> bool:
    return bool(page.following and page.version)


async def _watch_early(
    position: positions.Position, version: str
) -> AsyncGenerator[watch_events.Finding]:
    """Watch as long as it works: changes missed after a failure come after the listing."""
    try:
        async with event_lines.open_lines(position, version) as lines:
            async for line in lines:
                signal = await event_lines.read_signal(position, line)
                if signal is not None:
                    yield signal
    except (errors.RequestError, OSError) as error:
        position.context.logger.debug('The early stream of %s has failed: %s', position, error)


async def check_version(position: positions.Position) -> None:
    """
    Verify that the version to watch from is not in the future; otherwise, raise the refusal of the
    server.

    It happens when the cluster was restored from a backup. Streams from such versions are accepted,
    but silently skip everything that happens until the cluster reaches that version again.
    """
    if not position.is_doubtful or not position.version:
        return

    context = position.context
    params = {
        **listing.build_selection(context.settings.watching, position.resource),
        'limit': '1',
        'resourceVersion': position.version,
        'resourceVersionMatch': 'NotOlderThan',
    }
    url = position.resource.get_url(namespace=position.namespace, params=params)

    try:
        await requests.get(url, context=context, options=listing.AT_ONCE)
    except errors.APIInvalidError:
        pass  # not all servers know these parameters
    except errors.APIClientError as error:
        if error.code != 400:
            raise

    position.is_doubtful = False
