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


@pytest.mark.parametrize(
    'rate, burst, waits',
    [
        pytest.param(2, 1, [0, 0.5, 1.0, 1.5], id='even'),
        pytest.param(2, 3, [0, 0, 0, 0.5, 1.0], id='burst'),
        pytest.param(0.1, 1, [0, 10, 20], id='slow'),
        pytest.param(None, 1, [0, 0, 0], id='off'),
    ],
)
def test_requests_go_at_the_rate_after_the_burst(rate, burst, waits):
    bounds, traffic, moments = (
        limits.Bounds(rate_limit=rate, rate_burst=burst),
        limits.Traffic(),
        [],
    )

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


OPEN = limits.Traffic()
HELD = limits.refuse(OPEN, 3600.0, now=100.0)  # till 130
PROBED = limits.depart(HELD, FREE, now=130.0)  # and nobody else goes till 135
AGAIN = limits.depart(PROBED, FREE, now=135.0)  # till 140: the first probe got no answer so far

SITUATIONS = {
    'open': (OPEN, 110.0),
    'held': (HELD, 110.0),
    'due': (HELD, 130.0),
    'probed': (PROBED, 131.0),
    'overdue': (PROBED, 135.0),
    'probed-again': (AGAIN, 136.0),
}

EVENTS = {
    'nothing': lambda traffic, now: traffic,
    'departure': lambda traffic, now: limits.depart(traffic, FREE, now),
    'short-refusal': lambda traffic, now: limits.refuse(traffic, 1.0, now),
    'refusal': lambda traffic, now: limits.refuse(traffic, 25.0, now),
    'long-refusal': lambda traffic, now: limits.refuse(traffic, 3600.0, now),
    'answer': lambda traffic, now: limits.accept(traffic, traffic.refusals),
    'old-answer': lambda traffic, now: limits.accept(traffic, traffic.refusals - 1),
    'cancellation': lambda traffic, now: limits.abandon(traffic, PROBED.probed_until),
    'second-cancellation': lambda traffic, now: limits.abandon(traffic, AGAIN.probed_until),
}

NO_DEPARTURE = None  # the requests are held, so none can go

TRANSITIONS = {  # in how many seconds the next request goes, if that happens in that situation
    #                       open  held          due  probed        overdue  probed-again
    'nothing': (0, 20, 0, 4, 0, 4),
    'departure': (0, NO_DEPARTURE, 5, NO_DEPARTURE, 5, NO_DEPARTURE),
    'short-refusal': (1, 20, 1, 1, 1, 1),
    'refusal': (25, 20, 25, 25, 25, 25),
    'long-refusal': (30, 20, 30, 30, 30, 30),
    'answer': (0, 20, 0, 0, 0, 0),
    'old-answer': (0, 20, 0, 4, 0, 4),
    'cancellation': (0, 20, 0, 0, 0, 4),
    'second-cancellation': (0, 20, 0, 4, 0, 0),
}


@pytest.mark.guarantee('FND-010')
@pytest.mark.parametrize(
    'event, situation, expected',
    [
        pytest.param(event, situation, expected, id=f'{event}-when-{situation}')
        for event, row in TRANSITIONS.items()
        for situation, expected in zip(SITUATIONS, row, strict=True)
        if expected is not NO_DEPARTURE
    ],
)
def test_next_request_goes_by_the_table(event, situation, expected):
    traffic, now = SITUATIONS[situation]

    traffic = EVENTS[event](traffic, now)

    assert limits.measure_wait(traffic, FREE, now) == expected


@pytest.mark.guarantee('FND-010')
@pytest.mark.parametrize(
    'event, situations',
    [
        ('answer', []),
        ('old-answer', ['held', 'due', 'probed', 'overdue', 'probed-again']),
        ('cancellation', ['held', 'due', 'probed', 'overdue', 'probed-again']),
        ('refusal', list(SITUATIONS)),
    ],
)
def test_only_one_request_goes_until_the_server_answers(event, situations):
    doubtful = []
    for situation, (traffic, now) in SITUATIONS.items():
        after = EVENTS[event](traffic, now)
        later = now + limits.measure_wait(after, FREE, now)
        if limits.measure_wait(limits.depart(after, FREE, later), FREE, later):
            doubtful.append(situation)

    assert doubtful == situations


@pytest.mark.guarantee('FND-010')
@pytest.mark.parametrize('delay', [0.5, 7.0, 29.0, 3600.0])
def test_refusals_of_earlier_requests_do_not_hold_the_others_for_longer(delay):
    traffic = limits.refuse(limits.Traffic(), delay, now=100.0)
    now = 100.0
    while now < traffic.closed_until:
        traffic = limits.refuse(traffic, delay, now=now)
        now += 0.4

    assert traffic.closed_until == pytest.approx(130.0)


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


@pytest.mark.parametrize(
    'bounds, traffic',
    [
        pytest.param(limits.Bounds(inflight_limit=0), limits.Traffic(), id='room'),
        pytest.param(FREE, limits.Traffic(closed_until=1e12), id='turn'),
    ],
)
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


@pytest.mark.guarantee('FND-010')
async def test_cancelled_probe_is_replaced_by_the_next_request_at_once(virtual_time):
    gate, moments = limits.Gate(), []
    async with gate.passing(FREE) as passing:
        passing.refuse(3600.0)

    async def request(number):
        async with gate.passing(FREE) as passing:
            moments.append((number, virtual_time.elapsed))
            await asyncio.sleep(3)
            passing.accept()

    tasks = [asyncio.create_task(request(number)) for number in range(5)]
    await asyncio.sleep(31)
    tasks[0].cancel()
    await asyncio.sleep(1)
    tasks[1].cancel()
    await asyncio.wait(tasks)

    assert moments == [(0, 30), (1, 31), (2, 32), (3, 35), (4, 35)]
    assert gate.traffic.in_flight == 0
    assert gate.waiting == 0


@pytest.mark.guarantee('FND-010')
async def test_cancelled_request_does_not_replace_the_probe_of_another(virtual_time):
    gate, moments = limits.Gate(), []

    async def request(number):
        async with gate.passing(FREE) as passing:
            moments.append((number, virtual_time.elapsed))
            await asyncio.sleep(4)
            passing.accept()

    async def be_refused():
        async with gate.passing(FREE) as passing:
            passing.refuse(1.0)
            await asyncio.sleep(1000)

    refused = asyncio.create_task(be_refused())
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(request(number)) for number in range(3)]
    await asyncio.sleep(2)
    refused.cancel()
    tasks[2].cancel()
    await asyncio.wait([refused, *tasks])

    assert moments == [(0, 1), (1, 5)]


@pytest.mark.guarantee('FND-010')
async def test_in_flight_limit_is_respected_when_the_probe_succeeds(virtual_time):
    gate, bounds, moments = limits.Gate(), limits.Bounds(inflight_limit=2), []
    async with gate.passing(bounds) as passing:
        passing.refuse(3600.0)

    async def request():
        async with gate.passing(bounds) as passing:
            moments.append(virtual_time.elapsed)
            await asyncio.sleep(1)
            passing.accept()

    await asyncio.gather(*[request() for _ in range(6)])

    assert moments == [30, 31, 31, 32, 32, 33]


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
