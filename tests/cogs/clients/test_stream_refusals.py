"""
Streams that are refused from the beginning: those who can do without them are told of it, if they
want.
"""

import asyncio
import contextlib

import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.structs import references

CONFIGS = references.Resource('', 'v1', 'secrets', kind='Secret', namespaced=True)
LISTED = stream_states.Marker.LISTED


@pytest.fixture
async def stream(context):
    stream = event_streams.stream_events(
        CONFIGS, 'default', context=context, state=stream_states.StreamState(), refusals=(403,)
    )
    async with contextlib.aclosing(stream):
        yield stream


@pytest.mark.parametrize('is_streaming', [False, True], ids=['listing', 'streaming'])
async def test_refusals_are_raised_at_once(
    virtual_time, sandbox, operator_settings, stream, is_streaming
):
    operator_settings.watching.initial_streaming = is_streaming
    sandbox.faults.inject(verb='watch' if is_streaming else 'list', code=403)

    with pytest.raises(errors.APIForbiddenError):
        await anext(stream)

    assert virtual_time.elapsed < 0.5
    assert len(sandbox.requests) == 1


async def test_refusals_of_watching_are_raised_after_the_listing(sandbox, stream):
    sandbox.faults.inject(verb='watch', code=403)

    assert await anext(stream) is LISTED
    with pytest.raises(errors.APIForbiddenError):
        await anext(stream)


@pytest.mark.usefixtures('virtual_time')
async def test_other_errors_are_not_refusals(sandbox, stream):
    sandbox.faults.inject(verb='list', code=404, times=3)

    assert await anext(stream) is LISTED


@pytest.mark.usefixtures('virtual_time')
async def test_streams_that_were_permitted_once_are_not_refused_later(sandbox, stream):
    assert await anext(stream) is LISTED
    following = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(100)
    assert [asked.code for asked in sandbox.requests.select(verb='watch')] == [200]

    fault = sandbox.faults.inject(code=403, times=5)
    sandbox.faults.end_streams(410)

    assert await following is LISTED
    assert fault.hits == 5
