"""
Pods in a sandbox with workloads: their lives on the nodes, and the services and budgets over them.
"""

import aiohttp
import pytest
import workload_samples as samples

import kopf.testing
from kopf._sandbox.registry import evictions


def is_ready(body):
    return samples.get_condition(body or {}, 'Ready').get('status') == 'True'


def get_state(pod, group='containerStatuses', index=0):
    [(name, details)] = pod['status'][group][index]['state'].items()
    return name, details.get('reason', '')


@pytest.mark.guarantee('SBX-008')
def test_pod_becomes_ready_on_a_node(simulation):
    simulation.create(samples.build_pod())
    simulation.sleep(0.5)
    starting = simulation.get('pods', 'one')
    assert starting['status']['phase'] == 'Pending'
    assert get_state(starting) == ('waiting', 'ContainerCreating')

    pod = simulation.wait('pods', 'one', is_ready)

    assert simulation.elapsed == 1.0
    assert pod['spec']['nodeName'] == 'sandbox-1'
    status = pod['status']
    assert status['phase'] == 'Running'
    assert status['podIP'] == status['podIPs'][0]['ip']
    assert (
        status['hostIP']
        == simulation.get('nodes', 'sandbox-1')['status']['addresses'][0]['address']
    )
    assert status['startTime'] <= status['containerStatuses'][0]['state']['running']['startedAt']
    types = [item['type'] for item in status['conditions'] if item['status'] == 'True']
    assert sorted(types) == [
        'ContainersReady',
        'Initialized',
        'PodReadyToStartContainers',
        'PodScheduled',
        'Ready',
    ]


@pytest.mark.guarantee('SBX-008')
def test_init_containers_run_one_after_another_before_the_others(simulation):
    inits = [{'name': name, 'image': 'init:1'} for name in ('first', 'second')]
    simulation.create(samples.build_pod(initContainers=inits))
    simulation.sleep(1.5)
    middle = simulation.get('pods', 'one')
    assert get_state(middle, 'initContainerStatuses', 0) == ('terminated', 'Completed')
    assert get_state(middle, 'initContainerStatuses', 1) == ('waiting', 'PodInitializing')
    assert samples.get_condition(middle, 'Initialized')['reason'] == 'ContainersNotInitialized'

    simulation.wait('pods', 'one', is_ready)

    assert simulation.elapsed == 3.0


@pytest.mark.guarantee('SBX-008')
def test_sidecars_run_beside_the_other_containers(simulation):
    inits = [{'name': 'sidecar', 'image': 'init:1', 'restartPolicy': 'Always'}]
    simulation.create(samples.build_pod(initContainers=inits))

    pod = simulation.wait('pods', 'one', is_ready)

    assert get_state(pod, 'initContainerStatuses')[0] == 'running'


@pytest.mark.guarantee('SBX-008')
def test_pod_waits_for_its_readiness_gates(simulation):
    gate = {'conditionType': 'example.com/gate'}
    simulation.create(samples.build_pod(readinessGates=[gate]))
    simulation.sleep(10)
    waiting = simulation.get('pods', 'one')
    assert samples.get_condition(waiting, 'ContainersReady')['status'] == 'True'
    assert samples.get_condition(waiting, 'Ready')['reason'] == 'ReadinessGatesNotReady'

    opened = {'type': 'example.com/gate', 'status': 'True'}
    patch = {'status': {'conditions': [opened]}}
    simulation.patch('pods', 'one', patch, type='strategic', subresource='status')

    pod = simulation.wait('pods', 'one', is_ready)
    assert samples.get_condition(pod, 'example.com/gate')['status'] == 'True'


@pytest.mark.guarantee('SBX-008')
@pytest.mark.parametrize(
    'policy, code, phase',
    [
        pytest.param('Never', '0', 'Succeeded', id='success'),
        pytest.param('Never', '7', 'Failed', id='failure'),
        pytest.param('OnFailure', '0', 'Succeeded', id='success-on-failure'),
        pytest.param('OnFailure', '7', 'Running', id='restarts'),
    ],
)
def test_ends_of_pods_follow_their_restart_policies(simulation, policy, code, phase):
    body = samples.build_pod(restartPolicy=policy)
    body['metadata']['annotations'] = {'sandbox.kopf.dev/exit-code': code}
    simulation.create(body)

    simulation.sleep(10)

    assert simulation.get('pods', 'one')['status']['phase'] == phase


