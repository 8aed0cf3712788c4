"""
The life of webhook servers: operators need them, start them, wait for them, and end with them.
"""

import asyncio
import contextlib

import aiohttp
import pytest
from clusters import wait_until
from operator_endpoints import Site
from webhook_servers import MANAGED, Hall, find_records, wait_for_records

import kopf
from kopf._cogs.structs import reviews
from kopf._core.reactor import operator_plans

pytestmark = pytest.mark.usefixtures('cluster')

CONFIG = {'url': 'https://localhost/'}


@pytest.fixture
def diary():
    return []


@pytest.fixture
def validate(registry):
    @kopf.on.validate('kopfexamples', registry=registry)
    def validate_fn(**_):
        pass


class Server:
    """A server that notes down what happens to it. It has no context manager."""

    def __init__(self, diary, name='server'):
        self.diary, self.name = diary, name

    async def __call__(self, fn):
        self.diary.append(f'{self.name} started')
        try:
            yield CONFIG
            await asyncio.Event().wait()
        finally:
            self.diary.append(f'{self.name} stopped')


class ManagedServer(Server):
    """The same, with a context manager."""

    substitute = None

    async def __aenter__(self):
        self.diary.append(f'{self.name} entered')
        return self.substitute or self

    async def __aexit__(self, *_):
        self.diary.append(f'{self.name} exited')


@pytest.mark.guarantee('ADM-051', 'ADM-050')
@pytest.mark.usefixtures('validate')
async def test_operators_with_handlers_but_with_no_server_fail_at_startup(run_operator, logs):
    operator = await run_operator()

    with pytest.raises(operator_plans.SettingsError, match=r'settings\.admission\.server'):
        await operator.task
    assert not any(text.startswith('The operator is started') for text in logs())
    assert not operator.ready_flag.is_set()


async def test_servers_are_not_needed_with_no_handlers(settings, run_operator, diary):
    settings.admission.server, settings.admission.managed = Server(diary), MANAGED

    operator = await run_operator()
    await operator.stop()

    assert operator.ready_flag.is_set()
    assert diary == []


@pytest.mark.guarantee('ADM-050')
@pytest.mark.usefixtures('validate')
async def test_servers_of_startup_handlers_are_used(registry, run_operator, diary):
    @kopf.on.startup(registry=registry)
    async def configure(settings, **_):
        await asyncio.sleep(1)
        diary.append('configured')
        settings.admission.server = Server(diary)

    operator = await run_operator()
    await operator.stop()

    assert diary == ['configured', 'server started', 'server stopped']


@pytest.mark.guarantee('ADM-088', 'ADM-091', 'ADM-093')
@pytest.mark.usefixtures('validate')
async def test_async_generator_functions_are_servers(settings, run_operator, diary):
    async def serve(fn):
        diary.append(callable(fn))
        yield CONFIG
        yield CONFIG
        try:
            await asyncio.Event().wait()
        finally:
            diary.append('stopped')

    settings.admission.server = serve
    operator = await run_operator()
    await operator.stop()

    assert diary == [True, 'stopped']


@pytest.mark.guarantee('ADM-088', 'ADM-092')
@pytest.mark.usefixtures('validate')
async def test_context_managers_are_entered_and_exited(settings, run_operator, diary):
    settings.admission.server = ManagedServer(diary)

    operator = await run_operator()
    await operator.stop()

    assert diary == ['server entered', 'server started', 'server stopped', 'server exited']


@pytest.mark.guarantee('ADM-092')
@pytest.mark.usefixtures('validate')
async def test_context_managers_can_give_other_servers(settings, run_operator, diary):
    settings.admission.server = ManagedServer(diary)
    settings.admission.server.substitute = Server(diary, 'substitute')

    operator = await run_operator()
    await operator.stop()

    assert diary == ['server entered', 'substitute started', 'substitute stopped', 'server exited']


