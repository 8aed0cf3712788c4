"""
Cron jobs in a sandbox with workloads, and their schedules.
"""

import datetime

import pytest
import workload_samples as samples

import kopf.testing
from kopf._sandbox.workloads import schedules

BEGINNING = datetime.datetime(2026, 3, 1, 11, 58, 30, tzinfo=datetime.UTC)


@pytest.fixture
def simulation():
    """A simulation in which the time begins at a known moment."""
    with kopf.testing.Simulation(workloads=True) as simulation:
        simulation._origin = BEGINNING
        yield simulation


def build_cron_job(schedule='* * * * *', runs_for=None, **spec):
    template = samples.build_template({'kind': 'cron'}, restartPolicy='Never')
    if runs_for is not None:
        template['metadata']['annotations'] = {'sandbox.kopf.dev/runs-for': str(runs_for)}
    return {
        'apiVersion': 'batch/v1',
        'kind': 'CronJob',
        'metadata': {'name': 'cron'},
        'spec': {
            'schedule': schedule,
            'jobTemplate': {'spec': {'template': template}},
            **spec,
        },
    }


def list_statuses(simulation):
    return [body['status'] for body in simulation.list('jobs')]


@pytest.mark.guarantee('SBX-006')
def test_jobs_are_started_by_the_schedule(simulation):
    simulation.create(build_cron_job('*/5 * * * *'))

    simulation.sleep(6 * 60 + 35)  # until 12:05:05

    names = sorted(body['metadata']['name'] for body in simulation.list('jobs'))
    minute = int(BEGINNING.timestamp()) // 60 + 2
    assert names == [f'cron-{minute}', f'cron-{minute + 5}']
    status = simulation.get('cronjobs', 'cron')['status']
    assert status['lastScheduleTime'] == '2026-03-01T12:05:00Z'
    assert status['lastSuccessfulTime'] == '2026-03-01T12:05:02Z'


@pytest.mark.guarantee('SBX-006')
def test_old_jobs_are_deleted_beyond_the_limits_of_the_history(simulation):
    simulation.create(build_cron_job(successfulJobsHistoryLimit=2))

    simulation.sleep(10 * 60)

    assert len(simulation.list('jobs')) == 2
    assert all(samples.get_condition({'status': s}, 'Complete') for s in list_statuses(simulation))


@pytest.mark.guarantee('SBX-006')
@pytest.mark.parametrize(
    'policy, active, total',
    [
        pytest.param('Allow', 5, 5, id='allow'),
        pytest.param('Forbid', 1, 1, id='forbid'),
        pytest.param('Replace', 1, 1, id='replace'),
    ],
)
def test_jobs_that_still_run_are_treated_by_the_policy(simulation, policy, active, total):
    simulation.create(build_cron_job(runs_for=3600, concurrencyPolicy=policy))

    simulation.sleep(5 * 60)

    minute = int(BEGINNING.timestamp()) // 60
    names = sorted(body['metadata']['name'] for body in simulation.list('jobs'))
    assert len(names) == total
    assert len(simulation.get('cronjobs', 'cron')['status']['active']) == active
    expected = {'Allow': minute + 1, 'Forbid': minute + 1, 'Replace': minute + 5}
    assert names[0] == f'cron-{expected[policy]}'


@pytest.mark.guarantee('SBX-006')
def test_suspended_cron_job_starts_nothing(simulation):
    simulation.create(build_cron_job(suspend=True))

    simulation.sleep(600)

    assert simulation.list('jobs') == []


@pytest.mark.guarantee('SBX-006')
@pytest.mark.parametrize(
    'schedule, zone, after, expected',
    [
        pytest.param('* * * * *', None, '2026-03-01T12:00:00', '2026-03-01T12:01:00', id='minute'),
        pytest.param('30 8 * * 1-5', None, '2026-03-06T09:00:00', '2026-03-09T08:30:00', id='days'),
        pytest.param('0 0 29 2 *', None, '2026-03-01T00:00:00', '2028-02-29T00:00:00', id='leap'),
        pytest.param('0 0 13 * 5', None, '2026-03-01T00:00:00', '2026-03-06T00:00:00', id='either'),
        pytest.param('@hourly', None, '2026-03-01T12:00:00', '2026-03-01T13:00:00', id='hourly'),
        pytest.param('@every 90s', None, '2026-03-01T12:00:00', '2026-03-01T12:01:30', id='every'),
        pytest.param(
            '0 9 * * *',
            'America/New_York',
            '2026-07-01T00:00:00',
            '2026-07-01T13:00:00',
            id='zone',
        ),
        pytest.param(
            '30 2 * * *',
            'Europe/Berlin',
            '2026-03-28T12:00:00',
            '2026-03-30T00:30:00',
            id='skipped-by-the-clock',
        ),
    ],
)
def test_next_moment_of_a_schedule(schedule, zone, after, expected):
    moment = datetime.datetime.fromisoformat(f'{after}+00:00')

    found = schedules.find_next(schedule, zone, moment)

    assert found == datetime.datetime.fromisoformat(f'{expected}+00:00')


@pytest.mark.guarantee('SBX-006')
def test_impossible_days_never_come():
    assert schedules.find_next('0 0 30 2 *', None, BEGINNING) is None


@pytest.mark.guarantee('SBX-006')
def test_missed_moments_are_counted_up_to_a_limit():
    now = BEGINNING + datetime.timedelta(days=30)

    latest, count = schedules.list_missed('* * * * *', None, BEGINNING, now)

    assert latest == now.replace(second=0)
    assert count == 101
