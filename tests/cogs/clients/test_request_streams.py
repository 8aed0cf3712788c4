"""
Streams of raw lines: how they are opened, read, limited in time, and ended.
"""

import asyncio
import json
import time

import pytest

from kopf._cogs.clients import errors, requests
from kopf._cogs.structs import credentials

CONFIGS = '/api/v1/namespaces/default/secrets'
WATCH = f'{CONFIGS}?watch=true'
BOOKMARKED = f'{WATCH}&allowWatchBookmarks=true'
CONFIG = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'cm'}}
STREAM = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
NO_LIMITS = requests.StreamTimeouts()


def chunk(raw):
    return f'{len(raw):x}\r\n'.encode() + raw + b'\r\n'


@pytest.fixture
async def stream_of(make_context):
    def stream_of(server, timeouts=NO_LIMITS):
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        return requests.stream(
            '/', context=context, timeouts=timeouts, options=requests.Options(backoffs=())
        )

    return stream_of


async def test_lines_come_as_they_are_sent(sandbox, context):
    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        await sandbox.create(CONFIG)
        added = json.loads(await anext(lines))
        await sandbox.delete('secrets', 'cm')
        deleted = json.loads(await anext(lines))

    assert (added['type'], deleted['type']) == ('ADDED', 'DELETED')
    assert added['object']['metadata']['name'] == 'cm'


async def test_end_by_the_server_is_the_end_of_lines(sandbox, context, virtual_time):
    await sandbox.create(CONFIG)

    async with requests.stream(
        f'{WATCH}&timeoutSeconds=30', context=context, timeouts=NO_LIMITS
    ) as lines:
        events = [json.loads(line)['type'] async for line in lines]

    assert events[0] == 'ADDED'
    assert virtual_time.elapsed >= 30


@pytest.mark.guarantee('CFG-024')
async def test_streams_are_not_limited_as_other_requests(
    sandbox, context, operator_settings, virtual_time
):
    operator_settings.networking.request_timeout = 60
    timeouts = requests.choose_stream_timeouts(operator_settings)

    async with requests.stream(
        f'{BOOKMARKED}&timeoutSeconds=300', context=context, timeouts=timeouts
    ) as lines:
        bookmarks = [json.loads(line)['type'] async for line in lines]

    assert len(bookmarks) >= 4
    assert virtual_time.elapsed >= 300


async def test_streams_take_no_places_in_flight(sandbox, context, operator_settings):
    operator_settings.networking.inflight_limit = 1

    async with (
        requests.stream(WATCH, context=context, timeouts=NO_LIMITS),
        requests.stream(WATCH, context=context, timeouts=NO_LIMITS),
    ):
        assert (await requests.get(CONFIGS, context=context))['items'] == []


async def test_silent_streams_are_reported_in_time(sandbox, context, virtual_time):
    timeouts = requests.StreamTimeouts(idle=70)
    async with requests.stream(WATCH, context=context, timeouts=timeouts) as lines:
        await sandbox.create(CONFIG)
        await anext(lines)
        sandbox.faults.inject(verb='watch', stall=True)
        since = virtual_time.elapsed

        with pytest.raises(errors.APISilenceError, match='silent for 70 s'):
            await anext(lines)

        assert 70 <= virtual_time.elapsed - since < 75


@pytest.mark.guarantee('NEW-126')
async def test_streams_are_not_silent_while_there_are_any_bytes(sandbox, context, virtual_time):
    timeouts = requests.StreamTimeouts(idle=70)

    async with requests.stream(BOOKMARKED, context=context, timeouts=timeouts) as lines:
        bookmarks = [json.loads(await anext(lines))['type'] for _ in range(6)]

    assert bookmarks == ['BOOKMARK'] * 6
    assert virtual_time.elapsed >= 300


@pytest.mark.parametrize(
    'timeouts, expected',
    [
        pytest.param(requests.StreamTimeouts(idle=70), 70, id='idle'),
        pytest.param(requests.StreamTimeouts(connect=300, idle=70), 70, id='connected-but-idle'),
        pytest.param(requests.StreamTimeouts(idle=70, total=30), 30, id='total'),
    ],
)
async def test_streams_that_never_begin_are_reported_in_time(
    sandbox, context, virtual_time, timeouts, expected
):
    sandbox.faults.inject(verb='watch', stall=True)

    with pytest.raises(errors.APITimeoutError):
        async with requests.stream(
            WATCH, context=context, timeouts=timeouts, options=requests.Options(backoffs=())
        ):
            pass

    assert expected <= virtual_time.elapsed < expected + 5


