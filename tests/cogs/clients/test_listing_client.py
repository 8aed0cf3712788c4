"""
Listings: which requests they make, and what they give.
"""

import json
import urllib.parse

import pytest

from kopf._cogs.clients import errors, listing
from kopf._cogs.structs import credentials, references

CONFIGS = references.Resource('', 'v1', 'secrets', kind='Secret', namespaced=True)


def config(name, namespace='default', **metadata):
    return {
        'apiVersion': 'v1',
        'kind': 'Secret',
        'metadata': {'name': name, 'namespace': namespace, **metadata},
    }


def answer(body):
    raw = json.dumps(body).encode()
    return f'HTTP/1.1 200 OK\r\nContent-Length: {len(raw)}\r\n\r\n'.encode() + raw


def get_queries(sandbox):
    return [
        dict(urllib.parse.parse_qsl(asked.query)) for asked in sandbox.requests.select(verb='list')
    ]


def get_names(pages):
    return [[item['metadata']['name'] for item in page.items] for page in pages]


@pytest.fixture
async def five(sandbox):
    for name in 'abcde':
        await sandbox.create(config(name, labels={'name': name}))


@pytest.fixture
def collect(context):
    async def collect(namespace='default', context=context):
        return [page async for page in listing.list_pages(CONFIGS, namespace, context=context)]

    return collect


@pytest.mark.guarantee('NEW-129')
@pytest.mark.parametrize(
    'size, expected',
    [
        pytest.param(2, [['a', 'b'], ['c', 'd'], ['e']], id='pages'),
        pytest.param(None, [['a', 'b', 'c', 'd', 'e']], id='one-request'),
        pytest.param(0, [['a', 'b', 'c', 'd', 'e']], id='zero'),
    ],
)
async def test_objects_are_listed_in_pages(
    sandbox, five, collect, operator_settings, size, expected
):
    operator_settings.watching.chunk_size = size

    pages = await collect()

    assert get_names(pages) == expected
    assert len({page.version for page in pages}) == 1
    assert [page.is_first for page in pages] == [True] + [False] * (len(expected) - 1)
    assert [query.get('limit') for query in get_queries(sandbox)] == [
        None if size is None else str(size)
    ] * len(pages)


async def test_pages_are_of_500_by_default(sandbox, collect):
    await collect()

    assert get_queries(sandbox) == [{'limit': '500'}]


@pytest.mark.guarantee('NEW-131')
async def test_next_page_is_requested_when_the_previous_one_is_done(
    sandbox, five, context, operator_settings
):
    operator_settings.watching.chunk_size = 2
    counts = []

    async for _ in listing.list_pages(CONFIGS, None, context=context):
        counts.append(len(sandbox.requests))

    assert counts == [1, 2, 3]


async def test_only_the_namespace_is_listed(sandbox, five, collect):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'other'}})
    await sandbox.create(config('x', 'other'))

    assert get_names(await collect('other')) == [['x']]
    assert get_names(await collect(None))[0] == ['a', 'b', 'c', 'd', 'e', 'x']


async def test_objects_have_kinds_and_no_managed_fields(sandbox, five, collect):
    [page] = await collect()

    assert all(item['kind'] == 'Secret' and item['apiVersion'] == 'v1' for item in page.items)
    assert not any('managedFields' in item['metadata'] for item in page.items)


def test_objects_take_kinds_from_the_list_only_if_they_have_none():
    own = {'apiVersion': 'x/v2', 'kind': 'X', 'metadata': {'name': 'b'}}
    bare = {'metadata': {'name': 'a', 'managedFields': [{}]}}

    page = listing.parse_page(
        {'apiVersion': 'v1', 'kind': 'PodList', 'metadata': {}, 'items': [bare, own]}
    )

    assert page.items == [{'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'a'}}, own]
    assert page.version == ''


def test_selection_is_made_of_settings(operator_settings):
    watching = operator_settings.watching
    watching.label_selectors['secrets'] = 'b=2'
    watching.label_selectors['v1', 'secrets'] = 'a=1'
    watching.field_selectors['secrets'] = 'metadata.name=x'
    watching.shard_selectors['secrets'] = 'first'
    watching.shard_selectors['v1', 'secrets'] = 'second'
    watching.label_selectors['pods'] = 'c=3'

    assert listing.build_selection(watching, CONFIGS) == {
        'labelSelector': 'a=1,b=2',
        'fieldSelector': 'metadata.name=x',
        'shardSelector': 'first',
    }


async def test_only_the_selected_are_listed(sandbox, five, collect, operator_settings):
    operator_settings.watching.label_selectors['secrets'] = 'name in (b,c,d)'
    operator_settings.watching.field_selectors['secrets'] = 'metadata.name!=c'

    assert get_names(await collect()) == [['b', 'd']]


async def test_expired_listing_starts_over(sandbox, five, context, operator_settings):
    operator_settings.watching.chunk_size = 2
    pages = []

    async for page in listing.list_pages(CONFIGS, 'default', context=context):
        pages.append(page)
        if len(pages) == 1:
            await sandbox.delete('secrets', 'a')
            await sandbox.compact()

    assert get_names(pages) == [['a', 'b'], ['b', 'c'], ['d', 'e']]
    assert [page.is_first for page in pages] == [True, True, False]


async def test_listing_starts_over_only_once(sandbox, five, context, operator_settings):
    operator_settings.watching.chunk_size = 2
    pages = []

    with pytest.raises(errors.APIGoneError):
        async for page in listing.list_pages(CONFIGS, 'default', context=context):
            pages.append(page)
            await sandbox.create(config(f'x{len(pages)}'))
            await sandbox.compact()

    assert len(pages) == 2


@pytest.mark.parametrize('code', [410, 500])
async def test_first_page_is_not_retried(sandbox, collect, code):
    sandbox.faults.inject(code=code)

    with pytest.raises(errors.APIError):
        await collect()

    assert len(sandbox.requests) == 1


async def test_following_pages_are_retried(sandbox, five, context, operator_settings, virtual_time):
    operator_settings.watching.chunk_size = 2
    pages = []

    async for page in listing.list_pages(CONFIGS, 'default', context=context):
        pages.append(page)
        sandbox.faults.inject(code=500, times=2)

    assert get_names(pages) == [['a', 'b'], ['c', 'd'], ['e']]


@pytest.mark.parametrize(
    'body',
    [
        None,
        [],
        {},
        'text',
        {'metadata': None, 'items': []},
        {'metadata': {}, 'items': {'a': 1}},
        {'metadata': {}, 'items': [1]},
        {'metadata': {}, 'items': [{}]},
        {'metadata': {}, 'items': [{'metadata': {}}]},
    ],
    ids=str,
)
async def test_nonsense_is_an_error(scripted, make_context, collect, body):
    async with scripted(answer(body)) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))

        with pytest.raises(errors.APIGarbledError):
            await collect(context=context)


def test_null_is_an_empty_list():
    assert listing.parse_page(
        {'metadata': {'resourceVersion': '5'}, 'items': None}
    ) == listing.Page([], '5')
