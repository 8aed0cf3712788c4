import datetime
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._sandbox.endpoints import columns
from kopf._sandbox.meta import kinds

NOW = datetime.datetime(2024, 6, 1, 12, 0, 0, tzinfo=datetime.UTC)
CREATED = '2024-06-01T11:00:00Z'  # 60 minutes ago

TEMPLATE = {
    'metadata': {'labels': {'app': 'web'}},
    'spec': {'containers': [{'name': 'c1', 'image': 'i1'}, {'name': 'c2', 'image': 'i2'}]},
}
SELECTOR = {'matchLabels': {'app': 'web'}}
RICH_TEMPLATE = {**TEMPLATE, 'metadata': {'labels': {'app': 'web', 'b': '1', 'tier': 'x'}}}
RICH_SELECTOR = {
    'matchLabels': {'b': '1'},
    'matchExpressions': [
        {'key': 'tier', 'operator': 'In', 'values': ['y', 'x']},
        {'key': 'app', 'operator': 'Exists'},
        {'key': 'zone', 'operator': 'DoesNotExist'},
        {'key': 'c', 'operator': 'NotIn', 'values': ['1']},
    ],
}
ONCE_TEMPLATE = {'spec': {'restartPolicy': 'Never', 'containers': [{'name': 'c1', 'image': 'i1'}]}}


def build_resource(obj):
    group, version = kinds.split_api_version(obj['apiVersion'])
    return kinds.Resource(group, version, '', '', obj['kind'], namespaced=True, verbs=())


def build_hpa(metrics, current=()):
    target = {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'name': 'd'}
    spec = {'minReplicas': 2, 'maxReplicas': 9, 'scaleTargetRef': target, 'metrics': metrics}
    return spec, {'currentReplicas': 3, 'desiredReplicas': 3, 'currentMetrics': list(current)}


def case(api_version, kind, expected, *, id, metadata=None, **fields):
    obj = {
        'apiVersion': api_version,
        'kind': kind,
        'metadata': {'name': 'x', 'creationTimestamp': CREATED, **(metadata or {})},
        **fields,
    }
    return pytest.param(obj, expected, id=id)


