"""
The watcher: the changes of a resource as a stream of events, from now on or from a past version.

A watcher keeps only its position in the history, so slow clients cost no memory; if its position is
compacted, it gets an ERROR event with the code 410 and must list again.
"""

import asyncio
import dataclasses
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

from kopf._cogs.helpers import jsons
from kopf._sandbox.meta import errors, go_format, kinds, selectors
from kopf._sandbox.storage import memory

BATCH = 500
"""The number of events to encode and send at once, so that other requests are not blocked."""

BOOKMARK_INTERVAL = 60.0
"""Seconds between bookmarks in a stream that requested them."""

BOOKMARK_AHEAD = 2.0
"""Seconds between the last bookmark and the end of the stream, so that it is not lost."""

Encoder = Callable[[str, memory.Stored], bytes]
"""Encodes a line of the stream by the event's type and object."""

Preparer = Callable[[Sequence[memory.Stored]], Awaitable[None]]
"""Makes the objects ready to be encoded, e.g. calls conversion webhooks."""

Bookmarker = Callable[[int, Mapping[str, str]], bytes]
"""Encodes a line of a bookmark by the version and annotations."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """The parameters of a watch."""

    interest: selectors.Interest
    # The version to continue from; None for the current objects, and then the changes.
    since: int | None
    timeout: float
    bookmarks: bool = False
    initial_end: bool = False  # send a bookmark after all current objects


@dataclasses.dataclass(frozen=True)
class Format:
    """The encoders of events for one client."""

    encode: Encoder
    bookmark: Bookmarker
    prepare: Preparer | None = None


def parse_watch(options: Mapping[str, str], interest: selectors.Interest, *, version: int) -> Watch:
    """Parse the query of a watch; ``version`` is the current version of the storage."""
    initial = options.get('sendInitialEvents')
    check_version_options(options, watch=True)
    since = parse_version(options.get('resourceVersion', ''))
    tells_end = initial == 'true' or (initial is None and not since)

    if initial == 'false':
        since = version if since is None else since
    elif initial == 'true' or not since:
        since = None

    parse_number(options, 'limit')  # there are no pages, but it must be a number
    timeout = parse_number(options, 'timeoutSeconds')
    bookmarks = options.get('allowWatchBookmarks') in ('true', '1')

    return Watch(
        interest,
        since,
        timeout=float(timeout or random.randint(1800, 3600)),
        bookmarks=bookmarks,
        initial_end=bookmarks and tells_end,
    )


def check_version_options(options: Mapping[str, str], *, watch: bool) -> None:
    """Refuse the combinations of options that the API refuses, with all problems in one error."""
    problems = _check_watch_options(options) if watch else _check_list_options(options)
    if problems:
        raise errors.invalid('meta.k8s.io', 'ListOptions', '', problems)


def _check_watch_options(options: Mapping[str, str]) -> list[errors.FieldError]:
    match = options.get('resourceVersionMatch', '')
    initial = options.get('sendInitialEvents')
    problems = []

    if initial is not None and match != 'NotOlderThan':
        problems.append(
            _forbid_match('sendInitialEvents requires setting resourceVersionMatch to NotOlderThan')
        )

    if match and initial is None:
        problems.append(
            _forbid_match(
                'resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided'
            )
        )

    if match and match != 'NotOlderThan':
        problems.append(errors.not_supported('resourceVersionMatch', match, ['NotOlderThan']))
    if match and options.get('continue'):
        problems.append(
            _forbid_match('resourceVersionMatch is forbidden when continue is provided')
        )

    return problems


def _check_list_options(options: Mapping[str, str]) -> list[errors.FieldError]:
    match = options.get('resourceVersionMatch', '')
    version = options.get('resourceVersion')
    problems = []

    if match and not version:
        problems.append(
            _forbid_match('resourceVersionMatch is forbidden unless resourceVersion is provided')
        )

    if match and options.get('continue'):
        problems.append(
            _forbid_match('resourceVersionMatch is forbidden when continue is provided')
        )

    if match and match not in ('Exact', 'NotOlderThan'):
        problems.append(
            errors.not_supported('resourceVersionMatch', match, ['Exact', 'NotOlderThan', ''])
        )

    if match == 'Exact' and version == '0':
        problems.append(
            _forbid_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        )

    if options.get('sendInitialEvents') is not None:
        problems.append(
            errors.forbidden_field('sendInitialEvents', 'sendInitialEvents is forbidden for list')
        )

    return problems


def _forbid_match(why: str) -> errors.FieldError:
    return errors.forbidden_field('resourceVersionMatch', why)


def parse_version(text: str) -> int | None:
    """Parse a ``resourceVersion`` of a query; ``None`` if it is not given."""
    if not text:
        return None
    try:
        return go_format.parse_uint(text)
    except ValueError as e:
        problem = errors.invalid_value('resourceVersion', text, str(e))
        raise errors.ApiError(500, '', str(problem)) from None


def parse_number(options: Mapping[str, str], name: str) -> int | None:
    """Parse a numeric option of a query."""
    text = options.get(name)
    if not text:
        return None

    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(
            f'strconv.ParseInt: parsing {errors.render(text)}: invalid syntax'
        ) from None


def see(change: memory.Change, interest: selectors.Interest) -> tuple[str, memory.Stored] | None:
    """
    Return the event's type and object for a watcher, or ``None`` if it must not see the change.

    With selectors, an object that stops matching is DELETED for the watcher, one that starts
    matching is ADDED.
    """
    is_wanted = change.type != 'DELETED' and interest.wants(change.new)
    was_wanted = change.old is not None and interest.wants(change.old)
    if is_wanted:
        return ('MODIFIED' if was_wanted else 'ADDED'), change.new
    if not was_wanted or change.old is None:
        return None
    return 'DELETED', change.new if change.type == 'DELETED' else _restamp(
        change.old, change.version
    )


async def stream(
    store: memory.Storage, home: kinds.Home, watch: Watch, form: Format
) -> AsyncGenerator[bytes]:
    """
    Yield the lines of the stream in batches until the timeout, or until the resource is no longer
    served.

    The first batch is empty: it signals that the watch is accepted. Cancellation leaves nothing
    behind.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + watch.timeout
    reminder = schedule_bookmark(loop.time(), deadline)
    shelf = store.shelf(home)
    since = store.version if watch.since is None else watch.since
    initial = shelf.select(watch.interest.namespace) if watch.since is None else []
    yield b''
    for first in range(0, len(initial), BATCH):
        yield await _encode_initial(initial[first : first + BATCH], watch.interest, form)
    if watch.initial_end:
        yield form.bookmark(since, {'k8s.io/initial-events-end': 'true'})
    while True:
        if since < shelf.compacted:
            yield encode_error(
                errors.expired(f'too old resource version: {since} ({shelf.compacted})')
            )
            return
        first = shelf.find_since(since)
        changes = shelf.changes[first : first + BATCH]
        if changes:
            since = changes[-1].version
            yield await _encode_changes(changes, watch.interest, form)
        elif shelf.is_closed:
            return
        else:
            since = max(since, store.version)
            moment = loop.time() + memory.TICK
            if moment >= deadline:
                return
            if moment < reminder:
                # No await or yield since the check for changes.
                await shelf.wait(until=min(reminder, deadline))
                continue
            reminder = schedule_bookmark(moment, deadline)
            yield form.bookmark(since, {}) if watch.bookmarks else b''


