"""
The observation of resources: which of them are served at any moment.
"""

import asyncio
import json

import meddling
import pytest

from kopf._cogs.clients import discovery, requests
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.structs import credentials, references, selectors
from kopf._core.reactor import observation, resolution

KEX = references.Resource('kopf.dev', 'v1', 'kopfexamples')
KEX2 = references.Resource('kopf.dev', 'v2', 'kopfexamples')
PODS = references.Resource('', 'v1', 'pods')
DEPLOYMENTS = references.Resource('apps', 'v1', 'deployments')
SCHEMA = {'openAPIV3Schema': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}}


def crd(
    plural='kopfexamples',
    group='kopf.dev',
    versions=('v1',),
    scope='Namespaced',
    status=False,
    **names,
):
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.{group}'},
        'spec': {
            'group': group,
            'scope': scope,
            'names': {
                'plural': plural,
                'singular': plural[:-1],
                'kind': plural[:-1].title(),
                **names,
            },
            'versions': [
                {
                    'name': version,
                    'served': True,
                    'storage': version == versions[0],
                    'schema': SCHEMA,
                    **({'subresources': {'status': {}}} if status else {}),
                }
                for version in versions
            ],
        },
    }


def demand(*notations, patching=True):
    asked = [selectors.parse_selector(notation) for notation in notations]
    return resolution.Demand(asked, asked if patching else [])


@pytest.fixture
def observe(start, context):
    def observe(*notations, context=context, patching=True):
        return start(
            observation.run_resource_observer,
            context=context,
            demand=demand(*notations, patching=patching),
        )

    return observe


def is_known(insights):
    return insights.is_resources_known


def get_scans(sandbox):
    return [asked for asked in sandbox.requests if asked.path == '/apis']


async def wait_until_watched(observing):
    await observing.wait_until(is_known)
    await observing.poll(
        lambda: observing.insights.resources_stream.phase is stream_states.Phase.CONNECTED
    )


async def test_resources_are_found_at_the_start_in_one_scan(virtual_time, sandbox, observe):
    await sandbox.apply(crd())
    observing = observe('kopfexamples', 'pods', 'deployments.apps')
    await wait_until_watched(observing)
    await asyncio.sleep(3600)

    assert observing.insights.resources == {KEX, PODS, DEPLOYMENTS}
    assert len(get_scans(sandbox)) == 1
    assert not observing.task.done()


async def test_resources_come_and_go_with_their_definitions(virtual_time, sandbox, observe, caplog):
    observing = observe('kopfexamples', 'pods')
    await wait_until_watched(observing)
    assert observing.insights.resources == {PODS}
    caplog.set_level('INFO')

    await sandbox.apply(crd())
    await observing.wait_until(lambda insights: insights.resources == {PODS, KEX}, timeout=5)
    await sandbox.delete('crds', 'kopfexamples.kopf.dev')
    await observing.wait_until(lambda insights: insights.resources == {PODS}, timeout=5)
    await asyncio.sleep(3600)

    assert len(get_scans(sandbox)) == 3
    assert (
        'The resource kopfexamples.v1.kopf.dev has come, and is served from now on.'
        in caplog.messages
    )
    assert (
        'The resource kopfexamples.v1.kopf.dev is gone, and is no longer served.' in caplog.messages
    )


async def test_versions_come_and_go(virtual_time, sandbox, observe):
    await sandbox.apply(crd(versions=['v1']))
    observing = observe('kopfexamples')
    await wait_until_watched(observing)
    assert observing.insights.resources == {KEX}

    await sandbox.apply(crd(versions=['v1', 'v2']))
    await observing.wait_until(lambda insights: insights.resources == {KEX2}, timeout=5)
    await sandbox.patch(
        'crds',
        'kopfexamples.kopf.dev',
        [{'op': 'replace', 'path': '/spec/versions/1/served', 'value': False}],
        type='json',
    )
    await observing.wait_until(lambda insights: insights.resources == {KEX}, timeout=5)


