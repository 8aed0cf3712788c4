import pytest

from kopf._sandbox.codec import decoding
from kopf._sandbox.meta import builtins, errors


def decode(api_version, kind, **content):
    group, _, version = api_version.rpartition('/')
    schema = builtins.load_schema(builtins.load_definition_names()[group, version, kind])
    obj = {'apiVersion': api_version, 'kind': kind, **content}
    decoding.decode_object(obj, schema, kind=kind, version=version)
    return {name: value for name, value in obj.items() if name not in ('apiVersion', 'kind')}


def decode_container(**container):
    pod = decode('v1', 'Pod', spec={'containers': [{'name': 'c', 'image': 'i', **container}]})
    [decoded] = pod['spec']['containers']
    return {name: value for name, value in decoded.items() if name not in ('name', 'image')}


@pytest.mark.parametrize(
    'content, expected',
    [
        pytest.param(
            {'metadata': {'name': 5}},
            'number into Go struct field ObjectMeta.metadata.name of type string',
            id='name',
        ),
        pytest.param(
            {'metadata': {'labels': []}},
            'array into Go struct field ObjectMeta.metadata.labels of type map[string]string',
            id='labels',
        ),
        pytest.param(
            {'metadata': {'labels': {'a': 5}}},
            'number into Go struct field ObjectMeta.metadata.labels of type string',
            id='label',
        ),
        pytest.param(
            {'metadata': {'uid': 5}},
            'number into Go struct field ObjectMeta.metadata.uid of type types.UID',
            id='uid',
        ),
        pytest.param(
            {'metadata': {'ownerReferences': [{'controller': 'yes'}]}},
            'string into Go struct field OwnerReference.metadata.ownerReferences.controller of type bool',
            id='owner',
        ),
        pytest.param(
            {'metadata': {'creationTimestamp': 5}},
            'number into Go struct field ObjectMeta.metadata.creationTimestamp of type string',
            id='time',
        ),
        pytest.param(
            {'metadata': {'generation': 1.5}},
            'number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64',
            id='fraction',
        ),
        pytest.param(
            {'spec': []},
            'array into Go struct field Deployment.spec of type v1.DeploymentSpec',
            id='spec',
        ),
        pytest.param(
            {'spec': {'replicas': '3'}},
            'string into Go struct field DeploymentSpec.spec.replicas of type int32',
            id='text-for-number',
        ),
        pytest.param(
            {'spec': {'replicas': 99999999999}},
            'number 99999999999 into Go struct field DeploymentSpec.spec.replicas of type int32',
            id='big-number',
        ),
        pytest.param(
            {'spec': {'strategy': {'type': 5}}},
            'number into Go struct field DeploymentStrategy.spec.strategy.type of type v1.DeploymentStrategyType',
            id='enumeration',
        ),
        pytest.param(
            {'spec': {'strategy': {'rollingUpdate': {'maxSurge': True}}}},
            'bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32',
            id='number-or-text',
        ),
        pytest.param(
            {'spec': {'template': {'spec': {'containers': [5]}}}},
            'number into Go struct field PodSpec.spec.template.spec.containers of type v1.Container',
            id='item',
        ),
        pytest.param(
            {'spec': {'template': {'spec': {'containers': [{'env': {'A': 'b'}}]}}}},
            'object into Go struct field Container.spec.template.spec.containers.env of type []v1.EnvVar',
            id='list',
        ),
        pytest.param(
            {'spec': {'template': {'spec': {'volumes': [{'secret': 5}]}}}},
            'number into Go struct field Volume.spec.template.spec.volumes.VolumeSource.secret '
            'of type v1.SecretVolumeSource',
            id='embedded',
        ),
        pytest.param(
            {'spec': {'template': {'spec': {'containers': [{'resources': {'limits': []}}]}}}},
            'array into Go struct field ResourceRequirements.spec.template.spec.containers.resources.limits '
            'of type v1.ResourceList',
            id='named-map',
        ),
    ],
)
def test_values_of_wrong_types_are_refused_in_the_words_of_go(content, expected):
    with pytest.raises(errors.ApiError) as e:
        decode('apps/v1', 'Deployment', **content)

    assert (e.value.code, e.value.reason) == (400, 'BadRequest')
    assert e.value.message == (
        'Deployment in version "v1" cannot be handled as a Deployment: '
        f'json: cannot unmarshal {expected}'
    )


