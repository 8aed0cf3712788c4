"""
Indices while streams end: at the exit, in a pause, between two streams. They change only as the
objects do.

A handler that saw no children in an emptied index could delete or re-create the real ones.
"""

import asyncio
import threading

import aiohttp
import pytest
from clusters import build_crd, build_object, wait_until
from operator_endpoints import Site
from peerings import build_record
from webhook_servers import MANAGED, Hall, open_client, wait_for_records

import kopf

CHILDREN = [f'child-{number}' for number in range(5)]


@pytest.fixture
def seen():
    """What was seen in the index, as pairs: who has seen it, which children."""
    return []


@pytest.fixture
async def children(sandbox, cluster, registry, seen):
    """
    An index of some objects which have no other handlers: there is nothing to wait for when their
    stream ends.
    """

    @kopf.index('children', id='children', registry=registry)
    async def children(name, children, **_):
        seen.append(('index', sorted(children)))
        return {name: name}

    await sandbox.apply(build_crd('children', 'Child'))
    for name in CHILDREN:
        await sandbox.create(build_object(name, kind='Child'))


@pytest.fixture
def run(run_operator, children, seen):
    """Run an operator until all children are indexed."""

    async def run(**options):
        operator = await run_operator(**options)
        await wait_until(lambda: len(seen) == len(CHILDREN))
        seen.clear()
        return operator

    return run


# The exit.


async def stop_gracefully(operator):
    await operator.stop()


async def stop_by_cancellation(operator):
    operator.task.cancel()
    await asyncio.wait([operator.task])


@pytest.mark.guarantee('FND-007')
@pytest.mark.parametrize('stop', [stop_gracefully, stop_by_cancellation])
async def test_handlers_see_full_indices_until_they_finish(
    cluster, registry, settings, run, seen, stop
):
    settings.queueing.exit_timeout = 10
    begun = []

    async def fn(param, children, **_):
        begun.append(param)
        for _ in range(5):
            await asyncio.sleep(1)
            seen.append((param, sorted(children)))

    for number, decorator in enumerate([kopf.on.event, kopf.on.create, kopf.on.resume]):
        name = f'obj-{number}'
        decorator(
            'kopfexamples',
            id=name,
            param=name,
            registry=registry,
            when=lambda name, expected=name, **_: name == expected,
        )(fn)
        await cluster.create(name)
    operator = await run()
    await wait_until(lambda: len(begun) == 3)
    await stop(operator)

    assert sorted(who for who, _ in seen) == sorted(begun * 5)
    assert {tuple(names) for _, names in seen} == {tuple(CHILDREN)}


@pytest.mark.guarantee('FND-007')
async def test_interrupted_handlers_see_full_indices(cluster, registry, settings, run, seen):
    settings.queueing.exit_timeout = 1
    begun = asyncio.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(children, **_):
        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            seen.append(('interrupted', sorted(children)))
            await asyncio.sleep(1)
            seen.append(('ended', sorted(children)))

    operator = await run()
    await cluster.create()
    await begun.wait()
    await operator.stop()

    assert seen == [('interrupted', CHILDREN), ('ended', CHILDREN)]


@pytest.mark.guarantee('FND-007')
async def test_daemons_see_full_indices_until_they_exit(cluster, registry, run, seen):
    begun = []

    @kopf.daemon('kopfexamples', registry=registry, cancellation_backoff=5, cancellation_timeout=5)
    async def patient_fn(children, stopped, **_):
        begun.append('patient')
        await stopped.wait()
        await asyncio.sleep(3)
        seen.append(('patient', sorted(children)))

    @kopf.daemon('kopfexamples', registry=registry, cancellation_backoff=5, cancellation_timeout=5)
    async def stubborn_fn(children, **_):
        begun.append('stubborn')
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(3)
            seen.append(('stubborn', sorted(children)))

    @kopf.daemon('kopfexamples', registry=registry)
    def sync_fn(children, stopped, **_):
        begun.append('sync')
        stopped.wait()
        seen.append(('sync', sorted(children)))

    operator = await run()
    await cluster.create()
    await wait_until(lambda: len(begun) == 3)
    await operator.stop()

    assert sorted(seen) == [('patient', CHILDREN), ('stubborn', CHILDREN), ('sync', CHILDREN)]


@pytest.mark.guarantee('FND-007')
@pytest.mark.parametrize('stop', [stop_gracefully, stop_by_cancellation])
async def test_cleanup_handlers_see_full_indices(registry, run, seen, stop):
    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(children, **_):
        await asyncio.sleep(10)
        seen.append(('cleanup', sorted(children)))

    operator = await run()
    await stop(operator)

    assert seen == [('cleanup', CHILDREN)]


