"""
K8s-events: what they consist of, and that their failures fail nothing else.
"""
import asyncio
import dataclasses
import datetime
import logging

import pytest

import kopf.testing
from kopf._cogs.clients import events
from kopf._cogs.configs import settings
from kopf._cogs.structs import credentials

NOW = datetime.datetime(2020, 12, 31, 23, 59, 59, 123456, tzinfo=datetime.UTC)
REF = {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfExample', 'name': 'obj', 'namespace': 'default', 'uid': 'uid1'}
CLUSTER_REF = {'apiVersion': 'v1', 'kind': 'Node', 'name': 'node', 'uid': 'uid2'}
TEXTS = {'type': 'Normal', 'reason': 'Done', 'message': 'All is well.'}

RBAC = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: poster}
rules: [{apiGroups: [""], resources: [events], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: poster}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: poster}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: poster}]
"""


def build(ref=REF, *, posting=None, now=NOW, **texts):
    return events.build_event(ref, **{**TEXTS, **texts}, now=now, posting=posting or settings.PostingSettings())


def test_event_tells_of_the_object():
    assert build() == {
        'apiVersion': 'v1', 'kind': 'Event',
        'metadata': {'generateName': 'kopf-event-', 'namespace': 'default'},
        'action': 'Action?', 'type': 'Normal', 'reason': 'Done', 'message': 'All is well.',
        'reportingComponent': 'kopf', 'reportingInstance': 'dev', 'source': {'component': 'kopf'},
        'involvedObject': REF,
        'eventTime': '2020-12-31T23:59:59.123456Z',
        'firstTimestamp': '2020-12-31T23:59:59.123456Z',
        'lastTimestamp': '2020-12-31T23:59:59.123456Z',
    }


def test_event_is_in_utc_whatever_the_clock():
    event = build(now=NOW.astimezone(datetime.timezone(datetime.timedelta(hours=2))))

    assert event['eventTime'] == '2020-12-31T23:59:59.123456Z'


@pytest.mark.parametrize('ref, namespace', [
    pytest.param({**REF, 'namespace': 'ns'}, 'ns', id='namespaced'),
    pytest.param(CLUSTER_REF, 'default', id='cluster-scoped'),
    pytest.param({**CLUSTER_REF, 'namespace': None}, 'default', id='cluster-scoped-with-none'),
])
def test_event_is_in_the_namespace_of_the_object(ref, namespace):
    assert build(ref)['metadata']['namespace'] == namespace


def test_event_refers_only_by_what_is_known():
    ref = {'name': 'obj', 'apiVersion': None, 'kind': None, 'spec': {'secret': 'xyz'}}

    assert build(ref)['involvedObject'] == {'name': 'obj'}


def test_event_with_no_reason_has_its_type_for_it():
    assert build(type='Error', reason='')['reason'] == 'Error'


@pytest.mark.parametrize('text, limit, expected', [
    pytest.param('', 10, '', id='empty'),
    pytest.param('0123456789', 10, '0123456789', id='fits'),
    pytest.param('0123456789A', 10, '0123...89A', id='over'),
    pytest.param('0123456789AB', 11, '0123...89AB', id='over-odd'),
    pytest.param('ééééé', 10, 'ééééé', id='fits-in-bytes'),
    pytest.param('éééééé', 10, 'éé...é', id='whole-characters'),
    pytest.param('😀😀😀😀', 10, '😀...', id='wide-characters'),
    pytest.param('\ud800' * 11, 10, '????...???', id='surrogates'),
])
def test_texts_are_cut_in_the_middle_by_bytes(text, limit, expected):
    assert events.cut(text, limit) == expected


@pytest.mark.parametrize('character', ['x', 'é', '€', '😀'])
def test_cut_messages_use_all_the_room_there_is(character):
    message = build(message=f'start{character * 2000}end')['message']

    assert message.startswith(f'start{character}') and message.endswith(f'{character}end') and '...' in message
    assert 1024 - 2 * len(character.encode()) < len(message.encode()) <= 1024


@pytest.mark.parametrize('api_version, kind, expected', [
    ('v1', 'Event', True), ('events.k8s.io/v1', 'Event', True), (None, 'Event', True),
    ('kopf.dev/v1', 'Event', False), ('v1', 'Pod', False), (None, None, False),
])
def test_events_are_recognised_among_objects(api_version, kind, expected):
    assert events.is_about_event({'apiVersion': api_version, 'kind': kind}) is expected


@pytest.mark.guarantee('EVT-009')
@pytest.mark.parametrize('ref', [REF, CLUSTER_REF, {'name': 'obj'}], ids=['namespaced', 'cluster', 'nameonly'])
async def test_event_is_accepted_by_the_cluster(sandbox, context, caplog, ref):
    await events.post_event(ref, **TEXTS, context=context)

    event, = await sandbox.list('v1/events', 'default')
    assert not caplog.messages
    assert event['metadata']['name'].startswith('kopf-event-')
    assert event['involvedObject'] == ref
    assert event['source'] == {'component': 'kopf'}
    assert {key: event[key] for key in TEXTS} == TEXTS


@pytest.mark.parametrize('texts', [
    pytest.param({'message': '€' * 1000}, id='long-message'),
    pytest.param({'reason': '€' * 1000}, id='long-reason'),
    pytest.param({'reason': ''}, id='no-reason'),
    pytest.param({'message': ''}, id='no-message'),
    pytest.param({'type': 'SomeType'}, id='unknown-type'),
])
async def test_strange_texts_are_accepted_by_the_cluster(sandbox, context, caplog, texts):
    await events.post_event(REF, **{**TEXTS, **texts}, context=context)

    assert len(await sandbox.list('v1/events', 'default')) == 1
    assert not caplog.messages


@pytest.mark.guarantee('NEW-198')
async def test_reporters_and_names_are_as_in_the_settings(sandbox, context, operator_settings):
    operator_settings.posting.reporting_component = 'me'
    operator_settings.posting.reporting_instance = 'pod-1'
    operator_settings.posting.event_name_prefix = 'mine-'

    await events.post_event(REF, **TEXTS, context=context)

    event, = await sandbox.list('v1/events', 'default')
    assert event['metadata']['generateName'] == 'mine-'
    assert (event['reportingComponent'], event['source']['component']) == ('me', 'me')
    assert event['reportingInstance'] == 'pod-1'


async def test_events_about_events_are_silently_skipped(sandbox, context, caplog):
    await events.post_event({**REF, 'apiVersion': 'v1', 'kind': 'Event'}, **TEXTS, context=context)

    assert not list(sandbox.requests)
    assert not caplog.messages


@pytest.mark.guarantee('EVT-021')
async def test_posting_needs_only_the_permission_to_create(make_context, caplog):
    async with kopf.testing.Sandbox(tls=False, rbac=True, apply=[RBAC]) as sandbox:
        user = await sandbox.add_user('poster')
        context = make_context(poster=credentials.ConnectionInfo(server=sandbox.url, token=user.token))

        await events.post_event(REF, **TEXTS, context=context)

        assert len(await sandbox.list('v1/events', 'default')) == 1
        assert not caplog.messages


@pytest.mark.parametrize('fault, cause', [
    ({'code': 404}, 'HTTP 404'), ({'code': 409}, 'HTTP 409'), ({'code': 422}, 'HTTP 422'),
    ({'code': 503}, 'HTTP 503'), ({'code': 403}, 'HTTP 403'), ({'cut': True}, ''),
], ids=str)
async def test_failures_are_only_logged(sandbox, context, virtual_time, caplog, fault, cause):
    sandbox.faults.inject(verb='create', **fault)

    await events.post_event(REF, **TEXTS, context=context)

    record = caplog.records[-1]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        f'Failed to post a k8s-event about KopfExample obj (Normal: Done): {cause}')


async def test_absence_of_credentials_is_only_logged(context, caplog):
    await context.vault.close()

    await events.post_event(REF, **TEXTS, context=context)

    assert caplog.messages[-1].startswith('Failed to post a k8s-event about KopfExample obj')


@pytest.mark.parametrize('backoffs, expected', [(None, 30), ([1, 2, 3], 6), (5, 5), ([], 0)])
async def test_attempts_are_made_with_the_backoffs_of_posting(
        sandbox, context, operator_settings, virtual_time, backoffs, expected):
    operator_settings.networking.error_backoffs = [100]
    operator_settings.posting.default_backoffs = [10, 20]
    sandbox.faults.inject(verb='create', code=500)

    await events.post_event(REF, **TEXTS, context=context, backoffs=backoffs)

    assert virtual_time.elapsed == pytest.approx(expected, abs=0.9)


async def test_lost_answers_do_not_double_the_events(sandbox, context, virtual_time):
    fault = sandbox.faults.inject(verb='create', cut=True)

    await events.post_event(REF, **TEXTS, context=context)

    assert fault.hits == 1


async def test_time_is_that_of_the_context(sandbox, context):
    await events.post_event(REF, **TEXTS, context=dataclasses.replace(context, now=lambda: NOW))

    event, = await sandbox.list('v1/events', 'default')
    assert event['eventTime'] == '2020-12-31T23:59:59.123456Z'


async def test_posting_can_be_cancelled(sandbox, context):
    fault = sandbox.faults.inject(verb='create', stall=True)
    task = asyncio.create_task(events.post_event(REF, **TEXTS, context=context))
    await fault.wait_until_hit()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