@pytest.mark.guarantee('ADM-088')
@pytest.mark.usefixtures('validate')
async def test_iterators_need_not_be_generators(settings, run_operator, diary):
    class Iterator:
        def __aiter__(self):
            return self

        async def __anext__(self):
            if diary:
                await asyncio.Event().wait()
            diary.append('asked')
            return CONFIG

    settings.admission.server = lambda fn: Iterator()
    operator = await run_operator()
    await operator.stop()

    assert diary == ['asked']


@pytest.mark.guarantee('ADM-089', 'ADM-090')
@pytest.mark.usefixtures('validate')
async def test_servers_get_a_function_to_call(sandbox, settings, run_operator):
    hall = settings.admission.server = Hall(sandbox)
    review = {
        'request': {
            'uid': 'x',
            'resource': {'group': 'kopf.dev', 'version': 'v1', 'resource': 'kopfexamples'},
        }
    }

    await run_operator()
    response = await hall.fn(review)

    assert response == {
        'apiVersion': 'admission.k8s.io/v1',
        'kind': 'AdmissionReview',
        'response': {'uid': 'x', 'allowed': True},
    }


@pytest.mark.guarantee('ADM-052')
@pytest.mark.usefixtures('validate')
@pytest.mark.parametrize('is_managed', [False, True], ids=['unmanaged', 'managed'])
@pytest.mark.parametrize('yields', [0, 1])
async def test_operators_end_with_their_servers(settings, run_operator, is_managed, yields):
    async def serve(fn):
        for _ in range(yields):
            yield CONFIG
        await asyncio.sleep(10)

    settings.admission.server, settings.admission.managed = serve, MANAGED if is_managed else None
    operator = await run_operator()

    with pytest.raises(reviews.ServerError, match='has ended'):
        await operator.task


@pytest.mark.usefixtures('validate')
@pytest.mark.parametrize(
    'server, message',
    [
        pytest.param(lambda fn: None, 'must be an async generator function', id='function'),
        pytest.param(
            lambda fn: iter([CONFIG]), 'must be an async generator function', id='iterator'
        ),
        pytest.param(kopf.WebhookServer, r'add the parentheses: WebhookServer\(\)', id='class'),
        pytest.param(
            lambda fn: yield_wrongly(),
            'must yield client configs as dicts; it yields str',
            id='config',
        ),
    ],
)
async def test_wrong_servers_are_explained(settings, run_operator, server, message):
    settings.admission.server = server
    operator = await run_operator()

    with pytest.raises(reviews.ServerError, match=message):
        await operator.task


@pytest.mark.guarantee('ADM-091')
@pytest.mark.usefixtures('validate')
async def test_places_of_servers_are_logged_once_unless_changed(settings, run_operator, logs):
    async def serve(fn):
        yield {'url': 'https://one/', 'caBundle': 'b25l'}
        yield {'url': 'https://one/', 'caBundle': 'dHdv'}
        yield {'url': 'https://two/', 'caBundle': 'dHdv'}
        await asyncio.Event().wait()

    settings.admission.server = serve
    operator = await run_operator()
    await wait_until(lambda: any('https://two/' in text for text in logs()))
    await operator.stop()

    assert [text for text in logs() if 'served at' in text] == [
        'The webhooks are served at https://one/.',
        'The webhooks are served at https://two/.',
    ]


async def yield_wrongly():
    yield 'https://localhost/'


@pytest.mark.guarantee('ADM-052')
@pytest.mark.usefixtures('validate')
@pytest.mark.parametrize('place', ['enter', 'start', 'serve'])
async def test_operators_end_with_the_errors_of_their_servers(
    settings, registry, run_operator, diary, place
):
    class BrokenServer(ManagedServer):
        async def __aenter__(self):
            self._break('enter')
            return await super().__aenter__()

        async def __call__(self, fn):
            self._break('start')
            yield CONFIG
            await asyncio.sleep(10)
            self._break('serve')

        def _break(self, here):
            if place == here:
                raise OSError('The port is taken.')

    @kopf.on.cleanup(id='cleanup', registry=registry)
    def cleanup(**_):
        diary.append('cleanup')

    settings.admission.server = BrokenServer(diary)
    operator = await run_operator()

    with pytest.raises(OSError, match='The port is taken'):
        await operator.task
    assert diary == (
        ['cleanup'] if place == 'enter' else ['server entered', 'server exited', 'cleanup']
    )
    assert operator.ready_flag.is_set() is (place == 'serve')


