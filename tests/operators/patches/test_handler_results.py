"""
What handlers return, and what else they put into the objects: where it goes, and who sees it.
"""

import asyncio
import json
import logging

import pytest
from clusters import FINALIZER, Cluster, build_crd, get_last_handled, get_progress

import kopf


@pytest.fixture(
    params=[pytest.param(False, id='usual-status'), pytest.param(True, id='subresource-of-status')]
)
async def any_cluster(request, sandbox):
    """A cluster with a resource whose status is a subresource, or is not."""
    await sandbox.apply(build_crd(has_status=request.param))
    return Cluster(sandbox)


@pytest.mark.guarantee('FND-028')
@pytest.mark.parametrize(
    'result, expected',
    [
        pytest.param({'x': None}, {}, id='nothing-else'),
        pytest.param({'x': None, 'y': 1}, {'y': 1}, id='something-else'),
        pytest.param({'x': {'y': None}}, {'x': {}}, id='nested'),
    ],
)
async def test_absent_values_of_results_leave_the_rest(
    any_cluster, registry, run_operator, result, expected
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        return result

    await run_operator()
    await any_cluster.create()
    body = await any_cluster.wait_until_handled(x=1)

    assert body['status'] == {'create_fn': expected}


@pytest.mark.guarantee('RSL-001', 'RSL-002')
@pytest.mark.parametrize(
    'result',
    [
        100,
        0,
        1.5,
        True,
        False,
        '',
        'text',
        [1, {'a': 'b'}],
        [],
        {'r1': 1, 'r2': {'r3': [None]}},
    ],
    ids=repr,
)
async def test_any_result_is_in_the_status_by_the_id_of_its_handler(
    cluster, registry, run_operator, result
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        return result

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled(x=1)

    assert json.dumps(body['status']) == json.dumps({'create_fn': result})


@pytest.mark.guarantee('RSL-001', 'RSL-003')
async def test_ids_are_whole_keys_and_absent_results_are_absent(
    any_cluster, registry, run_operator
):
    @kopf.on.create('kopfexamples', id='explicit', registry=registry)
    async def explicit_fn(**_):
        return 1

    @kopf.on.field('kopfexamples', field='spec.a.b', id='fld', registry=registry)
    async def fld(new, **_):
        return new

    @kopf.on.create('kopfexamples', registry=registry)
    async def none_fn(**_):
        return None

    @kopf.on.create('kopfexamples', id='parent', registry=registry)
    async def parent(**_):
        async def child(param, retry, **_):
            if retry == 0:
                raise kopf.TemporaryError('not yet', delay=10)
            return {'ok': True}

        kopf.register(child, id='child-1', param=1)
        kopf.register(child, id='child-2', param=2)
        return 'done'

    await run_operator()
    await any_cluster.create(spec={'a': {'b': 123}})
    early = await any_cluster.wait(
        lambda body: 'kopf.zalando.org/parent' in get_progress(body) and 'status' in body
    )
    assert 'parent' not in early['status']
    await any_cluster.wait_until_handled(a={'b': 123})
    body = await any_cluster.wait(lambda body: 'parent' in body['status'])

    assert body['status'] == {
        'explicit': 1,
        'fld/spec.a.b': 123,
        'parent': 'done',
        'parent/child-1': {'ok': True},
        'parent/child-2': {'ok': True},
    }


@pytest.mark.guarantee('RSL-005')
async def test_results_are_seen_by_others_in_their_later_attempts(
    any_cluster, registry, run_operator
):
    seen = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def dependent_fn(status, retry, **_):
        if not status.get('create_pvc'):
            raise kopf.TemporaryError('no PVC yet', delay=10)
        seen.append((retry, status['create_pvc']['name']))

    @kopf.on.create('kopfexamples', id='create_pvc', registry=registry)
    async def create_pvc(retry, **_):
        if retry < 2:
            raise kopf.TemporaryError('no disk yet', delay=3)
        return {'name': 'the-claim'}

    await run_operator()
    await any_cluster.create()
    await any_cluster.wait_until_handled(x=1)

    assert seen == [(1, 'the-claim')]


@pytest.mark.guarantee('RSL-006')
async def test_results_survive_restarts(any_cluster, registry, run_operator):
    seen = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        return {'created': True}

    @kopf.on.resume('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def later_fn(status, reason, **_):
        seen.append((reason.value, dict(status)))

    operator = await run_operator()
    await any_cluster.create()
    await any_cluster.wait_until_handled(x=1)
    await any_cluster.wait(lambda body: body.get('status'))
    await operator.stop()
    operator = await run_operator()
    await any_cluster.patch({'spec': {'x': 2}})
    await any_cluster.wait_until_handled(x=2)

    assert seen[-1] == ('update', {'create_fn': {'created': True}})


@pytest.mark.guarantee('RSL-007', 'NEW-043')
async def test_results_are_not_changes_unless_someone_has_named_them(
    any_cluster, registry, run_operator
):
    calls = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        return {'a': {'b': 1}, 'c': 2}

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(diff, **_):
        calls.append(('update', diff))
        return 'updated'

    @kopf.on.field('kopfexamples', field='status.create_fn.a', registry=registry)
    async def field_fn(old, new, **_):
        calls.append(('field', old, new))

    await run_operator()
    await any_cluster.create()
    await any_cluster.wait(lambda body: (get_last_handled(body) or {}).get('status'))
    await asyncio.sleep(600)
    body = await any_cluster.get()

    assert ('field', None, {'b': 1}) in calls
    assert len([call for call in calls if call[0] == 'field']) == 1
    assert len([call for call in calls if call[0] == 'update']) <= 1
    assert get_last_handled(body) == {'spec': {'x': 1}, 'status': {'create_fn': {'a': {'b': 1}}}}
    assert get_progress(body) == {}


async def test_results_are_merged_into_those_of_the_past(cluster, registry, run_operator):
    @kopf.on.create('kopfexamples', id='fn', registry=registry)
    @kopf.on.update('kopfexamples', id='fn', registry=registry)
    async def fn(spec, **_):
        return {f'x{spec["x"]}': True, 'dropped': spec.get('dropped')}

    await run_operator()
    await cluster.create(spec={'x': 1, 'dropped': 'this'})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2, 'dropped': None}})
    body = await cluster.wait_until_handled(x=2)

    assert body['status'] == {'fn': {'x1': True, 'x2': True}}


