"""
The sandbox as asynchronous tests of operators use it: `kopf.testing.Sandbox` in the current event
loop.
"""

import asyncio
import ssl
import threading

import aiohttp
import pytest
from sandbox_samples import CONFIG, CRD, EXAMPLE

import kopf.testing


async def test_coroutines_have_it_in_their_own_loop():
    before = threading.active_count()
    async with kopf.testing.Sandbox(apply=[CRD]) as sandbox:
        assert isinstance(sandbox, kopf.testing.AsyncSandbox)
        assert threading.active_count() == before
        await sandbox.apply(EXAMPLE)
        created = await sandbox.create(CONFIG)
        updated = await sandbox.update({**created, 'data': {}})
        patched = await sandbox.patch('cm', 'cm', {'data': {'x': '1'}})
        assert [body['metadata']['name'] for body in await sandbox.list('cm', labels='app')] == [
            'cm'
        ]
        assert await sandbox.get('cm', 'cm') == patched != updated
        await sandbox.delete('cm', 'cm')
        assert (await sandbox.add_user('alice')).kubeconfig.exists()
        assert sandbox.kubeconfig.exists() and sandbox.ca_path.exists()

        context = ssl.create_default_context(cadata=sandbox.ca_data.decode())
        headers = {'Authorization': f'Bearer {sandbox.token}'}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f'{sandbox.url}/apis/kopf.dev/v1/kopfexamples', ssl=context) as response,
        ):
            assert [item['metadata']['name'] for item in (await response.json())['items']] == ['ex']

        assert [asked.path for asked in sandbox.requests] == ['/apis/kopf.dev/v1/kopfexamples']
        await sandbox.compact()


@pytest.mark.parametrize('fraction', [0.0, 1e-7, 4e-7, 6e-7])
async def test_coroutines_wait_by_the_clock_of_their_loop(virtual_time, fraction):
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        with pytest.raises(TimeoutError):
            await sandbox.wait('cm', 'cm', lambda body: body is not None, timeout=1000 + fraction)
        events = [event async for event in sandbox.watch('secrets', timeout=1000 + fraction)]

        assert virtual_time.elapsed == pytest.approx(2000, abs=1e-4)
        assert events == []


async def test_coroutines_see_every_state_while_waiting():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        await sandbox.create(CONFIG)
        waiting = asyncio.create_task(
            sandbox.wait('cm', 'cm', lambda body: body and body['data'] == {'a': '2'})
        )
        await asyncio.sleep(0)
        await sandbox.patch('cm', 'cm', {'data': {'a': '2'}})
        await sandbox.patch('cm', 'cm', {'data': {'a': '3'}})

        assert (await waiting)['data'] == {'a': '2'}


async def test_coroutines_follow_an_object_through_its_absence():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        states = sandbox.follow('cm', 'cm')
        assert await anext(states) is None
        await sandbox.create(CONFIG)
        await sandbox.delete('cm', 'cm')
        assert (await anext(states))['data'] == {'a': '1'}
        assert await anext(states) is None
        await states.aclose()


async def test_coroutines_get_events_from_the_moment_of_the_call():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        await sandbox.create(CONFIG)
        events = sandbox.watch('cm', 'default', labels='app', timeout=0)
        states = sandbox.follow('cm', 'cm', timeout=0)
        await sandbox.patch('cm', 'cm', {'data': {'a': '2'}})
        await sandbox.delete('cm', 'cm')

        assert [(event['type'], event['object']['data']) async for event in events] == [
            ('ADDED', {'a': '1'}),
            ('MODIFIED', {'a': '2'}),
            ('DELETED', {'a': '2'}),
        ]
        assert [body and body['data'] async for body in states] == [{'a': '1'}, {'a': '2'}, None]


async def test_iterators_of_coroutines_end_when_the_sandbox_is_left():
    async def collect(items):
        return [item async for item in items]

    async with kopf.testing.Sandbox(tls=False) as sandbox:
        following = asyncio.create_task(collect(sandbox.follow('cm', 'cm')))
        watching = asyncio.create_task(collect(sandbox.watch('secrets')))
        waiting = asyncio.create_task(sandbox.wait('cm', 'cm', lambda body: body is not None))
        unused = sandbox.watch('secrets')
        await asyncio.sleep(0)

    async with asyncio.timeout(10):
        assert (await following, await watching, await collect(unused)) == ([None], [], [])
        with pytest.raises(RuntimeError, match='no longer running'):
            await waiting


async def test_waiting_survives_the_removal_of_the_resource():
    async with kopf.testing.Sandbox(tls=False, apply=[CRD, EXAMPLE]) as sandbox:
        waiting = asyncio.create_task(sandbox.wait('kex', 'ex', lambda body: body is None))
        await asyncio.sleep(0)

        await sandbox.delete('crd', 'kopfexamples.kopf.dev')

        assert await waiting is None


async def test_waiting_can_be_cancelled():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        waiting = asyncio.create_task(sandbox.wait('cm', 'cm', lambda body: body is not None))
        await asyncio.sleep(0)

        waiting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await sandbox.create(CONFIG)


async def test_errors_of_coroutines_are_not_masked():
    with pytest.raises(ZeroDivisionError):
        async with kopf.testing.Sandbox(tls=False):
            1 / 0  # noqa: B018


async def test_open_watches_do_not_outlive_the_sandbox():
    async with aiohttp.ClientSession() as session:
        async with kopf.testing.Sandbox(tls=False) as sandbox:
            headers = {'Authorization': f'Bearer {sandbox.token}'}
            response = await session.get(
                f'{sandbox.url}/api/v1/namespaces?watch=true', headers=headers
            )
            await response.content.readline()

        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
        response.close()
