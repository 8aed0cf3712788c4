"""
Streams of events: they begin with what exists, go on with what changes, and survive everything with
nothing lost.
"""

import asyncio
import contextlib
import itertools
import urllib.parse

import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.watching import event_lines, event_streams, stream_states
from kopf._cogs.structs import credentials, references

CONFIGS = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)
LISTED = stream_states.Marker.LISTED


def config(name, **fields):
    return {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': name, 'namespace': 'default'},
        **fields,
    }


def get_queries(sandbox, verb='watch'):
    queries = [
        dict(urllib.parse.parse_qsl(asked.query)) for asked in sandbox.requests.select(verb=verb)
    ]
    return [query for query in queries if verb != 'list' or not is_check(query)]


def is_check(query):
    """Is it a request only to see if the version is known to the server?"""
    return query.get('resourceVersionMatch') == 'NotOlderThan' and query['limit'] == '1'


def measure_gaps(sandbox, verb='watch'):
    """Tell how many seconds there were between the requests."""
    return [
        round(two.time - one.time, 1)
        for one, two in itertools.pairwise(sandbox.requests.select(verb=verb))
    ]


@pytest.fixture
async def reading(
    virtual_time, sandbox, read
):  # the time is first: those who wait already do not notice its change
    """A stream that has one object listed, and watches."""
    await sandbox.create(config('old'))
    reading = await read()
    await reading.wait_until_connected()
    return reading


async def test_objects_are_listed_and_then_watched(sandbox, reading):
    await sandbox.create(config('new', data={'x': '1'}))
    await sandbox.patch('configmaps', 'old', {'data': {'x': '2'}})
    await sandbox.delete('configmaps', 'new')
    await reading.wait_for(('DELETED', 'new', '1'))

    assert reading.events == [
        (None, 'old', None),
        LISTED,
        ('ADDED', 'new', '1'),
        ('MODIFIED', 'old', '2'),
        ('DELETED', 'new', '1'),
    ]
    assert not any(
        'managedFields' in item['object']['metadata']
        for item in reading.items
        if item is not LISTED
    )
    assert list(reading.state.known) == [('default', 'kube-root-ca.crt'), ('default', 'old')]


@pytest.mark.guarantee('NEW-123')
async def test_watching_begins_with_the_version_of_the_listing(sandbox, reading):
    assert get_queries(sandbox, 'list') == [{'limit': '500'}]
    [query] = get_queries(sandbox)
    assert query.pop('resourceVersion').isdigit()
    assert query == {'watch': 'true', 'allowWatchBookmarks': 'true', 'timeoutSeconds': '300'}


@pytest.mark.guarantee('CFG-036')
@pytest.mark.parametrize(
    'setting, chance, expected',
    [
        (None, 0.0, '300'),
        (None, 0.5, '450'),
        (None, 0.9999, '600'),
        (60, 0.5, '60'),
        (0.1, 0.5, '1'),
    ],
)
def test_servers_are_asked_to_end_streams_in_time(operator_settings, setting, chance, expected):
    operator_settings.watching.server_timeout = setting

    params = event_lines.build_watch_params(
        operator_settings.watching, CONFIGS, '5', is_streaming=False, chance=chance
    )

    assert params['timeoutSeconds'] == expected


@pytest.mark.guarantee('NEW-136', 'NEW-137', 'NEW-143')
async def test_selectors_are_sent_when_listing_and_watching(sandbox, read, operator_settings):
    operator_settings.watching.label_selectors.update(
        {'configmaps': 'b=2', ('v1', 'configmaps'): 'a=1', 'cm': 'a=1'}
    )
    operator_settings.watching.field_selectors['configmaps'] = 'metadata.name!=x'
    operator_settings.watching.shard_selectors.update(
        {'configmaps': 'first', ('v1', 'configmaps'): 'second'}
    )
    operator_settings.watching.label_selectors['pods'] = 'c=3'
    expected = {
        'labelSelector': 'a=1,b=2',
        'fieldSelector': 'metadata.name!=x',
        'shardSelector': 'first',
    }
    reading = await read()
    await reading.wait_until_connected()

    queries = get_queries(sandbox, 'list') + get_queries(sandbox)

    assert len(queries) == 2
    assert all(query.items() >= expected.items() for query in queries)


@pytest.mark.guarantee('NEW-140')
async def test_selectors_are_not_checked_by_us_but_by_the_server(
    virtual_time, sandbox, read, operator_settings
):
    operator_settings.watching.label_selectors['configmaps'] = 'a in (b, !!'
    reading = await read()
    await reading.wait_until(lambda: reading.state.error is not None)
    operator_settings.watching.label_selectors['configmaps'] = 'a'
    await reading.wait_until_connected()

    assert get_queries(sandbox, 'list')[0]['labelSelector'] == 'a in (b, !!'
    assert reading.state.error.code == 400