@pytest.mark.parametrize(
    'changes, attribute, expected',
    [
        pytest.param({'status': True}, 'subresources', {'status'}, id='subresources'),
        pytest.param({'shortNames': ['kex']}, 'shortcuts', {'kex'}, id='shortcuts'),
        pytest.param({'categories': ['all']}, 'categories', {'all'}, id='categories'),
    ],
)
async def test_features_of_resources_are_kept_up_to_date(
    virtual_time, sandbox, observe, changes, attribute, expected
):
    await sandbox.apply(crd())
    observing = observe('kopfexamples')
    await wait_until_watched(observing)

    await sandbox.apply(crd(**changes))

    await observing.wait_until(
        lambda insights: (
            {value for resource in insights.resources for value in getattr(resource, attribute)}
            == expected
        ),
        timeout=5,
    )
    await asyncio.sleep(3600)
    assert len(get_scans(sandbox)) == 2


async def test_nothing_is_scanned_if_nothing_relevant_changes(virtual_time, sandbox, observe):
    await sandbox.apply(crd())
    observing = observe('kopfexamples.kopf.dev')
    await wait_until_watched(observing)

    await sandbox.patch('crds', 'kopfexamples.kopf.dev', {'metadata': {'labels': {'a': 'b'}}})
    await sandbox.apply(crd('others', group='example.com'))
    await sandbox.apply(crd('pods', group='example.com'))
    await asyncio.sleep(3600)

    assert len(get_scans(sandbox)) == 1


async def test_storms_of_changes_make_few_scans(virtual_time, sandbox, observe):
    observing = observe(references.EVERYTHING)
    await wait_until_watched(observing)

    for index in range(50):
        await sandbox.apply(crd(f'things{index}s', kind=f'Thing{index}'))
        await asyncio.sleep(0.05)
    await observing.wait_until(
        lambda insights: sum(resource.group == 'kopf.dev' for resource in insights.resources) == 50,
        timeout=60,
    )

    assert len(get_scans(sandbox)) <= 5


async def test_changes_around_the_start_are_not_missed(virtual_time, sandbox, observe):
    await sandbox.apply(crd())
    await sandbox.apply(crd('others'))
    listing = sandbox.faults.inject(verb='list', stall=True)
    observing = observe('kopfexamples.kopf.dev', 'others.kopf.dev', 'thirds.kopf.dev')
    await observing.wait_until(is_known)
    assert {resource.plural for resource in observing.insights.resources} == {
        'kopfexamples',
        'others',
    }

    await sandbox.delete('crds', 'others.kopf.dev')
    await sandbox.wait('crds', 'others.kopf.dev', lambda body: body is None)
    await sandbox.apply(crd('thirds'))
    listing.lift()

    await observing.wait_until(
        lambda insights: (
            {resource.plural for resource in insights.resources} == {'kopfexamples', 'thirds'}
        ),
        timeout=10,
    )


async def test_deletions_in_the_middle_of_the_first_scan_are_not_missed(
    virtual_time, sandbox, meddler, meddled_context, observe
):
    await sandbox.apply(crd(), crd('others'))
    listing = sandbox.faults.inject(verb='list', stall=True)
    meddler.spoil('late', lambda http: http.path == '/apis')
    observing = observe('kopfexamples.kopf.dev', 'others.kopf.dev', context=meddled_context)
    await meddler.hit.wait()

    await sandbox.delete('crds', 'others.kopf.dev')
    await sandbox.wait('crds', 'others.kopf.dev', lambda body: body is None)
    listing.lift()
    await observing.poll(lambda: observing.insights.resources_stream.is_listed)
    meddler.lift()

    await observing.wait_until(lambda insights: insights.resources == {KEX}, timeout=10)


