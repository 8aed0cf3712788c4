"""
Where operators keep what they know of the objects: the usual places and other ones, and users' own
storages.
"""

import asyncio
import json

import pytest
from clusters import (
    FINALIZER,
    LAST_HANDLED,
    Cluster,
    build_crd,
    get_last_handled,
    get_progress,
    wait_until,
)

import kopf

OTHER = 'my-op.example.com'


@pytest.fixture(autouse=True)
def handlers(registry, calls):
    """A quick handler, and one with a retry, for both creations and updates."""
    for decorator in (kopf.on.create, kopf.on.update):

        @decorator('kopfexamples', id='quick', registry=registry)
        async def quick_fn(reason, spec, **_):
            calls.append(('quick', reason.value, spec['x']))

        @decorator('kopfexamples', id='slow', registry=registry)
        async def slow_fn(reason, spec, retry, **_):
            if retry == 0:
                raise kopf.TemporaryError('not yet', delay=10)
            calls.append(('slow', reason.value, spec['x']))


def expect(*changes):
    return [(id, reason, x) for reason, x in changes for id in ('quick', 'slow')]


def get_annotations(body):
    return body['metadata'].get('annotations') or {}


@pytest.fixture(
    params=[pytest.param(False, id='usual-status'), pytest.param(True, id='subresource-of-status')]
)
async def any_cluster(request, sandbox):
    await sandbox.apply(build_crd(has_status=request.param))
    return Cluster(sandbox)


async def settle():
    """Let everything be done that is to be done, and nothing else be called after that."""
    await asyncio.sleep(60)


@pytest.mark.guarantee('CFG-054', 'CFG-055', 'CFG-056')
async def test_the_finalizer_can_be_of_any_name(cluster, registry, run_operator, settings):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        pass

    settings.persistence.finalizer = f'{OTHER}/finalizer'
    await cluster.create(finalizers=[FINALIZER])
    await run_operator()
    await cluster.wait(
        lambda body: body['metadata']['finalizers'] == [FINALIZER, f'{OTHER}/finalizer']
    )
    await cluster.wait_until_handled(x=1)
    await cluster.delete()
    body = await cluster.wait(lambda body: len(body['metadata']['finalizers']) == 1)

    assert body['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('CFG-057', 'CFG-058', 'CFG-073', 'CFG-074', 'NEW-105', 'NEW-115')
async def test_by_default_everything_is_in_annotations_and_the_status_is_never_written(
    sandbox, run_operator, calls
):
    await sandbox.apply(build_crd(has_status=True))
    cluster = Cluster(sandbox)
    await run_operator()
    await cluster.create(spec={'x': 1}, labels={'a': 'b'})
    body = await cluster.wait(lambda body: len(get_progress(body)) == 3)
    assert set(get_progress(body)) >= {'kopf.zalando.org/quick', 'kopf.zalando.org/slow'}
    body = await cluster.wait_until_handled(x=1)

    text = get_annotations(body).pop(LAST_HANDLED)
    assert json.loads(text) == {'spec': {'x': 1}, 'metadata': {'labels': {'a': 'b'}}}
    assert text.endswith('}\n') and ' ' not in text
    assert set(get_annotations(body)) <= {LAST_HANDLED}
    assert 'status' not in body
    assert {asked.subresource or None for asked in cluster.writes} == {None}


@pytest.mark.guarantee('CFG-059', 'CFG-060', 'CFG-072', 'NEW-114')
async def test_annotations_can_be_of_any_prefix(cluster, run_operator, settings, calls):
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=OTHER)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=OTHER, key='last'
    )
    await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: f'{OTHER}/slow' in get_annotations(body))
    assert json.loads(get_annotations(body)[f'{OTHER}/slow'])['retries'] == 1
    await settle()
    await cluster.patch({'spec': {'x': 2}})
    await settle()
    body = await cluster.get()

    assert calls == expect(('create', 1), ('update', 2))
    assert get_annotations(body) == {
        f'{OTHER}/last': '{"spec":{"x":2}}\n',
        f'{OTHER}/kopf-managed': 'yes',
    }


