"""
What handlers get: the object as it is, the cause, and the means to change the object.
"""

import asyncio
import datetime
import json
import logging

import pytest
from clusters import build_crd, build_object, get_progress, wait_until

import kopf

ABOUT_OBJECT = {
    'resource',
    'body',
    'spec',
    'meta',
    'status',
    'uid',
    'name',
    'namespace',
    'labels',
    'annotations',
    'logger',
    'patch',
    'memo',
    'param',
}
ABOUT_CHANGE = {'reason', 'old', 'new', 'diff', 'retry', 'started', 'runtime'}
ABOUT_OPERATOR = {'settings', 'memo', 'logger', 'param', 'retry', 'started', 'runtime', 'activity'}


@pytest.mark.guarantee(
    'KWA-001',
    'KWA-002',
    'KWA-003',
    'KWA-004',
    'KWA-005',
    'KWA-006',
    'KWA-008',
    'KWA-009',
    'KWA-016',
    'NEW-049',
    'CFG-004',
)
async def test_every_kind_of_handlers_gets_its_arguments(cluster, registry, run_operator):
    got = {}

    def declare(decorator, name, *args, **options):
        @decorator(*args, id=name, param=f'of {name}', registry=registry, **options)
        async def fn(**kwargs):
            got[name] = kwargs

    declare(kopf.on.startup, 'startup')
    declare(kopf.on.cleanup, 'cleanup')
    declare(kopf.on.event, 'event', 'kopfexamples')
    declare(kopf.on.resume, 'resume', 'kopfexamples')
    declare(kopf.on.create, 'create', 'kopfexamples')
    declare(kopf.on.update, 'update', 'kopfexamples')
    declare(kopf.on.field, 'field', 'kopfexamples', field='spec.x')
    declare(kopf.on.delete, 'delete', 'kopfexamples')
    await cluster.create(spec={'x': 1})
    operator = await run_operator()
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await operator.stop()

    for name in ['resume', 'create', 'update', 'delete', 'field']:
        kwargs = got.pop(name)
        assert kwargs.keys() >= ABOUT_OBJECT | ABOUT_CHANGE, name
        assert not {'settings', 'event', 'activity'} & kwargs.keys(), name
        assert kwargs['param'] == f'of {name}'
    for name in ['startup', 'cleanup']:
        kwargs = got.pop(name)
        assert kwargs.keys() == ABOUT_OPERATOR, name
        assert isinstance(kwargs['settings'], kopf.OperatorSettings)
        assert kwargs['param'] == f'of {name}'
    kwargs = got.pop('event')
    assert kwargs.keys() >= ABOUT_OBJECT | {'event', 'type'}
    assert not {'settings', 'activity', 'reason', 'old', 'new', 'diff'} & kwargs.keys()
    assert got == {}


@pytest.mark.guarantee('KWA-020', 'KWA-021', 'KWA-023', 'KWA-024', 'KWA-026', 'KWA-027', 'NEW-044')
async def test_the_object_is_given_as_read_only_mappings_and_values(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kex', registry=registry)
    async def create_fn(**kwargs):
        calls.append(kwargs)

    crd = build_crd()
    crd['spec']['names']['shortNames'] = ['kex']
    await cluster.sandbox.apply(crd)
    await run_operator()
    created = await cluster.create(spec={'x': 1}, labels={'a': 'b'})
    await cluster.wait_until_handled()

    (kwargs,) = calls
    for name in ['body', 'spec', 'meta', 'status', 'labels', 'annotations']:
        with pytest.raises(TypeError):
            kwargs[name]['key'] = 'value'
    assert isinstance(kwargs['body'], kopf.Body) and isinstance(kwargs['meta'], kopf.Meta)
    assert isinstance(kwargs['spec'], kopf.Spec) and isinstance(kwargs['status'], kopf.Status)
    assert (dict(kwargs['spec']), dict(kwargs['status']), dict(kwargs['labels'])) == (
        {'x': 1},
        {},
        {'a': 'b'},
    )
    assert (kwargs['annotations'].get('unknown'), kwargs['status'].get('unknown')) == (None, None)
    assert (
        kwargs['uid'] == kwargs['meta']['uid'] == kwargs['meta'].uid == created['metadata']['uid']
    )
    assert (kwargs['name'], kwargs['namespace']) == ('obj', 'default')
    resource = kwargs['resource']
    assert isinstance(resource, kopf.Resource)
    assert (resource.group, resource.version, resource.plural, resource.kind) == (
        'kopf.dev',
        'v1',
        'kopfexamples',
        'KopfExample',
    )


@pytest.mark.guarantee('KWA-026', 'NEW-044')
async def test_cluster_scoped_objects_have_no_namespace(sandbox, registry, run_operator, calls):
    @kopf.on.create('kopfclusters', registry=registry)
    async def create_fn(meta, name, namespace, uid, **_):
        calls.append((name, namespace, 'namespace' in meta, type(uid)))

    await sandbox.apply(build_crd('kopfclusters', 'KopfCluster', scope='Cluster'))
    await run_operator()
    body = build_object(kind='KopfCluster')
    del body['metadata']['namespace']
    await sandbox.create(body)
    await wait_until(lambda: calls)

    assert calls == [('obj', None, False, str)]


@pytest.mark.guarantee('KWA-028')
@pytest.mark.parametrize('is_sync', [False, True], ids=['async', 'sync'])
async def test_the_body_is_frozen_while_it_is_handled(
    cluster, registry, run_operator, calls, is_sync
):
    async def change(spec):
        before = spec['x']
        await cluster.patch({'spec': {'x': 2}})
        await wait_until(lambda: 2 in events)
        calls.append((before, spec['x']))

    observing_registry, events = kopf.OperatorRegistry(), []
    kopf.on.event('kopfexamples', registry=observing_registry)(
        lambda spec, **_: events.append(spec['x'])
    )
    loop = asyncio.get_running_loop()
    if is_sync:

        @kopf.on.create('kopfexamples', registry=registry)
        def create_fn(spec, **_):
            asyncio.run_coroutine_threadsafe(change(spec), loop).result()
    else:

        @kopf.on.create('kopfexamples', registry=registry)
        async def create_fn(spec, **_):
            await change(spec)

    await run_operator()
    await run_operator(registry=observing_registry)
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: calls)

    assert calls == [(1, 1)]


