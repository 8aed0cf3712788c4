"""
Memos: what handlers remember of an object while it exists and the operator runs.
"""

import asyncio

import pytest
from clusters import wait_until

import kopf


@pytest.mark.guarantee('MEM-001', 'MEM-002', 'MEM-011')
async def test_all_handlers_of_an_object_share_one_memo_of_its_own(
    cluster, registry, run_operator, calls
):
    memos = {}

    async def fn(name, memo, **_):
        memos.setdefault(name, []).append(memo)
        memo.counter = memo.get('counter', 0) + 1
        memo[name] = True

    def sync_fn(name, memo, **_):
        memos.setdefault(name, []).append(memo)

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(memo, **_):
        calls.append(dict(memo))

    kopf.on.event('kopfexamples', registry=registry)(fn)
    kopf.on.create('kopfexamples', registry=registry)(fn)
    kopf.on.create('kopfexamples', registry=registry)(sync_fn)
    kopf.on.update('kopfexamples', registry=registry)(fn)
    kopf.on.delete('kopfexamples', registry=registry)(fn)
    operator = await run_operator()
    for name in ['a', 'b']:
        await cluster.create(name, spec={'x': 1})
        await cluster.wait_until_handled(name, x=1)
        await cluster.patch({'spec': {'x': 2}}, name)
        await cluster.wait_until_handled(name, x=2)
        await cluster.delete(name)
        await cluster.wait(lambda body: body is None, name)
    await operator.stop()

    for name in ['a', 'b']:
        assert len(memos[name]) > 5
        assert {id(memo) for memo in memos[name]} == {id(memos[name][0])}
        assert type(memos[name][0]) is kopf.Memo
        assert memos[name][0] == {'counter': len(memos[name]) - 1, name: True}
    assert memos['a'][0] is not memos['b'][0]
    assert calls == [{}]


@pytest.mark.guarantee('MEM-003')
async def test_an_object_created_anew_has_a_new_memo(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(memo, **_):
        calls.append(dict(memo))
        memo.known = True

    await run_operator()
    for _ in range(2):
        await cluster.create()
        await cluster.wait_until_handled()
        await cluster.delete()
    await asyncio.sleep(1)

    assert calls == [{}, {}]


@pytest.mark.guarantee('MEM-003')
async def test_a_memo_is_dropped_with_its_object_also_if_the_end_was_not_seen(
    cluster, registry, run_operator, calls
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(memo, type, **_):
        calls.append((type, memo.get('uid')))
        memo.setdefault('uid', 'old')

    await cluster.create()
    await run_operator()
    await wait_until(lambda: calls)
    with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', code=503):
        cluster.sandbox.faults.cut_streams()
        await cluster.delete()
        await cluster.create()
        await cluster.sandbox.compact()
        await asyncio.sleep(1)
    await wait_until(lambda: len(calls) == 3)

    assert sorted(calls, key=str) == [('ADDED', None), ('DELETED', 'old'), (None, None)]


@pytest.mark.guarantee('MEM-006', 'MEM-008', 'MEM-009', 'MEM-010')
async def test_memos_begin_as_shallow_copies_of_that_of_the_operator(
    cluster, registry, run_operator, calls
):
    operator_memo = []

    @kopf.on.startup(registry=registry)
    async def startup_fn(memo, **_):
        operator_memo.append(memo)
        memo.number, memo.shared = 1, []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(name, memo, spec, **_):
        calls.append((name, memo.number, memo.get('late')))
        memo.number += 1
        memo.shared.append(name)

    await run_operator()
    await cluster.create('early')
    await wait_until(lambda: len(calls) == 1)
    operator_memo[0].late = 'set later'
    await cluster.patch({'spec': {'x': 2}}, 'early')
    await wait_until(lambda: len(calls) == 2)
    await cluster.create('later')
    await wait_until(lambda: len(calls) == 3)

    assert calls == [('early', 1, None), ('early', 2, None), ('later', 1, 'set later')]
    assert operator_memo == [
        {'number': 1, 'shared': ['early', 'early', 'later'], 'late': 'set later'}
    ]


@pytest.mark.guarantee('MEM-006', 'MEM-007', 'MEM-008')
async def test_a_memo_from_outside_is_that_of_the_operator(cluster, registry, run_operator, calls):
    memo = kopf.Memo(given='from outside')

    @kopf.on.startup(registry=registry)
    async def startup_fn(memo, **_):
        memo.extended = 'at startup'

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(memo, **_):
        calls.append(memo)

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(memo, **_):
        calls.append(memo)

    operator = await run_operator(memo=memo)
    await cluster.create()
    await cluster.wait_until_handled()
    await operator.stop()

    assert calls == [{'given': 'from outside', 'extended': 'at startup'}] * 2
    assert calls[0] is not memo
    assert calls[1] is memo


class Shared:
    """Not a memo by itself; one and the same for all."""

    def __copy__(self):
        return self


class Copied:
    """Not a memo by itself, but can be copied."""


@pytest.mark.guarantee('MEM-007', 'MEM-012', 'MEM-013')
@pytest.mark.parametrize('cls', [Shared, Copied, dict, list])
async def test_memos_can_be_of_any_class(cluster, registry, run_operator, calls, cls):
    async def fn(memo, **_):
        calls.append(memo)

    kopf.on.startup(registry=registry)(fn)
    kopf.on.event('kopfexamples', registry=registry)(fn)
    memo = cls()
    await run_operator(memo=memo)
    for name in ['a', 'b']:
        await cluster.create(name)
    await wait_until(lambda: len(calls) == 3)

    assert calls[0] is memo
    assert all(type(given) is cls for given in calls)
    assert len({id(given) for given in calls}) == (1 if cls is Shared else 3)
    assert not getattr(memo, '__dict__', None)


@pytest.mark.guarantee('MEM-014')
async def test_memos_are_lost_on_restarts(cluster, registry, run_operator, calls):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(memo, **_):
        calls.append(dict(memo))
        memo.known = True

    await cluster.create()
    for times in [1, 2]:
        operator = await run_operator()
        await wait_until(lambda times=times: len(calls) == times)
        await operator.stop()

    assert calls == [{}, {}]