async def test_servers_with_no_resources_are_not_believed_for_long(virtual_time, sandbox, observe):
    fault = sandbox.faults.inject(path='/apis', code=404)
    observing = observe('deployments.apps')
    await observing.wait_until(is_known)
    assert observing.insights.resources == set()
    await asyncio.sleep(600)
    fault.lift()

    await observing.wait_until(
        lambda insights: insights.resources == {DEPLOYMENTS}, timeout=observation.LONGEST_DOUBT + 1
    )


async def test_lagging_discovery_is_asked_until_it_knows(
    virtual_time, sandbox, meddler, meddled_context, observe
):
    observing = observe('kopfexamples', context=meddled_context)
    await wait_until_watched(observing)
    meddler.spoil('outdated', lambda http: http.path == '/apis')

    await sandbox.apply(crd())
    await asyncio.sleep(100)
    assert observing.insights.resources == set()
    assert 3 <= meddler.hits <= 10
    meddler.lift()
    await observing.wait_until(lambda insights: insights.resources == {KEX}, timeout=200)
    meddler.spoil('outdated', lambda http: http.path == '/apis')
    await sandbox.delete('crds', 'kopfexamples.kopf.dev')
    await asyncio.sleep(100)
    assert observing.insights.resources == {KEX}
    meddler.lift()
    await observing.wait_until(lambda insights: insights.resources == set(), timeout=200)

    sandbox.requests.clear()
    await asyncio.sleep(3600)
    assert len(get_scans(sandbox)) == 0


@pytest.mark.guarantee('RES-024')
async def test_only_the_groups_in_question_are_asked_for(
    virtual_time, sandbox, observe, monkeypatch, caplog
):
    monkeypatch.setattr(discovery, 'AGGREGATED', 'application/json')
    fault = sandbox.faults.inject(path='/apis/batch/*', code=503)
    observing = observe('deployments.apps', ('v1', 'pods'))
    await wait_until_watched(observing)

    assert observing.insights.resources == {PODS, DEPLOYMENTS}
    assert fault.hits == 0
    assert not caplog.messages


@pytest.mark.guarantee('RES-025')
async def test_unavailable_groups_are_looked_for_until_they_are_there(
    virtual_time, sandbox, observe, monkeypatch
):
    monkeypatch.setattr(discovery, 'AGGREGATED', 'application/json')
    fault = sandbox.faults.inject(path='/apis/apps/*', code=503)
    observing = observe('deployments', 'pods')
    await observing.wait_until(is_known)
    assert observing.insights.resources == {PODS}

    await asyncio.sleep(3600)
    assert 30 <= fault.hits <= 40
    fault.lift()

    await observing.wait_until(
        lambda insights: insights.resources == {PODS, DEPLOYMENTS},
        timeout=observation.LONGEST_DOUBT + 1,
    )


@pytest.mark.parametrize('path', ['/apis/apps/*', '/apis'])
@pytest.mark.parametrize('code', [403, 404, 503])
async def test_resources_in_doubt_are_served_further(
    virtual_time, sandbox, observe, monkeypatch, path, code
):
    monkeypatch.setattr(discovery, 'AGGREGATED', 'application/json')
    observing = observe('deployments', 'kopfexamples')
    await wait_until_watched(observing)
    fault = sandbox.faults.inject(path=path, code=code)
    await sandbox.apply(crd())
    await fault.wait_until_hit()
    await asyncio.sleep(600)

    assert DEPLOYMENTS in observing.insights.resources

    fault.lift()
    await observing.wait_until(
        lambda insights: insights.resources == {DEPLOYMENTS, KEX}, timeout=200
    )


async def test_resources_of_deleted_definitions_are_not_served_even_if_in_doubt(
    virtual_time, sandbox, observe, monkeypatch
):
    monkeypatch.setattr(discovery, 'AGGREGATED', 'application/json')
    await sandbox.apply(crd(), crd('others'))
    observing = observe('kopfexamples')
    await wait_until_watched(observing)

    sandbox.faults.inject(path='/apis/kopf.dev/*', code=503)
    await sandbox.delete('crds', 'kopfexamples.kopf.dev')

    await observing.wait_until(lambda insights: insights.resources == set(), timeout=200)


