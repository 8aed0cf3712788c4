"""
Handlers inside of handlers: each part of a big job is done once, with retries and records of its
own.
"""

import asyncio
import functools
import json

import pytest
from clusters import get_progress, wait_until

import kopf


@pytest.fixture
def entries():
    return []


@pytest.fixture
def ends():
    return []


def failing(calls, name, times, delay=10):
    """Make a function that succeeds after so many failures."""

    async def fn(retry, **_):
        calls.append((name, retry))
        if retry < times:
            raise kopf.TemporaryError('not yet', delay=delay)
        return f'{name} is done'

    return fn


def declare_by_decorators(registry, fns, entries):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(retry, **_):
        entries.append(retry)
        for name, fn in fns.items():
            kopf.subhandler(id=name)(fn)
        return 'all is done'


def declare_by_functions(registry, fns, entries):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(retry, **_):
        entries.append(retry)
        for name, fn in fns.items():
            assert kopf.register(fn, id=name) is fn
        return 'all is done'


def declare_in_threads(registry, fns, entries):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    def create(retry, **_):
        entries.append(retry)
        for name, fn in fns.items():
            kopf.subhandler(id=name)(fn)
        return 'all is done'


def declare_by_execution(registry, fns, entries):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(retry, **_):
        entries.append(retry)
        await kopf.execute(fns=fns)
        return 'all is done'


def declare_before_execution(registry, fns, entries):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(retry, **_):
        entries.append(retry)
        for name, fn in fns.items():
            kopf.register(fn, id=name)
        await kopf.execute()
        return 'all is done'


WAYS = [
    declare_by_decorators,
    declare_by_functions,
    declare_in_threads,
    declare_by_execution,
    declare_before_execution,
]


@pytest.mark.guarantee(
    'HND-048',
    'HND-049',
    'HND-050',
    'HND-051',
    'HND-052',
    'HND-053',
    'HND-055',
    'HND-058',
    'HND-059',
    'HND-060',
    'HND-061',
    'HND-062',
    'HND-063',
    'IDM-001',
    'IDM-002',
    'IDM-003',
    'IDM-004',
    'IDM-005',
    'IDM-007',
    'IDM-008',
    'IDM-009',
    'IDM-010',
    'IDM-011',
)
@pytest.mark.parametrize('declare', WAYS)
async def test_all_ways_of_declaration_lead_to_the_same_calls_and_records(
    cluster, registry, run_operator, calls, entries, declare, virtual_time
):
    declare(
        registry, {'a': failing(calls, 'a', times=2), 'b': failing(calls, 'b', times=6)}, entries
    )
    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    since = virtual_time.elapsed
    body = await cluster.wait(lambda body: len(get_progress(body)) >= 3)
    records = {key: json.loads(value) for key, value in get_progress(body).items()}
    assert records.keys() - {'kopf.zalando.org/kopf.cycle'} == {
        'kopf.zalando.org/create',
        'kopf.zalando.org/create.a',
        'kopf.zalando.org/create.b',
    }
    assert 'create/a' in records['kopf.zalando.org/create']['subrefs']
    assert 'status' not in body

    body = await cluster.wait_until_handled()
    assert [retry for name, retry in calls if name == 'a'] == list(range(3))
    assert [retry for name, retry in calls if name == 'b'] == list(range(7))
    assert 7 <= len(entries) <= 10
    assert entries == list(range(len(entries)))
    assert virtual_time.elapsed - since == pytest.approx(60, abs=1)
    assert body['status'] == {
        'create': 'all is done',
        'create/a': 'a is done',
        'create/b': 'b is done',
    }
    assert not get_progress(body)


@pytest.mark.guarantee('HND-063', 'IDM-008')
async def test_with_all_at_once_the_parent_is_entered_as_often_as_its_slowest_part(
    cluster, registry, run_operator, calls, entries
):
    declare_by_execution(
        registry, {'a': failing(calls, 'a', 2), 'b': failing(calls, 'b', 6)}, entries
    )
    await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.create()
    await cluster.wait_until_handled()

    assert len(calls) == 3 + 7
    assert 7 <= len(entries) <= 9


