"""
Namespaces and resources that are served by an operator, while they come and go.
"""

import asyncio
import logging
import re

import pytest
from clusters import FINALIZER, GROUP, build_crd, build_object, wait_until

import kopf

BASE = {'default', 'kube-system', 'kube-public', 'kube-node-lease'}


@pytest.fixture
def seen():
    """The namespaces and names of the handled objects."""
    return []


@pytest.fixture(autouse=True)
def handler(registry, seen):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(namespace, name, **_):
        seen.append((namespace, name))


@pytest.fixture
def add(cluster):
    """Add a namespace, if there is none, with an object in it."""

    async def add(namespace, name='obj', **metadata):
        if namespace not in {
            found['metadata']['name'] for found in await cluster.sandbox.list('namespaces')
        }:
            await cluster.sandbox.create(
                {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': namespace}}
            )
        return await cluster.sandbox.create(build_object(name, namespace=namespace, **metadata))

    return add


def get_watched(sandbox, plural='kopfexamples'):
    """The namespaces that were asked for; an empty one stands for the whole cluster."""
    return {
        asked.namespace or ''
        for asked in sandbox.requests.select(resource=plural)
        if asked.verb in ('list', 'watch') and asked.user_agent.startswith('kopf/')
    }


@pytest.mark.guarantee('SCP-001', 'SCP-014')
async def test_only_the_named_namespaces_are_served(sandbox, add, run_operator, seen):
    for namespace in ('one', 'two', 'three'):
        await add(namespace)
    await run_operator(namespaces=['one', 'three'])
    await wait_until(lambda: len(seen) == 2)
    await add('two', 'later')
    await add('one', 'later')
    await wait_until(lambda: len(seen) == 3)

    assert sorted(seen) == [('one', 'later'), ('one', 'obj'), ('three', 'obj')]
    assert get_watched(sandbox) == {'one', 'three'}


@pytest.mark.guarantee('SCP-002', 'SCP-003', 'SCP-007', 'SCP-014')
@pytest.mark.parametrize(
    'pattern, expected',
    [
        pytest.param('myapp-*,!*-pr-*,*-pr-123', ['myapp-live', 'myapp-pr-123'], id='globs'),
        pytest.param(re.compile(r'\w+app-live'), ['myapp-live', 'otherapp-live'], id='regexp'),
        pytest.param('!*-pr-*', [*sorted(BASE), 'myapp-live', 'otherapp-live'], id='negation'),
    ],
)
async def test_namespaces_are_chosen_by_patterns(
    sandbox, add, run_operator, seen, pattern, expected
):
    for namespace in (
        'myapp-live',
        'myapp-pr-123',
        'myapp-pr-456',
        'otherapp-live',
        'otherapp-pr-123',
    ):
        await add(namespace)
    await run_operator(namespaces=[pattern])
    chosen = sorted((namespace, 'obj') for namespace in expected if 'app' in namespace)
    await wait_until(lambda: sorted(seen) == chosen)
    await wait_until(lambda: get_watched(sandbox) == set(expected))


@pytest.mark.guarantee('SCP-008', 'SCP-010', 'ARC-011')
async def test_namespaces_are_served_from_their_creation_to_their_deletion(
    cluster, sandbox, add, run_operator, seen
):
    await run_operator(namespaces=['mine', 'my-*'])
    await asyncio.sleep(60)
    assert get_watched(sandbox) == set()
    await add('mine')
    await add('my-other')
    await add('theirs')
    await wait_until(lambda: sorted(seen) == [('mine', 'obj'), ('my-other', 'obj')])
    await sandbox.delete('namespaces', 'mine')
    await sandbox.wait('namespaces', 'mine', lambda body: body is None)
    sandbox.requests.clear()
    await asyncio.sleep(3600)
    assert get_watched(sandbox) == {'my-other'}
    await add('mine', 'anew')
    await wait_until(lambda: ('mine', 'anew') in seen)

    assert len(seen) == 3


@pytest.mark.guarantee('NEW-222', 'SCP-008')
async def test_objects_are_released_in_a_namespace_that_is_being_deleted(
    sandbox, add, registry, run_operator
):
    deleted = []

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(name, retry, **_):
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=30)
        deleted.append(name)

    await run_operator(namespaces=['mine'])
    await add('mine')
    await sandbox.wait(
        'kopfexamples',
        'obj',
        lambda body: FINALIZER in body['metadata'].get('finalizers', []),
        'mine',
        timeout=60,
    )
    await sandbox.delete('namespaces', 'mine')
    await sandbox.wait('namespaces', 'mine', lambda body: body is None, timeout=600)

    assert deleted == ['obj']