@pytest.mark.parametrize(
    'api_version, kind, content, expected',
    [
        pytest.param(
            'v1',
            'Secret',
            {'data': {'a': '@@@'}},
            'illegal base64 data at input byte 0',
            id='base64',
        ),
        pytest.param(
            'v1',
            'Secret',
            {'data': {'a': 'eHh4@A=='}},
            'illegal base64 data at input byte 4',
            id='base64-inside',
        ),
        pytest.param(
            'v1',
            'ConfigMap',
            {'binaryData': {'a': 'eA'}},
            'illegal base64 data at input byte 0',
            id='base64-cut',
        ),
        pytest.param(
            'v1',
            'ConfigMap',
            {'metadata': {'creationTimestamp': 'zz'}},
            'parsing time "zz" as "2006-01-02T15:04:05Z07:00": cannot parse "zz" as "2006"',
            id='time',
        ),
        pytest.param(
            'coordination.k8s.io/v1',
            'Lease',
            {'spec': {'renewTime': '2020-01-01T00:00:00Z'}},
            'parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": '
            'cannot parse "Z" as ".000000"',
            id='microseconds',
        ),
        pytest.param(
            'v1',
            'ResourceQuota',
            {'spec': {'hard': {'pods': 'many'}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id='amount',
        ),
    ],
)
def test_unparsable_texts_are_refused(api_version, kind, content, expected):
    with pytest.raises(errors.ApiError) as e:
        decode(api_version, kind, **content)

    assert e.value.message.endswith(f'cannot be handled as a {kind}: {expected}')


@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param({}, {'resources': {}}, id='empty-structure-is-written'),
        pytest.param(
            {'env': [], 'command': None, 'workingDir': '', 'stdin': False},
            {'resources': {}},
            id='empty-is-dropped',
        ),
        pytest.param(
            {'securityContext': {}},
            {'resources': {}, 'securityContext': {}},
            id='pointer-to-empty-is-kept',
        ),
        pytest.param(
            {'securityContext': {'privileged': False, 'runAsUser': 0}},
            {'resources': {}, 'securityContext': {'privileged': False, 'runAsUser': 0}},
            id='pointer-to-zero-is-kept',
        ),
        pytest.param(
            {'args': ['x', None]}, {'resources': {}, 'args': ['x', '']}, id='null-in-list-is-zero'
        ),
        pytest.param(
            {'resources': {'limits': {'cpu': 0.5, 'memory': '1024Mi'}}},
            {'resources': {'limits': {'cpu': '500m', 'memory': '1Gi'}}},
            id='amounts-are-rewritten',
        ),
        pytest.param(
            {'env': [{'name': 'A', 'value': ''}]},
            {'resources': {}, 'env': [{'name': 'A'}]},
            id='empty-text-is-dropped',
        ),
    ],
)
def test_containers_are_brought_to_the_normal_form(given, expected):
    assert decode_container(**given) == expected


@pytest.mark.parametrize(
    'api_version, kind, given, expected',
    [
        pytest.param(
            'v1',
            'ConfigMap',
            {'data': {'a': None}, 'binaryData': {}, 'immutable': False},
            {'metadata': {}, 'data': {'a': ''}, 'immutable': False},
            id='config-map',
        ),
        pytest.param(
            'v1',
            'Secret',
            {'data': {'a': 'eA==\n', 'b': None}},
            {'metadata': {}, 'data': {'a': 'eA==', 'b': ''}},
            id='secret',
        ),
        pytest.param(
            'rbac.authorization.k8s.io/v1',
            'Role',
            {'rules': []},
            {'metadata': {}, 'rules': None},
            id='role',
        ),
        pytest.param(
            'apps/v1',
            'StatefulSet',
            {'status': {}, 'spec': {'serviceName': 's', 'template': {'metadata': None}}},
            {
                'metadata': {},
                'status': {'replicas': 0, 'availableReplicas': 0},
                'spec': {
                    'serviceName': 's',
                    'selector': None,
                    'updateStrategy': {},
                    'template': {'metadata': {}, 'spec': {'containers': None}},
                },
            },
            id='stateful-set',
        ),
        pytest.param(
            'v1',
            'Event',
            {
                'firstTimestamp': '2020-01-01T02:00:00+02:00',
                'lastTimestamp': '2020-01-01T00:00:00.5Z',
            },
            {
                'metadata': {},
                'involvedObject': {},
                'source': {},
                'reportingComponent': '',
                'reportingInstance': '',
                'eventTime': None,
                'firstTimestamp': '2020-01-01T00:00:00Z',
                'lastTimestamp': '2020-01-01T00:00:00Z',
            },
            id='event',
        ),
        pytest.param(
            'coordination.k8s.io/v1',
            'Lease',
            {'spec': {'renewTime': '2020-01-01T00:00:00.123456+02:00'}},
            {'metadata': {}, 'spec': {'renewTime': '2019-12-31T22:00:00.123456Z'}},
            id='lease',
        ),
    ],
)
def test_objects_are_brought_to_the_normal_form(api_version, kind, given, expected):
    decoded = decode(api_version, kind, **given)

    assert decoded == expected
    assert decode(api_version, kind, **decoded) == expected
