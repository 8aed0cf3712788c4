"""
Stateful sets and daemon sets in a sandbox with workloads.
"""

import pytest
import workload_samples as samples

import kopf.testing


def build_stateful_set(replicas=3, **spec):
    labels = {'app': 'db'}
    claim = {
        'metadata': {'name': 'files'},
        'spec': {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}},
    }
    return {
        'apiVersion': 'apps/v1',
        'kind': 'StatefulSet',
        'metadata': {'name': 'db'},
        'spec': {
            'replicas': replicas,
            'serviceName': 'db',
            'selector': {'matchLabels': labels},
            'template': samples.build_template(labels),
            'volumeClaimTemplates': [claim],
            **spec,
        },
    }


def build_daemon_set(**spec):
    labels = {'app': 'agent'}
    return {
        'apiVersion': 'apps/v1',
        'kind': 'DaemonSet',
        'metadata': {'name': 'agent'},
        'spec': {
            'selector': {'matchLabels': labels},
            'template': samples.build_template(labels),
            **spec,
        },
    }


def list_names(simulation, resource='pods'):
    return [body['metadata']['name'] for body in simulation.list(resource)]


def is_settled(replicas):
    def check(body):
        status = body.get('status') or {}
        ready = status.get('readyReplicas') or 0
        updated = status.get('updatedReplicas') or 0
        is_observed = status.get('observedGeneration') == body['metadata']['generation']
        return is_observed and ready == updated == status.get('replicas') == replicas

    return check


def is_running_everywhere(count):
    def check(body):
        status = body.get('status') or {}
        fields = ('desiredNumberScheduled', 'numberAvailable', 'updatedNumberScheduled')
        is_observed = status.get('observedGeneration') == body['metadata']['generation']
        return is_observed and [status.get(field) for field in fields] == [count] * 3

    return check


@pytest.mark.guarantee('SBX-004')
def test_pods_of_a_stateful_set_are_created_in_order(simulation):
    simulation.create(build_stateful_set())

    simulation.sleep(1.5)
    assert list_names(simulation) == ['db-0', 'db-1']
    done = simulation.wait('statefulsets', 'db', is_settled(3))

    assert simulation.elapsed == 3.0
    assert list_names(simulation) == ['db-0', 'db-1', 'db-2']
    assert done['status']['currentRevision'] == done['status']['updateRevision']
    pod = simulation.get('pods', 'db-1')
    assert (pod['spec']['hostname'], pod['spec']['subdomain']) == ('db-1', 'db')
    assert pod['metadata']['labels']['apps.kubernetes.io/pod-index'] == '1'


@pytest.mark.guarantee('SBX-004')
def test_pods_of_a_parallel_stateful_set_are_created_at_once(simulation):
    simulation.create(build_stateful_set(podManagementPolicy='Parallel'))

    simulation.wait('statefulsets', 'db', is_settled(3))

    assert simulation.elapsed == 1.0


@pytest.mark.guarantee('SBX-004', 'SBX-007')
def test_claims_of_a_stateful_set_are_bound_and_outlive_its_pods(simulation):
    simulation.create(build_stateful_set(replicas=2))
    simulation.wait('statefulsets', 'db', is_settled(2))

    simulation.patch('statefulsets', 'db', {'spec': {'replicas': 1}}, subresource='scale')
    simulation.wait('statefulsets', 'db', is_settled(1))

    claims = simulation.list('persistentvolumeclaims')
    assert [body['metadata']['name'] for body in claims] == ['files-db-0', 'files-db-1']
    assert [body['status']['phase'] for body in claims] == ['Bound', 'Bound']
    assert claims[0]['status']['capacity'] == {'storage': '1Gi'}
    volumes = {body['metadata']['name'] for body in simulation.list('persistentvolumes')}
    assert volumes == {body['spec']['volumeName'] for body in claims}


@pytest.mark.guarantee('SBX-004')
def test_stateful_set_is_updated_from_the_last_pod_to_the_partition(simulation):
    strategy = {'type': 'RollingUpdate', 'rollingUpdate': {'partition': 1}}
    simulation.create(build_stateful_set(updateStrategy=strategy))
    simulation.wait('statefulsets', 'db', is_settled(3))

    patch = samples.build_image_patch('example:2')
    simulation.patch('statefulsets', 'db', patch, type='strategic')
    simulation.sleep(0.6)
    images = [pod['spec']['containers'][0]['image'] for pod in simulation.list('pods')]
    assert images == ['example:1', 'example:1', 'example:2']
    simulation.sleep(60)

    images = [pod['spec']['containers'][0]['image'] for pod in simulation.list('pods')]
    assert images == ['example:1', 'example:2', 'example:2']
    status = simulation.get('statefulsets', 'db')['status']
    assert status['currentRevision'] != status['updateRevision']
    simulation.patch(
        'statefulsets', 'db', {'spec': {'updateStrategy': {'rollingUpdate': {'partition': 0}}}}
    )
    done = simulation.wait('statefulsets', 'db', is_settled(3))
    assert done['status']['currentRevision'] == done['status']['updateRevision']


