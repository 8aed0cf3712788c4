"""
What handlers put into their patches gets to the objects: in as few requests as possible, in the
promised order, and also when the cluster refuses a part of it, or somebody else changes the object
meanwhile.
"""

import asyncio
import functools
import logging

import pytest
from clusters import (
    FINALIZER,
    GROUP,
    VERSION,
    Cluster,
    build_crd,
    build_object,
    get_progress,
    wait_until,
)

import kopf

MERGE, JSON = 'application/merge-patch+json', 'application/json-patch+json'
FOREIGN = 'example.com/foreign'


def build_strict_crd():
    """
    Build a definition of a custom resource with ``spec.size``, which cannot be negative, and no
    other fields.
    """
    crd = build_crd()
    schema = {'type': 'object', 'properties': {'size': {'type': 'integer', 'minimum': 0}}}
    crd['spec']['versions'][0]['schema']['openAPIV3Schema']['properties'] = {'spec': schema}
    return crd


@pytest.fixture
async def strict_cluster(sandbox):
    await sandbox.apply(build_strict_crd())
    return Cluster(sandbox)


@pytest.fixture
async def status_cluster(sandbox):
    """A cluster where the status of ``kopfexamples`` is a subresource."""
    await sandbox.apply(build_crd(has_status=True))
    return Cluster(sandbox)


def list_writes(cluster, since=0):
    return [(asked.content_type, asked.subresource, asked.code) for asked in cluster.writes[since:]]


def set_field(body, *, section, key, value):
    body.setdefault(section, {})[key] = value


def put(section, key, value):
    """A function for patches."""
    return functools.partial(set_field, section=section, key=key, value=value)


@pytest.fixture
def create_everywhere(registry):
    """A handler that changes everything in all ways."""
    seen = []

    def remember(body):
        seen.append(
            (
                body['spec'].get('merged'),
                (body.get('status') or {}).get('merged'),
                body['spec'].get('made'),
            )
        )

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(patch, **_):
        patch.spec['merged'] = 1
        patch.status['merged'] = 2
        patch.fns.extend([put('spec', 'made', 3), remember, put('status', 'made', 4)])
        return 'result'

    return seen


@pytest.mark.guarantee('NEW-051', 'NEW-055', 'NEW-056', 'NEW-060', 'NEW-061', 'NEW-063')
async def test_all_changes_of_a_cycle_are_two_requests_if_the_status_is_a_part_of_the_object(
    cluster, create_everywhere, run_operator
):
    await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: 'made' in body['spec'])

    assert list_writes(cluster) == [(MERGE, '', 200), (JSON, '', 200)]
    assert body['spec'] == {'x': 1, 'merged': 1, 'made': 3}
    assert body['status'] == {'create_fn': 'result', 'merged': 2, 'made': 4}
    assert create_everywhere[-1] == (1, 2, 3)  # they get what was merged before them


@pytest.mark.guarantee('NEW-056', 'NEW-060', 'NEW-061', 'NEW-062', 'NEW-063')
async def test_all_changes_of_a_cycle_are_four_requests_if_the_status_is_a_subresource(
    status_cluster, create_everywhere, run_operator
):
    await run_operator()
    await status_cluster.create()
    body = await status_cluster.wait(lambda body: 'made' in body['spec'])

    assert list_writes(status_cluster) == [
        (MERGE, 'status', 200),
        (MERGE, '', 200),
        (JSON, 'status', 200),
        (JSON, '', 200),
    ]
    assert body['spec'] == {'x': 1, 'merged': 1, 'made': 3}
    assert body['status'] == {'create_fn': 'result', 'merged': 2, 'made': 4}
    assert create_everywhere[-1] == (1, 2, 3)