@pytest.mark.usefixtures('validate')
async def test_operators_are_not_ready_until_their_servers_are_reachable(
    settings, run_operator, sandbox
):
    is_allowed = asyncio.Event()

    async def serve(fn):
        await is_allowed.wait()
        yield CONFIG
        await asyncio.Event().wait()

    settings.admission.server = serve
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(run_operator(stop_flag=stop_flag, ready_flag=ready_flag))
    await asyncio.sleep(100)
    was_ready = ready_flag.is_set()
    is_allowed.set()
    await ready_flag.wait()
    stop_flag.set()
    operator = await running
    await operator.task

    assert not was_ready


@pytest.mark.usefixtures('validate')
async def test_readiness_probes_wait_for_servers(settings, run_operator):
    is_allowed = asyncio.Event()

    async def serve(fn):
        await is_allowed.wait()
        yield CONFIG
        await asyncio.Event().wait()

    settings.admission.server = serve
    async with aiohttp.ClientSession() as session:
        site = Site(session)
        running = asyncio.create_task(run_operator(liveness_endpoint=site.url))
        text = await site.wait_until('/readyz', 503)
        await asyncio.sleep(10)
        text = await site.wait_until('/readyz', 503)
        is_allowed.set()
        await site.wait_until('/readyz', 200)
        operator = await running
        await operator.stop()

    assert 'the webhook server is not reachable yet' in text


@pytest.mark.usefixtures('validate')
async def test_servers_that_do_not_stop_are_left(settings, run_operator, logs, virtual_time):
    is_released = asyncio.Event()

    async def serve(fn):
        try:
            yield CONFIG
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await is_released.wait()
            await is_released.wait()

    settings.admission.server = serve
    operator = await run_operator()
    since = virtual_time.elapsed
    operator.stop_flag.set()
    await wait_until(
        lambda: any('webhook server has not stopped in 30.0 s' in text for text in logs())
    )
    elapsed = virtual_time.elapsed - since
    is_released.set()
    await operator.task

    assert 30 <= elapsed < 31


@pytest.mark.guarantee('ADM-045')
@pytest.mark.parametrize('kind', ['stop', 'cancel'])
@pytest.mark.parametrize('steps', [0, 1, 2, 3, 5, 8, 13, 20, 30, 50, 80, 130, 200, 300])
@pytest.mark.usefixtures('validate')
async def test_operators_can_be_stopped_at_any_moment(sandbox, settings, run_operator, kind, steps):
    hall = settings.admission.server = Hall(sandbox)
    settings.admission.managed = MANAGED
    stop_flag = asyncio.Event()
    running = asyncio.create_task(run_operator(stop_flag=stop_flag))
    while not hall.is_open:
        await asyncio.sleep(0)

    [task] = [task for task in asyncio.all_tasks() if task.get_name() == 'operator of the test']
    for _ in range(steps):
        await asyncio.sleep(0)
    if kind == 'stop':
        stop_flag.set()
    else:
        task.cancel()
    await asyncio.wait([running, task])

    assert not hall.is_open
    assert not await find_records(sandbox)


@pytest.mark.parametrize('steps', [0, 1, 2, 3, 5, 8, 13, 20, 30, 50])
@pytest.mark.usefixtures('validate')
async def test_stopping_can_be_interrupted_at_any_moment(sandbox, settings, run_operator, steps):
    hall = settings.admission.server = Hall(sandbox)
    settings.admission.managed = MANAGED
    operator = await run_operator()
    await wait_for_records(sandbox, 1)

    operator.task.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    operator.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await operator.task

    assert not hall.is_open
