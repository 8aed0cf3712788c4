import pytest

from kopf._sandbox.codec import decoding
from kopf._sandbox.meta import builtins
from kopf._sandbox.registry import defaulting

CONTAINER = {'name': 'c', 'image': 'i'}
DEFAULT_CONTAINER = {
    'name': 'c',
    'image': 'i',
    'resources': {},
    'terminationMessagePath': '/dev/termination-log',
    'terminationMessagePolicy': 'File',
    'imagePullPolicy': 'Always',
}
TEMPLATE = {'metadata': {'labels': {'a': 'b'}}, 'spec': {'containers': [CONTAINER]}}
DEFAULT_SPEC = {
    'containers': [DEFAULT_CONTAINER],
    'restartPolicy': 'Always',
    'terminationGracePeriodSeconds': 30,
    'dnsPolicy': 'ClusterFirst',
    'securityContext': {},
    'schedulerName': 'default-scheduler',
}
DEFAULT_TEMPLATE = {'metadata': {'labels': {'a': 'b'}}, 'spec': DEFAULT_SPEC}
SELECTOR = {'matchLabels': {'a': 'b'}}
PROBE = {'timeoutSeconds': 1, 'periodSeconds': 10, 'successThreshold': 1, 'failureThreshold': 3}
RBAC = 'rbac.authorization.k8s.io'


def fill_in(api_version, kind, **content):
    group, _, version = api_version.rpartition('/')
    obj = {'apiVersion': api_version, 'kind': kind, 'metadata': {'name': 'x'}, **content}
    schema = builtins.load_schema(builtins.load_definition_names()[group, version, kind])
    decoding.decode_object(obj, schema, kind=kind, version=version)
    defaulting.apply_kind_defaults(group, version, kind, obj)
    return {
        name: value
        for name, value in obj.items()
        if name not in ('apiVersion', 'kind', 'metadata', 'status')
    }


