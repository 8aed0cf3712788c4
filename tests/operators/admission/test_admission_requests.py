"""
Operators with admission handlers: whatever is done in the cluster is reviewed by them first.
"""

import asyncio
import logging
import threading

import aiohttp
import pytest
from clusters import build_crd, build_object, wait_until
from operator_endpoints import Site
from peerings import build_record
from webhook_servers import MANAGED, Hall, SecureHall, open_client, wait_for_records

import kopf
from kopf._core.reactor import inventory


@pytest.fixture
async def client(cluster, sandbox):
    async with open_client(sandbox) as client:
        yield client


@pytest.fixture
def run(sandbox, hall, registry, run_operator):
    """Run an operator until its webhooks are in force."""

    async def run(**options):
        operator = await run_operator(**options)
        types = [str(handler.type) for handler in registry._webhooks]
        for type in {*types}:
            await wait_for_records(sandbox, types.count(type), f'{type}webhookconfigurations')
        return operator

    return run


@pytest.mark.guarantee('ADM-035', 'ADM-039', 'ADM-021', 'ADM-027')
@pytest.mark.parametrize(
    'make_server',
    [
        pytest.param(Hall, id='service'),
        pytest.param(lambda _: SecureHall(), id='custom'),
        pytest.param(
            lambda _: kopf.WebhookServer(addr='127.0.0.1', host='localhost'), id='built-in'
        ),
    ],
)
async def test_validating_handlers_deny_or_allow(
    sandbox, registry, settings, run, client, make_server
):
    settings.admission.server = make_server(sandbox)

    @kopf.on.validate('kopfexamples', id='validate1', registry=registry)
    def validate1(spec, **_):
        if spec.get('field') == 'value':
            raise kopf.AdmissionError("Meh! I don't like it. Change the field.", code=400)

    await run()
    denied = await client.create(build_object(spec={'field': 'value'}))
    allowed = await client.create(build_object(spec={'field': 'other'}))

    assert denied.code == 400
    assert denied.body['message'] == (
        'admission webhook "validate1.auto.kopf.dev" denied the request: '
        "Meh! I don't like it. Change the field."
    )
    assert allowed.code == 201


@pytest.mark.guarantee('ADM-028', 'ADM-029', 'ADM-030', 'NEW-076', 'WLD-005')
async def test_mutating_handlers_change_what_is_stored(registry, run, client, cluster):
    @kopf.on.mutate('kopfexamples', registry=registry)
    def mutate1(spec, patch, **_):
        patch.spec['numbers'] = [1, 2, 3]
        patch.spec['unwanted'] = None
        spec['list'].append('c')
        patch.spec['list'] = spec['list']
        patch.metadata.labels['example.com/made'] = 'yes'
        patch.fns.append(lambda body: body['spec'].update(made='by function'))

    await run()
    answer = await client.create(build_object(spec={'unwanted': 1, 'list': ['a', 'b']}))

    assert answer.code == 201
    stored = await cluster.get()
    assert stored['spec'] == {'numbers': [1, 2, 3], 'list': ['a', 'b', 'c'], 'made': 'by function'}
    assert stored['metadata']['labels'] == {'example.com/made': 'yes'}


@pytest.mark.guarantee('ADM-036')
@pytest.mark.parametrize('decorator', [kopf.on.validate, kopf.on.mutate], ids=['val', 'mut'])
async def test_errors_deny(registry, run, client, cluster, decorator):
    @decorator('kopfexamples', id='fn', registry=registry)
    def fn(**_):
        raise ValueError('It is broken.')

    await run()
    answer = await client.create(build_object())

    assert (answer.code, answer.body['message']) == (
        500,
        'admission webhook "fn.auto.kopf.dev" denied the request: It is broken.',
    )
    assert await cluster.find() is None