async def _encode_initial(
    objects: Iterable[memory.Stored], interest: selectors.Interest, form: Format
) -> bytes:
    return await _encode([('ADDED', stored) for stored in objects if interest.wants(stored)], form)


async def _encode_changes(
    changes: Iterable[memory.Change], interest: selectors.Interest, form: Format
) -> bytes:
    return await _encode([seen for change in changes if (seen := see(change, interest))], form)


async def _encode(seen: Sequence[tuple[str, memory.Stored]], form: Format) -> bytes:
    if form.prepare is not None:
        await form.prepare([stored for _, stored in seen])
    return b''.join(form.encode(*pair) for pair in seen)


def schedule_bookmark(now: float, deadline: float) -> float:
    """Return the time of the next bookmark; the last one is shortly before the end."""
    last = deadline - BOOKMARK_AHEAD
    return min(now + BOOKMARK_INTERVAL, last) if now < last else math.inf


def encode_error(error: errors.ApiError) -> bytes:
    """Encode the last line of a stream that cannot continue."""
    return encode_line('ERROR', jsons.dumps(error.status))


def encode_line(type: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type.encode(), raw)


def _restamp(stored: memory.Stored, version: int) -> memory.Stored:
    """Return the same state with another version."""
    body = stored.load()
    body['metadata']['resourceVersion'] = str(version)
    return dataclasses.replace(stored, version=version, raw=jsons.dumps(body), views=None)
