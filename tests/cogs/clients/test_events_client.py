"""
K8s-events: what they consist of, and that their failures fail nothing else.
"""

import asyncio
import datetime
import logging

import pytest

import kopf.testing
from kopf._cogs.clients import events
from kopf._cogs.configs import settings
from kopf._cogs.structs import credentials

NOW = datetime.datetime(2020, 12, 31, 23, 59, 59, 123456, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(minutes=1)
REF = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'name': 'obj',
    'namespace': 'default',
    'uid': 'uid1',
}
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


def make(ref=REF, *, first=NOW, last=None, count=1, **texts):
    return events.Event(ref, **{**TEXTS, **texts}, first=first, last=last or first, count=count)


def build(ref=REF, *, namespace='default', **fields):
    return events.build_event(
        make(ref, **fields), namespace=namespace, posting=settings.PostingSettings()
    )


def test_event_tells_of_the_object():
    assert build() == {
        'apiVersion': 'v1',
        'kind': 'Event',
        'metadata': {'generateName': 'kopf-event-', 'namespace': 'default'},
        'action': 'Action?',
        'type': 'Normal',
        'reason': 'Done',
        'message': 'All is well.',
        'reportingComponent': 'kopf',
        'reportingInstance': 'dev',
        'source': {'component': 'kopf'},
        'involvedObject': REF,
        'eventTime': '2020-12-31T23:59:59.123456Z',
        'firstTimestamp': '2020-12-31T23:59:59.123456Z',
        'lastTimestamp': '2020-12-31T23:59:59.123456Z',
    }


def test_event_is_in_utc_whatever_the_clock():
    event = build(first=NOW.astimezone(datetime.timezone(datetime.timedelta(hours=2))))

    assert event['eventTime'] == '2020-12-31T23:59:59.123456Z'


def test_event_of_several_occurrences_tells_how_many_and_when():
    event = build(count=3, last=LATER)

    assert event['eventTime'] == event['firstTimestamp'] == '2020-12-31T23:59:59.123456Z'
    assert event['lastTimestamp'] == '2021-01-01T00:00:59.123456Z'
    assert event['count'] == 3
    assert event['series'] == {'count': 3, 'lastObservedTime': '2021-01-01T00:00:59.123456Z'}


@pytest.mark.parametrize(
    'ref, namespace, expected',
    [
        pytest.param({**REF, 'namespace': 'ns'}, 'ns', 'ns', id='namespaced'),
        pytest.param(CLUSTER_REF, 'default', None, id='cluster-scoped'),
        pytest.param(
            {**CLUSTER_REF, 'namespace': None}, 'default', None, id='cluster-scoped-with-none'
        ),
        pytest.param(CLUSTER_REF, 'kube-system', None, id='cluster-scoped-in-the-system'),
        pytest.param(CLUSTER_REF, 'home', 'home', id='cluster-scoped-elsewhere'),
    ],
)
def test_event_refers_to_the_namespace_if_it_is_demanded(ref, namespace, expected):
    event = build(ref, namespace=namespace)

    assert event['metadata']['namespace'] == namespace
    assert event['involvedObject'].get('namespace') == expected


def test_event_refers_only_by_what_is_known():
    ref = {'name': 'obj', 'apiVersion': None, 'kind': None, 'spec': {'secret': 'xyz'}}

    assert build(ref)['involvedObject'] == {'name': 'obj'}


def test_event_with_no_reason_has_its_type_for_it():
    assert build(type='Error', reason='')['reason'] == 'Error'


@pytest.mark.parametrize(
    'text, limit, expected',
    [
        pytest.param('', 10, '', id='empty'),
        pytest.param('0123456789', 10, '0123456789', id='fits'),
        pytest.param('0123456789A', 10, '0123...89A', id='over'),
        pytest.param('0123456789AB', 11, '0123...89AB', id='over-odd'),
        pytest.param('ééééé', 10, 'ééééé', id='fits-in-bytes'),
        pytest.param('éééééé', 10, 'éé...é', id='whole-characters'),
        pytest.param('😀😀😀😀', 10, '😀...', id='wide-characters'),
        pytest.param('\ud800' * 11, 10, '????...???', id='surrogates'),
    ],
)
def test_texts_are_cut_in_the_middle_by_bytes(text, limit, expected):
    assert events.cut(text, limit) == expected