@pytest.mark.guarantee('CFG-061', 'CFG-072', 'CFG-075', 'NEW-107', 'NEW-115')
async def test_everything_can_be_in_the_status(any_cluster, run_operator, settings, calls):
    settings.persistence.progress_storage = kopf.StatusProgressStorage(name='my')
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(name='my')
    operator = await run_operator()
    await any_cluster.create()
    body = await any_cluster.wait(lambda body: 'slow' in str(body.get('status')))
    assert body['status']['my']['progress']['slow']['retries'] == 1
    await operator.stop()
    await run_operator()
    await settle()
    await any_cluster.patch({'spec': {'x': 2}})
    await settle()
    body = await any_cluster.get()

    assert calls == expect(('create', 1), ('update', 2))
    assert body['status'] == {
        'my': {'last-handled-configuration': '{"spec":{"x":2}}', 'progress': {}}
    }
    assert get_annotations(body) == {}


@pytest.mark.guarantee('CFG-063', 'CFG-076', 'NEW-107')
async def test_everything_can_be_in_several_places(any_cluster, run_operator, settings, calls):
    settings.persistence.progress_storage = kopf.MultiProgressStorage(
        [kopf.AnnotationsProgressStorage(prefix=OTHER), kopf.StatusProgressStorage()]
    )
    settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage(
        [kopf.AnnotationsDiffBaseStorage(prefix=OTHER), kopf.StatusDiffBaseStorage()]
    )
    await run_operator()
    await any_cluster.create()
    body = await any_cluster.wait(lambda body: f'{OTHER}/slow' in get_annotations(body))
    assert set(body['status']['kopf']['progress']) >= {'quick', 'slow'}
    assert set(get_annotations(body)) >= {
        f'{OTHER}/quick',
        f'{OTHER}/slow',
        f'{OTHER}/kopf-managed',
    }
    await settle()
    await any_cluster.patch({'spec': {'x': 2}})
    await settle()
    body = await any_cluster.get()

    assert calls == expect(('create', 1), ('update', 2))
    assert body['status'] == {
        'kopf': {'last-handled-configuration': '{"spec":{"x":2}}', 'progress': {}}
    }
    assert set(get_annotations(body)) == {
        f'{OTHER}/last-handled-configuration',
        f'{OTHER}/kopf-managed',
    }


class DatabaseProgressStorage(kopf.ProgressStorage):
    """A storage that keeps nothing on the objects, and is strict to its users."""

    def __init__(self):
        super().__init__()
        self.database, self.stored = {}, 0

    def fetch(self, *, key, body):
        return self.database.get((body['metadata']['uid'], key))

    def store(self, *, key, record, body, patch):
        self.stored += 1
        self.database[body['metadata']['uid'], key] = dict(record)

    def purge(self, *, key, body, patch):
        del self.database[body['metadata']['uid'], key]

    def touch(self, *, body, patch, value):
        pass

    def clear(self, *, essence):
        return essence


@pytest.mark.guarantee('CFG-003', 'CFG-065', 'CFG-066', 'CFG-069')
async def test_the_progress_can_be_in_a_database(cluster, registry, run_operator, calls):
    storage = DatabaseProgressStorage()

    @kopf.on.startup(registry=registry)
    async def startup_fn(settings, **_):
        settings.persistence.progress_storage = storage

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: storage.stored)
    assert get_progress(await cluster.get()) == {}
    await operator.stop()
    await run_operator()
    await settle()
    body = await cluster.get()

    assert calls == expect(('create', 1))
    assert storage.database == {}
    assert set(get_annotations(body)) == {LAST_HANDLED}


def derive(base, names, used):
    """
    Make a class that overrides these methods, notes their usage, and relies on the base class in
    the rest.
    """

    def override(name):
        original = getattr(base, name)

        def method(self, *args, **kwargs):
            used.add(name)
            return original(self, *args, **kwargs)

        return method

    return type('Derived', (base,), {name: override(name) for name in names})


