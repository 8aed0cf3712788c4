import datetime

import pytest

from kopf._sandbox.endpoints import columns
from kopf._sandbox.meta import kinds

NOW = datetime.datetime(2024, 6, 1, 12, 0, 0, tzinfo=datetime.UTC)
CREATED = '2024-06-01T11:00:00Z'  # 60 minutes ago


def case(api_version, kind, expected, *, id, metadata=None, **fields):
    obj = {
        'apiVersion': api_version,
        'kind': kind,
        'metadata': {'name': 'x', 'creationTimestamp': CREATED, **(metadata or {})},
        **fields,
    }
    return pytest.param(obj, expected, id=id)


def build_webhook(name):
    return {
        'name': name,
        'admissionReviewVersions': ['v1'],
        'sideEffects': 'None',
        'clientConfig': {'url': 'https://localhost/'},
        'failurePolicy': 'Ignore',
        'rules': [
            {
                'operations': ['CREATE'],
                'apiGroups': ['none.example.com'],
                'apiVersions': ['v1'],
                'resources': ['nothings'],
            }
        ],
    }


PLAIN = [
    case('v1', 'Namespace', ['x', 'Active', '60m'], id='namespace', status={'phase': 'Active'}),
    case(
        'v1',
        'ConfigMap',
        ['x', 3, '60m'],
        id='configmap',
        data={'a': '1', 'b': '2'},
        binaryData={'c': 'Mw=='},
    ),
    case('v1', 'ConfigMap', ['x', 0, '60m'], id='configmap-empty'),
    case(
        'v1',
        'Secret',
        ['x', 'Opaque', 2, '60m'],
        id='secret',
        type='Opaque',
        data={'a': 'MQ==', 'b': 'Mg=='},
    ),
    case('v1', 'ServiceAccount', ['x', '60m'], id='serviceaccount'),
    case('v1', 'LimitRange', ['x', CREATED], id='limitrange', spec={'limits': []}),
    case(
        'v1',
        'ResourceQuota',
        ['x', 'cpu: 1/2, pods: 0/10', 'limits.cpu: 1500m/4', '60m'],
        id='resourcequota',
        spec={},
        status={
            'hard': {'pods': '10', 'limits.cpu': '4', 'cpu': '2'},
            'used': {'cpu': '1', 'limits.cpu': '1500m'},
        },
    ),
    case(
        'v1',
        'ResourceQuota',
        ['x', '', '', '60m'],
        id='resourcequota-fresh',
        spec={'hard': {'pods': '10'}},
    ),
    case(
        'coordination.k8s.io/v1',
        'Lease',
        ['x', 'me', '60m'],
        id='lease',
        spec={'holderIdentity': 'me'},
    ),
    case('coordination.k8s.io/v1', 'Lease', ['x', '', '60m'], id='lease-free', spec={}),
    case(
        'scheduling.k8s.io/v1',
        'PriorityClass',
        ['x', 1000, False, '60m', 'PreemptLowerPriority'],
        id='priorityclass',
        value=1000,
        preemptionPolicy='PreemptLowerPriority',
    ),
    case('node.k8s.io/v1', 'RuntimeClass', ['x', 'runc', '60m'], id='runtimeclass', handler='runc'),
]

