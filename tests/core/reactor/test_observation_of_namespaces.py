"""
The observation of namespaces: which of them are served at any moment.
"""

import asyncio
import re

import meddling
import pytest

from kopf._cogs.clients.watching import stream_states
from kopf._cogs.structs import credentials
from kopf._core.reactor import observation

BASE = {'default', 'kube-system', 'kube-public', 'kube-node-lease'}


def namespace(name, **metadata):
    return {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name, **metadata}}


@pytest.fixture
def observe(start, context):
    def observe(*patterns, clusterwide=False, context=context):
        return start(
            observation.run_namespace_observer,
            context=context,
            patterns=patterns,
            clusterwide=clusterwide,
        )

    return observe


@pytest.mark.guarantee('SCP-012', 'SCP-013')
async def test_whole_cluster_is_served_with_no_monitoring(sandbox, observe):
    observing = observe(clusterwide=True)
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    assert observing.insights.namespaces == {None}
    assert not observing.task.done()
    assert not sandbox.requests.select()


@pytest.mark.guarantee('SCP-002', 'SCP-013')
async def test_all_namespaces_are_not_the_whole_cluster(observe):
    observing = observe('*')
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    assert observing.insights.namespaces == BASE


@pytest.mark.guarantee('SCP-001')
async def test_namespaces_of_several_patterns_are_served_once(sandbox, observe):
    for name in ['a1', 'a2', 'b', 'c']:
        await sandbox.create(namespace(name))

    observing = observe('a1', 'a*', 'b', re.compile('kube-s.*'), re.compile('c.'))
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    assert observing.insights.namespaces == {'a1', 'a2', 'b', 'kube-system'}


@pytest.mark.guarantee('SCP-008')
async def test_namespaces_come_and_go(sandbox, observe):
    observing = observe('a*')
    await observing.wait_until(lambda insights: insights.is_namespaces_known)
    assert observing.insights.namespaces == set()

    await sandbox.create(namespace('a1'))
    await sandbox.create(namespace('b1'))
    await sandbox.create(namespace('a2'))
    await observing.wait_until(lambda insights: insights.namespaces == {'a1', 'a2'})
    await sandbox.delete('namespaces', 'a1')
    await observing.wait_until(lambda insights: insights.namespaces == {'a2'})

    assert len(sandbox.requests.select(verb='list')) == 1


@pytest.mark.guarantee('SCP-010')
async def test_exact_namespaces_are_served_only_while_they_exist(sandbox, observe):
    observing = observe('mine')
    await observing.wait_until(lambda insights: insights.is_namespaces_known)
    assert observing.insights.namespaces == set()

    await sandbox.create(namespace('mine'))

    await observing.wait_until(lambda insights: insights.namespaces == {'mine'})


@pytest.mark.parametrize(
    'metadata, status, expected',
    [
        pytest.param({}, {'phase': 'Active'}, True, id='active'),
        pytest.param({}, None, True, id='new'),
        pytest.param({}, {'conditions': [{'status': 'False'}]}, True, id='not-deleted'),
        pytest.param(
            {'deletionTimestamp': 'now'}, {'phase': 'Terminating'}, True, id='just-marked'
        ),
        pytest.param({'deletionTimestamp': 'now'}, {'conditions': []}, True, id='no-conditions'),
        pytest.param(
            {'deletionTimestamp': 'now'},
            {'conditions': [{'status': 'False'}, {'status': 'True'}]},
            True,
            id='something-is-left',
        ),
        pytest.param(
            {'deletionTimestamp': 'now'},
            {'conditions': [{'status': 'False'}, {'status': 'Unknown'}]},
            False,
            id='nothing-is-left',
        ),
    ],
)
@pytest.mark.guarantee('NEW-222')
def test_namespaces_are_served_until_nothing_is_left_there(metadata, status, expected):
    body = {**namespace('mine', **metadata), **({} if status is None else {'status': status})}

    assert observation.is_namespace_served(body) is expected