@pytest.mark.guarantee('ADM-032', 'KWA-047')
async def test_warnings_are_shown_to_the_client(registry, run, client):
    @kopf.on.validate('kopfexamples', registry=registry)
    def fn(warnings, **_):
        warnings.append('Beware.')
        warnings.append('Be careful.')

    await run()
    answer = await client.create(build_object())

    assert (answer.code, answer.warnings) == (201, ['Beware.', 'Be careful.'])


@pytest.mark.guarantee('ADM-009', 'KWA-045', 'ADM-015')
async def test_dry_runs_are_reviewed_too(registry, run, client, cluster):
    calls = []

    @kopf.on.mutate('kopfexamples', side_effects=True, registry=registry)
    def fn(dryrun, patch, **_):
        calls.append(dryrun)
        patch.spec['x'] = 2

    await run()
    answer = await client.create(build_object(), dryRun='All')
    stored = await cluster.find()
    await client.create(build_object())

    assert (answer.code, answer.body['spec']) == (201, {'x': 2})
    assert stored is None
    assert calls == [True, False]


@pytest.mark.guarantee('ADM-014', 'ADM-010', 'KWA-046')
async def test_subresources_are_reviewed_if_asked_for(sandbox, registry, run, client):
    await sandbox.apply(build_crd(has_status=True))
    calls = []
    for id, subresource in [('main', None), ('status', 'status'), ('all', '*')]:

        @kopf.on.validate(
            'kopfexamples', id=id, subresource=subresource, operations=['UPDATE'], registry=registry
        )
        def fn(subresource, id=id, **_):
            calls.append((id, subresource))

    await run()
    await client.create(build_object())
    await client.patch({'spec': {'y': 1}})
    reviewed = sorted(calls)
    calls.clear()
    await client.patch({'status': {'y': 1}}, subresource='status')

    assert reviewed == [('all', None), ('main', None)]
    assert sorted(calls) == [('all', 'status'), ('status', 'status')]


@pytest.mark.guarantee('NEW-046', 'ADM-060', 'ADM-012')
async def test_all_operations_are_reviewed(registry, run, client):
    calls = []

    @kopf.on.validate('kopfexamples', registry=registry)
    def fn(operation, old, new, name, **_):
        calls.append((operation, old and old['spec'], new and new['spec'], name))

    await run()
    await client.create(build_object(spec={'x': 1}))
    await client.patch({'spec': {'x': 2}})
    await client.delete()

    assert calls == [
        ('CREATE', None, {'x': 1}, 'obj'),
        ('UPDATE', {'x': 1}, {'x': 2}, 'obj'),
        ('DELETE', {'x': 2}, None, 'obj'),
    ]


@pytest.mark.guarantee('FND-022')
async def test_deletions_come_to_mutating_handlers_only_if_asked_for(registry, hall, run, client):
    calls = []

    @kopf.on.mutate('kopfexamples', registry=registry)
    def usual(operation, **_):
        calls.append(('usual', operation))

    @kopf.on.mutate('kopfexamples', id='asking', operations=['DELETE'], registry=registry)
    def asking(operation, **_):
        calls.append(('asking', operation))

    await run()
    await client.create(build_object())
    await client.patch({'spec': {'x': 2}})
    hall.paths.clear()
    answer = await client.delete()

    assert calls == [('usual', 'CREATE'), ('usual', 'UPDATE'), ('asking', 'DELETE')]
    assert hall.paths == ['/hooks/asking']
    assert answer.code == 200