NODES = [
    case(
        'v1',
        'Node',
        [
            'x',
            'Unknown',
            '<none>',
            '60m',
            '',
            '<none>',
            '<none>',
            '<unknown>',
            '<unknown>',
            '<unknown>',
        ],
        id='node-fresh',
        spec={},
    ),
    case(
        'v1',
        'Node',
        [
            'x',
            'Ready,SchedulingDisabled',
            'control-plane,legacy',
            '60m',
            'v1.35.4',
            '10.0.0.1',
            '1.1.1.1',
            'Linux',
            '6.1',
            'containerd://2',
        ],
        id='node',
        metadata={
            'labels': {'node-role.kubernetes.io/control-plane': '', 'kubernetes.io/role': 'legacy'}
        },
        spec={'unschedulable': True},
        status={
            'conditions': [{'type': 'Ready', 'status': 'True'}],
            'addresses': [
                {'type': 'ExternalIP', 'address': '1.1.1.1'},
                {'type': 'InternalIP', 'address': '10.0.0.1'},
            ],
            'nodeInfo': {
                'kubeletVersion': 'v1.35.4',
                'osImage': 'Linux',
                'kernelVersion': '6.1',
                'containerRuntimeVersion': 'containerd://2',
                'machineID': '',
                'systemUUID': '',
                'bootID': '',
                'kubeProxyVersion': '',
                'operatingSystem': 'linux',
                'architecture': '',
            },
        },
    ),
    case(
        'v1',
        'Node',
        [
            'x',
            'NotReady',
            '<none>',
            '60m',
            '',
            '<none>',
            '<none>',
            '<unknown>',
            '<unknown>',
            '<unknown>',
        ],
        id='node-not-ready',
        spec={},
        status={'conditions': [{'type': 'Ready', 'status': 'Unknown'}]},
    ),
]

EVENTS = [
    case(
        'v1',
        'Event',
        [
            '10m',
            'Normal',
            'Created',
            'pod/p',
            'spec.containers{c}',
            'kubelet, node1',
            'It is created.',
            '20m',
            3,
            'x',
        ],
        id='event',
        type='Normal',
        reason='Created',
        message=' It is created.\n',
        count=3,
        involvedObject={'kind': 'Pod', 'name': 'p', 'fieldPath': 'spec.containers{c}'},
        source={'component': 'kubelet', 'host': 'node1'},
        firstTimestamp='2024-06-01T11:40:00Z',
        lastTimestamp='2024-06-01T11:50:00Z',
    ),
    case(
        'v1',
        'Event',
        ['<unknown>', '', '', 'pod/p', '', '', '', '<unknown>', 1, 'x'],
        id='event-bare',
        involvedObject={'kind': 'Pod', 'name': 'p'},
    ),
    case(
        'v1',
        'Event',
        ['15m', 'Warning', 'Bad', 'pod/p', '', 'kopf, me', 'It is bad.', '15m', 1, 'x'],
        id='event-modern',
        type='Warning',
        reason='Bad',
        message='It is bad.',
        involvedObject={'kind': 'Pod', 'name': 'p'},
        eventTime='2024-06-01T11:45:00.000000Z',
        reportingComponent='kopf',
        reportingInstance='me',
        action='Doing',
    ),
    case(
        'events.k8s.io/v1',
        'Event',
        ['10m', 'Normal', 'Good', 'pod/p', '', 'kopf, me', 'It is good.', '15m', 7, 'x'],
        id='event-series',
        type='Normal',
        reason='Good',
        note='It is good.',
        regarding={'kind': 'Pod', 'name': 'p'},
        eventTime='2024-06-01T11:45:00.000000Z',
        reportingController='kopf',
        reportingInstance='me',
        action='Doing',
        series={'count': 7, 'lastObservedTime': '2024-06-01T11:50:00.000000Z'},
    ),
]

VOLUME = {
    'capacity': {'storage': '5Gi'},
    'accessModes': ['ReadWriteMany', 'ReadWriteOnce'],
    'hostPath': {'path': '/x'},
    'persistentVolumeReclaimPolicy': 'Retain',
    'volumeMode': 'Filesystem',
}
CLAIM = {
    'accessModes': ['ReadWriteOnce'],
    'resources': {'requests': {'storage': '1Gi'}},
    'volumeMode': 'Filesystem',
}

