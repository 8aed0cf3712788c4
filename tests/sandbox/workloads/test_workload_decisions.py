"""
The decisions of the controllers of workloads, each by itself.
"""

import math

import pytest
import workload_samples as samples

from kopf._sandbox import options
from kopf._sandbox.workloads import (
    behaviours,
    indexes,
    job_plans,
    pod_lives,
    pod_states,
    rollouts,
    scheduling,
)


def build_deployment(replicas, **strategy):
    body = samples.build_deployment(replicas=replicas)
    body['spec']['strategy'] = {'type': 'RollingUpdate', 'rollingUpdate': strategy}
    return body


def build_set(uid, replicas, available=None, size=None):
    annotations = {} if size is None else {rollouts.MAXIMUM: str(size)}
    return {
        'metadata': {
            'name': uid,
            'uid': uid,
            'creationTimestamp': f'2026-01-01T00:00:0{uid[-1]}Z',
            'annotations': annotations,
        },
        'spec': {'replicas': replicas},
        'status': {'availableReplicas': replicas if available is None else available},
    }


@pytest.mark.guarantee('SBX-001')
@pytest.mark.parametrize(
    'surge, unavailable, expected',
    [
        pytest.param('25%', '25%', (3, 2), id='rounded-up-and-down'),
        pytest.param(0, '5%', (0, 1), id='never-both-zero'),
        pytest.param(2, 0, (2, 0), id='numbers'),
        pytest.param('100%', '100%', (10, 10), id='all'),
    ],
)
def test_limits_of_a_rollout(surge, unavailable, expected):
    deployment = build_deployment(10, maxSurge=surge, maxUnavailable=unavailable)

    limits = rollouts.resolve_limits(deployment)

    assert (limits.surge, limits.unavailable) == expected


@pytest.mark.guarantee('SBX-001')
@pytest.mark.parametrize(
    'new, olds, expected',
    [
        pytest.param(build_set('s9', 5), [build_set('s1', 8)], {'s1': 5}, id='down-to-the-minimum'),
        pytest.param(build_set('s9', 5, 0), [build_set('s1', 8)], {}, id='new-ones-not-available'),
        pytest.param(
            build_set('s9', 5, 0), [build_set('s1', 8, 6)], {}, id='no-room-for-broken-ones'
        ),
        pytest.param(
            build_set('s9', 5),
            [build_set('s1', 3, 1), build_set('s2', 5)],
            {'s1': 0, 's2': 5},
            id='broken-ones-first',
        ),
    ],
)
def test_sizes_of_old_replica_sets(new, olds, expected):
    deployment = build_deployment(10, maxSurge=3, maxUnavailable=0)

    plan = rollouts.plan_old_sizes(deployment, new, olds)

    sizes = {item['metadata']['uid']: item['spec']['replicas'] for item in olds}
    sizes.update({item.replica_set['metadata']['uid']: item.replicas for item in plan})
    unchanged = {item['metadata']['uid']: item['spec']['replicas'] for item in olds}
    assert sizes == {**unchanged, **expected}


@pytest.mark.guarantee('SBX-001')
@pytest.mark.parametrize(
    'desired, sizes, expected',
    [
        pytest.param(15, {'s1': 8, 's2': 5}, {'s1': 11, 's2': 7}, id='up'),
        pytest.param(5, {'s1': 8, 's2': 5}, {'s1': 5, 's2': 3}, id='down'),
        pytest.param(0, {'s1': 8, 's2': 5}, {'s1': 0, 's2': 0}, id='to-nothing'),
    ],
)
def test_deployment_is_scaled_in_proportion_in_the_middle_of_a_rollout(desired, sizes, expected):
    deployment = build_deployment(desired, maxSurge=3, maxUnavailable=2)
    old, new = (build_set(uid, count, size=13) for uid, count in sizes.items())

    plan = rollouts.plan_scaling(deployment, new, [old])

    assert {item.replica_set['metadata']['uid']: item.replicas for item in plan} == expected


@pytest.mark.guarantee('SBX-003')
@pytest.mark.parametrize(
    'numbers, text',
    [
        pytest.param([], '', id='none'),
        pytest.param([3], '3', id='one'),
        pytest.param([0, 1], '0,1', id='pair'),
        pytest.param([0, 1, 2, 5, 7, 8], '0-2,5,7,8', id='ranges'),
    ],
)
def test_indexes_are_written_as_ranges(numbers, text):
    assert indexes.format_indexes(numbers) == text
    assert indexes.parse_indexes(text) == set(numbers)


@pytest.mark.guarantee('SBX-003')
@pytest.mark.parametrize('text', [None, 'x', '1-x', '-', ',,'])
def test_wrong_indexes_are_ignored(text):
    assert indexes.parse_indexes(text) == set()


@pytest.mark.guarantee('SBX-003')
@pytest.mark.parametrize(
    'ends, expected',
    [
        pytest.param('', 0.0, id='nothing'),
        pytest.param('F', 10.0, id='failure'),
        pytest.param('FF', 20.0, id='two-failures'),
        pytest.param('FFS', 0.0, id='success'),
        pytest.param('FFSF', 10.0, id='failure-after-success'),
        pytest.param('F' * 20, 600.0, id='limit'),
    ],
)
def test_delays_after_failures_of_jobs(ends, expected):
    now = pod_states.parse_time('2026-01-01T00:00:00Z')
    pods = [
        {
            'metadata': {'creationTimestamp': f'2026-01-01T00:00:00.{number:02}Z'},
            'status': {'phase': {'F': 'Failed', 'S': 'Succeeded'}[end]},
        }
        for number, end in enumerate(ends)
    ]

    assert job_plans.measure_backoff({}, pods, now) == pytest.approx(expected, abs=1)