@pytest.mark.guarantee('FND-007')
async def test_cleanup_handlers_see_full_indices_after_failures(sandbox, registry, run, seen):
    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        raise kopf.PermanentError('There is no second way to the cluster.')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(children, **_):
        seen.append(('cleanup', sorted(children)))

    operator = await run()
    sandbox.faults.inject(verb='list', code=401)
    sandbox.faults.inject(verb='watch', cut=True)
    await sandbox.compact()

    with pytest.raises(kopf.LoginError):
        await operator.task
    assert seen == [('cleanup', CHILDREN)]


@pytest.mark.guarantee('FND-007')
async def test_reviews_in_flight_see_full_indices(sandbox, cluster, registry, settings, run, seen):
    settings.admission.server, settings.admission.managed = Hall(sandbox), MANAGED
    begun = asyncio.Event()

    @kopf.on.validate('kopfexamples', when=lambda name, **_: name == 'reviewed', registry=registry)
    async def validate_fn(children, **_):
        begun.set()
        await asyncio.sleep(3)
        seen.append(('review', sorted(children)))

    @kopf.daemon('kopfexamples', registry=registry)
    async def slow_fn(stopped, **_):
        await stopped.wait()
        await asyncio.sleep(5)  # the webhook server is stopped after the daemons

    await cluster.create()
    operator = await run()
    await wait_for_records(sandbox, 1)
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    async with open_client(sandbox) as client:
        request = asyncio.create_task(client.create(build_object('reviewed')))
        await begun.wait()
        await operator.stop()
        answer = await request

    assert answer.code == 201
    assert seen == [('review', CHILDREN)]


@pytest.mark.guarantee('FND-007')
async def test_probes_see_full_indices_until_the_end(registry, run, seen):
    @kopf.on.probe(registry=registry)
    async def probe_fn(children, **_):
        seen.append(('probe', sorted(children)))

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        await asyncio.sleep(100)
        await site.fetch()

    async with aiohttp.ClientSession() as session:
        site = Site(session)
        operator = await run(liveness_endpoint=site.url)
        await operator.stop()

    assert seen == [('probe', CHILDREN)]


@pytest.mark.guarantee('FND-007')
async def test_threads_that_outlive_the_operator_see_full_indices(cluster, registry, run, seen):
    begun, going_on, ended = threading.Event(), threading.Event(), threading.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(children, **_):
        begun.set()
        going_on.wait()
        seen.append(('thread', sorted(children)))
        ended.set()

    operator = await run()
    await cluster.create()
    await wait_until(begun.is_set)
    await operator.stop()
    going_on.set()
    await asyncio.to_thread(ended.wait)

    assert seen == [('thread', CHILDREN)]


# The pause.


@pytest.fixture
async def pause(peering, town):
    """Begin or end a pause, as if there was another operator, or was not any more."""

    async def pause(is_paused):
        await town.write({'other': build_record(5, lifetime=600) if is_paused else None})
        await asyncio.sleep(0.5)

    return pause


