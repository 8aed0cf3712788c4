"""
Models: requests to the API and its responses, independent of their transport.
"""

import dataclasses
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from kopf._cogs.clients import fences
from kopf._cogs.helpers import versions

USER_AGENT = f'kopf/{versions.version}'

CLOSING_TIMEOUT = 3.0
"""Seconds for non-repeatable requests to finish when their session is closed."""


REDIRECTS_LIMIT = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, independent of the server and of the credentials."""

    method: str
    url: str  # from the root of the API, properly encoded
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = dataclasses.field(default=None, repr=False)
    is_repeatable: bool = True
    verb: str = ''  # the verb of the API
    # Called right before the bytes are handed to the transport; the errors it raises are passed on.
    permit: Callable[[], None] = dataclasses.field(
        default=fences.permit_all, repr=False, compare=False
    )

    def __str__(self) -> str:
        return f'{self.method} {self.url.partition("?")[0]}'


class Timeouts(NamedTuple):
    """The limits of a request, in seconds; ``None`` means no limit."""

    # Until the last byte of the response; for streams, until the headers.
    total: float | None = None
    connect: float | None = None  # only to establish a connection, as a part of the total
    # From the connection until the headers; only for our own connections.
    head: float | None = None


class Answer(NamedTuple):
    """The response of the server, good or bad."""

    code: int
    headers: Mapping[str, str]  # needed only for refusals; may be empty otherwise
    raw: bytes

    def __repr__(self) -> str:
        return f'Answer(code={self.code})'  # the rest can be secret


class Chunks(Protocol):
    """A response that comes in chunks, some time after its code and headers."""

    @property
    def code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read_chunk(self, timeout: float | None = None) -> bytes:
        """
        Wait for more bytes; empty bytes mean the end. Raises `TimeoutError`. A cancelled wait loses
        nothing.
        """

    async def read_all(self, timeout: float | None) -> bytes:
        """Wait for all remaining bytes; raise `APITimeoutError` after the timeout in seconds."""


class Session(Protocol):
    """
    One set of credentials in use: a pool of connections to the API. Any number of tasks may make
    requests at once.

    All network errors are raised as our own errors.
    """

    server: str

    @property
    def is_closed(self) -> bool: ...

    def fetch(self, call: Call, timeouts: Timeouts) -> Coroutine[Any, Any, Answer]:
        """Make a request and read the whole response. Raises `APIConnectionError` if none comes."""

    def stream(self, call: Call, timeouts: Timeouts) -> AbstractAsyncContextManager[Chunks]:
        """Make a request and wait for the head of the response. Raises as `fetch` does."""

    async def close(self) -> None:
        """
        Cut all streams and repeatable requests, which will be repeated with other credentials, and
        close the session.

        Non-repeatable requests get a few seconds to finish. Closing again, at any time, is
        harmless.
        """


def find_redirect(call: Call, server: str, url: str, code: int, location: str | None) -> str | None:
    """
    Return the redirect target within the server, or ``None`` if there is no redirect to follow.

    Redirects to other servers, and to the same one without TLS, are not followed: these must not
    get the credentials.
    """
    if location is None or call.method != 'GET' or code not in REDIRECTS:
        return None

    try:
        target = urllib.parse.urljoin(f'{server}{url}', location)
    except ValueError:  # not a URL
        return None
    return target.removeprefix(server) if target.startswith(f'{server}/') else None