@pytest.mark.guarantee('FND-025')
async def test_webhooks_of_handlers_that_are_gone_do_not_block_requests(
    sandbox, registry, run, client, logs
):
    kopf.on.validate('kopfexamples', id='other', operations=['DELETE'], registry=registry)(
        lambda **_: None
    )
    await run()
    service = {'namespace': 'default', 'name': 'hall', 'path': '/hooks/gone'}
    rule = {
        'apiGroups': ['*'],
        'apiVersions': ['*'],
        'resources': ['kopfexamples'],
        'operations': ['CREATE'],
    }
    await sandbox.create(
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingWebhookConfiguration',
            'metadata': {'name': 'left.kopf.dev'},
            'webhooks': [
                {
                    'name': 'gone.left.kopf.dev',
                    'clientConfig': {'service': service},
                    'rules': [rule],
                    'admissionReviewVersions': ['v1'],
                    'sideEffects': 'None',
                    'failurePolicy': 'Fail',
                }
            ],
        }
    )

    answer = await client.create(build_object())

    assert answer.code == 201
    assert answer.warnings == [
        "There is no admission handler 'gone' in the operator, so the request is admitted."
    ]
    assert any("no admission handler 'gone'" in text for text in logs(logging.WARNING))


@pytest.mark.guarantee('ADM-016')
@pytest.mark.parametrize('ignore_failures, code', [(None, 500), (True, 201)])
async def test_unreachable_servers_block_requests_unless_ignored(
    registry, hall, run, client, ignore_failures, code
):
    kopf.on.validate('kopfexamples', ignore_failures=ignore_failures, registry=registry)(
        lambda **_: None
    )

    await run()
    hall.is_open = False
    answer = await client.create(build_object())

    assert answer.code == code


@pytest.mark.guarantee('ADM-016', 'FND-057')
async def test_failures_do_not_block_requests_if_ignored(registry, run, client):
    @kopf.on.validate('kopfexamples', ignore_failures=True, id='fn', registry=registry)
    def fn(**_):
        raise kopf.PermanentError('No.')

    await run()
    answer = await client.create(build_object())

    assert (answer.code, answer.warnings) == (201, ["Handler 'fn' failed, and is ignored: No."])


@pytest.mark.guarantee('FND-057')
async def test_denials_block_requests_also_if_failures_are_ignored(registry, run, client):
    @kopf.on.validate('kopfexamples', ignore_failures=True, id='fn', registry=registry)
    def fn(**_):
        raise kopf.AdmissionError('No.', code=403)

    await run()
    answer = await client.create(build_object())

    assert (answer.code, answer.warnings) == (403, [])
    assert answer.body['message'].endswith('denied the request: No.')


@pytest.mark.guarantee('ADM-019', 'ADM-020', 'ADM-018')
async def test_mismatching_objects_are_not_even_sent(registry, hall, run, client):
    calls = []

    @kopf.on.validate('kopfexamples', id='by-value', labels={'a': 'b'}, registry=registry)
    @kopf.on.validate(
        'kopfexamples', id='by-function', labels={'a': lambda v, **_: v == 'b'}, registry=registry
    )
    def fn(name, **_):
        calls.append(name)

    await run()
    await client.create(build_object('without'))
    paths = list(hall.paths)
    await client.create(build_object('with', labels={'a': 'b'}))

    assert paths == ['/hooks/by-function']
    assert calls == ['with', 'with']


@pytest.mark.guarantee('ADM-025', 'ADM-026', 'MEM-015')
async def test_memos_are_shared_with_other_handlers_except_on_creation(
    registry, run, client, cluster
):
    memos = []
    memories = inventory.Memories()

    @kopf.on.validate('kopfexamples', registry=registry)
    def validate(operation, memo, **_):
        memos.append((operation, dict(memo)))
        memo.by_review = operation

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    def change(reason, memo, **_):
        memos.append((reason, dict(memo)))
        memo.by_handler = reason

    await run(memories=memories, memo=kopf.Memo(common=1))
    await client.create(build_object(spec={'x': 1}))
    await cluster.wait_until_handled(x=1)
    memos_of_creation = [memo for memo in memos if memo[0] in ('CREATE', 'create')]
    memos.clear()
    await client.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    memos_of_update = list(memos)
    await client.delete()
    await wait_until(lambda: not len(memories))

    assert memos_of_creation == [('CREATE', {'common': 1}), ('create', {'common': 1})]
    assert memos_of_update[0] == (
        'UPDATE',
        {'common': 1, 'by_handler': 'create', 'by_review': 'UPDATE'},
    )
    assert memos_of_update[1] == (
        'update',
        {'common': 1, 'by_handler': 'create', 'by_review': 'UPDATE'},
    )
    assert memos[-1] == ('DELETE', {'common': 1, 'by_handler': 'update', 'by_review': 'UPDATE'})


