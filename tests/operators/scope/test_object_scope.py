"""
Which objects are of any interest for an operator, and which of their changes its handlers are
called for.
"""

import asyncio

import pytest
from clusters import (
    FINALIZER,
    Cluster,
    build_crd,
    build_object,
    get_last_handled,
    get_progress,
    wait_until,
)

import kopf


@pytest.fixture
def handle(registry, calls):
    """Declare a handler that only tells of its calls: the reason, the old and the new values."""

    def declare(decorator, id='fn', **options):
        async def fn(reason, old, new, **_):
            calls.append((id, reason.value, old, new))

        decorator('kopfexamples', id=id, registry=registry, **options)(fn)

    return declare


MISMATCHES = [
    pytest.param({'labels': {'mine': 'yes'}}, id='value-of-label'),
    pytest.param({'labels': {'mine': kopf.PRESENT}}, id='presence-of-label'),
    pytest.param({'labels': {'theirs': kopf.ABSENT}}, id='absence-of-label'),
    pytest.param({'labels': {'theirs': lambda value, **_: value == 'no'}}, id='callback-for-label'),
    pytest.param({'annotations': {'mine': kopf.PRESENT}}, id='presence-of-annotation'),
    pytest.param({'when': lambda spec, **_: spec.get('mine')}, id='when'),
]


@pytest.mark.guarantee('FLT-035')
@pytest.mark.parametrize('filters', MISMATCHES)
async def test_objects_that_match_nothing_are_not_touched_and_not_mentioned(
    cluster, handle, run_operator, calls, caplog, filters
):
    for decorator in (kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume):
        handle(decorator, **filters)
    caplog.set_level('DEBUG')
    await cluster.create('old', labels={'theirs': 'yes'})
    await run_operator()
    await cluster.create('obj', labels={'theirs': 'yes'})
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(5)
    body = await cluster.get()
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await asyncio.sleep(5)

    assert calls == []
    assert cluster.writes == []
    assert 'annotations' not in body['metadata']
    assert not [record for record in caplog.records if record.name.startswith('kopf.objects')]


@pytest.mark.guarantee('FLT-036')
@pytest.mark.parametrize(
    'change, filters',
    [
        pytest.param(
            {'metadata': {'labels': {'mine': 'yes'}}}, {'labels': {'mine': 'yes'}}, id='label'
        ),
        pytest.param(
            {'metadata': {'annotations': {'mine': 'yes'}}},
            {'annotations': {'mine': kopf.PRESENT}},
            id='note',
        ),
        pytest.param(
            {'spec': {'mine': 'yes'}}, {'when': lambda spec, **_: spec.get('mine')}, id='when'
        ),
    ],
)
async def test_objects_that_come_to_match_are_created_and_not_updated(
    cluster, handle, run_operator, calls, change, filters
):
    handle(kopf.on.create, 'created', **filters)
    handle(kopf.on.update, 'updated', **filters)
    await run_operator()
    await cluster.create()
    await asyncio.sleep(5)
    await cluster.patch(change)
    await cluster.wait_until_handled()
    await asyncio.sleep(5)

    assert [(id, reason, old) for id, reason, old, _ in calls] == [('created', 'create', None)]


@pytest.mark.guarantee('FLT-037', 'HND-034')
@pytest.mark.parametrize(
    'decorator',
    [
        pytest.param(kopf.on.field, id='field'),
        pytest.param(kopf.on.update, id='update'),
    ],
)
async def test_a_handler_of_an_absent_field_keeps_all_objects_in_scope(
    cluster, handle, run_operator, calls, decorator
):
    handle(decorator, field='spec.field')
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    assert calls == []
    await cluster.patch({'spec': {'field': 'value'}})
    await cluster.wait_until_handled(field='value')

    assert calls == [('fn', 'update', None, 'value')]