@pytest.mark.parametrize(
    'api_version, kind, spec, expected',
    [
        pytest.param(
            'v1',
            'Pod',
            {'containers': [CONTAINER]},
            {**DEFAULT_SPEC, 'enableServiceLinks': True},
            id='pod',
        ),
        pytest.param(
            'apps/v1',
            'Deployment',
            {'selector': SELECTOR, 'template': TEMPLATE},
            {
                'replicas': 1,
                'selector': SELECTOR,
                'template': DEFAULT_TEMPLATE,
                'revisionHistoryLimit': 10,
                'progressDeadlineSeconds': 600,
                'strategy': {
                    'type': 'RollingUpdate',
                    'rollingUpdate': {'maxUnavailable': '25%', 'maxSurge': '25%'},
                },
            },
            id='deployment',
        ),
        pytest.param(
            'apps/v1',
            'Deployment',
            {
                'selector': SELECTOR,
                'template': TEMPLATE,
                'replicas': 0,
                'strategy': {'type': 'Recreate'},
            },
            {
                'replicas': 0,
                'selector': SELECTOR,
                'template': DEFAULT_TEMPLATE,
                'revisionHistoryLimit': 10,
                'progressDeadlineSeconds': 600,
                'strategy': {'type': 'Recreate'},
            },
            id='deployment-recreated',
        ),
        pytest.param(
            'apps/v1',
            'ReplicaSet',
            {'selector': SELECTOR, 'template': TEMPLATE},
            {'replicas': 1, 'selector': SELECTOR, 'template': DEFAULT_TEMPLATE},
            id='replica-set',
        ),
        pytest.param(
            'apps/v1',
            'StatefulSet',
            {'selector': SELECTOR, 'template': TEMPLATE},
            {
                'replicas': 1,
                'selector': SELECTOR,
                'template': DEFAULT_TEMPLATE,
                'serviceName': '',
                'revisionHistoryLimit': 10,
                'podManagementPolicy': 'OrderedReady',
                'updateStrategy': {'type': 'RollingUpdate', 'rollingUpdate': {'partition': 0}},
                'persistentVolumeClaimRetentionPolicy': {
                    'whenDeleted': 'Retain',
                    'whenScaled': 'Retain',
                },
            },
            id='stateful-set',
        ),
        pytest.param(
            'apps/v1',
            'DaemonSet',
            {'selector': SELECTOR, 'template': TEMPLATE},
            {
                'selector': SELECTOR,
                'template': DEFAULT_TEMPLATE,
                'revisionHistoryLimit': 10,
                'updateStrategy': {
                    'type': 'RollingUpdate',
                    'rollingUpdate': {'maxUnavailable': 1, 'maxSurge': 0},
                },
            },
            id='daemon-set',
        ),
        pytest.param(
            'batch/v1',
            'Job',
            {'template': TEMPLATE},
            {
                'parallelism': 1,
                'completions': 1,
                'backoffLimit': 6,
                'manualSelector': False,
                'template': DEFAULT_TEMPLATE,
                'completionMode': 'NonIndexed',
                'suspend': False,
                'podReplacementPolicy': 'TerminatingOrFailed',
            },
            id='job',
        ),
        pytest.param(
            'batch/v1',
            'Job',
            {
                'template': TEMPLATE,
                'parallelism': 3,
                'podFailurePolicy': {
                    'rules': [
                        {'action': 'Ignore', 'onPodConditions': [{'type': 'DisruptionTarget'}]}
                    ]
                },
            },
            {
                'parallelism': 3,
                'backoffLimit': 6,
                'manualSelector': False,
                'template': DEFAULT_TEMPLATE,
                'completionMode': 'NonIndexed',
                'suspend': False,
                'podReplacementPolicy': 'Failed',
                'podFailurePolicy': {
                    'rules': [
                        {
                            'action': 'Ignore',
                            'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}],
                        }
                    ]
                },
            },
            id='job-in-parallel',
        ),
        pytest.param(
            'batch/v1',
            'CronJob',
            {'schedule': '@daily', 'jobTemplate': {'spec': {'template': TEMPLATE}}},
            {
                'schedule': '@daily',
                'concurrencyPolicy': 'Allow',
                'suspend': False,
                'successfulJobsHistoryLimit': 3,
                'failedJobsHistoryLimit': 1,
                'jobTemplate': {'metadata': {}, 'spec': {'template': DEFAULT_TEMPLATE}},
            },
            id='cron-job',
        ),
        pytest.param(
            'v1',
            'Service',
            {'ports': [{'port': 80}, {'port': 81, 'protocol': 'UDP', 'targetPort': 'x'}]},
            {
                'type': 'ClusterIP',
                'sessionAffinity': 'None',
                'internalTrafficPolicy': 'Cluster',
                'ports': [
                    {'port': 80, 'protocol': 'TCP', 'targetPort': 80},
                    {'port': 81, 'protocol': 'UDP', 'targetPort': 'x'},
                ],
            },
            id='service',
        ),
        pytest.param(
            'v1',
            'Service',
            {'type': 'LoadBalancer', 'sessionAffinity': 'ClientIP'},
            {
                'type': 'LoadBalancer',
                'sessionAffinity': 'ClientIP',
                'externalTrafficPolicy': 'Cluster',
                'sessionAffinityConfig': {'clientIP': {'timeoutSeconds': 10800}},
                'allocateLoadBalancerNodePorts': True,
                'internalTrafficPolicy': 'Cluster',
            },
            id='service-balanced',
        ),
        pytest.param(
            'v1',
            'Service',
            {'type': 'ExternalName', 'externalName': 'a.b'},
            {'type': 'ExternalName', 'externalName': 'a.b', 'sessionAffinity': 'None'},
            id='service-external',
        ),
        pytest.param(
            'v1',
            'PersistentVolumeClaim',
            {'accessModes': ['ReadWriteOnce']},
            {'accessModes': ['ReadWriteOnce'], 'resources': {}, 'volumeMode': 'Filesystem'},
            id='claim',
        ),
        pytest.param(
            'v1',
            'PersistentVolume',
            {'hostPath': {'path': '/x'}},
            {
                'hostPath': {'path': '/x', 'type': ''},
                'persistentVolumeReclaimPolicy': 'Retain',
                'volumeMode': 'Filesystem',
            },
            id='volume',
        ),
        pytest.param(
            'networking.k8s.io/v1',
            'NetworkPolicy',
            {'egress': [{'ports': [{'port': 80}]}]},
            {
                'podSelector': {},
                'egress': [{'ports': [{'port': 80, 'protocol': 'TCP'}]}],
                'policyTypes': ['Ingress', 'Egress'],
            },
            id='network-policy',
        ),
        pytest.param(
            'autoscaling/v2',
            'HorizontalPodAutoscaler',
            {
                'maxReplicas': 3,
                'scaleTargetRef': {'kind': 'K', 'name': 'n', 'apiVersion': 'g/v'},
                'behavior': {'scaleDown': {'selectPolicy': 'Min'}},
            },
            {
                'minReplicas': 1,
                'maxReplicas': 3,
                'scaleTargetRef': {'kind': 'K', 'name': 'n', 'apiVersion': 'g/v'},
                'metrics': [
                    {
                        'type': 'Resource',
                        'resource': {
                            'name': 'cpu',
                            'target': {'type': 'Utilization', 'averageUtilization': 80},
                        },
                    }
                ],
                'behavior': {
                    'scaleUp': {
                        'stabilizationWindowSeconds': 0,
                        'selectPolicy': 'Max',
                        'policies': [
                            {'type': 'Pods', 'value': 4, 'periodSeconds': 15},
                            {'type': 'Percent', 'value': 100, 'periodSeconds': 15},
                        ],
                    },
                    'scaleDown': {
                        'selectPolicy': 'Min',
                        'policies': [{'type': 'Percent', 'value': 100, 'periodSeconds': 15}],
                    },
                },
            },
            id='autoscaler',
        ),
    ],
)
def test_specs_get_the_defaults_of_their_kinds(api_version, kind, spec, expected):
    assert fill_in(api_version, kind, spec=spec) == {'spec': expected}


