"""
Cycles under attack: what a reader of the code has found by thinking of how clusters and users would
break it.
"""

import asyncio
import base64
import json

import pytest
from clusters import Cluster, build_crd, wait_until
from rests import Calls, settle

import kopf

FIELDS = {'x': {'type': 'integer'}, 'size': {'type': 'integer', 'minimum': 0}}


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
async def strict_cluster(sandbox):
    """A cluster where some values are refused."""
    crd = build_crd()
    section = {'type': 'object', 'properties': FIELDS}
    schema = crd['spec']['versions'][0]['schema']['openAPIV3Schema']
    schema['properties'] = {'spec': section, 'status': section}
    await sandbox.apply(crd)
    return Cluster(sandbox)


@pytest.fixture
async def versions_cluster(sandbox):
    """A cluster with two served versions of the resource."""
    crd = build_crd()
    [version] = crd['spec']['versions']
    crd['spec']['versions'].append({**version, 'name': 'v2', 'storage': False})
    await sandbox.apply(crd)
    return Cluster(sandbox)


def spoil(body):
    body['spec']['size'] = -1


async def test_deletion_is_handled_by_the_function_whose_creation_it_interrupts(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def fn(patch, reason, **_):
        calls.append(reason.value)
        if reason == 'create':
            await asyncio.sleep(5)
            patch.spec['y'] = 1

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['create', 'delete']


@pytest.mark.guarantee('FND-002')
async def test_refused_functions_do_not_silence_the_other_handlers(
    strict_cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='refused', registry=registry)
    async def refused(patch, retry, **_):
        calls.append(f'refused {retry}')
        patch.fns.append(spoil)

    @kopf.on.create('kopfexamples', id='retried', registry=registry)
    async def retried(retry, **_):
        calls.append(f'retried {retry}')
        if not retry:
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await strict_cluster.create()
    await asyncio.sleep(3600)

    assert calls == ['refused 0', 'retried 0', 'retried 1']


@pytest.mark.guarantee('FND-002')
async def test_refused_functions_do_not_silence_the_retries_of_their_maker(
    strict_cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def fn(patch, retry, **_):
        calls.append(retry)
        if not retry:
            patch.fns.append(spoil)
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await strict_cluster.create()
    await asyncio.sleep(3600)

    assert calls == [0, 1]


@pytest.mark.guarantee('FND-002')
async def test_refused_functions_do_not_hold_the_deletion(
    strict_cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        patch.fns.append(spoil)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(patch, retry, **_):
        calls.append(f'delete {retry}')
        if not retry:
            patch.fns.append(spoil)
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await strict_cluster.create()
    await asyncio.sleep(30)
    await strict_cluster.delete()
    await strict_cluster.wait(lambda body: body is None)

    assert calls == ['create', 'delete 0', 'delete 1']


@pytest.mark.guarantee('FND-001')
async def test_changes_of_event_handlers_are_told_to_those_who_finish_meanwhile(
    cluster, registry, run_operator, calls
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(patch, spec, **_):
        if 'y' not in spec:
            patch.spec['y'] = 20

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(spec, **_):
        calls.append(spec.get('y'))

    await run_operator()
    await cluster.create()
    await asyncio.sleep(300)

    assert calls == [None, 20]


async def test_changes_that_are_sent_late_are_seen_by_the_next_handlers(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='first', registry=registry)
    async def first(patch, **_):
        calls.append('first')
        patch.spec['y'] = 20

    @kopf.on.create('kopfexamples', registry=registry)
    async def second(spec, **_):
        calls.append(spec.get('y'))

    await run_operator()
    cluster.sandbox.faults.inject(verb='patch', code=500, times=20)
    await cluster.create()
    await cluster.wait_until_handled(y=20)

    assert calls == ['first', 20]


class OwnProgress(kopf.ProgressStorage):
    """Keeps nothing on the object."""

    def __init__(self):
        self.records = {}

    def fetch(self, *, key, body):
        return self.records.get(key)

    def store(self, *, key, record, body, patch):
        self.records[key] = record

    def purge(self, *, key, body, patch):
        self.records.pop(key, None)

    def touch(self, *, body, patch, value):
        pass

    def clear(self, *, essence):
        return essence


class OwnDiffBase(kopf.DiffBaseStorage):
    """Keeps nothing on the object."""

    essence = None

    def fetch(self, *, body):
        return self.essence

    def store(self, *, body, patch, essence):
        self.essence = essence


async def test_rest_of_a_change_is_handled_though_nothing_is_kept_on_the_object(
    cluster, registry, run_operator, calls, settings
):
    settings.persistence.progress_storage = OwnProgress()
    settings.persistence.diffbase_storage = OwnDiffBase()

    @kopf.on.create('kopfexamples', id='quick', registry=registry)
    @kopf.on.update('kopfexamples', id='quick', registry=registry)
    async def quick(spec, **_):
        calls.append(f'quick {spec["x"]}')

    @kopf.on.create('kopfexamples', id='slow', registry=registry)
    @kopf.on.update('kopfexamples', id='slow', registry=registry)
    async def slow(spec, retry, **_):
        calls.append(f'slow {spec["x"]}')
        if not retry and spec['x'] == 1:
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await cluster.create()
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(300)

    assert calls == ['quick 1', 'slow 1', 'slow 2', 'quick 2']


async def strip(path, review):
    """A webhook that lets no finalizers in."""
    has_any = review['request']['object']['metadata'].get('finalizers')
    operations = [{'op': 'remove', 'path': '/metadata/finalizers'}] if has_any else []
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    mutation = {'patchType': 'JSONPatch', 'patch': patch} if operations else {}
    return {
        'apiVersion': review['apiVersion'],
        'kind': review['kind'],
        'response': {'uid': review['request']['uid'], 'allowed': True, **mutation},
    }


@pytest.mark.guarantee('FND-005')
@pytest.mark.parametrize('decorator', [kopf.on.delete, kopf.daemon])
async def test_finalizer_that_is_stripped_by_a_webhook_is_added_less_and_less_often(
    sandbox, cluster, registry, run_operator, calls, decorator
):
    rule = {
        'operations': ['CREATE', 'UPDATE'],
        'apiGroups': ['kopf.dev'],
        'apiVersions': ['*'],
        'resources': ['*'],
    }
    await sandbox.add_service('default', 'mutator', strip)
    await sandbox.create(
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'MutatingWebhookConfiguration',
            'metadata': {'name': 'mutator'},
            'webhooks': [
                {
                    'name': 'mutator.kopf.dev',
                    'rules': [rule],
                    'sideEffects': 'None',
                    'admissionReviewVersions': ['v1'],
                    'clientConfig': {
                        'service': {'namespace': 'default', 'name': 'mutator', 'path': '/'}
                    },
                }
            ],
        }
    )
    decorator('kopfexamples', registry=registry)(lambda **_: calls.append('called'))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(600)

    assert calls == []
    assert 2 <= len(cluster.writes) < 20


@pytest.mark.guarantee('FND-005')
async def test_filter_that_depends_on_the_finalizer_itself_is_slowed_down(
    cluster, registry, run_operator, calls
):
    kopf.on.create('kopfexamples', registry=registry)(lambda **_: calls.append('create'))
    kopf.on.delete(
        'kopfexamples', when=lambda meta, **_: not meta.get('finalizers'), registry=registry
    )(lambda **_: None)
    await run_operator()
    await cluster.create()
    await settle(calls, lambda: cluster.writes)

    assert len(cluster.writes) < 50


@pytest.mark.guarantee('FND-008')
async def test_changes_by_one_version_are_seen_by_the_other_one(
    versions_cluster, registry, run_operator, calls
):
    @kopf.on.event('kopf.dev', 'v1', 'kopfexamples', registry=registry)
    async def event_fn(patch, spec, status, **_):
        if status.get('go') and 'y' not in spec:
            patch.spec['y'] = 1

    @kopf.on.create('kopf.dev', 'v2', 'kopfexamples', registry=registry)
    @kopf.on.update('kopf.dev', 'v2', 'kopfexamples', registry=registry)
    async def fn(spec, **_):
        calls.append(dict(spec))

    await run_operator()
    await versions_cluster.create()
    await asyncio.sleep(30)
    await versions_cluster.patch({'status': {'go': True}})
    await asyncio.sleep(300)

    assert calls == [{'x': 1}, {'x': 1, 'y': 1}]


@pytest.mark.guarantee('FND-008')
async def test_versions_are_handled_in_turn_though_one_of_them_is_listed_later(
    versions_cluster, registry, run_operator, calls
):
    busy = []
    for version in ['v1', 'v2']:

        @kopf.on.resume(
            'kopf.dev', version, 'kopfexamples', id=f'resume-{version}', registry=registry
        )
        async def resume_fn(resource, **_):
            busy.append(resource.version)
            calls.append(len(busy))
            await asyncio.sleep(5)
            busy.remove(resource.version)

    await versions_cluster.create()
    versions_cluster.sandbox.faults.inject(path='/apis/kopf.dev/v2/kopfexamples', latency=1.0)
    await run_operator()
    await asyncio.sleep(60)

    assert calls == [1, 1]
