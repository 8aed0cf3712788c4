"""
What has happened to an object decides who is called: once for each change, and never for what
operators do themselves.
"""

import asyncio
import functools

import pytest
from clusters import get_progress, wait_until

import kopf


@pytest.mark.guarantee('HND-024', 'HND-032', 'HND-033', 'HND-034', 'KWA-009', 'KWA-038', 'KWA-039')
async def test_only_the_handlers_of_the_detected_cause_are_called(
    cluster, registry, run_operator, calls
):
    def declare(decorator, name, **options):
        async def fn(reason, old, new, **_):
            values = (
                [state and state['spec']['x'] for state in (old, new)]
                if name != 'field'
                else [old, new]
            )
            calls.append((name, reason, *values))

        decorator('kopfexamples', id=name, registry=registry, **options)(fn)

    declare(kopf.on.create, 'create')
    declare(kopf.on.update, 'update')
    declare(kopf.on.field, 'field', field='spec.y')
    declare(kopf.on.delete, 'delete')
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.patch({'spec': {'x': 3, 'y': 'a'}})
    await cluster.wait_until_handled(x=3)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == [
        ('create', 'create', None, 1),
        ('update', 'update', 1, 2),
        ('update', 'update', 2, 3),
        ('field', 'update', None, 'a'),
        ('delete', 'delete', 3, 3),
    ]


@pytest.mark.guarantee('HND-025', 'ERR-011')
async def test_results_and_progress_and_retries_are_never_a_cause(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='change_fn', registry=registry)
    @kopf.on.update('kopfexamples', id='change_fn', registry=registry)
    @kopf.on.field('kopfexamples', field='metadata.annotations', id='change_fn', registry=registry)
    async def change_fn(reason, retry, **_):
        calls.append((reason, retry))
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=10)
        return {'result': len(calls)}

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(3600)  # of the virtual time

    assert calls == [('create', retry) for retry in range(4)]
    assert (await cluster.get())['status'] == {'change_fn': {'result': 4}}


@pytest.mark.guarantee('NEW-043', 'FLT-017')
@pytest.mark.parametrize(
    'patch',
    [
        pytest.param({'status': {'phase': 'ready'}}, id='status'),
        pytest.param({'metadata': {'finalizers': ['example.com/foreign']}}, id='finalizers'),
    ],
)
async def test_status_and_most_of_metadata_are_a_cause_only_for_those_who_name_them(
    cluster, registry, run_operator, calls, patch
):
    stanza, field = next((stanza, field) for stanza, fields in patch.items() for field in fields)

    async def fn(old, new, **_):
        calls.append((old, new))

    kopf.on.update('kopfexamples', id='blind', registry=registry)(fn)
    kopf.on.create('kopfexamples', id='creator', registry=registry)(fn)
    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    calls.clear()
    before = await cluster.patch(patch)
    await asyncio.sleep(600)  # of the virtual time
    assert calls == []
    assert (await cluster.get())['metadata']['resourceVersion'] == before['metadata'][
        'resourceVersion'
    ]

    await operator.stop()
    kopf.on.update('kopfexamples', id='sighted', field=f'{stanza}.{field}', registry=registry)(fn)
    await run_operator()
    await wait_until(lambda: calls)
    value = patch[stanza][field]
    assert (None, value) in calls


@pytest.mark.guarantee('NEW-043')
@pytest.mark.parametrize('field', ['labels', 'annotations'])
async def test_labels_and_annotations_are_a_cause_for_all(
    cluster, registry, run_operator, calls, field
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(diff, **_):
        calls.extend(diff)

    await run_operator()
    await cluster.create(spec={'x': 1}, **{field: {'a': 'b'}})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'metadata': {field: {'a': 'c'}}})
    await wait_until(lambda: calls)

    assert calls == [('change', ('metadata', field, 'a'), 'b', 'c')]


@pytest.mark.guarantee('NEW-261', 'HND-045')
async def test_field_handlers_are_called_on_creation_if_there_is_the_field(
    cluster, registry, run_operator, calls
):
    @kopf.on.field('kopfexamples', field='spec.x', registry=registry)
    async def field_fn(name, reason, old, new, diff, **_):
        calls.append((name, reason, old, new, tuple(diff)))

    await run_operator()
    await cluster.create('with', spec={'x': 1, 'y': 2})
    await cluster.create('without', spec={'y': 2})
    await cluster.wait_until_handled('with', y=2)
    await cluster.wait_until_handled('without', y=2)
    await cluster.patch({'spec': {'x': 3}}, 'without')
    await cluster.wait_until_handled('without', x=3)
    await cluster.patch({'spec': {'x': None}}, 'with')
    await wait_until(lambda: len(calls) == 3)

    assert calls == [
        ('with', 'create', None, 1, (('add', (), None, 1),)),
        ('without', 'update', None, 3, (('add', (), None, 3),)),
        ('with', 'update', 1, None, (('remove', (), 1, None),)),
    ]


