import asyncio
import base64
import json

import pytest

from kopf._sandbox.meta import errors, kinds, selectors
from kopf._sandbox.registry import reader, watcher
from kopf._sandbox.storage import memory

HOME = kinds.Home('kopf.dev', 'kopfexamples')
RESOURCE = kinds.Resource(
    'kopf.dev',
    'v1',
    'kopfexamples',
    'kopfexample',
    'KopfExample',
    True,
    (),
    home=HOME,
    storage_version='v1',
)
EVERYTHING = selectors.Interest()
RED = selectors.parse_interest({'labelSelector': 'color=red'}, '', [])


def make_body(name, namespace='ns', **labels):
    meta = {'name': name, 'namespace': namespace, 'labels': labels}
    return {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfExample', 'metadata': meta}


@pytest.fixture()
def store():
    return memory.Storage()


def put(store, name, namespace='ns', **labels):
    return store.put(HOME, make_body(name, namespace, **labels))


def names(items):
    return [stored.name for stored in items]


def test_every_write_takes_the_next_version(store):
    first = put(store, 'a')
    second = put(store, 'a', color='red')
    third = store.remove(HOME, second)

    assert [second.version - first.version, third.version - second.version] == [1, 1]
    assert second.load()['metadata']['resourceVersion'] == str(second.version)
    assert third.load()['metadata']['resourceVersion'] == str(third.version)


def test_objects_are_listed_by_namespaces_and_names(store):
    for namespace, name in [('b', 'x'), ('a-1', 'x'), ('a', 'z'), ('a', 'y'), ('a0', 'x')]:
        put(store, name, namespace)

    assert [stored.key for stored in store.shelf(HOME).select('')] == [
        'a-1/x',
        'a/y',
        'a/z',
        'a0/x',
        'b/x',
    ]
    assert [stored.key for stored in store.shelf(HOME).select('a')] == ['a/y', 'a/z']


def test_stored_objects_are_not_affected_by_their_sources(store):
    body = make_body('a')
    stored = store.put(HOME, body)
    body['metadata']['name'] = 'b'
    stored.load()['metadata']['name'] = 'c'

    assert stored.load()['metadata']['name'] == 'a'


def test_history_is_trimmed_by_the_retention(store, monkeypatch):
    monkeypatch.setattr(memory, 'RETENTION', 5)
    versions = [put(store, 'a').version for _ in range(10)]

    assert len(store.shelf(HOME).changes) == 5
    assert store.shelf(HOME).compacted == versions[4]


def test_past_states_are_recalled_until_compacted(store):
    put(store, 'a')
    past = put(store, 'b', color='red').version
    put(store, 'b', color='blue')
    store.remove(HOME, store.get(HOME, 'ns', 'a'))
    put(store, 'c')

    recalled = store.shelf(HOME).rewind(past)

    assert {key: dict(stored.labels) for key, stored in recalled.items()} == {
        'ns/a': {},
        'ns/b': {'color': 'red'},
    }


@pytest.mark.parametrize(
    'kwargs, expected',
    [
        pytest.param({}, ['a', 'b', 'c'], id='all'),
        pytest.param({'labelSelector': 'color=red'}, ['a', 'c'], id='by-labels'),
        pytest.param({'fieldSelector': 'metadata.name=b'}, ['b'], id='by-name'),
        pytest.param({'resourceVersion': '0'}, ['a', 'b', 'c'], id='any-version'),
        pytest.param(
            {'resourceVersion': '0', 'limit': '1'}, ['a', 'b', 'c'], id='any-version-has-no-pages'
        ),
        pytest.param({'limit': '-1'}, ['a', 'b', 'c'], id='no-limit'),
    ],
)
def test_lists_contain_the_wanted_objects(store, kwargs, expected):
    put(store, 'a', color='red')
    put(store, 'b', color='blue')
    put(store, 'c', color='red')

    listing = reader.list_objects(store, RESOURCE, selectors.parse_interest(kwargs, '', []), kwargs)

    assert names(listing.items) == expected
    assert listing.version == store.version
    assert listing.token == ''


def test_pages_are_consistent_with_the_first_one(store):
    for name in 'abcde':
        put(store, name)
    first = reader.list_objects(store, RESOURCE, EVERYTHING, {'limit': '2'})
    store.remove(HOME, store.get(HOME, 'ns', 'c'))
    put(store, 'aa')
    second = reader.list_objects(
        store, RESOURCE, EVERYTHING, {'limit': '2', 'continue': first.token}
    )
    third = reader.list_objects(
        store, RESOURCE, EVERYTHING, {'limit': '2', 'continue': second.token}
    )

    assert [names(page.items) for page in (first, second, third)] == [['a', 'b'], ['c', 'd'], ['e']]
    assert {page.version for page in (first, second, third)} == {first.version}
    assert [page.remaining for page in (first, second, third)] == [3, 1, None]


def test_remaining_count_is_unknown_with_selectors(store):
    for name in 'abc':
        put(store, name, color='red')

    page = reader.list_objects(store, RESOURCE, RED, {'limit': '2'})

    assert page.token and page.remaining is None


@pytest.mark.parametrize(
    'options, code, reason',
    [
        pytest.param({'continue': '???'}, 400, 'BadRequest', id='malformed-token'),
        pytest.param({'resourceVersion': '99999'}, 504, 'Timeout', id='future-version'),
        pytest.param({'resourceVersion': 'abc'}, 400, 'BadRequest', id='malformed-version'),
        pytest.param({'resourceVersionMatch': 'Exact'}, 422, 'Invalid', id='match-without-version'),
        pytest.param(
            {'resourceVersionMatch': 'Near', 'resourceVersion': '1'},
            422,
            'Invalid',
            id='unknown-match',
        ),
        pytest.param(
            {'resourceVersionMatch': 'NotOlderThan', 'resourceVersion': '1', 'continue': 'x'},
            422,
            'Invalid',
            id='match-of-page',
        ),
        pytest.param({'limit': 'x'}, 400, 'BadRequest', id='malformed-limit'),
        pytest.param({'sendInitialEvents': 'true'}, 422, 'Invalid', id='initial-events'),
    ],
)
def test_malformed_options_of_lists_are_refused(store, options, code, reason):
    with pytest.raises(errors.ApiError) as e:
        reader.list_objects(store, RESOURCE, EVERYTHING, options)

    assert (e.value.code, e.value.reason) == (code, reason)


def test_pages_and_exact_versions_expire_with_compaction(store):
    for name in 'abc':
        put(store, name)
    page = reader.list_objects(store, RESOURCE, EVERYTHING, {'limit': '2'})
    put(store, 'd')
    store.compact()

    for options in [
        {'continue': page.token},
        {'resourceVersion': str(page.version), 'resourceVersionMatch': 'Exact'},
    ]:
        with pytest.raises(errors.ApiError) as e:
            reader.list_objects(store, RESOURCE, EVERYTHING, options)
        assert (e.value.code, e.value.reason) == (410, 'Expired')


def test_expired_pages_go_on_as_of_now(store):
    for name in 'abc':
        put(store, name)
    page = reader.list_objects(store, RESOURCE, EVERYTHING, {'limit': '1'})
    put(store, 'd')
    store.compact()

    with pytest.raises(errors.ApiError) as e:
        reader.list_objects(store, RESOURCE, EVERYTHING, {'continue': page.token})
    token = e.value.status['metadata']['continue']
    resumed = reader.list_objects(store, RESOURCE, EVERYTHING, {'continue': token, 'limit': '2'})

    assert names(resumed.items) == ['b', 'c']
    assert (resumed.version, resumed.remaining) == (store.version, 1)


def test_pages_of_any_version_have_no_limit(store):
    for name in 'abc':
        put(store, name)
    page = reader.list_objects(store, RESOURCE, EVERYTHING, {'limit': '1'})

    options = {'continue': page.token, 'limit': '1', 'resourceVersion': '0'}
    rest = reader.list_objects(store, RESOURCE, EVERYTHING, options)

    assert names(rest.items) == ['b', 'c']


@pytest.mark.parametrize(
    'record, message',
    [
        pytest.param(
            {'v': 'x', 'rv': 1, 'start': 'a'},
            'server does not recognize this encoded version x',
            id='version',
        ),
        pytest.param(
            {'v': 'meta.k8s.io/v1', 'rv': 0, 'start': 'a'},
            'incorrect encoded start resourceVersion (version meta.k8s.io/v1)',
            id='resource-version',
        ),
        pytest.param(
            {'v': 'meta.k8s.io/v1', 'rv': 1},
            'encoded start key empty (version meta.k8s.io/v1)',
            id='key',
        ),
    ],
)
def test_forged_tokens_are_refused(store, record, message):
    token = base64.urlsafe_b64encode(json.dumps(record).encode()).decode().rstrip('=')

    with pytest.raises(errors.ApiError) as e:
        reader.list_objects(store, RESOURCE, EVERYTHING, {'continue': token})

    assert e.value.message == f'invalid continue token: continue key is not valid: {message}'


def test_first_page_of_a_version_is_as_it_was(store):
    past = put(store, 'a').version
    store.remove(HOME, store.get(HOME, 'ns', 'a'))
    put(store, 'b')

    page = reader.list_objects(
        store, RESOURCE, EVERYTHING, {'resourceVersion': str(past), 'limit': '1'}
    )
    whole = reader.list_objects(store, RESOURCE, EVERYTHING, {'resourceVersion': str(past)})

    assert (names(page.items), page.version) == (['a'], past)
    assert (names(whole.items), whole.version) == (['b'], store.version)


def test_exact_versions_are_listed_as_they_were(store):
    past = put(store, 'a').version
    put(store, 'b')

    options = {'resourceVersion': str(past), 'resourceVersionMatch': 'Exact'}
    listing = reader.list_objects(store, RESOURCE, EVERYTHING, options)

    assert names(listing.items) == ['a']
    assert listing.version == past


@pytest.mark.parametrize(
    'before, after, expected',
    [
        pytest.param(None, {'color': 'red'}, 'ADDED', id='created'),
        pytest.param(None, {'color': 'blue'}, None, id='created-unwanted'),
        pytest.param({'color': 'red'}, {'color': 'red', 'x': 'y'}, 'MODIFIED', id='changed'),
        pytest.param({'color': 'blue'}, {'color': 'red'}, 'ADDED', id='entered'),
        pytest.param({'color': 'red'}, {'color': 'blue'}, 'DELETED', id='left'),
        pytest.param({'color': 'blue'}, {'color': 'green'}, None, id='changed-unwanted'),
        pytest.param({'color': 'red'}, None, 'DELETED', id='deleted'),
        pytest.param({'color': 'blue'}, None, None, id='deleted-unwanted'),
    ],
)
def test_changes_are_seen_through_selectors(store, before, after, expected):
    if before is not None:
        put(store, 'a', **before)
    if after is not None:
        put(store, 'a', **after)
    else:
        store.remove(HOME, store.get(HOME, 'ns', 'a'))

    seen = watcher.see(store.shelf(HOME).changes[-1], RED)

    assert (seen[0] if seen else None) == expected
    assert seen is None or seen[1].version == store.version


def test_objects_leaving_the_selector_are_shown_as_they_were_with_the_new_version(store):
    put(store, 'a', color='red')
    put(store, 'a', color='blue')

    _, stored = watcher.see(store.shelf(HOME).changes[-1], RED)

    assert stored.load()['metadata']['labels'] == {'color': 'red'}
    assert stored.load()['metadata']['resourceVersion'] == str(store.version)


async def test_watchers_get_the_past_and_the_coming_changes_in_order(store):
    since = put(store, 'a').version
    put(store, 'b')
    lines = watch(store, since=since)

    assert await anext(lines) == [('ADDED', 'b')]
    put(store, 'c')
    store.remove(HOME, store.get(HOME, 'ns', 'b'))
    assert await anext(lines) == [('ADDED', 'c'), ('DELETED', 'b')]
    await lines.aclose()


async def test_watchers_from_no_version_get_the_current_objects_first(store):
    put(store, 'b')
    put(store, 'a')
    lines = watch(store, since=None)

    assert await anext(lines) == [('ADDED', 'a'), ('ADDED', 'b')]
    put(store, 'b')
    assert await anext(lines) == [('MODIFIED', 'b')]
    await lines.aclose()


async def test_watchers_are_told_when_all_initial_objects_are_sent(store):
    put(store, 'a')
    lines = watch(store, since=None, bookmarks=True, initial_end=True)

    assert await anext(lines) == [('ADDED', 'a')]
    assert await anext(lines) == [('BOOKMARK', f'{store.version} k8s.io/initial-events-end')]
    await lines.aclose()


async def test_watchers_get_bookmarks_each_minute_and_in_the_end(store, virtual_time):
    version = put(store, 'a').version

    batches = [batch async for batch in watch(store, since=version, bookmarks=True, timeout=100)]

    assert batches == [[('BOOKMARK', f'{version} ')], [('BOOKMARK', f'{version} ')]]
    assert virtual_time.elapsed == pytest.approx(100)


async def test_changes_during_the_sending_of_a_bookmark_are_not_delayed(store, virtual_time):
    lines = watch(store, since=store.version, bookmarks=True)
    bookmark = await anext(lines)
    put(store, 'a')

    assert bookmark[0][0] == 'BOOKMARK'
    assert await anext(lines) == [('ADDED', 'a')]
    assert virtual_time.elapsed == pytest.approx(60)
    await lines.aclose()


async def test_watchers_without_bookmarks_end_with_the_timeout(store, virtual_time):
    assert [batch async for batch in watch(store, since=1, timeout=90)] == []
    assert virtual_time.elapsed == pytest.approx(90)


async def test_watchers_of_compacted_versions_get_the_error_410(store):
    old = put(store, 'a').version
    put(store, 'b')
    store.compact()

    batches = [batch async for batch in watch(store, since=old)]

    assert batches == [
        [('ERROR', f'410 Expired too old resource version: {old} ({store.version})')]
    ]


async def test_watchers_that_fall_behind_get_the_error_410(store, monkeypatch):
    monkeypatch.setattr(memory, 'RETENTION', 5)
    lines = watch(store, since=store.version)
    waiting = asyncio.create_task(anext(lines))
    await asyncio.sleep(0)
    for _ in range(20):
        put(store, 'a')

    assert (await waiting)[0][0] == 'ERROR'


async def test_watchers_end_after_the_last_changes_when_the_resource_is_gone(store):
    stored = put(store, 'a')
    lines = watch(store, since=store.version)
    waiting = asyncio.create_task(anext(lines))
    await asyncio.sleep(0)
    store.remove(HOME, stored)
    store.drop(HOME)

    assert await waiting == [('DELETED', 'a')]
    assert [batch async for batch in lines] == []


async def test_crowds_of_watchers_get_several_changes_together(store, virtual_time):
    crowd = [watch(store, since=store.version) for _ in range(memory.CROWD + 1)]
    waiting = [asyncio.create_task(anext(lines)) for lines in crowd]
    await asyncio.sleep(0)
    put(store, 'a')
    put(store, 'b')

    assert await asyncio.gather(*waiting) == [[('ADDED', 'a'), ('ADDED', 'b')]] * len(crowd)
    assert virtual_time.elapsed == pytest.approx(memory.PAUSE)
    for lines in crowd:
        await lines.aclose()


async def test_cancelled_watchers_leave_nothing_behind(store):
    lines = watch(store, since=store.version)
    waiting = asyncio.create_task(anext(lines))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert not store.shelf(HOME)._waiters


@pytest.mark.parametrize(
    'options, since',
    [
        pytest.param({}, None, id='unset'),
        pytest.param({'resourceVersion': '0'}, None, id='zero'),
        pytest.param({'resourceVersion': '5'}, 5, id='given'),
        pytest.param(
            {
                'resourceVersion': '5',
                'sendInitialEvents': 'true',
                'resourceVersionMatch': 'NotOlderThan',
            },
            None,
            id='initial',
        ),
        pytest.param(
            {'sendInitialEvents': 'false', 'resourceVersionMatch': 'NotOlderThan'},
            9,
            id='no-initial',
        ),
    ],
)
def test_watches_start_where_asked(options, since):
    assert watcher.parse_watch(options, EVERYTHING, version=9).since == since


@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'sendInitialEvents': 'true'}, id='no-match'),
        pytest.param({'resourceVersionMatch': 'NotOlderThan'}, id='match-only'),
    ],
)
def test_malformed_options_of_watches_are_refused(options):
    with pytest.raises(errors.ApiError) as e:
        watcher.parse_watch(options, EVERYTHING, version=9)

    assert e.value.code == 422


async def watch(store, since, timeout=1000.0, **kwargs):
    """Yield the non-empty batches of the stream in a short form."""
    form = watcher.Format(
        encode=lambda type, stored: f'{type} {stored.name}\n'.encode(),
        bookmark=lambda version, annotations: (
            f'BOOKMARK {version} {"".join(annotations)}\n'.encode()
        ),
    )
    stream = watcher.stream(store, HOME, watcher.Watch(EVERYTHING, since, timeout, **kwargs), form)
    try:
        async for batch in stream:
            if batch.startswith(b'{"type":"ERROR"'):
                status = errors_of(batch)
                yield [('ERROR', f'{status["code"]} {status["reason"]} {status["message"]}')]
            elif batch:
                yield [tuple(line.split(' ', 1)) for line in batch.decode().splitlines()]
    finally:
        await stream.aclose()


def errors_of(line):
    return json.loads(line)['object']
