"""
Objects that are re-created under the same names while the former ones are being handled.
"""

import asyncio
import contextlib
import functools
import json

import pytest
from clusters import Cluster, build_crd, get_last_handled, wait_until
from settling import Calls, settle

import kopf
import kopf.testing

OLD, NEW = {'x': 1}, {'x': 9}


def set_spec(patch, uid):
    patch.spec['by'] = uid


def set_label(patch, uid):
    patch.metadata.labels['by'] = uid


def set_status(patch, uid):
    patch.status['by'] = uid


def set_by_function(patch, uid):
    patch.fns.append(lambda body: body['spec'].update(by=uid))


def set_status_by_function(patch, uid):
    patch.fns.append(lambda body: body.setdefault('status', {}).update(by=uid))


def set_nothing(patch, uid):
    pass


WAYS = [set_spec, set_label, set_status, set_by_function, set_status_by_function, set_nothing]


@pytest.fixture(params=[False, True], ids=['usual-status', 'subresource-of-status'])
async def cluster(request, sandbox):
    await sandbox.apply(build_crd(has_status=request.param))
    return Cluster(sandbox)


@pytest.fixture
def calls():
    return Calls()


async def recreate(cluster):
    """Replace the object with another one of its name, whatever holds it."""
    await cluster.delete()
    with contextlib.suppress(kopf.testing.ApiError):
        await cluster.patch({'metadata': {'finalizers': None}})
    return await cluster.create(spec=NEW)


async def read_states(cluster, uid):
    """Read all states of the object of this uid."""
    states = []
    crd = await cluster.sandbox.get('customresourcedefinitions', 'kopfexamples.kopf.dev')
    since = crd['metadata']['resourceVersion']
    async with contextlib.aclosing(
        cluster.sandbox.watch(cluster.plural, since=since, timeout=1)
    ) as events:
        async for event in events:
            if event['object']['metadata']['uid'] == uid:
                states.append(event['object'])
    return states


async def check_states(cluster, former, present):
    """Check that nothing of the former object has ever been in the present one."""
    states = await read_states(cluster, present['metadata']['uid'])

    assert states
    assert all(former['metadata']['uid'] not in json.dumps(state) for state in states)
    assert all(
        (get_last_handled(state) or {'spec': NEW})['spec']['x'] == NEW['x'] for state in states
    )


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize('change', WAYS)
async def test_creations_of_namesakes_are_handled_from_the_beginning(
    cluster, registry, run_operator, calls, change
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(reason, spec, uid, patch, **_):
        calls.append((reason.value, uid))
        if spec['x'] == OLD['x']:
            objects.append(await recreate(cluster))
            await asyncio.sleep(1)
        change(patch, uid)

    objects = []
    await run_operator()
    objects.append(await cluster.create(spec=OLD))
    await settle(calls, lambda: cluster.writes)
    former, present = objects

    assert calls == [('create', body['metadata']['uid']) for body in objects]
    await check_states(cluster, former, present)


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize('change', WAYS)
async def test_patches_on_their_way_do_not_reach_namesakes(
    cluster, registry, run_operator, calls, change
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(reason, uid, patch, **_):
        calls.append((reason.value, uid))
        change(patch, uid)

    await run_operator()
    with cluster.sandbox.faults.inject(
        verb='patch', latency=5, user_agent='kopf/*', times=1
    ) as fault:
        former = await cluster.create(spec=OLD)
        await wait_until(lambda: fault.hits == 1)
        present = await recreate(cluster)
        await settle(calls, lambda: cluster.writes)

    assert calls == [('create', body['metadata']['uid']) for body in (former, present)]
    await check_states(cluster, former, present)


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize('change', WAYS[:-1])
@pytest.mark.parametrize('kind', ['event', 'daemon', 'timer', 'resume', 'delete'])
async def test_functions_of_all_kinds_do_not_change_namesakes(
    cluster, registry, run_operator, calls, kind, change
):
    async def changing_fn(uid, spec, patch, **_):
        if spec['x'] != OLD['x'] or objects[1:]:
            return
        objects.append(await recreate(cluster))
        await asyncio.sleep(1)
        change(patch, uid)

    decorator = {
        'event': kopf.on.event,
        'daemon': kopf.daemon,
        'timer': functools.partial(kopf.timer, interval=3600),
        'resume': kopf.on.resume,
        'delete': kopf.on.delete,
    }[kind]
    decorator('kopfexamples', registry=registry)(changing_fn)

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(uid, **_):
        calls.append(uid)

    objects = [await cluster.create(spec=OLD)]
    await run_operator()
    await settle(calls, lambda: cluster.writes)
    if kind == 'delete':
        await cluster.delete()
        await settle(calls, lambda: cluster.writes)
    former, present = objects

    assert calls.count(present['metadata']['uid']) == 1
    assert calls.count(former['metadata']['uid']) <= 1  # it can be known already that it is gone
    await check_states(cluster, former, present)


@pytest.mark.guarantee('FND-006')
async def test_finalizers_are_not_put_on_namesakes(cluster, registry, run_operator, calls):
    @kopf.on.delete('kopfexamples', registry=registry, annotations={'held': 'yes'})
    async def delete_fn(**_):
        pass

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(uid, **_):
        calls.append(uid)

    await run_operator()
    with cluster.sandbox.faults.inject(
        verb='patch', latency=5, user_agent='kopf/*', times=1
    ) as fault:
        former = await cluster.create(spec=OLD, annotations={'held': 'yes'})
        await wait_until(lambda: fault.hits == 1)
        present = await recreate(cluster)
        await settle(calls, lambda: cluster.writes)

    states = await read_states(cluster, present['metadata']['uid'])
    assert all('finalizers' not in state['metadata'] for state in states)
    assert calls == [present['metadata']['uid']]
    await check_states(cluster, former, present)
