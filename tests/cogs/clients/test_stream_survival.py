"""
Streams in unusual circumstances: huge and torn lines, closed sessions, unknown names, absent files,
old servers.
"""

import asyncio
import contextlib
import json
import socket
import urllib.parse

import aiohttp
import aiohttp.abc
import pytest

from kopf._cogs.clients import errors, requests
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.structs import credentials, references

CONFIGS = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)
LISTED = stream_states.Marker.LISTED
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
END = b'0\r\n\r\n'


def chunk(raw):
    return f'{len(raw):x}\r\n'.encode() + raw + b'\r\n'


def answer(body):
    raw = json.dumps(body).encode()
    return f'HTTP/1.1 200 OK\r\nContent-Length: {len(raw)}\r\n\r\n'.encode() + raw


def config(name, **fields):
    return {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': name, 'namespace': 'default'},
        **fields,
    }


def line(name, version, **fields):
    body = config(name, **fields)
    body['metadata'] |= {'uid': name, 'resourceVersion': version}
    return json.dumps({'type': 'ADDED', 'object': body}).encode() + b'\n'


NOTHING_LISTED = answer(
    {'kind': 'ConfigMapList', 'apiVersion': 'v1', 'metadata': {'resourceVersion': '5'}}
)


def get_versions(server):
    """Tell from which versions it was watched."""
    queries = [urllib.parse.urlsplit(asked.split()[1].decode()).query for asked in server.asked]
    return [
        dict(urllib.parse.parse_qsl(query)).get('resourceVersion')
        for query in queries
        if 'watch' in query
    ]


async def test_lines_of_many_megabytes_pass_through_streams(scripted, make_context, read):
    text = 'x' * 30_000_000
    raw = line('huge', '6', data={'x': text})
    pieces = b''.join(chunk(raw[start : start + 10_000]) for start in range(0, len(raw), 10_000))
    async with scripted(
        NOTHING_LISTED, CHUNKED + pieces + chunk(line('small', '7')) + END
    ) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'small', None))

    assert reading.events[:2] == [LISTED, ('ADDED', 'huge', text)]
    assert reading.state.error is None


@pytest.mark.parametrize(
    'ending',
    [
        pytest.param(END, id='ended'),
        pytest.param(None, id='disconnected'),
    ],
)
async def test_truncated_streams_are_continued_from_the_last_whole_line(
    scripted, make_context, read, virtual_time, ending
):
    torn = CHUNKED + chunk(line('first', '6') + line('second', '7')[:-10])
    async with scripted(
        NOTHING_LISTED, torn + (ending or b''), NOTHING_LISTED, CHUNKED + chunk(line('second', '7'))
    ) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'first', None))
        if ending is None:
            server.disconnect()
        await reading.wait_for(('ADDED', 'second', None))

    assert reading.events == [LISTED, ('ADDED', 'first', None), ('ADDED', 'second', None)]
    assert get_versions(server)[:2] == ['5', '6']
    assert isinstance(reading.state.error, errors.APIConnectionError)


@pytest.mark.guarantee('NEW-159', 'NEW-160')
async def test_logins_in_parallel_break_nothing(virtual_time, sandbox, renewed_context, read):
    readings = [await read(renewed_context) for _ in range(5)]
    for number in range(3):
        for reading in readings:
            await reading.wait_until_connected()
        stall = sandbox.faults.inject(verb='get', stall=True)
        asking = [
            asyncio.create_task(
                requests.get(
                    f'{CONFIGS.get_url(namespace="default")}/x',
                    context=renewed_context,
                    options=requests.Options(answers=[404]),
                )
            )
            for _ in range(5)
        ]
        await stall.wait_until_hit()
        await renewed_context.vault.invalidate(*await renewed_context.vault.select())
        stall.lift()
        await sandbox.create(config(f'missed{number}'))
        for asked in asking:
            with pytest.raises(errors.APINotFoundError):
                await asked
    for reading in readings:
        await reading.wait_for(('ADDED', 'missed2', None))

    expected = [LISTED, *[('ADDED', f'missed{number}', None) for number in range(3)]]
    assert [reading.events for reading in readings] == [expected] * 5
    assert (await renewed_context.vault.select())[1].priority == 3


