"""
What operators tell of themselves in the peering objects, from their start to their end, and how it
is understood.
"""

import asyncio
import datetime
import itertools
import logging

import pytest
from clusters import get_time, wait_until
from peerings import build_peering, build_peering_crd, build_record, get_writes

import kopf
from kopf._cogs.structs import vaults


@pytest.mark.guarantee('PEE-021', 'NEW-215', 'NEW-217', 'PEE-025', 'NEW-204')
@pytest.mark.parametrize(
    'lifetime, limits',
    [
        pytest.param(None, (50, 55), id='default'),
        pytest.param(20, (10, 15), id='short'),
        pytest.param(5, (1, 1), id='too-short'),
    ],
)
async def test_the_record_is_renewed_a_bit_before_its_end(
    town, sandbox, cluster, peering, logs, lifetime, limits
):
    settings = kopf.OperatorSettings()
    settings.peering.lifetime = lifetime or settings.peering.lifetime
    operator = await town.run('one', priority=7, settings=settings)
    await town.wait_until_recorded('one')
    first = (await town.get_records())['one']
    await asyncio.sleep(500)
    last = (await town.get_records())['one']
    await operator.stop()

    writes = get_writes(sandbox)
    shortest, longest = limits
    pairs = itertools.pairwise([asked.time for asked in writes[:-1]])
    assert all(shortest - 0.01 <= after - before <= longest + 0.5 for before, after in pairs)
    assert {asked.verb for asked in writes} == {'patch'}
    assert {**first, 'lastseen': ''} == {'priority': 7, 'lifetime': lifetime or 60, 'lastseen': ''}
    assert all(
        datetime.datetime.fromisoformat(record['lastseen']).tzinfo for record in (first, last)
    )
    assert last['lastseen'] > first['lastseen']
    assert await town.get_records() == {}
    assert not [line for line in logs() if 'atching' in line and 'priority' in line]


@pytest.mark.guarantee('PEE-024')
@pytest.mark.parametrize('is_stealth', [True, False])
async def test_keepalives_are_logged_unless_it_is_stealth(town, cluster, peering, logs, is_stealth):
    settings = kopf.OperatorSettings()
    settings.peering.stealth = is_stealth
    await town.run('one', settings=settings)
    await town.wait_until_recorded('one')
    first = (await town.get_records())['one']
    await asyncio.sleep(100)

    assert bool([line for line in logs(logging.INFO) if 'keep-alive' in line]) is not is_stealth
    assert (await town.get_records())['one']['lastseen'] > first['lastseen']


@pytest.mark.guarantee('PEE-025')
async def test_only_few_operations_are_needed_on_the_peering(town, sandbox, cluster, peering):
    high = await town.run('high', priority=2)
    await town.run('low', priority=1)
    await asyncio.sleep(1000)
    await high.stop()
    asked = [
        asked
        for asked in sandbox.requests.select(resource='clusterkopfpeerings')
        if asked.user_agent.startswith('kopf/')
    ]

    assert {item.verb for item in asked} == {'list', 'watch', 'patch'}
    assert len(await sandbox.list('clusterkopfpeerings')) == 1


@pytest.mark.guarantee('PEE-026', 'PEE-005')
async def test_any_integer_is_a_priority(town, cluster, peering, check):
    await town.run('lowest', priority=-1)
    await town.run('address', priority=3232235777)
    await town.wait_until_recorded('lowest', 'address')
    await asyncio.sleep(1)
    await check('address')


@pytest.mark.guarantee('PEE-027')
async def test_operators_do_not_compete_with_themselves(town, cluster, peering, check):
    await town.write({'me': build_record(999, lifetime=600)})
    await town.run('me', priority=1)
    await check('me')

    assert (await town.get_records())['me']['priority'] == 1


@pytest.mark.guarantee('NEW-218', 'PEE-027')
async def test_the_identity_is_of_the_pod_or_else_unique(town, cluster, peering, monkeypatch):
    monkeypatch.delenv('POD_ID', raising=False)
    await town.run(None, priority=1)
    await town.run(None, priority=1)
    monkeypatch.setenv('POD_ID', 'my-pod')
    await town.run(None, priority=1)
    await asyncio.sleep(10)
    records = await town.get_records()

    assert len(records) == 3
    assert 'my-pod' in records


@pytest.mark.guarantee('PEE-028', 'CFG-052', 'PEE-013', 'PEE-005')
async def test_settings_of_startup_handlers_are_in_force_and_win_over_options(
    town, sandbox, cluster, peering, check
):
    registry = town.build_registry('one')

    @kopf.on.startup(registry=registry)
    async def startup_fn(settings, **_):
        settings.peering.name = 'another'
        settings.peering.priority = 5
        settings.peering.lifetime = 100

    await sandbox.create(build_peering('another', status={'two': build_record(4, lifetime=600)}))
    await town.run('one', registry=registry, priority=3, peering_name='default')
    await check('one')
    record = (await town.get_records('another'))['one']

    assert (record['priority'], record['lifetime']) == (5, 100)
    assert await town.get_records() == {}