PROGRESS_CLASSES = [
    kopf.AnnotationsProgressStorage,
    kopf.StatusProgressStorage,
    kopf.SmartProgressStorage,
]
PROGRESS_METHODS = ['fetch', 'store', 'purge', 'touch', 'clear']
DIFFBASE_CLASSES = [kopf.AnnotationsDiffBaseStorage, kopf.StatusDiffBaseStorage]
DIFFBASE_METHODS = ['fetch', 'store', 'build']


@pytest.mark.guarantee('WLD-006')
@pytest.mark.parametrize('diffbase_class', DIFFBASE_CLASSES)
@pytest.mark.parametrize('progress_class', PROGRESS_CLASSES)
async def test_storages_of_users_can_override_anything(
    cluster, run_operator, settings, calls, progress_class, diffbase_class
):
    used, used_too = set(), set()
    settings.persistence.progress_storage = derive(progress_class, PROGRESS_METHODS, used)()
    settings.persistence.diffbase_storage = derive(diffbase_class, DIFFBASE_METHODS, used_too)()
    await run_operator()
    await cluster.create()
    await settle()
    await cluster.patch({'spec': {'x': 2}})
    await settle()

    assert calls == expect(('create', 1), ('update', 2))
    assert used == set(PROGRESS_METHODS)
    assert used_too == set(DIFFBASE_METHODS)
    assert get_progress(await cluster.get()) == {}


class RenamingStorage(kopf.AnnotationsProgressStorage):
    def make_keys(self, key, **kwargs):
        return [f'{name}.renamed' for name in super().make_keys(key, **kwargs)]


class BlindStorage(kopf.AnnotationsDiffBaseStorage):
    def build(self, *, body, extra_fields=None):
        essence = super().build(body=body, extra_fields=extra_fields)
        essence['spec'].pop('volatile', None)
        return essence


@pytest.mark.guarantee('WLD-006')
async def test_storages_of_users_can_change_names_and_essences_in_place(
    cluster, run_operator, settings, calls
):
    settings.persistence.progress_storage = RenamingStorage()
    settings.persistence.diffbase_storage = BlindStorage()
    await run_operator()
    await cluster.create(spec={'x': 1, 'volatile': 1})
    await cluster.wait(lambda body: 'kopf.zalando.org/slow.renamed' in get_annotations(body))
    await settle()
    await cluster.patch({'spec': {'volatile': 2}})
    await settle()
    body = await cluster.get()

    assert calls == expect(('create', 1))
    assert body['spec'] == {'x': 1, 'volatile': 2}
    assert get_annotations(body) == {LAST_HANDLED: '{"spec":{"x":1}}\n'}


@pytest.mark.guarantee('NEW-108', 'NEW-109', 'NEW-110')
async def test_ignored_fields_are_not_changes(cluster, run_operator, settings, registry, calls):
    seen = []

    @kopf.on.update('kopfexamples', id='looking', registry=registry)
    async def looking_fn(old, new, diff, body, **_):
        seen.append((str([old, new, diff]), body['spec']['volatile']))

    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        ignored_fields=[
            'spec.volatile',
            ('metadata', 'labels', 'volatile'),
            'spec.x.y',
            'spec.absent.field',
        ]
    )
    await run_operator()
    await cluster.create(spec={'x': 1, 'volatile': 'v1'}, labels={'volatile': 'v1'})
    await settle()
    await cluster.patch({'spec': {'volatile': 'v2'}, 'metadata': {'labels': {'volatile': 'v2'}}})
    await settle()
    assert calls == expect(('create', 1))
    await cluster.patch({'spec': {'x': 2, 'volatile': 'v3'}})
    body = await cluster.wait_until_handled(x=2)

    assert [(text.count('volatile'), volatile) for text, volatile in seen] == [(0, 'v3')]
    assert get_last_handled(body) == {'spec': {'x': 2}}