WORKLOADS = [
    case(
        'apps/v1',
        'Deployment',
        ['x', '2/3', 1, 2, '60m', 'c1,c2', 'i1,i2', 'app=web'],
        id='deployment',
        spec={'replicas': 3, 'selector': SELECTOR, 'template': TEMPLATE},
        status={'replicas': 3, 'readyReplicas': 2, 'updatedReplicas': 1, 'availableReplicas': 2},
    ),
    case(
        'apps/v1',
        'Deployment',
        ['x', '0/0', 0, 0, '60m', 'c1,c2', 'i1,i2', 'app,b=1,c notin (1),tier in (x,y),!zone'],
        id='deployment-rich',
        spec={'replicas': 0, 'selector': RICH_SELECTOR, 'template': RICH_TEMPLATE},
    ),
    case(
        'apps/v1',
        'ReplicaSet',
        ['x', 3, 2, 1, '60m', 'c1,c2', 'i1,i2', 'app=web'],
        id='replicaset',
        spec={'replicas': 3, 'selector': SELECTOR, 'template': TEMPLATE},
        status={'replicas': 2, 'readyReplicas': 1},
    ),
    case(
        'v1',
        'ReplicationController',
        ['x', 3, 2, 1, '60m', 'c1,c2', 'i1,i2', 'app=web'],
        id='replicationcontroller',
        spec={'replicas': 3, 'selector': {'app': 'web'}, 'template': TEMPLATE},
        status={'replicas': 2, 'readyReplicas': 1},
    ),
    case(
        'apps/v1',
        'StatefulSet',
        ['x', '1/3', '60m', 'c1,c2', 'i1,i2'],
        id='statefulset',
        spec={'replicas': 3, 'serviceName': 's', 'selector': SELECTOR, 'template': TEMPLATE},
        status={'replicas': 3, 'readyReplicas': 1},
    ),
    case(
        'apps/v1',
        'DaemonSet',
        ['x', 5, 4, 3, 2, 1, 'disk=ssd', '60m', 'c1', 'i1', 'app=web'],
        id='daemonset',
        spec={
            'selector': SELECTOR,
            'template': {
                'metadata': {'labels': {'app': 'web'}},
                'spec': {
                    'nodeSelector': {'disk': 'ssd'},
                    'containers': [{'name': 'c1', 'image': 'i1'}],
                },
            },
        },
        status={
            'desiredNumberScheduled': 5,
            'currentNumberScheduled': 4,
            'numberReady': 3,
            'numberMisscheduled': 0,
            'updatedNumberScheduled': 2,
            'numberAvailable': 1,
        },
    ),
    case(
        'apps/v1',
        'ControllerRevision',
        ['x', 'statefulset.apps/web', 7, '60m'],
        id='controllerrevision',
        data={},
        revision=7,
        metadata={
            'ownerReferences': [
                {
                    'apiVersion': 'apps/v1',
                    'kind': 'StatefulSet',
                    'name': 'web',
                    'uid': 'u',
                    'controller': True,
                }
            ]
        },
    ),
    case(
        'apps/v1',
        'ControllerRevision',
        ['x', '<none>', 1, '60m'],
        id='controllerrevision-orphan',
        data={},
        revision=1,
    ),
    case(
        'v1', 'PodTemplate', ['x', 'c1,c2', 'i1,i2', 'app=web'], id='podtemplate', template=TEMPLATE
    ),
    case(
        'policy/v1',
        'PodDisruptionBudget',
        ['x', '50%', 'N/A', 2, '60m'],
        id='poddisruptionbudget-min',
        spec={'minAvailable': '50%', 'selector': SELECTOR},
        status={
            'disruptionsAllowed': 2,
            'currentHealthy': 3,
            'desiredHealthy': 1,
            'expectedPods': 3,
        },
    ),
    case(
        'policy/v1',
        'PodDisruptionBudget',
        ['x', 'N/A', '1', 0, '60m'],
        id='poddisruptionbudget-max',
        spec={'maxUnavailable': 1, 'selector': SELECTOR},
    ),
]

JOBS = [
    case(
        'batch/v1',
        'Job',
        ['x', 'Running', '0/1', '', '60m', 'c1', 'i1', '<none>'],
        id='job-fresh',
        spec={'completions': 1, 'template': ONCE_TEMPLATE},
    ),
    case(
        'batch/v1',
        'Job',
        ['x', 'Running', '1/1 of 4', '20m', '60m', 'c1', 'i1', '<none>'],
        id='job-parallel',
        spec={'parallelism': 4, 'template': ONCE_TEMPLATE},
        status={'succeeded': 1, 'startTime': '2024-06-01T11:40:00Z'},
    ),
    case(
        'batch/v1',
        'Job',
        ['x', 'Complete', '3/3', '10m', '60m', 'c1', 'i1', '<none>'],
        id='job-complete',
        spec={'completions': 3, 'template': ONCE_TEMPLATE},
        status={
            'succeeded': 3,
            'startTime': '2024-06-01T11:40:00Z',
            'completionTime': '2024-06-01T11:50:00Z',
            'conditions': [
                {'type': 'SuccessCriteriaMet', 'status': 'True'},
                {'type': 'Complete', 'status': 'True'},
            ],
        },
    ),
    case(
        'batch/v1',
        'Job',
        ['x', 'Failed', '0/1', '20m', '60m', 'c1', 'i1', '<none>'],
        id='job-failed',
        spec={'completions': 1, 'template': ONCE_TEMPLATE},
        status={
            'failed': 1,
            'startTime': '2024-06-01T11:40:00Z',
            'conditions': [
                {'type': 'FailureTarget', 'status': 'True'},
                {'type': 'Failed', 'status': 'True'},
            ],
        },
    ),
    case(
        'batch/v1',
        'Job',
        ['x', 'Suspended', '0/1', '', '60m', 'c1', 'i1', '<none>'],
        id='job-suspended',
        spec={'completions': 1, 'suspend': True, 'template': ONCE_TEMPLATE},
        status={'conditions': [{'type': 'Suspended', 'status': 'True'}]},
    ),
    case(
        'batch/v1',
        'CronJob',
        ['x', '* * * * *', '<none>', 'False', 0, '<none>', '60m', 'c1', 'i1', '<none>'],
        id='cronjob-fresh',
        spec={
            'schedule': '* * * * *',
            'suspend': False,
            'jobTemplate': {'spec': {'template': ONCE_TEMPLATE}},
        },
    ),
    case(
        'batch/v1',
        'CronJob',
        ['x', '@daily', 'Europe/Paris', 'True', 1, '10m', '60m', 'c1', 'i1', '<none>'],
        id='cronjob',
        spec={
            'schedule': '@daily',
            'timeZone': 'Europe/Paris',
            'suspend': True,
            'jobTemplate': {'spec': {'template': ONCE_TEMPLATE}},
        },
        status={'active': [{'name': 'j'}], 'lastScheduleTime': '2024-06-01T11:50:00Z'},
    ),
]