@pytest.mark.guarantee('NEW-060', 'NEW-061')
@pytest.mark.parametrize(
    'section, expected',
    [
        pytest.param('spec', [(JSON, '', 200)], id='object'),
        pytest.param('status', [(JSON, 'status', 200), (MERGE, '', 200)], id='status'),
    ],
)
async def test_requests_with_nothing_to_change_are_not_made(
    status_cluster, registry, run_operator, section, expected
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.status.update({})
        patch.fns.append(put(section, 'made', 1))

    await run_operator()
    await status_cluster.create()
    await status_cluster.wait(lambda body: 'made' in body.get(section, {}))
    await asyncio.sleep(60)

    writes = list_writes(status_cluster)
    assert writes[: len(expected)] == expected
    assert {kind for kind, *_ in writes[len(expected) :]} <= {MERGE}  # of our own records, if any


@pytest.mark.guarantee('NEW-058', 'NEW-066')
async def test_functions_that_change_nothing_make_no_requests(cluster, registry, run_operator):
    called = []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(patch, **_):
        patch.fns.extend([called.append, put('spec', 'x', 1)])

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: called)
    await asyncio.sleep(60)

    assert cluster.writes == []


@pytest.mark.guarantee('NEW-052', 'NEW-053', 'NEW-054', 'NEW-055')
async def test_functions_get_a_copy_of_the_object_which_they_share(cluster, registry, run_operator):
    bodies, given = [], []

    def rename(body, *, to):
        given.append(type(body))
        body['spec']['items'][0]['name'] = f'{to} of {body["spec"]["items"][0]["name"]}'
        return {'ignored': 'result'}

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, body, **_):
        patch.fns.append(functools.partial(rename, to='brother'))
        patch.fns.insert(0, functools.partial(rename, to='child'))
        patch.fns.append(rename)
        patch.fns.remove(rename)
        bodies.append(body)

    await run_operator()
    await cluster.create(spec={'items': [{'name': 'me'}]})
    body = await cluster.wait(lambda body: body['spec']['items'][0]['name'] != 'me')

    assert set(given) == {dict}
    assert body['spec'] == {'items': [{'name': 'brother of child of me'}]}
    assert bodies[0]['spec']['items'] == [{'name': 'me'}]


@pytest.mark.guarantee('NEW-059', 'KWA-034')
async def test_the_mapping_is_merged_into_the_object(cluster, registry, run_operator):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.spec['gone'] = None
        patch.spec['nested'] = {'added': 1, 'gone': None}
        patch.spec['items'] = [3]
        patch.metadata.labels['added'] = 'yes'

    await run_operator()
    await cluster.create(
        spec={'gone': 1, 'nested': {'kept': 0, 'gone': 0}, 'items': [1, 2]}, labels={'kept': 'yes'}
    )
    body = await cluster.wait_until_handled(items=[3])

    assert body['spec'] == {'nested': {'kept': 0, 'added': 1}, 'items': [3]}
    assert body['metadata']['labels'] == {'kept': 'yes', 'added': 'yes'}


@pytest.mark.guarantee('KWA-033')
@pytest.mark.parametrize(
    'error',
    [
        pytest.param(kopf.PermanentError('fatal'), id='permanent'),
        pytest.param(kopf.TemporaryError('not now', delay=3600), id='temporary'),
        pytest.param(Exception('anything'), id='arbitrary'),
    ],
)
async def test_changes_of_failed_handlers_are_made(cluster, registry, run_operator, error):
    @kopf.on.create('kopfexamples', registry=registry, backoff=3600)
    async def create_fn(patch, **_):
        patch.metadata.annotations['merged'] = 'yes'
        patch.fns.append(put('spec', 'made', 'yes'))
        raise error

    await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: 'made' in body['spec'])

    assert body['metadata']['annotations']['merged'] == 'yes'
    assert list_writes(cluster) == [(MERGE, '', 200), (JSON, '', 200)]


