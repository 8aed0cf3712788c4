"""
Jobs in a sandbox with workloads: their pods run, succeed or fail, and are counted.
"""

import pytest
import workload_samples as samples

FAILING = {'sandbox.kopf.dev/exit-code': '3'}


def build_job(name='job', annotations=None, policy='Never', **spec):
    template = samples.build_template({'kind': 'job'}, restartPolicy=policy)
    template['metadata']['annotations'] = annotations or {}
    return {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': {'name': name},
        'spec': {'template': template, **spec},
    }


def has_finished(type):
    return lambda body: samples.get_condition(body, type).get('status') == 'True'


@pytest.mark.guarantee('SBX-003')
def test_job_completes_when_its_pods_have_succeeded(simulation):
    simulation.create(build_job(completions=3, parallelism=2))

    done = simulation.wait('jobs', 'job', has_finished('Complete'))

    assert simulation.elapsed == 4.0  # two rounds of a second to start and a second to run
    assert done['status']['succeeded'] == 3
    assert 'active' not in done['status']
    assert done['status']['completionTime']
    assert samples.get_condition(done, 'SuccessCriteriaMet')['reason'] == 'CompletionsReached'
    simulation.sleep(1)
    pods = simulation.list('pods', labels='batch.kubernetes.io/job-name=job')
    assert [pod['status']['phase'] for pod in pods] == ['Succeeded'] * 3
    assert [pod['metadata'].get('finalizers') for pod in pods] == [None] * 3


@pytest.mark.guarantee('SBX-003')
def test_indexed_job_runs_a_pod_for_each_index(simulation):
    simulation.create(build_job(completions=4, parallelism=4, completionMode='Indexed'))

    done = simulation.wait('jobs', 'job', has_finished('Complete'))

    assert done['status']['completedIndexes'] == '0-3'
    names = sorted(pod['spec']['hostname'] for pod in simulation.list('pods'))
    assert names == ['job-0', 'job-1', 'job-2', 'job-3']


@pytest.mark.guarantee('SBX-003')
def test_job_fails_after_its_limit_of_failures_with_growing_delays(simulation):
    simulation.create(build_job(annotations=FAILING, backoffLimit=2))

    failed = simulation.wait('jobs', 'job', has_finished('Failed'))

    assert samples.get_condition(failed, 'Failed')['reason'] == 'BackoffLimitExceeded'
    assert failed['status']['failed'] == 3
    assert 36 - 2 <= simulation.elapsed <= 36  # three runs of two seconds, delays of 10 and 20
    [status] = simulation.list('pods')[0]['status']['containerStatuses']
    assert status['state']['terminated']['exitCode'] == 3


@pytest.mark.guarantee('SBX-003')
def test_pods_are_restarted_in_place_if_their_policy_says_so(simulation):
    simulation.create(build_job(annotations=FAILING, policy='OnFailure', backoffLimit=2))

    simulation.wait('jobs', 'job', has_finished('Failed'))

    simulation.sleep(1)
    assert simulation.list('pods') == []


@pytest.mark.guarantee('SBX-003')
def test_job_fails_at_its_deadline(simulation):
    job = build_job(annotations={'sandbox.kopf.dev/runs-for': '3600'}, activeDeadlineSeconds=60)
    simulation.create(job)

    failed = simulation.wait('jobs', 'job', has_finished('Failed'))

    assert 59 <= simulation.elapsed <= 62
    assert samples.get_condition(failed, 'Failed')['reason'] == 'DeadlineExceeded'
    assert simulation.list('pods') == []


@pytest.mark.guarantee('SBX-003')
def test_suspended_job_has_no_pods_until_it_is_resumed(simulation):
    simulation.create(build_job(suspend=True))
    simulation.sleep(10)
    assert simulation.list('pods') == []
    suspended = simulation.get('jobs', 'job')
    assert samples.get_condition(suspended, 'Suspended')['status'] == 'True'

    simulation.patch('jobs', 'job', {'spec': {'suspend': False}})

    done = simulation.wait('jobs', 'job', has_finished('Complete'))
    assert samples.get_condition(done, 'Suspended')['reason'] == 'JobResumed'


@pytest.mark.guarantee('SBX-003')
def test_suspension_stops_the_pods_without_counting_them(simulation):
    simulation.create(build_job(annotations={'sandbox.kopf.dev/runs-for': '3600'}))
    simulation.sleep(5)

    simulation.patch('jobs', 'job', {'spec': {'suspend': True}})
    simulation.sleep(5)

    assert simulation.list('pods') == []
    assert 'failed' not in simulation.get('jobs', 'job')['status']


@pytest.mark.guarantee('SBX-003')
def test_finished_job_is_deleted_after_its_time(simulation):
    simulation.create(build_job(ttlSecondsAfterFinished=100))
    simulation.wait('jobs', 'job', has_finished('Complete'))

    simulation.wait('jobs', 'job', lambda body: body is None)

    assert 100 <= simulation.elapsed <= 103
    simulation.sleep(1)
    assert simulation.list('pods') == []


@pytest.mark.guarantee('SBX-003')
def test_index_is_given_up_after_its_own_limit_of_failures(simulation):
    body = build_job(
        annotations=FAILING, completions=2, completionMode='Indexed', backoffLimitPerIndex=0
    )
    simulation.create(body)

    failed = simulation.wait('jobs', 'job', has_finished('Failed'))

    assert samples.get_condition(failed, 'Failed')['reason'] == 'FailedIndexes'
    assert failed['status']['failedIndexes'] == '0,1'


@pytest.mark.guarantee('SBX-003')
def test_deleted_pod_of_a_job_is_replaced(simulation):
    simulation.create(build_job(annotations={'sandbox.kopf.dev/runs-for': '60'}))
    simulation.sleep(5)
    [pod] = simulation.list('pods')

    simulation.delete('pods', pod['metadata']['name'])

    done = simulation.wait('jobs', 'job', has_finished('Complete'))
    assert (done['status']['succeeded'], done['status']['failed']) == (1, 1)