@pytest.mark.guarantee('NEW-222')
async def test_deleted_namespace_is_served_while_there_are_finalizers_in_it(sandbox, observe):
    await sandbox.create(namespace('mine'))
    await sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'kept', 'namespace': 'mine', 'finalizers': ['kopf.dev/x']},
        }
    )
    observing = observe('mine')
    await observing.wait_until(lambda insights: insights.namespaces == {'mine'})
    await sandbox.delete('namespaces', 'mine')
    state = observing.insights.namespaces_stream
    version = (await sandbox.get('namespaces', 'mine'))['metadata']['resourceVersion']
    await observing.poll(lambda: int(state.known['', 'mine'].version) >= int(version))

    assert observing.insights.namespaces == {'mine'}

    await sandbox.patch('configmaps', 'kept', {'metadata': {'finalizers': None}}, 'mine')
    await observing.wait_until(lambda insights: insights.namespaces == set())


@pytest.mark.guarantee('NEW-142')
async def test_selectors_make_the_observer_blind_to_some_namespaces(
    sandbox, observe, operator_settings
):
    operator_settings.watching.label_selectors['namespaces'] = 'team=mine'
    await sandbox.create(namespace('a1', labels={'team': 'mine'}))
    await sandbox.create(namespace('a2'))
    observing = observe('a*')
    await observing.wait_until(lambda insights: insights.is_namespaces_known)
    assert observing.insights.namespaces == {'a1'}

    await sandbox.patch('namespaces', 'a2', {'metadata': {'labels': {'team': 'mine'}}})
    await observing.wait_until(lambda insights: insights.namespaces == {'a1', 'a2'})
    await sandbox.patch('namespaces', 'a1', {'metadata': {'labels': {'team': None}}})
    await observing.wait_until(lambda insights: insights.namespaces == {'a2'})


@pytest.mark.guarantee('NEW-130')
async def test_namespaces_are_listed_in_pages_and_told_of_at_once(
    sandbox, observe, operator_settings
):
    operator_settings.watching.chunk_size = 1
    observing = observe('*')
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    assert observing.insights.namespaces == BASE
    assert observing.insights.revision == 1
    assert len(sandbox.requests.select(verb='list')) == len(BASE)


async def test_namespaces_made_between_the_listing_and_the_watching_are_not_missed(
    sandbox, observe
):
    fault = sandbox.faults.inject(verb='watch', stall=True)
    observing = observe('a*')
    await fault.wait_until_hit()
    await sandbox.create(namespace('a1'))
    fault.lift()

    await observing.wait_until(lambda insights: insights.namespaces == {'a1'})


@pytest.mark.guarantee('NEW-220')
async def test_exact_names_are_served_as_is_if_scanning_is_disabled(
    sandbox, observe, operator_settings, caplog
):
    operator_settings.scanning.disabled = True
    observing = observe('a', 'b*', '!c', 'd,e', re.compile('f'))
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    assert observing.insights.namespaces == {'a'}
    assert not observing.task.done()
    assert not sandbox.requests.select()
    assert not caplog.messages


@pytest.mark.guarantee('SCP-009', 'SCP-011', 'NEW-221')
async def test_exact_names_are_served_at_once_with_one_line_if_listing_is_not_permitted(
    virtual_time, guarded_sandbox, observe, limited_context, caplog
):
    observing = observe('a', 'b*', '!c', 'd,e', context=limited_context)
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    assert virtual_time.elapsed < 1
    assert observing.insights.namespaces == {'a'}
    (line,) = caplog.messages
    assert line.startswith('Only the namespaces named exactly are served')
    assert 'cannot list resource "namespaces"' in line
    await asyncio.sleep(observation.PERMISSION_PERIOD * 3 + 1)
    assert len(caplog.messages) == 1
    assert len(guarded_sandbox.requests.select(verb='list')) == 4


@pytest.mark.guarantee('SCP-009')
async def test_exact_names_are_served_at_once_with_one_line_if_watching_is_not_permitted(
    virtual_time, grant, observe, limited_context, caplog
):
    await grant('namespaces', 'list')

    observing = observe('a', 'default', context=limited_context)
    await observing.wait_until(lambda insights: insights.namespaces == {'a', 'default'}, timeout=1)

    (line,) = caplog.messages
    assert 'cannot watch resource "namespaces"' in line


