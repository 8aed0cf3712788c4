"""
Watches over HTTP: from where they begin, what is seen through the selectors, how they end.
"""

import pytest
from sandbox_http import GROUP

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}


async def test_watch_without_a_version_begins_with_the_current_objects(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})
    await api.make(configmaps, {'metadata': {'name': 'b'}})

    async with api.watch(configmaps) as stream:
        initial = await stream.take(2)
        await api.merge(f'{configmaps}/b', {'data': {'x': 'y'}})
        await api.delete(f'{configmaps}/a')
        following = await stream.take(2)

    assert sorted(initial) == [('ADDED', 'a'), ('ADDED', 'b')]
    assert following == [('MODIFIED', 'b'), ('DELETED', 'a')]


async def test_watch_continues_from_a_version(api, things):
    first = await api.make(things, {**THING, 'metadata': {'name': 'a'}})
    version = (await api.get(things)).body['metadata']['resourceVersion']
    second = await api.make(things, {**THING, 'metadata': {'name': 'b'}})
    changed = await api.merge(f'{things}/a', {'spec': {'size': 1}})
    await api.delete(f'{things}/b')

    async with api.watch(things, resourceVersion=version) as stream:
        events = [await stream.next() for _ in range(3)]
    async with api.watch(things, resourceVersion=first['metadata']['resourceVersion']) as stream:
        assert await stream.take(3) == [('ADDED', 'b'), ('MODIFIED', 'a'), ('DELETED', 'b')]

    assert events[0] == ('ADDED', second)
    assert events[1] == ('MODIFIED', changed.body)
    assert events[2][0] == 'DELETED'
    versions = [int(body['metadata']['resourceVersion']) for _, body in events]
    assert versions == sorted(set(versions))
    assert events[2][1] == {
        **second,
        'metadata': {**second['metadata'], 'resourceVersion': str(versions[2])},
    }