async def test_results_that_are_not_json_are_dropped_with_an_error_and_are_not_made_again(
    any_cluster, registry, run_operator, logs
):
    calls = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        calls.append('create')
        return object()

    await run_operator()
    await any_cluster.create()
    body = await any_cluster.wait_until_handled(x=1)
    await asyncio.sleep(600)

    assert calls == ['create']
    assert 'create_fn' not in body.get('status', {})
    assert [line for line in logs(logging.ERROR) if 'JSON' in line]


async def test_results_of_deletion_do_no_harm(any_cluster, registry, run_operator, logs):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        return {'deleted': True}

    await run_operator()
    await any_cluster.create()
    await any_cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
    await any_cluster.delete()
    await any_cluster.wait(lambda body: body is None)
    await asyncio.sleep(60)

    assert logs(logging.WARNING) == []


@pytest.mark.guarantee('RSL-005')
async def test_results_are_not_lost_when_only_the_status_cannot_be_written_for_a_while(
    sandbox, registry, run_operator
):
    calls = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        patch.status['mine'] = 'too'
        return {'done': True}

    await sandbox.apply(build_crd(has_status=True))
    cluster = Cluster(sandbox)
    await run_operator()
    with sandbox.faults.inject(path='*/obj/status', code=500) as fault:
        await cluster.create()
        await fault.wait_until_hit()
        await asyncio.sleep(300)
    body = await cluster.wait(lambda body: body.get('status'))
    await cluster.wait_until_handled(x=1)

    assert body['status'] == {'create_fn': {'done': True}, 'mine': 'too'}


@pytest.mark.guarantee('WLD-011', 'CFG-056')
async def test_foreign_finalizers_come_and_go_by_the_will_of_their_owners(
    any_cluster, registry, run_operator
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.fns.append(
            lambda body: (
                body['metadata'].setdefault('finalizers', []).append('example.com/by-function')
            )
        )

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(name, body, **_):
        kept = [*body['metadata']['finalizers'], 'example.com/by-client']
        await any_cluster.patch({'metadata': {'finalizers': kept}}, name)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(body, patch, **_):
        patch.metadata['finalizers'] = [
            name for name in body['metadata']['finalizers'] if 'by-function' not in name
        ]

    await run_operator()
    await any_cluster.create(finalizers=['example.com/original'])
    await any_cluster.wait_until_handled(x=1)
    body = await any_cluster.wait(lambda body: len(body['metadata']['finalizers']) == 3)
    assert set(body['metadata']['finalizers']) == {
        'example.com/original',
        'example.com/by-function',
        FINALIZER,
    }
    await any_cluster.patch({'spec': {'x': 2}})
    await any_cluster.wait_until_handled(x=2)
    await any_cluster.delete()
    body = await any_cluster.wait(lambda body: FINALIZER not in body['metadata']['finalizers'])

    assert body['metadata']['finalizers'] == ['example.com/original', 'example.com/by-client']