@pytest.mark.guarantee('FLT-010', 'FLT-012', 'FLT-013', 'FLT-014')
@pytest.mark.parametrize(
    'before, after, expected',
    [
        pytest.param('x', 'y', True, id='leaving'),
        pytest.param('y', 'x', True, id='entering'),
        pytest.param(None, 'x', True, id='adding'),
        pytest.param('x', None, True, id='removing'),
        pytest.param('y', 'z', False, id='others'),
        pytest.param('x', 'x', False, id='unchanged'),
    ],
)
async def test_a_value_matches_either_before_or_after_the_change(
    cluster, handle, run_operator, calls, before, after, expected
):
    handle(kopf.on.update, field='spec.field', value='x')
    handle(kopf.on.update, 'present', field='spec.field')
    await run_operator()
    await cluster.create(spec={'x': 1} if before is None else {'x': 1, 'field': before})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2, 'field': after}})
    await cluster.wait_until_handled(x=2)

    assert [call for call in calls if call[0] == 'fn'] == (
        [('fn', 'update', before, after)] if expected else []
    )
    assert len([call for call in calls if call[0] == 'present']) == (before != after)


@pytest.mark.guarantee('FLT-011')
async def test_values_of_creation_resuming_and_deletion_are_the_current_ones(
    cluster, handle, run_operator, calls
):
    for decorator in (kopf.on.create, kopf.on.delete):
        handle(decorator, 'x', field='spec.field', value='x')
        handle(decorator, 'y', field='spec.field', value='y')
        handle(decorator, 'absent', field='spec.field', value=kopf.ABSENT)
    handle(kopf.on.update, 'any')
    await run_operator()
    await cluster.create(spec={'field': 'x'})
    await cluster.wait_until_handled(field='x')
    await cluster.patch({'spec': {'field': 'y'}})
    await cluster.wait_until_handled(field='y')
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert [call[:2] for call in calls] == [('x', 'create'), ('any', 'update'), ('y', 'delete')]


@pytest.mark.guarantee('FLT-015')
async def test_one_function_is_called_for_each_of_its_fields(
    cluster, registry, run_operator, calls
):
    @kopf.on.update('kopfexamples', field='spec.a', param='of a', registry=registry)
    @kopf.on.update('kopfexamples', field='spec.b', param='of b', registry=registry)
    async def fn(old, new, param, **_):
        calls.append((param, old, new))

    await run_operator()
    await cluster.create(spec={'a': 1, 'b': 1})
    await cluster.wait_until_handled(a=1)
    await cluster.patch({'spec': {'a': 2, 'b': 3}})
    await cluster.wait_until_handled(a=2)

    assert sorted(calls) == [('of a', 1, 2), ('of b', 1, 3)]


