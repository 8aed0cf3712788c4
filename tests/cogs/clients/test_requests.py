"""
Requests: what is sent and returned, and what happens when something goes wrong.
"""

import asyncio
import itertools
import logging

import aiohttp
import pytest

from kopf._cogs.clients import errors, requests, retries
from kopf._cogs.structs import credentials

CONFIGS = '/api/v1/namespaces/default/secrets'
CONFIG = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'cm'}}
AT_ONCE = requests.Options(backoffs=())


def answer(body, code=200, headers=''):
    return f'HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n{body}'.encode()


def measure_gaps(sandbox):
    """Tell how many seconds there were between the requests."""
    return [round(two.time - one.time) for one, two in itertools.pairwise(sandbox.requests)]


async def test_objects_are_created_read_changed_and_deleted(context):
    created = await requests.post(
        CONFIGS, context=context, payload={**CONFIG, 'data': {'x': 'MQ=='}}
    )
    patched = await requests.patch(
        f'{CONFIGS}/cm', context=context, payload={'data': {'y': 'Mg=='}}
    )
    listed = await requests.get(CONFIGS, context=context)
    deleted = await requests.delete(
        f'{CONFIGS}/cm', context=context, payload={'propagationPolicy': 'Background'}
    )

    assert created['data'] == {'x': 'MQ=='}
    assert patched['data'] == {'x': 'MQ==', 'y': 'Mg=='}
    assert listed['items'][0]['metadata'] == patched['metadata']
    assert deleted['status'] == 'Success'


async def test_objects_are_changed_by_json_patches(sandbox, context):
    await sandbox.create(CONFIG)
    payload = [{'op': 'add', 'path': '/data', 'value': {'x': 'MQ=='}}]

    patched = await requests.patch(
        f'{CONFIGS}/cm', context=context, payload=payload, media_type=retries.JSON_PATCH
    )

    assert patched['data'] == {'x': 'MQ=='}


async def test_headers_of_one_request_are_sent(scripted, make_context):
    async with scripted(answer('{}')) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        await requests.get(
            '/', context=context, options=requests.Options(headers={'Accept': 'x/y'})
        )

    assert b'Accept: x/y\r\n' in server.asked[0]


async def test_absence_of_contents_is_none(scripted, make_context):
    async with scripted(b'HTTP/1.1 204 No Content\r\n\r\n') as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))

        assert await requests.delete('/', context=context) is None


@pytest.mark.parametrize(
    'code, cls',
    [
        (400, errors.APIClientError),
        (404, errors.APINotFoundError),
        (409, errors.APIConflictError),
        (410, errors.APIGoneError),
        (422, errors.APIInvalidError),
    ],
)
async def test_refusals_escalate_at_once(sandbox, context, code, cls):
    sandbox.faults.inject(code=code, message='not today')

    with pytest.raises(cls, match='not today'):
        await requests.get(CONFIGS, context=context)

    assert len(sandbox.requests) == 1


@pytest.mark.guarantee('CFG-026', 'CFG-027', 'CFG-028', 'CFG-031', 'NEW-149', 'NEW-154')
@pytest.mark.parametrize(
    'fault', [{'code': 500}, {'code': 503}, {'code': 504}, {'code': 403}, {'code': 429}], ids=str
)
async def test_temporary_refusals_are_retried_and_the_last_one_escalates(
    sandbox, context, operator_settings, virtual_time, fault
):
    operator_settings.networking.error_backoffs = [10, 20, 30]
    sandbox.faults.inject(**fault)

    with pytest.raises(errors.APIError) as caught:
        await requests.get(CONFIGS, context=context)

    assert caught.value.code == fault['code']
    assert measure_gaps(sandbox) == [10, 20, 30]


@pytest.mark.guarantee('CFG-027')
async def test_lost_connections_are_retried(sandbox, context, virtual_time):
    sandbox.faults.inject(cut=True, times=3)

    assert (await requests.get(CONFIGS, context=context))['items'] == []


async def test_unreachable_servers_are_waited_for(sandbox, context, virtual_time):
    downtime = asyncio.create_task(sandbox.faults.restart(downtime=20))
    await asyncio.sleep(1)

    created = await requests.post(CONFIGS, context=context, payload=CONFIG)

    assert created['metadata']['name'] == 'cm'
    await downtime


