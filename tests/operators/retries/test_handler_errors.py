"""
Errors of handlers, as they are seen on the objects: when the handlers are tried again, and when
they are given up.
"""

import asyncio
import json
import logging

import pytest
from clusters import FINALIZER, LAST_HANDLED, get_last_handled, get_progress

import kopf

PREFIX = 'kopf.zalando.org'


def get_record(body, id):
    raw = (body['metadata'].get('annotations') or {}).get(f'{PREFIX}/{id}')
    return None if raw is None else json.loads(raw)


@pytest.fixture
def calls():
    """The moments of calls, in seconds of the virtual time since the first one."""
    return Calls()


class Calls(list):
    since = None

    def note(self):
        now = asyncio.get_running_loop().time()
        self.since = now if self.since is None else self.since
        self.append(round(now - self.since))


class MyTemporaryError(kopf.TemporaryError):
    pass


class MyPermanentError(kopf.PermanentError):
    pass


FAILURES = [
    pytest.param(lambda: kopf.TemporaryError('oops'), {}, [0, 60], id='temporary-by-default'),
    pytest.param(lambda: kopf.TemporaryError('oops', delay=7), {}, [0, 7], id='temporary-delayed'),
    pytest.param(
        lambda: kopf.TemporaryError('oops', delay=None), {}, [0, 0], id='temporary-at-once'
    ),
    pytest.param(
        lambda: kopf.TemporaryError('oops', delay=0), {}, [0, 0], id='temporary-with-zero'
    ),
    pytest.param(
        lambda: kopf.TemporaryError('oops', delay=7),
        {'backoff': 3},
        [0, 7],
        id='temporary-with-backoff',
    ),
    pytest.param(
        lambda: kopf.TemporaryError('oops', delay=7),
        {'errors': kopf.ErrorsMode.PERMANENT},
        [0, 7],
        id='temporary-in-permanent-mode',
    ),
    pytest.param(
        lambda: kopf.TemporaryError('oops', delay=7),
        {'errors': kopf.ErrorsMode.IGNORED},
        [0, 7],
        id='temporary-in-ignored-mode',
    ),
    pytest.param(lambda: ValueError('oops'), {}, [0, 60], id='arbitrary-by-default'),
    pytest.param(lambda: ValueError('oops'), {'backoff': 3}, [0, 3], id='arbitrary-with-backoff'),
    pytest.param(
        lambda: ValueError('oops'),
        {'errors': kopf.ErrorsMode.TEMPORARY, 'backoff': 3},
        [0, 3],
        id='arbitrary-in-temporary-mode',
    ),
    pytest.param(
        lambda: ValueError('oops'),
        {'errors': kopf.ErrorsMode.PERMANENT},
        [0],
        id='arbitrary-in-permanent-mode',
    ),
    pytest.param(
        lambda: ValueError('oops'),
        {'errors': kopf.ErrorsMode.IGNORED},
        [0],
        id='arbitrary-in-ignored-mode',
    ),
    pytest.param(lambda: kopf.PermanentError('oops'), {}, [0], id='permanent'),
    pytest.param(
        lambda: kopf.PermanentError('oops'),
        {'errors': kopf.ErrorsMode.TEMPORARY, 'retries': 5},
        [0],
        id='permanent-in-temporary-mode',
    ),
    pytest.param(lambda: MyTemporaryError('oops', delay=7), {}, [0, 7], id='subclass-of-temporary'),
    pytest.param(lambda: MyPermanentError('oops'), {}, [0], id='subclass-of-permanent'),
]


@pytest.mark.guarantee(
    'ERR-010',
    'ERR-011',
    'ERR-012',
    'ERR-014',
    'ERR-015',
    'ERR-016',
    'ERR-017',
    'ERR-018',
    'ERR-025',
    'NEW-035',
    'NEW-036',
)
@pytest.mark.parametrize('build_error, options, expected', FAILURES)
async def test_the_kind_of_an_error_tells_when_to_try_again(
    cluster, registry, run_operator, calls, build_error, options, expected
):
    @kopf.on.create('kopfexamples', registry=registry, **options)
    async def create_fn(retry, **_):
        calls.note()
        if retry == 0:
            raise build_error()

    await cluster.create()
    await run_operator()
    body = await cluster.wait_until_handled(x=1)
    await asyncio.sleep(600)

    assert calls == expected
    assert get_progress(body) == {}
    assert len(cluster.writes) == len(expected)


@pytest.mark.guarantee('NEW-035', 'NEW-036')
async def test_the_default_backoff_is_of_the_settings_and_only_for_arbitrary_errors(
    cluster, registry, run_operator, settings
):
    moments, since = {}, asyncio.get_running_loop().time()

    def build(id, error):
        async def fn(retry, **_):
            moments.setdefault(id, []).append(round(asyncio.get_running_loop().time() - since))
            if retry == 0:
                raise error

        return fn

    options = {'registry': registry}
    kopf.on.create('kopfexamples', id='default', **options)(build('default', Exception('oops')))
    kopf.on.create('kopfexamples', id='own', backoff=5, **options)(build('own', Exception('oops')))
    kopf.on.create('kopfexamples', id='temporary', **options)(
        build('temporary', kopf.TemporaryError('oops'))
    )
    settings.execution.default_backoff = 20
    await cluster.create()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert {id: last - first for id, (first, last) in moments.items()} == {
        'default': 20,
        'own': 5,
        'temporary': 60,
    }


