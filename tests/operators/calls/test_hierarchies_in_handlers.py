"""
Children of the handled objects: the owner is known in handlers, and in all that they call or start.
"""

import asyncio
import concurrent.futures
import contextvars
import copy
import threading

import pytest
from clusters import build_crd, build_object, wait_until

import kopf

DECORATORS = [
    pytest.param(kopf.on.create, id='create'),
    pytest.param(kopf.on.resume, id='resume'),
    pytest.param(kopf.on.event, id='event'),
    pytest.param(kopf.on.timer, id='timer'),
    pytest.param(kopf.on.daemon, id='daemon'),
    pytest.param(kopf.index, id='index'),
]


@pytest.fixture
def children():
    """All that is adopted, in the order of adoption."""
    return []


def summarize(child):
    metadata = child['metadata']
    return (
        metadata['generateName'],
        metadata['namespace'],
        metadata['labels'],
        [reference['uid'] for reference in metadata['ownerReferences']],
    )


def expect(body):
    """Tell how a child of the object looks."""
    metadata = body['metadata']
    return f'{metadata["name"]}-', 'default', {'app': metadata['name']}, [metadata['uid']]


@pytest.mark.guarantee('HIE-005', 'EMB-025', 'ASY-006')
@pytest.mark.parametrize('is_async', [True, False], ids=['async', 'sync'])
@pytest.mark.parametrize('decorator', DECORATORS)
async def test_owner_is_the_handled_object(
    cluster, registry, run_operator, children, decorator, is_async
):
    def adopt():
        child = {'kind': 'Pod'}
        kopf.adopt(child)
        children.append(child)

    async def async_fn(**_):
        await asyncio.sleep(0)
        adopt()

    def sync_fn(**_):
        adopt()

    options = {'interval': 1000} if decorator is kopf.on.timer else {}
    decorator('kopfexamples', registry=registry, **options)(async_fn if is_async else sync_fn)
    body = await cluster.create(labels={'app': 'obj'})
    await run_operator()
    await wait_until(lambda: children)

    assert summarize(children[0]) == expect(body)


@pytest.mark.guarantee('EMB-025')
async def test_owners_do_not_mix_when_many_objects_are_handled_at_once(
    cluster, registry, run_operator, children
):
    together = asyncio.Event()

    @kopf.on.event('kopfexamples', registry=registry)
    async def async_fn(name, **_):
        child = {'kind': name}
        if name == 'three':
            together.set()
        await together.wait()
        kopf.adopt(child)
        children.append(child)

    names = ['one', 'two', 'three']
    bodies = {name: await cluster.create(name, labels={'app': name}) for name in names}
    await run_operator()
    await wait_until(lambda: len(children) == 3)

    assert {child['kind']: summarize(child) for child in children} == {
        name: expect(body) for name, body in bodies.items()
    }


@pytest.mark.guarantee('EMB-025')
async def test_owner_is_known_in_subhandlers_and_still_after_them(
    cluster, registry, run_operator, children
):
    def adopt(kind):
        child = {'kind': kind}
        kopf.adopt(child)
        children.append(child)

    @kopf.on.create('kopfexamples', registry=registry)
    async def parent_fn(**_):
        async def sub_fn(**_):
            adopt('sub')

        await kopf.execute(fns=[sub_fn])
        adopt('parent')

    body = await cluster.create(labels={'app': 'obj'})
    await run_operator()
    await cluster.wait_until_handled()

    assert [child['kind'] for child in children] == ['sub', 'parent']
    assert [summarize(child) for child in children] == [expect(body)] * 2


@pytest.mark.guarantee('EMB-025')
async def test_owner_is_known_in_tasks_and_threads_of_handlers(
    cluster, registry, run_operator, children
):
    def adopt():
        child = {}
        kopf.adopt(child)
        children.append(child)

    async def adopt_later():
        await asyncio.sleep(1)
        adopt()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        await asyncio.gather(adopt_later(), asyncio.to_thread(adopt))

    @kopf.on.create('kopfexamples', registry=registry)
    def sync_create_fn(**_):
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(adopt,))
        thread.start()
        thread.join()

    body = await cluster.create(labels={'app': 'obj'})
    await run_operator()
    await cluster.wait_until_handled()

    assert [summarize(child) for child in children] == [expect(body)] * 3


async def test_owner_is_unknown_outside_of_handlers_of_objects(cluster, registry, run_operator):
    strangers = set()

    def check(who):
        try:
            kopf.adopt({})
        except LookupError:
            strangers.add(who)
        return True

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(**_):
        check('handler in a thread')

    @kopf.on.event('kopfexamples', registry=registry, when=lambda **_: check('filter'))
    async def event_fn(**_):
        check('handler')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        check('cleanup')

    @kopf.on.cleanup(registry=registry)
    def sync_cleanup_fn(**_):
        check('cleanup in a thread')

    await cluster.create()
    operator = await run_operator()
    await cluster.wait_until_handled()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(check, 'thread of others').result()
    await operator.stop()

    assert strangers == {'filter', 'thread of others', 'cleanup', 'cleanup in a thread'}


@pytest.mark.guarantee('HIE-006')
async def test_adoption_changes_neither_the_handled_object_nor_the_cluster(
    cluster, registry, run_operator, children
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(body, patch, **_):
        before = copy.deepcopy(body)
        child = {}
        kopf.adopt(child, forced=True, strict=True)
        kopf.label(child, {'a': 'b'})
        await asyncio.sleep(10)
        verbs = {request.verb for request in cluster.sandbox.requests if request.plural}
        children.append((copy.deepcopy(body) == before, bool(patch), verbs))

    await cluster.create()
    await run_operator()
    await cluster.wait_until_handled()

    assert children == [(True, False, {'list', 'watch'})]


@pytest.mark.guarantee('EMB-025', 'EMB-021')
async def test_operators_of_one_loop_know_their_own_objects(
    cluster, sandbox, run_operator, children
):
    def declare(plural):
        registry = kopf.OperatorRegistry()

        @kopf.on.event(plural, registry=registry)
        async def event_fn(**_):
            child = {}
            await asyncio.sleep(5)
            kopf.adopt(child)
            children.append((plural, child['metadata']['ownerReferences'][0]['kind']))

        return registry

    await sandbox.apply(build_crd('others', 'Other'))
    await cluster.create()
    await sandbox.create(build_object(kind='Other'))
    for plural in ['kopfexamples', 'others']:
        await run_operator(registry=declare(plural), settings=kopf.OperatorSettings())
    await wait_until(lambda: len(children) == 2)

    assert sorted(children) == [('kopfexamples', 'KopfExample'), ('others', 'Other')]


@pytest.mark.guarantee('HIE-032')
async def test_adopted_children_are_deleted_with_their_parents(
    cluster, sandbox, registry, run_operator
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        child = {'apiVersion': 'v1', 'kind': 'ConfigMap'}
        kopf.adopt(child, strict=True)
        await sandbox.create(child)

    await cluster.create()
    operator = await run_operator()
    await cluster.wait_until_handled()
    assert await sandbox.get('configmaps', 'obj')
    await operator.stop()

    await cluster.delete()

    assert await sandbox.wait('configmaps', 'obj', lambda body: body is None, timeout=600) is None
