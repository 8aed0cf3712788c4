"""
Handlers of raw events: they see all that comes from the cluster, in order, and leave no traces of
themselves.
"""

import asyncio
import logging
import urllib.parse

import pytest
from clusters import get_progress, wait_until

import kopf


@pytest.fixture
def events():
    return []


@pytest.fixture
def event_handler(registry, events):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, name, spec, event, **_):
        assert event['type'] == type
        events.append((name, type, spec.get('x')))


@pytest.mark.guarantee('HND-027', 'HND-028', 'NEW-041', 'KWA-037')
async def test_every_event_is_seen_with_its_type(
    cluster, registry, event_handler, run_operator, events
):
    await cluster.create('old', spec={'x': 0})
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create('new', spec={'x': 1})
    for x in range(2, 5):
        await cluster.patch({'spec': {'x': x}}, 'new')
    await cluster.delete('new')
    await wait_until(lambda: len(events) == 6)

    assert events == [
        ('old', None, 0),
        ('new', 'ADDED', 1),
        ('new', 'MODIFIED', 2),
        ('new', 'MODIFIED', 3),
        ('new', 'MODIFIED', 4),
        ('new', 'DELETED', 4),
    ]


@pytest.mark.guarantee('HND-027')
async def test_events_that_come_while_a_handler_is_busy_are_all_seen_in_order(
    cluster, registry, run_operator, events
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, body, spec, **_):
        events.append((type, spec['x'], body['metadata']['resourceVersion']))
        await asyncio.sleep(10)

    await run_operator()
    await cluster.wait_until_watched()
    bodies = [await cluster.create(spec={'x': 0})]
    await wait_until(lambda: events)
    for x in range(1, 5):
        bodies.append(await cluster.patch({'spec': {'x': x}}))
    await wait_until(lambda: len(events) == 5)

    assert events == [
        ('MODIFIED' if x else 'ADDED', x, body['metadata']['resourceVersion'])
        for x, body in enumerate(bodies)
    ]


@pytest.mark.guarantee('HND-028')
async def test_every_start_shows_all_objects_once(cluster, event_handler, run_operator, events):
    for name in ['a', 'b', 'c']:
        await cluster.create(name)
    for times in [1, 2]:
        events.clear()
        operator = await run_operator()
        await cluster.wait_until_watched(times)
        await asyncio.sleep(600)  # of the virtual time
        await operator.stop()

        assert sorted(events) == [('a', None, 1), ('b', None, 1), ('c', None, 1)]


@pytest.mark.guarantee('HND-027', 'NEW-041')
async def test_what_has_happened_while_the_stream_was_lost_is_seen_as_it_is_found(
    cluster, event_handler, run_operator, events
):
    for name in ['changed', 'deleted', 'untouched']:
        await cluster.create(name)
    await run_operator()
    await wait_until(lambda: len(events) == 3)
    events.clear()
    with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', code=503):
        cluster.sandbox.faults.cut_streams()
        await cluster.patch({'spec': {'x': 2}}, 'changed')
        await cluster.delete('deleted')
        await cluster.create('created')
        await cluster.sandbox.compact()
        await asyncio.sleep(1)
    await wait_until(lambda: len(events) == 3)
    await asyncio.sleep(600)  # of the virtual time

    assert sorted((name, type) for name, type, _ in events) == [
        ('changed', 'MODIFIED'),
        ('created', 'ADDED'),
        ('deleted', 'DELETED'),
    ]


@pytest.mark.guarantee('NEW-042')
async def test_bookmarks_are_seen_by_no_handlers(
    cluster, registry, event_handler, run_operator, events
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()
    await asyncio.sleep(0.1)
    events.clear()
    await cluster.sandbox.create(
        {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'unrelated'}}
    )
    await asyncio.sleep(150)  # bookmarks come every minute
    cluster.sandbox.requests.clear()
    cluster.sandbox.faults.cut_streams()
    await cluster.wait_until_watched()
    (asked,) = cluster.sandbox.requests.select(verb='watch', resource=cluster.plural)
    query = urllib.parse.parse_qs(asked.query)

    # From a bookmark.
    assert int(query['resourceVersion'][0]) > int(body['metadata']['resourceVersion'])
    assert events == []