async def test_watch_from_zero_begins_with_the_current_objects(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    async with api.watch(configmaps, resourceVersion='0') as stream:
        assert await stream.take(1) == [('ADDED', 'a')]


async def test_selected_objects_come_and_go_with_their_labels(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a', 'labels': {'x': '1'}}})
    await api.make(configmaps, {'metadata': {'name': 'b'}})

    async with api.watch(configmaps, labelSelector='x=1') as stream:
        initial = await stream.next()
        entered = await api.merge(f'{configmaps}/b', {'metadata': {'labels': {'x': '1'}}})
        entering = await stream.next()
        left = await api.merge(f'{configmaps}/a', {'metadata': {'labels': {'x': '2'}}})
        leaving = await stream.next()
        await api.delete(f'{configmaps}/a')
        await api.delete(f'{configmaps}/b')
        last = await stream.next()

    assert (initial[0], initial[1]['metadata']['name']) == ('ADDED', 'a')
    assert entering == ('ADDED', entered.body)
    assert leaving[0] == 'DELETED'
    assert leaving[1]['metadata']['labels'] == {'x': '1'}
    assert leaving[1]['metadata']['resourceVersion'] == left.body['metadata']['resourceVersion']
    assert (last[0], last[1]['metadata']['name']) == ('DELETED', 'b')


async def test_selected_objects_come_and_go_with_their_fields(api, pods):
    body = {
        'metadata': {'name': 'a'},
        'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
    }
    version = (await api.get(pods)).body['metadata']['resourceVersion']
    await api.make(pods, body)
    await api.merge(f'{pods}/a/status', {'status': {'phase': 'Running'}})
    await api.merge(f'{pods}/a/status', {'status': {'phase': 'Succeeded'}})

    async with api.watch(
        pods, resourceVersion=version, fieldSelector='status.phase=Running'
    ) as stream:
        events = [await stream.next() for _ in range(2)]

    assert [(type, event['status']['phase']) for type, event in events] == [
        ('ADDED', 'Running'),
        ('DELETED', 'Running'),
    ]


async def test_one_object_is_watched_by_its_name(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})
    await api.make(configmaps, {'metadata': {'name': 'b'}})

    async with api.watch(configmaps, fieldSelector='metadata.name=b') as stream:
        assert await stream.take(1) == [('ADDED', 'b')]


async def test_object_itself_cannot_be_watched(api, configmaps):
    made = await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.get(f'{configmaps}/a', watch='true')

    assert reply.body == made


async def test_watch_of_all_namespaces_sees_them_all(api, namespace, things):
    version = (await api.get(things)).body['metadata']['resourceVersion']
    await api.make(
        things.replace(namespace, 'default'),
        {**THING, 'metadata': {'name': f'in-default-{namespace}'}},
    )
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    async with api.watch(f'/apis/{GROUP}/v1/things', resourceVersion=version) as stream:
        events = [await stream.next() for _ in range(2)]

    assert [event['metadata']['namespace'] for _, event in events] == ['default', namespace]


async def test_watch_ends_in_time_and_tells_the_end_of_the_current_objects_if_asked(
    api, configmaps
):
    made = await api.make(configmaps, {'metadata': {'name': 'a'}})

    async with api.watch(configmaps, timeoutSeconds=1, allowWatchBookmarks='true') as stream:
        events = await stream.rest()

    assert [type for type, _ in events] == ['ADDED', 'BOOKMARK']
    bookmark = events[1][1]
    assert bookmark == {'kind': 'ConfigMap', 'apiVersion': 'v1', 'metadata': bookmark['metadata']}
    assert set(bookmark['metadata']) == {'resourceVersion', 'annotations'}
    assert bookmark['metadata']['annotations'] == {'k8s.io/initial-events-end': 'true'}
    assert int(bookmark['metadata']['resourceVersion']) >= int(made['metadata']['resourceVersion'])


async def test_initial_events_are_sent_with_the_closing_bookmark(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    async with api.watch(
        things,
        sendInitialEvents='true',
        resourceVersionMatch='NotOlderThan',
        allowWatchBookmarks='true',
    ) as stream:
        first = await stream.next()
        bookmark = await stream.next()
        made = await api.make(things, {**THING, 'metadata': {'name': 'b'}})
        following = await stream.next()

    assert (first[0], first[1]['metadata']['name']) == ('ADDED', 'a')
    assert bookmark[0] == 'BOOKMARK'
    assert bookmark[1] == {
        'kind': 'Thing',
        'apiVersion': f'{GROUP}/v1',
        'metadata': {
            'annotations': {'k8s.io/initial-events-end': 'true'},
            'resourceVersion': bookmark[1]['metadata']['resourceVersion'],
        },
    }
    assert following == ('ADDED', made)


async def test_initial_events_are_not_sent_on_request(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    async with api.watch(
        things, sendInitialEvents='false', resourceVersionMatch='NotOlderThan'
    ) as stream:
        await api.make(things, {**THING, 'metadata': {'name': 'b'}})
        assert await stream.take(1) == [('ADDED', 'b')]


@pytest.mark.parametrize(
    'options, problem',
    [
        pytest.param(
            {'watch': 'true', 'sendInitialEvents': 'true'},
            'resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to '
            'NotOlderThan',
            id='no-match',
        ),
        pytest.param(
            {'watch': 'true', 'resourceVersionMatch': 'NotOlderThan'},
            'resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless '
            'sendInitialEvents is provided',
            id='only-match',
        ),
        pytest.param(
            {'sendInitialEvents': 'true'},
            'sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list',
            id='list',
        ),
        pytest.param(
            {'resourceVersionMatch': 'Exact'},
            'resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is '
            'provided',
            id='no-version',
        ),
        pytest.param(
            {'resourceVersionMatch': 'Exact', 'resourceVersion': '0'},
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            id='exact-zero',
        ),
        pytest.param(
            {'resourceVersionMatch': 'Some', 'resourceVersion': '1'},
            'resourceVersionMatch: Unsupported value: "Some": supported values: "Exact", "NotOlderThan", ""',
            id='unknown-match',
        ),
    ],
)
async def test_wrong_options_are_refused(api, configmaps, options, problem):
    reply = await api.get(configmaps, **options)

    assert reply.code == 422
    assert reply.body['reason'] == 'Invalid'
    assert reply.body['message'] == f'ListOptions.meta.k8s.io "" is invalid: {problem}'


@pytest.mark.parametrize(
    'options, code, message',
    [
        pytest.param(
            {'labelSelector': 'x=('},
            400,
            "unable to parse requirement: found '(', expected: identifier",
            id='labels',
        ),
        pytest.param(
            {'fieldSelector': 'spec.wrong=1'},
            400,
            '"spec.wrong" is not a known field selector: only "metadata.name", "metadata.namespace"',
            id='fields',
        ),
        pytest.param(
            {'continue': 'wrong!'},
            400,
            'invalid continue token: continue key is not valid: illegal base64 data at input byte 5',
            id='continue',
        ),
        pytest.param(
            {'limit': 'many'}, 400, 'strconv.ParseInt: parsing "many": invalid syntax', id='limit'
        ),
        pytest.param(
            {'resourceVersion': 'some'},
            400,
            'invalid resource version: resourceVersion: Invalid value: "some": '
            'strconv.ParseUint: parsing "some": invalid syntax',
            id='version',
        ),
        pytest.param(
            {'resourceVersion': 'some', 'watch': 'true'},
            500,
            'resourceVersion: Invalid value: "some": '
            'strconv.ParseUint: parsing "some": invalid syntax',
            id='watch-version',
        ),
    ],
)
async def test_senseless_options_are_refused(api, configmaps, options, code, message):
    reply = await api.get(configmaps, **options)

    assert reply.code == code
    assert reply.body['message'] == message


@pytest.mark.parametrize('resource', ['pods', 'things'])
async def test_unknown_fields_are_not_selected_by(api, paths, resource):
    reply = await api.get(paths[resource], fieldSelector='spec.wrong=1')

    assert reply.code == 400
    assert reply.body['message'] == 'field label not supported: spec.wrong'


async def test_pages_are_of_the_version_of_the_first_one(api, configmaps):
    for name in 'abcde':
        await api.make(configmaps, {'metadata': {'name': name}})

    first = await api.get(configmaps, limit=2)
    await api.make(configmaps, {'metadata': {'name': 'bb'}})
    await api.delete(f'{configmaps}/d')
    second = await api.get(configmaps, limit=2, **{'continue': first.body['metadata']['continue']})
    third = await api.get(configmaps, limit=2, **{'continue': second.body['metadata']['continue']})

    names = [
        [item['metadata']['name'] for item in page.body['items']] for page in (first, second, third)
    ]
    assert names == [['a', 'b'], ['c', 'd'], ['e', 'kube-root-ca.crt']]
    assert [page.body['metadata'].get('remainingItemCount') for page in (first, second, third)] == [
        4,
        2,
        None,
    ]
    assert len({page.body['metadata']['resourceVersion'] for page in (first, second, third)}) == 1
    assert 'continue' not in third.body['metadata']


async def test_pages_with_selectors_do_not_tell_how_many_are_left(api, configmaps):
    for name in 'abc':
        await api.make(configmaps, {'metadata': {'name': name, 'labels': {'x': 'y'}}})

    page = await api.get(configmaps, limit=2, labelSelector='x=y')

    assert [item['metadata']['name'] for item in page.body['items']] == ['a', 'b']
    assert page.body['metadata']['continue'] and 'remainingItemCount' not in page.body['metadata']


async def test_past_version_is_listed_exactly(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})
    version = (await api.make(configmaps, {'metadata': {'name': 'b'}}))['metadata'][
        'resourceVersion'
    ]
    await api.delete(f'{configmaps}/a')

    exact = await api.get(configmaps, resourceVersion=version, resourceVersionMatch='Exact')
    fresh = await api.names(
        configmaps, resourceVersion=version, resourceVersionMatch='NotOlderThan'
    )

    assert [item['metadata']['name'] for item in exact.body['items']] == [
        'a',
        'b',
        'kube-root-ca.crt',
    ]
    assert exact.body['metadata']['resourceVersion'] == version
    assert fresh == ['b']


async def test_tokens_are_shown_in_lists_of_custom_objects_though_empty(api, configmaps, things):
    built_in, custom = (await api.get(configmaps)).body, (await api.get(things)).body

    assert set(built_in['metadata']) == {'resourceVersion'}
    assert set(custom['metadata']) == {'continue', 'resourceVersion'}
    assert custom['metadata']['continue'] == ''


async def test_old_paths_are_for_watching(api, namespace, configmaps, things):
    await api.make(configmaps, {'metadata': {'name': 'a'}})
    await api.make(things, {**THING, 'metadata': {'name': 'b'}})

    built_in = configmaps.replace('/v1/', '/v1/watch/')
    for path, name in [(built_in, 'a'), (things.replace('/v1/', '/v1/watch/'), 'b')]:
        async with api.watch(path, watch='false') as stream:
            assert await stream.take(1) == [('ADDED', name)]
    everywhere = {'watch': 'false', 'fieldSelector': f'metadata.namespace={namespace}'}
    async with api.watch('/api/v1/watch/configmaps', **everywhere) as stream:
        assert await stream.take(1) == [('ADDED', 'a')]


async def test_tables_have_headers_once_in_a_stream(api, configmaps):
    for name in 'ab':
        await api.make(configmaps, {'metadata': {'name': name}})

    accept = {'Accept': 'application/json;as=Table;v=v1;g=meta.k8s.io'}
    async with api.watch(configmaps, headers=accept) as stream:
        [(_, first), (_, second)] = [await stream.next() for _ in 'ab']

    assert [column['name'] for column in first['columnDefinitions']] == ['Name', 'Data', 'Age']
    assert second['columnDefinitions'] is None
    assert [row['cells'][0] for table in (first, second) for row in table['rows']] == ['a', 'b']


async def test_items_of_lists_have_kinds_only_if_custom(api, configmaps, things):
    await api.make(configmaps, {'metadata': {'name': 'a'}})
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    built_in, custom = (await api.get(configmaps)).body, (await api.get(things)).body

    assert (built_in['kind'], built_in['apiVersion'], set(built_in['items'][0])) == (
        'ConfigMapList',
        'v1',
        {'metadata'},
    )
    assert (custom['kind'], custom['apiVersion']) == ('ThingList', f'{GROUP}/v1')
    assert (custom['items'][0]['kind'], custom['items'][0]['apiVersion']) == (
        'Thing',
        f'{GROUP}/v1',
    )


async def test_version_of_the_future_is_not_waited_for_long(api, configmaps):
    version = int((await api.get(configmaps)).body['metadata']['resourceVersion']) + 1_000_000

    reply = await api.get(configmaps, resourceVersion=version)

    assert reply.code == 504
    assert reply.body['reason'] == 'Timeout'
    assert reply.body['message'].startswith(
        f'Timeout: Too large resource version: {version}, current: '
    )
    assert reply.body['details']['causes'] == [
        {'reason': 'ResourceVersionTooLarge', 'message': 'Too large resource version'}
    ]
    assert reply.body['details']['retryAfterSeconds'] == 1


async def test_forgotten_versions_are_expired(sandbox, api, configmaps):
    for name in 'abc':
        await api.make(configmaps, {'metadata': {'name': name}})
    page = (await api.get(configmaps, limit=1)).body['metadata']
    await api.delete(f'{configmaps}/c')
    sandbox.compact()

    continued = await api.get(configmaps, limit=1, **{'continue': page['continue']})
    exact = await api.get(
        configmaps, resourceVersion=page['resourceVersion'], resourceVersionMatch='Exact'
    )
    async with api.watch(configmaps, resourceVersion=page['resourceVersion']) as stream:
        [(type, status)] = await stream.rest()

    resumed = await api.names(configmaps, **{'continue': continued.body['metadata']['continue']})

    assert (continued.code, continued.body['reason']) == (410, 'Expired')
    assert resumed == ['b']
    assert (exact.code, exact.body['reason']) == (410, 'Expired')
    assert exact.body['message'] == 'The resourceVersion for the provided list is too old.'
    assert (type, status['kind'], status['code'], status['reason']) == (
        'ERROR',
        'Status',
        410,
        'Expired',
    )
    assert status['message'].startswith(f'too old resource version: {page["resourceVersion"]} (')


async def test_watches_outlive_the_compaction(sandbox, api, configmaps):
    async with api.watch(configmaps) as stream:
        await api.make(configmaps, {'metadata': {'name': 'a'}})
        await stream.take(1)
        sandbox.compact()
        await api.make(configmaps, {'metadata': {'name': 'b'}})
        assert await stream.take(1) == [('ADDED', 'b')]