@pytest.mark.guarantee('CFG-037', 'CFG-038')
async def test_streams_end_at_the_limit_of_the_client(
    sandbox, context, operator_settings, virtual_time
):
    operator_settings.watching.client_timeout = 200
    timeouts = requests.choose_stream_timeouts(operator_settings)

    async with requests.stream(
        f'{BOOKMARKED}&timeoutSeconds=600', context=context, timeouts=timeouts
    ) as lines:
        bookmarks = [json.loads(line)['type'] async for line in lines]

    assert set(bookmarks) == {'BOOKMARK'}
    assert 200 <= virtual_time.elapsed < 205


@pytest.mark.guarantee('CFG-035')
@pytest.mark.parametrize(
    'watching, networking, total, expected',
    [
        (10, 20, 30, 10),
        (None, 20, 30, 20),
        (None, None, 30, 30),
        (None, None, None, None),
    ],
)
def test_limits_of_connecting_fall_back_to_those_of_other_requests(
    operator_settings, watching, networking, total, expected
):
    operator_settings.watching.connect_timeout = watching
    operator_settings.networking.connect_timeout = networking
    operator_settings.networking.request_timeout = total

    assert requests.choose_stream_timeouts(operator_settings).connect == expected


async def test_opening_is_retried(sandbox, context, virtual_time):
    sandbox.faults.inject(verb='watch', code=500, times=1)
    sandbox.faults.inject(verb='watch', code=429, times=1, retry_after=5)
    sandbox.faults.inject(verb='watch', cut=True, times=1)
    await sandbox.create(CONFIG)

    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        assert json.loads(await anext(lines))['type'] == 'ADDED'


async def test_refusals_to_open_are_raised(sandbox, context):
    sandbox.faults.inject(verb='watch', code=410)

    with pytest.raises(errors.APIGoneError):
        async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS):
            pass

    assert len(sandbox.requests) == 1


async def test_opening_uses_other_credentials_if_some_are_rejected(sandbox, make_context):
    context = make_context(
        bad=credentials.ConnectionInfo(server=sandbox.url, token='wrong', priority=10),
        good=credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token),
    )
    await sandbox.create(CONFIG)

    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        assert json.loads(await anext(lines))['type'] == 'ADDED'


async def test_lost_connections_are_raised_and_not_retried(sandbox, context):
    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        sandbox.faults.cut_streams()

        with pytest.raises(errors.APIDisconnectedError):
            await anext(lines)

    assert len(sandbox.requests) == 1


async def test_rejected_credentials_end_the_streams_of_their_session(sandbox, context):
    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        reading = asyncio.create_task(anext(lines))
        await asyncio.sleep(0)
        key, info = await context.vault.select()

        await context.vault.invalidate(key, info)

        with pytest.raises(errors.APISessionClosedError):
            await reading


async def test_replaced_credentials_do_not_end_the_streams(sandbox, context):
    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        await context.vault.populate(
            {'admin': credentials.ConnectionInfo(server=sandbox.url, token='new')}
        )

        await sandbox.create(CONFIG)
        assert json.loads(await anext(lines))['type'] == 'ADDED'


async def test_truncated_lines_are_given_as_they_are(scripted, stream_of):
    async with (
        scripted(STREAM + chunk(b'{"a": 1}\n{"b"') + b'0\r\n\r\n') as server,
        stream_of(server) as lines,
    ):
        assert [line async for line in lines] == [b'{"a": 1}', b'{"b"']


async def test_lines_cut_by_the_limit_of_the_client_are_not_given(
    scripted, stream_of, virtual_time
):
    async with (
        scripted(STREAM + chunk(b'{"a": 1}\n{"b"')) as server,
        stream_of(server, requests.StreamTimeouts(total=60)) as lines,
    ):
        assert [line async for line in lines] == [b'{"a": 1}']


async def test_huge_lines_are_read_in_reasonable_time(scripted, stream_of):
    piece = chunk(b'x' * 10_000)
    async with (
        scripted(STREAM + piece * 3_000 + chunk(b'\n') + b'0\r\n\r\n') as server,
        stream_of(server) as lines,
    ):
        started = time.process_time()
        sizes = [len(line) async for line in lines]

    assert sizes == [30_000_000]
    assert time.process_time() - started < 10  # minutes if it were quadratic


@pytest.mark.guarantee('NEW-148')
async def test_streams_are_interrupted_even_before_the_headers(sandbox, context):
    fault = sandbox.faults.inject(verb='watch', stall=True)

    async def watch():
        async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS):
            pass

    watching = asyncio.create_task(watch())
    await fault.wait_until_hit()
    watching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_leaving_the_block_disconnects(scripted, stream_of):
    async with scripted(STREAM + chunk(b'{"a": 1}\n')) as server:
        async with stream_of(server) as lines:
            async for _ in lines:
                break

        async with asyncio.timeout(10):
            await server.left.wait()


async def test_cancelled_reading_ends_the_iteration(sandbox, context, virtual_time):
    async with requests.stream(WATCH, context=context, timeouts=NO_LIMITS) as lines:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(lines), timeout=1)

        assert [line async for line in lines] == []
