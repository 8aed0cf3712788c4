"""
Managed configurations of webhooks: operators create them, keep them, and clean them when they
leave.
"""

import asyncio
import logging

import pytest
from clusters import build_crd, wait_until
from webhook_servers import (
    MANAGED,
    MUTATING,
    VALIDATING,
    Hall,
    find_records,
    list_requests,
    list_writes,
    wait_for_records,
)

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

pytestmark = pytest.mark.usefixtures('cluster')


@pytest.fixture
def validate(registry):
    """Declare a validating handler: ``validate('id', persistent=True)``."""

    def validate(id='one', resource='kopfexamples', **options):
        kopf.on.validate(resource, id=id, registry=registry, **options)(lambda **_: None)

    return validate


async def settle():
    """Let everything be written that could be."""
    await asyncio.sleep(300)


@pytest.mark.guarantee('ADM-041', 'ADM-042', 'ADM-043', 'ADM-047', 'ADM-048', 'ADM-039')
async def test_configurations_are_created_if_absent(
    sandbox, registry, hall, validate, run_operator
):
    validate('one')
    validate(
        'two', labels={'a': 'b'}, operations=['DELETE'], ignore_failures=True, side_effects=True
    )
    kopf.on.mutate('kopfexamples', id='three', registry=registry)(lambda **_: None)

    await run_operator()
    validating, mutating = (
        await wait_for_records(sandbox, 2),
        await wait_for_records(sandbox, 1, MUTATING),
    )

    assert validating[0] == {
        'name': 'one.auto.kopf.dev',
        'sideEffects': 'None',
        'failurePolicy': 'Fail',
        'matchPolicy': 'Equivalent',
        'timeoutSeconds': 30,
        'admissionReviewVersions': ['v1', 'v1beta1'],
        'namespaceSelector': {},
        'objectSelector': {},
        'clientConfig': {
            'service': {'namespace': 'default', 'name': 'hall', 'path': '/hooks/one', 'port': 443}
        },
        'rules': [
            {
                'apiGroups': ['kopf.dev'],
                'apiVersions': ['v1'],
                'resources': ['kopfexamples'],
                'operations': ['*'],
                'scope': '*',
            }
        ],
    }
    assert validating[1]['name'] == 'two.auto.kopf.dev'
    assert (validating[1]['failurePolicy'], validating[1]['sideEffects']) == (
        'Ignore',
        'NoneOnDryRun',
    )
    assert validating[1]['rules'][0]['operations'] == ['DELETE']
    assert (mutating[0]['name'], mutating[0]['reinvocationPolicy']) == (
        'three.auto.kopf.dev',
        'Never',
    )
    assert len(await sandbox.list(VALIDATING)) == len(await sandbox.list(MUTATING)) == 1


@pytest.mark.guarantee('ADM-040', 'ADM-017')
async def test_nothing_is_touched_by_default(sandbox, settings, hall, validate, run_operator):
    settings.admission.managed = kopf.OperatorSettings().admission.managed
    validate(persistent=True)

    operator = await run_operator()
    await settle()
    await operator.stop()

    assert list_writes(sandbox) == []
    assert await find_records(sandbox) is None


@pytest.mark.guarantee('ADM-041')
async def test_management_is_enabled_by_startup_handlers(
    sandbox, registry, settings, hall, validate, run_operator
):
    settings.admission.server = settings.admission.managed = None
    validate()

    @kopf.on.startup(registry=registry)
    def configure(settings, **_):
        settings.admission.server = hall
        settings.admission.managed = MANAGED

    await run_operator()

    assert await wait_for_records(sandbox, 1)


@pytest.mark.guarantee('ADM-043')
async def test_existing_records_are_overwritten(sandbox, hall, validate, run_operator):
    for kind in ['Validating', 'Mutating']:
        await sandbox.create(
            {
                'apiVersion': 'admissionregistration.k8s.io/v1',
                'kind': f'{kind}WebhookConfiguration',
                'metadata': {'name': MANAGED, 'labels': {'own': 'label'}},
                'webhooks': [
                    {
                        'name': 'outdated.auto.kopf.dev',
                        'sideEffects': 'None',
                        'failurePolicy': 'Ignore',
                        'admissionReviewVersions': ['v1'],
                        'clientConfig': {'url': 'https://unreachable/'},
                    }
                ],
            }
        )
    validate()

    await run_operator()
    await wait_until(lambda: len(list_writes(sandbox)) == 2)
    await wait_for_records(sandbox, 0, MUTATING)

    assert [record['name'] for record in await wait_for_records(sandbox, 1)] == [
        'one.auto.kopf.dev'
    ]
    assert (await sandbox.get(VALIDATING, MANAGED, ''))['metadata']['labels'] == {'own': 'label'}


@pytest.mark.guarantee('ADM-042')
async def test_configurations_with_no_purpose_are_not_created(
    sandbox, hall, validate, run_operator
):
    validate()

    await run_operator()
    await wait_for_records(sandbox, 1)
    await settle()

    assert await find_records(sandbox, MUTATING) is None