@pytest.mark.parametrize(
    'api_version, kind, content, expected',
    [
        pytest.param(
            'v1',
            'Secret',
            {'stringData': {'a': 'b'}, 'data': {'a': 'eA==', 'c': 'eA=='}},
            {'type': 'Opaque', 'data': {'a': 'Yg==', 'c': 'eA=='}},
            id='secret',
        ),
        pytest.param(
            'storage.k8s.io/v1',
            'StorageClass',
            {'provisioner': 'p'},
            {'provisioner': 'p', 'reclaimPolicy': 'Delete', 'volumeBindingMode': 'Immediate'},
            id='storage-class',
        ),
        pytest.param(
            'scheduling.k8s.io/v1',
            'PriorityClass',
            {},
            {'value': 0, 'preemptionPolicy': 'PreemptLowerPriority'},
            id='priority-class',
        ),
        pytest.param(
            'discovery.k8s.io/v1',
            'EndpointSlice',
            {'addressType': 'IPv4', 'ports': [{'port': 1}]},
            {
                'addressType': 'IPv4',
                'endpoints': None,
                'ports': [{'name': '', 'port': 1, 'protocol': 'TCP'}],
            },
            id='slice',
        ),
        pytest.param(
            f'{RBAC}/v1',
            'RoleBinding',
            {
                'roleRef': {'kind': 'Role', 'name': 'r'},
                'subjects': [
                    {'kind': 'User', 'name': 'u'},
                    {'kind': 'ServiceAccount', 'name': 's'},
                ],
            },
            {
                'roleRef': {'kind': 'Role', 'name': 'r', 'apiGroup': RBAC},
                'subjects': [
                    {'kind': 'User', 'name': 'u', 'apiGroup': RBAC},
                    {'kind': 'ServiceAccount', 'name': 's'},
                ],
            },
            id='binding',
        ),
        pytest.param(
            'admissionregistration.k8s.io/v1',
            'MutatingWebhookConfiguration',
            {
                'webhooks': [
                    {
                        'name': 'a.b.c',
                        'clientConfig': {'service': {'namespace': 'n', 'name': 's'}},
                        'sideEffects': 'None',
                        'admissionReviewVersions': ['v1'],
                        'rules': [{'resources': ['pods']}],
                    }
                ]
            },
            {
                'webhooks': [
                    {
                        'name': 'a.b.c',
                        'clientConfig': {'service': {'namespace': 'n', 'name': 's', 'port': 443}},
                        'sideEffects': 'None',
                        'admissionReviewVersions': ['v1'],
                        'rules': [{'resources': ['pods'], 'scope': '*'}],
                        'failurePolicy': 'Fail',
                        'matchPolicy': 'Equivalent',
                        'namespaceSelector': {},
                        'objectSelector': {},
                        'timeoutSeconds': 10,
                        'reinvocationPolicy': 'Never',
                    }
                ]
            },
            id='webhooks',
        ),
    ],
)
def test_objects_get_the_defaults_of_their_kinds(api_version, kind, content, expected):
    assert fill_in(api_version, kind, **content) == expected