def autoscaler(targets, metrics, current=(), *, id):
    spec, status = build_hpa(metrics, current)
    return case(
        'autoscaling/v2',
        'HorizontalPodAutoscaler',
        ['x', 'Deployment/d', targets, '2', 9, 3, '60m'],
        id=f'hpa-{id}',
        spec=spec,
        status=status,
    )


CPU = {
    'type': 'Resource',
    'resource': {'name': 'cpu', 'target': {'type': 'Utilization', 'averageUtilization': 80}},
}
CPU_NOW = {
    'type': 'Resource',
    'resource': {'name': 'cpu', 'current': {'averageUtilization': 42, 'averageValue': '100m'}},
}
MEMORY = {
    'type': 'Resource',
    'resource': {'name': 'memory', 'target': {'type': 'AverageValue', 'averageValue': '1Gi'}},
}
MEMORY_NOW = {
    'type': 'Resource',
    'resource': {'name': 'memory', 'current': {'averageValue': '500Mi'}},
}
PODS = {
    'type': 'Pods',
    'pods': {'metric': {'name': 'm'}, 'target': {'type': 'AverageValue', 'averageValue': '10'}},
}
EXTERNAL = {
    'type': 'External',
    'external': {'metric': {'name': 'm'}, 'target': {'type': 'Value', 'value': '5'}},
}
EXTERNAL_NOW = {
    'type': 'External',
    'external': {'metric': {'name': 'm'}, 'current': {'value': '3'}},
}
EXTERNAL_AVG = {
    'type': 'External',
    'external': {'metric': {'name': 'm'}, 'target': {'type': 'AverageValue', 'averageValue': '5'}},
}
OBJECT = {
    'type': 'Object',
    'object': {
        'describedObject': {'kind': 'Service', 'name': 's', 'apiVersion': 'v1'},
        'metric': {'name': 'm'},
        'target': {'type': 'Value', 'value': '2k'},
    },
}
CONTAINER = {
    'type': 'ContainerResource',
    'containerResource': {
        'name': 'cpu',
        'container': 'c',
        'target': {'type': 'Utilization', 'averageUtilization': 60},
    },
}

AUTOSCALERS = [
    case(
        'autoscaling/v1',
        'Scale',
        ['x', 3, 2, '60m'],
        id='scale',
        spec={'replicas': 3},
        status={'replicas': 2},
    ),
    case('autoscaling/v1', 'Scale', ['x', 0, 0, '60m'], id='scale-of-nothing'),
    autoscaler('cpu: <unknown>/80%', [CPU], id='fresh'),
    autoscaler(
        'cpu: 42%/80%, memory: 500Mi/1Gi', [CPU, MEMORY], [CPU_NOW, MEMORY_NOW], id='measured'
    ),
    autoscaler(
        '<unknown>/10, 3/5',
        [PODS, EXTERNAL],
        [{'type': 'Pods'}, EXTERNAL_NOW],
        id='partly-measured',
    ),
    autoscaler(
        'cpu: <unknown>/80%, <unknown>/5 (avg) + 2 more...',
        [CPU, EXTERNAL_AVG, OBJECT, CONTAINER],
        id='many',
    ),
    autoscaler('<unknown>/2k, cpu: <unknown>/60%', [OBJECT, CONTAINER], id='object-and-container'),
    case(
        'autoscaling/v1',
        'HorizontalPodAutoscaler',
        ['x', 'Deployment/d', 'cpu: 30%/50%', '2', 9, 3, '60m'],
        id='hpa-v1',
        spec={
            'minReplicas': 2,
            'maxReplicas': 9,
            'targetCPUUtilizationPercentage': 50,
            'scaleTargetRef': {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'name': 'd'},
        },
        status={'currentReplicas': 3, 'desiredReplicas': 3, 'currentCPUUtilizationPercentage': 30},
    ),
]

