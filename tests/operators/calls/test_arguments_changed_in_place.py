"""
Functions that change nested values of their arguments in place, with no effect on others.
"""

import asyncio
import json

import pytest
from clusters import get_last_handled
from settling import Calls, settle

import kopf

SPEC = {'x': 1, 'jobTemplate': {'metadata': {}}, 'items': [3, 1, 2], 'nested': {'key': 'value'}}


def copy(value):
    return json.loads(json.dumps(value))


def spoil(spec):
    """Change everything that can be changed in place."""
    spec['items'].sort()
    spec['nested']['key'] = 'spoilt'
    spec['jobTemplate']['metadata']['name'] = 'spoilt'


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
async def check(cluster, calls):
    """Create and edit an object; check the calls and the last handled states."""

    async def check(expected):
        await cluster.create(spec=SPEC)
        await settle(calls, lambda: cluster.writes)
        created = await cluster.get()
        await cluster.patch({'spec': {'x': 2}})
        await settle(calls, lambda: cluster.writes)
        updated = await cluster.get()

        assert calls == expected
        assert created['spec'] == get_last_handled(created)['spec'] == SPEC
        assert updated['spec'] == get_last_handled(updated)['spec'] == {**SPEC, 'x': 2}

    return check


@pytest.mark.guarantee('FND-004')
@pytest.mark.parametrize('effect', ['result', 'status', 'label', 'function', 'nothing'])
@pytest.mark.parametrize('way', ['adopted', 'sorted'])
async def test_handlers_that_change_their_arguments_in_place_are_called_once(
    cluster, registry, run_operator, calls, way, effect
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(spec, patch, reason, **_):
        calls.append(reason.value)
        if way == 'adopted':
            kopf.adopt(spec['jobTemplate'])
        else:
            spec['items'].sort()
        if effect == 'status':
            patch.status['done'] = True
        if effect == 'label':
            patch.metadata.labels['done'] = 'yes'
        if effect == 'function':
            patch.fns.append(
                lambda body: body['metadata'].setdefault('labels', {}).update(done='yes')
            )
        return {'job': 'made'} if effect == 'result' else None

    operator = await run_operator()
    await cluster.create(spec=SPEC)
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()
    await operator.stop()
    writes = len(cluster.writes)
    await run_operator()
    await settle(calls, lambda: cluster.writes)

    assert calls == ['create']
    assert writes <= 2
    assert len(cluster.writes) == writes
    assert body['spec'] == get_last_handled(body)['spec'] == SPEC


@pytest.mark.guarantee('FND-004')
@pytest.mark.parametrize('argument', ['body', 'spec', 'new', 'old'])
async def test_handlers_do_not_change_what_others_see(
    cluster, registry, run_operator, calls, check, argument
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def spoiling_fn(**kwargs):
        value = kwargs[argument]
        if value is not None:
            spoil(value if argument == 'spec' else value['spec'])
        return 'result'

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def watching_fn(old, new, diff, **_):
        calls.append((copy(old and old['spec']), copy(new['spec']), [item.field for item in diff]))

    await run_operator()
    await check([(None, SPEC, [()]), (SPEC, {**SPEC, 'x': 2}, [('spec', 'x')])])


@pytest.mark.guarantee('FND-004')
async def test_diffs_spoilt_by_a_handler_are_good_for_others(
    cluster, registry, run_operator, calls
):
    @kopf.on.update('kopfexamples', registry=registry)
    async def spoiling_fn(diff, **_):
        for item in diff:
            item.new.append('spoilt')
            item.old.append('spoilt')
        return 'result'

    @kopf.on.update('kopfexamples', registry=registry)
    async def watching_fn(diff, **_):
        calls.append([(copy(item.old), copy(item.new)) for item in diff])

    await run_operator()
    await cluster.create(spec=SPEC)
    await settle(calls, lambda: cluster.writes)
    await cluster.patch({'spec': {'items': [7]}})
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    assert calls == [[([3, 1, 2], [7])]]
    assert get_last_handled(body)['spec'] == body['spec'] == {**SPEC, 'items': [7]}


@pytest.mark.guarantee('FND-004')
@pytest.mark.parametrize('kind', ['event', 'index', 'filter', 'daemon', 'timer'])
async def test_functions_beside_handlers_do_not_change_what_handlers_see(
    cluster, registry, run_operator, calls, check, kind
):
    def spoil_spec(spec, **_):
        spoil(spec)

    def spoil_and_match(spec, **_):
        spoil(spec)
        return True

    async def watching_fn(old, new, diff, **_):
        calls.append((copy(old and old['spec']), copy(new['spec']), [item.field for item in diff]))
        return 'result'

    if kind == 'event':
        kopf.on.event('kopfexamples', registry=registry)(spoil_spec)
    if kind == 'index':
        kopf.index('kopfexamples', registry=registry, id='index')(spoil_spec)
    if kind == 'daemon':
        kopf.daemon('kopfexamples', registry=registry)(spoil_spec)
    if kind == 'timer':
        kopf.timer('kopfexamples', registry=registry, interval=7)(spoil_spec)
    when = spoil_and_match if kind == 'filter' else None
    kopf.on.create('kopfexamples', registry=registry, when=when)(watching_fn)
    kopf.on.update('kopfexamples', registry=registry, when=when)(watching_fn)

    await run_operator()
    await check([(None, SPEC, [()]), (SPEC, {**SPEC, 'x': 2}, [('spec', 'x')])])


@pytest.mark.guarantee('FND-003', 'FND-004')
@pytest.mark.parametrize(
    'decorator', [kopf.on.create, kopf.on.resume, kopf.on.delete, kopf.on.field]
)
async def test_values_changed_in_place_by_filters_are_not_seen(
    cluster, registry, run_operator, decorator
):
    def spoil(value, **_):
        if value:
            value[:] = ['spoiled']
        return True

    @decorator('kopfexamples', field='spec.items', value=spoil, registry=registry)
    async def filtered_fn(**_):
        pass

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(new, diff, **_):
        seen.append(new['spec']['items'])
        seen.append(diff[0].new['spec']['items'])

    @kopf.on.update('kopfexamples', id='update_fn', registry=registry)
    async def update_fn(diff, **_):
        seen.append(diff)

    seen = []
    await run_operator()
    await cluster.create(spec={'items': ['a', 'b']})
    await asyncio.sleep(60)
    body = await cluster.get()

    assert seen == [['a', 'b'], ['a', 'b']]
    assert get_last_handled(body)['spec'] == {'items': ['a', 'b']}
