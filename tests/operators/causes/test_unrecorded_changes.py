"""
Changes that are handled but cannot be recorded on the object, or are taken back before they are
recorded: the handlers that have seen them are called again, and no changes are imagined.
"""

import asyncio
import json

import pytest
from clusters import LAST_HANDLED, get_last_handled, get_progress, wait_until

import kopf


@pytest.fixture
def world():
    """What handlers do outside of the cluster."""
    return {}


@pytest.fixture
def keep(registry, world):
    """Keep the outside as the fields of the spec are: by a handler for each of them."""

    def declare(field, do=lambda **_: None):
        @kopf.on.create('kopfexamples', id=field, registry=registry)
        @kopf.on.update('kopfexamples', id=field, field=f'spec.{field}', registry=registry)
        async def keep_fn(body, retry, **_):
            world[field] = body['spec'].get(field)
            do(retry=retry)

    return declare


@pytest.fixture
async def refuse(cluster):
    """Let the next change by the operator be refused."""

    def refuse():
        return cluster.sandbox.faults.inject(
            verb='patch', path='*/kopfexamples/obj', user_agent='kopf/*', code=422, times=1
        )

    return refuse


async def test_unrecorded_change_that_is_taken_back_is_retried_if_it_fails(
    cluster, run_operator, keep, refuse, world
):
    def fail(**_):
        if failures:
            failures.pop()
            raise kopf.TemporaryError('not yet', delay=5)

    failures = []
    keep('x', fail)
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    failures.append('once')
    await cluster.patch({'spec': {'x': 1}})
    await wait_until(lambda: not failures)
    world['x'] = 'not finished'
    await asyncio.sleep(600)

    body = await cluster.get()
    assert world == {'x': 1}
    assert get_last_handled(body)['spec'] == {'x': 1}
    assert not get_progress(body)


async def test_unrecorded_change_is_taken_back_for_those_who_have_seen_it_though_there_are_other_changes(
    cluster, run_operator, keep, refuse, world
):
    keep('x')
    keep('y')
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    await cluster.patch({'spec': {'x': 1, 'y': 5}})
    await cluster.wait_until_handled(x=1, y=5)

    assert world == {'x': 1, 'y': 5}


async def test_unrecorded_changes_are_forgotten_if_they_are_handled_by_others(
    cluster, registry, run_operator, refuse, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(old, new, **_):
        calls.append((old and old['spec']['x'], new['spec']['x']))

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    handled = {LAST_HANDLED: json.dumps({'spec': {'x': 3}})}
    await cluster.patch({'spec': {'x': 3}, 'metadata': {'annotations': handled}})
    await asyncio.sleep(600)

    assert calls == [(None, 1), (1, 2)]
    assert get_last_handled(await cluster.get())['spec'] == {'x': 3}


@pytest.mark.parametrize('size', [10, 70_000], ids=['small', 'big'])
async def test_change_taken_back_is_told_to_those_who_have_finished_however_big_the_object_is(
    cluster, run_operator, keep, world, size
):
    def fail_at_first(retry):
        if world['y'] == 2 and retry < 3:
            raise kopf.TemporaryError('not yet', delay=10)

    keep('x')
    keep('y', fail_at_first)
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1, 'y': 1, 'text': 'x' * size})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2, 'y': 2}})
    await wait_until(lambda: world == {'x': 2, 'y': 2})
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 1, 'y': 1}})
    await asyncio.sleep(600)

    body = await cluster.get()
    assert world == {'x': 1, 'y': 1}
    assert get_last_handled(body)['spec']['x'] == 1
    assert not get_progress(body)


async def test_change_taken_back_after_an_interruption_is_told_to_those_who_have_finished(
    cluster, registry, run_operator, keep, world, settings
):
    settings.queueing.exit_timeout = 1
    keep('x')

    @kopf.on.update('kopfexamples', registry=registry)
    async def slow_fn(**_):
        await asyncio.sleep(1000)

    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: world == {'x': 2})
    await asyncio.sleep(10)
    await operator.stop()
    await cluster.patch({'spec': {'x': 1}})
    await run_operator()

    await wait_until(lambda: world == {'x': 1}, timeout=5000)


async def test_handlers_that_spoil_the_bodies_do_not_imagine_changes(
    cluster, registry, run_operator, refuse, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(body, old, new, diff, **_):
        calls.append(list(diff))
        body['spec']['nested']['spoilt'] = True

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1, 'nested': {}})
    await cluster.wait_until_handled(x=1)
    calls.clear()
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    # As if only the answer was lost.
    recorded = {LAST_HANDLED: json.dumps({'spec': {'x': 2, 'nested': {}}})}
    await cluster.patch({'metadata': {'annotations': recorded}})
    await asyncio.sleep(600)

    assert calls == [[('change', ('spec', 'x'), 1, 2)]]
