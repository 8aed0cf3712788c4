"""
A proxy between an operator's process and a real API server: it lets the requests go wrong as it is
planned by a seed.

It is what `kopf._kits.chaos.meddlers` is for the sandbox, but on the network and in real time: the
plans are the same, and all their seconds are shortened. The operator is a process, and is killed by
SIGKILL at its planned write.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json

import aiohttp
from aiohttp import web

from kopf._kits.chaos import meddlers, plans
from kopf._sandbox.meta import request_info

PACE = 0.02
"""Real seconds per planned second."""


@dataclasses.dataclass(frozen=True)
class Passage:
    """One request on its way: what it is, and how to pass it on."""

    request: meddlers.Request
    http: web.BaseRequest
    body: bytes
    query: dict


class FaultProxy:
    """
    ``async with FaultProxy(server, headers, context, plan) as proxy:``, then use ``proxy.url``,
    with no TLS.

    ``kill`` is called when the operator is to be killed; all its requests are cut from that moment
    on, until `revive`.
    """

    def __init__(self, server, headers, context, plan, kill=lambda: None):
        self._server, self._headers, self._context = server, headers, context
        self._plan, self._kill = plan, kill
        self._crashes = {crash.write: crash for crash in plan.crashes}
        self._asked = collections.Counter()
        self._versions = []  # of the objects, as answered to writes
        self._behind = 0
        self._behind_until = self._blind_until = 0.0
        self._gaps = {gap.change: gap for gap in plan.gaps}
        self._open = set()
        self._lifted = asyncio.Event()
        self.writes, self.hits, self.story = 0, collections.Counter(), []
        self.troubled_writes = 0  # until everything is well
        self.crash = None
        self.crashed = asyncio.Event()

    async def __aenter__(self):
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._client = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        )
        self._web = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._listener = await asyncio.get_running_loop().create_server(self._web, '127.0.0.1', 0)
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        self._cut_all()
        await self._web.shutdown(timeout=0.1)
        await self._client.close()

    @property
    def url(self):
        host, port, *_ = self._listener.sockets[0].getsockname()
        return f'http://{host}:{port}'

    def lift(self):
        """Let everything be well from now on."""
        self._blind_until = self._behind_until = 0.0
        self.troubled_writes = self.writes
        self._lifted.set()

    def revive(self):
        """Let the next operator in after a crash."""
        crash, self.crash = self.crash, None
        self.crashed.clear()
        if crash is not None and crash.behind and not self._lifted.is_set():
            own = [] if crash.is_amnesic else self._versions[-1:]
            self._behind = max([*self._versions[-crash.behind :][:1], *own], default=0)
            self._behind_until = _read_clock() + crash.lag * PACE

    async def _serve(self, http):
        passage = await self._recognise(http)
        request = passage.request
        self._open.add(http.transport)
        try:
            if self.crash is not None or (
                request.verb in ('list', 'watch') and _read_clock() < self._blind_until
            ):
                raise _Cut
            harm = (
                None
                if self._lifted.is_set()
                else plans.choose_harm(self._plan, request.verb, request.what, request.nth)
            )
            if harm is not None:
                self._note(f'{request.verb} {request.what}: {harm}', harm.way)
            if harm is not None and not harm.lines:
                return await self._spoil(passage, harm)
            return await self._execute(passage, harm)
        except (_Cut, aiohttp.ClientError):
            http.transport.abort()
            raise asyncio.CancelledError from None
        finally:
            self._open.discard(http.transport)

    async def _recognise(self, http):
        query = dict(http.query)
        target = request_info.parse_path(http.path)
        verb, plural, name = http.method.lower(), http.path, ''
        if target is not None:
            verb = request_info.detect_verb(http.method, target, query) or verb
            plural, name = target.plural, '/'.join(filter(None, [target.name, target.subresource]))
        self._asked[verb, plural, name] += 1
        request = meddlers.Request(verb, plural, name, self._asked[verb, plural, name])
        return Passage(request, http, await http.read(), query)

    async def _spoil(self, passage, harm):
        await self._sleep(harm.seconds)
        match harm.way:
            case plans.Way.REFUSE:
                status = {
                    'kind': 'Status',
                    'apiVersion': 'v1',
                    'status': 'Failure',
                    'code': harm.code,
                    'reason': {409: 'Conflict', 410: 'Expired'}.get(harm.code, ''),
                    'message': 'a fault',
                }
                headers = {'Retry-After': '0'} if harm.code == 429 else {}
                return web.json_response(status, status=harm.code, headers=headers)
            case plans.Way.CUT | plans.Way.STALL:
                raise _Cut
            case plans.Way.LOSE:
                await self._execute(passage, None, is_lost=True)
                raise _Cut
            case plans.Way.TEAR:
                await self._execute(passage, None, is_torn=True)
                raise _Cut
            case _:
                return await self._execute(passage, None)

    async def _execute(self, passage, harm, *, is_lost=False, is_torn=False):
        """Let it be done; for writes, it can be the last thing that the operator does."""
        crash = None
        if passage.request.is_counted:
            self.writes += 1
            crash = None if self._lifted.is_set() else self._crashes.get(self.writes)
        if crash is not None and crash.is_before:
            self._die(crash, passage.request)
        async with self._pass_on(passage) as answer:
            if passage.request.verb == 'watch' and answer.status == 200:
                return await self._stream(passage, harm, answer)
            raw = await answer.read()
            self._remember(passage.request, answer.status, raw)
            if crash is not None:
                self._die(crash, passage.request)
            if self.crash is not None:
                raise _Cut
            if is_lost:
                return None
            response = web.StreamResponse(status=answer.status, headers=_choose_headers(answer))
            response.content_length = len(raw)
            await response.prepare(passage.http)
            await response.write(raw[: len(raw) // 2] if is_torn else raw)
            return response

    @contextlib.asynccontextmanager
    async def _pass_on(self, passage):
        http, query = passage.http, passage.query
        if (
            passage.request.verb == 'list'
            and self._is_behind(passage.request)
            and 'continue' not in query
        ):
            query = {**query, 'resourceVersion': str(self._behind), 'resourceVersionMatch': 'Exact'}
            self._note(f'list {passage.request.what}: as of the version {self._behind}', 'stale')
        headers = {
            name: http.headers[name] for name in ('Accept', 'Content-Type') if name in http.headers
        }
        async with self._client.request(
            http.method,
            f'{self._server}{http.path}',
            params=query,
            data=passage.body or None,
            headers={**headers, **self._headers},
        ) as answer:
            yield answer

    async def _stream(self, passage, harm, answer):
        response = web.StreamResponse(headers=_choose_headers(answer))
        response.enable_chunked_encoding()
        await response.prepare(passage.http)
        if self._is_behind(passage.request):
            await self._sleep((self._behind_until - _read_clock()) / PACE)
        count, request = 0, passage.request
        async for line in _split_lines(answer.content):
            count += 1
            spoilt = (
                None
                if self._lifted.is_set() or b'"BOOKMARK"' in line[:20]
                else plans.choose_line_harm(self._plan, request.what, request.nth, count)
            )
            if spoilt is not None:
                self._note(
                    f'event {count} of {request.what}: {spoilt}',
                    'repeated' if spoilt.is_repeated else 'late',
                )
                await self._sleep(spoilt.delay)
            await response.write(line * (2 if spoilt is not None and spoilt.is_repeated else 1))
            if harm is not None and not self._lifted.is_set() and count >= harm.lines:
                await self._sleep(harm.seconds)
                return await self._end_stream(response, harm)
        return response

    async def _end_stream(self, response, harm):
        if harm.way is plans.Way.EXPIRE:
            status = {
                'kind': 'Status',
                'apiVersion': 'v1',
                'status': 'Failure',
                'code': 410,
                'reason': 'Expired',
            }
            await response.write(json.dumps({'type': 'ERROR', 'object': status}).encode() + b'\n')
        if harm.way not in (plans.Way.EXPIRE, plans.Way.END):
            raise _Cut
        return response

    def _remember(self, request, status, raw):
        """Remember the versions of objects, and begin the gaps when it is time."""
        if (
            request.verb not in plans.WRITES
            or request.plural in meddlers.UNCOUNTED
            or status >= 300
        ):
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self._versions.append(int(json.loads(raw)['metadata']['resourceVersion']))
        gap = None if self._lifted.is_set() else self._gaps.get(len(self._versions))
        if gap is not None:
            self._note(str(gap), 'gap')
            self._blind_until = _read_clock() + gap.duration * PACE
            self._cut_all()

    def _is_behind(self, request):
        return (
            self._behind
            and request.plural not in meddlers.STABLE
            and _read_clock() < self._behind_until
        )

    def _die(self, crash, request):
        if self.crash is None:
            self._note(f'{request.verb} {request.what}: killed {crash}', 'crash')
            self.crash = crash
            self._kill()
            self.crashed.set()
            self._cut_all()
        raise _Cut

    def _cut_all(self):
        for transport in list(self._open):
            transport.abort()

    def _note(self, text, kind):
        self.story.append(text)
        self.hits[str(kind)] += 1

    async def _sleep(self, seconds):
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lifted.wait(), seconds * PACE)


class _Cut(Exception):
    """The connection is to be closed with no answer."""


def _choose_headers(answer):
    return {
        name: answer.headers[name]
        for name in ('Content-Type', 'Retry-After', 'Content-Encoding')
        if name in answer.headers
    }


async def _split_lines(content):
    buffer = b''
    async for chunk in content.iter_any():
        *lines, buffer = (buffer + chunk).split(b'\n')
        for line in lines:
            yield line + b'\n'


def _read_clock():
    return asyncio.get_running_loop().time()
