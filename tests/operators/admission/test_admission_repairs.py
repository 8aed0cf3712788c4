"""
Managed configurations of webhooks that others have changed: operators put them right, and say what
was changed.
"""

import asyncio
import logging

import pytest
from webhook_servers import (
    MANAGED,
    MUTATING,
    VALIDATING,
    find_records,
    list_requests,
    list_writes,
    wait_for_records,
)

import kopf
import kopf.testing

pytestmark = pytest.mark.usefixtures('cluster')

MINUTE = 60.0


@pytest.fixture
async def operator(registry, sandbox, hall, run_operator):
    """An operator whose webhooks are in force: two validating, one mutating."""
    kopf.on.validate('kopfexamples', id='one', registry=registry)(lambda **_: None)
    kopf.on.validate('kopfexamples', id='two', persistent=True, registry=registry)(lambda **_: None)
    kopf.on.mutate('kopfexamples', id='three', registry=registry)(lambda **_: None)
    operator = await run_operator()
    await wait_for_records(sandbox, 2)
    await wait_for_records(sandbox, 1, MUTATING)
    return operator


async def change(sandbox, record, plural=VALIDATING):
    """Change the first record, as an administrator could."""
    records = await find_records(sandbox, plural)
    await sandbox.patch(plural, MANAGED, {'webhooks': [{**records[0], **record}, *records[1:]]}, '')


def list_reports(logs):
    return [text for text in logs(logging.WARNING) if 'was changed by others' in text]


ANYTHING = {
    'operations': ['*'],
    'apiGroups': ['*'],
    'apiVersions': ['*'],
    'resources': ['*/*'],
    'scope': '*',
}
CHANGES = [
    pytest.param({'failurePolicy': 'Ignore'}, 'failurePolicy', id='policy'),
    pytest.param({'rules': []}, 'rules', id='rules-removed'),
    pytest.param({'rules': [ANYTHING]}, 'rules', id='rules-widened'),
    pytest.param(
        {'namespaceSelector': {'matchLabels': {'x': 'y'}}}, 'namespaceSelector', id='namespaces'
    ),
    pytest.param({'objectSelector': {'matchLabels': {'x': 'y'}}}, 'objectSelector', id='objects'),
    pytest.param(
        {'matchConditions': [{'name': 'never', 'expression': 'false'}]},
        'matchConditions',
        id='conditions',
    ),
    pytest.param({'timeoutSeconds': 1}, 'timeoutSeconds', id='timeout'),
    pytest.param(
        {'clientConfig': {'url': 'https://elsewhere/'}},
        'clientConfig.service, clientConfig.url',
        id='address',
    ),
]


@pytest.mark.guarantee('FND-058')
@pytest.mark.parametrize('record, field', CHANGES)
async def test_changed_records_are_put_right_within_a_minute(
    sandbox, operator, logs, record, field
):
    before = await find_records(sandbox)
    await change(sandbox, record)
    changed = await find_records(sandbox)

    await asyncio.sleep(MINUTE)

    assert changed != before
    assert await find_records(sandbox) == before
    [report] = list_reports(logs)
    assert (
        f"{MANAGED!r} was changed by others, and is put right: 'one.{MANAGED}' differs in {field}."
        in report
    )


@pytest.mark.guarantee('FND-058')
@pytest.mark.parametrize('plural', [VALIDATING, MUTATING])
async def test_emptied_configurations_are_put_right_within_a_minute(
    sandbox, operator, logs, plural
):
    before = await find_records(sandbox, plural)
    await sandbox.patch(plural, MANAGED, {'webhooks': []}, '')

    await asyncio.sleep(MINUTE)

    assert await find_records(sandbox, plural) == before
    [report] = list_reports(logs)
    assert all(f'{record["name"]!r} is absent' in report for record in before)


@pytest.mark.guarantee('FND-058')
async def test_deleted_configurations_are_put_right_within_a_minute(sandbox, operator, logs):
    before = await find_records(sandbox)
    await sandbox.delete(VALIDATING, MANAGED, '')

    await asyncio.sleep(MINUTE)

    assert await find_records(sandbox) == before
    assert [report.count('it is deleted') for report in list_reports(logs)] == [1]


