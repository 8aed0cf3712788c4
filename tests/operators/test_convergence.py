"""
Whatever happens to an object and to its operator, in the end everything is handled, and nothing is left behind.

Users edit and delete, foreign finalizers come and go, handlers fail, the streams break, the operator is killed in
the middle of anything and started again. Then everything calms down, and the operator has its time to finish.
"""
import asyncio
import collections
import contextlib
import dataclasses
import json
import random

import aiohttp
import hypothesis
import looptime
import pytest
from clusters import FINALIZER, build_crd, build_object, get_last_handled, get_progress
from hypothesis import strategies as st

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

NAME = 'obj'
FOREIGN = 'example.com/foreign'
HANDLERS = ['create_a', 'create_b', 'update_a', 'update_b', 'any_c', 'field_d', 'resume_e', 'delete_f', 'delete_g']

steps = st.one_of(
    st.tuples(st.just('edit'), st.sampled_from('xyd')),
    st.tuples(st.just('label'), st.none()),
    st.tuples(st.just('result'), st.none()),
    st.tuples(st.just('delete'), st.none()),
    st.tuples(st.just('hold'), st.none()),
    st.tuples(st.just('unhold'), st.none()),
    st.tuples(st.just('spoil'), st.sampled_from(HANDLERS)),
    st.tuples(st.just('repair'), st.sampled_from(HANDLERS)),
    st.tuples(st.just('stop'), st.none()),
    st.tuples(st.just('kill'), st.integers(0, 40)),
    st.tuples(st.just('start'), st.none()),
    st.tuples(st.just('cut'), st.none()),
    st.tuples(st.just('expire'), st.none()),
    st.tuples(st.just('sleep'), st.sampled_from([0, 0.001, 0.1, 1, 7, 30])),
)


@dataclasses.dataclass(frozen=True)
class Call:
    """A finished call of a handler: for which object, and from which essence to which."""
    handler: str
    uid: str
    old: str
    new: str


class World:
    """A cluster with one object, its users, and its operator that comes and goes."""

    def __init__(self, sandbox, seed):
        self.sandbox, self.random = sandbox, random.Random(seed)
        self.registry, self.spoilt, self.counter = kopf.OperatorRegistry(), set(), 0
        self.calls, self.kills, self.operator, self.session, self.stop_flag = [], 0, None, None, None
        self._declare()

    def _declare(self):
        on, resource, options = kopf.on, 'kopfexamples', {'registry': self.registry, 'backoff': 5}
        on.create(resource, id='create_a', **options)(self._make('create_a'))
        on.create(resource, id='create_b', **options)(self._make('create_b'))
        on.update(resource, id='update_a', **options)(self._make('update_a'))
        on.update(resource, id='update_b', **options)(self._make('update_b'))
        any_c = self._make('any_c')
        for decorator in (on.create, on.update, on.resume):
            decorator(resource, id='any_c', **options)(any_c)
        on.field(resource, id='field_d', field='spec.d', **options)(self._make('field_d'))
        on.resume(resource, id='resume_e', **options)(self._make('resume_e'))
        on.delete(resource, id='delete_f', **options)(self._make('delete_f'))
        on.delete(resource, id='delete_g', **options)(self._make('delete_g'))

    def _make(self, name):
        async def fn(uid, old, new, retry, patch, **_):
            await asyncio.sleep(self.random.choice([0, 0, 0.01, 1]))
            if name in self.spoilt:
                raise self.random.choice([kopf.TemporaryError("spoilt", delay=3), Exception("spoilt")])
            self.calls.append(Call(name, uid, _dump(old), _dump(new)))
            return {'uid': uid, 'retry': retry} if name in ('create_a', 'update_b') else None
        return fn

    async def edit(self, key):
        self.counter += 1
        await self._change({'spec': {key: self.counter}})

    async def label(self, _):
        self.counter += 1
        await self._change({'metadata': {'labels': {'label': str(self.counter)}}})

    async def result(self, _):
        self.counter += 1
        await self._change({'status': {'of-others': self.counter}})

    async def hold(self, _):
        body = await self.find()
        if body is None or 'deletionTimestamp' not in body['metadata']:
            await self._change({'metadata': {'finalizers': [*self._list_finalizers(body), FOREIGN]}})

    async def unhold(self, _):
        body = await self.find()
        if body is not None:
            left = [name for name in self._list_finalizers(body) if name != FOREIGN]
            await self._change({'metadata': {'finalizers': left}})

    async def delete(self, _):
        with contextlib.suppress(kopf.testing.ApiError):
            await self.sandbox.delete('kopfexamples', NAME)

    async def spoil(self, name):
        self.spoilt.add(name)

    async def repair(self, name):
        self.spoilt.discard(name)

    async def sleep(self, delay):
        await asyncio.sleep(delay)

    async def cut(self, _):
        self.sandbox.faults.cut_streams()

    async def expire(self, _):
        await self.sandbox.compact()
        self.sandbox.faults.end_streams(410)

    async def start(self, _):
        if self.operator is None:
            headers = {'Authorization': f'Bearer {self.sandbox.token}'}
            self.session, self.stop_flag = aiohttp.ClientSession(headers=headers), asyncio.Event()
            info = kopf.AiohttpSession(server=self.sandbox.url, aiohttp_session=self.session)
            self.operator = asyncio.create_task(kopf.operator(
                registry=self.registry, vault=vaults.Vault({'sandbox': info}), clusterwide=True,
                stop_flag=self.stop_flag), name='operator')

    async def stop(self, _):
        if self.operator is not None:
            self.stop_flag.set()
            await self.operator
            self.operator = None

    async def kill(self, turns):
        """Let nothing be written by the operator after so many turns of the loop, and let it end."""
        if self.operator is not None:
            self.kills += 1
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.session.close()
            self.operator.cancel()
            await asyncio.wait([self.operator])
            self.operator = None

    async def find(self):
        with contextlib.suppress(kopf.testing.ApiError):
            return await self.sandbox.get('kopfexamples', NAME)

    async def settle(self):
        """Let everything be well from now on, and wait until nothing happens any more."""
        self.spoilt.clear()
        await self.unhold(None)
        await self.start(None)
        version = None
        while True:
            await asyncio.sleep(600)
            body = await self.find()
            previous, version = version, body and body['metadata']['resourceVersion']
            if version == previous:
                break
        self.sandbox.requests.clear()
        await asyncio.sleep(3600)
        return await self.find()

    async def _change(self, patch):
        body = await self.find()
        if body is None:
            body = build_object(NAME, spec=patch.get('spec', {}), **patch.get('metadata', {}))
            await self.sandbox.create(body)
        else:
            await self.sandbox.patch('kopfexamples', NAME, patch)

    @staticmethod
    def _list_finalizers(body):
        return list(((body or {}).get('metadata') or {}).get('finalizers') or [])


