"""
Vaults: the credentials in use, from the login that brought them to their expiration or rejection.

Requests take random credentials among the valid ones of the highest priority, and report the
rejected ones back. When none are left, the requests wait, and the authenticator is asked to run the
login handlers for new ones. Rejected credentials are not accepted again; if nothing else is
brought, the waiting requests fail. Objects made of credentials, such as HTTP sessions, can be kept
here too: one per credentials, closed with them.

A vault belongs to one event loop, since its first use. Between awaits, its state is always
consistent.
"""

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import enum
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from kopf._cogs.aiokits import bells
from kopf._cogs.structs import credentials

MEMORY = 3
"""How many of the latest rejected credentials are remembered for each key."""

TRIAL = 60.0
"""Credentials that are all rejected within this many seconds after their login were never good."""

DELAYS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""
Seconds before the next logins after those that were never good; after the last delay, there are no
more logins.
"""

CLOSING_TIMEOUT = 5.0
"""Seconds to wait for the closing of an object made of discarded credentials."""

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """An object kept with credentials; it must tolerate repeated and cancelled closing."""

    async def close(self) -> None: ...


ClosableT = TypeVar('ClosableT', bound=Closable)
Key: TypeAlias = str  # normally, the id of the login handler
Factory: TypeAlias = Callable[[credentials.Credentials], Awaitable[ClosableT]]


@dataclasses.dataclass(frozen=True)
class Lease(Generic[ClosableT]):
    """The credentials and the object made of them, for the time of one request or one stream."""

    key: Key
    info: credentials.Credentials
    item: ClosableT
    # The entry of the vault.
    entry: '_Entry | None' = dataclasses.field(default=None, compare=False, repr=False)


class _Phase(enum.Enum):
    VALID = enum.auto()  # can be selected
    # Not selected, but the next login may prolong it, with all objects made of it.
    EXPIRED = enum.auto()
    RETIRED = enum.auto()  # not selected, closed when the last of its leases ends
    REJECTED = enum.auto()  # not selected, closed immediately


@dataclasses.dataclass(eq=False)
class _Entry:
    """One set of credentials with everything made of it. Mutated by its vault only."""

    key: Key
    info: credentials.Credentials
    footprints: credentials.Footprints = ()  # of the files at the time of the login
    phase: _Phase = _Phase.VALID
    leases: int = 0
    items: dict[Hashable, Closable] = dataclasses.field(default_factory=dict)
    making: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)

    @property
    def is_rejected(self) -> bool:
        return self.phase is _Phase.REJECTED

    @property
    def is_disposable(self) -> bool:
        return self.is_rejected or (self.phase is _Phase.RETIRED and not self.leases)

    def is_same(self, info: credentials.Credentials) -> bool:
        """Return whether these are the same credentials, from the same files."""
        return credentials.are_same(
            self.info, info
        ) and self.footprints == credentials.read_footprints(info)


class Vault:
    """
    The pool of credentials by keys. Any number of tasks may use and report them; one task should
    bring new ones.

    ``source`` is the initial credentials; ``now`` is the clock for the expiration, with a timezone;
    ``choose`` takes one of several equally good credentials. With ``fixed``, no others are ever
    accepted: the login handlers are called only for their side effects, not for their results.
    """

    def __init__(
        self,
        source: Mapping[Key, credentials.Credentials] | None = None,
        *,
        now: Callable[[], datetime.datetime] | None = None,
        choose: Callable[[Sequence[Any]], Any] = random.choice,
        fixed: Mapping[Key, credentials.Credentials] | None = None,
    ) -> None:
        self.fixed = fixed
        self._now = now if now is not None else _read_clock
        self._choose = choose
        self._entries: dict[Key, _Entry] = {}  # valid, or expired and waiting for the next login
        self._discarded: list[_Entry] = []  # retired or rejected, not closed yet
        self._rejected: dict[Key, collections.deque[_Entry]] = {}
        self._supply = bells.Bell()
        self._need = bells.Bell()
        self._demand = 0  # how many requests wait for credentials
        self._populated_at = self._now()
        # How many logins in a row brought only credentials that were soon rejected.
        self._fruitless = 0
        self._last_rejection: Exception | None = None
        self._failure: credentials.LoginError | None = None
        self._is_closed = False
        self._accept_all(source or {})

    @property
    def is_empty(self) -> bool:
        """Whether there are no valid credentials at the moment."""
        return not self._list_valid()

    @property
    def preferred(self) -> credentials.Credentials | None:
        """The valid credentials of the highest priority, or ``None`` if there are none."""
        infos = [entry.info for entry in self._list_valid()]
        return max(infos, key=lambda info: info.priority, default=None)

    @property
    def has_expired(self) -> bool:
        """Whether there are expired credentials that wait for the next login to prolong them."""
        return any(entry.phase is _Phase.EXPIRED for entry in self._entries.values())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def select(self) -> tuple[Key, credentials.Credentials]:
        """
        Take random credentials among the valid ones of the highest priority, or wait until there
        are any.

        The wait lasts as long as the login does. Any number of tasks may wait; cancelling one does
        not affect the others. Raises `LoginError` if the login brings nothing usable, or has
        already failed to, or the vault is closed.
        """
        entry = await self._select_entry()
        return entry.key, entry.info

    @contextlib.asynccontextmanager
    async def extended(self, factory: Factory[ClosableT]) -> AsyncIterator[Lease[ClosableT]]:
        """
        Take credentials as in `select`, with the object that the factory makes of them: once, for
        all tasks together.

        Objects of expired credentials live until their last lease ends; of rejected ones, until the
        rejection. If the factory fails with `LoginError`, its credentials count as rejected, and
        others are taken. Cancelling an unfinished factory is safe: the next task in need calls it
        again.
        """
        lease = await self.take(factory)
        try:
            yield lease
        finally:
            await self.give_back(lease)

    async def take(self, factory: Factory[ClosableT]) -> Lease[ClosableT]:
        """Take a lease as `extended` does, but without a block: the caller must give it back."""
        entry = self._take_sole(factory)
        if entry is None:
            entry = await self._lease(factory)
        return Lease(entry.key, entry.info, cast(ClosableT, entry.items[factory]), entry)

    async def give_back(self, lease: Lease[Any]) -> None:
        """End a lease; close its object if that was the last lease of discarded credentials."""
        if lease.entry is not None:
            lease.entry.leases -= 1
        if self._discarded:
            await self._dispose()

    async def invalidate(
        self, key: Key, info: credentials.Credentials, *, exc: Exception | None = None
    ) -> None:
        """
        Exclude the credentials rejected by the API, and close the objects made of them.

        Only exactly these credentials are excluded: newer ones under the same key stay valid, and
        any number of tasks may report the same ones. ``exc`` is the reason. If cancelled, they stay
        excluded; objects that are not closed yet will be closed later.
        """
        entries = [
            entry
            for entry in [*self._entries.values(), *self._discarded]
            if entry.key == key and credentials.are_same(entry.info, info)
        ]
        # Other entries can be of newer files.
        exact = [entry for entry in entries if entry.info is info]
        for entry in exact or entries:
            self._reject(entry, exc)
        await self._dispose()

    async def populate(self, infos: Mapping[Key, credentials.Credentials | None]) -> None:
        """
        Accept the credentials from the login handlers, and let the waiting requests continue.

        The same credentials as before keep their objects; replaced credentials retire. Expired or
        previously rejected credentials are ignored. If the vault stays empty, the requests fail,
        and `LoginError` is raised here too. Raises `ValueError` for anything but credentials, with
        nothing changed.
        """
        for key, info in infos.items():
            if info is not None and not isinstance(info, credentials.Credentials):
                raise ValueError(
                    f'The login handler {key!r} must return kopf.ConnectionInfo, '
                    f'kopf.AiohttpSession or None, not {type(info).__name__}.'
                )

        self._check_open()
        self._expire()
        ignored = self._accept_all(infos)
        self._retire_expired()
        self._populated_at = self._now()
        self._failure = None
        if self.is_empty:
            self._failure = _build_failure(ignored, self._last_rejection)
        self._supply.ring()
        await self._dispose()
        if self._failure is not None:
            raise self._failure

    def fail(self, error: credentials.LoginError) -> None:
        """Fail the requests that wait for credentials, now or later, until the next login."""
        self._failure = error
        self._supply.ring()

    async def wait_until_needed(self) -> None:
        """
        Wait until some requests need credentials and there are none, i.e. until a login is needed.

        If the credentials of the latest logins were soon rejected, the wait is prolonged, longer
        each time (see `DELAYS`), and finally raises `LoginError`, as do all requests; it also
        raises when the vault is closed. Otherwise, it waits indefinitely. Only one task should
        wait. Cancelling it changes nothing.
        """
        while True:
            self._check_open()
            if self._is_login_needed:
                delay = self._get_delay()
                await asyncio.sleep(delay)
                if self._is_login_needed:
                    return
            else:
                await self._need.wait()

    async def close(self) -> None:
        """
        Discard all credentials, close everything made of them, and fail the waiting requests,
        permanently.

        Takes at most `CLOSING_TIMEOUT` seconds per object. If cancelled, it can be repeated to
        close the rest.
        """
        self._is_closed = True
        for entry in list(self._entries.values()):
            self._discard(entry, _Phase.REJECTED)
        for entry in self._discarded:
            entry.phase = _Phase.REJECTED
        self._supply.ring()
        self._need.ring()
        await self._dispose()

    async def _select_entry(self) -> _Entry:
        while True:
            self._check_open()
            self._expire()
            await self._dispose()
            valid = self._list_valid()
            if valid:
                highest = max(entry.info.priority for entry in valid)
                return cast(
                    _Entry,
                    self._choose([entry for entry in valid if entry.info.priority == highest]),
                )
            if self._failure is not None:
                raise credentials.LoginError(*self._failure.args) from self._failure
            await self._wait_for_supply()

    async def _wait_for_supply(self) -> None:
        self._demand += 1
        self._need.ring()
        try:
            await self._supply.wait()
        finally:
            self._demand -= 1

    def _take_sole(self, factory: Factory[Any]) -> _Entry | None:
        """Lease the only credentials if they never expire: the usual case, without waiting."""
        if self._is_closed or self._discarded or len(self._entries) != 1:
            return None

        entry = next(iter(self._entries.values()))
        if (
            entry.phase is not _Phase.VALID
            or entry.info.expiration is not None
            or factory not in entry.items
        ):
            return None

        entry.leases += 1
        return entry

    async def _lease(self, factory: Factory[ClosableT]) -> _Entry:
        """Lease an entry; the caller must end the lease."""
        while True:
            entry = await self._select_entry()
            entry.leases += 1  # keeps the entry while the object is being made
            is_ready = False
            try:
                is_ready = await self._obtain(entry, factory)
            except credentials.LoginError as error:
                logger.warning('Credentials of %r cannot be used: %s', entry.key, error)
                self._reject(entry, error)
            finally:
                entry.leases -= 0 if is_ready else 1
            if is_ready:
                return entry

    async def _obtain(self, entry: _Entry, factory: Factory[ClosableT]) -> bool:
        """Make the object if it is absent; return whether the credentials are still usable."""
        async with entry.making:
            if factory not in entry.items and not entry.is_rejected:
                entry.items[factory] = await factory(entry.info)
                if entry.is_rejected:
                    # Discard it again: the object was made too late, and must be closed too.
                    self._discard(entry, _Phase.REJECTED)
            return not entry.is_rejected

    @property
    def _is_login_needed(self) -> bool:
        return (
            bool(self._demand) and self._failure is None and self.is_empty and not self._is_closed
        )

    def _get_delay(self) -> float:
        if self._fruitless > len(DELAYS):
            error = credentials.LoginError(
                f'Cannot log in: all new credentials were rejected {self._fruitless} times in a row'
                f'{_describe_rejection(self._last_rejection)}. Check that the credentials are of '
                'this cluster.'
            )
            self.fail(error)
            raise error

        return DELAYS[self._fruitless - 1] if self._fruitless else 0.0

    def _check_open(self) -> None:
        if self._is_closed:
            raise credentials.LoginError(
                'The vault of credentials is closed: the operator is exiting.'
            )

    def _list_valid(self) -> list[_Entry]:
        now = self._now()
        return [
            entry
            for entry in self._entries.values()
            if entry.phase is _Phase.VALID and not credentials.is_expired(entry.info, now)
        ]

    def _expire(self) -> None:
        """Mark the expired credentials; retire them if others are left: there will be no login."""
        now = self._now()
        for entry in self._entries.values():
            if entry.phase is _Phase.VALID and credentials.is_expired(entry.info, now):
                entry.phase = _Phase.EXPIRED
                self._fruitless = 0  # they were good until then

        if not self.is_empty:
            self._retire_expired()

    def _retire_expired(self) -> None:
        for entry in list(self._entries.values()):
            if entry.phase is _Phase.EXPIRED:
                self._discard(entry, _Phase.RETIRED)

    def _accept_all(self, infos: Mapping[Key, credentials.Credentials | None]) -> dict[Key, str]:
        """Accept the good credentials; return the reasons why the others are ignored."""
        ignored: dict[Key, str] = {}
        now = self._now()
        for key, info in infos.items():
            if info is None:
                continue
            if credentials.is_expired(info, now):
                ignored[key] = 'expired'
            elif any(entry.is_same(info) for entry in self._rejected.get(key, ())):
                ignored[key] = 'were rejected by the cluster before'
            else:
                self._accept(key, info)

        return ignored

    def _accept(self, key: Key, info: credentials.Credentials) -> None:
        known = self._entries.get(key)
        if known is not None and known.is_same(info):
            known.info = info
            known.phase = _Phase.VALID
            return

        if known is not None:
            self._discard(known, _Phase.RETIRED)
        self._entries[key] = _Entry(key, info, credentials.read_footprints(info))

    def _reject(self, entry: _Entry, exc: Exception | None) -> None:
        if entry.is_rejected:
            return

        # Files that are absent for a moment are not a reason to give up.
        if None not in entry.footprints:
            self._rejected.setdefault(entry.key, collections.deque(maxlen=MEMORY)).append(entry)
        self._last_rejection = exc
        self._discard(entry, _Phase.REJECTED)
        if self.is_empty:
            age = (self._now() - self._populated_at).total_seconds()
            self._fruitless = self._fruitless + 1 if age < TRIAL else 0

    def _discard(self, entry: _Entry, phase: _Phase) -> None:
        entry.phase = phase
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        if entry not in self._discarded:
            self._discarded.append(entry)

    async def _dispose(self) -> None:
        """Close objects that are no longer needed. Several tasks may do that at once."""
        for entry in [entry for entry in self._discarded if entry.is_disposable]:
            for factory, item in list(entry.items.items()):
                await _close(item)
                if entry.items.get(factory) is item:
                    del entry.items[factory]
            if isinstance(entry.info, credentials.AiohttpSession):
                await _close(entry.info.aiohttp_session)
            if entry in self._discarded and not entry.items:
                self._discarded.remove(entry)


async def _close(item: Closable) -> None:
    try:
        async with asyncio.timeout(CLOSING_TIMEOUT):
            await item.close()
    except Exception as error:
        logger.warning('Closing of %s has failed, and is given up: %r', type(item).__name__, error)


def _build_failure(
    ignored: Mapping[Key, str], rejection: Exception | None
) -> credentials.LoginError:
    if not ignored:
        return credentials.LoginError(
            'Cannot log in: no credentials are brought by the login handlers. '
            'Check what they return, and the logs for their errors.'
        )

    listed = ', '.join(f'those of {key!r} {reason}' for key, reason in ignored.items())
    return credentials.LoginError(
        f'Cannot log in: no new credentials are brought by the login handlers; {listed}'
        f'{_describe_rejection(rejection)}.'
    )


def _describe_rejection(rejection: Exception | None) -> str:
    return (
        f' ({credentials.hide_userinfo(str(rejection)).rstrip(".")})'
        if rejection is not None
        else ''
    )


def _read_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