@pytest.mark.guarantee('HND-054', 'IDM-006', 'HND-059', 'HND-060')
async def test_code_after_execution_runs_once_when_all_parts_are_finished_in_any_way(
    cluster, registry, run_operator, calls, ends
):
    async def failed(**_):
        calls.append(('failed', 0))
        raise kopf.PermanentError('never')

    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(**_):
        result = await kopf.execute(fns={'a': failing(calls, 'a', times=3), 'failed': failed})
        ends.append((result, len(calls)))
        return 'the end'

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    assert ends == [(None, 5)]
    assert body['status'] == {'create': 'the end', 'create/a': 'a is done'}


@pytest.mark.guarantee('HND-054', 'HND-060', 'IDM-006')
async def test_executions_in_a_row_are_stages(cluster, registry, run_operator, calls, ends):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create(retry, **_):
        await kopf.execute(fns={'a': failing(calls, 'a', times=1)})
        calls.append('between')
        await kopf.execute(fns={'b': failing(calls, 'b', times=1)})
        ends.append(retry)

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    assert calls == [('a', 0), ('a', 1), 'between', ('b', 0), 'between', ('b', 1)]
    assert len(ends) == 1


@pytest.mark.guarantee('HND-055', 'HND-060', 'IDM-007', 'IDM-010', 'CNT-006')
async def test_a_restart_continues_with_the_unfinished_parts(
    cluster, registry, run_operator, calls, entries
):
    declare_by_decorators(
        registry, {'a': failing(calls, 'a', 0), 'b': failing(calls, 'b', 2, delay=100)}, entries
    )
    operator = await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: 'kopf.zalando.org/create.b' in get_progress(body))
    await operator.stop()
    await run_operator()
    body = await cluster.wait_until_handled()

    assert calls == [('a', 0), ('b', 0), ('b', 1), ('b', 2)]
    assert entries == list(range(len(entries)))
    assert body['status'] == {
        'create': 'all is done',
        'create/a': 'a is done',
        'create/b': 'b is done',
    }


@pytest.mark.guarantee('HND-056', 'HND-062', 'ASY-006')
@pytest.mark.parametrize('is_sync', [False, True], ids=['async', 'sync'])
async def test_closures_and_partials_and_lambdas_and_threads_can_be_parts(
    cluster, registry, run_operator, calls, is_sync
):
    def register_all(items):
        for item in items:

            @kopf.subhandler(id=f'closure-{item}')
            def closure_fn(item=item, *, name, **_):
                calls.append(('closure', item, name))

            @kopf.subhandler(id=f'async-{item}')
            async def async_fn(item=item, *, name, **_):
                calls.append(('async', item, name))

        kopf.register(functools.partial(note, 'given'), id='partial')
        kopf.register(lambda name, **_: calls.append(('lambda', name)), id='lambda')

    def note(item, *, name, **_):
        calls.append(('partial', item, name))

    if is_sync:

        @kopf.on.create('kopfexamples', registry=registry)
        def create(spec, **_):
            register_all(spec['items'])
    else:

        @kopf.on.create('kopfexamples', registry=registry)
        async def create(spec, **_):
            register_all(spec['items'])

    await run_operator()
    await cluster.create(spec={'items': ['x', 'y']})
    await cluster.wait_until_handled()

    assert calls == [
        ('closure', 'x', 'obj'),
        ('async', 'x', 'obj'),
        ('closure', 'y', 'obj'),
        ('async', 'y', 'obj'),
        ('partial', 'given', 'obj'),
        ('lambda', 'obj'),
    ]


