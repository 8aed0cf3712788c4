"""
On a real control plane, in real time: operators behind a fault proxy are killed by SIGKILL, and
come to the same end.

``KOPF_TESTS_CHAOS=full`` is for killing them at every write, and for more seeds, as `make chaos`
does.
"""

import asyncio
import json
import os
import pathlib
import secrets
import sys
import time

import aiohttp
import fault_proxies
import pytest
from chaotic_operators import build_crd

from kopf._kits.chaos import plans, states

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(1500)]

IS_FULL = os.environ.get('KOPF_TESTS_CHAOS') == 'full'
SHORT = (plans.Perturbation.CRASHES, plans.Perturbation.STALENESS, plans.Perturbation.FAULTS)
PERTURBATIONS = list(plans.Perturbation) if IS_FULL else SHORT
HANDLERS = pathlib.Path(__file__).with_name('clustered_operator.py')
CRD = build_crd('chaosexamples', 'ChaosExample')
CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
PATIENCE = 60.0
STEP = 1.5  # seconds between the steps of the scenario, for the operator to be in the middle of anything


class Cluster:
    """The control plane as its administrator changes it."""

    def __init__(self, info, session, namespace):
        self.info, self.session, self.namespace = info, session, namespace

    async def ask(self, method, path, body=None, kind='application/json'):
        async with self.session.request(
            method, path, json=body, headers={'Content-Type': kind}
        ) as response:
            if response.status == 404:
                return None
            response.raise_for_status()
            return await response.json()

    def path(self, name='', plural='chaosexamples'):
        group = '/api/v1' if plural == 'configmaps' else '/apis/kopf.dev/v1'
        return f'{group}/namespaces/{self.namespace}/{plural}' + (f'/{name}' if name else '')

    async def create(self, name, **spec):
        body = {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'ChaosExample',
            'metadata': {'name': name},
            'spec': spec,
        }
        await self.ask('POST', self.path(), body)

    async def edit(self, name, **spec):
        await self.ask('PATCH', self.path(name), {'spec': spec}, 'application/merge-patch+json')

    async def delete(self, name, plural='chaosexamples'):
        await self.ask('DELETE', self.path(name, plural))

    async def read_state(self):
        bodies = [
            {**body, 'kind': 'ChaosExample'}
            for body in (await self.ask('GET', self.path()))['items']
        ]
        for body in bodies:
            del body['metadata']['namespace']
        return states.build_state(bodies, states.Blindness())


class Operator:
    """The process, which can be killed at any moment."""

    def __init__(self, cluster, directory):
        self.cluster, self.directory = cluster, directory
        self.process, self.starts = None, 0

    async def start(self, url):
        kubeconfig = self.directory / 'kubeconfig'
        kubeconfig.write_text(
            json.dumps(
                {
                    'apiVersion': 'v1',
                    'kind': 'Config',
                    'current-context': 'c',
                    'clusters': [{'name': 'c', 'cluster': {'server': url}}],
                    'users': [{'name': 'c', 'user': {}}],
                    'contexts': [{'name': 'c', 'context': {'cluster': 'c', 'user': 'c'}}],
                }
            )
        )
        self.starts += 1
        with (self.directory / 'operator.log').open('ab') as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                '-m',
                'kopf',
                'run',
                '--standalone',
                '-n',
                self.cluster.namespace,
                HANDLERS,
                stdout=log,
                stderr=log,
                env={**os.environ, 'KUBECONFIG': str(kubeconfig)},
            )

    def kill(self):
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def stop(self):
        self.kill()
        if self.process is not None:
            await self.process.wait()


async def keep_running(operator, proxy):
    """Start the operator again whenever it is killed or ends."""
    while True:
        await operator.start(proxy.url)
        await operator.process.wait()
        await asyncio.sleep(
            0.0 if proxy.crash is None else proxy.crash.downtime * fault_proxies.PACE
        )
        proxy.revive()


async def do_scenario(cluster):
    configmap = {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': 'map', 'labels': {'app': 'one'}},
    }
    await cluster.create('one', size=1, colour='red', items={'a': 1, 'b': 2})
    await cluster.create('two', size=1)
    await asyncio.sleep(STEP)
    await cluster.edit('one', size=2, colour='blue', items={'b': 3, 'c': 4})
    await cluster.ask('POST', cluster.path(plural='configmaps'), configmap)
    await cluster.delete('two')
    await asyncio.sleep(STEP)
    await cluster.edit('one', size=3)