@pytest.mark.guarantee('NEW-051', 'NEW-068')
async def test_handlers_of_events_can_change_objects(cluster, registry, run_operator):
    patches = []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(patch, **_):
        patches.append((bool(patch), len(patch)))
        patch.status['merged'] = 1
        patch.fns.append(put('spec', 'made', 2))
        patches.append((bool(patch), len(patch)))

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: 'made' in body['spec'] and 'merged' in body['status'])
    await asyncio.sleep(60)

    assert list_writes(cluster) == [(MERGE, '', 200), (JSON, '', 200)]
    assert patches[:2] == [(False, 0), (True, 1)]


@pytest.mark.guarantee('NEW-057', 'NEW-064', 'NEW-065', 'NEW-066')
async def test_functions_for_an_outdated_object_are_applied_again_before_any_handlers_of_changes(
    cluster, registry, run_operator
):
    calls = []

    def count(body):
        body['spec']['counter'] = body['spec'].get('counter', 0) + 1

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        calls.append(('event', spec['x'], spec.get('counter')))

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, spec, **_):
        calls.append(('create', spec['x'], spec.get('counter')))
        patch.fns.append(count)

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(spec, **_):
        calls.append(('update', spec['x'], spec.get('counter')))

    await run_operator()
    with cluster.sandbox.faults.inject(verb='patch', latency=5, user_agent='kopf/*') as fault:
        await cluster.create(spec={'x': 1, 'counter': 10})
        # It is the JSON patch, already made but not yet done.
        await wait_until(lambda: fault.hits == 1)
        await cluster.patch({'spec': {'x': 2, 'counter': 20}})
        await wait_until(lambda: fault.hits == 2)
    body = await cluster.wait_until_handled(x=2)

    assert list_writes(cluster)[:2] == [(JSON, '', 422), (JSON, '', 200)]
    assert body['spec'] == {'x': 2, 'counter': 21}
    assert calls.index(('event', 2, 20)) < calls.index(('update', 2, 21))
    assert [call for call in calls if call[0] != 'event'] == [('create', 1, 10), ('update', 2, 21)]


@pytest.mark.guarantee('NEW-064', 'NEW-065', 'NEW-066')
async def test_functions_that_make_a_wrong_object_are_applied_again_later(
    strict_cluster, registry, run_operator, logs
):
    calls = []

    def diminish(body):
        body['spec']['size'] -= 10

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        calls.append(('event', spec['size']))

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, spec, **_):
        calls.append(('create', spec['size']))
        patch.fns.append(diminish)

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(spec, **_):
        calls.append(('update', spec['size']))

    await run_operator()
    await strict_cluster.create(spec={'size': 5})
    await asyncio.sleep(300)
    before = len(strict_cluster.writes)
    assert [call for call in calls if call[0] != 'event'] == [('create', 5)]
    assert any('refuses' in text for text in logs(logging.ERROR))

    await strict_cluster.patch({'spec': {'size': 8}})
    # Not delayed by the attempts to apply the functions.
    await wait_until(lambda: ('event', 8) in calls, timeout=1)
    await strict_cluster.patch({'spec': {'size': 30}})
    await strict_cluster.wait(lambda body: body['spec']['size'] == 20)
    await wait_until(lambda: ('update', 20) in calls)

    assert before < 20  # there are pauses between the attempts
    assert [call for call in calls if call[0] != 'event'] == [('create', 5), ('update', 20)]


async def test_functions_that_fail_are_dropped_and_the_rest_is_done(
    cluster, registry, run_operator, logs
):
    def fail(body):
        raise KeyError('nothing like this')

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.fns.extend([put('spec', 'one', 1), fail, put('spec', 'two', 2)])

    @kopf.on.event('kopfexamples', registry=registry, annotations={'failing': kopf.PRESENT})
    async def event_fn(patch, **_):
        patch.fns.extend([put('spec', 'three', 3), fail])

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['spec'].get('two') == 2)
    await cluster.patch({'metadata': {'annotations': {'failing': 'yes'}}})
    body = await cluster.wait(lambda body: 'three' in body['spec'])

    assert body['spec'] == {'x': 1, 'one': 1, 'two': 2, 'three': 3}
    assert any('A function of the patch has failed' in text for text in logs(logging.ERROR))


