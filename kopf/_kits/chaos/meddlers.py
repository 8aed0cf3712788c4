"""
Meddlers: they intercept the requests of an operator to its sandbox, and inject the planned faults.

Changes made by the sandbox's own methods, i.e. by scenarios, are not intercepted.
"""

import asyncio
import collections
import contextlib
import contextvars
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable

from kopf._kits.chaos import plans, timelines, watchdogs
from kopf._sandbox import faults
from kopf._sandbox.endpoints import negotiation
from kopf._sandbox.http import routing
from kopf._sandbox.meta import errors, kinds, request_info
from kopf._sandbox.registry import watcher
from kopf._sandbox.storage import memory

UNCOUNTED = frozenset(
    {'events', 'selfsubjectaccessreviews', 'selfsubjectrulesreviews', 'leases', 'tokenreviews'}
)
"""The resources whose writes change nothing important, so they are no points to crash at."""

STABLE = frozenset({'customresourcedefinitions', 'namespaces'})
"""The resources that are never shown stale: otherwise, it would be another cluster."""

OWN_AGENT = 'kopf/'

_is_operator: contextvars.ContextVar[bool] = contextvars.ContextVar(
    'kopf-chaos-is-operator', default=False
)
"""Whether the current task serves a request: of the operator, or of clients in its handlers."""

