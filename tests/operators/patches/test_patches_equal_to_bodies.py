"""
Patches that equal what their handlers were given: they are sent, as the object can have changed.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from clusters import Cluster, build_crd, get_last_handled
from settling import settle

import kopf

INITIAL = {'x': 1, 'y': 'initial', 'list': [1]}


@dataclasses.dataclass(eq=False)
class StatusCluster(Cluster):
    """A cluster that knows where the status is to be patched."""

    subresource: str = ''


@pytest.fixture(params=[False, True], ids=['usual-status', 'subresource-of-status'])
async def cluster(request, sandbox):
    await sandbox.apply(build_crd(has_status=request.param))
    return StatusCluster(sandbox, subresource='status' if request.param else '')


@dataclasses.dataclass(frozen=True)
class Way:
    """One change by others, and the value that the handler wants at the same path."""

    change: Mapping[str, Any]
    path: Sequence[str]
    wanted: Any  # the same as in the beginning

    def write(self, patch):
        *parents, key = self.path
        for parent in parents:
            patch = patch.setdefault(parent, {})
        patch[key] = self.wanted


every_way = pytest.mark.parametrize(
    'way',
    [
        pytest.param(Way({'spec': {'y': 'changed'}}, ['spec', 'y'], 'initial'), id='spec'),
        pytest.param(Way({'spec': {'list': [2]}}, ['spec', 'list'], [1]), id='list'),
        pytest.param(Way({'spec': {'added': 1}}, ['spec', 'added'], None), id='removal'),
        pytest.param(Way({'spec': {'y': None}}, ['spec', 'y'], 'initial'), id='restoration'),
        pytest.param(
            Way({'metadata': {'labels': {'l': 'changed'}}}, ['metadata', 'labels', 'l'], 'initial'),
            id='label',
        ),
        pytest.param(
            Way(
                {'metadata': {'annotations': {'a': 'added'}}},
                ['metadata', 'annotations', 'a'],
                None,
            ),
            id='annotation',
        ),
        pytest.param(
            Way({'status': {'phase': 'changed'}}, ['status', 'phase'], 'initial'), id='status'
        ),
    ],
)


def resolve(body, path):
    for key in path:
        body = (body or {}).get(key)
    return body


async def change_elsewhere(cluster, change):
    """Change the object through another client, as the handler itself or anybody else can do."""
    await cluster.patch(change, subresource=cluster.subresource if 'status' in change else '')


async def create(cluster):
    await cluster.create(spec=INITIAL, labels={'l': 'initial'})
    await cluster.patch({'status': {'phase': 'initial'}}, subresource=cluster.subresource)


@pytest.mark.guarantee('FND-018')
@every_way
@pytest.mark.parametrize('pause', [0, 1], ids=['at-once', 'seen'])
async def test_handlers_restore_what_was_changed_meanwhile(
    cluster, registry, run_operator, calls, way, pause
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        await change_elsewhere(cluster, way.change)
        await asyncio.sleep(pause)
        way.write(patch)

    await create(cluster)
    await run_operator()
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    assert calls == ['create']
    assert resolve(body, way.path) == way.wanted
    assert get_last_handled(body)['spec'] == body['spec']


@pytest.mark.guarantee('FND-018')
@every_way
@pytest.mark.parametrize('kind', ['event', 'daemon', 'timer'])
async def test_functions_of_all_kinds_restore_what_was_changed_meanwhile(
    cluster, registry, run_operator, calls, kind, way
):
    async def changing_fn(patch, **_):
        if calls:
            return
        calls.append(kind)
        await change_elsewhere(cluster, way.change)
        await asyncio.sleep(0.01)  # real clients take some time
        way.write(patch)

    decorator = {
        'event': kopf.on.event,
        'daemon': kopf.daemon,
        'timer': functools.partial(kopf.timer, interval=3600),
    }[kind]
    decorator('kopfexamples', registry=registry)(changing_fn)

    await create(cluster)
    await run_operator()
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    assert resolve(body, way.path) == way.wanted


@pytest.mark.guarantee('FND-018')
async def test_updates_made_and_taken_back_by_a_handler_are_no_updates(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(patch, reason, **_):
        calls.append(reason.value)
        await cluster.patch({'spec': {'y': 'changed'}})
        patch.spec['y'] = 'initial'

    await run_operator()
    await create(cluster)
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    assert calls == ['create']
    assert body['spec'] == get_last_handled(body)['spec'] == INITIAL
