import copy

import hypothesis
import hypothesis.strategies as st
import pytest

from kopf._sandbox.meta import builtins, errors
from kopf._sandbox.registry import allocations, defaulting, rules, strategies
from kopf._sandbox.registry.rules import entries
from kopf._sandbox.storage import memory

SITE = entries.Site(now='2020-01-01T00:00:00Z', allocator=allocations.Allocator(memory.Storage()))
POD = {'containers': [{'name': 'c', 'image': 'i'}]}
TEMPLATE = {'metadata': {'labels': {'a': 'b'}}, 'spec': POD}
SELECTOR = {'matchLabels': {'a': 'b'}}
WORKLOAD = {'selector': SELECTOR, 'template': TEMPLATE}
JOB = {'template': {'spec': {**POD, 'restartPolicy': 'Never'}}}
HOOK = {
    'name': 'a.b.c',
    'clientConfig': {'service': {'namespace': 'n', 'name': 's'}},
    'sideEffects': 'None',
    'admissionReviewVersions': ['v1'],
    'rules': [
        {'apiGroups': [''], 'apiVersions': ['v1'], 'resources': ['pods'], 'operations': ['CREATE']}
    ],
}
VERSIONS = {
    'Deployment': 'apps/v1',
    'ReplicaSet': 'apps/v1',
    'StatefulSet': 'apps/v1',
    'DaemonSet': 'apps/v1',
    'Job': 'batch/v1',
    'CronJob': 'batch/v1',
    'Lease': 'coordination.k8s.io/v1',
    'RoleBinding': 'rbac.authorization.k8s.io/v1',
    'Role': 'rbac.authorization.k8s.io/v1',
    'StorageClass': 'storage.k8s.io/v1',
    'PriorityClass': 'scheduling.k8s.io/v1',
    'Ingress': 'networking.k8s.io/v1',
    'NetworkPolicy': 'networking.k8s.io/v1',
    'HorizontalPodAutoscaler': 'autoscaling/v2',
    'PodDisruptionBudget': 'policy/v1',
    'EndpointSlice': 'discovery.k8s.io/v1',
    'ValidatingWebhookConfiguration': 'admissionregistration.k8s.io/v1',
}
UNSCOPED = frozenset(
    (
        'Namespace',
        'Node',
        'PersistentVolume',
        'StorageClass',
        'PriorityClass',
        'ValidatingWebhookConfiguration',
    )
)


def show(problems: list[errors.FieldError]) -> list[str]:
    return [str(problem) for problem in problems]


def split(kind):
    group, _, version = VERSIONS.get(kind, 'v1').rpartition('/')
    return group, version


def settle(kind, obj):
    group, version = split(kind)
    schema = builtins.load_schema(builtins.load_definition_names()[group, version, kind])
    assert strategies.check_types(obj, schema, kind, version) is None
    defaulting.apply_kind_defaults(group, version, kind, obj)


def make(kind, name='x', **content):
    obj = {'apiVersion': VERSIONS.get(kind, 'v1'), 'kind': kind, **copy.deepcopy(content)}
    settle(kind, obj)
    scope = {} if kind in UNSCOPED else {'namespace': 'ns'}
    obj['metadata'].update(
        name=name, uid='u', resourceVersion='5', creationTimestamp='2020-01-01T00:00:00Z', **scope
    )
    strategies.prepare_create(split(kind)[0], kind, obj, SITE)
    return obj


def validate(kind, **content):
    obj = make(kind, **content)
    return show(
        strategies.validate_create(split(kind)[0], kind, obj, namespaced=kind not in UNSCOPED)
    )


def change(kind, old, **changes):
    new = {**copy.deepcopy(old), **copy.deepcopy(changes)}
    settle(kind, new)
    strategies.prepare_update(split(kind)[0], kind, new, old, SITE)
    return new


def validate_change(kind, old, **changes):
    new = change(kind, old, **changes)
    return show(
        strategies.validate_update(split(kind)[0], kind, new, old, namespaced=kind not in UNSCOPED)
    )


def with_container(**fields):
    return {'containers': [{'name': 'c', 'image': 'i', **fields}]}