@pytest.mark.parametrize(
    'image, expected',
    [
        pytest.param('i', 'Always', id='no-tag'),
        pytest.param('r.io:5000/x/i', 'Always', id='no-tag-but-port'),
        pytest.param('r.io:5000/x/i:latest', 'Always', id='latest'),
        pytest.param('a/i:v1', 'IfNotPresent', id='tag'),
        pytest.param(f'a@sha256:{"0" * 64}', 'IfNotPresent', id='digest'),
    ],
)
def test_images_that_can_change_are_always_pulled(image, expected):
    filled = fill_in('v1', 'Pod', spec={'containers': [{'name': 'c', 'image': image}]})

    assert filled['spec']['containers'][0]['imagePullPolicy'] == expected


@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param(
            {'livenessProbe': {'httpGet': {'port': 80}}},
            {'livenessProbe': {'httpGet': {'path': '/', 'port': 80, 'scheme': 'HTTP'}, **PROBE}},
            id='probe-of-http',
        ),
        pytest.param(
            {'startupProbe': {'grpc': {'port': 5}}},
            {'startupProbe': {'grpc': {'port': 5, 'service': ''}, **PROBE}},
            id='probe-of-grpc',
        ),
        pytest.param(
            {'lifecycle': {'postStart': {'httpGet': {'port': 9}}}},
            {'lifecycle': {'postStart': {'httpGet': {'path': '/', 'port': 9, 'scheme': 'HTTP'}}}},
            id='lifecycle',
        ),
        pytest.param(
            {'env': [{'name': 'A', 'valueFrom': {'fieldRef': {'fieldPath': 'metadata.name'}}}]},
            {
                'env': [
                    {
                        'name': 'A',
                        'valueFrom': {
                            'fieldRef': {'apiVersion': 'v1', 'fieldPath': 'metadata.name'}
                        },
                    }
                ]
            },
            id='environment',
        ),
        pytest.param(
            {'ports': [{'containerPort': 80}]},
            {'ports': [{'containerPort': 80, 'protocol': 'TCP'}]},
            id='ports',
        ),
        pytest.param(
            {'resources': {'limits': {'cpu': '1', 'memory': '1Gi'}, 'requests': {'cpu': '0.1'}}},
            {
                'resources': {
                    'limits': {'cpu': '1', 'memory': '1Gi'},
                    'requests': {'cpu': '100m', 'memory': '1Gi'},
                }
            },
            id='requests-from-limits',
        ),
    ],
)
def test_containers_get_their_defaults(given, expected):
    filled = fill_in('v1', 'Pod', spec={'containers': [{**CONTAINER, **given}]})

    assert filled['spec']['containers'] == [{**DEFAULT_CONTAINER, **expected}]


@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param({}, {'emptyDir': {}}, id='empty'),
        pytest.param(
            {'secret': {'secretName': 's'}},
            {'secret': {'secretName': 's', 'defaultMode': 420}},
            id='secret',
        ),
        pytest.param(
            {'configMap': {'name': 's'}},
            {'configMap': {'name': 's', 'defaultMode': 420}},
            id='config-map',
        ),
        pytest.param(
            {'hostPath': {'path': '/'}}, {'hostPath': {'path': '/', 'type': ''}}, id='host-path'
        ),
        pytest.param(
            {'projected': {'sources': [{'serviceAccountToken': {'path': 'x'}}]}},
            {
                'projected': {
                    'sources': [{'serviceAccountToken': {'path': 'x', 'expirationSeconds': 3600}}],
                    'defaultMode': 420,
                }
            },
            id='token',
        ),
    ],
)
def test_volumes_get_their_defaults(given, expected):
    filled = fill_in('v1', 'Pod', spec={'volumes': [{'name': 'v', **given}]})

    assert filled['spec']['volumes'] == [{'name': 'v', **expected}]