async def test_functions_that_fail_for_a_newer_object_do_not_stop_its_handling(
    cluster, registry, run_operator
):
    updated = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.fns.append(lambda body: body['spec'].update(copied=body['spec']['x']))

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(spec, **_):
        updated.append(dict(spec))

    await run_operator()
    with cluster.sandbox.faults.inject(verb='patch', latency=5, user_agent='kopf/*') as fault:
        await cluster.create()
        await wait_until(lambda: fault.hits == 1)
        await cluster.patch({'spec': {'x': None, 'y': 2}})
    await wait_until(lambda: updated)

    assert updated == [{'y': 2}]


@pytest.mark.guarantee('NEW-067')
@pytest.mark.parametrize('moment', [pytest.param(1, id='merging'), pytest.param(2, id='functions')])
async def test_changes_of_vanished_objects_are_dropped_with_no_errors(
    cluster, registry, run_operator, logs, moment
):
    events = []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, **_):
        events.append(type)

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.spec['merged'] = 1
        patch.status['merged'] = 1
        patch.fns.append(put('spec', 'made', 1))

    await run_operator()
    with cluster.sandbox.faults.inject(verb='patch', latency=5, user_agent='kopf/*') as fault:
        await cluster.create()
        await wait_until(lambda: fault.hits == moment)
        await cluster.delete()
        await wait_until(lambda: events[-1] == 'DELETED')
        await asyncio.sleep(60)

    assert [code for *_, code in list_writes(cluster)] == [200, 404][-moment:]
    assert logs(logging.WARNING) == []


async def test_changes_that_the_cluster_refuses_do_not_repeat_the_handlers(
    strict_cluster, registry, run_operator, logs
):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, retry, **_):
        calls.append(retry)
        patch.spec['size'] = -1

    await run_operator()
    await strict_cluster.create(spec={'size': 5})
    body = await strict_cluster.wait_until_handled(size=5)
    await asyncio.sleep(60)

    assert calls == [0]
    assert not get_progress(body)
    assert list_writes(strict_cluster)[:2] == [(MERGE, '', 422), (MERGE, '', 200)]
    assert any('refuses' in text for text in logs(logging.ERROR))


@pytest.mark.guarantee('NEW-083', 'NEW-084')
async def test_our_finalizer_comes_and_goes_with_no_harm_to_those_added_meanwhile(
    cluster, registry, run_operator
):
    calls = []

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    await run_operator()
    with cluster.sandbox.faults.inject(verb='patch', latency=5, user_agent='kopf/*') as fault:
        await cluster.create(finalizers=['example.com/first'])
        await fault.wait_until_hit()
        await cluster.patch({'metadata': {'finalizers': ['example.com/first', FOREIGN]}})
    body = await cluster.wait(lambda body: FINALIZER in body['metadata']['finalizers'])
    assert body['metadata']['finalizers'] == ['example.com/first', FOREIGN, FINALIZER]
    await cluster.wait_until_handled(x=1)

    with cluster.sandbox.faults.inject(verb='patch', latency=5, user_agent='kopf/*') as fault:
        await cluster.delete()
        await fault.wait_until_hit()
        await cluster.patch({'metadata': {'finalizers': [FINALIZER, FOREIGN]}})
    body = await cluster.wait(lambda body: FINALIZER not in body['metadata']['finalizers'])
    assert body['metadata']['finalizers'] == [FOREIGN]

    written = list_writes(cluster)
    assert [code for kind, _, code in written if kind == JSON] == [422, 200, 422, 200]
    assert set(calls) == {'delete'}