@pytest.mark.parametrize('character', ['x', 'é', '€', '😀'])
def test_cut_messages_use_all_the_room_there_is(character):
    message = build(message=f'start{character * 2000}end')['message']

    assert (
        message.startswith(f'start{character}')
        and message.endswith(f'{character}end')
        and '...' in message
    )
    assert 1024 - 2 * len(character.encode()) < len(message.encode()) <= 1024


@pytest.mark.parametrize(
    'api_version, kind, expected',
    [
        ('v1', 'Event', True),
        ('events.k8s.io/v1', 'Event', True),
        (None, 'Event', True),
        ('kopf.dev/v1', 'Event', False),
        ('v1', 'Pod', False),
        (None, None, False),
    ],
)
def test_events_are_recognised_among_objects(api_version, kind, expected):
    assert events.is_about_event({'apiVersion': api_version, 'kind': kind}) is expected


@pytest.mark.guarantee('EVT-009')
@pytest.mark.parametrize(
    'ref', [REF, CLUSTER_REF, {'name': 'obj'}], ids=['namespaced', 'cluster', 'nameonly']
)
async def test_event_is_accepted_by_the_cluster(sandbox, context, caplog, ref):
    await events.post_event(make(ref), context=context)

    (event,) = await sandbox.list('v1/events', 'default')
    assert not caplog.messages
    assert event['metadata']['name'].startswith('kopf-event-')
    assert event['involvedObject'] == ref
    assert event['source'] == {'component': 'kopf'}
    assert {key: event[key] for key in TEXTS} == TEXTS


@pytest.mark.parametrize(
    'texts',
    [
        pytest.param({'message': '€' * 1000}, id='long-message'),
        pytest.param({'reason': '€' * 1000}, id='long-reason'),
        pytest.param({'reason': ''}, id='no-reason'),
        pytest.param({'message': ''}, id='no-message'),
        pytest.param({'type': 'SomeType'}, id='unknown-type'),
    ],
)
async def test_strange_texts_are_accepted_by_the_cluster(sandbox, context, caplog, texts):
    await events.post_event(make(**texts), context=context)

    assert len(await sandbox.list('v1/events', 'default')) == 1
    assert not caplog.messages


@pytest.mark.guarantee('NEW-198')
async def test_reporters_and_names_are_as_in_the_settings(sandbox, context, operator_settings):
    operator_settings.posting.reporting_component = 'me'
    operator_settings.posting.reporting_instance = 'pod-1'
    operator_settings.posting.event_name_prefix = 'mine-'

    await events.post_event(make(), context=context)

    (event,) = await sandbox.list('v1/events', 'default')
    assert event['metadata']['generateName'] == 'mine-'
    assert (event['reportingComponent'], event['source']['component']) == ('me', 'me')
    assert event['reportingInstance'] == 'pod-1'


@pytest.mark.guarantee('EVT-021')
async def test_posting_needs_only_the_permission_to_create(make_context, caplog):
    async with kopf.testing.Sandbox(tls=False, rbac=True, apply=[RBAC]) as sandbox:
        user = await sandbox.add_user('poster')
        context = make_context(
            poster=credentials.ConnectionInfo(server=sandbox.url, token=user.token)
        )

        await events.post_event(make(), context=context)

        assert len(await sandbox.list('v1/events', 'default')) == 1
        assert not caplog.messages


@pytest.mark.parametrize(
    'fault, cause',
    [
        ({'code': 404}, 'HTTP 404'),
        ({'code': 409}, 'HTTP 409'),
        ({'code': 422}, 'HTTP 422'),
        ({'code': 503}, 'HTTP 503'),
        ({'code': 403}, 'HTTP 403'),
        ({'cut': True}, ''),
    ],
    ids=str,
)
async def test_failures_are_only_logged(sandbox, context, virtual_time, caplog, fault, cause):
    sandbox.faults.inject(verb='create', **fault)

    await events.post_event(make(), context=context)

    record = caplog.records[-1]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        f'Failed to post a k8s-event about KopfExample obj (Normal: Done): {cause}'
    )


