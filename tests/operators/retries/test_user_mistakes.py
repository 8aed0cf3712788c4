"""
Mistakes in filters, storages, patch functions and results: an error names the handler and the
object, the object is left in peace for a while, and nothing is written or called twice.
"""

import asyncio
import logging

import pytest
from clusters import get_last_handled, get_progress

import kopf


@pytest.fixture
def settings(settings):
    settings.queueing.error_delays = [100]
    return settings


@pytest.fixture
def errors(caplog):
    return lambda: [record for record in caplog.records if record.levelno >= logging.ERROR]


def fail(*_, **__):
    raise ZeroDivisionError('a mistake')


@pytest.mark.guarantee('FLT-029')
@pytest.mark.parametrize(
    'filters',
    [
        pytest.param({'when': fail}, id='when'),
        pytest.param({'labels': {'a': fail}}, id='labels'),
        pytest.param({'annotations': {'a': fail}}, id='annotations'),
        pytest.param({'field': 'spec.x', 'value': fail}, id='value'),
    ],
)
async def test_failing_filter_is_named_with_its_handler_and_the_object_is_left_in_peace(
    cluster, registry, run_operator, errors, filters
):
    kopf.on.create('kopfexamples', id='filtered', registry=registry, **filters)(lambda **_: None)
    await run_operator()
    await cluster.create()
    await asyncio.sleep(250)

    assert len(errors()) == 3
    assert all("Handler 'filtered" in error.getMessage() for error in errors())
    assert all('a mistake' in error.getMessage() for error in errors())
    assert {error.k8s_ref['name'] for error in errors()} == {'obj'}
    assert cluster.writes == []


async def test_result_that_is_not_json_is_dropped_and_the_rest_is_recorded(
    cluster, registry, run_operator, errors, calls
):
    @kopf.on.create('kopfexamples', id='wrong_fn', registry=registry)
    async def wrong_fn(**_):
        calls.append('wrong')
        return object()

    @kopf.on.create('kopfexamples', id='right_fn', registry=registry)
    async def right_fn(**_):
        calls.append('right')
        return 'result'

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled(x=1)
    await asyncio.sleep(600)

    assert body['status'] == {'right_fn': 'result'}
    assert sorted(calls) == ['right', 'wrong']
    [error] = errors()
    assert "'wrong_fn'" in error.getMessage()
    assert error.k8s_ref['name'] == 'obj'


def make_nonsense(body):
    body['spec'] = object()


def never_settle(body):
    body['spec'].setdefault('items', []).append(len(body['spec']['items']))


@pytest.mark.parametrize(
    'fn, expected',
    [
        pytest.param(fail, (1, 1), id='fails'),
        pytest.param(make_nonsense, (1, 1), id='nonsense'),
        pytest.param(never_settle, (2, 0), id='never-settles'),
        pytest.param(lambda body: 'ignored', (1, 0), id='returns-something'),
    ],
)
async def test_patch_functions_are_called_for_one_change_and_not_repeated(
    cluster, registry, run_operator, calls, errors, fn, expected
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('called')
        patch.fns.append(fn)

    await run_operator()
    await cluster.create()
    await asyncio.sleep(600)
    body = await cluster.get()

    assert calls == ['called']
    assert get_last_handled(body)['spec'] == body['spec']
    assert not get_progress(body)
    assert (len(cluster.writes), len(errors())) == expected


class BrokenStorage(kopf.AnnotationsDiffBaseStorage):
    def store(self, **_):
        fail()


async def test_handlers_are_not_called_again_and_again_if_a_storage_fails(
    cluster, registry, run_operator, settings, calls, errors
):
    settings.persistence.diffbase_storage = BrokenStorage()
    kopf.on.create('kopfexamples', registry=registry)(lambda **_: calls.append('called'))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(250)

    assert len(calls) == 3  # once in a throttled time: it cannot be remembered that it is done
    assert all('a mistake' in error.getMessage() for error in errors())
    assert cluster.writes == []