@pytest.mark.guarantee('CFG-039', 'CFG-041', 'NEW-123')
async def test_ended_streams_are_continued_from_the_last_version(
    sandbox, reading, operator_settings, virtual_time
):
    operator_settings.watching.reconnect_backoff = 7
    await sandbox.create(config('new'))
    await reading.wait_for(('ADDED', 'new', None))
    version = reading.items[-1]['object']['metadata']['resourceVersion']

    await reading.wait_until(lambda: reading.state.reconnects == 3)

    assert [round(gap) for gap in measure_gaps(sandbox)[:2]] == [307, 307]
    assert len(get_queries(sandbox, 'list')) == 1
    assert get_queries(sandbox)[1]['resourceVersion'] >= version
    assert {query['allowWatchBookmarks'] for query in get_queries(sandbox)} == {'true'}
    assert (reading.state.failures, reading.state.error) == (0, None)


@pytest.mark.guarantee('NEW-124')
async def test_bookmarks_move_the_position(sandbox, reading, virtual_time):
    await sandbox.create({**config('elsewhere'), 'kind': 'Secret'})
    secret = await sandbox.get('secrets', 'elsewhere')
    await asyncio.sleep(100)
    sandbox.faults.cut_streams()
    await reading.wait_until(lambda: len(get_queries(sandbox)) == 2)

    assert get_queries(sandbox)[1]['resourceVersion'] == secret['metadata']['resourceVersion']


@pytest.mark.guarantee('NEW-145')  # but not fatal: as the design decides
@pytest.mark.parametrize('code', [400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504])
async def test_errors_in_the_stream_are_survived(sandbox, reading, check, virtual_time, code):
    sandbox.faults.end_streams(code)
    await reading.wait_until(lambda: reading.state.error is not None)
    await sandbox.create(config('missed'))

    await check(reading)

    assert len(get_queries(sandbox, 'list')) == (2 if code in (400, 410, 422) else 1)
    assert reading.state.error.code == code


@pytest.mark.parametrize('compact', [False, True], ids=['continuable', 'compacted'])
async def test_restarts_of_the_server_are_survived(sandbox, reading, check, virtual_time, compact):
    restart = asyncio.create_task(sandbox.faults.restart(downtime=100, compact=compact))
    await asyncio.sleep(50)
    await sandbox.create(config('missed'))
    await sandbox.delete('configmaps', 'old')
    await restart

    await check(reading)

    assert ('DELETED', 'old', None) in reading.events


async def test_backoffs_grow_and_are_reset_by_a_healthy_period(sandbox, reading, virtual_time):
    for _ in range(2):
        sandbox.requests.clear()
        fault = sandbox.faults.inject(verb='watch', code=500)
        sandbox.faults.cut_streams()
        await asyncio.sleep(130)

        assert reading.state.failures > 6
        assert [round(gap, 1) for gap in measure_gaps(sandbox)] == [
            1.6,
            3.2,
            6.4,
            12.8,
            25.6,
            30.0,
            30.0,
        ]
        fault.lift()
        await asyncio.sleep(60)


async def test_delays_asked_by_the_server_are_respected(sandbox, reading, virtual_time):
    sandbox.requests.clear()
    sandbox.faults.inject(verb='watch', code=429, retry_after=60)
    sandbox.faults.cut_streams()
    await asyncio.sleep(600)

    assert len(sandbox.requests) <= 11
    assert all(gap >= 60 for gap in measure_gaps(sandbox))


@pytest.mark.guarantee('NEW-125', 'NEW-127')
async def test_silent_streams_are_replaced_in_time(sandbox, reading, check, virtual_time):
    sandbox.faults.inject(verb='watch', stall=True, times=1)
    await sandbox.create(config('missed'))

    await reading.wait_for(('ADDED', 'missed', None), timeout=75)

    assert virtual_time.elapsed >= 60
    assert isinstance(reading.state.error, errors.APISilenceError)
    await check(reading)
    assert len(get_queries(sandbox, 'list')) == 1


@pytest.mark.guarantee('NEW-125')
async def test_tolerance_to_silence_is_up_to_the_settings(
    sandbox, read, operator_settings, virtual_time
):
    operator_settings.watching.inactivity_timeout = 20
    reading = await read()
    await reading.wait_until_connected()
    await asyncio.sleep(250)

    assert len(measure_gaps(sandbox)) >= 9
    assert all(20 <= gap < 25 for gap in measure_gaps(sandbox))