@pytest.mark.guarantee('SBX-008')
def test_deleted_pod_stays_while_its_containers_stop(simulation):
    simulation.create(samples.build_pod())
    simulation.wait('pods', 'one', is_ready)

    simulation.delete('pods', 'one')
    assert simulation.get('pods', 'one')['metadata']['deletionGracePeriodSeconds'] == 30
    simulation.wait('pods', 'one', lambda body: body is None)

    assert simulation.elapsed == 1.5


@pytest.mark.guarantee('SBX-008')
def test_pod_with_no_grace_period_is_deleted_at_once(simulation):
    simulation.create(samples.build_pod())
    simulation.wait('pods', 'one', is_ready)

    simulation.delete('pods', 'one', grace_period=0)

    assert simulation.list('pods') == []


@pytest.mark.guarantee('SBX-008')
def test_annotations_of_a_pod_choose_its_times(simulation):
    body = samples.build_pod()
    body['metadata']['annotations'] = {'sandbox.kopf.dev/ready-after': '40'}
    simulation.create(body)

    simulation.wait('pods', 'one', is_ready)

    assert simulation.elapsed == 40.0


@pytest.mark.guarantee('SBX-008')
def test_pods_stay_pending_if_no_node_fits(simulation):
    simulation.create(samples.build_pod(nodeSelector={'disk': 'fast'}))
    simulation.sleep(10)
    pending = simulation.get('pods', 'one')
    assert pending['status']['phase'] == 'Pending'
    assert samples.get_condition(pending, 'PodScheduled')['reason'] == 'Unschedulable'

    simulation.patch('nodes', 'sandbox-1', {'metadata': {'labels': {'disk': 'fast'}}})

    simulation.wait('pods', 'one', is_ready)


@pytest.mark.guarantee('SBX-008')
def test_cordoned_nodes_get_no_new_pods():
    with kopf.testing.Simulation(workloads=kopf.testing.Workloads(nodes=2)) as simulation:
        simulation.patch('nodes', 'sandbox-1', {'spec': {'unschedulable': True}})
        simulation.create(samples.build_deployment(replicas=4))
        simulation.wait('deployments', 'web', samples.is_rolled_out(4))

        assert {pod['spec']['nodeName'] for pod in simulation.list('pods')} == {'sandbox-2'}


@pytest.mark.guarantee('SBX-009')
def test_failed_pod_is_restarted_and_then_backs_off(simulation):
    simulation.create(samples.build_pod())
    simulation.wait('pods', 'one', is_ready)

    simulation.fail_pod('one', exit_code=137, reason='OOMKilled')
    restarted = simulation.wait(
        'pods', 'one', lambda body: body['status']['containerStatuses'][0]['restartCount'] == 1
    )
    simulation.wait('pods', 'one', is_ready)
    simulation.fail_pod('one')
    simulation.sleep(1)

    [status] = restarted['status']['containerStatuses']
    assert status['lastState']['terminated']['reason'] == 'OOMKilled'
    assert status['lastState']['terminated']['exitCode'] == 137
    failed = simulation.get('pods', 'one')
    assert get_state(failed) == ('waiting', 'CrashLoopBackOff')
    since = simulation.elapsed
    simulation.wait('pods', 'one', is_ready)
    assert 8 <= simulation.elapsed - since <= 10


@pytest.mark.guarantee('SBX-009')
def test_only_the_named_container_fails(simulation):
    containers = [{'name': name, 'image': 'example:1'} for name in ('main', 'other')]
    simulation.create(samples.build_pod(containers=containers))
    simulation.wait('pods', 'one', is_ready)

    simulation.fail_pod('one', container='other')
    simulation.sleep(0.1)

    statuses = simulation.get('pods', 'one')['status']['containerStatuses']
    assert [status['restartCount'] for status in statuses] == [0, 1]


@pytest.mark.guarantee('SBX-009')
def test_absent_and_idle_pods_cannot_fail(simulation):
    with pytest.raises(kopf.testing.ApiError, match='not found'):
        simulation.fail_pod('one')
    simulation.create(samples.build_pod(nodeSelector={'disk': 'fast'}))
    with pytest.raises(ValueError, match='no running containers'):
        simulation.fail_pod('one')


