"""
Operators in event loops of any kind, and with handlers of any registry: what those who run them
choose, is used.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import signal
import threading
import warnings

import pytest
import uvloop
from clusters import build_crd, build_object, wait_until

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

# Event loops. The time is real here: only the standard loops can be made virtual.


@pytest.fixture
def server():
    with kopf.testing.Sandbox(tls=False, apply=[build_crd()]) as server:
        yield server


@pytest.fixture
def worker():
    """A thread to run operators in: it has no event loop of its own."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


@pytest.fixture
def handlers(registry, calls):
    """
    All that an operator can do in its event loop: requests, threads, sleeps, tasks. They tell of
    their loops.
    """

    def remember(what):
        calls.append((what, type(asyncio.get_running_loop()).__module__.partition('.')[0]))

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        remember('startup')

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(retry, **_):
        if not retry:
            raise kopf.TemporaryError('Not yet.', delay=0.01)
        remember('create')
        return 'done'

    @kopf.on.create('kopfexamples', registry=registry)
    def sync_fn(**_):
        calls.append(('sync', None))

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        await stopped.wait()
        remember('daemon')

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        remember('delete')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        remember('cleanup')


@pytest.fixture
def live(server, registry, settings, handlers, worker):
    """Run an operator in a thread, for the whole life of one object."""

    def live(run):
        ready, stop = threading.Event(), threading.Event()
        vault = vaults.Vault(
            {'sandbox': kopf.ConnectionInfo(server=server.url, token=server.token)}
        )
        running = worker.submit(
            run,
            registry=registry,
            settings=settings,
            clusterwide=True,
            vault=vault,
            ready_flag=ready,
            stop_flag=stop,
        )
        running.add_done_callback(lambda _: ready.set())
        try:
            assert ready.wait(60)
            server.create(build_object())
            server.wait(
                'kopfexamples',
                'obj',
                lambda body: 'create_fn' in body.get('status', {}),
                timeout=60,
            )
            server.delete('kopfexamples', 'obj')
            server.wait('kopfexamples', 'obj', lambda body: body is None, timeout=60)
        finally:
            stop.set()
            running.result(60)

    return live


@contextlib.contextmanager
def policy_of(module):
    """
    Use the policy of event loops of this module for a while. Newer Pythons do without them, and
    complain of them.
    """
    with warnings.catch_warnings(action='ignore', category=DeprecationWarning):
        before = asyncio.get_event_loop_policy()
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy() if module == 'uvloop' else None)
        try:
            yield
        finally:
            asyncio.set_event_loop_policy(before)


def run_in_given_loop(**options):
    with contextlib.closing(uvloop.new_event_loop()) as loop:
        kopf.run(loop=loop, **options)
        assert not loop.is_closed()


def run_in_loop_of_thread(**options):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with contextlib.closing(loop):
        kopf.run(**options)
    asyncio.set_event_loop(None)


def run_as_coroutine(**options):
    asyncio.run(kopf.operator(**options))


def check_loops(calls, module):
    """Check that everything was done, each thing once, and in the loops of this library."""
    assert sorted(calls, key=str) == [
        ('cleanup', module),
        ('create', module),
        ('daemon', module),
        ('delete', module),
        ('startup', module),
        ('sync', None),
    ]


@pytest.mark.guarantee('EMB-018', 'NEW-235')
def test_operator_works_in_the_loop_that_is_given(live, calls):
    live(run_in_given_loop)

    check_loops(calls, 'uvloop')


@pytest.mark.guarantee('EMB-018', 'NEW-235')
@pytest.mark.parametrize(
    'run', [kopf.run, run_in_loop_of_thread, run_as_coroutine], ids=lambda fn: fn.__name__
)
def test_operator_works_in_the_loops_of_the_policy(live, calls, run):
    with policy_of('uvloop'):
        live(run)

    check_loops(calls, 'uvloop')


@pytest.mark.guarantee('EMB-019', 'NEW-235')
@pytest.mark.parametrize(
    'run', [kopf.run, run_in_loop_of_thread, run_as_coroutine], ids=lambda fn: fn.__name__
)
def test_loops_are_of_asyncio_unless_asked_otherwise(live, calls, run):
    with policy_of('asyncio'):
        before = asyncio.get_event_loop_policy()
        live(run)
        assert asyncio.get_event_loop_policy() is before

    check_loops(calls, 'asyncio')


