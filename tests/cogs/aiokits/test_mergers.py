"""
Mergers: the items of several generators come as they come; none is continued until its item is done
with.
"""

import asyncio

import pytest

from kopf._cogs.aiokits import mergers


@pytest.fixture
async def merger(virtual_time):
    async with mergers.Merger() as merger:
        yield merger


@pytest.fixture
def log():
    return []


@pytest.fixture
def generate(log):
    """Make a generator of such items, each after its delay; errors are raised."""

    async def generate(name, *steps):
        try:
            for delay, item in steps:
                await asyncio.sleep(delay)
                if isinstance(item, Exception):
                    raise item
                log.append(f'{name} makes {item}')
                yield item
        finally:
            log.append(f'{name} ends')

    return generate


async def test_items_come_in_the_order_of_their_time(merger, generate):
    merger.add(generate('one', (1, 'a'), (3, 'c')), name='one')
    merger.add(generate('two', (2, 'b'), (4, 'd')), name='two')

    assert [item async for item in merger.iterate()] == ['a', 'b', 'c', 'd']


async def test_generator_is_not_continued_until_the_next_item_is_asked_for(merger, generate, log):
    merger.add(generate('one', (1, 'a'), (1, 'b')), name='one')
    items = merger.iterate()
    await anext(items)
    await asyncio.sleep(100)
    before = list(log)
    await anext(items)
    await items.aclose()

    assert before == ['one makes a']
    assert log == ['one makes a', 'one makes b']


async def test_generator_can_be_some_items_ahead_but_not_more(merger, generate, log):
    merger.add(generate('one', *[(0, number) for number in range(10)]), name='one', ahead=3)
    items = merger.iterate()
    await anext(items)
    await asyncio.sleep(100)
    before = len(log)
    rest = [item async for item in items]

    assert before == 4  # the taken one, and three more
    assert rest == list(range(1, 10))


async def test_errors_are_raised_in_their_turn(merger, generate):
    merger.add(generate('one', (1, 'a'), (3, ValueError('boo!'))), name='one')
    merger.add(generate('two', (2, 'b'), (4, 'd')), name='two')
    items = merger.iterate()

    assert [await anext(items), await anext(items)] == ['a', 'b']
    with pytest.raises(ValueError, match='boo!'):
        await anext(items)


async def test_dropped_generator_is_closed_and_its_item_is_not_seen(merger, generate, log):
    merger.add(generate('one', (1, 'a'), (3, 'c')), name='one')
    other = merger.add(generate('two', (1, 'b'), (4, 'd')), name='two')
    items = merger.iterate()
    await anext(items)
    await merger.drop(other)

    assert 'two ends' in log
    assert [item async for item in items] == ['c']


async def test_all_generators_are_closed_in_the_end(generate, log, virtual_time):
    async with mergers.Merger() as merger:
        merger.add(generate('one', (1, 'a'), (1, 'b')), name='one')
        merger.add(generate('two', (100, 'c')), name='two')
        items = merger.iterate()
        await anext(items)
        await items.aclose()

    assert sorted(log) == ['one ends', 'one makes a', 'two ends']
    assert virtual_time.elapsed == 1


async def test_cancelled_wait_leaves_nothing_behind(generate, log, virtual_time):
    async def read():
        async with mergers.Merger() as merger:
            merger.add(generate('one', (100, 'a')), name='one')
            async for _ in merger.iterate():
                pass

    task = asyncio.create_task(read(), name='reading')
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert log == ['one ends']
