"""
Faults on request: what clients see when the API refuses, delays, stalls, disconnects, or goes away.
"""

import asyncio
import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request

import aiohttp
import pytest

import kopf.testing
from kopf._sandbox import faults

CONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'cm'}}
CONFIGS = '/api/v1/namespaces/default/configmaps'


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox):
    headers = {'User-Agent': 'tester/1.0', 'Authorization': f'Bearer {sandbox.token}'}
    async with aiohttp.ClientSession(sandbox.url, headers=headers) as session:
        yield session


async def ask(session, path, method='GET', **kwargs):
    async with session.request(method, path, **kwargs) as response:
        return response.status, await response.json(), response.headers


@contextlib.asynccontextmanager
async def watch(session, path=CONFIGS):
    """Open a watch-stream; get a function for its next event."""
    initial = 'fieldSelector=metadata.name!=kube-root-ca.crt'
    async with session.get(f'{path}?watch=true&{initial}') as response:

        async def get_next():
            return json.loads(await response.content.readline() or 'null')

        yield get_next


@pytest.mark.parametrize(
    'scope, affected',
    [
        pytest.param({}, True, id='everything'),
        pytest.param({'verb': 'list'}, True, id='verb'),
        pytest.param({'verb': 'GET'}, True, id='method'),
        pytest.param({'verb': 'watch'}, False, id='other-verb'),
        pytest.param({'resource': 'kopfexamples'}, True, id='resource'),
        pytest.param({'resource': 'kopfexamples.kopf.dev'}, True, id='resource-with-group'),
        pytest.param({'resource': 'kopfexamples.example.com'}, False, id='other-group'),
        pytest.param({'path': '/apis/*/kopfexamples'}, True, id='path'),
        pytest.param({'path': '/api/*'}, False, id='other-path'),
        pytest.param({'user_agent': 'kopf/*'}, True, id='agent'),
        pytest.param({'user_agent': 'kubectl*'}, False, id='other-agent'),
        pytest.param({'verb': 'list', 'user_agent': 'kubectl*'}, False, id='all-must-fit'),
    ],
)
def test_faults_are_for_the_matching_requests(scope, affected):
    asked = faults.Asked(
        'GET',
        '/apis/kopf.dev/v1/kopfexamples',
        verb='list',
        group='kopf.dev',
        plural='kopfexamples',
        user_agent='kopf/1.0',
    )

    assert faults.Scope(**scope).covers(asked) is affected


@pytest.mark.parametrize(
    'trouble, message',
    [
        pytest.param({}, 'needs an effect', id='nothing'),
        pytest.param({'verb': 'list', 'times': 1}, 'needs an effect', id='only-scope'),
        pytest.param({'code': 200}, '400 to 599, not 200', id='success'),
        pytest.param({'latency': -1}, 'cannot be negative: -1', id='negative-latency'),
        pytest.param(
            {'code': 500, 'times': 0}, 'positive number, or None for no limit, not 0', id='no-times'
        ),
        pytest.param(
            {'code': 500, 'times': -1},
            'positive number, or None for no limit, not -1',
            id='negative-times',
        ),
        pytest.param(
            {'code': 500, 'verb': 'LIST'},
            "one of get, list, .*, deletecollection, GET, .*, OPTIONS, not 'LIST'",
            id='verb',
        ),
    ],
)
async def test_meaningless_faults_are_refused(sandbox, trouble, message):
    with pytest.raises(ValueError, match=message):
        sandbox.faults.inject(**trouble)

    assert list(sandbox.faults) == []


@pytest.mark.parametrize(
    'act',
    [
        pytest.param(
            lambda sandbox: sandbox.faults.inject(code=500, resourse='pods', tims=1), id='inject'
        ),
        pytest.param(lambda sandbox: sandbox.faults.cut_streams(resourse='pods', tims=1), id='cut'),
        pytest.param(
            lambda sandbox: sandbox.faults.end_streams(410, resourse='pods', tims=1), id='end'
        ),
        pytest.param(lambda sandbox: sandbox.requests.select(resourse='pods', tims=1), id='select'),
    ],
)
async def test_misspelt_keywords_are_refused_with_the_known_ones(sandbox, act):
    with pytest.raises(
        TypeError, match=r'^Unknown keywords: resourse, tims; the known ones are verb, resource, '
    ):
        act(sandbox)

    assert list(sandbox.faults) == []


@pytest.mark.parametrize(
    'code, reason',
    [
        (403, 'Forbidden'),
        (409, 'Conflict'),
        (410, 'Expired'),
        (429, 'TooManyRequests'),
        (500, 'InternalError'),
        (503, 'ServiceUnavailable'),
        (504, 'Timeout'),
    ],
)
async def test_requests_are_refused_with_a_status(sandbox, session, code, reason):
    sandbox.faults.inject(code=code)

    answered, status, _ = await ask(session, CONFIGS)

    assert answered == code
    assert (status['kind'], status['code'], status['reason']) == ('Status', code, reason)
    assert sandbox.requests[-1].code == code


