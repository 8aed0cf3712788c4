"""
Listings are held back between their pages, if so wished; the changes meanwhile are not.
"""

import asyncio
import contextlib

import pytest

from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.structs import references

CONFIGS = references.Resource('', 'v1', 'secrets', kind='Secret', namespaced=True)


def build_config(name):
    return {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': name}}


@pytest.fixture
async def paged_sandbox(sandbox, operator_settings):
    operator_settings.watching.chunk_size = 2
    for name in 'abcde':
        await sandbox.create(build_config(name))
    return sandbox


async def read(stream, number):
    names = []
    async for item in stream:
        names.append(
            item if isinstance(item, stream_states.Marker) else item['object']['metadata']['name']
        )
        if len(names) == number:
            return names


async def test_pages_are_asked_for_in_the_pace_of_their_reader(paged_sandbox, context):
    paces = asyncio.Queue()
    stream = event_streams.stream_events(
        CONFIGS, 'default', context=context, state=stream_states.StreamState(), pace=paces.get
    )
    async with contextlib.aclosing(stream):
        first = await read(stream, 2)
        paces.put_nowait(None)
        second = await read(stream, 2)
        paces.put_nowait(None)
        third = await read(stream, 2)

    assert (first, second, third) == (['a', 'b'], ['c', 'd'], ['e', stream_states.Marker.LISTED])
    assert paces.empty()


async def test_changes_come_while_the_next_page_is_held_back(paged_sandbox, context):
    stream = event_streams.stream_events(
        CONFIGS,
        'default',
        context=context,
        state=stream_states.StreamState(),
        pace=asyncio.Event().wait,
    )
    async with contextlib.aclosing(stream):
        await read(stream, 2)
        reading = asyncio.create_task(read(stream, 1))
        while not paged_sandbox.requests.select(verb='watch'):
            await asyncio.sleep(0.001)
        await paged_sandbox.create(build_config('new'))

        assert await reading == ['new']