@pytest.mark.guarantee('NEW-155')
async def test_there_are_9_attempts_in_about_a_minute_by_default(sandbox, context, virtual_time):
    sandbox.faults.inject(code=500)

    with pytest.raises(errors.APIServerError):
        await requests.get(CONFIGS, context=context)

    assert measure_gaps(sandbox) == [1, 1, 2, 3, 5, 8, 13, 21]


@pytest.mark.guarantee('CFG-030')
async def test_retries_can_be_disabled(sandbox, context, operator_settings):
    operator_settings.networking.error_backoffs = []
    sandbox.faults.inject(code=500)

    with pytest.raises(errors.APIServerError):
        await requests.get(CONFIGS, context=context)

    assert len(sandbox.requests) == 1


async def test_backoffs_of_one_request_can_differ(sandbox, context, virtual_time):
    sandbox.faults.inject(code=500)

    with pytest.raises(errors.APIServerError):
        await requests.get(CONFIGS, context=context, options=requests.Options(backoffs=7))

    assert measure_gaps(sandbox) == [7]


@pytest.mark.guarantee('CFG-033')
async def test_success_resets_the_backoffs(sandbox, context, virtual_time):
    for _ in range(2):
        sandbox.requests.clear()
        sandbox.faults.inject(code=500, times=3)
        await requests.get(CONFIGS, context=context)

        assert measure_gaps(sandbox) == [1, 1, 2]


@pytest.mark.guarantee('CFG-034')
async def test_retries_of_one_request_do_not_block_others(sandbox, context, virtual_time):
    fault = sandbox.faults.inject(code=500, resource='configmaps')
    failing = asyncio.create_task(requests.get('/api/v1/configmaps', context=context))
    await fault.wait_until_hit()

    await requests.get(CONFIGS, context=context)

    assert not failing.done()
    fault.lift()
    assert (await failing)['items'][0]['metadata']['name'] == 'kube-root-ca.crt'


@pytest.mark.parametrize('code', [403, 404, 429, 503])
async def test_expected_answers_are_told_at_once(sandbox, context, code):
    sandbox.faults.inject(code=code)

    with pytest.raises(errors.APIError):
        await requests.get(CONFIGS, context=context, options=requests.Options(answers={code}))

    assert len(sandbox.requests) == 1


@pytest.mark.parametrize(
    'fault', [{'cut': True}, {'stall': True}, {'code': 502}, {'code': 504}], ids=str
)
async def test_creations_are_not_repeated_if_possibly_done(sandbox, context, virtual_time, fault):
    sandbox.faults.inject(verb='create', **fault)

    with pytest.raises(errors.RequestError):
        await requests.post(CONFIGS, context=context, payload=CONFIG)

    assert len(sandbox.requests) == 1


@pytest.mark.parametrize('fault', [{'code': 429}, {'code': 500}, {'code': 503}], ids=str)
async def test_creations_are_repeated_if_surely_not_done(sandbox, context, virtual_time, fault):
    sandbox.faults.inject(verb='create', times=1, **fault)

    await requests.post(CONFIGS, context=context, payload=CONFIG)

    assert [asked.code for asked in sandbox.requests] == [fault['code'], 201]


async def test_creations_are_repeated_if_told_to_be_harmless(sandbox, context, virtual_time):
    sandbox.faults.inject(verb='create', cut=True, times=1)

    await requests.post(
        CONFIGS, context=context, payload=CONFIG, options=requests.Options(is_repeatable=True)
    )

    assert [asked.code for asked in sandbox.requests] == [None, 201]


@pytest.mark.guarantee('CFG-024')
async def test_requests_are_limited_in_time(sandbox, context, virtual_time):
    sandbox.faults.inject(stall=True)

    with pytest.raises(errors.APITimeoutError):
        await requests.get(CONFIGS, context=context, options=AT_ONCE)

    assert 300 <= virtual_time.elapsed < 305


@pytest.mark.guarantee('CFG-025')
@pytest.mark.parametrize('timeout, expected', [(20, 20), (None, 300)])
async def test_connecting_is_limited_in_time(
    deaf_url, make_context, operator_settings, virtual_time, timeout, expected
):
    operator_settings.networking.connect_timeout = timeout
    context = make_context(only=credentials.ConnectionInfo(server=deaf_url))

    with pytest.raises(errors.APIConnectionError):
        await requests.get(CONFIGS, context=context, options=AT_ONCE)

    assert expected <= virtual_time.elapsed < expected + 5