@pytest.mark.guarantee('ADM-026', 'MEM-015')
async def test_nothing_is_watched_or_remembered_only_for_reviews(sandbox, registry, run, client):
    memories = inventory.Memories()
    kopf.on.validate('kopfexamples', registry=registry)(lambda **_: None)

    operator = await run(memories=memories)
    await client.create(build_object())
    await client.patch({'spec': {'x': 2}})
    await client.delete()
    await operator.stop()

    asked = {
        request.verb
        for request in sandbox.requests
        if request.plural == 'kopfexamples' and request.user_agent.startswith('kopf/')
    }
    assert asked == set()
    assert len(memories) == 0


@pytest.mark.guarantee('ADM-022')
async def test_slow_handlers_do_not_delay_other_requests(registry, run, client):
    is_released = asyncio.Event()

    @kopf.on.validate('kopfexamples', when=lambda name, **_: name == 'slow', registry=registry)
    async def fn(**_):
        await is_released.wait()

    await run()
    slow = asyncio.create_task(client.create(build_object('slow')))
    fast = await client.create(build_object('fast'))
    is_released.set()

    assert fast.code == 201
    assert (await slow).code == 201


async def test_busy_threads_of_other_handlers_do_not_delay_reviews(
    registry, settings, run, client, cluster
):
    is_busy, is_released = threading.Event(), threading.Event()
    settings.execution.max_workers = 1

    @kopf.on.validate('kopfexamples', registry=registry)
    def validate_fn(**_):
        pass

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(**_):
        is_busy.set()
        is_released.wait()

    await run()
    await client.create(build_object('slow'))
    await wait_until(is_busy.is_set)
    fast = await client.create(build_object('fast'))
    is_reviewed_meanwhile = not is_released.is_set()
    is_released.set()

    assert fast.code == 201
    assert is_reviewed_meanwhile


async def test_reviews_left_in_threads_are_reported_in_the_end(registry, hall, run, client, logs):
    is_busy, is_released = threading.Event(), threading.Event()

    @kopf.on.validate('kopfexamples', registry=registry)
    def validate_fn(**_):
        is_busy.set()
        is_released.wait()

    operator = await run()
    request = asyncio.create_task(client.create(build_object('slow')))
    await wait_until(is_busy.is_set)
    await operator.stop()
    is_released.set()
    await request

    assert any(
        text.startswith('1 synchronous handlers still run') for text in logs(logging.WARNING)
    )


@pytest.mark.guarantee('KWA-049', 'KWA-050', 'KWA-048', 'ADM-054', 'ADM-011')
async def test_who_asks_is_told_to_handlers(registry, hall, run, client):
    calls = []
    hall.headers, hall.sslpeer = (
        {'Authorization': 'Basic abc'},
        {'subject': ((('commonName', 'x'),),)},
    )

    @kopf.on.validate('kopfexamples', registry=registry)
    def fn(userinfo, headers, sslpeer, **_):
        calls.append((userinfo, headers, sslpeer))

    await run()
    await client.create(build_object())

    assert calls == [(hall.reviews[0]['request']['userInfo'], hall.headers, hall.sslpeer)]
    assert calls[0][0]['username']


