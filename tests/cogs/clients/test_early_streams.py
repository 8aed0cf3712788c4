"""
The first listing can be long: what changes meanwhile, comes at once.
"""

import asyncio

import pytest

from kopf._cogs.clients.watching import stream_states

LISTED = stream_states.Marker.LISTED


def build_config(name, x='1'):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name}, 'data': {'x': x}}


@pytest.fixture
async def crowded_sandbox(virtual_time, sandbox, operator_settings):
    """With objects for three pages, each of which takes a minute."""
    operator_settings.watching.chunk_size = 2
    for name in 'abcdef':
        await sandbox.create(build_config(name))
    sandbox.faults.inject(verb='list', latency=60, times=3)
    return sandbox


@pytest.fixture
async def reading(crowded_sandbox, read):
    """The stream after the first page."""
    reading = await read()
    await reading.wait_for((None, 'b', '1'))
    await reading.wait_until(lambda: len(crowded_sandbox.requests.select(verb='watch')) == 1)
    return reading


async def test_changes_come_before_the_listing_ends(crowded_sandbox, reading):
    await crowded_sandbox.patch('configmaps', 'a', {'data': {'x': '2'}})
    await crowded_sandbox.patch('configmaps', 'f', {'data': {'x': '2'}})
    await crowded_sandbox.create(build_config('g'))
    await reading.wait_for(('ADDED', 'g', '1'))
    early = list(reading.events)
    await reading.wait_until_connected()

    assert early == [
        (None, 'a', '1'),
        (None, 'b', '1'),
        ('MODIFIED', 'a', '2'),
        (None, 'f', '2'),
        ('MODIFIED', 'f', '2'),
        ('ADDED', 'g', '1'),
    ]
    assert reading.events == [*early, (None, 'c', '1'), (None, 'd', '1'), (None, 'e', '1'), LISTED]


async def test_nothing_is_lost_or_repeated_when_the_stream_is_replaced_after_the_listing(
    crowded_sandbox, reading, check
):
    await crowded_sandbox.patch('configmaps', 'f', {'data': {'x': '2'}})
    await crowded_sandbox.delete('configmaps', 'e')
    await reading.wait_until_connected()
    await crowded_sandbox.patch('configmaps', 'f', {'data': {'x': '3'}})
    await reading.wait_for(('MODIFIED', 'f', '3'))

    assert [event for event in reading.events if event is not LISTED and event[1] == 'f'] == [
        (None, 'f', '2'),
        ('MODIFIED', 'f', '2'),
        ('MODIFIED', 'f', '3'),
    ]
    await check(reading)


@pytest.mark.parametrize('code', [410, 500])
async def test_refused_early_stream_leaves_its_work_to_the_usual_one(
    crowded_sandbox, read, code, check
):
    crowded_sandbox.faults.inject(verb='watch', times=1, code=code)
    reading = await read()
    await reading.wait_for((None, 'b', '1'))
    await reading.wait_until(lambda: crowded_sandbox.requests.select(verb='watch'))
    await crowded_sandbox.patch('configmaps', 'a', {'data': {'x': '2'}})
    await crowded_sandbox.delete('configmaps', 'f')
    await reading.wait_for(('MODIFIED', 'a', '2'))

    assert reading.events.index(LISTED) < reading.events.index(('MODIFIED', 'a', '2'))
    assert reading.state.failures == 0
    await check(reading)


async def test_early_stream_that_breaks_leaves_its_work_to_the_usual_one(
    crowded_sandbox, reading, check
):
    await crowded_sandbox.patch('configmaps', 'f', {'data': {'x': '2'}})
    await reading.wait_for(('MODIFIED', 'f', '2'))
    crowded_sandbox.faults.cut_streams()
    await crowded_sandbox.patch('configmaps', 'f', {'data': {'x': '3'}})
    await reading.wait_for(('MODIFIED', 'f', '3'))

    assert reading.events.index(LISTED) < reading.events.index(('MODIFIED', 'f', '3'))
    await check(reading)


async def test_early_stream_ends_with_the_listing(crowded_sandbox, reading):
    await reading.wait_until_connected()
    await asyncio.sleep(1)

    assert len(crowded_sandbox.requests.select(verb='watch')) == 2
    assert crowded_sandbox.faults.cut_streams() == 1


async def test_short_listings_have_no_early_streams(virtual_time, sandbox, read):
    await sandbox.create(build_config('a'))
    reading = await read()
    await reading.wait_until_connected()

    assert len(sandbox.requests.select(verb='watch')) == 1