@pytest.mark.parametrize(
    'raw',
    [
        pytest.param(answer('{"items": ['), id='malformed'),
        pytest.param(answer(''), id='empty'),
        pytest.param(answer('<html>Sign in</html>'), id='html'),
        pytest.param(answer('{}', headers='Content-Encoding: gzip\r\n'), id='not-gzip'),
        pytest.param(
            b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{', id='cut'
        ),
    ],
)
async def test_senseless_answers_are_retried(scripted, make_context, virtual_time, raw):
    async with scripted(raw, answer('{"kind": "List"}')) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        asking = asyncio.create_task(requests.get('/', context=context))
        await server.wait_until_asked()
        if b'Connection: close' in raw:
            server.disconnect()

        assert await asking == {'kind': 'List'}


@pytest.mark.guarantee('NEW-158')
async def test_retries_are_logged_with_what_the_server_says_and_without_secrets(
    scripted, make_context, virtual_time, caplog
):
    text = 'Bad Gateway; got Authorization: Bearer s3cret' + 'x' * 300
    async with scripted(answer(text, code=502), answer('{}')) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url, token='s3cret'))
        with caplog.at_level(logging.DEBUG):
            await requests.get('/api?continue=abc', context=context)

    (record,) = [record for record in caplog.records if record.name == 'kopf.test']
    assert record.levelname == 'WARNING'
    assert record.getMessage().startswith(
        'Attempt #1 of GET /api has failed, and will be repeated in 1.0 s: HTTP 502: Bad Gateway'
    )
    assert 's3cret' not in caplog.text


@pytest.mark.guarantee('NEW-151')
@pytest.mark.parametrize('enforced, expected', [(False, [3, 5]), (True, [3, 3])])
async def test_delays_of_the_server_are_respected(
    sandbox, context, operator_settings, virtual_time, enforced, expected
):
    operator_settings.networking.error_backoffs = [1, 5]
    operator_settings.networking.enforce_retry_after = enforced
    sandbox.faults.inject(code=429, retry_after=3)

    with pytest.raises(errors.APITooManyRequestsError):
        await requests.get(CONFIGS, context=context)

    assert measure_gaps(sandbox) == expected


@pytest.mark.parametrize('code', [429, 503])
async def test_overloaded_server_gets_no_more_requests_than_it_permits(
    sandbox, context, operator_settings, virtual_time, code
):
    operator_settings.networking.error_backoffs = [0.1] * 10_000
    sandbox.faults.inject(code=code, retry_after=10)
    tasks = [
        asyncio.create_task(requests.get(f'{CONFIGS}/{number}', context=context))
        for number in range(50)
    ]

    await asyncio.sleep(600)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    moments = [asked.time - sandbox.requests[0].time for asked in sandbox.requests]
    # All those before have come before the first refusal.
    later = [moment for moment in moments if moment >= 5]
    assert len(moments) - len(later) <= 50
    assert 50 <= len(later) <= 60
    gaps = [two - one for one, two in itertools.pairwise(later)]
    assert min(gaps) > 10 - 1e-6  # sums of fractions are not exact


async def test_all_requests_go_on_when_the_server_recovers(sandbox, context, virtual_time):
    sandbox.faults.inject(code=429, retry_after=10, times=1)
    await asyncio.gather(requests.get(CONFIGS, context=context), return_exceptions=True)

    await asyncio.gather(*[requests.get(CONFIGS, context=context) for _ in range(20)])

    assert virtual_time.elapsed < 15


async def test_requests_in_flight_are_limited(sandbox, context, operator_settings, virtual_time):
    operator_settings.networking.inflight_limit = 3
    sandbox.faults.inject(latency=10)

    await asyncio.gather(*[requests.get(CONFIGS, context=context) for _ in range(9)])

    starts = [asked.time for asked in sandbox.requests]
    assert all(starts[number + 3] - starts[number] >= 10 for number in range(6))


async def test_rate_of_requests_is_limited(sandbox, context, operator_settings, virtual_time):
    operator_settings.networking.rate_limit = 0.1
    operator_settings.networking.rate_burst = 3

    await asyncio.gather(*[requests.get(CONFIGS, context=context) for _ in range(6)])

    assert measure_gaps(sandbox) == pytest.approx([0, 0, 10, 10, 10], abs=1)


