"""
Faults: the failures that a test injects, and the requests that they affect.

A fault is injected for the matching requests, for a number of times or until it is lifted. It can
refuse with any code, delay, cut the connection, or stall: accept the request and never answer. For
watches, cutting and stalling also affect the streams that are already open; they can also be ended
with an error as their last event.
"""

import asyncio
import dataclasses
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict, Unpack

from kopf._sandbox.meta import errors

VERBS = ('get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection')
METHODS = ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS')


@dataclasses.dataclass(frozen=True)
class Scope:
    """The requests that a fault affects; empty fields match any."""

    verb: str = ''  # of the API or of HTTP
    # The plural name, with or without the group: kopfexamples, kopfexamples.kopf.dev.
    resource: str = ''
    path: str = ''  # a glob over the whole path
    user_agent: str = ''  # a glob

    def __post_init__(self) -> None:
        if self.verb not in ('', *VERBS, *METHODS):
            raise ValueError(
                f'The verb must be one of {", ".join((*VERBS, *METHODS))}, not {self.verb!r}.'
            )

    def covers(self, asked: 'Asked') -> bool:
        return (
            self.verb in ('', asked.verb, asked.method)
            and self.resource in ('', asked.plural, f'{asked.plural}.{asked.group}')
            and (not self.path or fnmatch.fnmatchcase(asked.path, self.path))
            and (not self.user_agent or fnmatch.fnmatchcase(asked.user_agent, self.user_agent))
        )


ANY = Scope()


@dataclasses.dataclass
class Asked:
    """One request received by the sandbox. The code is set when it is answered."""

    method: str
    path: str
    query: str = ''
    verb: str = ''
    group: str = ''
    plural: str = ''
    namespace: str = ''
    name: str = ''
    subresource: str = ''
    user: str = ''
    user_agent: str = ''
    content_type: str = ''
    code: int | None = None
    time: float = 0.0  # by the clock of the loop


class Where(TypedDict, total=False):
    """The fields of `Scope` as keyword arguments."""

    verb: str
    resource: str
    path: str
    user_agent: str


def build_scope(where: Where) -> Scope:
    """Build a scope. Raises `TypeError` for unknown keywords, `ValueError` for unknown verbs."""
    _check_keywords(where, Where)
    return Scope(**where)


class Trouble(Where, total=False):
    """The effects of a fault, and the number of times (``None`` for no limit)."""

    code: int | None  # refuse with a status of this code: 410, 409, 429, 500, …
    reason: str
    message: str
    retry_after: int | None  # seconds, for 429 and 503
    latency: float  # seconds of delay
    cut: bool  # close the connection
    stall: bool  # never answer
    times: int | None


class Cut(Exception):
    """The connection must be closed without a response."""


@dataclasses.dataclass(eq=False)
class Fault:
    """One injected fault; lift it by `lift` or by leaving its context. For the serving loop."""

    scope: Scope
    error: errors.ApiError | None = None
    latency: float = 0.0
    cuts: bool = False
    stalls: bool = False
    times: int | None = None  # how many more requests to affect; None for no limit
    hits: int = 0
    _held: list[Asked] = dataclasses.field(default_factory=list)  # the stalled streams
    _lifted: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    _hit: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    _detach: Callable[['Fault'], None] = lambda fault: None

    def lift(self) -> None:
        """End the fault: stalled requests continue."""
        self._lifted.set()
        self._detach(self)

    def __enter__(self) -> 'Fault':
        return self

    def __exit__(self, *_: Any) -> None:
        self.lift()

    def take(self, asked: Asked) -> bool:
        """Return whether this request is affected, and count it."""
        if self._lifted.is_set() or self.times == 0 or not self.scope.covers(asked):
            return False
        self.times = None if self.times is None else self.times - 1
        self.hits += 1
        self._hit.set()
        return True

    def holds(self, asked: Asked) -> bool:
        """Return whether this open stream must be stalled, and count it once."""
        if not self.stalls:
            return False
        if not any(held is asked for held in self._held):
            if not self.take(asked):
                return False
            self._held.append(asked)

        return True

    async def wait_until_hit(self) -> None:
        """Wait until a request is affected. Any number of tasks may wait."""
        await self._hit.wait()

    async def wait_until_lifted(self) -> None:
        """Wait until the fault is lifted. Any number of requests may wait."""
        await self._lifted.wait()


@dataclasses.dataclass(eq=False)
class Stream:
    """One open watch-stream."""

    asked: Asked
    cut: Callable[[], object]  # disconnects
    interrupt: Callable[[], object]  # stops sending, for the error to be the last event
    error: errors.ApiError | None = None


