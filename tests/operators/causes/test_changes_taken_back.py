"""
Changes that are taken back before all handlers have seen them: those who have seen them are told
so.
"""

import asyncio

import pytest
from clusters import get_last_handled, get_progress

import kopf


class Gates:
    """Let handlers fail until their gates are opened."""

    def __init__(self):
        self.opened = set()

    def pass_by(self, name):
        if name not in self.opened:
            raise kopf.TemporaryError('not yet', delay=10)


@pytest.fixture
def gates():
    return Gates()


@pytest.fixture
def declare(registry, calls, gates):
    """
    Declare a handler of updates that waits for its gate, and then calls the function, if there is
    one.
    """
    kopf.on.create('kopfexamples', id='create', registry=registry)(lambda **_: None)

    def declare(name, do=None):
        @kopf.on.update('kopfexamples', id=name, registry=registry)
        async def fn(old, new, patch, **_):
            gates.pass_by(name)
            calls.append((name, old['spec'].get('x'), new['spec'].get('x')))
            if do is not None:
                await do(patch)

    return declare


async def has_settled(cluster, **spec):
    """Wait for a long time, and check that all is handled, and nothing is left in progress."""
    await asyncio.sleep(600)  # of the virtual time
    body = await cluster.get()
    return get_last_handled(body)['spec'] == spec and not get_progress(body)


@pytest.mark.guarantee('CNT-003')
async def test_a_change_that_was_taken_back_during_the_downtime_is_told_to_those_who_have_seen_it(
    cluster, registry, run_operator, declare, calls, gates
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(reason, **_):
        calls.append(('resume', str(reason)))

    declare('quick')
    declare('slow')
    gates.opened.add('quick')
    operator = await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(lambda body: 'kopf.zalando.org/slow' in get_progress(body))
    await operator.stop()
    await cluster.patch({'spec': {'x': 1}})
    gates.opened.add('slow')
    await run_operator()

    assert await has_settled(cluster, x=1)
    assert calls[0] == ('quick', 1, 2)
    assert sorted(calls[1:]) == [('quick', 2, 1), ('resume', 'update'), ('slow', 2, 1)]


async def test_a_change_that_was_taken_back_after_the_cycle_is_told_to_those_who_have_seen_it(
    cluster, run_operator, declare, calls, gates
):
    async def take_back(_):
        if len(calls) == 2:
            await cluster.patch({'spec': {'x': 2}})

    declare('quick')
    declare('slow', take_back)
    gates.opened.add('quick')
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(lambda body: 'kopf.zalando.org/slow' in get_progress(body))
    await cluster.patch({'spec': {'x': 3}})
    gates.opened.add('slow')

    assert await has_settled(cluster, x=2)
    assert calls == [('quick', 1, 2), ('slow', 1, 3), ('quick', 3, 2), ('slow', 3, 2)]


async def test_a_change_there_and_back_is_told_to_those_who_have_seen_its_middle(
    cluster, run_operator, declare, calls, gates
):
    declare('first')
    declare('second')
    declare('third')
    gates.opened.add('first')
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(lambda body: 'kopf.zalando.org/third' in get_progress(body))
    await cluster.patch({'spec': {'x': 3}})
    gates.opened.add('second')
    await cluster.wait(
        lambda body: '"success":true' in get_progress(body)['kopf.zalando.org/second']
    )
    await cluster.patch({'spec': {'x': 2}})
    gates.opened.add('third')

    assert await has_settled(cluster, x=2)
    assert calls == [('first', 1, 2), ('second', 1, 3), ('second', 1, 2), ('third', 1, 2)]


async def test_an_own_change_that_is_taken_back_by_others_is_told_to_its_maker(
    cluster, run_operator, declare, calls, gates, settings
):
    async def make(patch):
        if len(calls) == 1:
            patch.spec['y'] = 'made'
            cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', stall=True)

    declare('maker', make)
    gates.opened.add('maker')
    settings.persistence.consistency_timeout = 3600
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(lambda body: body['spec'].get('y') == 'made')
    await cluster.patch({'spec': {'y': None}})
    cluster.sandbox.faults.lift()

    assert await has_settled(cluster, x=2)
    assert calls == [('maker', 1, 2), ('maker', 2, 2)]


@pytest.mark.guarantee('FND-013')
@pytest.mark.parametrize('is_restarted', [False, True], ids=['waiting', 'restarted'])
async def test_a_change_that_was_taken_back_while_its_only_handler_waits_is_told_to_it(
    cluster, registry, run_operator, calls, is_restarted
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        calls.append((old['spec']['x'], new['spec']['x']))
        if len(calls) == 1:
            raise kopf.TemporaryError('not yet', delay=100)

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(get_progress)
    if is_restarted:
        await operator.stop()
    await cluster.patch({'spec': {'x': 1}})
    if is_restarted:
        await run_operator()

    assert await has_settled(cluster, x=1)
    assert calls == [(1, 2), (2, 1)]


@pytest.mark.guarantee('FND-013')
async def test_a_change_that_was_taken_back_before_anybody_has_begun_is_told_to_nobody(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        calls.append((old['spec']['x'], new['spec']['x']))

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await operator.stop()
    await cluster.patch({'spec': {'x': 2}})
    await cluster.patch({'spec': {'x': 1}})
    await run_operator()

    assert await has_settled(cluster, x=1)
    assert calls == []