async def test_refusal_tells_when_to_come_back(sandbox, session):
    sandbox.faults.inject(code=429, retry_after=7, message='slow down', reason='Custom')

    _, status, headers = await ask(session, CONFIGS)

    assert (status['message'], status['reason'], status['details']) == (
        'slow down',
        'Custom',
        {'retryAfterSeconds': 7},
    )
    assert headers['Retry-After'] == '7'


async def test_refused_writes_write_nothing(sandbox, session):
    sandbox.faults.inject(code=500, verb='create', resource='configmaps')

    await ask(session, CONFIGS, 'POST', json=CONFIG)

    assert await sandbox.list('cm', fields='metadata.name=cm') == []


async def test_fault_acts_as_many_times_as_asked(sandbox, session):
    fault = sandbox.faults.inject(code=500, times=2)

    assert [(await ask(session, CONFIGS))[0] for _ in range(4)] == [500, 500, 200, 200]
    assert fault.hits == 2


async def test_fault_is_lifted_at_the_end_of_its_context(sandbox, session):
    with sandbox.faults.inject(code=500):
        assert (await ask(session, CONFIGS))[0] == 500

    assert (await ask(session, CONFIGS))[0] == 200


async def test_all_faults_are_lifted_at_once(sandbox, session):
    sandbox.faults.inject(code=500, verb='list')
    sandbox.faults.inject(code=503, verb='get')

    sandbox.faults.lift()

    assert (await ask(session, CONFIGS))[0] == 200
    assert list(sandbox.faults) == []


async def test_own_calls_of_the_sandbox_are_not_affected(sandbox):
    sandbox.faults.inject(code=500)

    assert await sandbox.create(CONFIG)


async def test_latency_delays_the_answer(sandbox, session, virtual_time):
    sandbox.faults.inject(latency=300)

    code, *_ = await ask(session, CONFIGS, timeout=aiohttp.ClientTimeout(total=1000))

    assert code == 200
    assert virtual_time.elapsed >= 300


async def test_stalled_request_goes_on_when_lifted(sandbox, session):
    fault = sandbox.faults.inject(stall=True)
    asking = asyncio.create_task(ask(session, CONFIGS))
    await fault.wait_until_hit()

    assert not asking.done()
    fault.lift()

    assert (await asking)[0] == 200


async def test_stalled_request_outlasts_the_patience_of_the_client(sandbox, session, virtual_time):
    sandbox.faults.inject(stall=True)

    with pytest.raises(TimeoutError):
        await ask(session, CONFIGS, timeout=aiohttp.ClientTimeout(total=60))

    assert virtual_time.elapsed >= 60


async def test_request_is_cut_without_an_answer(sandbox, session):
    # The client itself tries again once after a lost connection.
    sandbox.faults.inject(cut=True, times=2)

    with pytest.raises(aiohttp.ClientError):
        await ask(session, CONFIGS, 'POST', json=CONFIG)

    assert sandbox.requests[0].code is None
    assert await sandbox.list('cm', fields='metadata.name=cm') == []


async def test_open_streams_are_cut(sandbox, session):
    async with watch(session) as get_next:
        await sandbox.create(CONFIG)
        assert (await get_next())['type'] == 'ADDED'

        sandbox.faults.inject(verb='watch', cut=True, times=1)

        with pytest.raises(aiohttp.ClientError):
            await get_next()

    async with watch(session) as get_next:
        assert (await get_next())['type'] == 'ADDED'


async def test_open_streams_are_cut_once_without_a_fault(sandbox, session):
    async with watch(session) as get_next:
        assert sandbox.faults.cut_streams(resource='secrets') == 0
        assert sandbox.faults.cut_streams(resource='configmaps') == 1

        with pytest.raises(aiohttp.ClientError):
            await get_next()


async def test_open_streams_are_stalled(sandbox, session):
    async with (
        watch(session) as get_next,
        watch(session, '/api/v1/namespaces/default/secrets') as get_secret,
    ):
        fault = sandbox.faults.inject(verb='watch', resource='configmaps', stall=True)
        await sandbox.create(CONFIG)
        await sandbox.create({**CONFIG, 'kind': 'Secret'})
        stalled = asyncio.create_task(get_next())

        assert (await get_secret())['object']['kind'] == 'Secret'
        assert not stalled.done()
        fault.lift()

        assert (await stalled)['object']['kind'] == 'ConfigMap'