@pytest.mark.guarantee('WLD-015', 'NEW-050', 'HND-026')
async def test_the_reason_is_usable_as_a_text_and_as_a_member(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(reason, **_):
        calls.append((reason, reason.lower(), reason.value, f'{reason}', str(reason), reason.name))

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    assert calls == [(kopf.Reason.CREATE, 'create', 'create', 'create', 'create', 'CREATE')]
    assert type(calls[0][0]) is kopf.Reason
    assert calls[0][0] == 'create'


async def test_one_function_of_several_decorators_is_called_once_per_id_and_change(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='fn', registry=registry)
    @kopf.on.create('kopfexamples', id='fn', registry=registry)
    @kopf.on.update('kopfexamples', id='fn', registry=registry)
    @kopf.on.create('kopfexamples', id='another', registry=registry)
    @kopf.on.resume('kopfexamples', id='fn', registry=registry)
    async def fn(reason, **_):
        calls.append(str(reason))
        return {'calls': len(calls)}

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    body = await cluster.wait_until_handled(x=1)
    assert calls == ['create', 'create']
    assert body['status'] == {'another': {'calls': 1}, 'fn': {'calls': 2}}

    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    assert calls == ['create', 'create', 'update']


async def test_different_functions_of_the_same_id_are_all_called(
    cluster, registry, run_operator, calls
):
    for number in range(3):

        @kopf.on.create('kopfexamples', id='same', registry=registry)
        async def fn(number=number, **_):
            calls.append(number)

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    assert calls == [0, 1, 2]
    assert not get_progress(body)


@pytest.mark.guarantee('WLD-008')
async def test_handlers_can_be_declared_in_a_loop_while_another_operator_is_running(
    cluster, registry, run_operator, calls
):
    async def fn(field, *, name, old, new, **_):
        calls.append((name, field, old, new if field != 'all' else None))

    another_registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
        prefix='another.example.com'
    )
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix='another.example.com'
    )
    kopf.on.create('kopfexamples', id='another', registry=another_registry)(
        functools.partial(fn, 'all')
    )
    await run_operator(registry=another_registry, settings=settings)
    for field in ['a', 'b']:
        kopf.on.field('kopfexamples', id=f'on-{field}', field=f'spec.{field}', registry=registry)(
            functools.partial(fn, field)
        )
    await run_operator()
    await cluster.create(spec={'a': 1, 'b': 2})
    await cluster.wait_until_handled(a=1, b=2)
    await wait_until(lambda: len(calls) == 3)
    await cluster.patch({'spec': {'a': 10}})
    await cluster.wait_until_handled(a=10)

    assert sorted(calls[:3], key=str) == [
        ('obj', 'a', None, 1),
        ('obj', 'all', None, None),
        ('obj', 'b', None, 2),
    ]
    assert calls[3:] == [('obj', 'a', 1, 10)]


@pytest.mark.guarantee('NEW-257')
async def test_by_default_one_handler_is_called_per_cycle_beginning_with_the_least_tried_ones(
    cluster, registry, run_operator, calls
):
    def declare(name, times):
        @kopf.on.create('kopfexamples', id=name, registry=registry)
        async def fn(retry, body, **_):
            calls.append((name, retry, body['metadata']['resourceVersion']))
            if retry < times:
                raise kopf.TemporaryError('not yet', delay=0)

    declare('first', 3)
    declare('second', 1)
    declare('third', 0)
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    assert [(name, retry) for name, retry, _ in calls] == [
        ('first', 0),
        ('second', 0),
        ('third', 0),
        ('first', 1),
        ('second', 1),
        ('first', 2),
        ('first', 3),
    ]
    assert len({version for *_, version in calls}) == len(calls)


@pytest.mark.guarantee('NEW-257')
async def test_an_explicit_lifecycle_can_take_all_handlers_in_one_cycle(
    cluster, registry, run_operator, calls
):
    for name in 'abc':

        @kopf.on.create('kopfexamples', id=name, registry=registry)
        async def fn(body, name=name, **_):
            calls.append(body['metadata']['resourceVersion'])

    await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.create()
    await cluster.wait_until_handled()

    assert len(calls) == 3 and len(set(calls)) == 1
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('FND-029')
async def test_handlers_of_ignored_fields_are_not_called(
    cluster, registry, settings, run_operator, calls
):
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        ignored_fields=['spec.ignored']
    )
    for reason in ['create', 'resume', 'update', 'delete']:
        for field in ['spec.ignored', 'spec.usual']:
            getattr(kopf.on, reason)(
                'kopfexamples', id=reason, field=field, param=(reason, field), registry=registry
            )(lambda param, **_: calls.append(param))

    operator = await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'ignored': 1, 'usual': 1})
    await cluster.wait_until_handled(usual=1)
    await cluster.patch({'spec': {'ignored': 2, 'usual': 2}})
    await cluster.wait_until_handled(usual=2)
    await operator.stop()
    await run_operator()
    await wait_until(lambda: ('resume', 'spec.usual') in calls)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == [(reason, 'spec.usual') for reason in ['create', 'update', 'resume', 'delete']]