class Resolver(aiohttp.abc.AbstractResolver):
    """Knows all names only after some time."""

    is_broken = False

    async def resolve(self, host, port=0, family=socket.AF_INET):
        if self.is_broken:
            raise OSError(socket.EAI_AGAIN, 'Temporary failure in name resolution')
        return [
            {
                'hostname': host,
                'host': '127.0.0.1',
                'port': port,
                'family': socket.AF_INET,
                'proto': 0,
                'flags': 0,
            }
        ]

    async def close(self):
        pass


async def test_failures_of_name_resolution_are_survived(
    virtual_time, sandbox, make_context, read, check
):
    resolver = Resolver()
    http = aiohttp.ClientSession(
        headers={'Authorization': f'Bearer {sandbox.token}'},
        connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False),
    )
    server = sandbox.url.replace('127.0.0.1', 'localhost')
    reading = await read(
        make_context(own=credentials.AiohttpSession(server=server, aiohttp_session=http))
    )
    await reading.wait_until_connected()
    resolver.is_broken = True
    sandbox.faults.cut_streams()
    await sandbox.create(config('missed'))
    await asyncio.sleep(600)
    error = reading.state.error
    resolver.is_broken = False

    await check(reading)

    assert isinstance(error, errors.APIUnreachableError)
    assert 'name resolution' in str(error)


async def test_unknown_names_are_no_reason_to_give_up(make_context, read):
    context = make_context(only=credentials.ConnectionInfo(server='http://cluster.invalid'))
    reading = await read(context)
    await reading.wait_until(lambda: reading.state.failures)

    assert isinstance(reading.state.error, errors.APIUnreachableError)
    assert reading.state.phase is stream_states.Phase.WAITING


@contextlib.asynccontextmanager
async def logging_in(vault, log_in):
    async def run():
        while True:
            await vault.wait_until_needed()
            await vault.populate(log_in())

    task = asyncio.create_task(run(), name='logging-in')
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_absent_files_of_certificates_are_waited_for(
    virtual_time, secure_sandbox, make_context, read, tmp_path, caplog
):
    path = tmp_path / 'ca.crt'
    path.write_bytes(secure_sandbox.ca_data)
    infos = {
        'admin': credentials.ConnectionInfo(
            server=secure_sandbox.url, token=secure_sandbox.token, ca_path=path
        )
    }
    context = make_context()
    async with logging_in(context.vault, lambda: dict(infos)):
        reading = await read(context)
        await reading.wait_until_connected()
        path.rename(tmp_path / 'absent')
        infos['admin'] = credentials.ConnectionInfo(
            **{**vars(infos['admin']), 'default_namespace': 'other'}
        )
        await context.vault.invalidate(*await context.vault.select())
        await secure_sandbox.create(config('missed'))
        await asyncio.sleep(10)
        is_missed = ('ADDED', 'missed', None) not in reading.events
        (tmp_path / 'absent').rename(path)

        await reading.wait_for(('ADDED', 'missed', None))

    assert is_missed
    assert (
        f'Cannot load the certificate authority of {path}: No such file or directory.'
        in caplog.text
    )


@pytest.mark.guarantee('NEW-134', 'NEW-135')
async def test_any_first_bookmark_is_the_end_of_the_streamed_listing(
    scripted, make_context, operator_settings
):
    operator_settings.watching.initial_streaming = True
    bookmark = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}\n'
    changed = line('a', '8').replace(b'ADDED', b'MODIFIED')
    raw = line('a', '6') + line('b', '7') + changed + bookmark + line('c', '10')
    state = stream_states.StreamState()
    async with scripted(CHUNKED + chunk(raw)) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        stream = event_streams.stream_events(CONFIGS, 'default', context=context, state=state)
        async with contextlib.aclosing(stream):
            before = [(await anext(stream))['type'] for _ in range(3)]
            was_listed = state.is_listed
            marker, after = await anext(stream), await anext(stream)

    assert (before, was_listed) == ([None, None, 'MODIFIED'], False)
    assert (marker, state.is_listed) == (LISTED, True)
    assert after['type'] == 'ADDED'
    assert len(server.asked) == 1