async def test_resources_are_served_while_their_definition_is_being_deleted(
    virtual_time, sandbox, observe
):
    await sandbox.apply(crd())
    await sandbox.create(
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'Kopfexample',
            'metadata': {'name': 'kept', 'namespace': 'default', 'finalizers': ['kopf.dev/x']},
        }
    )
    observing = observe('kopfexamples')
    await wait_until_watched(observing)

    await sandbox.delete('crds', 'kopfexamples.kopf.dev')
    await asyncio.sleep(3600)
    assert observing.insights.resources == {KEX}

    await sandbox.patch('kopfexamples', 'kept', {'metadata': {'finalizers': None}})
    await observing.wait_until(lambda insights: insights.resources == set(), timeout=5)


async def test_resources_of_dying_definitions_are_served_even_though_nobody_tells_they_can_be_patched(
    virtual_time, sandbox, meddler, meddled_context, observe
):
    await sandbox.apply(crd())
    await sandbox.create(
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'Kopfexample',
            'metadata': {'name': 'kept', 'namespace': 'default', 'finalizers': ['kopf.dev/x']},
        }
    )
    await sandbox.delete('crds', 'kopfexamples.kopf.dev')
    options = requests.Options(headers={'Accept': discovery.AGGREGATED})
    answer = await requests.get('/apis', context=meddled_context, options=options)
    (group,) = [item for item in answer['items'] if item['metadata']['name'] == 'kopf.dev']
    group['versions'][0]['resources'][0]['verbs'] = [
        'delete',
        'deletecollection',
        'get',
        'list',
        'watch',
    ]
    meddler.remember('/apis', json.dumps(answer).encode())
    meddler.spoil('outdated', lambda http: http.path == '/apis')

    observing = observe('kopfexamples', context=meddled_context)
    await observing.wait_until(is_known)

    assert observing.insights.resources == {KEX}


@pytest.mark.guarantee('NEW-031', 'RES-020')
async def test_complaints_are_logged_once_until_they_change(virtual_time, sandbox, observe, caplog):
    observing = observe('kopfexamples', 'bindings', 'pods')
    await wait_until_watched(observing)
    first = list(caplog.messages)

    await sandbox.apply(crd(), crd('others'))
    await observing.wait_until(lambda insights: KEX in insights.resources, timeout=5)
    await sandbox.apply(crd('thirds'))
    await asyncio.sleep(10)
    assert caplog.messages == first
    await sandbox.apply(crd(group='example.com'))
    await observing.wait_until(lambda insights: KEX not in insights.resources, timeout=5)
    second = caplog.messages[len(first) :]
    await sandbox.delete('crds', 'kopfexamples.example.com')
    await observing.wait_until(lambda insights: KEX in insights.resources, timeout=5)
    await sandbox.delete('crds', 'kopfexamples.kopf.dev')
    await observing.wait_until(lambda insights: KEX not in insights.resources, timeout=5)

    assert first == [
        'Not served for bindings, as they cannot be listed and watched: bindings.v1.',
        'Nothing is served for kopfexamples: there are no such resources in the cluster.',
    ]
    assert second == [
        'Nothing is served for kopfexamples: it is ambiguous, as there are '
        'kopfexamples.v1.example.com, kopfexamples.v1.kopf.dev. Add the group to the name.'
    ]
    assert caplog.messages[3:] == first[1:]


@pytest.mark.guarantee('NEW-220')
async def test_only_resources_of_the_start_are_served_if_scanning_is_disabled(
    virtual_time, sandbox, observe, operator_settings, caplog
):
    operator_settings.scanning.disabled = True
    observing = observe('pods', 'customresourcedefinitions')
    await observing.wait_until(is_known)
    await asyncio.sleep(3600)

    assert PODS in observing.insights.resources
    assert [asked.path for asked in sandbox.requests] == ['/api', '/apis']
    assert not caplog.messages