class Dweller:
    """An operator in a thread of its own, with an event loop of its own kind."""

    def __init__(self, name, server, make_loop):
        self.name, self.calls = name, []
        self.registry, self.settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        self.settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
            prefix=f'{name}.example.com'
        )
        self.settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
            prefix=f'{name}.example.com'
        )
        self.settings.persistence.finalizer = f'{name}.example.com/finalizer'
        self.stop, self.ready = threading.Event(), threading.Event()
        self._server, self._make_loop = server, make_loop
        kopf.on.create('kopfexamples', registry=self.registry)(self.async_fn)
        kopf.on.create('kopfexamples', registry=self.registry)(self.sync_fn)

    async def async_fn(self, name, memo, body, **_):
        kopf.info(body, reason=self.name)
        self.calls.append(
            (
                name,
                'async',
                memo.owner,
                type(asyncio.get_running_loop()).__module__.partition('.')[0],
            )
        )

    def sync_fn(self, name, memo, body, **_):
        kopf.info(body, reason=self.name)
        self.calls.append((name, 'sync', memo.owner, None))

    def run(self):
        info = kopf.ConnectionInfo(server=self._server.url, token=self._server.token)
        with contextlib.closing(self._make_loop()) as loop:
            kopf.run(
                loop=loop,
                registry=self.registry,
                settings=self.settings,
                clusterwide=True,
                standalone=True,
                vault=vaults.Vault({'sandbox': info}),
                memo=kopf.Memo(owner=self.name),
                stop_flag=self.stop,
                ready_flag=self.ready,
            )

    def wait_until_handled(self, name):
        """Wait for the object to be handled by this operator, whatever others do with it."""
        key = f'{self.name}.example.com/last-handled-configuration'
        self._server.wait(
            'kopfexamples',
            name,
            lambda body: key in body['metadata'].get('annotations', {}),
            timeout=60,
        )


@pytest.mark.guarantee('EMB-008', 'EMB-016', 'EMB-018', 'EMB-021', 'EMB-025')
def test_operators_work_in_threads_at_once_and_are_stopped_apart(server):
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    loops = {'one': uvloop.new_event_loop, 'two': asyncio.new_event_loop}
    one, two = dwellers = [Dweller(name, server, make_loop) for name, make_loop in loops.items()]
    with concurrent.futures.ThreadPoolExecutor() as pool, contextlib.ExitStack() as stack:
        for dweller in dwellers:
            stack.callback(dweller.stop.set)
        running = [pool.submit(dweller.run) for dweller in dwellers]
        assert all(dweller.ready.wait(60) for dweller in dwellers)
        server.create(build_object('first'))
        for dweller in dwellers:
            dweller.wait_until_handled('first')
        one.stop.set()
        running[0].result(60)
        server.create(build_object('second'))
        two.wait_until_handled('second')
        two.stop.set()
        running[1].result(60)

    assert sorted(one.calls, key=str) == [
        ('first', 'async', 'one', 'uvloop'),
        ('first', 'sync', 'one', None),
    ]
    assert sorted(two.calls, key=str) == [
        (name, kind, 'two', loop)
        for name in ('first', 'second')
        for kind, loop in [('async', 'asyncio'), ('sync', None)]
    ]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == signals
    assert {event['reason'] for event in server.list('events', 'default')} >= {'one', 'two'}


# Registries.


@pytest.fixture
def default_registry():
    before = kopf.get_default_registry()
    kopf.set_default_registry(kopf.OperatorRegistry())
    yield kopf.get_default_registry()
    kopf.set_default_registry(before)


@pytest.mark.guarantee('EMB-023')
@pytest.mark.parametrize(
    'decorator, args',
    [
        *((getattr(kopf.on, name), ()) for name in ['startup', 'cleanup', 'login', 'probe']),
        *(
            (getattr(kopf.on, name), ('kopfexamples',))
            for name in [
                'event',
                'resume',
                'create',
                'update',
                'delete',
                'index',
                'daemon',
                'timer',
                'validate',
                'mutate',
            ]
        ),
        (functools.partial(kopf.on.field, field='spec'), ('kopfexamples',)),
        *((decorator, ('kopfexamples',)) for decorator in [kopf.index, kopf.daemon, kopf.timer]),
    ],
    ids=lambda value: getattr(getattr(value, 'func', value), '__name__', ''),
)
def test_handlers_are_declared_only_in_the_registry_that_is_given(
    default_registry, registry, decorator, args
):
    def fn(**_):
        pass

    decorator(*args, registry=registry)(fn)

    assert [handler.fn for handler in registry._iter_handlers()] == [fn]
    assert not list(default_registry._iter_handlers())


@pytest.mark.guarantee('EMB-022', 'EMB-023')
async def test_handlers_of_a_registry_are_called_only_by_its_operators(
    cluster, sandbox, default_registry, registry, run_operator
):
    async def fn(owner, what, **_):
        calls.add((owner, what))
        return (
            kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token)
            if what == 'login'
            else None
        )

    def declare(owner, registry=None):
        for name in activities:
            getattr(kopf.on, name)(registry=registry, id=name)(functools.partial(fn, owner, name))
        for name, options in kinds.items():
            decorate = getattr(kopf.on, name)('kopfexamples', registry=registry, id=name, **options)
            decorate(functools.partial(fn, owner, name))

    activities = ['startup', 'login', 'cleanup']
    kinds = {
        name: {} for name in ['event', 'resume', 'create', 'update', 'delete', 'index', 'daemon']
    }
    kinds |= {'field': {'field': 'spec.x'}, 'timer': {'interval': 3600}}
    calls = set()
    declare('own', registry)
    declare('default')
    await cluster.create()
    operator = await run_operator(registry=registry, vault=vaults.Vault())
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await wait_until(lambda: {('own', 'daemon'), ('own', 'timer')} <= calls)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await operator.stop()

    assert calls == {('own', name) for name in [*activities, *kinds]}