Proceed = Callable[[routing.Call], Awaitable[negotiation.Answer]]


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of the operator, with its number among the same requests."""

    verb: str
    plural: str
    name: str
    nth: int = 0
    is_own: bool = True  # whether it is of the framework, not of the clients in handlers

    @property
    def what(self) -> str:
        return f'{self.plural} {self.name}'.strip()

    @property
    def object(self) -> str:
        """The object as the log messages name it: with its namespace, without the subresource."""
        namespace, _, rest = self.name.partition('/')
        return f'{namespace}/{rest.partition("/")[0]}'

    @property
    def is_counted(self) -> bool:
        return self.verb in plans.WRITES and self.plural not in UNCOUNTED


class Meddler:
    """Spoils the requests of one run. Used only from the event loop of the sandbox."""

    def __init__(
        self,
        plan: plans.Plan,
        store: memory.Storage,
        streams: faults.Faults,
        timeline: timelines.Timeline,
        watchdog: watchdogs.Watchdog,
    ) -> None:
        self._plan = plan
        self._store = store
        self._streams = streams
        self._timeline = timeline
        self._watchdog = watchdog
        self._crashes = {crash.write: crash for crash in plan.crashes}
        self._gaps = {gap.change: gap for gap in plan.gaps}
        self._asked: collections.Counter[tuple[str, str]] = collections.Counter()
        self._is_lifted = False
        self._lifted = asyncio.Event()
        self._blind_until = self._behind_until = 0.0
        self._view = 0  # the version that is visible while the view is stale
        self._own = 0  # the version of the last write of the operator
        self.writes = self.changes = 0
        self.crash: plans.Crash | None = None  # while the operator is dead or about to die
        self.crashed = asyncio.Event()
        store.observe(self._notice)

    def lift(self) -> None:
        """
        Stop all faults. Stalled requests are disconnected; delayed events are sent immediately.
        """
        self._is_lifted = True
        self._blind_until = self._behind_until = 0.0
        self._lifted.set()

    def revive(self) -> None:
        """Let in the next operator after a crash, with the planned staleness of its view."""
        crash = self.crash
        self.crash = None
        self.crashed.clear()

        if crash is not None and crash.behind and not self._is_lifted:
            self._view = max(
                self._store.version - crash.behind, 1 if crash.is_amnesic else self._own
            )
            self._behind_until = _read_clock() + crash.lag

    async def intercept(
        self, call: routing.Call, asked: faults.Asked, proceed: Proceed
    ) -> negotiation.Answer:
        """Answer a request, or spoil it, as planned."""
        _is_operator.set(True)
        request = self._recognise(call, asked)
        if self.crash is not None:
            raise faults.Cut

        if request.is_own and request.is_counted:
            self._watchdog.note_write(request.object, f'{request.verb} {request.plural}')
        if request.verb in ('list', 'watch') and _read_clock() < self._blind_until:
            raise faults.Cut

        harm = self._choose_harm(request)
        if harm is not None:
            self._timeline.note('fault', f'{request.verb} {request.what}: {harm}')
        if harm is not None and request.verb != 'watch':
            return await self._spoil(request, harm, lambda: self._execute(request, call, proceed))
        if harm is not None and not harm.lines:
            return await self._spoil(request, harm, lambda: proceed(call))

        answer = await self._execute(request, call, proceed)
        self._report(request, asked, answer)
        if answer.lines is None or request.verb != 'watch':
            return answer
        return dataclasses.replace(answer, lines=self._stream(request, harm, answer.lines))

    def _choose_harm(self, request: Request) -> plans.Harm | None:
        if self._is_lifted:
            return None
        return plans.choose_harm(
            self._plan, request.verb, request.what, request.nth
        ) or plans.choose_conflict(self._plan, request.verb, request.what, request.nth)

    def _recognise(self, call: routing.Call, asked: faults.Asked) -> Request:
        target = request_info.parse_path(call.path)
        verb = call.method.lower()
        plural = call.path
        name = ''

        if target is not None:
            verb = request_info.detect_verb(call.method, target, call.options) or verb
            plural = target.plural
            name = '/'.join(filter(None, [target.namespace, target.name, target.subresource]))

        self._asked[verb, f'{plural} {name}'] += 1
        return Request(
            verb,
            plural,
            name,
            self._asked[verb, f'{plural} {name}'],
            is_own=asked.user_agent.startswith(OWN_AGENT),
        )

    def _report(self, request: Request, asked: faults.Asked, answer: negotiation.Answer) -> None:
        if request.verb in plans.WRITES or request.verb in ('list', 'watch'):
            number = f' (write {self.writes})' if request.is_counted else ''
            self._timeline.note('request', f'{request.verb} {request.what}: {answer.code}{number}')

    async def _execute(
        self, request: Request, call: routing.Call, proceed: Proceed
    ) -> negotiation.Answer:
        """Execute a request; a write can be the last one before the operator is killed."""
        if self._is_behind(request, call):
            return await self._look_behind(request, call, proceed)
        if not request.is_counted:
            return await proceed(call)

        self.writes += 1
        crash = None if self._is_lifted else self._crashes.get(self.writes)
        if crash is not None and crash.is_before:
            self._kill(crash, request)
        answer = await proceed(call)
        self._own = self._store.version
        if crash is not None:
            self._kill(crash, request)
        if self.crash is not None:  # the operator was killed in the meantime
            raise faults.Cut
        return answer

    def _kill(self, crash: plans.Crash, request: Request) -> None:
        if self.crash is None:
            self._timeline.note(
                'crash', f'{request.verb} {request.what}: the operator is killed {crash}'
            )
            self.crash = crash
            self.crashed.set()
            self._streams.cut_streams()

        raise faults.Cut

    def _is_behind(self, request: Request, call: routing.Call) -> bool:
        is_plain = (
            request.verb == 'list' and not {'resourceVersion', 'continue'} & call.options.keys()
        )
        return is_plain and request.plural not in STABLE and _read_clock() < self._behind_until

    async def _look_behind(
        self, request: Request, call: routing.Call, proceed: Proceed
    ) -> negotiation.Answer:
        """Answer with a list of a past version."""
        target = request_info.parse_path(call.path)
        shelf = self._store.shelf(
            kinds.NOWHERE if target is None else kinds.Home(target.group, target.plural)
        )
        version = max(self._view, shelf.compacted)
        self._timeline.note(
            'fault', f'list {request.what}: as of the version {version}, not {self._store.version}'
        )
        past = {'resourceVersion': str(version), 'resourceVersionMatch': 'Exact'}

        return await proceed(dataclasses.replace(call, options={**call.options, **past}))

    async def _spoil(
        self,
        request: Request,
        harm: plans.Harm,
        execute: Callable[[], Awaitable[negotiation.Answer]],
    ) -> negotiation.Answer:
        if request.is_own:  # other clients are usually in threads, for which the time is real
            await self._sleep(harm.seconds)
        match harm.way:
            case plans.Way.REFUSE:
                error = faults.build_error(harm.code, retry_after=1 if harm.code == 429 else None)
                return routing.build_refusal(error, '', pretty=False)
            case plans.Way.CUT | plans.Way.STALL:
                raise faults.Cut
            case plans.Way.LOSE:
                await execute()
                raise faults.Cut
            case plans.Way.TEAR:
                answer = await execute()
                return dataclasses.replace(answer, lines=_tear(answer.body))
            case _:
                return await execute()

    async def _stream(
        self, request: Request, harm: plans.Harm | None, batches: AsyncGenerator[bytes]
    ) -> AsyncGenerator[bytes]:
        """Pass the lines of a stream through, with the planned faults."""
        yield b''
        await self._sleep(0.0 if request.plural in STABLE else self._behind_until - _read_clock())
        count = 0

        async with contextlib.aclosing(
            self._delay(batches) if self._plan.lateness else batches
        ) as lines:
            async for batch in lines:
                for line in batch.splitlines(keepends=True):
                    count += 1
                    yield await self._pass(request, line, count)
                    if harm is not None and not self._is_lifted and count >= harm.lines:
                        await self._sleep(harm.seconds)
                        if harm.way is plans.Way.EXPIRE:
                            yield watcher.encode_error(errors.expired('too old resource version'))
                        if harm.way in (plans.Way.EXPIRE, plans.Way.END):
                            return
                        raise faults.Cut

    async def _delay(self, batches: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Pass the lines through in their order, all of them late by the same time."""
        queue = asyncio.Queue[tuple[float, bytes] | None]()
        reading = asyncio.create_task(_read_ahead(batches, queue), name='reader of a late stream')

        try:
            while (item := await queue.get()) is not None:
                since, batch = item
                await self._sleep(since + self._plan.lateness - _read_clock())
                yield batch
            await reading
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _pass(self, request: Request, line: bytes, number: int) -> bytes:
        harm = (
            None
            if self._is_lifted
            else plans.choose_line_harm(self._plan, request.what, request.nth, number)
        )
        if harm is None or b'"BOOKMARK"' in line[:20]:
            return line

        self._timeline.note('fault', f'event {number} of {request.what}: {harm}')
        await self._sleep(harm.delay)
        return line * 2 if harm.is_repeated else line

    async def _sleep(self, seconds: float) -> None:
        """Wait for this time, but no longer than until the faults are lifted."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lifted.wait(), seconds)

    def _notice(self, change: memory.Change) -> None:
        """Count all changes, no matter who makes them, and begin the gaps at the planned ones."""
        if change.home.plural in UNCOUNTED:
            return

        self.changes += 1
        if not is_by_operator():
            self._watchdog.note_foreign_change(f'{change.new.namespace}/{change.new.name}')
        name = memory.make_key(change.new.namespace, change.new.name)
        self._timeline.note(
            'object', f'{change.type} {change.home.plural} {name} (version {change.version})'
        )
        gap = None if self._is_lifted else self._gaps.get(self.changes)
        if gap is not None:
            self._begin_gap(gap)

    def _begin_gap(self, gap: plans.Gap) -> None:
        self._timeline.note('gap', str(gap))
        loop = asyncio.get_running_loop()
        self._blind_until = max(self._blind_until, loop.time() + gap.duration)
        self._streams.cut_streams()
        if gap.is_forgotten:
            loop.call_later(gap.duration, self._store.compact)


def is_by_operator() -> bool:
    """Return whether the change that is being stored now is made by the operator."""
    return _is_operator.get()


async def _read_ahead(
    batches: AsyncGenerator[bytes], queue: asyncio.Queue[tuple[float, bytes] | None]
) -> None:
    """Put the lines with the moments when they come; and then ``None``."""
    try:
        async with contextlib.aclosing(batches) as lines:
            async for batch in lines:
                queue.put_nowait((_read_clock(), batch))
    finally:
        queue.put_nowait(None)


async def _tear(body: bytes) -> AsyncGenerator[bytes]:
    yield body[: len(body) // 2]
    raise faults.Cut


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
