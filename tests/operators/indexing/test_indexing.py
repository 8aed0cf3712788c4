"""
Indices: which objects are in them, when, and who can see that.
"""

import asyncio
import threading

import pytest
from clusters import Cluster, build_crd, build_object, wait_until
from decorator_keywords import get_keywords
from timed_notes import pass_time

import kopf
from kopf._cogs.structs import vaults


@pytest.fixture
def seen(registry):
    """The index named ``index``, as it was got by a startup handler."""
    indices = {}

    @kopf.on.startup(registry=registry)
    async def startup_fn(**kwargs):
        indices.update(kwargs)

    return lambda name='index': {
        key: sorted(store, key=repr) for key, store in indices[name].items()
    }


@pytest.mark.guarantee('IDX-001')
def test_signature_of_indices():
    keywords = get_keywords(kopf.index)

    assert kopf.on.index is kopf.index
    assert keywords.keys() >= {
        'id',
        'param',
        'errors',
        'timeout',
        'retries',
        'backoff',
        'labels',
        'annotations',
        'when',
        'field',
        'value',
        'registry',
    }
    assert set(keywords.values()) == {None}


@pytest.mark.guarantee('IDX-002', 'IDX-009', 'IDX-032', 'IDX-033')
async def test_indices_are_given_to_all_handlers(sandbox, cluster, registry, run_operator):
    given = {}

    def declare(decorator, *args, **options):
        name = decorator.__name__

        @decorator(*args, id=f'{name}_fn', registry=registry, **options)
        async def fn(by_function, by_id, **_):
            given.setdefault(name, (by_function, by_id, len(by_function)))
            if name == 'login':
                return kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token)

    @kopf.index('kopfexamples', id='by_function', registry=registry)
    async def by_function(name, by_function, by_id, **_):
        given.setdefault('index', (by_function, by_id, len(by_function)))
        return name

    kopf.index('kopfexamples', id='by_id', registry=registry)(lambda name, **_: name)
    for decorator in [kopf.on.startup, kopf.on.cleanup, kopf.on.login]:
        declare(decorator)
    for decorator in [
        kopf.on.event,
        kopf.on.create,
        kopf.on.resume,
        kopf.on.update,
        kopf.on.delete,
        kopf.daemon,
    ]:
        declare(decorator, 'kopfexamples')
    declare(kopf.on.field, 'kopfexamples', field='spec.x')
    await sandbox.apply(build_crd('others', 'Other'))
    declare(kopf.timer, 'others', interval=10)
    await cluster.create()
    operator = await run_operator(vault=vaults.Vault())
    await sandbox.create(build_object(kind='Other'))
    await cluster.wait_until_handled()
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await wait_until(lambda: 'timer' in given)
    await operator.stop()

    assert given.keys() == {
        'startup',
        'cleanup',
        'login',
        'event',
        'create',
        'resume',
        'update',
        'delete',
        'daemon',
        'field',
        'timer',
        'index',
    }
    indices = {(id(first), id(second)) for first, second, _ in given.values()}
    assert len(indices) == 1
    assert {name for name, (*_, length) in given.items() if not length} >= {
        'startup',
        'login',
        'index',
    }
    assert given['create'][2] == given['event'][2] == 1


@pytest.mark.guarantee('IDX-003', 'IDX-004', 'IDX-005', 'IDX-033', 'IDX-035', 'WLD-013')
async def test_objects_are_indexed_as_they_come_and_change_and_go(
    cluster, registry, run_operator, seen
):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(name, spec, **_):
        return {spec['x']: name}

    old = await cluster.create('old', spec={'x': 1})
    await run_operator()
    await wait_until(lambda: seen() == {1: ['old']})
    new = await cluster.create('new', spec={'x': 1})
    await wait_until(lambda: seen() == {1: ['new', 'old']})
    assert [await cluster.get('old'), await cluster.get('new')] == [old, new]

    await cluster.patch({'spec': {'x': 2}}, 'old')
    await wait_until(lambda: seen() == {1: ['new'], 2: ['old']})
    await cluster.delete('old')
    await wait_until(lambda: seen() == {1: ['new']})
    assert cluster.writes == []


