"""
Virtual time beside what is real: threads, child processes, and servers outside of the event loop.
"""

import asyncio
import contextlib
import http.server
import sys
import threading
import time

import aiohttp
import anyio.to_thread
import pytest

from kopf._kits import loops

DELAY = 0.2


class SlowHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        time.sleep(DELAY)
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')

    def log_message(self, *args):
        pass


@pytest.fixture
def url():
    """A server in another thread, which is slow to answer."""
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), SlowHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f'http://127.0.0.1:{server.server_port}/'
        server.shutdown()
        thread.join()


@pytest.fixture
def run():
    with asyncio.Runner(loop_factory=loops.VirtualTimeLoop) as runner:
        yield runner.run


@contextlib.asynccontextmanager
async def measured():
    clock = asyncio.get_running_loop().time
    since, took = clock(), []
    yield took
    took.append(clock() - since)


async def tick(interval=60):
    while True:
        await asyncio.sleep(interval)


def test_time_is_real_while_servers_outside_are_answering(run, url):
    async def ask():
        ticking = asyncio.create_task(tick())
        async with (
            aiohttp.ClientSession() as session,
            measured() as took,
            asyncio.timeout(5),
            session.get(url) as response,
        ):
            text = await response.text()
        ticking.cancel()
        return text, took[0]

    text, took = run(ask())

    assert text == 'ok'
    assert DELAY * 0.9 < took < 5


def test_time_jumps_while_connections_are_idle(run, url):
    async def ask():
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as response:
                await response.text()
            since = time.monotonic()
            await asyncio.sleep(10)  # less than the connection is kept for
            return time.monotonic() - since

    assert run(ask()) < 5


def test_time_jumps_when_servers_outside_do_not_answer_for_long(run, url, monkeypatch):
    monkeypatch.setattr(loops, 'ANSWERING', DELAY / 10)

    async def ask():
        async with aiohttp.ClientSession() as session, asyncio.timeout(3600), session.get(url):
            pass

    with pytest.raises(TimeoutError):
        run(ask())


@pytest.mark.parametrize('delay', [0, 3600])
def test_time_is_virtual_for_servers_in_the_same_loop(run, delay):
    async def answer(reader, writer):
        await reader.readline()
        await asyncio.sleep(delay)
        writer.write(b'ok\n')
        writer.close()

    async def ask():
        async with await asyncio.start_server(answer, '127.0.0.1', 0) as server, measured() as took:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b'how?\n')
            text = await reader.readline()
            writer.close()
        return text, took[0]

    since = time.monotonic()
    text, took = run(ask())

    assert text == b'ok\n'
    assert took == pytest.approx(delay, abs=0.5)
    assert time.monotonic() - since < 5


@pytest.mark.parametrize('create', ['create_subprocess_exec', 'create_subprocess_shell'])
def test_time_is_real_while_child_processes_live(run, create):
    async def call():
        ticking = asyncio.create_task(tick())
        words = [sys.executable, '-c', f'"import time; time.sleep({DELAY})"']
        words = words if 'shell' not in create else [' '.join(words)]
        async with measured() as took:
            process = await getattr(asyncio, create)(*words)
            await process.wait()
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        ticking.cancel()
        return took[0], asyncio.get_running_loop().time() - before

    since = time.monotonic()
    took, later = run(call())

    assert 0 < took < 10
    assert later == pytest.approx(3600)
    assert time.monotonic() - since < 30


def test_processes_that_do_not_start_leave_the_time_virtual(run):
    async def call():
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec('/no/such/program')
        await asyncio.sleep(3600)

    since = time.monotonic()
    run(call())

    assert time.monotonic() - since < 30


def test_time_is_real_while_threads_of_anyio_are_at_work(run):
    async def work():
        ticking = asyncio.create_task(tick())
        async with measured() as took, asyncio.timeout(5):
            await anyio.to_thread.run_sync(time.sleep, DELAY)
        ticking.cancel()
        return took[0]

    assert DELAY * 0.9 < run(work()) < 5


def test_time_jumps_while_threads_of_anyio_are_idle(run):
    async def work():
        await anyio.to_thread.run_sync(time.sleep, 0)
        async with measured() as took:
            await asyncio.sleep(1000)
        return took[0]

    assert 999.9 <= run(work()) < 1001
