"""
Changes in the middle of a cycle: nothing is lost, nothing is mixed up, nobody is called twice for
the same.
"""

import asyncio
import json

import pytest
from clusters import get_last_handled, get_progress, wait_until

import kopf


class Gate:
    """Lets a handler fail until it is opened."""

    def __init__(self):
        self.is_open = False

    def pass_by(self):
        if not self.is_open:
            raise kopf.TemporaryError('not yet', delay=10)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def update_handlers(registry, gate, calls):
    """Two handlers of updates; the second one does not succeed until the gate is open."""

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', id='quick_fn', registry=registry)
    async def quick_fn(old, new, **_):
        calls.append(('quick', old['spec']['x'], new['spec']['x']))

    @kopf.on.update('kopfexamples', registry=registry)
    async def slow_fn(old, new, **_):
        gate.pass_by()
        calls.append(('slow', old['spec']['x'], new['spec']['x']))


async def test_a_change_in_mid_cycle_reaches_those_who_have_finished_before_it(
    cluster, update_handlers, run_operator, gate, calls
):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'x': 3}})
    await asyncio.sleep(15)
    gate.is_open = True
    body = await cluster.wait_until_handled(x=3)

    assert calls == [('quick', 1, 2), ('slow', 1, 3), ('quick', 2, 3)]
    assert not get_progress(body)


async def test_a_change_that_was_taken_back_in_mid_cycle_is_told_to_those_who_have_seen_it(
    cluster, update_handlers, run_operator, gate, calls
):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'x': 1}})
    gate.is_open = True
    await wait_until(lambda: len(calls) == 3)
    body = await cluster.wait_until_handled(x=1)

    assert sorted(calls) == [('quick', 1, 2), ('quick', 2, 1), ('slow', 2, 1)]
    assert not get_progress(body)


@pytest.mark.guarantee('CNT-003', 'CNT-004', 'CNT-005')
async def test_a_change_in_mid_cycle_during_the_downtime_is_not_lost(
    cluster, update_handlers, run_operator, gate, calls
):
    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait(lambda body: 'kopf.zalando.org/quick_fn' in body['metadata']['annotations'])
    await operator.stop()
    await cluster.patch({'spec': {'x': 3}})
    gate.is_open = True
    await run_operator()
    body = await cluster.wait_until_handled(x=3)

    assert calls == [('quick', 1, 2), ('slow', 1, 3), ('quick', 2, 3)]
    assert not get_progress(body)


async def test_a_change_during_the_creation_becomes_an_update_after_it(
    cluster, registry, run_operator, gate, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def quick_fn(spec, **_):
        calls.append(('quick', spec['x']))

    @kopf.on.create('kopfexamples', registry=registry)
    async def slow_fn(spec, **_):
        gate.pass_by()
        calls.append(('slow', spec['x']))

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        calls.append(('update', old['spec']['x'], new['spec']['x']))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'x': 2}})
    gate.is_open = True
    body = await cluster.wait_until_handled(x=2)

    assert calls == [('quick', 1), ('slow', 2), ('update', 1, 2)]
    assert not get_progress(body)


@pytest.mark.guarantee('HND-025')
async def test_an_own_change_does_not_call_its_maker_again_but_calls_the_others(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def counting_fn(spec, patch, **_):
        calls.append('counting')
        patch.spec['counter'] = spec.get('counter', 0) + 1

    @kopf.on.field('kopfexamples', field='spec.counter', registry=registry)
    async def watching_fn(old, new, **_):
        calls.append(('watching', old, new))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    body = await cluster.wait_until_handled(x=2, counter=1)

    assert calls == ['counting', ('watching', None, 1)]
    assert not get_progress(body)


async def test_a_foreign_change_besides_an_own_one_is_not_swallowed(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def stamping_fn(new, patch, **_):
        calls.append(new['spec']['x'])
        if new['spec']['x'] == 2:
            await cluster.patch({'spec': {'x': 3}})
        patch.metadata.annotations['seen'] = str(new['spec']['x'])

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    handled = {'spec': {'x': 3}, 'metadata': {'annotations': {'seen': '3'}}}
    body = await cluster.wait(
        lambda body: get_last_handled(body) == handled and not get_progress(body)
    )

    assert calls == [2, 3]
    assert body['metadata']['annotations']['seen'] == '3'


async def test_the_base_of_a_cycle_goes_with_the_progress_of_its_handlers(
    cluster, update_handlers, run_operator
):
    """
    Other implementations do not know what it is, but remove it as a part of the handler that refers
    to it.
    """
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    body = await cluster.wait(
        lambda body: 'kopf.zalando.org/kopf.cycle' in body['metadata']['annotations']
    )
    records = {key: json.loads(value) for key, value in get_progress(body).items()}

    assert records['kopf.zalando.org/quick_fn']['subrefs'] == ['kopf.cycle']
    assert records['kopf.zalando.org/kopf.cycle']['success'] is True


@pytest.mark.guarantee('FND-001')
async def test_changes_of_event_handlers_are_told_to_those_who_finish_meanwhile(
    cluster, registry, run_operator, calls
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(patch, spec, **_):
        if 'y' not in spec:
            patch.spec['y'] = 20

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(spec, **_):
        calls.append(spec.get('y'))

    await run_operator()
    await cluster.create()
    await asyncio.sleep(300)

    assert calls == [None, 20]


async def test_changes_that_are_sent_late_are_seen_by_the_next_handlers(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='first', registry=registry)
    async def first(patch, **_):
        calls.append('first')
        patch.spec['y'] = 20

    @kopf.on.create('kopfexamples', registry=registry)
    async def second(spec, **_):
        calls.append(spec.get('y'))

    await run_operator()
    cluster.sandbox.faults.inject(verb='patch', code=500, times=20)
    await cluster.create()
    await cluster.wait_until_handled(y=20)

    assert calls == ['first', 20]