def is_settled(state):
    """Tell if all that is to be done is done: the very end is known."""
    (body,) = state.get('ChaosExample one', [{}])
    status = body.get('status', {})
    return (
        set(state) == {'ChaosExample one'}
        and status.get('seen') == status.get('size') == 3
        and status.get('names') == ['map']
        and not [
            name
            for name in body['metadata'].get('annotations', {})
            if name.startswith('kopf.') and 'last' not in name
        ]
    )


async def wait_for_end(cluster, expected):
    """Wait until the state is as expected, and stays so; return the last one otherwise."""
    deadline = time.monotonic() + PATIENCE
    while True:
        state = await cluster.read_state()
        if is_settled(state) if expected is None else state == expected:
            await asyncio.sleep(1)
            if await cluster.read_state() == state:
                return state
        if time.monotonic() > deadline:
            return state
        await asyncio.sleep(0.2)


async def live(info, plan, directory, expected=None):
    """
    Do the scenario in a new namespace with all that is planned; return the end, and the proxy with
    its story.
    """
    context = await asyncio.to_thread(info.as_ssl_context)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(
        info.server, connector=connector, headers=info.as_http_headers()
    ) as session:
        cluster = Cluster(info, session, f'chaos-{secrets.token_hex(4)}')
        await cluster.ask('POST', '/api/v1/namespaces', {'metadata': {'name': cluster.namespace}})
        operator = Operator(cluster, directory)
        async with fault_proxies.FaultProxy(
            info.server, info.as_http_headers(), context, plan, operator.kill
        ) as proxy:
            supervisor = asyncio.create_task(keep_running(operator, proxy), name='supervisor')
            try:
                await do_scenario(cluster)
                await asyncio.sleep(STEP)
                proxy.lift()
                state = await wait_for_end(cluster, expected)
            finally:
                supervisor.cancel()
                await asyncio.wait({supervisor})
                await operator.stop()
        await release(cluster)
        return state, proxy


async def release(cluster):
    """Let everything be deleted, though there is no operator any more to let it go."""
    for body in (await cluster.ask('GET', cluster.path()))['items']:
        await cluster.ask(
            'PATCH',
            cluster.path(body['metadata']['name']),
            {'metadata': {'finalizers': None}},
            'application/merge-patch+json',
        )
    await cluster.ask('DELETE', f'/api/v1/namespaces/{cluster.namespace}')


@pytest.fixture(scope='module')
def info(controlplane):
    """How to get to the cluster, with the resource of the operator defined there."""
    info = controlplane.login()
    asyncio.run(define(info))
    return info


async def define(info):
    connector = aiohttp.TCPConnector(ssl=await asyncio.to_thread(info.as_ssl_context))
    async with aiohttp.ClientSession(
        info.server, connector=connector, headers=info.as_http_headers()
    ) as session:
        async with session.post(CRDS, json=CRD) as response:
            assert response.status in (201, 409)
        async with asyncio.timeout(PATIENCE):
            while (await session.get('/apis/kopf.dev/v1/chaosexamples')).status != 200:
                await asyncio.sleep(0.1)


@pytest.fixture(scope='module')
def peace(info, tmp_path_factory):
    """The end with nothing wrong, and how much has happened until then."""
    state, proxy = asyncio.run(live(info, plans.PEACE, tmp_path_factory.mktemp('peace')))
    assert is_settled(state), state
    return state, plans.Scale(proxy.writes, proxy.writes)


def choose_seeds(perturbation, scale):
    if perturbation is plans.Perturbation.CRASHES:
        every = range(plans.count_crashes(scale))
        return every if IS_FULL else [3]
    return range(8 if IS_FULL else 1)


@pytest.mark.parametrize('perturbation', PERTURBATIONS)
async def test_operator_comes_to_the_same_end(info, peace, tmp_path, outcomes, perturbation):
    expected, scale = peace
    diverged, hits = {}, {}
    seeds = choose_seeds(perturbation, scale)
    for seed in seeds:
        plan = plans.build_plan(seed, perturbation, scale)
        state, proxy = await live(info, plan, tmp_path, expected)
        # The last ones can be late.
        is_possible = all(crash.write <= proxy.troubled_writes for crash in plan.crashes)
        hits[seed] = proxy.hits or not is_possible
        differences = states.compare_states(expected, state)
        if differences:
            diverged[seed] = [str(plan), *differences, *proxy.story]
    outcomes.record(
        'real control plane', perturbation.value, f'{len(seeds) - len(diverged)} of {len(seeds)}'
    )

    assert diverged == {}
    # Others can come too late to happen.
    if perturbation in (
        plans.Perturbation.CRASHES,
        plans.Perturbation.FAULTS,
    ):
        assert all(hits.values())
        assert sum(isinstance(hit, bool) for hit in hits.values()) <= len(hits) // 10
