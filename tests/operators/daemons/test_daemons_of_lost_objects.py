"""
Daemons of objects that are lost and found, deleted and created anew.
"""

import asyncio

import pytest
from clusters import wait_until
from timed_notes import pass_time

import kopf
from kopf._core.reactor import inventory


@pytest.mark.guarantee('DMN-002', 'DMN-007')
async def test_daemons_of_recreated_objects_are_new(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', registry=registry)
    async def brief(uid, memo, **_):
        calls.append((uid, dict(memo)))
        memo.seen = True

    await run_operator()
    for times in [1, 2]:
        await cluster.create()
        await wait_until(lambda times=times: len(calls) == times)
        await cluster.delete()
        await cluster.wait(lambda body: body is None)

    assert len({uid for uid, _ in calls}) == 2
    assert [memo for _, memo in calls] == [{}, {}]


@pytest.mark.guarantee('DMN-002')
async def test_daemons_that_end_while_their_objects_go_do_not_bring_them_back(
    cluster, registry, run_operator, calls
):
    memories = inventory.Memories()

    @kopf.daemon('kopfexamples', registry=registry)
    async def brief(stopped, **_):
        calls.note('begin')
        await stopped.wait(30)
        calls.note('end', stopped.is_set())

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, **_):
        if calls:
            await asyncio.sleep(20)
            calls.note(type)

    await run_operator(memories=memories)
    await cluster.create()
    await wait_until(lambda: calls)
    await cluster.patch({'metadata': {'finalizers': []}})
    await cluster.delete()
    await pass_time(39)
    writes = len(cluster.writes)
    await pass_time(100)

    assert calls == [(0, 'begin'), (20, 'MODIFIED'), (30, 'end', False), (40, 'DELETED')]
    assert (len(memories), len(cluster.writes)) == (0, writes)


@pytest.mark.guarantee('DMN-036')
async def test_stopping_daemons_of_lost_objects_count_as_running_if_they_are_found(
    cluster, registry, run_operator, settings, calls
):
    settings.watching.label_selectors['kopfexamples'] = 'mark=yes'

    @kopf.daemon('kopfexamples', registry=registry)
    async def slow(stopped, **_):
        calls.note('begin')
        await stopped.wait()
        await asyncio.sleep(100)
        calls.note('end', stopped.reason)

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    await wait_until(lambda: calls)
    await cluster.patch({'metadata': {'labels': {'mark': 'no'}}})
    await pass_time(10)
    await cluster.patch({'metadata': {'labels': {'mark': 'yes'}}})
    await pass_time(200)
    reasons = kopf.DaemonStoppingReason
    assert calls == [(0, 'begin'), (100, 'end', reasons.RESOURCE_DELETED)]

    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(calls) == 3)
    assert calls[-1] == (210, 'begin')