@pytest.mark.guarantee('SBX-001')
def test_pods_to_delete_are_those_that_are_missed_least():
    def build(name, node='n1', phase='Running', ready=True, **annotations):
        condition = {'type': 'Ready', 'status': str(ready), 'lastTransitionTime': '2026-01-01'}
        return {
            'metadata': {'name': name, 'annotations': annotations, 'creationTimestamp': '2026'},
            'spec': {'nodeName': node} if node else {},
            'status': {'phase': phase, 'conditions': [condition]},
        }

    cost = {'controller.kubernetes.io/pod-deletion-cost': '-5'}
    pods = [
        build('good', node='n2'),
        build('crowded'),
        build('cheap', **cost),
        build('unready', ready=False),
        build('pending', phase='Pending', ready=False),
        build('unassigned', node='', phase='Pending', ready=False),
    ]

    ordered = pod_states.sort_for_deletion(pods, {'n1': 4, 'n2': 1})

    names = [pod['metadata']['name'] for pod in ordered]
    assert names == ['unassigned', 'pending', 'unready', 'cheap', 'crowded', 'good']


@pytest.mark.guarantee('SBX-008')
@pytest.mark.parametrize(
    'toleration, expected',
    [
        pytest.param({'key': 'k', 'value': 'v', 'effect': 'NoSchedule'}, True, id='equal'),
        pytest.param({'key': 'k', 'value': 'x'}, False, id='other-value'),
        pytest.param({'key': 'k', 'operator': 'Exists'}, True, id='exists'),
        pytest.param({'operator': 'Exists'}, True, id='everything'),
        pytest.param({'key': 'k', 'operator': 'Exists', 'effect': 'NoExecute'}, False, id='effect'),
        pytest.param({}, False, id='empty'),
    ],
)
def test_tolerations_of_taints(toleration, expected):
    taint = {'key': 'k', 'value': 'v', 'effect': 'NoSchedule'}

    assert scheduling.is_tolerated(taint, [toleration]) is expected


@pytest.mark.guarantee('SBX-008')
@pytest.mark.parametrize(
    'term, expected',
    [
        pytest.param({'key': 'size', 'operator': 'In', 'values': ['5']}, True, id='in'),
        pytest.param({'key': 'size', 'operator': 'NotIn', 'values': ['5']}, False, id='not-in'),
        pytest.param({'key': 'size', 'operator': 'Exists'}, True, id='exists'),
        pytest.param({'key': 'size', 'operator': 'DoesNotExist'}, False, id='absent'),
        pytest.param({'key': 'size', 'operator': 'Gt', 'values': ['4']}, True, id='greater'),
        pytest.param({'key': 'size', 'operator': 'Lt', 'values': ['4']}, False, id='less'),
    ],
)
def test_required_affinity_to_nodes(term, expected):
    required = {'nodeSelectorTerms': [{'matchExpressions': [term]}]}
    name = 'requiredDuringSchedulingIgnoredDuringExecution'
    spec = {'affinity': {'nodeAffinity': {name: required}}}
    node = {'metadata': {'name': 'n1', 'labels': {'size': '5'}}}

    assert scheduling.matches_node(spec, node) is expected


@pytest.mark.guarantee('SBX-008')
@pytest.mark.parametrize(
    'annotations, expected',
    [
        pytest.param({}, (1.0, math.inf, 0), id='server'),
        pytest.param({behaviours.READY_AFTER: '7'}, (7.0, math.inf, 0), id='slow'),
        pytest.param({behaviours.RUNS_FOR: '3'}, (1.0, 3.0, 0), id='short'),
        pytest.param({behaviours.EXIT_CODE: '2'}, (1.0, 1.0, 2), id='failing'),
        pytest.param({behaviours.READY_AFTER: 'soon'}, (1.0, math.inf, 0), id='not-a-number'),
        pytest.param({behaviours.READY_AFTER: '-1'}, (1.0, math.inf, 0), id='negative'),
    ],
)
def test_behaviours_by_annotations(annotations, expected):
    pod = samples.build_pod()
    pod['metadata']['annotations'] = annotations

    chosen = behaviours.choose_behaviour(pod, options.Workloads(), frozenset())

    assert (chosen.ready_after, chosen.runs_for, chosen.exit_code) == expected


@pytest.mark.guarantee('SBX-009')
def test_delays_of_restarts_grow_up_to_a_limit():
    pod = samples.build_pod()
    behaviour = behaviours.Behaviour(ready_after=0, runs_for=0, exit_code=1)
    life, now, delays = pod_lives.begin(pod), 0.0, []

    while len(delays) < 8:
        life = pod_lives.advance(pod, life, behaviour, pod_lives.Moment(now, 'now'))
        delays.append(life.due - now)
        now = life.due

    assert delays == [10, 20, 40, 80, 160, 300, 300, 300]