@pytest.mark.guarantee('CFG-082', 'CFG-083', 'CFG-076')
@pytest.mark.parametrize(
    'is_smooth', [pytest.param(True, id='with-transition'), pytest.param(False, id='without')]
)
async def test_storages_can_be_replaced_with_or_without_a_transition(
    cluster, run_operator, settings, calls, is_smooth
):
    old, new = kopf.AnnotationsDiffBaseStorage(), kopf.AnnotationsDiffBaseStorage(prefix=OTHER)

    async def run_with(storage):
        settings.persistence.diffbase_storage = storage
        return await run_operator()

    operator = await run_with(old)
    await cluster.create()
    await settle()
    await operator.stop()
    if is_smooth:
        operator = await run_with(kopf.MultiDiffBaseStorage([new, old]))
        await settle()
        assert calls == expect(('create', 1))
        await cluster.patch({'spec': {'x': 2}})
        await settle()
        await operator.stop()
    calls.clear()
    await run_with(new)
    await settle()

    assert calls == ([] if is_smooth else expect(('create', 1)))
    assert set(get_annotations(await cluster.get())) == {
        LAST_HANDLED,
        f'{OTHER}/last-handled-configuration',
        f'{OTHER}/kopf-managed',
    }


@pytest.mark.guarantee('CFG-081', 'CFG-072', 'CNT-002', 'NEW-113')
async def test_two_operators_with_different_storages_do_not_see_each_other(
    cluster, registry, run_operator
):
    calls = {'one': [], 'two': []}

    def build_operator(name):
        registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        if name == 'two':
            settings.persistence.finalizer = f'{OTHER}/finalizer'
            settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=OTHER)
            settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=OTHER)

        for decorator in (kopf.on.create, kopf.on.update, kopf.on.delete):

            @decorator('kopfexamples', id='fn', registry=registry)
            async def fn(reason, retry, diff, **_):
                if retry < (2 if name == 'one' else 1):
                    raise kopf.TemporaryError('not yet', delay=7)
                calls[name].append((reason.value, len(diff)))
                return name if reason == 'create' else None

        return {'registry': registry, 'settings': settings}

    await run_operator(**build_operator('one'))
    await run_operator(**build_operator('two'))
    await cluster.create()
    await settle()
    await cluster.patch({'spec': {'x': 2}})
    await settle()
    body = await cluster.get()
    assert sorted(body['metadata']['finalizers']) == sorted([FINALIZER, f'{OTHER}/finalizer'])
    assert set(get_annotations(body)) == {
        LAST_HANDLED,
        f'{OTHER}/last-handled-configuration',
        f'{OTHER}/kopf-managed',
    }
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls['one'] == calls['two'] == [('create', 1), ('update', 1), ('delete', 0)]


@pytest.mark.guarantee('NEW-121')
async def test_annotations_copied_from_deployments_are_not_of_their_replicasets(
    sandbox, run_operator
):
    registry, created = kopf.OperatorRegistry(), []

    @kopf.on.create('deployments', registry=registry)
    @kopf.on.create('replicasets', registry=registry)
    async def create_fn(body, **_):
        created.append(body['kind'])

    spec = {
        'selector': {'matchLabels': {'app': 'x'}},
        'template': {
            'metadata': {'labels': {'app': 'x'}},
            'spec': {'containers': [{'name': 'main', 'image': 'busybox'}]},
        },
    }
    await run_operator(registry=registry)
    await sandbox.create(
        {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'metadata': {'name': 'dep'}, 'spec': spec}
    )
    owner = await sandbox.wait(
        'deployments', 'dep', lambda body: LAST_HANDLED in get_annotations(body)
    )
    reference = {
        'apiVersion': 'apps/v1',
        'kind': 'Deployment',
        'name': 'dep',
        'uid': owner['metadata']['uid'],
    }
    await sandbox.create(
        {
            'apiVersion': 'apps/v1',
            'kind': 'ReplicaSet',
            'spec': spec,
            'metadata': {
                'name': 'rs',
                'ownerReferences': [reference],
                'annotations': get_annotations(owner),
            },
        }
    )
    body = await sandbox.wait(
        'replicasets', 'rs', lambda body: f'{LAST_HANDLED}-ofDRS' in get_annotations(body)
    )

    assert created == ['Deployment', 'ReplicaSet']
    assert get_annotations(body)[LAST_HANDLED] == get_annotations(owner)[LAST_HANDLED]
