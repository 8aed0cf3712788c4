"""
Fences: when requests are sent, and when they are not.
"""

import asyncio
import dataclasses

import aiohttp
import pytest

from kopf._cogs.clients import errors, fences, requests
from kopf._cogs.structs import credentials

URL = '/api/v1/namespaces/default/configmaps'
BODY = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'one'}}


@pytest.fixture(params=['own', 'aiohttp'])
async def fenced(request, sandbox, make_context):
    """A context of each kind of sessions, with a fence."""
    fence = fences.Fence()
    info = credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)
    async with aiohttp.ClientSession(headers={'Authorization': f'Bearer {sandbox.token}'}) as http:
        if request.param == 'aiohttp':
            info = credentials.AiohttpSession(server=sandbox.url, aiohttp_session=http)
        context = dataclasses.replace(make_context(admin=info), get_permit=fence.get_permit)
        context.settings.networking.error_backoffs = ()
        yield fence, context


def count_writes(sandbox):
    return len([one for one in sandbox.requests if one.verb in ('create', 'patch', 'delete')])


@pytest.mark.guarantee('LDR-009')
async def test_everything_is_sent_without_an_election(sandbox, fenced):
    fence, context = fenced

    await requests.post(URL, context=context, payload=BODY)

    assert fence.is_open
    assert not fence.is_needed
    assert fence.get_permit() is None


@pytest.mark.guarantee('LDR-009')
async def test_only_reading_requests_are_sent_while_not_leading(sandbox, fenced):
    fence, context = fenced
    fence.announce('ns/lease', 10.0)

    await requests.get(URL, context=context)
    with pytest.raises(errors.FencedRequestError, match='does not hold the Lease ns/lease'):
        await requests.post(URL, context=context, payload=BODY)
    with pytest.raises(errors.FencedRequestError):
        await requests.patch(f'{URL}/one', context=context, payload={})
    with pytest.raises(errors.FencedRequestError):
        await requests.delete(f'{URL}/one', context=context)

    assert count_writes(sandbox) == 0


@pytest.mark.guarantee('LDR-009')
async def test_the_leader_writes_until_its_deadline(sandbox, fenced, monkeypatch):
    fence, context = fenced
    fence.announce('ns/lease', 10.0)
    began = fence.read_clocks()
    fence.extend(began)
    await requests.post(URL, context=context, payload=BODY)
    assert fence.is_open

    late = dataclasses.replace(began, boot=began.boot + 10)
    monkeypatch.setattr(fence, 'read_clocks', lambda: late)
    with pytest.raises(errors.FencedRequestError, match=r'not renewed it for 10\.0 s'):
        await requests.delete(f'{URL}/one', context=context)

    assert count_writes(sandbox) == 1
    monkeypatch.undo()
    fence.extend(fence.read_clocks())
    assert fence.is_lost  # it never comes back


@pytest.mark.guarantee('LDR-009')
async def test_the_leadership_is_checked_after_the_connection_is_made(sandbox, fenced, monkeypatch):
    """The process stops while it connects, for example."""
    fence, context = fenced
    fence.announce('ns/lease', 10.0)
    fence.extend(fence.read_clocks())
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def stop_and_connect(*args, **kwargs):
        result = await connect(*args, **kwargs)
        fence.revoke()
        return result

    monkeypatch.setattr(loop, 'create_connection', stop_and_connect)
    with pytest.raises(errors.FencedRequestError):
        await requests.post(URL, context=context, payload=BODY)

    assert count_writes(sandbox) == 0


@pytest.mark.guarantee('LDR-009')
@pytest.mark.parametrize(
    'loop, boot, elapsed',
    [
        pytest.param(1, 1, 1, id='usual'),
        pytest.param(1, 60, 60, id='suspended-or-stopped-inside-of-an-iteration'),
        pytest.param(60, 0, 60, id='virtual-time'),
    ],
)
def test_the_longest_of_the_times_counts(loop, boot, elapsed):
    assert fences.Moment(5, 50).measure(fences.Moment(5 + loop, 50 + boot)) == elapsed


@pytest.mark.guarantee('LDR-009')
async def test_reports_are_sent_before_the_leadership_and_not_after_it():
    fence = fences.Fence()
    assert fence.get_lenient_permit() is None
    fence.announce('ns/lease', 10.0)
    permit = fence.get_lenient_permit()

    permit()
    fence.extend(fence.read_clocks())
    permit()
    fence.revoke()
    with pytest.raises(errors.FencedRequestError):
        permit()
