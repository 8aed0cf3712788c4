"""
While the streams are down or late, the work goes on from what our own changes have made of the
objects: nobody is called again for what is done already, and nothing is written twice.
"""

import asyncio

import pytest
from clusters import FINALIZER, get_last_handled, get_progress

import kopf


class Outage:
    """
    The streams of objects are silent or absent from the first call of a handler until it is over.
    """

    def __init__(self, cluster, fault):
        self._cluster, self._options, self._faults = cluster, fault, []

    def begin(self):
        if not self._faults:
            inject = self._cluster.sandbox.faults.inject
            self._faults.append(inject(verb='watch', resource='kopfexamples', **self._options))
            self._faults.append(inject(verb='list', resource='kopfexamples', cut=True))

    async def end(self):
        """Let the streams be there again, and bring all that is late."""
        for fault in self._faults:
            fault.lift()
        await asyncio.sleep(600)


@pytest.fixture(params=[{'stall': True}, {'cut': True}], ids=['silent', 'cut'])
def outage(request, cluster):
    return Outage(cluster, request.param)


def get_codes(cluster):
    return [asked.code for asked in cluster.writes]


@pytest.mark.guarantee('NEW-089', 'NEW-092', 'HND-025')
@pytest.mark.parametrize('timeout', [0, 5])
async def test_handlers_of_one_cycle_are_called_once_each(
    cluster, registry, run_operator, settings, outage, calls, timeout
):
    settings.persistence.consistency_timeout = timeout

    @kopf.on.create('kopfexamples', id='one', registry=registry)
    async def one(**_):
        calls.append('one')
        outage.begin()
        return 1

    @kopf.on.create('kopfexamples', id='two', registry=registry)
    async def two(status, **_):
        calls.append(f'two after {status.get("one")}')
        return 2

    @kopf.on.create('kopfexamples', id='three', registry=registry)
    async def three(status, **_):
        calls.append(f'three after {status.get("two")}')
        return 3

    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(120)
    body = await cluster.get()
    codes = get_codes(cluster)
    await outage.end()

    assert calls == ['one', 'two after 1', 'three after 2']
    assert codes == get_codes(cluster) == [200, 200, 200]
    assert body['status'] == {'one': 1, 'two': 2, 'three': 3}
    assert not get_progress(body)


@pytest.mark.guarantee('NEW-092', 'HND-025')
async def test_retries_are_counted_and_the_others_are_not_repeated(
    cluster, registry, run_operator, outage, calls
):
    @kopf.on.create('kopfexamples', id='done', registry=registry)
    async def done(**_):
        outage.begin()
        calls.append('done')

    @kopf.on.create('kopfexamples', registry=registry)
    async def retrying(retry, **_):
        calls.append(retry)
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=20)

    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(180)
    codes = get_codes(cluster)
    await outage.end()

    assert calls == ['done', 0, 1, 2, 3]
    assert codes == get_codes(cluster) == [200] * 5


@pytest.mark.guarantee('NEW-092', 'HND-060')
async def test_subhandlers_are_called_once_each(cluster, registry, run_operator, outage, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def parent(spec, **_):
        outage.begin()
        for key in spec['items']:

            @kopf.subhandler(id=key)
            async def child(retry, key=key, **_):
                calls.append((key, retry))
                if key == 'b' and not retry:
                    raise kopf.TemporaryError('not yet', delay=20)

    await run_operator()
    await cluster.create(spec={'items': ['a', 'b', 'c']})
    await asyncio.sleep(180)
    body = await cluster.get()
    await outage.end()

    assert sorted(calls) == [('a', 0), ('b', 0), ('b', 1), ('c', 0)]
    assert not get_progress(body)


@pytest.mark.guarantee('HND-036', 'NEW-083', 'NEW-086')
async def test_deletion_goes_on_to_the_end(cluster, registry, run_operator, outage, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.delete('kopfexamples', id='one', registry=registry)
    async def one(**_):
        calls.append('one')
        outage.begin()

    @kopf.on.delete('kopfexamples', id='two', registry=registry)
    async def two(**_):
        calls.append('two')

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    before = len(cluster.writes)
    await cluster.delete()
    await cluster.wait(lambda body: body is None, timeout=60)
    codes = get_codes(cluster)[before:]
    await outage.end()

    assert calls == ['one', 'two']
    assert codes == get_codes(cluster)[before:] == [200, 200]


@pytest.mark.guarantee('HND-034', 'NEW-083', 'NEW-086')
async def test_deletion_that_is_known_only_from_our_own_change_is_handled(
    cluster, registry, run_operator, outage, calls
):
    @kopf.on.create('kopfexamples', id='one', registry=registry)
    async def one(**_):
        calls.append('one')
        outage.begin()
        await cluster.delete()

    @kopf.on.create('kopfexamples', id='two', registry=registry)
    async def two(**_):
        calls.append('two')

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('deleted')

    await run_operator()
    await cluster.create(spec={'x': 1}, finalizers=[FINALIZER])
    await cluster.wait(lambda body: body is None, timeout=60)
    await outage.end()

    assert calls == ['one', 'deleted']


@pytest.mark.guarantee('NEW-089', 'HND-033')
async def test_foreign_changes_are_handled_as_soon_as_they_are_known(
    cluster, registry, run_operator, outage, calls
):
    @kopf.on.create('kopfexamples', id='one', registry=registry)
    async def one(spec, **_):
        calls.append(f'one {spec["x"]}')
        outage.begin()
        await cluster.patch({'spec': {'x': 2}})

    @kopf.on.create('kopfexamples', id='two', registry=registry)
    async def two(spec, **_):
        calls.append(f'two {spec["x"]}')

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        calls.append(f'update {old["spec"]["x"]} to {new["spec"]["x"]}')

    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(60)
    known = list(calls)
    await cluster.patch({'spec': {'x': 3}})
    await outage.end()
    body = await cluster.get()

    assert known == ['one 1', 'two 2', 'update 1 to 2']
    assert calls[3:] == ['update 2 to 3']
    assert get_last_handled(body)['spec'] == {'x': 3}
    assert not get_progress(body)


@pytest.mark.guarantee('NEW-089', 'NEW-095')
async def test_changes_of_timers_are_known_to_handlers(
    cluster, registry, run_operator, outage, calls
):
    @kopf.on.create('kopfexamples', id='one', registry=registry)
    async def one(**_):
        calls.append('one')
        outage.begin()

    @kopf.timer('kopfexamples', registry=registry, interval=1000)
    async def tick(patch, **_):
        await asyncio.sleep(1)
        patch.status['ticked'] = True

    @kopf.on.create('kopfexamples', id='two', registry=registry)
    async def two(status, **_):
        calls.append(f'two, ticked: {status.get("ticked")}')

    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(60)
    codes = get_codes(cluster)
    await outage.end()

    assert calls == ['one', 'two, ticked: True']
    assert codes == get_codes(cluster) == [200] * 4