@pytest.mark.guarantee('NEW-221')
async def test_only_resources_of_the_start_are_served_with_one_line_if_watching_is_not_permitted(
    virtual_time, guarded_sandbox, observe, limited_context, caplog
):
    await guarded_sandbox.apply(crd())
    observing = observe('kopfexamples', context=limited_context)
    await observing.wait_until(is_known)

    assert virtual_time.elapsed < 1
    assert observing.insights.resources == {KEX}
    await asyncio.sleep(observation.PERMISSION_PERIOD * 3 + 1)
    (line,) = caplog.messages
    assert line.startswith('Only the resources that are there now are served')
    assert 'cannot list resource "customresourcedefinitions"' in line
    assert len(get_scans(guarded_sandbox)) == 1


async def test_resources_are_observed_when_it_is_permitted_at_last(
    virtual_time, guarded_sandbox, grant, observe, limited_context
):
    observing = observe('kopfexamples', context=limited_context)
    await observing.wait_until(is_known)
    await guarded_sandbox.apply(crd())
    await asyncio.sleep(3600)
    assert observing.insights.resources == set()

    await grant('customresourcedefinitions', 'list', 'watch')

    await observing.wait_until(
        lambda insights: insights.resources == {KEX}, timeout=observation.PERMISSION_PERIOD + 5
    )


@pytest.mark.parametrize('notations', [[], [('v1', 'pods')]], ids=['nothing', 'core'])
async def test_definitions_are_not_watched_if_none_of_them_can_matter(
    virtual_time, sandbox, observe, notations
):
    observing = observe(*notations)
    await observing.wait_until(is_known)
    await asyncio.sleep(3600)

    assert not sandbox.requests.select(resource='customresourcedefinitions')
    assert not get_scans(sandbox)


@pytest.mark.guarantee('NEW-130', 'NEW-142')
async def test_definitions_are_listed_in_pages_and_selected(sandbox, observe, operator_settings):
    operator_settings.watching.chunk_size = 1
    operator_settings.watching.label_selectors['crds'] = 'team=mine'
    for plural in ['ones', 'twos', 'threes']:
        body = crd(plural)
        await sandbox.apply({**body, 'metadata': {**body['metadata'], 'labels': {'team': 'mine'}}})
    observing = observe(('kopf.dev', references.EVERYTHING))
    await wait_until_watched(observing)

    listed = sandbox.requests.select(verb='list', resource='customresourcedefinitions')
    assert len(listed) == 3
    assert all('labelSelector=team%3Dmine' in asked.query for asked in listed)


async def test_observer_can_be_cancelled_in_the_middle_of_anything(sandbox, observe):
    fault = sandbox.faults.inject(path='/apis', stall=True)
    observing = observe('kopfexamples')
    await fault.wait_until_hit()

    observing.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await observing.task


async def test_idle_observer_can_be_cancelled(observe):
    observing = observe('kopfexamples')
    await wait_until_watched(observing)

    observing.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await observing.task


async def test_lack_of_credentials_escalates(observe, make_context):
    context = make_context()
    observing = observe('kopfexamples', context=context)
    await context.vault.wait_until_needed()

    context.vault.fail(credentials.LoginError('nobody is welcome'))

    with pytest.raises(credentials.LoginError, match='nobody is welcome'):
        await observing.task


@pytest.mark.parametrize(
    'attempts, longest, chance, expected',
    [
        (1, 120, 0.0, 1.0),
        (2, 120, 0.0, 2.0),
        (7, 120, 0.0, 64.0),
        (8, 120, 0.0, 120.0),
        (10**6, 30, 0.0, 30.0),
        (1, 120, 1.0, 1.5),
        (8, 120, 0.5, 150.0),
    ],
)
def test_scans_are_repeated_less_and_less_often(attempts, longest, chance, expected):
    assert observation.choose_backoff(attempts, longest, chance) == expected


