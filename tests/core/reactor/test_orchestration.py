"""
Orchestration: the watchers are those that are needed, each once, whatever happens to them.
"""

import asyncio
import dataclasses

import pytest

from kopf._cogs.structs import references, selectors
from kopf._core.reactor import observation, orchestration, resolution

KEX = references.Resource('kopf.dev', 'v1', 'kopfexamples', kind='KopfExample', namespaced=True)
PODS = references.Resource('', 'v1', 'pods', kind='Pod', namespaced=True)
NODES = references.Resource('', 'v1', 'nodes', kind='Node', namespaced=False)


class Watching:
    """All watchers that were ever started, and those that run now; some of them can be stubborn."""

    def __init__(self):
        self.started, self.running, self.stubborn, self.retired = [], [], {}, []
        self.failures, self.cancelled = {}, asyncio.Event()
        self._changed = asyncio.Condition()

    async def spawn(self, resource, namespace):
        key = repr(resource), namespace
        assert key not in self.running
        self.running.append(key)
        try:
            await self._tell(self.started.append, key)
            failure = self.failures.setdefault(key, asyncio.get_running_loop().create_future())
            await asyncio.shield(failure)
        except asyncio.CancelledError:
            self.cancelled.set()
            if key in self.stubborn:
                await self.stubborn[key].wait()
            raise
        finally:
            self.running.remove(key)
            async with self._changed:
                self._changed.notify_all()

    def retire(self, key):
        assert (repr(key.resource), key.namespace) not in self.running
        self.retired.append((repr(key.resource), key.namespace))

    async def wait_until_running(self, *keys):
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(
                lambda: sorted(self.running, key=str) == sorted(keys, key=str)
            )

    async def wait_until_started(self, key, times):
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: self.started.count(key) >= times)

    async def _tell(self, change, key):
        async with self._changed:
            change(key)
            self._changed.notify_all()


@pytest.fixture
async def watching():
    watching = Watching()
    yield watching
    assert not watching.running


@pytest.fixture
def insights():
    return observation.Insights()


@pytest.fixture
async def orchestrator(insights, watching):
    task = asyncio.create_task(
        orchestration.run_orchestrator(
            insights=insights, spawn=watching.spawn, retire=watching.retire
        ),
        name='main',
    )
    yield task
    task.cancel()
    await asyncio.wait([task])


def serve(insights, *resources):
    selector = selectors.parse_selector(references.EVERYTHING)
    insights.learn_resources(resolution.Resolution(served={selector: frozenset(resources)}))


@pytest.mark.parametrize(
    'resources, namespaces, expected',
    [
        pytest.param([], [], [], id='nothing'),
        pytest.param([KEX], [], [], id='no-namespaces'),
        pytest.param([], ['ns'], [], id='no-resources'),
        pytest.param(
            [KEX, PODS],
            ['a', 'b'],
            [(KEX, 'a'), (KEX, 'b'), (PODS, 'a'), (PODS, 'b')],
            id='namespaced',
        ),
        pytest.param(
            [KEX, NODES], ['a', 'b'], [(KEX, 'a'), (KEX, 'b'), (NODES, None)], id='cluster-scoped'
        ),
        pytest.param([NODES], [], [(NODES, None)], id='cluster-scoped-in-no-namespaces'),
        pytest.param(
            [KEX, NODES],
            [None],
            [(KEX, None), (NODES, None)],
            id='cluster-wide',
            marks=pytest.mark.guarantee('SCP-012'),
        ),
    ],
)
def test_watchers_are_needed_for_resources_in_namespaces(resources, namespaces, expected):
    assert orchestration.select_keys(resources, namespaces) == set(expected)


async def test_watchers_come_and_go(insights, watching, orchestrator):
    serve(insights, KEX)
    insights.learn_namespaces(['a'])
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'))

    insights.learn_namespaces(['b', 'c'])
    await watching.wait_until_running(
        ('kopfexamples.v1.kopf.dev', 'b'), ('kopfexamples.v1.kopf.dev', 'c')
    )
    serve(insights, KEX, PODS, NODES)
    await watching.wait_until_running(
        ('kopfexamples.v1.kopf.dev', 'b'),
        ('kopfexamples.v1.kopf.dev', 'c'),
        ('pods.v1', 'b'),
        ('pods.v1', 'c'),
        ('nodes.v1', None),
    )
    serve(insights)
    await watching.wait_until_running()

    assert len(watching.started) == 6