@pytest.mark.guarantee('ADM-044', 'FND-058')
async def test_only_reading_creating_and_patching_must_be_permitted(
    virtual_time, registry, settings, validate
):
    rules = [
        {
            'apiGroups': ['admissionregistration.k8s.io'],
            'resources': [VALIDATING, MUTATING],
            'verbs': ['get', 'create', 'patch'],
        }
    ]
    rbac = 'rbac.authorization.k8s.io'
    settings.admission.managed = MANAGED
    validate('one')
    validate('two', persistent=True)
    async with kopf.testing.Sandbox(tls=False, rbac=True) as sandbox:
        await sandbox.apply(build_crd())
        user = await sandbox.add_user('operator')
        await sandbox.create(
            {
                'apiVersion': f'{rbac}/v1',
                'kind': 'ClusterRole',
                'metadata': {'name': 'operator'},
                'rules': rules,
            }
        )
        await sandbox.create(
            {
                'apiVersion': f'{rbac}/v1',
                'kind': 'ClusterRoleBinding',
                'metadata': {'name': 'operator'},
                'roleRef': {'apiGroup': rbac, 'kind': 'ClusterRole', 'name': 'operator'},
                'subjects': [{'apiGroup': rbac, 'kind': 'User', 'name': 'operator'}],
            }
        )
        settings.admission.server = Hall(sandbox)
        info = kopf.ConnectionInfo(server=sandbox.url, token=user.token)
        stop_flag = asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=settings,
                vault=vaults.Vault({'user': info}),
                clusterwide=True,
                stop_flag=stop_flag,
            )
        )

        await wait_for_records(sandbox, 2)
        await settle()
        stop_flag.set()
        await task

        assert [record['name'] for record in await find_records(sandbox)] == ['two.auto.kopf.dev']
        assert {asked.verb for asked in list_requests(sandbox)} == {'get', 'create', 'patch'}


@pytest.mark.guarantee('ADM-045', 'ADM-017')
async def test_only_persistent_records_stay_after_the_exit(
    sandbox, registry, hall, validate, run_operator
):
    validate('one')
    validate('two', persistent=True)
    kopf.on.mutate('kopfexamples', id='three', registry=registry)(lambda **_: None)
    operator = await run_operator()
    before = await wait_for_records(sandbox, 2)
    await wait_for_records(sandbox, 1, MUTATING)

    await operator.stop()

    assert await find_records(sandbox) == [before[1]]
    assert await find_records(sandbox, MUTATING) == []


@pytest.mark.guarantee('ADM-045')
async def test_records_are_removed_before_the_server_stops(
    sandbox, hall, validate, registry, run_operator
):
    seen = []
    validate()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_):
        seen.append((hall.is_open, await find_records(sandbox)))

    operator = await run_operator()
    await wait_for_records(sandbox, 1)
    stopping = asyncio.create_task(operator.stop())
    await wait_for_records(sandbox, 0)
    was_open = hall.is_open
    await stopping

    assert was_open
    assert seen == [(False, [])]


@pytest.mark.guarantee('ADM-046')
async def test_records_follow_the_resources(sandbox, hall, validate, run_operator):
    validate('one')
    validate('two', 'kopfothers')
    validate('three', kopf.EVERYTHING)

    await run_operator()
    before = await wait_for_records(sandbox, 2)
    await sandbox.create(build_crd('kopfothers', 'KopfOther'))
    amid = await wait_for_records(sandbox, 3)
    await sandbox.delete('customresourcedefinitions', 'kopfothers.kopf.dev')
    after = await wait_for_records(sandbox, 2)

    assert [record['name'] for record in amid] == [
        'one.auto.kopf.dev',
        'two.auto.kopf.dev',
        'three.auto.kopf.dev',
    ]
    assert any(rule['resources'] == ['kopfothers'] for rule in amid[2]['rules'])
    assert before == after


@pytest.mark.guarantee('ADM-049', 'ADM-091')
async def test_records_follow_the_server(sandbox, hall, validate, run_operator):
    validate('one')
    validate('two')
    await run_operator()
    await wait_for_records(sandbox, 2)

    hall.reconfigure({'url': 'https://other/path', 'caBundle': 'Q0E='})
    async with asyncio.timeout(60):
        while 'url' not in (await find_records(sandbox))[0]['clientConfig']:
            await asyncio.sleep(0.1)

    assert [record['clientConfig'] for record in await find_records(sandbox)] == [
        {'url': 'https://other/path/one', 'caBundle': 'Q0E='},
        {'url': 'https://other/path/two', 'caBundle': 'Q0E='},
    ]


