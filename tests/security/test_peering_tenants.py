"""
Tenants with rights over the peering of their own namespace: what they can do to an operator of many
namespaces.

They write anything there. The operator pauses in that namespace at most, for ten minutes at most
unless they repeat it, and says who has caused it. Before, one record paused the operator in all
namespaces, for years.
"""

import asyncio
import contextlib
import datetime
import logging
import pathlib
import socket

import aiohttp
import pytest
import yaml
from prometheus_client import parser

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

ROOT = pathlib.Path(__file__).parents[2]
OURS, THEIRS = 'ours', 'theirs'
GREEDY = {'priority': 10**9, 'lifetime': 10**9}


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(
        apply=[ROOT / 'examples/crd.yaml', ROOT / 'peering.yaml']
    ) as sandbox:
        for namespace in (OURS, THEIRS):
            await sandbox.create(
                {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': namespace}}
            )
        yield sandbox


@pytest.fixture
async def peering(sandbox):
    """
    The tenant's own peering object: ``await peering(record)`` puts a record there, or removes it.
    """
    await sandbox.create(
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfPeering',
            'metadata': {'name': 'default', 'namespace': THEIRS},
        }
    )

    async def write(record, identity='tenant'):
        await sandbox.patch(
            'kopfpeerings', 'default', {'status': {identity: record}}, namespace=THEIRS
        )

    return write


class Operator:
    """
    An operator of several namespaces that tells which objects it has handled, with daemons beside
    them.
    """

    def __init__(self, sandbox):
        self.sandbox, self.handled, self.daemons, self.number = sandbox, set(), set(), 0
        self.registry = kopf.OperatorRegistry()
        self.origin = f'http://127.0.0.1:{find_free_port()}'
        kopf.on.create('kopfexamples', registry=self.registry)(self.create_fn)
        kopf.daemon('kopfexamples', registry=self.registry)(self.daemon_fn)
        kopf.index('kopfexamples', id='names', registry=self.registry)(self.index_fn)

    async def create_fn(self, namespace, name, **_):
        self.handled.add((namespace, name))

    async def daemon_fn(self, namespace, name, stopped, **_):
        self.daemons.add((namespace, name))
        await stopped.wait()
        self.daemons.discard((namespace, name))

    async def index_fn(self, name, **_):
        return {name: None}

    @contextlib.asynccontextmanager
    async def running(self, **options):
        stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
        info = kopf.ConnectionInfo(
            server=self.sandbox.url, token=self.sandbox.token, ca_path=str(self.sandbox.ca_path)
        )
        task = asyncio.create_task(
            kopf.operator(
                registry=self.registry,
                vault=vaults.Vault({'sandbox': info}),
                stop_flag=stop_flag,
                ready_flag=ready_flag,
                identity='operator',
                liveness_endpoint=f'{self.origin}/healthz',
                **{'namespaces': [OURS, THEIRS], **options},
            ),
            name='operator',
        )
        try:
            await asyncio.wait_for(ready_flag.wait(), 60)
            yield self
        finally:
            stop_flag.set()
            await task

    async def serves(self, namespace):
        """Return whether a new object of the namespace is handled, in a minute."""
        self.number += 1
        name = f'obj{self.number}'
        await self.sandbox.create(
            {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'metadata': {'name': name, 'namespace': namespace},
                'spec': {},
            }
        )
        try:
            await wait_until(lambda: (namespace, name) in self.handled, timeout=60)
        except TimeoutError:
            return False
        return True

    async def fetch(self, path):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f'{self.origin}{path}') as response,
        ):
            return response.status, await response.text()

    async def shows(self, name, value, **labels):
        """Wait until the metric has this value: it is not collected anew right after it was."""
        for _ in range(1000):
            if await self.scrape(name, **labels) == value:
                return True
        return False

    async def scrape(self, name, **labels):
        _, text = await self.fetch('/metrics')
        return sum(
            sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@pytest.fixture
async def operator(sandbox, peering):
    async with Operator(sandbox).running() as operator:
        yield operator


@pytest.fixture
def warnings(caplog):
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and 'pauses' in record.getMessage()
    ]


def find_free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


async def wait_until(condition, timeout=600.0):
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.guarantee('FND-054')
async def test_only_the_namespace_of_the_peering_is_paused(operator, peering):
    assert await operator.serves(OURS)
    assert await operator.serves(THEIRS)
    await wait_until(lambda: len(operator.daemons) == 2)

    await peering(GREEDY)
    await asyncio.sleep(1)

    assert await operator.serves(OURS)
    assert not await operator.serves(THEIRS)
    assert {namespace for namespace, _ in operator.daemons} == {OURS}