@pytest.mark.guarantee('HND-030', 'ERR-025')
@pytest.mark.parametrize(
    'error',
    [
        pytest.param(Exception('it is broken'), id='arbitrary'),
        pytest.param(kopf.TemporaryError('it is broken', delay=1), id='temporary'),
        pytest.param(kopf.PermanentError('it is broken'), id='permanent'),
    ],
)
async def test_errors_are_logged_and_ignored(cluster, registry, run_operator, events, logs, error):
    @kopf.on.event('kopfexamples', id='failing_fn', registry=registry)
    async def failing_fn(spec, **_):
        events.append(('failing', spec['x']))
        raise error

    @kopf.on.event('kopfexamples', registry=registry)
    async def good_fn(spec, **_):
        events.append(('good', spec['x']))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: len(events) == 2)
    await asyncio.sleep(600)  # of the virtual time
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(events) == 4)

    assert events == [('failing', 1), ('good', 1), ('failing', 2), ('good', 2)]
    assert len([text for text in logs(logging.ERROR) if "Handler 'failing_fn' failed" in text]) == 2
    assert cluster.writes == []


@pytest.mark.guarantee('HND-030')
async def test_errors_of_event_handlers_do_not_affect_the_handlers_of_changes(
    cluster, registry, run_operator, events
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def failing_fn(**_):
        raise Exception('it is broken')

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        events.append('created')

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    assert events == ['created']
    assert not get_progress(body)


@pytest.mark.guarantee('HND-031')
async def test_only_the_messages_of_the_function_itself_are_meant_for_k8s_events(
    cluster, registry, run_operator, events, caplog
):
    @kopf.on.event('kopfexamples', id='good_fn', registry=registry)
    async def good_fn(logger, **_):
        logger.info('The function says so.')

    @kopf.on.event('kopfexamples', id='failing_fn', registry=registry)
    async def failing_fn(**_):
        events.append('called')
        raise Exception('it is broken')

    caplog.set_level(logging.DEBUG)
    await run_operator()
    await cluster.create()
    await wait_until(lambda: events)
    await asyncio.sleep(1)

    records = [record for record in caplog.records if record.name == 'kopf.objects']
    texts = [record.getMessage() for record in records]
    assert any("Handler 'failing_fn' failed" in text for text in texts)
    assert any("Handler 'good_fn' succeeded" in text for text in texts)
    assert [record.getMessage() for record in records if not record.k8s_skip] == [
        'The function says so.'
    ]


@pytest.mark.guarantee('HND-029', 'WLD-013')
async def test_results_and_arguments_leave_objects_untouched_unless_patched_on_purpose(
    cluster, registry, run_operator, events
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, patch, body, memo, **_):
        events.append(body['metadata']['resourceVersion'])
        memo.counter = memo.get('counter', 0) + 1
        if spec['x'] == 2:
            patch.spec['y'] = 'patched'
        return {'result': 'is ignored'}

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: events)
    before = await cluster.patch({'metadata': {'labels': {'a': 'b'}}})
    await wait_until(lambda: before['metadata']['resourceVersion'] in events)
    await asyncio.sleep(600)  # of the virtual time
    assert await cluster.get() == before

    await cluster.patch({'spec': {'x': 2}})
    body = await cluster.wait(lambda body: body['spec'].get('y') == 'patched')
    await wait_until(lambda: body['metadata']['resourceVersion'] in events)
    await asyncio.sleep(600)  # of the virtual time
    assert body['metadata'].get('annotations') is None and 'finalizers' not in body['metadata']
    assert 'status' not in body
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('KWA-008', 'KWA-037')
async def test_handlers_of_events_get_the_raw_event_as_it_came(
    cluster, registry, run_operator, events
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(event, type, body, **kwargs):
        events.append(
            (event, type, dict(body), {'reason', 'old', 'new', 'diff', 'stopped'} & kwargs.keys())
        )

    await run_operator()
    await cluster.wait_until_watched()
    created = await cluster.create()
    await wait_until(lambda: events)

    # Never shown: they are large, and of no use for handlers.
    del created['metadata']['managedFields']
    assert events == [({'type': 'ADDED', 'object': created}, 'ADDED', created, set())]
    assert type(events[0][0]) is dict


@pytest.mark.guarantee('HND-027')
async def test_a_deletion_is_seen_also_while_another_handler_of_the_object_waits_for_its_retry(
    cluster, registry, event_handler, run_operator, events
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        raise kopf.TemporaryError('not yet', delay=3600)

    await run_operator()
    await cluster.create()
    await cluster.wait(get_progress)
    await cluster.delete()
    await wait_until(lambda: events[-1][1] == 'DELETED', timeout=60)