@pytest.mark.guarantee('FND-058')
async def test_requests_are_reviewed_again_after_the_repair(sandbox, registry, operator):
    calls = []
    kopf.on.validate('kopfexamples', id='one', registry=registry)(
        lambda name, **_: calls.append(name)
    )
    await sandbox.patch(VALIDATING, MANAGED, {'webhooks': []}, '')

    await asyncio.sleep(MINUTE)
    await sandbox.create(
        {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfExample', 'metadata': {'name': 'obj'}}
    )

    assert calls == ['obj']


@pytest.mark.guarantee('FND-058')
async def test_repeated_changes_are_put_right_every_time_and_reported_once_in_a_while(
    sandbox, operator, logs
):
    """Before, there was a warning for each of the repairs."""
    before = await find_records(sandbox)
    repaired = []
    for _ in range(20):
        await change(sandbox, {'failurePolicy': 'Ignore'})
        await asyncio.sleep(MINUTE)
        repaired.append(await find_records(sandbox))
    await change(sandbox, {'timeoutSeconds': 1})
    await asyncio.sleep(MINUTE)

    *repeated, other = list_reports(logs)
    assert repaired == [before] * 20
    assert 'differs in timeoutSeconds' in other
    assert len(repeated) == 2
    assert 'more times' not in repeated[0]
    assert 'more times since it was reported last.' in repeated[1]


@pytest.mark.guarantee('FND-058')
async def test_nothing_is_written_while_there_are_only_the_defaults_of_the_server(
    sandbox, operator, logs
):
    await asyncio.sleep(MINUTE)
    before = len(list_writes(sandbox))
    metadata = {'labels': {'own': 'label'}, 'annotations': {'own': 'annotation'}}
    await sandbox.patch(VALIDATING, MANAGED, {'metadata': metadata}, '')

    await asyncio.sleep(10 * MINUTE)

    assert len(list_writes(sandbox)) == before
    assert list_reports(logs) == []


@pytest.mark.guarantee('FND-058')
async def test_looks_are_cheap(sandbox, operator):
    since = len(list_requests(sandbox))

    await asyncio.sleep(60 * MINUTE)

    looks = [asked.verb for asked in list_requests(sandbox)[since:]]
    assert {*looks} == {'get'}
    # Two configurations, every 36-45 seconds of an hour, with delays.
    assert 2 * 80 <= len(looks) <= 2 * 105


@pytest.mark.guarantee('FND-058')
async def test_two_operators_with_one_name_do_not_write_in_circles(
    sandbox, settings, operator, run_operator, logs
):
    others = kopf.OperatorRegistry()
    kopf.on.validate('kopfexamples', id='four', registry=others)(lambda **_: None)
    rival = await run_operator(registry=others)
    since = len(list_writes(sandbox))

    await asyncio.sleep(60 * MINUTE)
    writes = list_writes(sandbox)[since:]
    reports = list_reports(logs)
    await rival.stop()
    await asyncio.sleep(MINUTE)

    assert 2 <= len(writes) <= 2 * 105
    # Of each operator, for a few sorts of changes, every 10 minutes.
    assert 2 <= len(reports) <= 2 * 2 * 7
    assert all('It is checked every 45 seconds' in report for report in reports)
    assert all(
        'give them different ones in settings.admission.managed' in report for report in reports
    )
    assert {record['name'] for record in await find_records(sandbox)} == {
        f'one.{MANAGED}',
        f'two.{MANAGED}',
    }


@pytest.mark.guarantee('FND-058')
async def test_nothing_is_put_back_while_the_operator_stops(sandbox, registry, operator):
    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_):
        await asyncio.sleep(10 * MINUTE)

    await sandbox.patch(VALIDATING, MANAGED, {'webhooks': []}, '')
    await sandbox.patch(MUTATING, MANAGED, {'webhooks': []}, '')
    await operator.stop()

    assert [record['name'] for record in await find_records(sandbox)] in ([], [f'two.{MANAGED}'])
    assert await find_records(sandbox, MUTATING) == []


@pytest.mark.guarantee('FND-058')
async def test_nothing_is_put_back_by_a_repair_that_is_interrupted_by_the_exit(sandbox, operator):
    with sandbox.faults.inject(
        verb='patch', resource=VALIDATING, user_agent='kopf/*', stall=True
    ) as fault:
        await sandbox.patch(VALIDATING, MANAGED, {'webhooks': []}, '')
        await fault.wait_until_hit()
        stopping = asyncio.create_task(operator.stop())
        await asyncio.sleep(1)
    await stopping
    await asyncio.sleep(MINUTE)

    assert [record['name'] for record in await find_records(sandbox)] == [f'two.{MANAGED}']


@pytest.mark.guarantee('FND-058')
@pytest.mark.parametrize(
    'trouble, message',
    [
        pytest.param({'code': 403}, 'Grant the operator the verb get on it.', id='forbidden'),
        pytest.param({'code': 500}, 'HTTP 500', id='server-error'),
        pytest.param({'stall': True}, 'there is no answer', id='stalled'),
        pytest.param({'cut': True}, 'cannot be read', id='disconnected'),
    ],
)
async def test_operators_warn_once_if_they_cannot_look_and_look_when_they_can(
    sandbox, operator, logs, trouble, message
):
    before = await find_records(sandbox)
    with sandbox.faults.inject(verb='get', resource=VALIDATING, user_agent='kopf/*', **trouble):
        await sandbox.patch(VALIDATING, MANAGED, {'webhooks': []}, '')
        await asyncio.sleep(10 * MINUTE)
        unseen = await find_records(sandbox)
    await asyncio.sleep(MINUTE)

    assert unseen == []
    assert await find_records(sandbox) == before
    [warning] = [text for text in logs(logging.WARNING) if 'cannot be read, so its changes' in text]
    assert message in warning


@pytest.mark.guarantee('FND-058')
async def test_neither_certificates_nor_values_are_in_the_log(sandbox, hall, operator, logs):
    hall.reconfigure({'url': 'https://planted-token@own/', 'caBundle': 'cGxhbnRlZA=='})
    await asyncio.sleep(1)
    await change(
        sandbox, {'clientConfig': {'url': 'https://planted-secret/', 'caBundle': 'cGxhbnRlZA=='}}
    )

    await asyncio.sleep(MINUTE)

    [report] = list_reports(logs)
    assert 'planted' not in report
    assert 'cGxhbnRlZA' not in ''.join(logs(logging.INFO))