@pytest.mark.guarantee('SBX-004')
def test_stateful_set_shrinks_from_the_last_pod(simulation):
    simulation.create(build_stateful_set())
    simulation.wait('statefulsets', 'db', is_settled(3))

    simulation.patch('statefulsets', 'db', {'spec': {'replicas': 1}})
    simulation.sleep(0.1)
    marked = [
        pod['metadata']['name']
        for pod in simulation.list('pods')
        if pod['metadata'].get('deletionTimestamp')
    ]
    simulation.wait('statefulsets', 'db', is_settled(1))

    assert marked == ['db-2']
    assert list_names(simulation) == ['db-0']


@pytest.mark.guarantee('SBX-004')
def test_revisions_are_named_as_in_a_real_cluster(simulation):
    body = build_stateful_set(replicas=0)
    body['spec']['template'] = {
        'metadata': {'labels': {'app': 'db'}},
        'spec': {
            'containers': [
                {
                    'name': 'main',
                    'image': 'pg:1',
                    'volumeMounts': [{'name': 'data', 'mountPath': '/d'}],
                }
            ]
        },
    }
    body['spec']['volumeClaimTemplates'][0]['metadata']['name'] = 'data'

    simulation.create(body)
    simulation.sleep(1)

    assert list_names(simulation, 'controllerrevisions') == ['db-6cd7584f9b']


@pytest.mark.guarantee('SBX-005')
def test_daemon_set_has_a_pod_on_each_node_that_fits():
    with kopf.testing.Simulation(workloads=kopf.testing.Workloads(nodes=3)) as simulation:
        simulation.patch('nodes', 'sandbox-2', {'metadata': {'labels': {'disk': 'fast'}}})
        taint = {'key': 'example.com/own', 'effect': 'NoSchedule'}
        simulation.patch('nodes', 'sandbox-3', {'spec': {'taints': [taint]}})
        simulation.create(build_daemon_set())
        simulation.wait('daemonsets', 'agent', is_running_everywhere(2))
        nodes = sorted(pod['spec']['nodeName'] for pod in simulation.list('pods'))
        assert nodes == ['sandbox-1', 'sandbox-2']

        selector = {'spec': {'template': {'spec': {'nodeSelector': {'disk': 'fast'}}}}}
        simulation.patch('daemonsets', 'agent', selector)
        simulation.wait('daemonsets', 'agent', is_running_everywhere(1))

        simulation.sleep(1)
        assert [pod['spec']['nodeName'] for pod in simulation.list('pods')] == ['sandbox-2']


@pytest.mark.guarantee('SBX-005')
def test_daemon_set_is_updated_node_by_node():
    with kopf.testing.Simulation(workloads=kopf.testing.Workloads(nodes=3)) as simulation:
        simulation.create(build_daemon_set())
        simulation.wait('daemonsets', 'agent', is_running_everywhere(3))
        fewest = []

        def check(body):
            fewest.append(body['status'].get('numberAvailable') or 0)
            return is_running_everywhere(3)(body)

        patch = samples.build_image_patch('example:2')
        simulation.patch('daemonsets', 'agent', patch, type='strategic')
        simulation.wait('daemonsets', 'agent', check)

        assert min(fewest) == 2
        assert samples.list_images(simulation.list('pods')) == ['example:2'] * 3


@pytest.mark.guarantee('SBX-005')
def test_daemon_set_with_a_surge_never_leaves_a_node():
    rolling = {'maxSurge': 1, 'maxUnavailable': 0}
    with kopf.testing.Simulation(workloads=kopf.testing.Workloads(nodes=2)) as simulation:
        strategy = {'type': 'RollingUpdate', 'rollingUpdate': rolling}
        simulation.create(build_daemon_set(updateStrategy=strategy))
        simulation.wait('daemonsets', 'agent', is_running_everywhere(2))
        fewest = []

        def check(body):
            fewest.append(body['status'].get('numberAvailable') or 0)
            return is_running_everywhere(2)(body)

        patch = samples.build_image_patch('example:2')
        simulation.patch('daemonsets', 'agent', patch, type='strategic')
        simulation.wait('daemonsets', 'agent', check)
        simulation.sleep(5)

        assert min(fewest) == 2
        assert samples.list_images(simulation.list('pods')) == ['example:2'] * 2


@pytest.mark.guarantee('SBX-005')
def test_new_node_gets_its_pod(simulation):
    simulation.create(build_daemon_set())
    simulation.wait('daemonsets', 'agent', is_running_everywhere(1))

    simulation.create(
        {
            'apiVersion': 'v1',
            'kind': 'Node',
            'metadata': {'name': 'own'},
            'status': {'conditions': [{'type': 'Ready', 'status': 'True'}]},
        }
    )

    simulation.wait('daemonsets', 'agent', is_running_everywhere(2))
