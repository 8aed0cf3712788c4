"""
Deployments in a sandbox with workloads: they roll out, are scaled, paused, and rolled back.
"""

import pytest
import workload_samples as samples

import kopf.testing


@pytest.mark.guarantee('SBX-001')
def test_deployment_becomes_available_when_its_pods_are_ready(simulation):
    simulation.create(samples.build_deployment(replicas=3))

    done = simulation.wait('deployments', 'web', samples.is_rolled_out(3))

    assert simulation.elapsed == 1.0
    assert samples.get_condition(done, 'Available')['status'] == 'True'
    assert samples.get_condition(done, 'Progressing')['reason'] == 'NewReplicaSetAvailable'
    [replica_set] = simulation.list('replicasets')
    digest = replica_set['metadata']['labels']['pod-template-hash']
    assert replica_set['metadata']['name'] == f'web-{digest}'
    pods = simulation.list('pods', labels={'pod-template-hash': digest})
    assert [pod['status']['phase'] for pod in pods] == ['Running'] * 3
    assert {pod['metadata']['ownerReferences'][0]['name'] for pod in pods} == {f'web-{digest}'}


@pytest.mark.guarantee('SBX-001')
@pytest.mark.parametrize(
    'surge, unavailable, most, least',
    [
        pytest.param(1, 0, 5, 4, id='surge'),
        pytest.param(0, 1, 4, 3, id='unavailable'),
        pytest.param('50%', '50%', 6, 2, id='percents'),
    ],
)
def test_rollout_keeps_its_limits(simulation, surge, unavailable, most, least):
    rolling = {'maxSurge': surge, 'maxUnavailable': unavailable}
    strategy = {'type': 'RollingUpdate', 'rollingUpdate': rolling}
    simulation.create(samples.build_deployment(replicas=4, strategy=strategy))
    simulation.wait('deployments', 'web', samples.is_rolled_out(4))
    totals, available = [], []

    def check(body):
        pods = simulation.list('pods')
        active = [pod for pod in pods if not pod['metadata'].get('deletionTimestamp')]
        totals.append(len(active))
        available.append(
            sum(samples.get_condition(pod, 'Ready').get('status') == 'True' for pod in active)
        )
        return samples.is_rolled_out(4)(body)

    simulation.patch('deployments', 'web', samples.build_image_patch('example:2'), type='strategic')
    simulation.wait('deployments', 'web', check)

    assert max(totals) <= most
    assert min(available) >= least
    simulation.sleep(1)
    assert samples.list_images(simulation.list('pods')) == ['example:2'] * 4


@pytest.mark.guarantee('SBX-001')
def test_recreation_starts_new_pods_when_the_old_ones_are_gone(simulation):
    simulation.create(samples.build_deployment(strategy={'type': 'Recreate'}))
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    simulation.patch('deployments', 'web', samples.build_image_patch('example:2'), type='strategic')
    simulation.sleep(0.4)
    assert samples.list_images(simulation.list('pods')) == ['example:1'] * 2
    simulation.sleep(0.2)

    assert samples.list_images(simulation.list('pods')) == ['example:2'] * 2
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))


@pytest.mark.guarantee('SBX-001')
def test_scaling_adds_and_removes_pods_without_a_new_revision(simulation):
    simulation.create(samples.build_deployment(replicas=1))
    simulation.wait('deployments', 'web', samples.is_rolled_out(1))

    for replicas in (5, 2, 0):
        simulation.patch(
            'deployments', 'web', {'spec': {'replicas': replicas}}, subresource='scale'
        )
        simulation.wait('deployments', 'web', samples.is_rolled_out(replicas))

    simulation.sleep(1)
    assert simulation.list('pods') == []
    assert len(simulation.list('replicasets')) == 1


@pytest.mark.guarantee('SBX-001')
def test_return_to_an_old_template_reuses_its_replica_set(simulation):
    simulation.create(samples.build_deployment())
    for image in ('example:2', 'example:1'):
        simulation.wait('deployments', 'web', samples.is_rolled_out(2))
        simulation.patch('deployments', 'web', samples.build_image_patch(image), type='strategic')

    done = simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    prefix = 'deployment.kubernetes.io'
    assert done['metadata']['annotations'][f'{prefix}/revision'] == '3'
    found = [item['metadata']['annotations'] for item in simulation.list('replicasets')]
    assert sorted(item[f'{prefix}/revision'] for item in found) == ['2', '3']
    assert [item.get(f'{prefix}/revision-history') for item in found].count('1') == 1


@pytest.mark.guarantee('SBX-001')
def test_paused_deployment_is_scaled_but_not_rolled_out(simulation):
    simulation.create(samples.build_deployment())
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    simulation.patch('deployments', 'web', {'spec': {'paused': True, 'replicas': 3}})
    simulation.patch('deployments', 'web', samples.build_image_patch('example:2'), type='strategic')
    simulation.sleep(10)

    paused = simulation.get('deployments', 'web')
    assert samples.list_images(simulation.list('pods')) == ['example:1'] * 3
    assert samples.get_condition(paused, 'Progressing')['reason'] == 'DeploymentPaused'
    simulation.patch('deployments', 'web', {'spec': {'paused': False}})
    simulation.wait('deployments', 'web', samples.is_rolled_out(3))
    simulation.sleep(1)
    assert samples.list_images(simulation.list('pods')) == ['example:2'] * 3