@pytest.mark.guarantee('IDX-003', 'IDX-005')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'labels': {'mark': 'yes'}}, id='labels'),
        pytest.param({'annotations': {'mark': 'yes'}}, id='annotations'),
        pytest.param({'when': lambda spec, **_: spec.get('mark') == 'yes'}, id='when'),
        pytest.param({'field': 'spec.mark'}, id='field'),
        pytest.param({'field': 'spec.mark', 'value': 'yes'}, id='value'),
    ],
)
async def test_objects_are_in_the_index_only_while_they_match(
    cluster, registry, run_operator, seen, options
):
    @kopf.index('kopfexamples', id='index', registry=registry, **options)
    async def index(name, **_):
        return {name: 'indexed'}

    @kopf.index('kopfexamples', id='versions', registry=registry)
    async def versions(meta, **_):
        return meta['resourceVersion']

    await run_operator()
    body = await cluster.create()
    await wait_until(lambda: seen('versions') == {None: [body['metadata']['resourceVersion']]})
    assert seen() == {}

    for mark, expected in [
        ('yes', {'obj': ['indexed']}),
        (None, {}),
        ('yes', {'obj': ['indexed']}),
    ]:
        marks = {'mark': mark}
        await cluster.patch({'spec': marks, 'metadata': {'labels': marks, 'annotations': marks}})
        await wait_until(lambda expected=expected: seen() == expected)


@pytest.mark.guarantee('IDX-019', 'IDX-004')
async def test_no_result_changes_nothing(cluster, registry, run_operator, seen):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(spec, **_):
        return {'none': None, 'empty': {}}.get(spec['x'], {spec['x']: 'value'})

    @kopf.index('kopfexamples', id='values', registry=registry)
    async def values(spec, **_):
        return spec['x']

    await run_operator()
    await cluster.create(spec={'x': 'key'})
    for x, expected in [
        ('key', {'key': ['value']}),
        ('none', {'key': ['value']}),
        ('empty', {}),
        ('none', {}),
        ('other', {'other': ['value']}),
    ]:
        await cluster.patch({'spec': {'x': x}})
        await wait_until(lambda x=x: seen('values') == {None: [x]})
        assert seen() == expected


@pytest.mark.guarantee('IDX-018', 'WLD-009', 'IDX-017')
async def test_bodies_are_usable_as_values(cluster, registry, run_operator):
    indices = {}

    @kopf.index('kopfexamples', id='bodies', registry=registry)
    async def bodies(namespace, name, body, **_):
        return {(namespace, name): body}

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(bodies, **_):
        indices['bodies'] = bodies

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: indices)
    [body] = indices['bodies'][('default', 'obj')]

    assert isinstance(body, kopf.Body)
    assert (body.spec['x'], body.meta.name, dict(body.status)) == (1, 'obj', {})


@pytest.mark.guarantee('IDX-030')
async def test_indices_win_over_kwargs_of_the_same_names(cluster, registry, run_operator, calls):
    @kopf.index('kopfexamples', id='spec', registry=registry)
    async def index_fn(name, body, **_):
        return {name: body['spec']['x']}

    async def fn(spec, **_):
        calls.append({key: list(store) for key, store in spec.items()})

    kopf.on.event('kopfexamples', registry=registry)(fn)
    kopf.daemon('kopfexamples', registry=registry)(fn)
    kopf.on.create('kopfexamples', registry=registry)(fn)
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled()
    await wait_until(lambda: len(calls) > 3)

    assert calls == [{'obj': [1]}] * len(calls)


@pytest.mark.guarantee('IDX-031', 'NEW-223')
@pytest.mark.parametrize('limit', [None, 1])
async def test_no_handler_is_called_until_all_indexed_resources_are_listed(
    sandbox, cluster, registry, run_operator, settings, calls, limit
):
    settings.queueing.worker_limit = limit

    @kopf.index('kopfexamples', id='index', registry=registry)
    @kopf.index('others', id='index', registry=registry)
    async def index(name, resource, **_):
        return {resource.plural: name}

    async def fn(index, param, **_):
        calls.append((param, {key: len(store) for key, store in index.items()}))

    for decorator in [kopf.on.event, kopf.on.create, kopf.on.resume, kopf.daemon, kopf.timer]:
        decorator(
            'kopfexamples', id=decorator.__name__, param=decorator.__name__, registry=registry
        )(fn)
    await sandbox.apply(build_crd('others', 'Other'))
    for number in range(10):
        await cluster.create(f'obj-{number}')
        await sandbox.create(build_object(f'obj-{number}', kind='Other'))
    fault = sandbox.faults.inject(verb='list', resource='others', code=503)
    await run_operator()
    await cluster.wait_until_watched()
    await pass_time(100)
    assert (calls, cluster.writes) == ([], [])

    fault.lift()
    await wait_until(lambda: len(calls) >= 60)
    assert {name for name, _ in calls} == {'event', 'create', 'resume', 'daemon', 'timer'}
    assert [lengths for _, lengths in calls] == [{'kopfexamples': 10, 'others': 10}] * len(calls)


@pytest.mark.guarantee('IDX-036', 'IDX-029')
async def test_indices_are_rebuilt_by_each_start(cluster, registry, run_operator, seen, calls):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(name, **_):
        calls.append(name)
        if len(calls) == 1:
            raise kopf.PermanentError('never again')
        return name

    await cluster.create()
    operator = await run_operator()
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(10)
    assert (calls, seen()) == (['obj'], {})
    await operator.stop()

    await run_operator()
    await wait_until(lambda: seen() == {None: ['obj']})