@pytest.mark.guarantee('SCP-009', 'SCP-011', 'NEW-221')
async def test_named_namespaces_are_served_at_once_if_it_is_not_permitted_to_see_them(
    sandbox, cluster, add, run_operator, seen, logs
):
    await add('one')
    await add('pattern-x')
    started = asyncio.get_running_loop().time()
    with sandbox.faults.inject(verb='list', resource='namespaces', code=403):
        await run_operator(namespaces=['one', 'two', 'pattern-*'])
        await wait_until(lambda: seen)
        assert asyncio.get_running_loop().time() - started < 5
        await asyncio.sleep(10)
        assert get_watched(sandbox) == {'one', 'two'}
        await add('two')
        await wait_until(lambda: len(seen) == 2)

    assert seen == [('one', 'obj'), ('two', 'obj')]
    assert len([line for line in logs(logging.WARNING) if 'namespaces' in line]) == 1


@pytest.mark.guarantee('NEW-220')
async def test_scanning_can_be_disabled(sandbox, add, run_operator, settings, seen, logs):
    settings.scanning.disabled = True
    await run_operator(namespaces=['one', 'pattern-*'])
    await wait_until(lambda: get_watched(sandbox))
    await add('pattern-x')
    await add('one')
    await sandbox.apply(build_crd('kopflaters', 'KopfLater'))
    await wait_until(lambda: seen)
    await asyncio.sleep(600)

    assert seen == [('one', 'obj')]
    assert get_watched(sandbox) == {'one'}
    for plural in ('namespaces', 'customresourcedefinitions'):
        assert get_watched(sandbox, plural) == set()
    assert logs(logging.WARNING) == []


@pytest.mark.guarantee('SCP-012', 'SCP-013')
async def test_the_whole_cluster_is_served_by_one_stream_and_its_namespaces_are_not_looked_at(
    sandbox, add, run_operator, seen
):
    await add('one')
    await run_operator(clusterwide=True)
    await add('two')
    await wait_until(lambda: len(seen) == 2)

    assert get_watched(sandbox) == {''}
    assert get_watched(sandbox, 'namespaces') == set()


@pytest.mark.guarantee('SCP-013')
async def test_all_namespaces_are_served_by_separate_streams(sandbox, add, run_operator, seen):
    await add('one')
    await run_operator(namespaces=['*'])
    await add('two')
    await wait_until(lambda: len(seen) == 2)

    assert get_watched(sandbox) == {*BASE, 'one', 'two'}


async def test_objects_with_no_namespaces_are_served_whatever_namespaces_are(
    sandbox, cluster, add, registry, run_operator, seen
):
    @kopf.on.create('kopfplanets', registry=registry)
    async def planet_fn(name, namespace, **_):
        seen.append((namespace, name))

    await sandbox.apply(build_crd('kopfplanets', 'KopfPlanet', scope='Cluster'))
    await run_operator(namespaces=['one', 'two'])
    await add('one')
    await add('two')
    planet = build_object('earth', kind='KopfPlanet')
    del planet['metadata']['namespace']
    await sandbox.create(planet)
    await wait_until(lambda: len(seen) == 3)

    assert sorted(seen, key=str) == [('one', 'obj'), ('two', 'obj'), (None, 'earth')]
    assert get_watched(sandbox, 'kopfplanets') == {''}