@pytest.mark.guarantee('SBX-001')
def test_stuck_rollout_exceeds_its_deadline_and_keeps_the_old_pods(simulation):
    simulation.create(samples.build_deployment(progressDeadlineSeconds=60))
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    with simulation.break_pods('image', image='*:broken'):
        patch = samples.build_image_patch('example:broken')
        simulation.patch('deployments', 'web', patch, type='strategic')
        stuck = simulation.wait(
            'deployments',
            'web',
            lambda body: samples.get_condition(body, 'Progressing')['status'] == 'False',
        )

    assert 60 <= simulation.elapsed < 65
    assert samples.get_condition(stuck, 'Progressing')['reason'] == 'ProgressDeadlineExceeded'
    assert stuck['status']['availableReplicas'] == 2


@pytest.mark.guarantee('SBX-001')
def test_old_replica_sets_are_deleted_beyond_the_limit_of_the_history(simulation):
    simulation.create(samples.build_deployment(replicas=1, revisionHistoryLimit=1))
    for number in (2, 3, 4):
        simulation.wait('deployments', 'web', samples.is_rolled_out(1))
        patch = samples.build_image_patch(f'example:{number}')
        simulation.patch('deployments', 'web', patch, type='strategic')
    simulation.wait('deployments', 'web', samples.is_rolled_out(1))
    simulation.sleep(1)

    images = [
        item['spec']['template']['spec']['containers'][0]['image']
        for item in simulation.list('replicasets')
    ]
    assert sorted(images) == ['example:3', 'example:4']


@pytest.mark.guarantee('SBX-001')
def test_pods_count_as_available_after_their_minimum_time(simulation):
    simulation.create(samples.build_deployment(minReadySeconds=30))

    simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    assert 30 <= simulation.elapsed <= 32


@pytest.mark.guarantee('SBX-001')
def test_pods_are_taken_over_and_let_go_by_their_labels(simulation):
    simulation.create(samples.build_deployment(replicas=1))
    simulation.wait('deployments', 'web', samples.is_rolled_out(1))
    [pod] = simulation.list('pods')

    simulation.patch('pods', pod['metadata']['name'], {'metadata': {'labels': {'app': None}}})
    simulation.sleep(2)

    freed = simulation.get('pods', pod['metadata']['name'])
    assert 'ownerReferences' not in freed['metadata']
    assert len(simulation.list('pods')) == 2
    simulation.patch('pods', pod['metadata']['name'], {'metadata': {'labels': {'app': 'web'}}})
    simulation.sleep(2)
    assert len(simulation.list('pods')) == 1


@pytest.mark.guarantee('SBX-001')
def test_deleted_deployment_takes_its_replica_sets_and_pods_with_it(simulation):
    simulation.create(samples.build_deployment())
    simulation.wait('deployments', 'web', samples.is_rolled_out(2))

    simulation.delete('deployments', 'web')
    simulation.sleep(1)

    assert simulation.list('replicasets') == simulation.list('pods') == []


@pytest.mark.guarantee('SBX-001')
def test_refused_pods_are_reported_and_tried_again(simulation):
    body = samples.build_deployment(replicas=1)
    body['spec']['template']['spec']['priorityClassName'] = 'absent'
    simulation.create(body)
    failed = simulation.wait(
        'deployments',
        'web',
        lambda body: samples.get_condition(body, 'ReplicaFailure').get('status') == 'True',
    )

    assert 'no PriorityClass with name absent' in str(failed['status'])
    simulation.create(
        {
            'apiVersion': 'scheduling.k8s.io/v1',
            'kind': 'PriorityClass',
            'metadata': {'name': 'absent'},
            'value': 1,
        }
    )
    done = simulation.wait('deployments', 'web', samples.is_rolled_out(1))
    assert samples.get_condition(done, 'ReplicaFailure') == {}


@pytest.mark.guarantee('SBX-002')
def test_without_workloads_nothing_moves():
    with kopf.testing.Simulation() as simulation:
        simulation.create(samples.build_deployment())
        simulation.sleep(10)

        assert simulation.list('replicasets') == simulation.list('pods') == []
        assert simulation.list('nodes') == []
        with pytest.raises(RuntimeError, match=r'Sandbox\(workloads=True\)'):
            simulation.fail_pod('web')


@pytest.mark.guarantee('SBX-002')
@pytest.mark.parametrize(
    'options, error',
    [
        pytest.param({'nodes': -1}, "'nodes'", id='negative'),
        pytest.param({'nodes': 1.5}, "'nodes'", id='fraction'),
        pytest.param({'ready_after': 'soon'}, "'ready_after'", id='text'),
        pytest.param({'stopped_after': float('nan')}, "'stopped_after'", id='not-a-number'),
    ],
)
def test_wrong_options_are_refused(options, error):
    with pytest.raises(ValueError, match=error):
        kopf.testing.Workloads(**options)