@pytest.mark.guarantee('KWA-033', 'KWA-034', 'KWA-035', 'NEW-051')
@pytest.mark.parametrize(
    'error',
    [None, kopf.PermanentError('never'), kopf.TemporaryError('not yet', delay=10)],
    ids=['success', 'permanent-error', 'temporary-error'],
)
async def test_the_patch_is_applied_whatever_the_handler_ends_with(
    cluster, registry, run_operator, error
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, retry, **_):
        if retry:
            return
        assert isinstance(patch, kopf.Patch) and isinstance(patch, dict)
        patch.spec['removed'] = None
        patch.spec['merged'] = {'b': 2}
        patch.spec['replaced'] = [3]
        patch.status['counter'] = 1
        patch.metadata.annotations['key'] = 'value'
        patch.setdefault('metadata', {})['labels'] = {'a': 'b'}
        if error is not None:
            raise error

    await run_operator()
    await cluster.create(spec={'removed': 1, 'merged': {'a': 1}, 'replaced': [1, 2]})
    body = await cluster.wait_until_handled()

    assert body['spec'] == {'merged': {'a': 1, 'b': 2}, 'replaced': [3]}
    assert body['status'] == {'counter': 1}
    assert (body['metadata']['annotations']['key'], body['metadata']['labels']) == (
        'value',
        {'a': 'b'},
    )
    first = cluster.writes[0]
    assert first.content_type == 'application/merge-patch+json'