@pytest.mark.guarantee('NEW-215')
@pytest.mark.parametrize(
    'status',
    [
        pytest.param('text', id='text'),
        pytest.param({'x': None, 'y': [], 'z': 'text', 'n': 1}, id='not-records'),
        pytest.param(
            {'x': {'priority': 'high', 'lifetime': {}, 'lastseen': 'yesterday', 'unknown': [1]}},
            id='wrong',
        ),
        pytest.param(
            {'x': {'priority': 0, 'lifetime': 10**30, 'lastseen': '0001-01-01T00:00:00+23:59'}},
            id='extreme',
        ),
        pytest.param({'x': {}}, id='empty'),
    ],
)
async def test_broken_records_do_not_break_operators(town, sandbox, cluster, check, status):
    crd = build_peering_crd()
    crd['spec']['versions'][0]['schema']['openAPIV3Schema'] = {
        'type': 'object',
        'x-kubernetes-preserve-unknown-fields': True,
    }
    await sandbox.apply(crd)
    await sandbox.create({**build_peering(), 'status': status})
    operator = await town.run('one', priority=1)
    await check('one')
    await asyncio.sleep(100)
    await check('one')
    await operator.stop()


@pytest.mark.guarantee('NEW-216')
async def test_records_of_the_dead_are_removed_and_never_matter(town, cluster, peering, check):
    await town.write({'dead': build_record(100, age=61), 'dying': build_record(100, age=40)})
    await town.run('one', priority=1)
    await town.wait_until_recorded('one', 'dying')
    await check()
    await town.wait_until_recorded('one')
    await check('one')
    await town.write({'dead-later': build_record(100, lifetime=10, age=11)})
    await town.wait_until_recorded('one')


@pytest.mark.guarantee('NEW-216', 'PEE-022')
@pytest.mark.parametrize('skew', [pytest.param(1000, id='behind'), pytest.param(-1000, id='ahead')])
async def test_operators_with_wrong_clocks_are_alive_while_they_renew_their_records(
    town, cluster, peering, check, skew
):
    await town.run('one', priority=1)
    await town.wait_until_recorded('one')
    await town.write({'high': build_record(5, lifetime=30, age=skew)})
    for _ in range(5):
        await asyncio.sleep(20)
        await town.write({'high': build_record(5, lifetime=30, age=skew)})
    await asyncio.sleep(25)
    await check()
    await asyncio.sleep(10)
    await check('one')


async def test_removed_records_are_restored_by_those_alive(town, sandbox, cluster, peering, check):
    await town.run('one', priority=5)
    await town.run('two', priority=1)
    await town.wait_until_recorded('one', 'two')
    await asyncio.sleep(5)
    sandbox.requests.clear()
    await town.write({'one': None})
    await town.wait_until_recorded('one', 'two', timeout=5)
    await asyncio.sleep(5)  # the other one could resume for a moment
    await check('one')

    assert len(get_writes(sandbox)) == 1


@pytest.mark.guarantee('NEW-209', 'NEW-185', 'NEW-216')
async def test_the_record_is_removed_with_renewed_credentials_if_needed(
    town, sandbox, cluster, peering
):
    registry, logins = kopf.OperatorRegistry(), []

    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        logins.append('login')
        await asyncio.sleep(3)
        return kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token, priority=len(logins))

    operator = await town.run('one', registry=registry, vault=vaults.Vault())
    await town.wait_until_recorded('one')
    fault = sandbox.faults.inject(verb='patch', resource='clusterkopfpeerings', code=401, times=1)
    await operator.stop()

    assert fault.hits == 1
    assert len(logins) == 2
    assert await town.get_records() == {}


async def test_the_record_is_removed_after_all_handlers_and_before_the_cleanup_handlers(
    town, cluster, peering
):
    registry, steps, settings = kopf.OperatorRegistry(), [], kopf.OperatorSettings()
    settings.queueing.exit_timeout = 100
    settings.peering.lifetime = 15

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        steps.append('begun')
        await asyncio.sleep(50)
        steps.append(sorted(await town.get_records()))

    @kopf.daemon(
        'kopfexamples', registry=registry, cancellation_backoff=50, cancellation_timeout=10
    )
    async def daemon_fn(stopped, **_):
        await stopped.wait()
        await asyncio.sleep(20)
        steps.append(sorted(await town.get_records()))

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        steps.append(sorted(await town.get_records()))

    operator = await town.run('one', registry=registry, settings=settings)
    other = await town.run('other', priority=-1)
    await cluster.create()
    await wait_until(lambda: steps)
    await operator.stop()
    await other.stop()

    assert steps == ['begun', ['one', 'other'], ['one', 'other'], ['other']]


@pytest.mark.parametrize(
    'trouble',
    [
        pytest.param({'code': 403}, id='forbidden'),
        pytest.param({'code': 503}, id='unavailable'),
        pytest.param({'stall': True}, id='silent'),
    ],
)
async def test_operators_go_on_and_stop_if_they_cannot_write_their_records(
    town, sandbox, cluster, peering, check, logs, trouble
):
    fault = sandbox.faults.inject(verb='patch', resource='clusterkopfpeerings', **trouble)
    operator = await town.run('one', priority=1)
    await check('one')
    await town.write({'high': build_record(5, lifetime=30)})
    await asyncio.sleep(10)
    await check()
    await asyncio.sleep(30)
    await check('one')
    since = get_time()
    await operator.stop()
    fault.lift()

    assert get_time() - since < 15
    assert [line for line in logs(logging.WARNING) if 'keep-alive' in line]
    assert len(get_writes(sandbox)) < 30