@pytest.mark.guarantee('FND-007')
async def test_indices_stay_in_a_pause_and_are_compared_with_the_listing_after_it(
    sandbox, cluster, registry, run, seen, pause
):
    indices = {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(children, **_):
        indices['children'] = children

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(children, stopped, **_):
        await stopped.wait()
        await asyncio.sleep(5)
        seen.append(('daemon', sorted(children)))

    await cluster.create()
    await run(peering_name='default')
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    await pause(True)
    await sandbox.delete('children', 'child-0')
    await sandbox.create(build_object('child-5', kind='Child'))
    await asyncio.sleep(100)
    assert seen == [('daemon', CHILDREN)]
    assert sorted(indices['children']) == CHILDREN

    seen.clear()
    await pause(False)
    await wait_until(lambda: sorted(indices['children']) == [*CHILDREN[1:], 'child-5'])
    assert len(seen) == 5
    assert all(set(names) >= set(CHILDREN) for _, names in seen)


@pytest.mark.guarantee('FND-007')
async def test_objects_that_vanish_while_being_indexed_do_not_stay_in_other_indices(
    sandbox, cluster, registry, run, seen, pause
):
    is_slow, begun, indices = False, asyncio.Event(), {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(children, **_):
        indices['children'] = children

    @kopf.index('children', id='slow_index', registry=registry)
    async def slow_index(**_):
        if is_slow:
            begun.set()
            await asyncio.sleep(3600)

    await run(peering_name='default')
    is_slow = True
    await sandbox.create(build_object('unlucky', kind='Child'))
    await begun.wait()
    await pause(True)
    is_slow = False
    await sandbox.delete('children', 'unlucky')
    await asyncio.sleep(10)
    await pause(False)

    await wait_until(lambda: sorted(indices['children']) == CHILDREN)


# Other streams.


@pytest.mark.guarantee('FND-007')
async def test_indices_are_compared_with_the_listing_after_a_gap(sandbox, registry, run, seen):
    await run()
    fault = sandbox.faults.inject(verb='watch', resource='children', cut=True)
    await fault.wait_until_hit()
    await sandbox.delete('children', 'child-0')
    await sandbox.patch('children', 'child-4', {'spec': {'x': 2}})
    await sandbox.create(build_object('child-5', kind='Child'))
    await sandbox.compact()
    fault.lift()
    await wait_until(lambda: len(seen) == 2)

    assert all(set(names) >= set(CHILDREN[1:]) for _, names in seen)


@pytest.mark.guarantee('FND-007')
async def test_indices_stay_when_the_resource_is_redefined(sandbox, registry, run, seen):
    indices = {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(children, **_):
        indices['children'] = children

    await run()
    is_paused = sandbox.faults.inject(verb='list', resource='children', code=503)
    await sandbox.apply(build_crd('children', 'Child', has_status=True))
    await is_paused.wait_until_hit()
    await sandbox.delete('children', 'child-0')
    await asyncio.sleep(10)
    assert sorted(indices['children']) == CHILDREN

    is_paused.lift()
    await wait_until(lambda: sorted(indices['children']) == CHILDREN[1:])
    assert all(set(names) >= set(CHILDREN[1:]) for _, names in seen)


@pytest.mark.guarantee('FND-007')
async def test_indices_stay_when_indexing_functions_fail_after_a_pause(
    sandbox, registry, run_operator, pause
):
    sightings, indices = [], {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(failing, **_):
        indices['failing'] = failing

    @kopf.index('kopfexamples', id='failing', registry=registry)
    async def failing(name, **_):
        sightings.append(name)
        if len(sightings) > 1:
            raise RuntimeError('not now')
        return {name: name}

    await sandbox.create(build_object())
    await run_operator(peering_name='default')
    await wait_until(lambda: sightings)
    await pause(True)
    await pause(False)
    await wait_until(lambda: len(sightings) == 2)
    await asyncio.sleep(1)

    assert sorted(indices['failing']) == ['obj']


# The real end.


@pytest.mark.guarantee('FND-007')
async def test_indices_forget_objects_with_their_namespace(
    sandbox, registry, run_operator, cluster
):
    indices = {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(index, **_):
        indices['index'] = index

    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(namespace, **_):
        return {namespace: namespace}

    for namespace in ('my-one', 'my-two'):
        await sandbox.create(
            {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': namespace}}
        )
        await sandbox.create(build_object(namespace=namespace))
    await run_operator(namespaces=['my-*'])
    await wait_until(lambda: sorted(indices['index']) == ['my-one', 'my-two'])
    # The deletions are not seen.
    fault = sandbox.faults.inject(verb='watch', resource='kopfexamples', cut=True)
    await fault.wait_until_hit()
    await sandbox.delete('namespaces', 'my-one')

    await wait_until(lambda: sorted(indices['index']) == ['my-two'])


@pytest.mark.guarantee('FND-007', 'FND-008')
async def test_indices_forget_only_the_version_that_is_not_served_any_more(
    sandbox, registry, run_operator, cluster
):
    indices = {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(index, **_):
        indices['index'] = index

    @kopf.index('kopf.dev', 'v1', 'kopfexamples', id='index', registry=registry)
    @kopf.index('kopf.dev', 'v2', 'kopfexamples', id='index', registry=registry)
    async def index(resource, **_):
        return {resource.version: resource.version}

    crd = build_crd()
    crd['spec']['versions'].append({**crd['spec']['versions'][0], 'name': 'v2', 'storage': False})
    await sandbox.apply(crd)
    await cluster.create()
    await run_operator()
    await wait_until(lambda: sorted(indices['index']) == ['v1', 'v2'])
    crd['spec']['versions'][1]['served'] = False
    await sandbox.apply(crd)
    await asyncio.sleep(100)

    assert sorted(indices['index']) == ['v1']


@pytest.mark.guarantee('FND-007')
async def test_indices_forget_objects_with_their_resource(sandbox, registry, run, seen):
    indices = {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(children, **_):
        indices['children'] = children

    await run()
    await sandbox.delete('customresourcedefinitions', 'children.kopf.dev')

    await wait_until(lambda: not indices['children'])