@pytest.mark.guarantee('IDX-037')
async def test_indices_can_refer_to_each_other(cluster, registry, run_operator, calls):
    @kopf.index('kopfexamples', id='primary', registry=registry)
    async def primary(name, spec, **_):
        return {name: spec['x']}

    @kopf.index('kopfexamples', id='secondary', registry=registry)
    async def secondary(name, spec, **_):
        return {spec['group']: name}

    @kopf.on.create('kopfexamples', labels={'trigger': 'yes'}, registry=registry)
    async def create_fn(primary, secondary, spec, **_):
        calls.append(sorted(value for name in secondary[spec['group']] for value in primary[name]))

    await run_operator()
    for number in range(3):
        await cluster.create(f'obj-{number}', spec={'x': number, 'group': 'a'})
    await cluster.create('last', spec={'x': 10, 'group': 'a'}, labels={'trigger': 'yes'})
    await cluster.wait_until_handled('last')

    assert calls == [[0, 1, 2, 10]]


@pytest.mark.guarantee('IDX-012', 'IDX-005')
async def test_objects_of_different_resources_do_not_collide(
    sandbox, cluster, registry, run_operator, seen
):
    @kopf.index('kopfexamples', id='index', registry=registry)
    @kopf.index('others', id='index', registry=registry)
    async def index(name, **_):
        return {name: 'value'}

    @kopf.index('kopfexamples', id='index', registry=registry)
    async def namesake(name, **_):
        return {name: 'more'}

    await sandbox.apply(build_crd('others', 'Other'))
    await run_operator()
    await cluster.create()
    await sandbox.create(build_object(kind='Other'))
    await wait_until(lambda: seen() == {'obj': ['more', 'value', 'value']})
    await cluster.delete()
    await wait_until(lambda: seen() == {'obj': ['value']})
    await Cluster(sandbox, 'others').delete()
    await wait_until(lambda: seen() == {})


@pytest.mark.guarantee('IDX-005')
async def test_objects_that_have_vanished_unseen_leave_the_index(
    cluster, registry, run_operator, seen
):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(name, **_):
        return name

    await run_operator()
    for name in ['one', 'two']:
        await cluster.create(name)
    await wait_until(lambda: seen() == {None: ['one', 'two']})
    with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', code=503):
        cluster.sandbox.faults.cut_streams(resource='kopfexamples')
        await cluster.delete('one')
        await cluster.sandbox.compact()
    await wait_until(lambda: seen() == {None: ['two']})


@pytest.mark.guarantee('IDX-005')
async def test_objects_of_resources_that_are_gone_leave_the_index(
    sandbox, cluster, registry, run_operator, seen
):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(name, **_):
        return name

    await run_operator()
    await cluster.create()
    await wait_until(lambda: seen() == {None: ['obj']})
    await sandbox.delete('customresourcedefinitions', 'kopfexamples.kopf.dev')
    await wait_until(lambda: seen() == {})


@pytest.mark.guarantee('IDX-031', 'MEM-001', 'MEM-002')
async def test_indexing_functions_share_memos_with_handlers(cluster, registry, run_operator, calls):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(memo, **_):
        memo.indexed = memo.get('indexed', 0) + 1

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(memo, **_):
        calls.append(dict(memo))

    await run_operator()
    for _ in range(2):
        await cluster.create()
        await wait_until(lambda: calls)
        await cluster.delete()
        await wait_until(lambda: len(calls) == 2)
        assert calls == [{'indexed': 1}, {'indexed': 1}]
        calls.clear()


@pytest.mark.guarantee('NEW-224')
async def test_only_sync_indexing_functions_use_threads_of_the_common_executor(
    cluster, registry, run_operator, settings
):
    settings.execution.max_workers, threads = 1, {}

    @kopf.index('kopfexamples', id='async_fn', registry=registry)
    async def async_fn(**_):
        threads['async'] = threading.current_thread()

    @kopf.index('kopfexamples', id='sync_fn', registry=registry)
    def sync_fn(**_):
        threads['sync'] = threading.current_thread()

    @kopf.on.event('kopfexamples', registry=registry)
    def event_fn(**_):
        threads['event'] = threading.current_thread()

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(threads) == 3)

    assert threads['async'] is threading.main_thread()
    assert threads['sync'] is threads['event'] is not threading.main_thread()


@pytest.mark.guarantee('IDX-002')
async def test_indices_can_be_declared_by_startup_handlers(cluster, registry, run_operator, calls):
    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        @kopf.index('kopfexamples', id='late', registry=registry)
        async def late(name, **_):
            await asyncio.sleep(0)
            return name

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(late, **_):
        calls.append(list(late[None]))

    await cluster.create()
    await run_operator()
    await wait_until(lambda: calls)

    assert calls == [['obj']]
