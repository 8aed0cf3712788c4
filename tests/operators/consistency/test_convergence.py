"""
Whatever happens to an object and to its operator, in the end everything is handled, and nothing is
left behind.

Users edit, delete and re-create, foreign finalizers come and go, handlers fail, the streams break,
the operator is killed in the middle of anything and started again. The server defaults, prunes,
normalises, labels or refuses what is written; the resource can be served in two versions; handlers
change their arguments in place, and patch their objects. Then everything calms down, and the
operator has its time to finish.
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
from kopf._kits.chaos import server_behaviours

NAME = 'obj'
FOREIGN = 'example.com/foreign'
HANDLERS = [
    'create_a',
    'create_b',
    'update_a',
    'update_b',
    'any_c',
    'field_d',
    'resume_e',
    'delete_f',
    'delete_g',
]
EACH_VERSION = False
"""
Whether the last change has to reach the handlers of each served version, or else of one of them:
the versions share one last handled state on the object, so a change that is handled for one version
is handled for the others.
"""

REPEATS = 10
"""
How many calls of a finished handler with no changes by others are too many, whatever has happened
before.
"""


def default_ports(body):
    for item in body['spec'].get('ports', ()):
        item.setdefault('protocol', 'TCP')


def prune_unknown(body):
    body['spec'].pop('unknown', None)


def lower_owner(body):
    if 'owner' in body['spec']:
        body['spec']['owner'] = body['spec']['owner'].lower()


def refuse_owner(body):
    if 'owner' in body['spec']:
        raise kopf.AdmissionError('No owners here.', code=422)


BEHAVIOURS = [default_ports, prune_unknown, lower_owner, refuse_owner]
NAMES_OF_BEHAVIOURS = [*server_behaviours.name_behaviours(BEHAVIOURS)]

steps = st.one_of(
    st.tuples(st.just('edit'), st.sampled_from('xyd')),
    st.tuples(st.just('recreate'), st.none()),
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
    """
    A finished call of a handler: for which object in which version, and from which essence to
    which.
    """

    handler: str
    version: str
    uid: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True)
class Habits:
    """
    What the operator does besides handling, and what the server does; by default, as little as
    possible.
    """

    edits_in_place: bool = False
    patches: bool = False
    # Whether the resource is served in two versions, with handlers for both.
    has_versions: bool = False
    server: tuple[str, ...] = ()


habits = st.builds(
    Habits,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(NAMES_OF_BEHAVIOURS), unique=True, max_size=2).map(tuple),
)


def put_name(body):
    body['spec']['names'] = sorted({*body['spec'].get('names', ()), 'own'})


class World:
    """A cluster with one object, its users, and its operator that comes and goes."""

    def __init__(self, sandbox, seed, habits):
        self.sandbox, self.random, self.habits = sandbox, random.Random(seed), habits
        self.registry, self.spoilt, self.counter = kopf.OperatorRegistry(), set(), 0
        self.calls, self.kills, self.operator, self.session, self.stop_flag = (
            [],
            0,
            None,
            None,
            None,
        )
        self.repeats, self.circling = (
            collections.Counter(),
            asyncio.get_running_loop().create_future(),
        )
        self._declare('v1', '')
        if habits.has_versions:
            self._declare('v2', 'v2_')

    def _declare(self, version, prefix):
        on, resource = kopf.on, ('kopf.dev', version, 'kopfexamples')
        options = {'registry': self.registry, 'backoff': 5}

        def declare(name, *decorators, **kwargs):
            fn = self._make(name)
            for decorator in decorators:
                decorator(*resource, id=f'{prefix}{name}', **options, **kwargs)(fn)

        declare('create_a', on.create)
        declare('create_b', on.create)
        declare('update_a', on.update)
        declare('update_b', on.update)
        declare('any_c', on.create, on.update, on.resume)
        declare('field_d', on.field, field='spec.d')
        declare('resume_e', on.resume)
        declare('delete_f', on.delete)
        declare('delete_g', on.delete)

    def _make(self, name):
        async def fn(uid, body, old, new, retry, patch, spec, **_):
            await asyncio.sleep(self.random.choice([0, 0, 0.01, 1]))
            if name in self.spoilt:
                raise self.random.choice(
                    [kopf.TemporaryError('spoilt', delay=3), Exception('spoilt')]
                )
            self._note(Call(name, body['apiVersion'], uid, _dump(old), _dump(new)))
            if self.habits.edits_in_place:
                spec.get('names', []).reverse()
                kopf.label(spec.get('template', {}), {'edited': 'in place'})
            if self.habits.patches and name == 'any_c':
                patch.status['of'] = uid
                patch.spec['ports'] = [{'port': 80}]
                patch.spec['unknown'] = True
                patch.spec['owner'] = 'Operator'
            if self.habits.patches and name == 'update_a':
                patch.fns.append(put_name)
            return {'uid': uid, 'retry': retry} if name in ('create_a', 'update_b') else None

        return fn

    def _note(self, call):
        """
        Remember a finished call; if there are too many of them with no changes by others, give up.
        """
        self.calls.append(call)
        self.repeats[call.handler, call.version, call.uid] += 1
        most = REPEATS + 2 * self.kills
        if self.repeats[call.handler, call.version, call.uid] > most and not self.circling.done():
            self.circling.set_exception(
                AssertionError(
                    f'The operator runs in circles: {call.handler} is called more than {most} times '
                    f'with no changes by others, from {call.old} to {call.new}.'
                )
            )

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
            await self._change(
                {'metadata': {'finalizers': [*self._list_finalizers(body), FOREIGN]}}
            )

    async def unhold(self, _):
        body = await self.find()
        if body is not None:
            left = [name for name in self._list_finalizers(body) if name != FOREIGN]
            await self._change({'metadata': {'finalizers': left}})

    async def delete(self, _):
        with contextlib.suppress(kopf.testing.ApiError):
            await self.sandbox.delete('kopfexamples', NAME)

    async def recreate(self, _):
        """
        Delete it together with its finalizers, and create it again as users know it, all at once.
        """
        body = await self.find()
        if body is None:
            return
        self.counter += 1
        if 'finalizers' in body['metadata']:
            await self.sandbox.patch('kopfexamples', NAME, {'metadata': {'finalizers': None}})
        await self.delete(None)
        await self._change({'spec': {'x': self.counter}})

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
            self.operator = asyncio.create_task(
                kopf.operator(
                    registry=self.registry,
                    vault=vaults.Vault({'sandbox': info}),
                    clusterwide=True,
                    stop_flag=self.stop_flag,
                ),
                name='operator',
            )

    async def stop(self, _):
        if self.operator is not None:
            self.stop_flag.set()
            await self.operator
            self.operator = None

    async def kill(self, turns):
        """
        Let nothing be written by the operator after so many turns of the loop, and let it end.
        """
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
        self.count = len(self.calls)
        await asyncio.sleep(3600)
        return await self.find()

    async def _change(self, patch):
        self.repeats.clear()
        body = await self.find()
        if body is None:
            spec = {
                'names': ['b', 'a'],
                'template': {'metadata': {'name': 'child'}},
                **patch.get('spec', {}),
            }
            body = build_object(NAME, spec=spec, **patch.get('metadata', {}))
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
    assert writes == [], 'The operator still writes although nothing happens.'
    assert world.calls[world.count :] == [], (
        'The handlers are still called although nothing happens.'
    )
    repeats = sum(count - 1 for count in collections.Counter(world.calls).values())
    assert repeats <= world.kills * 2, 'A finished handler was called again for the same change.'
    if body is None:
        return
    assert 'deletionTimestamp' not in body['metadata'], 'The object is not released.'
    assert get_progress(body) == {}, 'Some progress is left.'
    assert body['metadata'].get('finalizers') == [FINALIZER]
    check_results(world, body)
    essence = get_last_handled(body)
    assert essence['spec'] == body['spec']
    assert (essence.get('metadata') or {}).get('labels') == body['metadata'].get('labels')
    calls = [call for call in world.calls if call.uid == body['metadata']['uid']]
    versions = ['v1', 'v2'] if world.habits.has_versions and EACH_VERSION else ['']
    for version in versions:
        check_handlers(body, essence, [call for call in calls if call.version.endswith(version)])


def check_handlers(body, essence, calls):
    """Check that the last state of the object has reached all handlers of one version."""
    for group in [('create_a', 'update_a'), ('create_b', 'update_b'), ('any_c',)]:
        latest = [pick(json.loads(call.new)) for call in calls if call.handler in group][-1:]
        assert latest == [pick(essence)], f'The last change has not reached {group}.'
    if 'd' in body['spec']:
        latest = [json.loads(call.new) for call in calls if call.handler == 'field_d'][-1:]
        assert latest == [body['spec']['d']]


def check_results(world, body):
    """
    Check that the handlers have left on the object what they wanted to leave, for this very object.
    """
    assert body['spec']['template'] == {'metadata': {'name': 'child'}}, (
        'What was edited in place is stored.'
    )
    if not world.habits.patches:
        assert body['spec']['names'] == ['b', 'a'], 'What was edited in place is stored.'
    elif 'refuse_owner' not in world.habits.server:
        assert body['status']['of'] == body['metadata']['uid'], 'It is written for another object.'


def pick(essence):
    """Take what users change, without what the operator and the server add."""
    labels = (essence.get('metadata') or {}).get('labels') or {}
    return {key: essence['spec'].get(key) for key in ('x', 'y', 'd')}, labels.get('label')


async def live(seed, scenario, habits):
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        await sandbox.apply(build_versions(['v1', 'v2'] if habits.has_versions else ['v1']))
        await set_up_server(sandbox, habits.server)
        world = World(sandbox, seed, habits)
        try:
            body = await run_unless_circling(world, act(world, scenario))
            await world.stop(None)
        finally:
            await world.kill(0)
        check(world, body)


async def act(world, scenario):
    await world.start(None)
    for name, argument in scenario:
        await getattr(world, name)(argument)
    return await world.settle()


async def run_unless_circling(world, coro):
    """Run it, but not for longer than until the operator is caught to run in circles."""
    task = asyncio.create_task(coro, name='scenario')
    try:
        await asyncio.wait({task, world.circling}, return_when=asyncio.FIRST_COMPLETED)
        return world.circling.result() if world.circling.done() else await task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def set_up_server(sandbox, names):
    """Let the server do these things to whatever is written, as a mutating webhook."""
    server = server_behaviours.BehavingServer(BEHAVIOURS, names)
    await sandbox.add_service(
        server_behaviours.SERVICE['namespace'], server_behaviours.SERVICE['name'], server.review
    )
    await sandbox.create(server_behaviours.build_configuration())


def build_versions(names):
    crd = build_crd()
    (version,) = crd['spec']['versions']
    crd['spec']['versions'] = [
        {**version, 'name': name, 'storage': name == names[0]} for name in names
    ]
    return crd


@pytest.mark.guarantee(
    'CNT-003', 'CNT-004', 'CNT-005', 'CNT-006', 'CNT-007', 'CNT-010', 'ERR-025', 'HND-025'
)
@hypothesis.given(seed=st.integers(0, 2**32), scenario=st.lists(steps, min_size=1, max_size=25))
@hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
def test_everything_is_handled_in_the_end(seed, scenario):
    run(seed, scenario, Habits())


@pytest.mark.guarantee('FND-001', 'FND-002', 'FND-003', 'FND-004', 'FND-006', 'FND-008')
@hypothesis.given(
    seed=st.integers(0, 2**32), scenario=st.lists(steps, min_size=1, max_size=15), habits=habits
)
@hypothesis.example(770, [('edit', 'x')], Habits(patches=True, server=('default_ports',)))
@hypothesis.example(770, [('edit', 'x')], Habits(patches=True, server=('prune_unknown',)))
@hypothesis.example(770, [('edit', 'x')], Habits(patches=True, server=('lower_owner',)))
@hypothesis.example(770, [('edit', 'x')], Habits(patches=True, server=('refuse_owner',)))
@hypothesis.example(770, [('edit', 'x'), ('sleep', 7), ('edit', 'y')], Habits(edits_in_place=True))
@hypothesis.example(770, [('edit', 'x'), ('sleep', 7), ('edit', 'y')], Habits(has_versions=True))
@hypothesis.example(0, [('edit', 'x')], Habits(edits_in_place=True, has_versions=True))
@hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
def test_everything_is_handled_in_the_end_whatever_the_server_makes_of_it(seed, scenario, habits):
    run(seed, scenario, habits)


def run(seed, scenario, habits):
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        looptime.patch_event_loop(loop, start=loop.time())
        runner.run(live(seed, scenario, habits))