VOLUMES = [
    case(
        'v1',
        'PersistentVolume',
        ['x', '5Gi', 'RWO,RWX', 'Retain', 'Pending', '', '', '<unset>', '', '60m', 'Filesystem'],
        id='pv',
        spec=VOLUME,
        status={'phase': 'Pending'},
    ),
    case(
        'v1',
        'PersistentVolume',
        [
            'x',
            '5Gi',
            'RWO,RWX',
            'Retain',
            'Terminating',
            'ns/c',
            'fast',
            '<unset>',
            'Oops',
            '60m',
            'Filesystem',
        ],
        id='pv-bound',
        metadata={'deletionTimestamp': CREATED},
        spec={**VOLUME, 'storageClassName': 'fast', 'claimRef': {'namespace': 'ns', 'name': 'c'}},
        status={'phase': 'Bound', 'reason': 'Oops'},
    ),
    case(
        'v1',
        'PersistentVolumeClaim',
        ['x', 'Pending', '', '', '', 'fast', '<unset>', '60m', 'Filesystem'],
        id='pvc',
        spec={**CLAIM, 'storageClassName': 'fast'},
        status={'phase': 'Pending'},
    ),
    case(
        'v1',
        'PersistentVolumeClaim',
        ['x', 'Bound', 'v', '5Gi', 'RWO,ROX', '', '<unset>', '60m', 'Filesystem'],
        id='pvc-bound',
        spec={**CLAIM, 'volumeName': 'v', 'storageClassName': ''},
        status={
            'phase': 'Bound',
            'capacity': {'storage': '5Gi'},
            'accessModes': ['ReadOnlyMany', 'ReadWriteOnce'],
        },
    ),
    case(
        'storage.k8s.io/v1',
        'StorageClass',
        ['x', 'a/b', 'Delete', 'Immediate', False, '60m'],
        id='storageclass',
        provisioner='a/b',
    ),
    case(
        'storage.k8s.io/v1',
        'StorageClass',
        ['x (default)', 'a/b', 'Retain', 'WaitForFirstConsumer', True, '60m'],
        id='storageclass-default',
        metadata={'annotations': {'storageclass.kubernetes.io/is-default-class': 'true'}},
        provisioner='a/b',
        reclaimPolicy='Retain',
        volumeBindingMode='WaitForFirstConsumer',
        allowVolumeExpansion=True,
    ),
    case(
        'storage.k8s.io/v1',
        'VolumeAttachment',
        ['x', 'a', 'v', 'n', False, '60m'],
        id='volumeattachment',
        spec={'attacher': 'a', 'nodeName': 'n', 'source': {'persistentVolumeName': 'v'}},
    ),
    case(
        'storage.k8s.io/v1',
        'CSIDriver',
        ['x', True, False, False, '<unset>', False, 'Persistent', '60m'],
        id='csidriver',
        spec={'attachRequired': True, 'volumeLifecycleModes': ['Persistent']},
    ),
    case(
        'storage.k8s.io/v1',
        'CSINode',
        ['x', 1, '60m'],
        id='csinode',
        spec={'drivers': [{'name': 'd', 'nodeID': 'n'}]},
    ),
    case(
        'storage.k8s.io/v1',
        'CSIStorageCapacity',
        ['x', CREATED],
        id='csistoragecapacity',
        storageClassName='fast',
    ),
]

RBAC = 'rbac.authorization.k8s.io/v1'
ADMISSION = 'admissionregistration.k8s.io/v1'
ROLE = {'apiGroup': 'rbac.authorization.k8s.io', 'name': 'r'}
SUBJECTS = [
    {'kind': 'User', 'name': 'u1', 'apiGroup': 'rbac.authorization.k8s.io'},
    {'kind': 'User', 'name': 'u2', 'apiGroup': 'rbac.authorization.k8s.io'},
    {'kind': 'Group', 'name': 'g', 'apiGroup': 'rbac.authorization.k8s.io'},
    {'kind': 'ServiceAccount', 'name': 's', 'namespace': 'ns'},
]