@pytest.mark.usefixtures('virtual_time')
async def test_objects_are_listed_if_streaming_is_ignored(
    sandbox, meddler, make_context, read, check, operator_settings, caplog
):
    operator_settings.watching.initial_streaming = True
    meddler.ignored = ('sendInitialEvents', 'resourceVersionMatch', 'allowWatchBookmarks')
    await sandbox.create(config('old'))
    reading = await read(
        make_context(only=credentials.ConnectionInfo(server=meddler.url, token=sandbox.token))
    )
    await reading.wait_for(LISTED, timeout=operator_settings.watching.inactivity_timeout + 5)

    await check(reading)

    assert reading.events == [(None, 'old', None), LISTED, ('ADDED', 'last', None)]
    assert len(sandbox.requests.select(verb='list')) == 1
    assert 'The server does not stream the existing objects' in caplog.text


async def test_objects_are_listed_if_streaming_is_silent(
    virtual_time, scripted, make_context, read, operator_settings
):
    operator_settings.watching.initial_streaming = True
    async with scripted(CHUNKED, NOTHING_LISTED, CHUNKED + chunk(line('new', '6'))) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'new', None))

    assert reading.events == [LISTED, ('ADDED', 'new', None)]
    assert get_versions(server)[:2] == [None, '5']
    assert 70 <= virtual_time.elapsed < 75


EMPTY = CHUNKED + END
MISSED = answer(
    {
        'kind': 'ConfigMapList',
        'apiVersion': 'v1',
        'metadata': {'resourceVersion': '4'},
        'items': [
            {
                'metadata': {
                    'name': 'missed',
                    'namespace': 'default',
                    'uid': 'uid',
                    'resourceVersion': '3',
                }
            }
        ],
    }
)


async def test_streams_that_only_end_are_not_believed_to_have_nothing(
    scripted, make_context, read, virtual_time
):
    """Some servers answer so if the version has expired, and nothing of the resource is cached."""
    async with scripted(NOTHING_LISTED, EMPTY, NOTHING_LISTED, EMPTY, MISSED, CHUNKED) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'missed', None), timeout=10)
        await server.wait_until_asked(6)

    assert get_versions(server) == ['5', '5', '4']


@pytest.mark.guarantee('NEW-125')
async def test_streams_with_nothing_at_all_are_compared_with_listings_before_they_are_believed_dead(
    scripted, make_context, read, virtual_time
):
    """
    There are no bookmarks for some resources; and there are proxies that hold everything back.
    """
    silences = [NOTHING_LISTED, CHUNKED] * 5
    async with scripted(*silences, MISSED, CHUNKED) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'missed', None), timeout=400)
        await server.wait_until_asked(12)

        assert reading.state.failing_since is None
        assert virtual_time.elapsed > 300
        assert get_versions(server) == ['5'] * 5 + ['4']


async def test_versions_of_a_lost_future_are_not_watched(
    scripted, make_context, read, virtual_time
):
    """
    Servers accept these, as after a restore from a backup, and silently skip everything until then.
    """
    status = {
        'kind': 'Status',
        'code': 504,
        'reason': 'Timeout',
        'details': {
            'causes': [
                {'reason': 'ResourceVersionTooLarge', 'message': 'Too large resource version'}
            ]
        },
    }
    refusal = answer(status).replace(b'200 OK', b'504 Gateway Timeout')
    lost = CHUNKED + chunk(line('lost', '6'))
    async with scripted(NOTHING_LISTED, lost, refusal, MISSED, CHUNKED) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'lost', None))
        server.disconnect()
        await reading.wait_for(('ADDED', 'missed', None))
        await server.wait_until_asked(5)

    assert get_versions(server) == ['5', '4']
    assert reading.events == [
        LISTED,
        ('ADDED', 'lost', None),
        ('ADDED', 'missed', None),
        ('DELETED', 'lost', None),
        LISTED,
    ]


async def test_servers_that_cannot_tell_of_versions_are_believed(
    scripted, make_context, read, virtual_time
):
    refusal = answer({'kind': 'Status', 'code': 400, 'reason': 'BadRequest'}).replace(
        b'200 OK', b'400 Bad Request'
    )
    async with scripted(
        NOTHING_LISTED,
        CHUNKED + chunk(line('first', '6')),
        refusal,
        CHUNKED + chunk(line('second', '7')),
    ) as server:
        reading = await read(make_context(only=credentials.ConnectionInfo(server=server.url)))
        await reading.wait_for(('ADDED', 'first', None))
        server.disconnect()
        await reading.wait_for(('ADDED', 'second', None))

    assert get_versions(server) == ['5', '6']