@pytest.mark.parametrize('is_default', [True, False], ids=['default', 'own'])
async def test_delays_grow_with_every_attempt(
    cluster, registry, run_operator, settings, calls, is_default
):
    backoff = kopf.Backoff(first=1, factor=3, cap=20, jitter=0)
    if is_default:
        settings.execution.default_backoff = backoff

    @kopf.on.create('kopfexamples', registry=registry, backoff=None if is_default else backoff)
    async def create_fn(retry, **_):
        calls.note()
        if retry < 5:
            raise ValueError('oops')

    await cluster.create()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls == [0, 1, 4, 13, 33, 53]


async def test_delays_go_on_growing_after_a_restart(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry, backoff=kopf.Backoff(first=10, jitter=0))
    async def create_fn(retry, **_):
        calls.note()
        if retry < 3:
            raise ValueError('oops')

    await cluster.create()
    operator = await run_operator()
    await asyncio.sleep(15)
    await operator.stop()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls == [0, 10, 30, 70]


@pytest.mark.guarantee('ERR-001', 'ERR-003', 'ERR-004', 'ERR-006', 'NEW-116', 'NEW-117')
async def test_errors_are_kept_on_the_object_and_do_not_concern_others(
    cluster, registry, run_operator, logs, caplog
):
    @kopf.on.create('kopfexamples', id='temporary_fn', registry=registry)
    async def temporary_fn(**_):
        raise kopf.TemporaryError('not yet', delay=900)

    @kopf.on.create('kopfexamples', id='permanent_fn', registry=registry)
    async def permanent_fn(**_):
        raise kopf.PermanentError('never')

    @kopf.on.create('kopfexamples', id='arbitrary_fn', registry=registry, backoff=900)
    async def arbitrary_fn(**_):
        raise ValueError('a surprise')

    @kopf.on.create('kopfexamples', id='successful_fn', registry=registry)
    async def successful_fn(**_):
        return {'done': True}

    await cluster.create()
    await run_operator()
    body = await cluster.wait(
        lambda body: all(
            get_record(body, id)
            for id in ('temporary_fn', 'permanent_fn', 'arbitrary_fn', 'successful_fn')
        )
    )

    records = {
        id: get_record(body, id)
        for id in ('temporary_fn', 'permanent_fn', 'arbitrary_fn', 'successful_fn')
    }
    facts = {
        id: (record['retries'], record['success'], record['failure'], record.get('message'))
        for id, record in records.items()
    }
    assert facts == {
        'temporary_fn': (1, False, False, 'not yet'),
        'permanent_fn': (1, False, True, 'never'),
        'arbitrary_fn': (1, False, False, 'a surprise'),
        'successful_fn': (1, True, False, None),
    }
    assert {id for id, record in records.items() if 'delayed' in record} == {
        'temporary_fn',
        'arbitrary_fn',
    }
    assert {id for id, record in records.items() if 'stopped' in record} == {
        'permanent_fn',
        'successful_fn',
    }
    assert {record['purpose'] for record in records.values()} == {'create'}
    assert LAST_HANDLED not in body['metadata']['annotations']
    assert body['status'] == {'successful_fn': {'done': True}}
    traced = {
        record.getMessage().split("'")[1]
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.exc_info
    }
    assert traced == {'arbitrary_fn'}
    assert len([text for text in logs(logging.WARNING) if 'failed' in text]) == 3
    assert len([text for text in logs(logging.ERROR) if 'failed' in text]) == 2


@pytest.mark.guarantee('ERR-004')
async def test_those_who_wait_do_not_block_the_deletion(cluster, registry, run_operator):
    deleted = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        raise kopf.TemporaryError('not yet', delay=3600)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        deleted.append(asyncio.get_running_loop().time())

    await cluster.create()
    await run_operator()
    await cluster.wait(lambda body: get_record(body, 'create_fn'))
    before = asyncio.get_running_loop().time()
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert len(deleted) == 1
    assert deleted[0] - before < 1


@pytest.mark.guarantee('ERR-005')
async def test_unfinished_handlers_with_no_delays_are_continued_at_once_one_by_one(
    cluster, registry, run_operator
):
    calls, since = [], asyncio.get_running_loop().time()

    for id in ('one', 'two', 'three'):

        @kopf.on.create('kopfexamples', id=id, param=id, registry=registry)
        async def create_fn(param, **_):
            calls.append(param)

    await cluster.create()
    await run_operator(lifecycle=kopf.lifecycles.one_by_one)
    await cluster.wait_until_handled(x=1)

    assert calls == ['one', 'two', 'three']
    assert asyncio.get_running_loop().time() - since < 5