@pytest.mark.guarantee('HND-057', 'KWA-002', 'KWA-003', 'KWA-009', 'KWA-016')
async def test_parts_get_the_arguments_of_their_cause_and_their_own_options(
    cluster, registry, run_operator, calls
):
    names = {
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
        'resource',
        'reason',
        'old',
        'new',
        'diff',
        'param',
        'retry',
        'started',
        'runtime',
    }

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', field='spec', param='of the parent', registry=registry)
    async def update_fn(memo, **kwargs):
        memo.parent = True

        @kopf.subhandler(param='of the part', errors=kopf.ErrorsMode.PERMANENT)
        async def part_fn(**kwargs):
            calls.append({name: kwargs[name] for name in names})
            raise Exception('not to be retried')

        @kopf.subhandler(field='x')
        async def field_fn(old, new, diff, **_):
            calls.append((old, new, tuple(diff)))

        @kopf.subhandler(field='y')
        async def unchanged_fn(**_):
            calls.append('never')

    await run_operator()
    await cluster.create(spec={'x': 1, 'y': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)

    kwargs, changes = calls
    assert (kwargs['reason'], kwargs['param'], kwargs['retry'], kwargs['name']) == (
        'update',
        'of the part',
        0,
        'obj',
    )
    assert (kwargs['old'], kwargs['new']) == ({'x': 1, 'y': 1}, {'x': 2, 'y': 1})
    assert kwargs['memo'].parent is True
    assert changes == (1, 2, (('change', (), 1, 2),))


@pytest.mark.guarantee('FND-023')
@pytest.mark.parametrize(
    'decorator, states',
    [
        pytest.param(
            kopf.on.create,
            [(None, {'x': 1, 'y': 1}, [('add', (), None, {'x': 1, 'y': 1})])],
            id='create',
        ),
        pytest.param(
            kopf.on.update,
            [({'x': 1, 'y': 1}, {'x': 2, 'y': 1}, [('change', ('x',), 1, 2)])],
            id='update',
        ),
        pytest.param(
            kopf.on.field,
            [
                (None, {'x': 1, 'y': 1}, [('add', (), None, {'x': 1, 'y': 1})]),
                ({'x': 1, 'y': 1}, {'x': 2, 'y': 1}, [('change', ('x',), 1, 2)]),
            ],
            id='field',
        ),
        pytest.param(kopf.on.delete, [({'x': 2, 'y': 1}, {'x': 2, 'y': 1}, [])], id='delete'),
    ],
)
async def test_parts_of_handlers_of_fields_see_only_the_fields(
    cluster, registry, run_operator, calls, decorator, states
):
    def note(name):
        def see(old, new, diff, spec, **_):
            calls.append((name, (old, new, list(diff))))
            assert {'field', 'other'} <= spec.keys()  # whatever has changed, the object is whole
            return True

        return see

    @decorator('kopfexamples', field='spec.field', registry=registry)
    async def parent(**kwargs):
        note('parent')(**kwargs)

        @kopf.subhandler(id='child', when=note('filter'))
        def child(**kwargs):
            note('child')(**kwargs)
            kopf.register(note('grandchild'), id='grandchild')

        await kopf.execute()
        await kopf.execute(fns={'given': note('given')})

    kopf.on.create('kopfexamples', registry=registry, id='always')(lambda **_: None)
    await run_operator()
    await cluster.create(spec={'field': {'x': 1, 'y': 1}, 'other': 1})
    await cluster.wait_until_handled()
    await cluster.patch({'spec': {'field': {'x': 2}, 'other': 2}})
    await cluster.wait_until_handled(field={'x': 2, 'y': 1})
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert {name for name, _ in calls} == {'parent', 'filter', 'child', 'grandchild', 'given'}
    for name in ('child', 'grandchild', 'given'):
        assert [state for called, state in calls if called == name] == states
    assert all(state in states for _, state in calls)


@pytest.mark.guarantee('FND-023')
async def test_fields_of_parts_are_inside_of_the_fields_of_their_handlers(
    cluster, registry, run_operator, calls
):
    @kopf.on.update('kopfexamples', field='spec.field', registry=registry)
    async def parent(**_):
        @kopf.subhandler(id='x', field='x')
        async def of_field(old, new, diff, **_):
            calls.append((old, new, list(diff)))
            kopf.register(
                lambda old, new, diff, **_: calls.append((old, new, list(diff))), id='inner'
            )

        @kopf.subhandler(id='y', field='y')
        async def of_unchanged_field(**_):
            calls.append('never')

        @kopf.subhandler(id='z', field='x', value=3)
        async def of_other_value(**_):
            calls.append('never')

    await run_operator()
    await cluster.create(spec={'field': {'x': 1, 'y': 1}})
    await cluster.wait_until_handled()
    await cluster.patch({'spec': {'field': {'x': 2}}})
    await cluster.wait_until_handled(field={'x': 2, 'y': 1})

    assert calls == [(1, 2, [('change', (), 1, 2)])] * 2


@pytest.mark.guarantee('HND-055', 'HND-057', 'HND-059')
async def test_parts_can_have_parts(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(**_):
        @kopf.subhandler(id='middle')
        async def middle(**_):
            kopf.register(failing(calls, 'inner', times=2), id='inner')
            return 'the middle is done'

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    assert calls == [('inner', 0), ('inner', 1), ('inner', 2)]
    assert body['status'] == {
        'create/middle': 'the middle is done',
        'create/middle/inner': 'inner is done',
    }
    assert not get_progress(body)


@pytest.mark.guarantee('HND-058', 'IDM-011')
async def test_new_parts_can_appear_while_the_others_are_in_progress(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create(spec, **_):
        for item in spec['items']:
            kopf.register(failing(calls, item, times=1, delay=60), id=item)

    await run_operator()
    await cluster.create(spec={'items': ['a']})
    await cluster.wait(get_progress)
    await cluster.patch({'spec': {'items': ['a', 'b']}})
    body = await cluster.wait_until_handled()
    await wait_until(lambda: len(calls) == 4)

    assert sorted(calls) == [('a', 0), ('a', 1), ('b', 0), ('b', 1)]
    assert not get_progress(body)


@pytest.mark.guarantee('HND-034', 'HND-059', 'HND-060')
async def test_an_object_stays_until_the_parts_of_its_deletion_are_finished(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', registry=registry)
    def delete(**_):
        kopf.register(failing(calls, 'a', times=0), id='a')
        kopf.register(failing(calls, 'b', times=2), id='b')

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == [('a', 0), ('b', 0), ('b', 1), ('b', 2)]


@pytest.mark.guarantee('HND-060')
async def test_resuming_handlers_have_parts_too_and_they_are_called_once_per_start(
    cluster, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume(**_):
        kopf.register(failing(calls, 'a', times=0), id='a')
        kopf.register(failing(calls, 'b', times=1), id='b')

    await cluster.create()
    for _ in range(2):
        calls.clear()
        operator = await run_operator()
        await wait_until(lambda: ('b', 1) in calls)
        body = await cluster.wait_until_handled()
        await asyncio.sleep(600)  # of the virtual time
        await operator.stop()

        assert calls == [('a', 0), ('b', 0), ('b', 1)]
        assert not get_progress(body)


async def test_event_handlers_cannot_have_parts(cluster, registry, run_operator, calls):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        with pytest.raises(LookupError) as caught:
            kopf.register(lambda **_: None)
        calls.append(str(caught.value))

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)

    assert 'only inside of running handlers' in calls[0]


@pytest.mark.guarantee('HND-058')
async def test_parts_that_are_not_declared_any_more_are_not_waited_for_and_leave_nothing(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='create', registry=registry)
    async def create(spec, **_):
        for item in spec['items']:
            kopf.register(failing(calls, item, times=99 if item == 'hopeless' else 1), id=item)

    await run_operator()
    await cluster.create(spec={'items': ['hopeless', 'good']})
    await cluster.wait(lambda body: 'kopf.zalando.org/create.hopeless' in get_progress(body))
    await cluster.patch({'spec': {'items': ['good']}})
    body = await cluster.wait_until_handled(items=['good'])

    assert ('good', 1) in calls
    assert not get_progress(body)


async def test_a_change_in_mid_cycle_reaches_the_parts_that_have_finished_before_it(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create(**_):
        pass

    @kopf.on.update('kopfexamples', id='update', registry=registry)
    async def update(**_):
        @kopf.subhandler(id='quick')
        async def quick(old, new, **_):
            calls.append(('quick', old['spec']['x'], new['spec']['x']))

        @kopf.subhandler(id='slow')
        async def slow(old, new, retry, **_):
            if retry < 2:
                raise kopf.TemporaryError('not yet', delay=10)
            calls.append(('slow', old['spec']['x'], new['spec']['x']))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(lambda body: 'kopf.zalando.org/update.slow' in get_progress(body))
    await cluster.patch({'spec': {'x': 3}})
    body = await cluster.wait_until_handled(x=3)

    assert calls == [('quick', 1, 2), ('slow', 1, 3), ('quick', 2, 3)]
    assert not get_progress(body)

    await cluster.patch({'spec': {'x': 4}})
    await cluster.wait_until_handled(x=4)
    assert calls[3:] == [('quick', 3, 4), ('slow', 3, 4)]