POLICIES = [
    case(RBAC, 'Role', ['x', CREATED], id='role', rules=[]),
    case(RBAC, 'ClusterRole', ['x', CREATED], id='clusterrole', rules=[]),
    case(
        RBAC,
        'RoleBinding',
        ['x', 'Role/r', '60m', 'u1, u2', 'g', 'ns/s'],
        id='rolebinding',
        roleRef={**ROLE, 'kind': 'Role'},
        subjects=SUBJECTS,
    ),
    case(
        RBAC,
        'ClusterRoleBinding',
        ['x', 'ClusterRole/r', '60m', '', '', ''],
        id='clusterrolebinding',
        roleRef={**ROLE, 'kind': 'ClusterRole'},
    ),
    case(
        ADMISSION,
        'ValidatingWebhookConfiguration',
        ['x', 2, '60m'],
        id='validatingwebhooks',
        webhooks=[build_webhook('a.example.com'), build_webhook('b.example.com')],
    ),
    case(ADMISSION, 'MutatingWebhookConfiguration', ['x', 0, '60m'], id='mutatingwebhooks'),
    case(
        ADMISSION,
        'ValidatingAdmissionPolicy',
        ['x', 1, 'v1/ConfigMap', '60m'],
        id='validatingadmissionpolicy',
        spec={
            'paramKind': {'apiVersion': 'v1', 'kind': 'ConfigMap'},
            'validations': [{'expression': 'true'}],
            'matchConstraints': {
                'resourceRules': [
                    {
                        'operations': ['CREATE'],
                        'apiGroups': ['none.example.com'],
                        'apiVersions': ['v1'],
                        'resources': ['nothings'],
                    }
                ]
            },
        },
    ),
    case(
        ADMISSION,
        'ValidatingAdmissionPolicyBinding',
        ['x', 'nope', '*/p', '60m'],
        id='validatingadmissionpolicybinding',
        spec={
            'policyName': 'nope',
            'validationActions': ['Audit'],
            'paramRef': {'name': 'p', 'parameterNotFoundAction': 'Allow'},
        },
    ),
]


@pytest.mark.parametrize('obj, expected', [*PLAIN, *NODES, *EVENTS, *VOLUMES, *POLICIES])
def test_builtin_objects_are_shown_as_the_api_shows_them(obj, expected):
    group, version = kinds.split_api_version(obj['apiVersion'])
    printer = columns.find_printer(
        kinds.Resource(group, version, '', '', obj['kind'], namespaced=True, verbs=())
    )

    cells = printer.print(obj, NOW)

    assert list(cells) == expected
    assert len(cells) == len(printer.headers)


@pytest.mark.parametrize(
    'status, expected',
    [
        pytest.param({}, 'Pending', id='fresh'),
        pytest.param({'conditions': [{'type': 'Approved'}]}, 'Approved', id='approved'),
        pytest.param(
            {'conditions': [{'type': 'Approved'}], 'certificate': 'LS0t'},
            'Approved,Issued',
            id='issued',
        ),
        pytest.param(
            {'conditions': [{'type': 'Denied'}, {'type': 'Failed'}]},
            'Denied,Failed',
            id='denied-and-failed',
        ),
    ],
)
def test_signing_requests_are_shown_with_their_state(status, expected):
    resource = kinds.Resource(
        'certificates.k8s.io', 'v1', '', '', 'CertificateSigningRequest', namespaced=False, verbs=()
    )
    spec = {'signerName': 'a/b', 'username': 'me', 'expirationSeconds': 86400}
    obj = {'metadata': {'name': 'x', 'creationTimestamp': CREATED}, 'spec': spec, 'status': status}

    cells = columns.find_printer(resource).print(obj, NOW)

    assert cells == ['x', '60m', 'a/b', 'me', '24h', expected]


@pytest.mark.parametrize(
    'condition, expected',
    [
        pytest.param(None, 'Unknown', id='fresh'),
        pytest.param(
            {'type': 'Available', 'status': 'True', 'reason': 'Local'}, 'True', id='available'
        ),
        pytest.param(
            {'type': 'Available', 'status': 'False', 'reason': 'Gone'},
            'False (Gone)',
            id='unavailable',
        ),
        pytest.param(
            {'type': 'Available', 'status': 'False'}, 'False', id='unavailable-for-no-reason'
        ),
    ],
)
def test_api_services_are_shown_with_their_availability(condition, expected):
    resource = kinds.Resource(
        'apiregistration.k8s.io', 'v1', '', '', 'APIService', namespaced=False, verbs=()
    )
    obj = {
        'metadata': {'name': 'x', 'creationTimestamp': CREATED},
        'spec': {'service': {'namespace': 'n', 'name': 's'}},
        'status': {'conditions': [condition]},
    }

    cells = columns.find_printer(resource).print(obj, NOW)

    assert cells == ['x', 'n/s', expected, '60m']