async def test_limited_stall_affects_no_other_streams(sandbox, session):
    fault = sandbox.faults.inject(verb='watch', stall=True, times=1)
    stalled = asyncio.create_task(ask(session, f'{CONFIGS}?watch=true'))
    await fault.wait_until_hit()

    async with watch(session) as get_next:
        await sandbox.create(CONFIG)
        assert (await get_next())['type'] == 'ADDED'

    stalled.cancel()
    await asyncio.wait([stalled])
    assert fault.hits == 1


async def test_open_streams_end_with_an_error_event(sandbox, session):
    async with watch(session) as get_next:
        await sandbox.create(CONFIG)
        assert (await get_next())['type'] == 'ADDED'

        ended = sandbox.faults.end_streams(410, resource='configmaps')

        event = await get_next()
        assert ended == 1
        assert (event['type'], event['object']['code'], event['object']['reason']) == (
            'ERROR',
            410,
            'Expired',
        )
        assert await get_next() is None

    assert (await ask(session, CONFIGS))[0] == 200


async def test_restart_keeps_the_port_and_the_objects_but_no_connections(sandbox, session):
    created = await sandbox.create(CONFIG)
    url = sandbox.url
    async with watch(session) as get_next:
        assert (await get_next())['type'] == 'ADDED'

        await sandbox.faults.restart()

        with pytest.raises(aiohttp.ClientError):
            await get_next()

    assert sandbox.url == url
    assert (await ask(session, f'{CONFIGS}/cm'))[1]['metadata']['uid'] == created['metadata']['uid']


@pytest.mark.parametrize(
    'compact, expected',
    [
        pytest.param(False, 'MODIFIED', id='history-kept'),
        pytest.param(True, 'ERROR', id='history-forgotten'),
    ],
)
async def test_watches_continue_after_a_restart_if_the_history_is_kept(
    sandbox, session, compact, expected
):
    version = (await sandbox.create(CONFIG))['metadata']['resourceVersion']
    await sandbox.patch('cm', 'cm', {'data': {'x': '1'}})

    await sandbox.faults.restart(compact=compact)

    async with session.get(f'{CONFIGS}?watch=true&resourceVersion={version}') as response:
        assert json.loads(await response.content.readline())['type'] == expected


async def test_nothing_listens_during_the_downtime(sandbox, session):
    downtime = asyncio.create_task(sandbox.faults.restart(downtime=3600))
    while True:
        try:
            await ask(session, CONFIGS)
        except aiohttp.ClientConnectorError:
            break
        except aiohttp.ClientError:  # a request that was caught by the restart
            pass

    downtime.cancel()
    await asyncio.wait([downtime])
    await sandbox.faults.restart()
    assert (await ask(session, CONFIGS))[0] == 200


async def test_downtime_is_by_the_clock_of_the_loop(sandbox, virtual_time):
    await sandbox.faults.restart(downtime=3600)

    assert 3600 <= virtual_time.elapsed < 3602


async def test_port_taken_during_the_downtime_is_an_error(sandbox, session):
    port = int(sandbox.url.rpartition(':')[2])
    downtime = asyncio.create_task(sandbox.faults.restart(downtime=0.2))
    while True:
        try:
            intruder = socket.create_server(('127.0.0.1', port))
        except OSError:
            await asyncio.sleep(0)
        else:
            break
    with intruder, pytest.raises(OSError):
        await downtime

    await sandbox.faults.restart()
    assert (await ask(session, CONFIGS))[0] == 200


def test_faults_are_injected_and_lifted_from_other_threads():
    with kopf.testing.Sandbox(tls=False) as sandbox:
        request = urllib.request.Request(
            f'{sandbox.url}{CONFIGS}', headers={'Authorization': f'Bearer {sandbox.token}'}
        )

        def ask_once():
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return response.status
            except urllib.error.HTTPError as e:
                with e:
                    return e.code

        with sandbox.faults.inject(code=503, times=1) as fault:
            with pytest.raises(TimeoutError):
                fault.wait_until_hit(timeout=0)
            assert [ask_once(), ask_once()] == [503, 200]
            assert fault.hits == 1

        stall = sandbox.faults.inject(stall=True)
        answers = []
        asking = threading.Thread(target=lambda: answers.append(ask_once()))
        asking.start()
        stall.wait_until_hit()
        assert answers == []
        sandbox.faults.lift()
        asking.join()
        assert answers == [200]

        sandbox.faults.restart()
        assert ask_once() == 200
        assert sandbox.faults.cut_streams() == sandbox.faults.end_streams() == 0


def test_stalled_requests_do_not_hold_the_end():
    with kopf.testing.Sandbox(tls=False) as sandbox:
        stall = sandbox.faults.inject(stall=True)
        client = socket.create_connection(('127.0.0.1', int(sandbox.url.rpartition(':')[2])))
        client.sendall(b'GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n')
        stall.wait_until_hit()

    with client:
        assert client.recv(100) == b''