@pytest.mark.guarantee('SBX-009')
@pytest.mark.parametrize(
    'trouble, reason',
    [
        pytest.param('crash', 'CrashLoopBackOff', id='crash'),
        pytest.param('image', 'ImagePullBackOff', id='image'),
    ],
)
def test_broken_pods_are_repaired_when_the_trouble_is_over(simulation, trouble, reason):
    with simulation.break_pods(trouble, labels='app=bad'):
        for name in ('bad', 'good'):
            simulation.create(samples.build_pod(name))
        simulation.sleep(60)
        broken = simulation.get('pods', 'bad')
        assert get_state(broken) == ('waiting', reason)
        assert is_ready(simulation.get('pods', 'good'))

    simulation.wait('pods', 'bad', is_ready)


@pytest.mark.guarantee('SBX-009')
def test_unready_pods_leave_their_services(simulation):
    simulation.create(samples.build_service())
    simulation.create(samples.build_deployment())
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    with simulation.break_pods('unready', labels={'app': 'web'}, namespace='default'):
        simulation.sleep(0.1)
        [subset] = simulation.get('endpoints', 'web')['subsets']
        assert len(subset['notReadyAddresses']) == 2
        assert 'addresses' not in subset
        assert 'availableReplicas' not in simulation.get('deployments', 'web')['status']

    simulation.wait('deployments', 'web', samples.is_rolled_out(2))


@pytest.mark.guarantee('SBX-009')
@pytest.mark.parametrize(
    'trouble, options, text',
    [
        pytest.param('fire', {}, 'must be one of crash, image, unready', id='trouble'),
        pytest.param('crash', {'labels': 'a in ('}, 'unable to parse', id='labels'),
    ],
)
def test_wrong_troubles_are_refused(simulation, trouble, options, text):
    with pytest.raises((ValueError, kopf.testing.ApiError), match=text):
        simulation.break_pods(trouble, **options)


@pytest.mark.guarantee('SBX-010')
def test_service_has_the_addresses_of_its_ready_pods(simulation):
    simulation.create(samples.build_service())
    simulation.create(samples.build_deployment(replicas=3))
    simulation.sleep(0.5)
    [empty] = simulation.get('endpoints', 'web')['subsets']
    assert len(empty['notReadyAddresses']) == 3
    simulation.wait('deployments', 'web', samples.is_rolled_out(3))
    simulation.sleep(0.1)

    pods = {pod['status']['podIP']: pod['metadata']['name'] for pod in simulation.list('pods')}
    [subset] = simulation.get('endpoints', 'web')['subsets']
    found = {item['ip']: item['targetRef']['name'] for item in subset['addresses']}
    assert found == pods
    assert subset['ports'] == [{'name': 'http', 'port': 8080, 'protocol': 'TCP'}]
    [listed] = simulation.list('endpointslices', labels='kubernetes.io/service-name=web')
    ready = {item['addresses'][0] for item in listed['endpoints'] if item['conditions']['ready']}
    assert ready == {*pods}
    simulation.delete('services', 'web')
    simulation.sleep(1)
    names = [body['metadata']['name'] for body in simulation.list('endpoints', 'default')]
    assert 'web' not in names
    assert simulation.list('endpointslices', labels='kubernetes.io/service-name=web') == []


@pytest.mark.guarantee('SBX-010')
def test_pods_being_deleted_are_terminating_endpoints(simulation):
    simulation.create(samples.build_service())
    simulation.create(samples.build_pod('web'))
    simulation.wait('pods', 'web', is_ready)

    simulation.delete('pods', 'web')
    simulation.sleep(0.1)

    assert 'subsets' not in simulation.get('endpoints', 'web')
    [listed] = simulation.list('endpointslices', labels='kubernetes.io/service-name=web')
    [endpoint] = listed['endpoints']
    assert endpoint['conditions'] == {'ready': False, 'serving': True, 'terminating': True}


@pytest.mark.guarantee('SBX-010')
@pytest.mark.parametrize(
    'spec, allowed, desired',
    [
        pytest.param({'minAvailable': 1}, 3, 1, id='minimum'),
        pytest.param({'minAvailable': '50%'}, 2, 2, id='minimal-percentage'),
        pytest.param({'maxUnavailable': 1}, 1, 3, id='maximum'),
        pytest.param({'maxUnavailable': '30%'}, 2, 2, id='maximal-percentage'),
    ],
)
def test_budget_counts_the_healthy_pods(simulation, spec, allowed, desired):
    simulation.create(samples.build_deployment(replicas=4))
    simulation.create(
        {
            'apiVersion': 'policy/v1',
            'kind': 'PodDisruptionBudget',
            'metadata': {'name': 'web'},
            'spec': {'selector': {'matchLabels': {'app': 'web'}}, **spec},
        }
    )
    simulation.wait('deployments', 'web', samples.is_rolled_out(4))
    simulation.sleep(0.1)

    status = simulation.get('poddisruptionbudgets', 'web')['status']

    assert (status['disruptionsAllowed'], status['desiredHealthy']) == (allowed, desired)
    assert (status['currentHealthy'], status['expectedPods']) == (4, 4)
    assert samples.get_condition({'status': status}, 'DisruptionAllowed')['status'] == 'True'