@pytest.mark.guarantee('NEW-128')
async def test_tolerance_to_silence_can_be_endless(sandbox, read, operator_settings, virtual_time):
    operator_settings.watching.inactivity_timeout = 999_999_999
    reading = await read()
    await reading.wait_until_connected()
    stall = sandbox.faults.inject(verb='watch', stall=True)
    await sandbox.create(config('missed'))
    await asyncio.sleep(86_400)
    stall.lift()
    await reading.wait_for(('ADDED', 'missed', None))

    assert (reading.state.reconnects, len(get_queries(sandbox))) == (0, 1)


async def test_discarded_credentials_do_not_end_streams(
    sandbox, read, renewed_context, check, virtual_time
):
    reading = await read(renewed_context)
    await reading.wait_until_connected()

    await renewed_context.vault.invalidate(*await renewed_context.vault.select())

    await check(reading)


async def test_relist_is_a_comparison(virtual_time, sandbox, change_everything, read):
    reading = await read()
    await reading.wait_until_connected()
    uids = {
        item['object']['metadata']['name']: item['object']['metadata']['uid']
        for item in reading.items[:-1]
    }
    reading.items.clear()
    fault = sandbox.faults.inject(verb='watch', cut=True)
    await change_everything()
    await sandbox.compact()
    fault.lift()
    await reading.wait_for(LISTED)

    assert reading.events == [
        ('MODIFIED', 'modified', '2'),
        ('ADDED', 'new', '1'),
        ('DELETED', 'recreated', None),
        ('ADDED', 'recreated', '3'),
        ('DELETED', 'deleted', None),
        LISTED,
    ]
    vanished = next(
        item
        for item in reading.items
        if item is not LISTED
        and item['type'] == 'DELETED'
        and item['object']['metadata']['name'] == 'deleted'
    )
    assert vanished['object'] == {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': 'deleted', 'namespace': 'default', 'uid': uids['deleted']},
    }
    assert (reading.state.relists, len(get_queries(sandbox, 'list'))) == (1, 2)


@pytest.mark.guarantee('NEW-132', 'NEW-133', 'NEW-134', 'NEW-135')
async def test_objects_are_streamed_with_no_listing(
    virtual_time, sandbox, read, operator_settings, check
):
    operator_settings.watching.initial_streaming = True
    await sandbox.create(config('old'))
    reading = await read()
    await reading.wait_for(LISTED)
    sandbox.faults.cut_streams()
    await check(reading)

    first, second = get_queries(sandbox)

    assert reading.events == [(None, 'old', None), LISTED, ('ADDED', 'last', None)]
    assert get_queries(sandbox, 'list') == []
    assert (first['sendInitialEvents'], first['resourceVersionMatch']) == ('true', 'NotOlderThan')
    assert 'resourceVersion' not in first and 'resourceVersion' in second
    assert not {'sendInitialEvents', 'resourceVersionMatch'} & set(second)


@pytest.mark.parametrize('code', [400, 422])
async def test_objects_are_listed_if_streaming_is_refused(
    virtual_time, sandbox, read, operator_settings, check, code
):
    operator_settings.watching.initial_streaming = True
    sandbox.faults.inject(verb='watch', code=code, times=1)
    reading = await read()
    await reading.wait_for(LISTED)

    await check(reading)

    assert len(get_queries(sandbox, 'list')) == 1


async def test_next_stream_tells_what_has_happened_between_them(sandbox, context):
    state = stream_states.StreamState()
    await sandbox.create(config('old'))
    async with contextlib.aclosing(
        event_streams.stream_events(CONFIGS, 'default', context=context, state=state)
    ) as stream:
        assert (await anext(stream))['object']['metadata']['name'] == 'kube-root-ca.crt'
        assert (await anext(stream))['type'] is None
        assert await anext(stream) is LISTED
    assert state.phase is stream_states.Phase.ENDED
    await sandbox.delete('configmaps', 'old')

    async with contextlib.aclosing(
        event_streams.stream_events(CONFIGS, 'default', context=context, state=state)
    ) as stream:
        assert (await anext(stream))['type'] == 'DELETED'
        assert await anext(stream) is LISTED


@pytest.mark.guarantee('NEW-147')
@pytest.mark.usefixtures('virtual_time')
async def test_unknown_events_are_skipped_with_a_warning_and_nonsense_is_survived(
    scripted, make_context, caplog
):
    head = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n'
    listed = b'{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []}'
    event = b'{"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "6"}}}\n'
    texts = [listed, b'{"type": "MOVED", "object": {}}\nnonsense\n', listed, event]
    async with scripted(*[head % len(text) + text for text in texts]) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        state = stream_states.StreamState()
        stream = event_streams.stream_events(CONFIGS, 'default', context=context, state=state)
        async with contextlib.aclosing(stream):
            assert await anext(stream) is LISTED
            assert (await anext(stream))['object']['metadata']['name'] == 'a'

    assert "unknown type 'MOVED'" in caplog.text
    assert isinstance(state.error, errors.APIGarbledError)