@pytest.mark.guarantee('NEW-086')
async def test_handlers_of_deletion_are_called_once_though_the_object_stays(
    cluster, registry, run_operator
):
    calls = []

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(patch, **_):
        calls.append('delete')
        patch.status['deleted'] = True

    await run_operator()
    await cluster.create(finalizers=[FOREIGN])
    await cluster.wait_until_handled(x=1)
    await cluster.delete()
    body = await cluster.wait(lambda body: FINALIZER not in body['metadata']['finalizers'])
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(60)

    assert calls == ['delete']
    assert body['status'] == {'deleted': True}
    assert not get_progress(body)


@pytest.mark.guarantee('NEW-085')
async def test_all_our_finalizers_are_removed_at_once_with_their_list(
    cluster, registry, run_operator
):
    @kopf.on.delete('kopfexamples', registry=registry, labels={'held': 'yes'})
    async def delete_fn(**_):
        pass

    await cluster.create(finalizers=[FINALIZER, FINALIZER], labels={'held': 'no'})
    await run_operator()
    body = await cluster.wait(lambda body: 'finalizers' not in body['metadata'])

    assert body['metadata']['name'] == 'obj'
    assert [code for kind, _, code in list_writes(cluster) if kind == JSON] == [200]


@pytest.mark.guarantee('NEW-088')
async def test_nothing_is_written_to_objects_that_are_gone_though_they_still_list_our_finalizer(
    cluster, registry, run_operator
):
    lists = []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(event, meta, patch, **_):
        if event['type'] == 'DELETED':
            lists.append(meta.get('finalizers'))
            patch.spec['too'] = 'late'

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        pass

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    written = len(cluster.writes)
    await cluster.delete()
    await wait_until(lambda: lists)
    await asyncio.sleep(60)

    assert lists == [[FINALIZER]]
    assert list_writes(cluster, written) == [(JSON, '', 200)]


@pytest.mark.guarantee('NEW-086')
async def test_our_finalizer_is_removed_once_even_if_the_end_of_the_object_is_not_seen_yet(
    cluster, registry, run_operator
):
    calls = []

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('delete')
        cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', stall=True)

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    written = len(cluster.writes)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await asyncio.sleep(60)
    cluster.sandbox.faults.lift()

    assert calls == ['delete']
    assert list_writes(cluster, written) == [(JSON, '', 200)]


async def test_refused_changes_of_handlers_do_not_keep_our_finalizer(
    strict_cluster, registry, run_operator
):
    """Neither if they are merged, nor if they are made by functions."""

    @kopf.on.delete('kopfexamples', registry=registry)
    async def merging_fn(patch, **_):
        patch.spec['size'] = -1

    @kopf.on.delete('kopfexamples', registry=registry)
    async def making_fn(patch, **_):
        patch.fns.append(put('spec', 'size', -1))

    await run_operator()
    await strict_cluster.create(spec={'size': 5})
    await strict_cluster.wait_until_handled(size=5)
    await strict_cluster.delete()

    await strict_cluster.wait(lambda body: body is None, timeout=10)


async def test_refused_functions_of_the_past_do_not_keep_our_finalizer(
    strict_cluster, registry, run_operator
):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        patch.fns.append(put('spec', 'size', -1))

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    await run_operator()
    await strict_cluster.create(spec={'size': 5})
    await asyncio.sleep(500)  # the attempts are already rare
    await strict_cluster.delete()
    await strict_cluster.wait(lambda body: body is None, timeout=10)

    assert calls == ['create', 'delete']


async def test_objects_of_other_kinds_are_patched_where_they_are(sandbox, registry, run_operator):
    """Cluster-scoped ones too."""
    await sandbox.apply(build_crd('clusterexamples', 'ClusterExample', scope='Cluster'))

    @kopf.on.create('clusterexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.fns.append(put('spec', 'made', 1))

    await run_operator()
    await sandbox.create(
        {
            'apiVersion': f'{GROUP}/{VERSION}',
            'kind': 'ClusterExample',
            'spec': {},
            'metadata': {'name': build_object()['metadata']['name']},
        }
    )

    await sandbox.wait(
        'clusterexamples', 'obj', lambda body: body['spec'] == {'made': 1}, timeout=600
    )