async def test_nothing_is_written_while_nothing_differs(sandbox, hall, validate, run_operator):
    validate()
    operator = await run_operator()
    await wait_for_records(sandbox, 1)
    await settle()
    written = len(list_writes(sandbox))

    for _ in range(3):
        hall.reconfigure({'service': {'namespace': 'default', 'name': 'hall', 'path': '/hooks'}})
    await sandbox.create(build_crd('kopfothers', 'KopfOther'))
    await settle()
    unchanged = len(list_writes(sandbox))
    await operator.stop()

    # Patching of what is absent, creation, patching of what is absent and not needed.
    assert written == 3
    assert unchanged == written
    assert len(list_writes(sandbox)) == written + 1


async def test_nothing_is_written_on_exit_if_everything_is_persistent(
    sandbox, hall, validate, run_operator
):
    validate(persistent=True)
    operator = await run_operator()
    await wait_for_records(sandbox, 1)
    await settle()
    written = len(list_writes(sandbox))

    await operator.stop()

    assert len(list_writes(sandbox)) == written


@pytest.mark.parametrize(
    'trouble, message',
    [
        pytest.param(
            {'code': 403}, 'Grant the operator the verbs create and patch', id='forbidden'
        ),
        pytest.param(
            {'code': 422}, '. See if settings.admission.managed is a domain name', id='invalid'
        ),
        pytest.param({'code': 500}, 'HTTP 500', id='server-error'),
        pytest.param({'cut': True}, 'will be tried again', id='disconnected'),
        pytest.param({'stall': True}, 'there is no answer', id='stalled'),
    ],
)
async def test_operators_go_on_if_configurations_cannot_be_written_and_try_again(
    sandbox, hall, validate, run_operator, logs, trouble, message
):
    validate()

    with sandbox.faults.inject(resource=VALIDATING, user_agent='kopf/*', **trouble):
        operator = await run_operator()
        await wait_until(lambda: any(message in text for text in logs(logging.WARNING)))
        await asyncio.sleep(60)
        is_running = not operator.task.done()
    records = await wait_for_records(sandbox, 1)

    assert is_running
    assert len(records) == 1
    assert not any('Traceback' in text for text in logs())


async def test_another_creator_is_not_an_obstacle(sandbox, hall, validate, run_operator):
    validate()

    with sandbox.faults.inject(
        verb='patch', resource=VALIDATING, user_agent='kopf/*', code=404, times=1
    ):
        await sandbox.create(
            {
                'apiVersion': 'admissionregistration.k8s.io/v1',
                'metadata': {'name': MANAGED},
                'kind': 'ValidatingWebhookConfiguration',
                'webhooks': [],
            }
        )
        await run_operator()
        records = await wait_for_records(sandbox, 1)

    assert records[0]['name'] == 'one.auto.kopf.dev'
    assert [asked.verb for asked in list_writes(sandbox) if asked.plural == VALIDATING] == [
        'patch',
        'create',
        'patch',
    ]


@pytest.mark.guarantee('ADM-045')
@pytest.mark.parametrize(
    'trouble, limit',
    [
        pytest.param({'code': 403}, 1, id='forbidden'),
        pytest.param({'code': 500}, 15, id='server-error'),
        pytest.param({'stall': True}, 15, id='stalled'),
    ],
)
async def test_exit_is_not_delayed_for_long_by_refusals(
    sandbox, hall, validate, run_operator, logs, trouble, limit
):
    validate()
    operator = await run_operator()
    await wait_for_records(sandbox, 1)
    await settle()

    with sandbox.faults.inject(resource=VALIDATING, user_agent='kopf/*', **trouble):
        async with asyncio.timeout(limit):
            await operator.stop()

    assert any(
        "The webhooks are left in the configurations 'auto.kopf.dev'" in text
        for text in logs(logging.WARNING)
    )


@pytest.mark.guarantee('ADM-045')
async def test_removal_is_tried_again_on_exit(sandbox, hall, validate, run_operator):
    validate()
    operator = await run_operator()
    await wait_for_records(sandbox, 1)

    with sandbox.faults.inject(resource=VALIDATING, user_agent='kopf/*', code=503, times=2):
        await operator.stop()

    assert await find_records(sandbox) == []


@pytest.mark.guarantee('ADM-045')
async def test_records_are_removed_also_if_it_is_not_known_that_they_are_there(
    sandbox, hall, validate, run_operator
):
    validate()
    operator = await run_operator()
    await wait_for_records(sandbox, 1)
    await settle()

    with sandbox.faults.inject(
        verb='patch', resource=VALIDATING, user_agent='kopf/*', stall=True
    ) as fault:
        hall.reconfigure({'url': 'https://other/'})
        await fault.wait_until_hit()
        stopping = asyncio.create_task(operator.stop())
        await asyncio.sleep(1)
    await stopping

    assert await find_records(sandbox) == []


@pytest.mark.guarantee('ADM-052', 'ADM-045')
async def test_records_are_removed_when_the_server_fails(sandbox, hall, validate, run_operator):
    validate()
    operator = await run_operator()
    await wait_for_records(sandbox, 1)

    hall.reconfigure('not a config')
    with pytest.raises(Exception, match='client configs'):
        await operator.task

    assert await find_records(sandbox) == []
