"""
kubectl on workloads that move: rollouts, scaling, waiting, draining.
"""

import dataclasses

import pytest

import kopf.testing

pytestmark = pytest.mark.slow

QUICK = kopf.testing.Workloads(ready_after=0.05, completed_after=0.05, stopped_after=0)


@pytest.fixture
def moving():
    with kopf.testing.Sandbox(workloads=QUICK) as sandbox:
        yield sandbox


@pytest.fixture
def kubectl(kubectl, moving):
    environment = {**kubectl.environment, 'KUBECONFIG': str(moving.kubeconfig)}
    return dataclasses.replace(kubectl, environment=environment, namespace='default')


@pytest.mark.guarantee('SBX-012')
def test_rollouts_are_followed_undone_and_restarted(kubectl, moving):
    kubectl('create deployment web --image=example:1 --replicas=3')
    assert 'successfully rolled out' in kubectl('rollout status deployment/web').out
    kubectl('set image deployment/web example=example:2')
    kubectl('rollout status deployment/web')
    history = kubectl('rollout history deployment/web').out
    assert [line.split()[0] for line in history.splitlines()[2:4]] == ['1', '2']

    kubectl('rollout undo deployment/web')
    kubectl('rollout status deployment/web')
    template = moving.get('deployments', 'web')['spec']['template']
    assert template['spec']['containers'][0]['image'] == 'example:1'
    kubectl('rollout restart deployment/web')

    assert 'successfully rolled out' in kubectl('rollout status deployment/web').out


@pytest.mark.guarantee('SBX-012')
def test_scaled_deployment_is_waited_for(kubectl):
    kubectl('create deployment web --image=example:1')
    kubectl('scale deployment/web --replicas=4')

    run = kubectl("wait '--for=jsonpath={.status.readyReplicas}=4' deployment/web --timeout=20s")

    assert run.out == 'deployment.apps/web condition met\n'
    assert kubectl('wait --for=condition=Available deployment/web').code == 0


@pytest.mark.guarantee('SBX-012')
def test_jobs_are_waited_for(kubectl):
    kubectl('create job one --image=example:1')

    run = kubectl('wait --for=condition=Complete job/one --timeout=20s')

    assert run.out == 'job.batch/one condition met\n'
    assert [row[2] for row in kubectl('get pods').rows[1:]] == ['Completed']


@pytest.mark.guarantee('SBX-012')
def test_drained_node_keeps_no_pods_of_deployments(kubectl, moving):
    kubectl('create deployment web --image=example:1 --replicas=2')
    kubectl('rollout status deployment/web')

    run = kubectl('drain sandbox-1 --timeout=20s')
    moving.wait('deployments', 'web', lambda body: body['status'].get('unavailableReplicas') == 2)

    assert run.code == 0
    assert [pod['spec'].get('nodeName') for pod in moving.list('pods')] == [None, None]