@pytest.mark.guarantee('FND-007')
async def test_watchers_are_retired_only_when_there_is_nothing_to_watch(
    insights, watching, orchestrator
):
    serve(insights, KEX, PODS)
    insights.learn_namespaces(['a', 'b'])
    keys = [
        (name, namespace)
        for name in ('kopfexamples.v1.kopf.dev', 'pods.v1')
        for namespace in ('a', 'b')
    ]
    await watching.wait_until_running(*keys)

    serve(insights, dataclasses.replace(KEX, subresources=frozenset({'status'})), PODS)  # redefined
    await watching.wait_until_started(keys[0], times=2)
    await watching.wait_until_running(*keys)
    assert watching.retired == []

    insights.learn_namespaces(['a'])
    await watching.wait_until_running(keys[0], keys[2])
    serve(insights, PODS)
    await watching.wait_until_running(keys[2])
    async with asyncio.timeout(10):
        while len(watching.retired) < 3:
            await asyncio.sleep(0)
    assert sorted(watching.retired) == [keys[0], keys[1], keys[3]]

    orchestrator.cancel()
    await asyncio.wait([orchestrator])
    assert len(watching.retired) == 3


@pytest.mark.guarantee('FND-007')
async def test_watchers_are_not_retired_if_they_are_needed_again_before_they_end(
    insights, watching, orchestrator
):
    key = ('pods.v1', 'a')
    watching.stubborn[key] = asyncio.Event()
    serve(insights, PODS)
    insights.learn_namespaces(['a'])
    await watching.wait_until_running(key)
    insights.learn_namespaces([])
    await watching.cancelled.wait()
    insights.learn_namespaces(['a'])
    watching.stubborn.pop(key).set()
    await watching.wait_until_started(key, times=2)

    assert watching.retired == []


async def test_watchers_are_not_disturbed_by_what_is_unrelated(insights, watching, orchestrator):
    serve(insights, KEX)
    insights.learn_namespaces(['a'])
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'))

    serve(insights, dataclasses.replace(KEX, shortcuts=frozenset({'kex'}), preferred=False), PODS)
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'), ('pods.v1', 'a'))

    assert watching.started == [('kopfexamples.v1.kopf.dev', 'a'), ('pods.v1', 'a')]


@pytest.mark.parametrize(
    'changes, key',
    [
        pytest.param({'namespaced': False}, ('kopfexamples.v1.kopf.dev', None), id='scope'),
        pytest.param(
            {'subresources': frozenset({'status'})},
            ('kopfexamples.v1.kopf.dev', 'a'),
            id='subresources',
        ),
        pytest.param({'kind': 'Other'}, ('kopfexamples.v1.kopf.dev', 'a'), id='kind'),
    ],
)
async def test_watchers_are_replaced_if_resources_are_redefined(
    insights, watching, orchestrator, changes, key
):
    serve(insights, KEX)
    insights.learn_namespaces(['a'])
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'))

    serve(insights, dataclasses.replace(KEX, **changes), PODS)
    await watching.wait_until_running(('pods.v1', 'a'), key)

    assert len(watching.started) == 3


async def test_readiness_is_when_everything_is_known_and_started(insights, watching, orchestrator):
    serve(insights, KEX, NODES)
    await watching.wait_until_running(('nodes.v1', None))
    assert not insights.ready.is_set()

    insights.learn_namespaces(['a'])
    await insights.ready.wait()

    names = {task.get_name() for task in asyncio.all_tasks()}
    assert {"watcher of kopfexamples.v1.kopf.dev in 'a'", 'watcher of nodes.v1'} <= names


async def test_readiness_needs_no_resources(insights, orchestrator):
    serve(insights)
    insights.learn_namespaces([])

    await insights.ready.wait()


async def test_stubborn_watcher_is_not_doubled_and_holds_nobody_else(
    virtual_time, insights, watching, orchestrator, caplog
):
    release = watching.stubborn['kopfexamples.v1.kopf.dev', 'a'] = asyncio.Event()
    serve(insights, KEX)
    insights.learn_namespaces(['a'])
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'))

    serve(insights, PODS)
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'), ('pods.v1', 'a'))
    serve(insights, KEX, PODS)
    await asyncio.sleep(orchestration.STOPPING_TIMEOUT + 1)
    assert watching.started.count(('kopfexamples.v1.kopf.dev', 'a')) == 1
    release.set()
    await watching.wait_until_started(('kopfexamples.v1.kopf.dev', 'a'), times=2)

    (line,) = caplog.messages
    assert "kopfexamples.v1.kopf.dev in 'a' has not stopped in 30.0 s" in line