@pytest.mark.guarantee('KWA-039', 'KWA-040', 'KWA-041', 'KWA-042', 'KWA-043', 'KWA-044')
async def test_the_diff_tells_what_has_changed_and_nothing_else(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(diff, old, new, body, **_):
        calls.append(diff)
        assert new['spec'] == body['spec'] == {'size': '2G', 'same': {'a': [1]}}
        assert old['spec'] == {'size': '1G', 'same': {'a': [1]}}
        for op, field, before, after in diff:
            calls.append((op, field, before, after))

    await run_operator()
    await cluster.create(
        spec={'size': '1G', 'same': {'a': [1]}}, labels={'label2': 'old', 'label3': 'old'}
    )
    await cluster.wait_until_handled()
    await cluster.patch(
        {
            'metadata': {'labels': {'label1': 'new', 'label2': 'new', 'label3': None}},
            'spec': {'size': '2G'},
        }
    )
    await cluster.wait_until_handled(size='2G')

    diff, *items = calls
    assert sorted(items) == [
        ('add', ('metadata', 'labels', 'label1'), None, 'new'),
        ('change', ('metadata', 'labels', 'label2'), 'old', 'new'),
        ('change', ('spec', 'size'), '1G', '2G'),
        ('remove', ('metadata', 'labels', 'label3'), 'old', None),
    ]
    assert isinstance(diff, kopf.Diff) and isinstance(diff[0], kopf.DiffItem)
    assert {item.op for item in diff} == set(kopf.DiffOperation)


@pytest.mark.guarantee('KWA-016', 'KWA-017')
async def test_a_function_of_several_fields_gets_the_values_and_the_param_of_each(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', param=10, field='spec.field', registry=registry)
    @kopf.on.update('kopfexamples', param=1, field='spec', registry=registry)
    async def update_fn(param, old, new, **_):
        calls.append((param, old, new))

    await run_operator()
    await cluster.create(spec={'field': 'a'})
    await cluster.wait_until_handled(field='a')
    await cluster.patch({'spec': {'field': 'b'}})
    await cluster.wait_until_handled(field='b')

    assert sorted(calls) == [(1, {'field': 'a'}, {'field': 'b'}), (10, 'a', 'b')]


@pytest.mark.guarantee('KWA-013', 'KWA-014', 'KWA-015')
async def test_attempts_are_counted_and_measured_from_the_first_one(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(retry, started, runtime, **_):
        calls.append((retry, started, runtime))
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=10)

    await run_operator()
    await cluster.create()
    body = await cluster.wait(get_progress)
    record = json.loads(body['metadata']['annotations']['kopf.zalando.org/create_fn'])
    await cluster.wait_until_handled()

    assert [retry for retry, *_ in calls] == [0, 1, 2, 3]
    assert {started for _, started, _ in calls} == {
        datetime.datetime.fromisoformat(record['started'])
    }
    assert [runtime.total_seconds() for *_, runtime in calls] == [
        pytest.approx(retry * 10, abs=1) for retry in range(4)
    ]


@pytest.mark.guarantee('KWA-012')
async def test_filters_get_the_same_arguments_as_their_handlers(cluster, registry, run_operator):
    got = {}

    def check(name):
        def accept(*args, **kwargs):
            got[name] = kwargs
            return True

        return accept

    @kopf.on.create(
        'kopfexamples',
        when=check('when'),
        labels={'a': check('label')},
        field='spec.x',
        value=check('value'),
        registry=registry,
    )
    async def create_fn(**kwargs):
        got['handler'] = kwargs

    await run_operator()
    await cluster.create(spec={'x': 1}, labels={'a': 'b'})
    await cluster.wait_until_handled(x=1)

    specific = {'retry', 'started', 'runtime', 'param'}
    for name in ['when', 'label', 'value']:
        assert got[name].keys() - specific == got['handler'].keys() - specific
        assert got[name]['memo'] is got['handler']['memo']


@pytest.mark.guarantee('KWA-018', 'CFG-002')
async def test_settings_are_own_of_each_operator_and_are_changed_at_startup(
    cluster, run_operator, calls
):
    def build(backoff):
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def startup_fn(settings, **_):
            settings.execution.default_backoff = backoff
            prefix = f'operator-{backoff}.example.com'
            settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=prefix)
            settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=prefix)

        @kopf.on.create('kopfexamples', registry=registry)
        async def create_fn(retry, runtime, **_):
            if not retry:
                raise Exception('not yet')
            calls.append((backoff, round(runtime.total_seconds())))

        return registry

    for backoff in [10, 30]:
        await run_operator(registry=build(backoff), settings=None)
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)

    assert calls == [(10, 10), (30, 30)]
    assert kopf.OperatorSettings().execution.default_backoff == 60


@pytest.mark.guarantee('KWA-019', 'CFG-001')
async def test_settings_have_all_their_sections(cluster, registry, run_operator, calls):
    @kopf.on.startup(registry=registry)
    async def startup_fn(settings, **_):
        calls.extend(
            [
                settings.process,
                settings.posting,
                settings.peering,
                settings.watching,
                settings.queueing,
                settings.scanning,
                settings.admission,
                settings.execution,
                settings.background,
                settings.networking,
                settings.persistence,
            ]
        )

    await run_operator()

    assert len({id(section) for section in calls}) == 11 and None not in calls


@pytest.mark.guarantee('KWA-030', 'KWA-032')
async def test_messages_of_handlers_know_their_object(cluster, registry, run_operator, caplog):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(logger, **_):
        assert isinstance(logger, kopf.ObjectLogger)
        logger.info('Hello from the handler!')

    caplog.set_level(logging.INFO)
    await run_operator()
    created = await cluster.create()
    await cluster.wait_until_handled()

    record = next(
        record for record in caplog.records if record.getMessage() == 'Hello from the handler!'
    )
    assert (record.k8s_ref['namespace'], record.k8s_ref['name']) == ('default', 'obj')
    assert (record.k8s_ref['uid'], record.k8s_ref['kind']) == (
        created['metadata']['uid'],
        'KopfExample',
    )
