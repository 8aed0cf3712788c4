"""
Kubernetes events, which are of two shapes for the same objects.
"""


def build_core(name, namespace, **fields):
    return {
        'metadata': {'name': name},
        'involvedObject': {'kind': 'Pod', 'name': 'p', 'namespace': namespace, 'apiVersion': 'v1'},
        'reason': 'Testing',
        'message': 'hello',
        'type': 'Normal',
        'source': {'component': 'tests', 'host': 'here'},
        'firstTimestamp': '2026-01-02T03:04:05Z',
        'lastTimestamp': '2026-01-02T03:04:05Z',
        'count': 2,
        **fields,
    }


def build_new(name, namespace, **fields):
    return {
        'metadata': {'name': name},
        'regarding': {'kind': 'Pod', 'name': 'p', 'namespace': namespace, 'apiVersion': 'v1'},
        'reason': 'Testing',
        'note': 'hello',
        'type': 'Warning',
        'action': 'Trying',
        'eventTime': '2026-01-02T03:04:05.123456Z',
        'reportingController': 'example.com/tests',
        'reportingInstance': 'one',
        **fields,
    }


async def test_old_shape_is_read_in_the_new_one(api, namespace):
    made = await api.make(f'/api/v1/namespaces/{namespace}/events', build_core('e', namespace))

    read = (await api.get(f'/apis/events.k8s.io/v1/namespaces/{namespace}/events/e')).body

    assert made['eventTime'] is None
    assert (read['kind'], read['apiVersion']) == ('Event', 'events.k8s.io/v1')
    assert read['metadata']['uid'] == made['metadata']['uid']
    assert read['regarding'] == made['involvedObject']
    assert (read['note'], read['reason'], read['type'], read['eventTime']) == (
        'hello',
        'Testing',
        'Normal',
        None,
    )
    assert read['deprecatedSource'] == {'component': 'tests', 'host': 'here'}
    assert (read['deprecatedCount'], read['deprecatedFirstTimestamp']) == (
        2,
        '2026-01-02T03:04:05Z',
    )


async def test_new_shape_is_read_in_the_old_one(api, namespace):
    made = await api.make(
        f'/apis/events.k8s.io/v1/namespaces/{namespace}/events', build_new('e', namespace)
    )

    read = (await api.get(f'/api/v1/namespaces/{namespace}/events/e')).body

    assert (read['kind'], read['apiVersion']) == ('Event', 'v1')
    assert read['involvedObject'] == made['regarding']
    assert (read['message'], read['action'], read['eventTime']) == (
        'hello',
        'Trying',
        '2026-01-02T03:04:05.123456Z',
    )
    assert (read['reportingComponent'], read['reportingInstance']) == ('example.com/tests', 'one')
    assert (read['firstTimestamp'], read['lastTimestamp'], read['source']) == (None, None, {})


async def test_both_shapes_are_one_resource(api, namespace):
    version = (await api.get(f'/api/v1/namespaces/{namespace}/events')).body['metadata'][
        'resourceVersion'
    ]
    await api.make(f'/api/v1/namespaces/{namespace}/events', build_core('a', namespace))
    await api.make(
        f'/apis/events.k8s.io/v1/namespaces/{namespace}/events', build_new('b', namespace)
    )

    async with api.watch(
        f'/api/v1/namespaces/{namespace}/events', resourceVersion=version
    ) as stream:
        assert await stream.take(2) == [('ADDED', 'a'), ('ADDED', 'b')]
    async with api.watch(
        f'/apis/events.k8s.io/v1/namespaces/{namespace}/events', resourceVersion=version
    ) as stream:
        assert await stream.take(2) == [('ADDED', 'a'), ('ADDED', 'b')]
    assert (
        await api.post(f'/api/v1/namespaces/{namespace}/events', build_core('b', namespace))
    ).code == 409


async def test_events_are_selected_by_their_objects(api, namespace):
    await api.make(f'/api/v1/namespaces/{namespace}/events', build_core('a', namespace))
    await api.make(
        f'/apis/events.k8s.io/v1/namespaces/{namespace}/events', build_new('b', namespace)
    )

    by_old = await api.names(
        f'/api/v1/namespaces/{namespace}/events', fieldSelector='involvedObject.name=p,type=Normal'
    )
    by_new = await api.names(
        f'/apis/events.k8s.io/v1/namespaces/{namespace}/events',
        fieldSelector='regarding.kind=Pod,type=Warning',
    )

    assert (by_old, by_new) == (['a'], ['b'])


async def test_event_of_an_object_elsewhere_is_invalid(api, namespace):
    reply = await api.post(f'/api/v1/namespaces/{namespace}/events', build_core('e', 'elsewhere'))

    assert reply.code == 422
    assert reply.body['message'] == (
        'Event "e" is invalid: involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'
    )


async def test_new_shape_is_validated_strictly(api, namespace):
    reply = await api.post(
        f'/apis/events.k8s.io/v1/namespaces/{namespace}/events',
        {
            key: value
            for key, value in build_new('e', namespace).items()
            if key not in ('action', 'reportingInstance')
        },
    )

    assert reply.code == 422
    assert sorted(cause['field'] for cause in reply.body['details']['causes']) == [
        'action',
        'reportingInstance',
    ]
