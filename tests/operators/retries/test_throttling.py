"""
Errors which are not of handlers: of filters, of storages, of the API. The object is left alone for
a while, and then is handled as it is by then. Other objects do not notice anything.
"""

import asyncio
import logging

import pytest
from clusters import LAST_HANDLED, get_progress, wait_until

import kopf


def get_time():
    return round(asyncio.get_running_loop().time())


@pytest.fixture
def settings(settings):
    settings.queueing.error_delays = [10, 20, 30]
    settings.networking.error_backoffs = []
    return settings


class Trouble:
    """Something that fails while it is told to; remembers when it was used."""

    def __init__(self):
        self.is_on, self.times = True, []

    def check(self):
        self.times.append(get_time())
        if self.is_on:
            raise ZeroDivisionError('trouble')

    @property
    def delays(self):
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


@pytest.fixture
def trouble():
    return Trouble()


@pytest.fixture
def handlers(registry, trouble, calls):
    """Handlers, whose filter fails for the object named ``obj``."""

    def check(name, **_):
        if name == 'obj':
            trouble.check()
        return True

    @kopf.on.create('kopfexamples', registry=registry, when=check)
    async def create_fn(name, spec, **_):
        calls.append(('create', name, spec['x'], get_time()))

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(name, spec, **_):
        calls.append(('update', name, spec['x'], get_time()))


def drop_repeats(times):
    """Filters are asked several times in a row."""
    return list(dict.fromkeys(times))


@pytest.mark.guarantee('CFG-042', 'CFG-044')
async def test_objects_are_left_alone_for_growing_periods_after_errors(
    cluster, handlers, run_operator, trouble, logs
):
    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(drop_repeats(trouble.times)) == 6)
    trouble.times[:] = drop_repeats(trouble.times)

    assert trouble.delays == [10, 20, 30, 30, 30]
    assert any('trouble' in text for text in logs(logging.ERROR))


@pytest.mark.guarantee('CFG-045')
async def test_other_objects_are_not_delayed(cluster, handlers, run_operator, trouble, calls):
    await run_operator()
    await cluster.create()
    await wait_until(lambda: trouble.times)
    since = get_time()
    await cluster.create('other')
    await cluster.wait_until_handled('other')

    assert calls == [('create', 'other', 1, since)]


@pytest.mark.guarantee('CFG-046')
async def test_delays_begin_anew_after_a_success(cluster, handlers, run_operator, trouble):
    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(drop_repeats(trouble.times)) == 3)
    trouble.is_on = False
    await cluster.wait_until_handled(x=1)
    trouble.is_on = True
    trouble.times.clear()
    await cluster.patch({'metadata': {'annotations': {LAST_HANDLED: None}}})
    await wait_until(lambda: len(drop_repeats(trouble.times)) == 3)
    trouble.times[:] = drop_repeats(trouble.times)

    assert trouble.delays == [10, 20]


@pytest.mark.guarantee('CFG-047', 'NEW-101')
async def test_only_the_latest_state_is_handled_after_the_delay(
    cluster, handlers, run_operator, trouble, calls
):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: trouble.times)
    since = get_time()
    trouble.is_on = False
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(1)
    await cluster.patch({'spec': {'x': 3}})
    await cluster.wait_until_handled(x=3)

    assert calls == [('create', 'obj', 3, since + 10)]


async def test_handlers_of_events_get_all_events_after_the_delay(
    cluster, registry, handlers, run_operator, trouble, calls
):
    seen = []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        seen.append(spec['x'])

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: trouble.times)
    trouble.is_on = False
    await cluster.patch({'spec': {'x': 2}})
    await cluster.patch({'spec': {'x': 3}})
    await cluster.wait_until_handled(x=3)

    assert seen[:3] == [1, 2, 3]


@pytest.mark.guarantee('CFG-048')
async def test_the_delays_are_forgotten_with_restarts(
    cluster, handlers, run_operator, trouble, calls
):
    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: len(drop_repeats(trouble.times)) == 3)
    await operator.stop()
    trouble.is_on = False
    await run_operator()
    since = get_time()
    await cluster.wait_until_handled(x=1)

    assert calls == [('create', 'obj', 1, since)]


@pytest.mark.guarantee('CFG-049')
async def test_errors_of_handlers_delay_nobody_else(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry, backoff=600)
    async def create_fn(**_):
        raise ZeroDivisionError('of a handler')

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        calls.append((spec['x'], get_time()))
        raise ZeroDivisionError('of another handler')

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait(get_progress)
    since = get_time()
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: (2, since) in calls, timeout=1)