@pytest.mark.guarantee('AUT-028')
async def test_rejected_credentials_are_replaced_and_the_same_call_is_repeated(
    sandbox, make_context
):
    context = make_context(
        bad=credentials.ConnectionInfo(server=sandbox.url, token='wrong', priority=10),
        good=credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token),
    )

    created = await requests.post(CONFIGS, context=context, payload=CONFIG)

    assert created['metadata']['name'] == 'cm'
    assert [asked.code for asked in sandbox.requests] == [401, 201]
    key, _ = await context.vault.select()
    assert key == 'good'


async def test_unusable_credentials_are_replaced(sandbox, make_context):
    context = make_context(
        bad=credentials.ConnectionInfo(server='localhost', priority=10),
        good=credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token),
    )

    assert (await requests.get(CONFIGS, context=context))['items'] == []


@pytest.mark.guarantee('AUT-032')
async def test_credentials_are_tried_by_real_requests_only(sandbox, make_context):
    context = make_context(
        bad=credentials.ConnectionInfo(server=sandbox.url, token='wrong', priority=10)
    )
    await context.vault.populate(
        {'good': credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)}
    )
    assert not sandbox.requests

    await requests.get(CONFIGS, context=context)

    assert [asked.path for asked in sandbox.requests] == [CONFIGS, CONFIGS]


@pytest.mark.guarantee('AUT-029')
async def test_requests_wait_for_the_login(sandbox, make_context):
    context = make_context(bad=credentials.ConnectionInfo(server=sandbox.url, token='wrong'))
    asking = [asyncio.create_task(requests.get(CONFIGS, context=context)) for _ in range(3)]

    await context.vault.wait_until_needed()
    assert not any(task.done() for task in asking)
    await context.vault.populate(
        {'good': credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)}
    )

    assert [response['items'] for response in await asyncio.gather(*asking)] == [[], [], []]


async def test_requests_fail_if_the_login_fails(make_context):
    context = make_context()
    asking = asyncio.create_task(requests.get(CONFIGS, context=context))
    await context.vault.wait_until_needed()

    context.vault.fail(credentials.LoginError('nope'))

    with pytest.raises(credentials.LoginError, match='nope'):
        await asking


@pytest.mark.guarantee('NEW-159')
async def test_requests_are_repeated_if_their_session_is_closed_in_the_middle(sandbox, context):
    stall = sandbox.faults.inject(stall=True)
    asking = asyncio.create_task(requests.get(CONFIGS, context=context))
    await stall.wait_until_hit()
    key, info = await context.vault.select()

    await context.vault.invalidate(key, info)
    await context.vault.wait_until_needed()
    stall.lift()
    assert not asking.done()
    await context.vault.populate(
        {
            'new': credentials.ConnectionInfo(
                server=sandbox.url, token=sandbox.token, default_namespace='x'
            )
        }
    )

    assert (await asking)['items'] == []


@pytest.mark.guarantee('NEW-170')
async def test_custom_sessions_can_be_brought_by_logins(sandbox, make_context):
    context = make_context()
    http = aiohttp.ClientSession(
        headers={'Authorization': f'Bearer {sandbox.token}', 'User-Agent': 'mine/1.0'}
    )
    await context.vault.populate(
        {'own': credentials.AiohttpSession(server=sandbox.url, aiohttp_session=http)}
    )

    assert (await requests.get(CONFIGS, context=context))['items'] == []
    assert [asked.user_agent for asked in sandbox.requests] == ['mine/1.0']


async def test_custom_sessions_closed_by_somebody_else_are_not_used_for_ever(sandbox, make_context):
    http = aiohttp.ClientSession()
    context = make_context(
        bad=credentials.AiohttpSession(server=sandbox.url, aiohttp_session=http, priority=10),
        good=credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token),
    )
    await http.close()

    assert (await requests.get(CONFIGS, context=context))['items'] == []


async def test_requests_waiting_for_the_login_can_be_cancelled(make_context):
    context = make_context()
    asking = asyncio.create_task(requests.get(CONFIGS, context=context))
    await context.vault.wait_until_needed()

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize(
    'fault', [{'stall': True}, {'code': 500}, {'code': 429, 'retry_after': 1000}], ids=str
)
async def test_cancelled_requests_leave_nothing(sandbox, context, fault):
    injected = sandbox.faults.inject(**fault)
    tasks = [asyncio.create_task(requests.get(CONFIGS, context=context)) for _ in range(3)]
    await injected.wait_until_hit()
    await asyncio.sleep(0)

    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert all(task.cancelled() for task in tasks)
    assert context.gates[sandbox.url].traffic.in_flight == 0