async def test_stubborn_watcher_is_cancelled_and_complained_about_only_once(
    virtual_time, insights, watching, orchestrator, caplog
):
    key = 'nodes.v1', None
    release = watching.stubborn[key] = asyncio.Event()
    serve(insights, NODES)
    insights.learn_namespaces(['a'])
    await watching.wait_until_running(key)

    serve(insights, PODS)
    await watching.wait_until_running(key, ('pods.v1', 'a'))
    serve(insights, KEX)
    await watching.wait_until_running(key, ('kopfexamples.v1.kopf.dev', 'a'))
    await asyncio.sleep(orchestration.STOPPING_TIMEOUT * 3)
    assert len(caplog.messages) == 1
    orchestrator.cancel()
    await watching.wait_until_running(key)
    release.set()

    with pytest.raises(asyncio.CancelledError):
        await orchestrator
    assert len(caplog.messages) == 1


async def test_errors_of_watchers_escalate_after_all_others_are_stopped(
    insights, watching, orchestrator, caplog
):
    serve(insights, KEX, NODES)
    insights.learn_namespaces(['a', 'b'])
    await insights.ready.wait()
    await asyncio.sleep(0)

    for key in list(watching.failures)[:2]:
        watching.failures[key].set_exception(ValueError('boo!'))

    with pytest.raises(ValueError, match='boo!'):
        await orchestrator
    assert not watching.running
    (line,) = caplog.messages
    assert line.endswith("has failed too: ValueError('boo!')")


@pytest.mark.parametrize('is_cancelled', [False, True], ids=['returned', 'cancelled'])
async def test_unexpected_end_of_a_watcher_is_an_error(
    insights, watching, orchestrator, is_cancelled
):
    serve(insights, NODES)
    insights.learn_namespaces([])
    await watching.wait_until_running(('nodes.v1', None))

    if is_cancelled:
        next(
            task for task in asyncio.all_tasks() if task.get_name() == 'watcher of nodes.v1'
        ).cancel()
    else:
        watching.failures['nodes.v1', None].set_result(None)

    with pytest.raises(
        orchestration.UnexpectedEndError, match=r'Watching over nodes\.v1 has ended'
    ):
        await orchestrator


async def test_watchers_that_fail_when_stopped_are_not_forgiven(insights, orchestrator, watching):
    serve(insights, KEX)
    insights.learn_namespaces(['a'])
    await insights.ready.wait()
    await watching.wait_until_running(('kopfexamples.v1.kopf.dev', 'a'))
    key = 'kopfexamples.v1.kopf.dev', 'a'
    watching.stubborn[key] = asyncio.Event()
    watching.stubborn[key].wait = lambda: int('x')

    serve(insights)

    with pytest.raises(ValueError, match='invalid literal'):
        await orchestrator


async def test_cancellation_stops_all_watchers(insights, watching, orchestrator):
    serve(insights, KEX, NODES)
    insights.learn_namespaces(['a'])
    await insights.ready.wait()
    await asyncio.sleep(0)
    assert len(watching.running) == 2

    orchestrator.cancel()

    with pytest.raises(asyncio.CancelledError):
        await orchestrator
    assert not watching.running


async def test_cancellation_while_nothing_is_known(orchestrator):
    await asyncio.sleep(0)

    orchestrator.cancel()

    with pytest.raises(asyncio.CancelledError):
        await orchestrator


async def test_cancellation_does_not_wait_for_stubborn_watchers_for_ever(
    virtual_time, insights, watching, orchestrator, caplog
):
    release = watching.stubborn['nodes.v1', None] = asyncio.Event()
    serve(insights, NODES)
    insights.learn_namespaces([])
    await watching.wait_until_running(('nodes.v1', None))

    orchestrator.cancel()

    with pytest.raises(asyncio.CancelledError):
        await orchestrator
    assert virtual_time.elapsed == orchestration.STOPPING_TIMEOUT
    assert caplog.messages == [
        'Watching has not stopped in 30.0 s, and is left as it is: nodes.v1.'
    ]
    release.set()
    await watching.wait_until_running()


async def test_second_cancellation_ends_the_waiting(insights, watching, orchestrator):
    release = watching.stubborn['nodes.v1', None] = asyncio.Event()
    serve(insights, NODES)
    insights.learn_namespaces([])
    await watching.wait_until_running(('nodes.v1', None))

    orchestrator.cancel()
    await watching.cancelled.wait()
    orchestrator.cancel()

    with pytest.raises(asyncio.CancelledError):
        await orchestrator
    assert watching.running
    release.set()
    await watching.wait_until_running()


async def test_changes_are_noticed_even_before_the_waiting_for_them(insights):
    revision = insights.revision
    insights.learn_namespaces(['a'])

    await insights.wait_until_changed(revision)

    assert insights.revision != revision


async def test_same_namespaces_are_not_a_change(insights):
    insights.learn_namespaces(['a', 'b'])
    revision = insights.revision

    insights.learn_namespaces(['b', 'a'])

    assert insights.revision == revision