@pytest.mark.guarantee('CFG-050')
@pytest.mark.parametrize('delays', [pytest.param([], id='list'), pytest.param((), id='tuple')])
async def test_nothing_is_delayed_if_there_are_no_delays(
    cluster, handlers, run_operator, trouble, calls, settings, delays
):
    settings.queueing.error_delays = delays
    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: trouble.times)
    since = get_time()
    trouble.is_on = False
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)

    assert calls == [('create', 'obj', 2, since)]


async def test_errors_with_no_delays_are_not_repeated_all_the_time(
    cluster, handlers, run_operator, trouble, settings
):
    settings.queueing.error_delays = []
    await run_operator()
    await cluster.create()
    await wait_until(lambda: trouble.times)
    await asyncio.sleep(3600)

    assert 2 < len(drop_repeats(trouble.times)) < 100


@pytest.mark.guarantee('CFG-050')
async def test_delays_are_any_objects_that_can_be_iterated_over_repeatedly(
    cluster, handlers, run_operator, trouble, settings
):
    class Endless:
        def __iter__(self):
            delay = 1
            while True:
                yield delay
                delay *= 3

    settings.queueing.error_delays = Endless()
    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(drop_repeats(trouble.times)) == 5)
    trouble.times[:] = drop_repeats(trouble.times)

    assert trouble.delays == [1, 3, 9, 27]


class BrokenProgress(kopf.AnnotationsProgressStorage):
    def __init__(self, trouble, method):
        super().__init__()
        self.trouble, self.method = trouble, method

    def fetch(self, **kwargs):
        if self.method == 'fetch':
            self.trouble.check()
        return super().fetch(**kwargs)

    def store(self, **kwargs):
        if self.method == 'store':
            self.trouble.check()
        super().store(**kwargs)


class BrokenDiffBase(kopf.AnnotationsDiffBaseStorage):
    def __init__(self, trouble, method):
        super().__init__()
        self.trouble, self.method = trouble, method

    def fetch(self, **kwargs):
        if self.method == 'fetch':
            self.trouble.check()
        return super().fetch(**kwargs)

    def store(self, **kwargs):
        if self.method == 'store':
            self.trouble.check()
        super().store(**kwargs)


@pytest.mark.guarantee('CFG-042', 'CFG-044')
@pytest.mark.parametrize(
    'name, build_storage',
    [
        pytest.param(
            'progress_storage',
            lambda trouble: BrokenProgress(trouble, 'fetch'),
            id='fetch-progress',
        ),
        pytest.param(
            'progress_storage',
            lambda trouble: BrokenProgress(trouble, 'store'),
            id='store-progress',
        ),
        pytest.param(
            'diffbase_storage',
            lambda trouble: BrokenDiffBase(trouble, 'fetch'),
            id='fetch-diffbase',
        ),
        pytest.param(
            'diffbase_storage',
            lambda trouble: BrokenDiffBase(trouble, 'store'),
            id='store-diffbase',
        ),
    ],
)
async def test_errors_of_storages_are_throttled(
    cluster, registry, run_operator, settings, trouble, name, build_storage
):
    setattr(settings.persistence, name, build_storage(trouble))

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        if trouble.is_on and name == 'progress_storage':
            raise kopf.TemporaryError('to have something to store', delay=0)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(drop_repeats(trouble.times)) == 2)
    trouble.is_on = False
    body = await cluster.wait_until_handled(x=1)

    assert drop_repeats(trouble.times)[1] - trouble.times[0] == 10
    assert not get_progress(body)


@pytest.mark.guarantee('CFG-031', 'CFG-042', 'CFG-044')
@pytest.mark.parametrize('code', [403, 500, 503])
async def test_refusals_of_the_api_are_throttled(cluster, registry, run_operator, calls, code):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append(get_time())

    await run_operator()
    with cluster.sandbox.faults.inject(verb='patch', code=code) as fault:
        await cluster.create()
        await wait_until(lambda: fault.hits == 4)
        times = [round(asked.time) for asked in cluster.writes]
    body = await cluster.wait_until_handled(x=1)

    assert [time - times[0] for time in times] == [0, 10, 30, 60]
    assert not get_progress(body)


async def test_the_api_is_not_asked_again_earlier_than_it_says(
    cluster, registry, run_operator, settings
):
    settings.networking.error_backoffs = [1]

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    await run_operator()
    with cluster.sandbox.faults.inject(verb='patch', code=429, retry_after=7, times=1):
        await cluster.create()
        await cluster.wait_until_handled(x=1)
    first, second = cluster.writes

    assert (first.code, second.code) == (429, 200)
    assert second.time - first.time >= 7