async def evict(sandbox, name):
    """Evict a pod over the network; return the code and the answer."""
    path = f'{sandbox.url}/api/v1/namespaces/default/pods/{name}/eviction'
    body = {'apiVersion': 'policy/v1', 'kind': 'Eviction', 'metadata': {'name': name}}
    headers = {'Authorization': f'Bearer {sandbox.token}'}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(path, json=body) as response,
    ):
        return response.status, await response.json()


@pytest.mark.guarantee('SBX-014')
async def test_budget_limits_the_evictions(virtual_time):
    async with kopf.testing.Sandbox(tls=False, workloads=True) as sandbox:
        await sandbox.create(samples.build_deployment(replicas=3))
        spec = {'selector': {'matchLabels': {'app': 'web'}}, 'minAvailable': 2}
        meta = {'name': 'web'}
        kind = {'apiVersion': 'policy/v1', 'kind': 'PodDisruptionBudget'}
        await sandbox.create({**kind, 'metadata': meta, 'spec': spec})
        await sandbox.wait(
            'poddisruptionbudgets', 'web', lambda body: body['status'].get('currentHealthy') == 3
        )
        names = [pod['metadata']['name'] for pod in await sandbox.list('pods')]

        allowed, _ = await evict(sandbox, names[0])
        refused, answer = await evict(sandbox, names[1])

        assert (allowed, refused) == (201, 429)
        [cause] = answer['details']['causes']
        assert cause['reason'] == 'DisruptionBudget'
        await sandbox.wait(
            'poddisruptionbudgets', 'web', lambda body: body['status']['disruptionsAllowed'] == 1
        )
        assert (await evict(sandbox, names[1]))[0] == 201


@pytest.mark.guarantee('SBX-014')
@pytest.mark.parametrize(
    'phase, budgets, expected',
    [
        pytest.param('Running', [], None, id='no-budget'),
        pytest.param('Running', [{'app': 'one'}], 0, id='budget'),
        pytest.param('Running', [{'app': 'two'}], None, id='other-budget'),
        pytest.param('Pending', [{'app': 'one'}], None, id='pending'),
        pytest.param('Failed', [{'app': 'one'}], None, id='ended'),
    ],
)
def test_budget_of_a_pod(phase, budgets, expected):
    pod = {**samples.build_pod(), 'status': {'phase': phase}}
    known = [{'spec': {'selector': {'matchLabels': labels}}} for labels in budgets]

    found = evictions.find_budget(pod, known)

    assert found is (None if expected is None else known[expected])


@pytest.mark.guarantee('SBX-014')
def test_pod_with_two_budgets_cannot_be_evicted():
    pod = {**samples.build_pod(), 'status': {'phase': 'Running'}}
    budget = {'spec': {'selector': {'matchLabels': {'app': 'one'}}}}

    with pytest.raises(kopf.testing.ApiError, match='more than one PodDisruptionBudget'):
        evictions.find_budget(pod, [budget, budget])


@pytest.mark.guarantee('SBX-014')
@pytest.mark.parametrize(
    'ready, policy, healthy, expected',
    [
        pytest.param('True', None, 2, True, id='healthy'),
        pytest.param('False', None, 2, False, id='unhealthy-beside-enough-healthy-ones'),
        pytest.param('False', None, 1, True, id='unhealthy-beside-too-few'),
        pytest.param('False', 'AlwaysAllow', 1, False, id='always-allowed'),
    ],
)
def test_evictions_of_unhealthy_pods_do_not_always_count(ready, policy, healthy, expected):
    pod = {'status': {'conditions': [{'type': 'Ready', 'status': ready}]}}
    spec = {} if policy is None else {'unhealthyPodEvictionPolicy': policy}
    budget = {'spec': spec, 'status': {'desiredHealthy': 2, 'currentHealthy': healthy}}

    assert evictions.is_counted(pod, budget) is expected