@pytest.mark.guarantee('FND-054')
async def test_tenant_that_was_there_first_does_not_hold_the_start_of_the_operator(
    sandbox, peering, virtual_time
):
    await peering(GREEDY)
    async with Operator(sandbox).running() as operator:
        assert await operator.serves(OURS)
        assert not await operator.serves(THEIRS)

        code, text = await operator.fetch('/readyz')
        assert code == 200, text


@pytest.mark.guarantee('FND-054')
async def test_peering_that_cannot_be_seen_holds_only_its_namespace(sandbox, peering):
    sandbox.faults.inject(verb='list', path=f'*/namespaces/{THEIRS}/kopfpeerings*', code=500)
    async with Operator(sandbox).running() as operator:
        assert await operator.serves(OURS)
        assert not await operator.serves(THEIRS)


@pytest.mark.guarantee('FND-054')
@pytest.mark.parametrize(
    'lastseen',
    [
        pytest.param(None, id='no-time'),
        pytest.param('9999-12-31T23:59:59+00:00', id='far-future'),
        pytest.param('2999-01-01T00:00:00', id='future-without-offset'),
    ],
)
@pytest.mark.parametrize(
    'numbers',
    [
        pytest.param(GREEDY, id='billions'),
        pytest.param({'priority': 10**18, 'lifetime': 10**18}, id='beyond-exact-numbers'),
        pytest.param({'priority': 1e300, 'lifetime': 1e300}, id='beyond-integers'),
        pytest.param({'priority': '9' * 30, 'lifetime': '9' * 30}, id='texts'),
    ],
)
async def test_one_record_pauses_for_ten_minutes_at_most(
    sandbox, operator, peering, numbers, lastseen
):
    await peering({**numbers, 'lastseen': lastseen})
    await asyncio.sleep(1)
    assert not await operator.serves(THEIRS)

    await asyncio.sleep(541)

    assert await operator.serves(THEIRS)
    body = await sandbox.get('kopfpeerings', 'default', namespace=THEIRS)
    assert set(body['status']) == {'operator'}


@pytest.mark.guarantee('FND-054')
@pytest.mark.parametrize(
    'record',
    [
        pytest.param({'priority': 5, 'lifetime': -1}, id='negative-lifetime'),
        pytest.param({'priority': True, 'lifetime': 60}, id='boolean'),
        pytest.param({'priority': 'Infinity', 'lifetime': 60}, id='infinity'),
        pytest.param({'priority': [10**9], 'lifetime': 60}, id='list'),
        pytest.param({'priority': -(10**30), 'lifetime': 60}, id='far-below'),
        pytest.param('text', id='no-record'),
    ],
)
async def test_senseless_records_pause_nothing_of_an_operator_with_a_priority(
    sandbox, peering, record
):
    async with Operator(sandbox).running(priority=1) as operator:
        await peering(record)
        await asyncio.sleep(1)

        assert await operator.serves(THEIRS)


@pytest.mark.guarantee('FND-054')
async def test_own_lifetime_beyond_the_limit_does_not_make_the_operator_write_more(
    sandbox, peering
):
    settings = kopf.OperatorSettings()
    settings.peering.lifetime, settings.peering.priority = 10**9, 10**18
    async with Operator(sandbox).running(settings=settings):
        await asyncio.sleep(1000)
        written = [
            asked
            for asked in sandbox.requests.select(resource='kopfpeerings')
            if asked.verb == 'patch'
        ]
        body = await sandbox.get('kopfpeerings', 'default', namespace=THEIRS)

    assert 2 <= len(written) <= 4
    assert body['status']['operator']['lifetime'] == 600


@pytest.mark.guarantee('FND-054')
async def test_pause_is_told_with_its_causes_and_its_end(operator, peering, warnings):
    assert await operator.serves(THEIRS)
    await peering({'priority': 5, 'lifetime': 300})
    await wait_until(warnings)

    (warning,) = warnings()
    assert "in the peering 'default' in the namespace 'theirs': tenant (priority 5)" in warning
    told = datetime.datetime.fromisoformat(warning.partition('until ')[2].partition(',')[0])
    expected = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=300)
    # The clock of the operator goes on in virtual time.
    assert abs(told - expected) < datetime.timedelta(seconds=120)