class Faults:
    """All currently injected faults."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._streams: list[Stream] = []

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults))

    def inject(self, **trouble: Unpack[Trouble]) -> Fault:
        """
        Make the matching requests fail until the fault is lifted.

        Raises `ValueError` if the combination is invalid, and `TypeError` if some keywords are
        unknown.
        """
        fault = build_fault(trouble, self._discard)
        self._faults.append(fault)
        if fault.cuts:
            self._cut_streams(fault)
        return fault

    def lift(self) -> None:
        """End all faults."""
        for fault in self:
            fault.lift()

    async def afflict(self, asked: Asked) -> None:
        """
        Apply the faults to a request before it is served.

        Raises `ApiError` to refuse or `Cut` to disconnect; lasts as long as latencies and stalls
        do.
        """
        for fault in self:
            if not fault.take(asked):
                continue
            if fault.latency:
                await asyncio.sleep(fault.latency)
            if fault.stalls:
                await fault.wait_until_lifted()
            if fault.cuts:
                raise Cut
            if fault.error is not None:
                raise fault.error

    async def hold(self, asked: Asked) -> None:
        """Hold an open stream while a fault stalls it."""
        for fault in self:
            if fault.holds(asked):
                await fault.wait_until_lifted()

    def open_stream(self, stream: Stream) -> None:
        """Register an open stream, so that it can be cut."""
        self._streams.append(stream)

    def close_stream(self, stream: Stream) -> None:
        self._streams.remove(stream)

    def cut_streams(self, scope: Scope = ANY) -> int:
        """Disconnect the open streams, once; return the number of them."""
        streams = [stream for stream in self._streams if scope.covers(stream.asked)]
        for stream in streams:
            stream.cut()
        return len(streams)

    def end_streams(self, error: errors.ApiError, scope: Scope = ANY) -> int:
        """End the open streams with an error as their last event, once; return their number."""
        streams = [
            stream
            for stream in self._streams
            if scope.covers(stream.asked) and stream.error is None
        ]
        for stream in streams:
            stream.error = error
            stream.interrupt()

        return len(streams)

    def _cut_streams(self, fault: Fault) -> None:
        for stream in list(self._streams):
            if fault.take(stream.asked):
                stream.cut()

    def _discard(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)


def build_fault(trouble: Trouble, detach: Callable[[Fault], None]) -> Fault:
    """Build a fault with at least one effect."""
    _check_keywords(trouble, Trouble)
    scope = Scope(
        trouble.get('verb', ''),
        trouble.get('resource', ''),
        trouble.get('path', ''),
        trouble.get('user_agent', ''),
    )
    code = trouble.get('code')
    latency = trouble.get('latency', 0.0)
    times = trouble.get('times')
    if latency < 0:
        raise ValueError(f'The latency of a fault cannot be negative: {latency}.')
    if times is not None and times <= 0:
        raise ValueError(
            f'The times of a fault must be a positive number, or None for no limit, not {times}.'
        )

    error = (
        None
        if code is None
        else build_error(
            code, trouble.get('reason', ''), trouble.get('message', ''), trouble.get('retry_after')
        )
    )
    fault = Fault(
        scope,
        error,
        latency,
        trouble.get('cut', False),
        trouble.get('stall', False),
        times,
        _detach=detach,
    )
    if fault.error is None and not fault.latency and not fault.cuts and not fault.stalls:
        raise ValueError('A fault needs an effect: code=, latency=, cut= or stall=.')
    return fault


def _check_keywords(given: Mapping[str, Any], known: type[Where]) -> None:
    wrong = [name for name in given if name not in known.__annotations__]
    if wrong:
        raise TypeError(
            f'Unknown keywords: {", ".join(wrong)}; the known ones are '
            f'{", ".join(known.__annotations__)}.'
        )


_REASONS = {
    400: 'BadRequest',
    401: 'Unauthorized',
    403: 'Forbidden',
    404: 'NotFound',
    405: 'MethodNotAllowed',
    409: 'Conflict',
    410: 'Expired',
    413: 'RequestEntityTooLarge',
    415: 'UnsupportedMediaType',
    422: 'Invalid',
    429: 'TooManyRequests',
    500: 'InternalError',
    503: 'ServiceUnavailable',
    504: 'Timeout',
}


def build_error(
    code: int, reason: str = '', message: str = '', retry_after: int | None = None
) -> errors.ApiError:
    """Build the error of a code, by default with the API's reason for this code."""
    if not 400 <= code <= 599:
        raise ValueError(f'The code of a fault must be of an error, 400 to 599, not {code}.')
    text = message or f'a fault was injected with the code {code}'
    return errors.ApiError(code, reason or _REASONS.get(code, ''), text, retry_after=retry_after)