@pytest.mark.guarantee('ARC-011')
async def test_resources_are_served_from_their_definition_to_their_removal(
    sandbox, cluster, registry, run_operator, seen, logs
):
    @kopf.on.create('kopflaters', registry=registry)
    async def later_fn(namespace, name, **_):
        seen.append((namespace, name))

    await run_operator()
    await cluster.create('first')
    await wait_until(lambda: seen)
    assert [line for line in logs(logging.WARNING) if 'kopflaters' in line]
    await sandbox.apply(build_crd('kopflaters', 'KopfLater'))
    await sandbox.create(build_object('second', kind='KopfLater'))
    await wait_until(lambda: ('default', 'second') in seen)
    await sandbox.delete('customresourcedefinitions', f'kopflaters.{GROUP}')
    await sandbox.wait(
        'customresourcedefinitions', f'kopflaters.{GROUP}', lambda body: body is None
    )
    await asyncio.sleep(600)
    sandbox.requests.clear()
    await asyncio.sleep(3600)
    assert get_watched(sandbox, 'kopflaters') == set()
    await sandbox.apply(build_crd('kopflaters', 'KopfLater'))
    await sandbox.create(build_object('third', kind='KopfLater'))
    await wait_until(lambda: ('default', 'third') in seen)

    assert [name for _, name in seen] == ['first', 'second', 'third']


@pytest.mark.guarantee('RES-020', 'RES-023', 'RES-021')
async def test_ambiguous_names_are_not_served_but_those_with_groups_are(
    sandbox, cluster, registry, run_operator, logs
):
    calls = []
    specs = {
        'name': ['kopfexamples'],
        'group': ['other.dev', 'kopfexamples'],
        'all': [kopf.EVERYTHING],
    }
    for id, args in specs.items():

        @kopf.on.event(*args, id=id, param=id, registry=registry)
        async def event_fn(param, resource, **_):
            if resource.plural == 'kopfexamples':
                calls.append((param, resource.group))

    await sandbox.apply(build_crd(group='other.dev'))
    await sandbox.create({**build_object('one'), 'apiVersion': 'other.dev/v1'})
    await cluster.create('two')
    await run_operator()
    await wait_until(lambda: len(calls) == 3)
    await asyncio.sleep(60)

    assert sorted(calls) == [('all', GROUP), ('all', 'other.dev'), ('group', 'other.dev')]
    assert [line for line in logs(logging.WARNING) if 'ambiguous' in line]


@pytest.mark.guarantee('RES-024')
async def test_groups_that_nobody_has_named_can_be_broken(sandbox, cluster, run_operator):
    registry, seen = kopf.OperatorRegistry(), []

    @kopf.on.create(GROUP, 'kopfexamples', registry=registry)
    async def create_fn(name, **_):
        seen.append(name)

    await cluster.create()
    with sandbox.faults.inject(path='/api', code=503) as fault:
        await run_operator(registry=registry)
        await wait_until(lambda: seen)

    assert fault.hits == 0


async def test_handlers_of_a_namespace_that_is_gone_are_not_called_any_more(
    sandbox, add, registry, run_operator
):
    calls = []

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(**_):
        calls.append('update')
        raise kopf.TemporaryError('not yet', delay=10)

    await run_operator(namespaces=['my-*'])
    await add('my-one')
    await sandbox.wait(
        'kopfexamples',
        'obj',
        lambda body: body['metadata'].get('annotations'),
        'my-one',
        timeout=60,
    )
    await sandbox.patch('kopfexamples', 'obj', {'spec': {'x': 2}}, 'my-one')
    await wait_until(lambda: calls)
    await sandbox.delete('namespaces', 'my-one')
    await sandbox.wait('namespaces', 'my-one', lambda body: body is None, timeout=60)
    await asyncio.sleep(1)
    calls.clear()
    await asyncio.sleep(600)

    assert calls == []