async def change_everything(sandbox):
    await sandbox.apply(crd('news'))
    await sandbox.apply(crd('changeds', status=True))
    await sandbox.delete('crds', 'gones.kopf.dev')


async def check(sandbox, observing):
    await observing.wait_until(
        lambda insights: (
            {resource.plural: set(resource.subresources) for resource in insights.resources}
            == {'sames': set(), 'changeds': {'status'}, 'news': set()}
        )
    )
    await sandbox.apply(crd('lasts'))
    await observing.wait_until(
        lambda insights: 'lasts' in {resource.plural for resource in insights.resources}
    )


OPERATIONS = {
    'definitions': (
        lambda http: http.path.startswith('/apis/apiextensions.k8s.io/'),
        {'resource': 'customresourcedefinitions'},
    ),
    'scans': (lambda http: http.path == '/apis', {'path': '/apis'}),
}


@pytest.fixture
def record_observing(record, record_stream, caplog):
    """
    Record what became of the definitions' stream or of the scans: one request or the whole scan was
    repeated.
    """

    async def record_observing(operation, observing, *, is_begun):
        if operation == 'definitions':
            await record_stream('resources', observing.insights.resources_stream, is_begun=is_begun)
        elif 'will be repeated' in caplog.text:
            await record('scans', 'retried', is_failed=True)
        else:
            await record('scans', 'rescanned', is_failed='will be asked for again' in caplog.text)

    return record_observing


@pytest.mark.usefixtures('virtual_time')
@pytest.mark.parametrize('operation', OPERATIONS)
async def test_nothing_is_lost_if_the_beginning_fails(
    sandbox, observe, troubled_context, troubled, record_observing, operation
):
    await sandbox.apply(crd('sames'), crd('changeds'), crd('gones'))
    is_meant, where = OPERATIONS[operation]
    async with troubled(is_meant, **where):
        observing = observe(('kopf.dev', references.EVERYTHING), context=troubled_context)
        await asyncio.sleep(10)
        await change_everything(sandbox)
        await asyncio.sleep(600)

    await check(sandbox, observing)
    await record_observing(operation, observing, is_begun=False)


@pytest.mark.usefixtures('virtual_time')
@pytest.mark.parametrize('operation', OPERATIONS)
async def test_nothing_is_lost_if_it_fails_later(
    sandbox, observe, troubled_context, troubled, record_observing, operation
):
    await sandbox.apply(crd('sames'), crd('changeds'), crd('gones'))
    observing = observe(('kopf.dev', references.EVERYTHING), context=troubled_context)
    await wait_until_watched(observing)
    is_meant, where = OPERATIONS[operation]
    async with troubled(is_meant, **where):
        if operation == 'definitions':
            sandbox.faults.end_streams(500, message=meddling.TRIGGER)
        await asyncio.sleep(10)
        await change_everything(sandbox)
        await sandbox.compact()
        await asyncio.sleep(600)

    await check(sandbox, observing)
    await record_observing(operation, observing, is_begun=True)


@pytest.mark.parametrize('answer', [{}, {'kind': 'Status'}, [], 'hello', None])
async def test_meaningless_answers_do_not_make_resources_vanish(
    virtual_time, sandbox, meddler, meddled_context, observe, answer
):
    observing = observe(('apps', 'deployments'), 'kopfexamples.kopf.dev', context=meddled_context)
    await wait_until_watched(observing)
    meddler.remember('/apis', json.dumps(answer).encode())
    meddler.spoil('outdated', lambda http: http.path == '/apis')

    await sandbox.apply(crd())
    await asyncio.sleep(600)

    assert observing.insights.resources == {DEPLOYMENTS}
    meddler.lift()
    await observing.wait_until(
        lambda insights: insights.resources == {DEPLOYMENTS, KEX}, timeout=60
    )
