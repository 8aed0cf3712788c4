"""
Limits of requests: how many at once, how often, and not while the server asks to come later.
"""
import asyncio
import contextlib

import pytest

from kopf._cogs.clients import limits

FREE = limits.Bounds()


def test_nobody_waits_by_default():
    assert limits.measure_wait(limits.Traffic(), FREE, now=100.0) == 0
    assert limits.has_room(limits.Traffic(in_flight=1000), FREE)


@pytest.mark.parametrize('in_flight, expected', [(0, True), (2, True), (3, False), (4, False)])
def test_places_in_flight_are_limited(in_flight, expected):
    bounds = limits.Bounds(inflight_limit=3)

    assert limits.has_room(limits.Traffic(in_flight=in_flight), bounds) is expected


@pytest.mark.parametrize('rate, burst, waits', [
    pytest.param(2, 1, [0, 0.5, 1.0, 1.5], id='even'),
    pytest.param(2, 3, [0, 0, 0, 0.5, 1.0], id='burst'),
    pytest.param(0.1, 1, [0, 10, 20], id='slow'),
    pytest.param(None, 1, [0, 0, 0], id='off'),
])
def test_requests_go_at_the_rate_after_the_burst(rate, burst, waits):
    bounds, traffic, moments = limits.Bounds(rate_limit=rate, rate_burst=burst), limits.Traffic(), []

    now = 100.0
    for _ in waits:
        now += limits.measure_wait(traffic, bounds, now)
        traffic = limits.depart(traffic, bounds, now)
        moments.append(now - 100.0)

    assert moments == pytest.approx(waits)


def test_burst_is_restored_by_quiet_times_but_not_beyond():
    bounds, traffic = limits.Bounds(rate_limit=1, rate_burst=2), limits.Traffic()
    traffic = limits.depart(limits.depart(traffic, bounds, 100.0), bounds, 100.0)

    assert limits.measure_wait(traffic, bounds, 100.0) == 1.0
    assert limits.measure_wait(traffic, bounds, 101.0) == 0.0
    traffic = limits.depart(limits.depart(traffic, bounds, 500.0), bounds, 500.0)
    assert limits.measure_wait(traffic, bounds, 500.0) == 1.0


def test_server_that_asks_to_come_later_is_obeyed():
    traffic = limits.refuse(limits.Traffic(), 10.0, now=100.0)

    assert limits.measure_wait(traffic, FREE, 100.0) == 10.0
    assert limits.measure_wait(traffic, FREE, 107.0) == 3.0
    assert limits.measure_wait(traffic, FREE, 110.0) == 0.0


@pytest.mark.parametrize('first, second, expected', [(10.0, 5.0, 10.0), (5.0, 10.0, 10.0)])
def test_longest_of_the_asked_times_is_obeyed(first, second, expected):
    traffic = limits.refuse(limits.refuse(limits.Traffic(), first, now=100.0), second, now=100.0)

    assert limits.measure_wait(traffic, FREE, 100.0) == expected


def test_one_request_goes_ahead_of_the_others():
    traffic = limits.refuse(limits.Traffic(), 10.0, now=100.0)

    traffic = limits.depart(traffic, FREE, 110.0)

    assert limits.measure_wait(traffic, FREE, 110.0) == limits.PATIENCE
    assert limits.measure_wait(limits.accept(traffic, refusals=1), FREE, 110.0) == 0.0
    assert limits.measure_wait(limits.refuse(traffic, 1.0, now=111.0), FREE, 111.0) == 1.0


def test_late_answers_to_earlier_requests_do_not_count():
    traffic = limits.refuse(limits.Traffic(), 10.0, now=100.0)

    assert limits.accept(traffic, refusals=0) == traffic


@contextlib.asynccontextmanager
async def started(coroutines):
    """Let the coroutines go as far as they can, and end them afterwards."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.sleep(0.001)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_requests_wait_for_places_in_flight_in_their_order(virtual_time):
    gate, bounds, moments = limits.Gate(), limits.Bounds(inflight_limit=2), []

    async def request(number):
        async with gate.passing(bounds):
            moments.append((number, virtual_time.elapsed))
            await asyncio.sleep(10)

    await asyncio.gather(*map(request, range(5)))

    assert moments == [(0, 0), (1, 0), (2, 10), (3, 10), (4, 20)]
    assert gate.traffic.in_flight == 0


async def test_streams_do_not_wait_for_places_in_flight(virtual_time):
    gate, bounds = limits.Gate(), limits.Bounds(inflight_limit=1)

    async def request():
        async with gate.passing(bounds):
            await asyncio.sleep(100)

    async with started([request(), request()]), gate.passing(bounds, is_counted=False):
        assert gate.traffic.in_flight == 1
        assert virtual_time.elapsed < 1


@pytest.mark.parametrize('bounds, traffic', [
    pytest.param(limits.Bounds(inflight_limit=0), limits.Traffic(), id='room'),
    pytest.param(FREE, limits.Traffic(closed_until=1e12), id='turn'),
])
async def test_cancelled_waits_take_nothing(virtual_time, bounds, traffic):
    gate = limits.Gate()
    gate.switch(traffic)

    async def request():
        async with gate.passing(bounds):
            pass

    async with started([request(), request()]) as tasks:
        tasks[0].cancel()

    assert gate.traffic == traffic
    assert all(task.cancelled() for task in tasks)


async def test_failed_requests_free_their_places():
    gate = limits.Gate()

    with pytest.raises(ZeroDivisionError):
        async with gate.passing(FREE):
            raise ZeroDivisionError

    assert gate.traffic.in_flight == 0


async def test_all_requests_follow_the_first_good_answer(virtual_time):
    gate, moments = limits.Gate(), []
    async with gate.passing(FREE) as passing:
        passing.refuse(10.0)

    async def request():
        async with gate.passing(FREE) as passing:
            moments.append(virtual_time.elapsed)
            await asyncio.sleep(1)
            passing.accept()

    await asyncio.gather(*[request() for _ in range(4)])

    assert moments == [10, 11, 11, 11]


async def test_requests_are_not_held_for_ever_by_the_one_that_goes_ahead(virtual_time):
    gate, moments = limits.Gate(), []
    async with gate.passing(FREE) as passing:
        passing.refuse(10.0)

    async def request():
        async with gate.passing(FREE):
            moments.append(virtual_time.elapsed)
            await asyncio.sleep(100)

    await asyncio.gather(*[request() for _ in range(3)])

    assert moments == [10, 10 + limits.PATIENCE, 10 + 2 * limits.PATIENCE]


async def test_servers_are_limited_apart():
    gates = limits.Gates()

    assert gates['https://one'] is gates['https://one/']
    assert gates['https://one'] is not gates['https://two']


async def test_gates_are_common_in_an_event_loop():
    def get_in_another_loop():
        return asyncio.run(get())

    async def get():
        return limits.get_common_gates()

    assert limits.get_common_gates() is limits.get_common_gates()
    assert await asyncio.to_thread(get_in_another_loop) is not limits.get_common_gates()