def _dump(value):
    return json.dumps(value, sort_keys=True)


def check(world, body):
    writes = [asked for asked in world.sandbox.requests if asked.verb == 'patch']
    assert writes == [], "The operator still writes although nothing happens."
    repeats = sum(count - 1 for count in collections.Counter(world.calls).values())
    assert repeats <= world.kills * 2, "A finished handler was called again for the same change."
    if body is None:
        return
    assert 'deletionTimestamp' not in body['metadata'], "The object is not released."
    assert get_progress(body) == {}, "Some progress is left."
    assert body['metadata'].get('finalizers') == [FINALIZER]
    essence = get_last_handled(body)
    assert essence['spec'] == body['spec']
    assert (essence.get('metadata') or {}).get('labels') == body['metadata'].get('labels')
    calls = [call for call in world.calls if call.uid == body['metadata']['uid']]
    for group in [('create_a', 'update_a'), ('create_b', 'update_b'), ('any_c',)]:
        latest = [json.loads(call.new) for call in calls if call.handler in group][-1:]
        assert latest == [essence], f"The last change has not reached {group}."
    if 'd' in body['spec']:
        latest = [json.loads(call.new) for call in calls if call.handler == 'field_d'][-1:]
        assert latest == [body['spec']['d']]


async def live(seed, scenario):
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        await sandbox.apply(build_crd())
        world = World(sandbox, seed)
        try:
            await world.start(None)
            for name, argument in scenario:
                await getattr(world, name)(argument)
            body = await world.settle()
        finally:
            await world.stop(None)
        check(world, body)


@pytest.mark.guarantee('CNT-003', 'CNT-004', 'CNT-005', 'CNT-006', 'CNT-007', 'CNT-010', 'ERR-025', 'HND-025')
@hypothesis.given(seed=st.integers(0, 2**32), scenario=st.lists(steps, min_size=1, max_size=25))
@hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_everything_is_handled_in_the_end(seed, scenario):
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        looptime.patch_event_loop(loop, start=loop.time())
        runner.run(live(seed, scenario))
