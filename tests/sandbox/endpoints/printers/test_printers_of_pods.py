import datetime

import pytest

from kopf._sandbox.endpoints.printers import pods

NOW = datetime.datetime(2024, 6, 1, 12, 0, 0, tzinfo=datetime.UTC)
CREATED = '2024-06-01T11:00:00Z'  # 60 minutes ago

TERMINATED_OK = {'terminated': {'exitCode': 0, 'reason': 'Completed'}}
RUNNING = {'running': {'startedAt': CREATED}}


def build_pod(*, spec=None, status=None, containers=1, **metadata):
    named = [{'name': f'c{index}', 'image': f'image{index}'} for index in range(containers)]
    return {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {'name': 'pod', 'creationTimestamp': CREATED, **metadata},
        'spec': {'containers': named, **(spec or {})},
        'status': {'phase': 'Pending', **(status or {})},
    }


def build_status(name, state=None, **fields):
    return {
        'name': name,
        'image': 'image',
        'imageID': '',
        'ready': False,
        'restartCount': 0,
        'state': state or {},
        **fields,
    }


def build_restart(minutes):
    finished = (NOW - datetime.timedelta(minutes=minutes)).strftime('%Y-%m-%dT%H:%M:%SZ')
    return {'terminated': {'exitCode': 1, 'finishedAt': finished}}


INIT = {'initContainers': [{'name': 'i0', 'image': 'init0'}, {'name': 'i1', 'image': 'init1'}]}
SIDECAR = {'initContainers': [{'name': 'i0', 'image': 'init0', 'restartPolicy': 'Always'}]}

CASES = [
    pytest.param(build_pod(), ['0/1', 'Pending', '0'], id='fresh'),
    pytest.param(
        build_pod(status={'phase': 'Failed', 'reason': 'Evicted'}),
        ['0/1', 'Evicted', '0'],
        id='evicted',
    ),
    pytest.param(
        build_pod(
            status={
                'conditions': [
                    {'type': 'PodScheduled', 'status': 'False', 'reason': 'SchedulingGated'}
                ]
            }
        ),
        ['0/1', 'SchedulingGated', '0'],
        id='gated',
    ),
    pytest.param(
        build_pod(
            containers=2,
            status={
                'phase': 'Running',
                'containerStatuses': [
                    build_status('c0', RUNNING, ready=True),
                    build_status('c1', RUNNING, ready=False),
                ],
            },
        ),
        ['1/2', 'Running', '0'],
        id='partly-ready',
    ),
    pytest.param(
        build_pod(
            status={
                'containerStatuses': [
                    build_status('c0', {'waiting': {'reason': 'ContainerCreating'}})
                ]
            }
        ),
        ['0/1', 'ContainerCreating', '0'],
        id='creating',
    ),
    pytest.param(
        build_pod(
            status={
                'phase': 'Running',
                'containerStatuses': [
                    build_status(
                        'c0',
                        {'waiting': {'reason': 'CrashLoopBackOff'}},
                        restartCount=7,
                        lastState=build_restart(5),
                    )
                ],
            }
        ),
        ['0/1', 'CrashLoopBackOff', '7 (5m ago)'],
        id='crashing',
    ),
    pytest.param(
        build_pod(
            containers=2,
            status={
                'phase': 'Running',
                'containerStatuses': [
                    build_status(
                        'c0', RUNNING, ready=True, restartCount=1, lastState=build_restart(30)
                    ),
                    build_status(
                        'c1', RUNNING, ready=True, restartCount=2, lastState=build_restart(11)
                    ),
                ],
            },
        ),
        ['2/2', 'Running', '3 (11m ago)'],
        id='restarted',
    ),
    pytest.param(
        build_pod(
            status={
                'phase': 'Running',
                'containerStatuses': [build_status('c0', RUNNING, restartCount=4)],
            }
        ),
        ['0/1', 'Running', '4'],
        id='restarted-unknown-when',
    ),
    pytest.param(
        build_pod(
            status={'phase': 'Succeeded', 'containerStatuses': [build_status('c0', TERMINATED_OK)]}
        ),
        ['0/1', 'Completed', '0'],
        id='completed',
    ),
    pytest.param(
        build_pod(
            status={
                'phase': 'Failed',
                'containerStatuses': [
                    build_status('c0', {'terminated': {'exitCode': 1, 'reason': 'Error'}})
                ],
            }
        ),
        ['0/1', 'Error', '0'],
        id='failed',
    ),
    pytest.param(
        build_pod(
            status={
                'phase': 'Failed',
                'containerStatuses': [build_status('c0', {'terminated': {'exitCode': 3}})],
            }
        ),
        ['0/1', 'ExitCode:3', '0'],
        id='failed-with-code',
    ),
    pytest.param(
        build_pod(
            status={
                'phase': 'Failed',
                'containerStatuses': [
                    build_status('c0', {'terminated': {'exitCode': 137, 'signal': 9}})
                ],
            }
        ),
        ['0/1', 'Signal:9', '0'],
        id='killed-by-signal',
    ),
    pytest.param(
        build_pod(
            containers=2,
            status={
                'phase': 'Running',
                'conditions': [{'type': 'Ready', 'status': 'True'}],
                'containerStatuses': [
                    build_status('c0', TERMINATED_OK),
                    build_status('c1', RUNNING, ready=True),
                ],
            },
        ),
        ['1/2', 'Running', '0'],
        id='one-completed-one-running-ready',
    ),
    pytest.param(
        build_pod(
            containers=2,
            status={
                'phase': 'Running',
                'containerStatuses': [
                    build_status('c0', TERMINATED_OK),
                    build_status('c1', RUNNING, ready=True),
                ],
            },
        ),
        ['1/2', 'NotReady', '0'],
        id='one-completed-one-running-not-ready',
    ),
    pytest.param(
        build_pod(
            containers=2,
            status={
                'phase': 'Failed',
                'containerStatuses': [
                    build_status('c0', TERMINATED_OK),
                    build_status('c1', {'terminated': {'exitCode': 1, 'reason': 'OOMKilled'}}),
                ],
            },
        ),
        ['0/2', 'OOMKilled', '0'],
        id='one-completed-one-failed',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={
                'initContainerStatuses': [
                    build_status('i0', TERMINATED_OK),
                    build_status('i1', RUNNING, restartCount=2, lastState=build_restart(20)),
                ]
            },
        ),
        ['0/1', 'Init:1/2', '2 (20m ago)'],
        id='initializing',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={
                'initContainerStatuses': [
                    build_status('i0', {'waiting': {'reason': 'PodInitializing'}})
                ]
            },
        ),
        ['0/1', 'Init:0/2', '0'],
        id='initializing-waiting',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={
                'initContainerStatuses': [
                    build_status('i0', {'waiting': {'reason': 'ImagePullBackOff'}})
                ]
            },
        ),
        ['0/1', 'Init:ImagePullBackOff', '0'],
        id='initializing-pulling',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={
                'initContainerStatuses': [
                    build_status('i0', {'terminated': {'exitCode': 1, 'reason': 'Error'}})
                ]
            },
        ),
        ['0/1', 'Init:Error', '0'],
        id='initializing-failed',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={'initContainerStatuses': [build_status('i0', {'terminated': {'exitCode': 4}})]},
        ),
        ['0/1', 'Init:ExitCode:4', '0'],
        id='initializing-failed-with-code',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={
                'initContainerStatuses': [
                    build_status('i0', {'terminated': {'exitCode': 137, 'signal': 15}})
                ]
            },
        ),
        ['0/1', 'Init:Signal:15', '0'],
        id='initializing-killed',
    ),
    pytest.param(
        build_pod(
            spec=INIT,
            status={
                'phase': 'Running',
                'conditions': [{'type': 'Initialized', 'status': 'True'}],
                'initContainerStatuses': [build_status('i0', RUNNING, restartCount=5)],
                'containerStatuses': [build_status('c0', RUNNING, ready=True, restartCount=1)],
            },
        ),
        ['1/1', 'Init:0/2', '1'],
        id='initialized-nevertheless',
    ),
    pytest.param(
        build_pod(
            spec=SIDECAR,
            status={
                'phase': 'Running',
                'initContainerStatuses': [
                    build_status(
                        'i0',
                        RUNNING,
                        ready=True,
                        started=True,
                        restartCount=1,
                        lastState=build_restart(3),
                    )
                ],
                'containerStatuses': [build_status('c0', RUNNING, ready=True, restartCount=1)],
            },
        ),
        ['2/2', 'Running', '2 (3m ago)'],
        id='sidecar',
    ),
    pytest.param(
        build_pod(
            spec=SIDECAR,
            status={'initContainerStatuses': [build_status('i0', RUNNING, started=False)]},
        ),
        ['0/2', 'Init:0/1', '0'],
        id='sidecar-starting',
    ),
]