@pytest.mark.guarantee('FLT-016', 'HND-040')
async def test_one_function_of_creation_and_resuming_is_called_once(
    cluster, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', field='spec.a', registry=registry)
    @kopf.on.create('kopfexamples', field='spec.a', registry=registry)
    async def fn(reason, **_):
        calls.append(reason.value)

    await cluster.create(spec={'a': 1})
    await run_operator()
    await cluster.wait_until_handled(a=1)
    await asyncio.sleep(60)

    assert calls == ['create']


@pytest.mark.guarantee('FLT-017', 'REC-007', 'CFG-079', 'NEW-112')
@pytest.mark.parametrize(
    'has_status',
    [pytest.param(False, id='usual-status'), pytest.param(True, id='subresource-of-status')],
)
async def test_only_the_named_fields_of_the_status_are_noticed(
    sandbox, handle, run_operator, calls, has_status
):
    handle(kopf.on.update, 'done', field='status.done', new=True)
    handle(kopf.on.field, 'nested', field='status.nested.field')
    await sandbox.apply(build_crd(has_status=has_status))
    cluster, subresource = Cluster(sandbox), {'subresource': 'status'} if has_status else {}
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    async def change(status):
        await cluster.patch({'status': status}, **subresource)

    await change({'others': 1, 'nested': {'others': 1}})
    await asyncio.sleep(60)
    assert len(cluster.writes) == 1
    await change({'done': False})
    await cluster.wait(lambda body: get_last_handled(body).get('status') == {'done': False})
    await change({'done': True, 'others': 2, 'nested': {'field': 'value'}})
    await cluster.wait(
        lambda body: (
            (get_last_handled(body).get('status') or {}).get('nested') == {'field': 'value'}
        )
    )

    assert sorted(calls) == [('done', 'update', False, True), ('nested', 'update', None, 'value')]
    assert get_last_handled(await cluster.get())['status'] == {
        'done': True,
        'nested': {'field': 'value'},
    }


@pytest.mark.guarantee('FLT-018')
async def test_a_callback_does_not_require_the_change_of_what_it_looks_at(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.update, when=lambda spec, **_: spec.get('field') == 'x')
    await run_operator()
    await cluster.create(spec={'field': 'x', 'n': 1})
    await cluster.wait_until_handled(n=1)
    await cluster.patch({'spec': {'n': 2}})
    await cluster.wait_until_handled(n=2)
    await cluster.patch({'spec': {'field': 'y', 'n': 3}})
    await asyncio.sleep(60)

    assert [(old['spec']['n'], new['spec']['n']) for _, _, old, new in calls] == [(1, 2)]


@pytest.mark.guarantee('REC-006', 'REC-007')
async def test_parents_are_told_what_children_have_put_into_their_status(
    cluster, registry, run_operator, calls
):
    await cluster.sandbox.apply(build_crd('kopfchildren', 'KopfChild'))

    @kopf.on.create('kopfchildren', registry=registry)
    async def child_fn(name, spec, **_):
        await cluster.patch({'status': {'children': {name: spec['x']}}}, 'parent')

    @kopf.on.field('kopfexamples', field='status.children', registry=registry)
    async def parent_fn(old, new, **_):
        calls.append((old, new))

    await run_operator()
    await cluster.create('parent')
    await cluster.wait_until_handled('parent')
    await cluster.sandbox.create(build_object('one', kind='KopfChild', spec={'x': 11}))
    await wait_until(lambda: len(calls) == 1)
    await cluster.sandbox.create(build_object('two', kind='KopfChild', spec={'x': 22}))
    await wait_until(lambda: len(calls) == 2)

    assert calls == [(None, {'one': 11}), ({'one': 11}, {'one': 11, 'two': 22})]


@pytest.mark.guarantee('TIP-003', 'TIP-005', 'TIP-006')
@pytest.mark.parametrize(
    'stanza, filters',
    [
        pytest.param('annotations', {'annotations': {'never-again': kopf.ABSENT}}, id='annotation'),
        pytest.param('labels', {'labels': {'never-again': kopf.ABSENT}}, id='label'),
        pytest.param(
            'labels', {'when': lambda labels, **_: 'never-again' not in labels}, id='when'
        ),
    ],
)
async def test_handlers_can_exclude_themselves_for_ever(
    cluster, registry, run_operator, calls, stanza, filters
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry, **filters)
    async def update_fn(patch, spec, **_):
        calls.append(spec['x'])
        getattr(patch.metadata, stanza)['never-again'] = 'yes'
        raise kopf.PermanentError('never call me again')

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.patch({'spec': {'x': 3}})
    await cluster.wait_until_handled(x=3)
    await operator.stop()
    await cluster.patch({'spec': {'x': 4}})
    await run_operator()
    body = await cluster.wait_until_handled(x=4)

    assert calls == [2]
    assert body['metadata'][stanza]['never-again'] == 'yes'


@pytest.mark.guarantee('HND-029', 'CFG-055')
async def test_objects_that_do_not_match_any_more_are_released(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.delete, labels={'mine': 'yes'})
    await run_operator()
    await cluster.create(labels={'mine': 'yes'}, finalizers=['example.com/foreign'])
    await cluster.wait(lambda body: FINALIZER in body['metadata']['finalizers'])
    await cluster.patch({'metadata': {'labels': {'mine': 'no'}}})
    body = await cluster.wait(lambda body: FINALIZER not in body['metadata']['finalizers'])

    assert body['metadata']['finalizers'] == ['example.com/foreign']
    assert calls == []


async def test_a_failing_filter_delays_only_its_object_until_it_is_repaired(
    cluster, registry, run_operator, calls
):
    broken = {'one'}

    def check(name, **_):
        if name in broken:
            raise ValueError('a broken filter')
        return True

    @kopf.on.create('kopfexamples', when=check, registry=registry)
    async def fn(name, **_):
        calls.append(name)

    await run_operator()
    await cluster.create('one')
    await cluster.create('two')
    await cluster.wait_until_handled('two')
    broken.clear()
    body = await cluster.wait_until_handled('one')

    assert calls == ['two', 'one']
    assert get_progress(body) == {}