@pytest.mark.guarantee('FND-054')
async def test_pause_is_counted_and_shown_by_the_readiness(operator, peering, warnings):
    assert await operator.serves(THEIRS)
    assert await operator.scrape('kopf_peering_paused') == 0

    await peering({'priority': 5, 'lifetime': 300})
    await wait_until(warnings)

    _, text = await operator.fetch('/readyz')
    assert (
        "[+] the peering 'default' in the namespace 'theirs': paused by tenant (priority 5) until 20"
        in text
    )
    assert await operator.shows('kopf_peering_paused', 1, scope='namespace')
    assert await operator.shows(
        'kopf_peering_pauses_total', 1, scope='namespace', reason='higher-priority'
    )

    await peering(None)
    assert await operator.serves(THEIRS)
    _, text = await operator.fetch('/readyz')
    assert 'paused' not in text
    assert await operator.shows('kopf_peering_paused', 0)


@pytest.mark.guarantee('FND-054')
async def test_crowds_of_records_and_long_names_do_not_flood_the_logs(
    operator, peering, sandbox, warnings
):
    names = [f'tenant{number}' for number in range(100)]
    hostile = 'x' * 5000 + '\n[ERROR] all is lost'
    status = {name: {'priority': 5, 'message': 'm' * 5000} for name in [*names, hostile]}
    await sandbox.patch('kopfpeerings', 'default', {'status': status}, namespace=THEIRS)
    await wait_until(warnings)

    assert all(len(warning) < 3000 and '\n' not in warning for warning in warnings())
    assert any('and 96 more' in warning for warning in warnings())


@pytest.mark.guarantee('FND-054')
async def test_edits_of_records_do_not_flood_the_logs(operator, peering, caplog, warnings):
    """
    Before, there were two lines for each pair of the edits. The last pause is always told of,
    though later.
    """
    for number in range(50):
        await peering({'priority': 5, 'lifetime': 300}, f'tenant{number}')
        await asyncio.sleep(1)
        await peering(None, f'tenant{number}')
        await asyncio.sleep(1)
    lines = [text for text in caplog.messages if 'pauses' in text or 'no one left to pause' in text]
    assert 2 <= len(lines) <= 10

    for _ in range(6):
        await peering({'priority': 5, 'lifetime': 600}, 'last')
        await asyncio.sleep(110)

    assert 'last (priority 5)' in warnings()[-1]


@pytest.mark.guarantee('FND-054')
async def test_operator_pauses_as_a_whole_only_if_all_its_namespaces_do(sandbox, peering):
    await sandbox.apply(
        {
            'apiVersion': 'apiextensions.k8s.io/v1',
            'kind': 'CustomResourceDefinition',
            'metadata': {'name': 'wideexamples.kopf.dev'},
            'spec': {
                'group': 'kopf.dev',
                'scope': 'Cluster',
                'names': {
                    'kind': 'WideExample',
                    'plural': 'wideexamples',
                    'singular': 'wideexample',
                },
                'versions': [
                    {
                        'name': 'v1',
                        'served': True,
                        'storage': True,
                        'schema': {
                            'openAPIV3Schema': {
                                'type': 'object',
                                'x-kubernetes-preserve-unknown-fields': True,
                            }
                        },
                    }
                ],
            },
        }
    )
    await sandbox.create(
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfPeering',
            'metadata': {'name': 'default', 'namespace': OURS},
        }
    )
    seen, operator = set(), Operator(sandbox)
    kopf.on.event('wideexamples', registry=operator.registry)(lambda name, **_: seen.add(name))

    async with operator.running():
        await peering(GREEDY)
        await asyncio.sleep(1)
        await sandbox.create(
            {'apiVersion': 'kopf.dev/v1', 'kind': 'WideExample', 'metadata': {'name': 'one'}}
        )
        await wait_until(lambda: 'one' in seen)

        await sandbox.patch(
            'kopfpeerings', 'default', {'status': {'other': {'priority': 5}}}, namespace=OURS
        )
        await asyncio.sleep(1)
        await sandbox.create(
            {'apiVersion': 'kopf.dev/v1', 'kind': 'WideExample', 'metadata': {'name': 'two'}}
        )
        await asyncio.sleep(10)
        assert 'two' not in seen

        await sandbox.patch('kopfpeerings', 'default', {'status': {'other': None}}, namespace=OURS)
        await wait_until(lambda: 'two' in seen)


@pytest.mark.guarantee('FND-054')
def test_roles_of_the_deployment_grant_no_rights_over_the_peerings_of_others():
    rules = [
        rule
        for path in sorted((ROOT / 'deploy').glob('*.yaml'))
        for document in yaml.safe_load_all(path.read_text())
        for rule in document.get('rules', ())
        if any('peering' in resource for resource in rule['resources'])
    ]

    assert len(rules) == 3
    assert all(rule['resourceNames'] == ['example-operator'] for rule in rules)