NETWORKS = [
    case(
        'v1',
        'Service',
        ['x', 'ClusterIP', '10.0.0.9', '<none>', '80/TCP,53/UDP', '60m', 'app=web'],
        id='service',
        spec={
            'type': 'ClusterIP',
            'clusterIP': '10.0.0.9',
            'clusterIPs': ['10.0.0.9'],
            'selector': {'app': 'web'},
            'ports': [
                {'name': 'a', 'port': 80, 'protocol': 'TCP'},
                {'name': 'b', 'port': 53, 'protocol': 'UDP'},
            ],
        },
    ),
    case(
        'v1',
        'Service',
        ['x', 'ClusterIP', 'None', '1.2.3.4,1.2.3.5', '<none>', '60m', '<none>'],
        id='service-headless',
        spec={
            'type': 'ClusterIP',
            'clusterIP': 'None',
            'clusterIPs': ['None'],
            'externalIPs': ['1.2.3.4', '1.2.3.5'],
        },
    ),
    case(
        'v1',
        'Service',
        ['x', 'NodePort', '10.0.0.10', '<none>', '80:30999/TCP', '60m', '<none>'],
        id='service-nodeport',
        spec={
            'type': 'NodePort',
            'clusterIP': '10.0.0.10',
            'clusterIPs': ['10.0.0.10'],
            'ports': [{'port': 80, 'nodePort': 30999, 'protocol': 'TCP'}],
        },
    ),
    case(
        'v1',
        'Service',
        ['x', 'LoadBalancer', '10.0.0.11', '<pending>', '80:30998/TCP', '60m', '<none>'],
        id='service-pending',
        spec={
            'type': 'LoadBalancer',
            'clusterIP': '10.0.0.11',
            'clusterIPs': ['10.0.0.11'],
            'ports': [{'port': 80, 'nodePort': 30998, 'protocol': 'TCP'}],
        },
    ),
    case(
        'v1',
        'Service',
        [
            'x',
            'LoadBalancer',
            '10.0.0.12',
            '5.6.7.8,a-very-long-name.example.com,1.2.3.4',
            '80:30997/TCP',
            '60m',
            '<none>',
        ],
        id='service-balanced',
        spec={
            'type': 'LoadBalancer',
            'clusterIP': '10.0.0.12',
            'clusterIPs': ['10.0.0.12'],
            'externalIPs': ['1.2.3.4'],
            'ports': [{'port': 80, 'nodePort': 30997, 'protocol': 'TCP'}],
        },
        status={
            'loadBalancer': {
                'ingress': [{'hostname': 'a-very-long-name.example.com'}, {'ip': '5.6.7.8'}]
            }
        },
    ),
    case(
        'v1',
        'Service',
        ['x', 'ExternalName', '<none>', 'example.com', '<none>', '60m', '<none>'],
        id='service-external',
        spec={'type': 'ExternalName', 'externalName': 'example.com'},
    ),
    case('v1', 'Endpoints', ['x', '<none>', '60m'], id='endpoints-none'),
    case(
        'v1',
        'Endpoints',
        ['x', '10.1.0.1:80,10.1.0.2:80,10.1.0.1:443 + 1 more...', '60m'],
        id='endpoints',
        subsets=[
            {
                'addresses': [{'ip': '10.1.0.1'}, {'ip': '10.1.0.2'}],
                'ports': [{'name': 'a', 'port': 80}, {'name': 'b', 'port': 443}],
            }
        ],
    ),
    case(
        'v1',
        'Endpoints',
        ['x', '10.1.0.1', '60m'],
        id='endpoints-portless',
        subsets=[{'addresses': [{'ip': '10.1.0.1'}]}],
    ),
    case(
        'discovery.k8s.io/v1',
        'EndpointSlice',
        ['x', 'IPv4', '80,', '10.1.0.1,10.1.0.2,10.1.0.3 + 2 more...', '60m'],
        id='endpointslice',
        addressType='IPv4',
        ports=[{'name': 'a', 'port': 80}, {'name': ''}],
        endpoints=[{'addresses': [f'10.1.0.{index}']} for index in range(1, 6)],
    ),
    case(
        'discovery.k8s.io/v1',
        'EndpointSlice',
        ['x', 'FQDN', '<unset>', '<unset>', '60m'],
        id='endpointslice-empty',
        addressType='FQDN',
        endpoints=[],
    ),
    case(
        'networking.k8s.io/v1',
        'Ingress',
        ['x', '<none>', '*', '', '80', '60m'],
        id='ingress-default',
        spec={'defaultBackend': {'service': {'name': 's', 'port': {'number': 80}}}},
    ),
    case(
        'networking.k8s.io/v1',
        'Ingress',
        ['x', 'nginx', 'a.io,b.io,c.io + 1 more...', '1.1.1.1,lb.io', '80, 443', '60m'],
        id='ingress',
        spec={
            'ingressClassName': 'nginx',
            'tls': [{'hosts': ['a.io']}],
            'rules': [{'host': host} for host in ('a.io', 'b.io', 'c.io', 'd.io')],
        },
        status={'loadBalancer': {'ingress': [{'hostname': 'lb.io'}, {'ip': '1.1.1.1'}]}},
    ),
    case(
        'networking.k8s.io/v1',
        'IngressClass',
        ['x', 'example.com/c', '<none>', '60m'],
        id='ingressclass',
        spec={'controller': 'example.com/c'},
    ),
    case(
        'networking.k8s.io/v1',
        'IngressClass',
        ['x', 'example.com/c', 'Params.example.com/p', '60m'],
        id='ingressclass-parameters',
        spec={
            'controller': 'example.com/c',
            'parameters': {
                'apiGroup': 'example.com',
                'kind': 'Params',
                'name': 'p',
                'scope': 'Cluster',
            },
        },
    ),
    case(
        'networking.k8s.io/v1',
        'NetworkPolicy',
        ['x', '<none>', '60m'],
        id='networkpolicy-all',
        spec={'podSelector': {}},
    ),
    case(
        'networking.k8s.io/v1',
        'NetworkPolicy',
        ['x', 'app=web', '60m'],
        id='networkpolicy',
        spec={'podSelector': SELECTOR},
    ),
]


@pytest.mark.parametrize('obj, expected', [*WORKLOADS, *JOBS, *AUTOSCALERS, *NETWORKS])
def test_builtin_objects_are_shown_as_the_api_shows_them(obj, expected):
    printer = columns.find_printer(build_resource(obj))

    cells = printer.print(obj, NOW)

    assert list(cells) == expected
    assert len(cells) == len(printer.headers)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(CREATED),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def spoiled_objects(draw):
    """Take any of the objects above, and put anything into any of its fields."""
    obj = json.loads(
        json.dumps(draw(st.sampled_from([*WORKLOADS, *JOBS, *AUTOSCALERS, *NETWORKS])).values[0])
    )
    node = obj
    while True:
        keys = [
            key
            for key in (range(len(node)) if isinstance(node, list) else node)
            if key not in ('apiVersion', 'kind')
        ]
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or draw(st.booleans()):
            node[key] = draw(JSON)
            break
        node = node[key]
    return obj


@settings(max_examples=200, deadline=None)
@given(spoiled_objects())
def test_malformed_fields_never_break_the_printers(obj):
    printer = columns.find_printer(build_resource(obj))

    cells = printer.print(obj, NOW)

    assert len(cells) == len(printer.headers)