@pytest.mark.guarantee('ERR-013', 'ERR-025', 'TIP-001')
async def test_those_who_have_failed_are_called_for_the_next_change_but_not_after_a_restart(
    cluster, registry, run_operator
):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def failing_fn(spec, retry, reason, **_):
        calls.append((reason.value, spec['x'], retry))
        raise kopf.PermanentError('never')

    await cluster.create(spec={'x': 1})
    operator = await run_operator()
    await cluster.wait_until_handled(x=1)
    await operator.stop()
    await run_operator()
    await asyncio.sleep(600)
    assert calls == [('create', 1, 0)]
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)

    assert calls == [('create', 1, 0), ('update', 2, 0)]


@pytest.mark.guarantee('ERR-012', 'CFG-056')
async def test_those_who_have_failed_do_not_hold_a_deleted_object(cluster, registry, run_operator):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        raise kopf.PermanentError('never')

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
    await cluster.delete()
    await cluster.wait(lambda body: body is None)


@pytest.mark.guarantee('ERR-022', 'ERR-023', 'NEW-037', 'NEW-039', 'NEW-040')
@pytest.mark.parametrize(
    'error', [kopf.TemporaryError('my reason', delay=10), ValueError('my reason')]
)
async def test_retries_are_calls_in_total_and_nothing_is_waited_for_after_the_last_one(
    cluster, registry, run_operator, calls, error
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry, retries=3, backoff=10)
    async def create_fn(**_):
        calls.note()
        raise error

    @kopf.on.create('kopfexamples', registry=registry)
    async def waiting_fn(**_):
        raise kopf.TemporaryError('not yet', delay=900)

    await cluster.create()
    await run_operator()
    body = await cluster.wait(lambda body: (get_record(body, 'create_fn') or {}).get('failure'))

    assert calls == [0, 10, 20]
    assert asyncio.get_running_loop().time() - calls.since < 21
    assert 'my reason' in get_record(body, 'create_fn')['message']


@pytest.mark.guarantee('ERR-019', 'ERR-023', 'NEW-038')
@pytest.mark.parametrize(
    'error', [kopf.TemporaryError('my reason', delay=10), ValueError('my reason')]
)
async def test_the_timeout_is_for_all_attempts_and_is_not_waited_for_in_vain(
    cluster, registry, run_operator, calls, error
):
    @kopf.on.create('kopfexamples', registry=registry, timeout=25, backoff=10)
    async def create_fn(**_):
        calls.note()
        raise error

    await cluster.create()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls == [0, 10, 20]
    assert asyncio.get_running_loop().time() - calls.since < 21


@pytest.mark.guarantee('ERR-019', 'ERR-020')
async def test_a_coroutine_is_interrupted_at_its_timeout(cluster, registry, run_operator, calls):
    errors = []

    @kopf.on.create('kopfexamples', registry=registry, timeout=5)
    async def create_fn(**_):
        calls.note()
        try:
            await asyncio.sleep(3600)
        except TimeoutError:
            errors.append('timed out')
            raise

    await cluster.create()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls == [0]
    assert errors == ['timed out']
    assert asyncio.get_running_loop().time() - calls.since == pytest.approx(5, abs=0.5)


@pytest.mark.guarantee('ERR-019', 'ERR-024')
@pytest.mark.parametrize('options', [{'timeout': 100}, {'retries': 2}], ids=['timeout', 'retries'])
async def test_limits_are_counted_over_restarts(cluster, registry, run_operator, calls, options):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry, **options)
    async def create_fn(**_):
        calls.note()
        raise kopf.TemporaryError('not yet', delay=50)

    await cluster.create()
    operator = await run_operator()
    await cluster.wait(lambda body: get_record(body, 'create_fn'))
    await operator.stop()
    await asyncio.sleep(49 if 'retries' in options else 500)
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert len(calls) == (2 if 'retries' in options else 1)


@pytest.mark.guarantee('ERR-016')
async def test_ignored_errors_are_successes_in_the_progress(cluster, registry, run_operator):
    @kopf.on.create(
        'kopfexamples', id='ignoring_fn', registry=registry, errors=kopf.ErrorsMode.IGNORED
    )
    async def ignoring_fn(**_):
        raise ValueError('oops')

    @kopf.on.create('kopfexamples', id='waiting_fn', registry=registry)
    async def waiting_fn(**_):
        raise kopf.TemporaryError('not yet', delay=900)

    await cluster.create()
    await run_operator()
    body = await cluster.wait(
        lambda body: get_record(body, 'waiting_fn') and get_record(body, 'ignoring_fn')
    )

    assert get_record(body, 'ignoring_fn')['success'] is True
    assert get_last_handled(body) is None


async def test_the_delay_is_counted_from_the_end_of_the_attempt(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.note()
        await asyncio.sleep(30)
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=10)

    await cluster.create()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls == [0, 40]
