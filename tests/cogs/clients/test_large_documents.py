"""
Large answers and events do not hold the event loop while they are read.
"""

import asyncio
import concurrent.futures
import json
import threading
import time

import pytest

from kopf._cogs.aiokits import offloads
from kopf._cogs.clients import listing, requests
from kopf._cogs.clients.http import sessions
from kopf._cogs.helpers import documents
from kopf._cogs.structs import credentials

pytestmark = pytest.mark.guarantee('FND-062')


def build_page(number, size):
    items = [
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'name': f'obj{i}'},
            'spec': {'f': [{'name': f'x{j}', 'n': j} for j in range(size // 20)]},
        }
        for i in range(number)
    ]
    document = {'kind': 'KopfExampleList', 'metadata': {'resourceVersion': '5'}, 'items': items}
    return json.dumps(document, separators=(',', ':')).encode()


async def test_loop_goes_on_while_a_large_page_is_read():
    raw = build_page(500, 20_000)
    moments = []

    async def tick():
        while True:
            moments.append(time.perf_counter())
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    page = listing.parse_page(await requests.read_document(raw))
    ticking.cancel()
    await asyncio.wait({ticking})

    assert [item['metadata']['name'] for item in page.items] == [f'obj{i}' for i in range(500)]
    assert len(moments) > 10  # it would be one if the page was read at once


async def test_small_documents_need_no_threads(monkeypatch):
    monkeypatch.setattr(offloads, 'read_aside', None)
    raw = build_page(10, 1000)

    page = listing.parse_page(await requests.read_document(raw))

    assert len(raw) < documents.LARGE
    assert len(page.items) == 10


@pytest.fixture
async def busy_threads():
    """Handlers that have occupied all threads of the event loop, until the end of the test."""
    loop, end = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(max_workers=1))
    handling = asyncio.create_task(asyncio.to_thread(end.wait))
    await asyncio.sleep(0)
    yield
    end.set()
    await handling


async def test_large_documents_do_not_wait_for_the_threads_of_handlers(busy_threads):
    page = listing.parse_page(
        await asyncio.wait_for(requests.read_document(build_page(500, 500)), 10)
    )

    assert len(page.items) == 500


async def test_sessions_do_not_wait_for_the_threads_of_handlers(busy_threads):
    info = credentials.ConnectionInfo(server='https://127.0.0.1:1', insecure=True)

    session = await asyncio.wait_for(sessions.open_session(info), 10)

    await session.close()


async def test_deep_documents_are_read_in_a_thread_also_if_they_are_small():
    deep = '[' * 2000 + ']' * 2000
    raw = b'{"metadata":{"name":"x"},"spec":[' + b'1,' * 100_000 + deep.encode() + b']}'
    since = time.thread_time()

    body = await requests.read_document(raw)

    assert len(raw) < documents.LARGE
    assert isinstance(body, documents.Salvaged)
    assert time.thread_time() - since < 0.05


@pytest.mark.parametrize('raw', [b'{"a":', b'{"a":1}}', b'<html>', b'"\xff"'])
async def test_what_is_not_json_is_refused(raw):
    with pytest.raises(ValueError):
        await requests.read_document(raw)