async def test_namespaces_are_observed_when_it_is_permitted_at_last(
    virtual_time, guarded_sandbox, grant, observe, limited_context
):
    observing = observe('a', 'b*', context=limited_context)
    await observing.wait_until(lambda insights: insights.namespaces == {'a'})
    await guarded_sandbox.create(namespace('b1'))

    await grant('namespaces', 'list', 'watch')

    await observing.wait_until(
        lambda insights: insights.namespaces == {'b1'}, timeout=observation.PERMISSION_PERIOD + 1
    )
    await guarded_sandbox.create(namespace('a'))
    await observing.wait_until(lambda insights: insights.namespaces == {'a', 'b1'})


async def test_revoked_rights_do_not_make_namespaces_vanish(virtual_time, sandbox, observe):
    await sandbox.create(namespace('a1'))
    observing = observe('a*')
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    with sandbox.faults.inject(code=403) as fault:
        sandbox.faults.end_streams(410)
        await fault.wait_until_hit()
        await asyncio.sleep(600)
        assert observing.insights.namespaces == {'a1'}
        await sandbox.create(namespace('a2'))

    await observing.wait_until(lambda insights: insights.namespaces == {'a1', 'a2'}, timeout=60)


@pytest.mark.parametrize('clusterwide', [False, True])
async def test_observer_can_be_cancelled(observe, clusterwide):
    observing = observe('a', clusterwide=clusterwide)
    await observing.wait_until(lambda insights: insights.is_namespaces_known)

    observing.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await observing.task


async def test_lack_of_credentials_escalates(observe, make_context):
    context = make_context()
    observing = observe('a', context=context)
    await context.vault.wait_until_needed()

    context.vault.fail(credentials.LoginError('nobody is welcome'))

    with pytest.raises(credentials.LoginError, match='nobody is welcome'):
        await observing.task


def is_of_namespaces(http):
    return http.path == '/api/v1/namespaces'


async def change_everything(sandbox):
    await sandbox.create(namespace('a-new'))
    await sandbox.create(namespace('b-new'))
    await sandbox.delete('namespaces', 'a-gone')
    await sandbox.delete('namespaces', 'a-again')
    await sandbox.wait('namespaces', 'a-again', lambda body: body is None)
    await sandbox.create(namespace('a-again'))


async def check(sandbox, observing):
    await observing.wait_until(
        lambda insights: insights.namespaces == {'a-same', 'a-new', 'a-again'}
    )
    await sandbox.create(namespace('a-last'))
    await observing.wait_until(lambda insights: 'a-last' in insights.namespaces)


@pytest.mark.usefixtures('virtual_time')
async def test_nothing_is_lost_if_the_beginning_fails(
    sandbox, observe, troubled_context, troubled, record_stream
):
    for name in ['a-same', 'a-gone', 'a-again']:
        await sandbox.create(namespace(name))
    async with troubled(is_of_namespaces, verb='list', resource='namespaces'):
        observing = observe('a*', context=troubled_context)
        await asyncio.sleep(10)
        await change_everything(sandbox)
        await asyncio.sleep(600)

    await check(sandbox, observing)
    await record_stream('namespaces', observing.insights.namespaces_stream, is_begun=False)


@pytest.mark.usefixtures('virtual_time')
@pytest.mark.parametrize('compact', [False, True], ids=['continuable', 'compacted'])
async def test_nothing_is_lost_if_it_fails_later(
    sandbox, observe, troubled_context, troubled, record_stream, compact
):
    for name in ['a-same', 'a-gone', 'a-again']:
        await sandbox.create(namespace(name))
    observing = observe('a*', context=troubled_context)
    await observing.wait_until(lambda insights: insights.is_namespaces_known)
    await observing.poll(
        lambda: observing.insights.namespaces_stream.phase is stream_states.Phase.CONNECTED
    )
    async with troubled(is_of_namespaces, resource='namespaces'):
        sandbox.faults.end_streams(500, message=meddling.TRIGGER)
        await asyncio.sleep(10)
        await change_everything(sandbox)
        if compact:
            await sandbox.compact()
        await asyncio.sleep(600)

    await check(sandbox, observing)
    await record_stream('namespaces', observing.insights.namespaces_stream, is_begun=True)