async def test_absence_of_credentials_is_only_logged(context, caplog):
    await context.vault.close()

    await events.post_event(make(), context=context)

    assert caplog.messages[-1].startswith('Failed to post a k8s-event about KopfExample obj')


@pytest.mark.parametrize('backoffs, expected', [(None, 30), ([1, 2, 3], 6), (5, 5), ([], 0)])
async def test_attempts_are_made_with_the_backoffs_of_posting(
    sandbox, context, operator_settings, virtual_time, backoffs, expected
):
    operator_settings.networking.error_backoffs = [100]
    operator_settings.posting.default_backoffs = [10, 20]
    sandbox.faults.inject(verb='create', code=500)

    await events.post_event(make(), context=context, backoffs=backoffs)

    assert virtual_time.elapsed == pytest.approx(expected, abs=0.9)


async def test_lost_answers_do_not_double_the_events(sandbox, context, virtual_time):
    fault = sandbox.faults.inject(verb='create', cut=True)

    await events.post_event(make(), context=context)

    assert fault.hits == 1


async def test_posting_can_be_cancelled(sandbox, context):
    fault = sandbox.faults.inject(verb='create', stall=True)
    task = asyncio.create_task(events.post_event(make(), context=context))
    await fault.wait_until_hit()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.guarantee('NEW-199', 'AUT-017')
@pytest.mark.parametrize(
    'home, expected', [(None, 'default'), ('default', 'default'), ('home', 'home')]
)
async def test_event_of_cluster_scoped_objects_is_where_the_credentials_are_from(
    sandbox, make_context, caplog, home, expected
):
    await sandbox.apply({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'home'}})
    context = make_context(
        admin=credentials.ConnectionInfo(
            server=sandbox.url, token=sandbox.token, default_namespace=home
        )
    )

    posted = await events.post_event(make(CLUSTER_REF), context=context)

    (event,) = await sandbox.list('v1/events', expected)
    assert posted == events.Posted(expected, event['metadata']['name'])
    assert event['involvedObject']['name'] == 'node'
    assert not caplog.messages


async def test_posted_event_is_counted_once_more(sandbox, context, caplog):
    posted = await events.post_event(make(), context=context)

    repetition = await events.repeat_event(posted, make(last=LATER, count=2), context=context)

    (event,) = await sandbox.list('v1/events', 'default')
    assert repetition is events.Repetition.DONE
    assert (event['count'], event['series']['count']) == (2, 2)
    assert (event['firstTimestamp'], event['lastTimestamp']) == (
        '2020-12-31T23:59:59Z',
        '2021-01-01T00:00:59Z',
    )
    assert not caplog.messages


async def test_event_that_is_gone_cannot_be_counted(sandbox, context, caplog):
    posted = await events.post_event(make(), context=context)
    await sandbox.delete('v1/events', posted.name)

    repetition = await events.repeat_event(posted, make(count=2), context=context)

    assert repetition is events.Repetition.GONE
    assert not caplog.messages


async def test_lack_of_permissions_to_count_is_told_at_once(make_context, caplog):
    async with kopf.testing.Sandbox(tls=False, rbac=True, apply=[RBAC]) as sandbox:
        user = await sandbox.add_user('poster')
        context = make_context(
            poster=credentials.ConnectionInfo(server=sandbox.url, token=user.token)
        )
        posted = await events.post_event(make(), context=context)

        repetition = await events.repeat_event(posted, make(count=2), context=context)

        assert repetition is events.Repetition.FORBIDDEN
        assert not caplog.messages


async def test_failure_to_count_is_only_logged(sandbox, context, virtual_time, caplog):
    posted = await events.post_event(make(), context=context)
    fault = sandbox.faults.inject(verb='patch', code=503)

    repetition = await events.repeat_event(posted, make(count=2), context=context, backoffs=[1, 2])

    assert repetition is events.Repetition.FAILED
    assert fault.hits == 3
    assert caplog.messages[-1].startswith(
        'Failed to count a k8s-event about KopfExample obj (Normal: Done): HTTP 503'
    )