@pytest.mark.parametrize(
    'spec, expected',
    [
        pytest.param(POD, [], id='good'),
        pytest.param({}, ['spec.containers: Required value'], id='no-containers'),
        pytest.param(
            {'containers': [{}]},
            ['spec.containers[0].name: Required value', 'spec.containers[0].image: Required value'],
            id='empty-container',
        ),
        pytest.param(
            {'containers': [*POD['containers'], *POD['containers']]},
            ['spec.containers[1].name: Duplicate value: "c"'],
            id='same-containers',
        ),
        pytest.param(
            {**POD, 'restartPolicy': 'x'},
            [
                'spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"'
            ],
            id='restarts',
        ),
        pytest.param(
            with_container(imagePullPolicy='x'),
            [
                'spec.containers[0].imagePullPolicy: Unsupported value: "x": '
                'supported values: "Always", "IfNotPresent", "Never"'
            ],
            id='pulling',
        ),
        pytest.param(
            with_container(ports=[{'containerPort': 70000, 'protocol': 'x'}]),
            [
                'spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive',
                'spec.containers[0].ports[0].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"',
            ],
            id='ports',
        ),
        pytest.param(
            with_container(env=[{'name': 'a=b'}]),
            [
                'spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of '
                "printable ASCII characters other than '='"
            ],
            id='environment',
        ),
        pytest.param(
            with_container(env=[{'name': 'a', 'valueFrom': {'secretKeyRef': {'name': 's'}}}]),
            ['spec.containers[0].env[0].valueFrom.secretKeyRef.key: Required value'],
            id='secret-key',
        ),
        pytest.param(
            with_container(volumeMounts=[{'name': 'v', 'mountPath': '/a'}]),
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
            id='mounts',
        ),
        pytest.param(
            with_container(resources={'limits': {'cpu': '1'}, 'requests': {'cpu': '2'}}),
            [
                'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'
            ],
            id='requests-over-limits',
        ),
        pytest.param(
            with_container(resources={'limits': {'cpu': '-1'}, 'requests': {'cpu': '-1'}}),
            [
                'spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
                'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            ],
            id='negative-amounts',
        ),
        pytest.param(
            with_container(livenessProbe={}),
            ['spec.containers[0].livenessProbe: Required value: must specify a handler type'],
            id='probe',
        ),
        pytest.param(
            {
                **POD,
                'initContainers': [
                    {'name': 'i', 'image': 'i', 'readinessProbe': {'tcpSocket': {'port': 1}}}
                ],
            },
            [
                'spec.initContainers[0].readinessProbe: Forbidden: '
                'may not be set for init containers without restartPolicy=Always'
            ],
            id='probe-of-init-container',
        ),
        pytest.param(
            {**POD, 'volumes': [{'name': 'v', 'secret': {}}, {'name': 'v'}]},
            [
                'spec.volumes[0].secret.secretName: Required value',
                'spec.volumes[1].name: Duplicate value: "v"',
            ],
            id='volumes',
        ),
        pytest.param(
            {**POD, 'tolerations': [{'key': 'a', 'tolerationSeconds': 5}]},
            [
                'spec.tolerations[0].effect: Invalid value: "": '
                "effect must be 'NoExecute' when `tolerationSeconds` is set"
            ],
            id='tolerations',
        ),
    ],
)
def test_pods_are_validated(spec, expected):
    assert validate('Pod', spec=spec) == expected


@pytest.mark.parametrize(
    'kind, spec, expected',
    [
        pytest.param('Deployment', WORKLOAD, [], id='good'),
        pytest.param(
            'Deployment',
            {},
            [
                'spec.selector: Required value',
                'spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`',
                'spec.template.spec.containers: Required value',
            ],
            id='empty',
        ),
        pytest.param(
            'Deployment',
            {**WORKLOAD, 'selector': {'matchLabels': {'a': 'c'}}},
            [
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`'
            ],
            id='mismatch',
        ),
        pytest.param(
            'Deployment',
            {**WORKLOAD, 'selector': {}},
            ['spec.selector: Invalid value: {}: empty selector is invalid for deployment'],
            id='empty-selector',
        ),
        pytest.param(
            'Deployment',
            {**WORKLOAD, 'selector': {'matchExpressions': [{'key': 'a', 'operator': 'In'}]}},
            [
                'spec.selector.matchExpressions[0].values: Required value: '
                "must be specified when `operator` is 'In' or 'NotIn'",
                'spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"In"}]}: invalid label selector',
            ],
            id='bad-selector',
        ),
        pytest.param(
            'Deployment',
            {**WORKLOAD, 'replicas': -1},
            ['spec.replicas: Invalid value: -1: must be greater than or equal to 0'],
            id='replicas',
        ),
        pytest.param(
            'Deployment',
            {**WORKLOAD, 'template': {**TEMPLATE, 'spec': {**POD, 'restartPolicy': 'Never'}}},
            [
                'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'
            ],
            id='restarts',
        ),
        pytest.param(
            'Deployment',
            {**WORKLOAD, 'strategy': {'rollingUpdate': {'maxSurge': 0, 'maxUnavailable': 0}}},
            [
                'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0'
            ],
            id='rolling',
        ),
        pytest.param(
            'StatefulSet',
            {**WORKLOAD, 'podManagementPolicy': 'x'},
            [
                "spec.podManagementPolicy: Invalid value: \"x\": must be 'OrderedReady' or 'Parallel'"
            ],
            id='stateful',
        ),
        pytest.param(
            'DaemonSet',
            {**WORKLOAD, 'selector': {}},
            ['spec.selector: Invalid value: {}: empty selector is invalid for daemonset'],
            id='daemon',
        ),
        pytest.param(
            'Job',
            {'template': TEMPLATE},
            [
                'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
            ],
            id='job',
        ),
        pytest.param(
            'Job',
            {**JOB, 'completionMode': 'Indexed', 'completions': None, 'parallelism': 2},
            ['spec.completions: Required value: when completion mode is Indexed'],
            id='job-indexed',
        ),
        pytest.param(
            'CronJob',
            {'schedule': '* 24 * * *', 'jobTemplate': {'spec': JOB}},
            [
                'spec.schedule: Invalid value: "* 24 * * *": end of range (24) above maximum (23): 24'
            ],
            id='schedule',
        ),
        pytest.param(
            'CronJob',
            {'schedule': 'often', 'jobTemplate': {'spec': JOB}},
            ['spec.schedule: Invalid value: "often": expected exactly 5 fields, found 1: [often]'],
            id='schedule-of-words',
        ),
        pytest.param(
            'CronJob',
            {'schedule': 'TZ=UTC @daily', 'jobTemplate': {'spec': JOB}},
            [
                'spec.schedule: Invalid value: "TZ=UTC @daily": cannot use TZ or CRON_TZ in schedule, '
                'use timeZone field instead'
            ],
            id='schedule-with-zone',
        ),
        pytest.param('Service', {}, ['spec.ports: Required value'], id='service'),
        pytest.param(
            'Service',
            {'type': 'x', 'ports': [{'port': 80}]},
            [
                'spec.type: Unsupported value: "x": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"'
            ],
            id='service-type',
        ),
        pytest.param(
            'Service',
            {'ports': [{'port': 80}, {'port': 81}]},
            ['spec.ports[0].name: Required value', 'spec.ports[1].name: Required value'],
            id='service-ports',
        ),
        pytest.param(
            'PersistentVolumeClaim',
            {},
            [
                'spec.accessModes: Required value: at least 1 access mode is required',
                'spec.resources[storage]: Required value',
            ],
            id='claim',
        ),
        pytest.param(
            'Ingress',
            {},
            ['spec: Invalid value: null: either `defaultBackend` or `rules` must be specified'],
            id='ingress',
        ),
        pytest.param(
            'NetworkPolicy',
            {'ingress': [{'from': [{}]}]},
            ['spec.ingress[0].from[0]: Required value: must specify a peer'],
            id='network-policy',
        ),
        pytest.param(
            'HorizontalPodAutoscaler',
            {'minReplicas': 5, 'maxReplicas': 3, 'scaleTargetRef': {'kind': 'K', 'name': 'n'}},
            [
                'spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`',
                'spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
            ],
            id='autoscaler',
        ),
        pytest.param(
            'PodDisruptionBudget',
            {'minAvailable': '200%'},
            ['spec.minAvailable: Invalid value: "200%": must not be greater than 100%'],
            id='budget',
        ),
        pytest.param(
            'Lease',
            {'leaseDurationSeconds': 0},
            ['spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0'],
            id='lease',
        ),
    ],
)
def test_specs_are_validated(kind, spec, expected):
    assert validate(kind, spec=spec) == expected


@pytest.mark.parametrize(
    'kind, content, expected',
    [
        pytest.param(
            'ConfigMap',
            {'data': {'a b': 'c'}},
            [
                "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or "
                "'.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            ],
            id='keys',
        ),
        pytest.param(
            'ConfigMap',
            {'data': {'a': 'x' * 1048577}},
            ['[]: Too long: may not be more than 1048576 bytes'],
            id='size',
        ),
        pytest.param(
            'Secret',
            {'type': 'kubernetes.io/tls'},
            ['data[tls.crt]: Required value', 'data[tls.key]: Required value'],
            id='secret-of-type',
        ),
        pytest.param(
            'Role',
            {'rules': [{}]},
            [
                'rules[0].verbs: Required value: verbs must contain at least one value',
                'rules[0].apiGroups: Required value: resource rules must supply at least one api group',
                'rules[0].resources: Required value: resource rules must supply at least one resource',
            ],
            id='role',
        ),
        pytest.param(
            'RoleBinding',
            {'roleRef': {'kind': 'X', 'name': 'r'}},
            ['roleRef.kind: Unsupported value: "X": supported values: "Role", "ClusterRole"'],
            id='binding',
        ),
        pytest.param('StorageClass', {}, ['provisioner: Required value'], id='storage-class'),
        pytest.param(
            'EndpointSlice',
            {'addressType': 'IPv4', 'endpoints': [{}]},
            ['endpoints[0].addresses: Required value: must contain at least 1 address'],
            id='slice',
        ),
        pytest.param(
            'Event',
            {'involvedObject': {'namespace': 'other'}},
            ['involvedObject.namespace: Invalid value: "other": does not match event.namespace'],
            id='event',
        ),
        pytest.param('ValidatingWebhookConfiguration', {'webhooks': [HOOK]}, [], id='webhook'),
        pytest.param(
            'ValidatingWebhookConfiguration',
            {'webhooks': [{}]},
            [
                'webhooks[0].name: Required value',
                'webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun',
                'webhooks[0].clientConfig: Required value: exactly one of url or service is required',
                'webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1',
            ],
            id='webhook-empty',
        ),
        pytest.param(
            'ValidatingWebhookConfiguration',
            {'webhooks': [{**HOOK, 'name': 'a.b', 'timeoutSeconds': 31}]},
            [
                'webhooks[0].name: Invalid value: "a.b": should be a domain with at least three segments separated by dots',
                'webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds',
            ],
            id='webhook-values',
        ),
        pytest.param(
            'ValidatingWebhookConfiguration',
            {'webhooks': [{**HOOK, 'clientConfig': {'url': 'http://x'}}]},
            [
                'webhooks[0].clientConfig.url: Invalid value: "http": \'https\' is the only allowed URL scheme; '
                'desired format: https://host[/path]'
            ],
            id='webhook-url',
        ),
    ],
)
def test_other_kinds_are_validated(kind, content, expected):
    assert validate(kind, **content) == expected


@pytest.mark.parametrize(
    'kind, name, is_good',
    [
        pytest.param('ConfigMap', 'a.b', True, id='subdomain'),
        pytest.param('Namespace', 'a.b', False, id='label'),
        pytest.param('Service', '9a', False, id='old-label'),
        pytest.param('Role', 'system:a b', True, id='segment'),
        pytest.param('PodDisruptionBudget', 'A_b', True, id='common-rule-only'),
        pytest.param('PodDisruptionBudget', 'a/b', False, id='common-rule'),
    ],
)
def test_names_follow_the_rules_of_their_kinds(kind, name, is_good):
    content = {'spec': {'ports': [{'port': 80}]}} if kind == 'Service' else {}

    problems = validate(kind, name=name, **content)

    assert {problem.partition(':')[0] for problem in problems} == (
        set() if is_good else {'metadata.name'}
    )


@pytest.mark.parametrize(
    'kind, before, after, expected',
    [
        pytest.param(
            'Deployment',
            {'spec': WORKLOAD},
            {'spec': {**WORKLOAD, 'replicas': 5}},
            [],
            id='replicas',
        ),
        pytest.param(
            'Deployment',
            {'spec': WORKLOAD},
            {'spec': {**WORKLOAD, 'selector': {'matchLabels': {'a': 'c'}}}},
            [
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`',
                'spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable',
            ],
            id='selector',
        ),
        pytest.param(
            'StatefulSet',
            {'spec': WORKLOAD},
            {'spec': {**WORKLOAD, 'serviceName': 's'}},
            [
                "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
                'are forbidden'
            ],
            id='stateful-set',
        ),
        pytest.param('Pod', {'spec': POD}, {'spec': with_container(image='new')}, [], id='image'),
        pytest.param(
            'Pod',
            {'spec': POD},
            {'spec': {'containers': [*POD['containers'], {'name': 'd', 'image': 'i'}]}},
            ['spec.containers: Forbidden: pod updates may not add or remove containers'],
            id='containers',
        ),
        pytest.param(
            'ConfigMap',
            {'data': {'a': 'b'}, 'immutable': True},
            {'data': {'a': 'c'}, 'immutable': False},
            [
                'immutable: Forbidden: field is immutable when `immutable` is set',
                'data: Forbidden: field is immutable when `immutable` is set',
            ],
            id='config-map',
        ),
        pytest.param(
            'Secret',
            {},
            {'type': 'x'},
            ['type: Invalid value: "x": field is immutable'],
            id='secret',
        ),
        pytest.param(
            'RoleBinding',
            {'roleRef': {'kind': 'Role', 'name': 'r'}},
            {'roleRef': {'kind': 'Role', 'name': 's'}},
            [
                'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}: '
                'cannot change roleRef'
            ],
            id='binding',
        ),
        pytest.param(
            'StorageClass',
            {'provisioner': 'p'},
            {'provisioner': 'q'},
            ['provisioner: Forbidden: updates to provisioner are forbidden.'],
            id='storage-class',
        ),
        pytest.param(
            'PriorityClass',
            {'value': 5},
            {'value': 6},
            ['value: Forbidden: may not be changed in an update.'],
            id='priority-class',
        ),
        pytest.param(
            'Job',
            {'spec': JOB},
            {'spec': {**JOB, 'completions': 5}},
            ['spec.completions: Invalid value: 5: field is immutable'],
            id='job',
        ),
        pytest.param(
            'Service',
            {'spec': {'ports': [{'port': 80}]}},
            {'spec': {'ports': [{'port': 80}], 'clusterIP': '10.96.9.9'}},
            ['spec.clusterIPs[0]: Invalid value: ["10.96.9.9"]: may not change once set'],
            id='service',
        ),
    ],
)
def test_changes_are_validated(kind, before, after, expected):
    old = make(kind, **before)
    if kind == 'Job':
        after = {'spec': {**old['spec'], 'completions': 5}}

    assert validate_change(kind, old, **after) == expected


@pytest.mark.parametrize(
    'kind, before, after, expected',
    [
        pytest.param(
            'Deployment',
            {'spec': WORKLOAD},
            {'spec': {**WORKLOAD, 'replicas': 5}},
            2,
            id='deployment',
        ),
        pytest.param(
            'Deployment',
            {'spec': WORKLOAD},
            {'metadata': {'annotations': {'a': 'b'}}},
            2,
            id='its-annotations',
        ),
        pytest.param(
            'Deployment',
            {'spec': WORKLOAD},
            {'metadata': {'labels': {'a': 'b'}}},
            1,
            id='its-labels',
        ),
        pytest.param(
            'Deployment', {'spec': WORKLOAD}, {'status': {'replicas': 5}}, 1, id='its-status'
        ),
        pytest.param(
            'ReplicaSet',
            {'spec': WORKLOAD},
            {'metadata': {'annotations': {'a': 'b'}}},
            1,
            id='annotations',
        ),
        pytest.param(
            'EndpointSlice',
            {'addressType': 'IPv4'},
            {'metadata': {'labels': {'a': 'b'}}},
            2,
            id='slice-labels',
        ),
        pytest.param('Pod', {'spec': POD}, {'spec': with_container(image='new')}, 2, id='pod'),
        pytest.param(
            'ValidatingWebhookConfiguration',
            {'webhooks': [HOOK]},
            {'webhooks': []},
            2,
            id='webhooks',
        ),
        pytest.param('PriorityClass', {}, {'description': 'x'}, 1, id='priority-class'),
        pytest.param('ConfigMap', {}, {'data': {'a': 'b'}}, None, id='config-map'),
        pytest.param(
            'Service',
            {'spec': {'ports': [{'port': 80}]}},
            {'spec': {'ports': [{'port': 81}]}},
            None,
            id='service',
        ),
        pytest.param('Lease', {}, {'spec': {'holderIdentity': 'x'}}, None, id='lease'),
    ],
)
def test_generations_count_the_changes_that_matter(kind, before, after, expected):
    old = make(kind, **before)
    if 'metadata' in after:
        after = {'metadata': {**old['metadata'], **after['metadata']}}

    new = change(kind, old, **after)

    assert new['metadata'].get('generation') == expected


@pytest.mark.parametrize(
    'counts_status, expected',
    [
        pytest.param(False, False, id='status-is-a-subresource'),
        pytest.param(True, True, id='status-is-a-field'),
    ],
)
def test_statuses_of_custom_resources_count_if_they_are_fields(counts_status, expected):
    old, new = {'metadata': {}, 'status': {}}, {'metadata': {}, 'status': {'a': 'b'}}

    assert (
        strategies.is_generation_bumped('my.group', 'Thing', new, old, counts_status=counts_status)
        is expected
    )


def test_new_pods_are_prepared_as_by_the_admission():
    pod = make('Pod', spec=POD)

    assert pod['status'] == {'phase': 'Pending', 'qosClass': 'BestEffort'}
    assert pod['spec']['priority'] == 0
    assert pod['spec']['preemptionPolicy'] == 'PreemptLowerPriority'
    assert pod['spec']['tolerations'] == [
        {
            'key': 'node.kubernetes.io/not-ready',
            'operator': 'Exists',
            'effect': 'NoExecute',
            'tolerationSeconds': 300,
        },
        {
            'key': 'node.kubernetes.io/unreachable',
            'operator': 'Exists',
            'effect': 'NoExecute',
            'tolerationSeconds': 300,
        },
    ]


def test_pods_of_unknown_priorities_are_forbidden():
    with pytest.raises(errors.ApiError) as e:
        make('Pod', spec={**POD, 'priorityClassName': 'high'})

    assert (e.value.code, e.value.message) == (
        403,
        'pods "x" is forbidden: no PriorityClass with name high was found',
    )


def test_new_jobs_select_their_own_pods():
    job = make('Job', spec=JOB)

    labels = {
        'batch.kubernetes.io/controller-uid': 'u',
        'batch.kubernetes.io/job-name': 'x',
        'controller-uid': 'u',
        'job-name': 'x',
    }
    assert job['metadata']['labels'] == labels
    assert job['spec']['template']['metadata']['labels'] == labels
    assert job['spec']['selector'] == {'matchLabels': {'batch.kubernetes.io/controller-uid': 'u'}}


def test_new_namespaces_are_labelled_and_finalized():
    namespace = make('Namespace', name='my')

    assert namespace['metadata']['labels'] == {'kubernetes.io/metadata.name': 'my'}
    assert namespace['spec'] == {'finalizers': ['kubernetes']}
    assert namespace['status'] == {'phase': 'Active'}


def test_new_services_get_addresses_and_ports():
    service = make('Service', spec={'type': 'NodePort', 'ports': [{'port': 80}]})

    assert service['spec']['clusterIP'].startswith('10.')
    assert service['spec']['clusterIPs'] == [service['spec']['clusterIP']]
    assert service['spec']['ipFamilies'] == ['IPv4']
    assert 30000 <= service['spec']['ports'][0]['nodePort'] < 32768


def test_services_keep_their_addresses_on_updates():
    old = make('Service', spec={'type': 'NodePort', 'ports': [{'port': 80}]})

    new = change(
        'Service', old, spec={'type': 'NodePort', 'ports': [{'port': 80}], 'selector': {'a': 'b'}}
    )

    assert new['spec'] == {**old['spec'], 'selector': {'a': 'b'}}


def test_services_forget_their_ports_when_they_become_internal():
    old = make('Service', spec={'type': 'NodePort', 'ports': [{'port': 80}]})

    new = change('Service', old, spec={**old['spec'], 'type': 'ClusterIP'})

    assert new['spec']['ports'] == [{'port': 80, 'protocol': 'TCP', 'targetPort': 80}]
    assert 'externalTrafficPolicy' not in new['spec']


def test_all_rules_belong_to_resources_that_are_served():
    served = {(resource.group, resource.kind) for resource in builtins.load_resources()}

    assert not set(rules.BUILTIN) - served


def test_custom_objects_are_created_and_updated_by_the_common_rules():
    old = {
        'metadata': {
            'name': 'x',
            'namespace': 'ns',
            'uid': 'u',
            'resourceVersion': '5',
            'finalizers': ['x'],
        }
    }
    new = {'metadata': {**old['metadata'], 'uid': 'v'}}

    assert strategies.validate_create('my.group', 'Thing', old, namespaced=True) == []
    assert (
        show(strategies.validate_update('my.group', 'Thing', new, old, namespaced=True))
        == ['metadata.uid: Invalid value: "v": field is immutable'] * 2
    )
    assert not strategies.allows_unconditional_update('my.group', 'Thing')
    assert not strategies.allows_create_on_update('my.group', 'Thing')


SAMPLES = [
    ('Pod', {'spec': {**POD, 'volumes': [{'name': 'v', 'secret': {'secretName': 's'}}]}}),
    ('Pod', {'spec': {**POD, 'tolerations': [{'key': 'a'}]}}),
    ('Deployment', {'spec': {**WORKLOAD, 'strategy': {'rollingUpdate': {'maxSurge': 1}}}}),
    ('CronJob', {'spec': {'schedule': '@daily', 'jobTemplate': {'spec': JOB}}}),
    ('Service', {'spec': {'type': 'NodePort', 'ports': [{'port': 80, 'targetPort': 'x'}]}}),
    ('Secret', {'data': {'a': 'eA=='}, 'stringData': {'b': 'c'}}),
    (
        'Ingress',
        {
            'spec': {
                'rules': [{'host': 'a.b', 'http': {'paths': [{'path': '/', 'pathType': 'Prefix'}]}}]
            }
        },
    ),
    ('ValidatingWebhookConfiguration', {'webhooks': [HOOK]}),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def list_places(value, place=()):
    """List the ways to all values inside of a value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place, *(found for key, item in items for found in list_places(item, (*place, key)))]


@hypothesis.settings(deadline=None)
@hypothesis.given(data=st.data(), sample=st.sampled_from(SAMPLES), value=VALUES)
def test_any_values_anywhere_are_either_accepted_or_refused(data, sample, value):
    kind, content = sample[0], copy.deepcopy(sample[1])
    [*way, last] = data.draw(st.sampled_from([place for place in list_places(content) if place]))
    target = content
    for key in way:
        target = target[key]
    target[last] = value
    obj = {
        'apiVersion': VERSIONS.get(kind, 'v1'),
        'kind': kind,
        'metadata': {'name': 'x', 'uid': 'u'},
        **content,
    }
    group, version = split(kind)
    schema = builtins.load_schema(builtins.load_definition_names()[group, version, kind])

    if strategies.check_types(obj, schema, kind, version) is None:
        defaulting.apply_kind_defaults(group, version, kind, obj)
        strategies.prepare_create(group, kind, obj, SITE)
        problems = strategies.validate_create(group, kind, obj, namespaced=False)
        assert all(isinstance(problem, errors.FieldError) for problem in problems)
