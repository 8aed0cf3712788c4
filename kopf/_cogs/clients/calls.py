"""
Calls: what is asked of the API, and what it answers, whoever carries them there and back.
"""

import dataclasses
import urllib.parse
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from kopf._cogs.helpers import versions

USER_AGENT = f'kopf/{versions.version}'

CLOSING_TIMEOUT = 3.0
"""Seconds for the requests that cannot be repeated to finish when their session is closed."""


REDIRECTS_LIMIT = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, independent of where and as whom it will be made."""

    method: str
    url: str  # from the root of the API, properly encoded
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = dataclasses.field(default=None, repr=False)
    is_repeatable: bool = True
    verb: str = ''  # what it is in terms of the API

    def __str__(self) -> str:
        return f'{self.method} {self.url.partition("?")[0]}'


class Timeouts(NamedTuple):
    """How long a request can take, in seconds; ``None`` means no limit."""

    total: float | None = None  # until the last byte of the answer; for streams, until the headers
    connect: float | None = None  # only the establishing of a connection, as a part of the above
    head: float | None = (
        None  # since there is a connection, until the headers; only for connections of our own
    )


class Answer(NamedTuple):
    """What the server has answered, good or bad."""

    code: int
    headers: Mapping[str, str]  # at least of the bad ones; nobody looks at them in the good ones
    raw: bytes

    def __repr__(self) -> str:
        return f'Answer(code={self.code})'  # the rest can be secret


class Chunks(Protocol):
    """The answer of the server that comes in chunks, some time later than its code and headers."""

    @property
    def code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read_chunk(self, timeout: float | None = None) -> bytes:
        """Wait for some more bytes, or raise `TimeoutError`; none mean the end. A cancelled wait loses nothing."""

    async def read_all(self, timeout: float | None) -> bytes:
        """Wait for all the rest, for so many seconds; raise `APITimeoutError` after them."""


class Session(Protocol):
    """
    One set of credentials in use: a pool of connections to the API. Any number of tasks may make requests at once.

    All errors of the network are raised as those of ours.
    """

    server: str

    @property
    def is_closed(self) -> bool: ...

    async def fetch(self, call: Call, timeouts: Timeouts) -> Answer:
        """Make a request, and read the whole answer. Raises `APIConnectionError` if there is none in time."""

    def stream(self, call: Call, timeouts: Timeouts) -> AbstractAsyncContextManager[Chunks]:
        """Make a request, and wait until it is answered, but not for the contents. Raises as `fetch` does."""

    async def close(self) -> None:
        """
        Cut all streams and requests, which are to be repeated with other credentials, and close the session itself.

        Those that are not to be repeated get a few seconds to finish. Closing again, at any time, is harmless.
        """


def find_redirect(call: Call, server: str, url: str, code: int, location: str | None) -> str | None:
    """
    Find where in the server to go for the answer, as it was answered for the URL.

    To other servers, and to the same one without TLS, nobody follows: they should not get the credentials.
    """
    if location is None or call.method != 'GET' or code not in REDIRECTS:
        return None
    target = urllib.parse.urljoin(f'{server}{url}', location)
    return target.removeprefix(server) if target.startswith(f'{server}/') else None