@pytest.mark.parametrize('pod, expected', CASES)
def test_pod_is_summarized_by_its_containers(pod, expected):
    cells = pods.print_pod(pod, NOW)

    assert cells == ['pod', *expected, '60m', '<none>', '<none>', '<none>', '<none>']


@pytest.mark.parametrize(
    'status, expected',
    [
        pytest.param({'phase': 'Running'}, 'Terminating', id='running'),
        pytest.param({'phase': 'Succeeded'}, 'Succeeded', id='completed'),
        pytest.param({'phase': 'Failed', 'reason': 'Evicted'}, 'Evicted', id='failed'),
        pytest.param({'phase': 'Running', 'reason': 'NodeLost'}, 'Unknown', id='node-lost'),
    ],
)
def test_deleted_pod_is_terminating_unless_it_has_ended(status, expected):
    pod = build_pod(status=status, deletionTimestamp=CREATED)

    cells = pods.print_pod(pod, NOW)

    assert cells[2] == expected


def test_wide_columns_tell_where_the_pod_runs():
    pod = build_pod(
        spec={
            'nodeName': 'node1',
            'readinessGates': [{'conditionType': 'a'}, {'conditionType': 'b'}],
        },
        status={
            'podIPs': [{'ip': '10.0.0.7'}, {'ip': 'fd00::7'}],
            'nominatedNodeName': 'node2',
            'conditions': [{'type': 'b', 'status': 'True'}],
        },
    )

    cells = pods.print_pod(pod, NOW)

    assert cells[5:] == ['10.0.0.7', 'node1', 'node2', '1/2']


@pytest.mark.parametrize(
    'phase, message',
    [
        pytest.param('Succeeded', 'The pod has completed successfully.', id='succeeded'),
        pytest.param('Failed', 'The pod failed.', id='failed'),
    ],
)
def test_rows_of_ended_pods_are_marked_as_completed(phase, message):
    conditions = pods.detect_conditions(build_pod(status={'phase': phase}))

    assert conditions == [
        {'type': 'Completed', 'status': 'True', 'reason': phase, 'message': message}
    ]


def test_rows_of_running_pods_are_not_marked():
    assert not pods.detect_conditions(build_pod(status={'phase': 'Running'}))