@pytest.mark.guarantee('KWA-007', 'IDX-031')
async def test_handlers_have_complete_indices(
    sandbox, registry, hall, run_operator, client, cluster
):
    await cluster.create('a')
    await cluster.create('b')
    calls = []

    @kopf.index('kopfexamples', id='names', registry=registry)
    def names(name, **_):
        return {name: name}

    @kopf.on.validate('kopfexamples', registry=registry)
    def fn(names, **_):
        calls.append(sorted(names))

    with sandbox.faults.inject(verb='list', resource='kopfexamples', latency=3):
        await run_operator()
        await wait_for_records(sandbox, 1)
        answer = await client.create(build_object('c'))

    assert answer.code == 201
    assert calls == [['a', 'b']]


@pytest.mark.usefixtures('peering')
async def test_reviews_go_on_while_the_operator_is_paused(sandbox, registry, hall, town, client):
    kopf.on.event('kopfexamples', registry=registry)(lambda **_: None)

    @kopf.on.validate('kopfexamples', registry=registry)
    def fn(**_):
        raise kopf.AdmissionError('Denied.', code=403)

    await town.write({'other': build_record(5, lifetime=600)})
    await town.run('me', registry=registry, settings=hall_settings(hall))
    await wait_for_records(sandbox, 1)
    answer = await client.create(build_object())

    assert answer.code == 403


def hall_settings(hall):
    settings = kopf.OperatorSettings()
    settings.admission.server, settings.admission.managed = hall, MANAGED
    return settings


@pytest.mark.guarantee('ADM-045')
async def test_reviews_go_on_until_the_last_changes_of_the_operator(
    sandbox, registry, hall, run, client, cluster
):
    calls = []
    is_started = asyncio.Event()

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon(stopped, patch, **_):
        is_started.set()
        await stopped.wait()
        patch.spec['finished'] = True

    @kopf.on.validate('kopfexamples', operations=['UPDATE'], registry=registry)
    def fn(new, **_):
        calls.append(new['spec'])

    operator = await run()
    await client.create(build_object(spec={}))
    await is_started.wait()
    await operator.stop()

    assert {'finished': True} in calls
    assert (await cluster.get())['spec'] == {'finished': True}
    assert (await client.patch({'spec': {'x': 1}})).code == 200


async def test_handlers_are_counted(registry, hall, run, client):
    kopf.on.validate('kopfexamples', id='fn', registry=registry)(lambda **_: None)
    async with aiohttp.ClientSession() as session:
        site = Site(session)

        operator = await run(liveness_endpoint=site.url)
        await client.create(build_object())
        samples = await site.scrape()
        await operator.stop()

    assert samples.get('kopf_handler_runs_total', handler='fn', outcome='succeeded') == 1


async def test_patches_of_functions_that_validate_and_mutate_break_nothing(
    sandbox, registry, run, client
):
    @kopf.on.validate('kopfexamples', registry=registry)
    @kopf.on.mutate('kopfexamples', registry=registry)
    def fn(patch, **_):
        patch.spec['x'] = 2

    await run()
    answer = await client.create(build_object())
    deleted = await client.delete()

    assert (answer.code, answer.body['spec']) == (201, {'x': 2})
    assert deleted.code == 200


async def test_ids_of_all_kinds_are_reached_by_services(sandbox, registry, hall, run, client):
    calls = []
    for id in ['check_it', 'CheckIt', 'check/it']:
        kopf.on.validate('kopfexamples', id=id, param=id, registry=registry)(
            lambda param, **_: calls.append(param)
        )

    await run()
    answer = await client.create(build_object())

    assert answer.code == 201
    assert sorted(calls) == ['CheckIt', 'check/it', 'check_it']


async def test_ids_of_all_kinds_are_reached_by_urls(settings, registry, run, client):
    settings.admission.server = SecureHall()
    calls = []
    for id in ['check_it', 'CheckIt', 'check/it', 'check it?']:
        kopf.on.validate('kopfexamples', id=id, param=id, registry=registry)(
            lambda param, **_: calls.append(param)
        )

    await run()
    answer = await client.create(build_object())

    assert answer.code == 201
    assert sorted(calls) == ['CheckIt', 'check it?', 'check/it', 'check_it']
