"""
Workloads among other things: webhooks, operators, restarts, real time, and the ends of sandboxes.
"""

import asyncio
import datetime
import subprocess
import sys

import pytest
import workload_samples as samples

import kopf
import kopf.testing
from kopf._sandbox.workloads import running

HOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hook}
webhooks:
  - name: hook.kopf.dev
    sideEffects: None
    admissionReviewVersions: [v1]
    clientConfig: {service: {namespace: default, name: hook}}
    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
"""


@pytest.mark.guarantee('SBX-002')
def test_without_workloads_nothing_of_them_is_loaded():
    program = (
        'import sys, kopf.testing\n'
        'with kopf.testing.Sandbox(tls=False): pass\n'
        'print([name for name in sys.modules if name.startswith("kopf._sandbox.workloads")])'
    )

    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)

    assert done.stdout == '[]\n', done.stderr


@pytest.mark.guarantee('SBX-011')
async def test_webhooks_see_the_pods_of_controllers(virtual_time):
    users = []

    async def label(path, review):
        users.append(review['request']['userInfo']['username'])
        patch = 'W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscy9zZWVuIiwidmFsdWUiOiJ5ZXMifV0='
        response = {'uid': review['request']['uid'], 'allowed': True}
        return {**review, 'response': {**response, 'patchType': 'JSONPatch', 'patch': patch}}

    async with kopf.testing.Sandbox(tls=False, workloads=True, apply=[HOOK]) as sandbox:
        await sandbox.add_service('default', 'hook', label)
        await sandbox.create(samples.build_deployment())
        await sandbox.wait('deployments', 'web', samples.is_rolled_out(2))

        assert len(await sandbox.list('pods', labels='seen=yes')) == 2

    assert set(users) == {'system:serviceaccount:kube-system:replicaset-controller'}


@pytest.mark.guarantee('SBX-011')
def test_operators_wait_for_readiness(simulation):
    registry = kopf.OperatorRegistry()
    ready = []

    @kopf.on.field('deployments', field='status.readyReplicas', registry=registry)
    async def notice(new, **_):
        ready.append(new)

    simulation.run(registry=registry)
    simulation.create(samples.build_deployment())
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))
    simulation.sleep(5)

    assert ready[-1] == 2


@pytest.mark.guarantee('SBX-011')
def test_pods_go_on_running_after_a_restart(tmp_path):
    with kopf.testing.Simulation(workloads=True, save=tmp_path / 'saved') as simulation:
        simulation.create(samples.build_deployment())
        simulation.wait('deployments', 'web', samples.is_rolled_out(2))
        before = {pod['metadata']['uid']: pod['status'] for pod in simulation.list('pods')}

    with kopf.testing.Simulation(workloads=True, save=tmp_path / 'saved') as simulation:
        simulation.sleep(10)
        after = {pod['metadata']['uid']: pod['status'] for pod in simulation.list('pods')}
        assert after == before
        assert len(simulation.list('nodes')) == 1

        simulation.patch('deployments', 'web', {'spec': {'replicas': 3}})
        simulation.wait('deployments', 'web', samples.is_rolled_out(3))
        addresses = {pod['status']['podIP'] for pod in simulation.list('pods')}
        assert len(addresses) == 3


@pytest.mark.guarantee('SBX-011')
def test_idle_workloads_write_nothing(simulation):
    simulation.create(samples.build_service())
    simulation.create(samples.build_deployment())
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))
    simulation.sleep(5)
    before = simulation.get('deployments', 'web')['metadata']['resourceVersion']
    made = simulation.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'one'}})
    simulation.sleep(24 * 60 * 60)
    last = simulation.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'two'}})

    after = simulation.get('deployments', 'web')['metadata']['resourceVersion']
    versions = [int(body['metadata']['resourceVersion']) for body in (made, last)]
    assert after == before
    assert versions[1] == versions[0] + 1


@pytest.mark.guarantee('SBX-011')
def test_workloads_run_in_real_time_too():
    options = kopf.testing.Workloads(ready_after=0.01, completed_after=0.01, stopped_after=0)
    with kopf.testing.Sandbox(tls=False, workloads=options) as sandbox:
        sandbox.create(samples.build_deployment())
        sandbox.wait('deployments', 'web', samples.is_rolled_out(2))
        sandbox.fail_pod(sandbox.list('pods')[0]['metadata']['name'])
        with sandbox.break_pods('unready'):
            sandbox.wait('deployments', 'web', lambda body: 'readyReplicas' not in body['status'])
        sandbox.wait('deployments', 'web', samples.is_rolled_out(2))
        sandbox.delete('deployments', 'web')
        sandbox.wait('deployments', 'web', lambda body: body is None)


@pytest.mark.guarantee('SBX-011')
async def test_nothing_is_left_of_workloads_whenever_they_end(virtual_time):
    for delay in (0, 0.001, 0.5, 1.0, 1.7):
        async with kopf.testing.Sandbox(tls=False, workloads=True) as sandbox:
            await sandbox.create(samples.build_deployment())
            await asyncio.sleep(delay)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert 'sandbox workloads' not in names


@pytest.mark.guarantee('SBX-011')
async def test_times_in_objects_follow_the_clock_of_the_loop(virtual_time):
    clock = running.LoopClock()
    begun = clock()
    await asyncio.sleep(3600)

    assert clock() - begun == datetime.timedelta(hours=1)
