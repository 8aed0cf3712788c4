"""
Something is cancelled inside a handler: it is an error of the handler, not the end of the worker.
"""

import asyncio

import pytest
from clusters import get_time

import kopf


async def await_cancelled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def test_handlers_of_changes_are_called_though_something_was_cancelled_in_those_of_events(
    cluster, registry, run_operator, calls, caplog
):
    @kopf.on.event('kopfexamples', id='event_fn', registry=registry)
    async def event_fn(**_):
        await await_cancelled()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert calls == ['create']
    assert "Handler 'event_fn' failed with an exception and will ignore it:" in caplog.text


@pytest.mark.guarantee('ERR-002')
async def test_something_cancelled_in_a_handler_is_an_error_of_the_handler(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry, retries=3, backoff=5)
    async def create_fn(retry, **_):
        calls.append((retry, get_time()))
        await await_cancelled()

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert [retry for retry, _ in calls] == [0, 1, 2]
    assert calls[2][1] - calls[0][1] == pytest.approx(10, abs=1)
