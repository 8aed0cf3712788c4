import datetime
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._sandbox.endpoints import columns, tables
from kopf._sandbox.endpoints.printers import cells
from kopf._sandbox.meta import errors, kinds

NOW = datetime.datetime(2024, 6, 1, 12, 0, 0, tzinfo=datetime.UTC)
METADATA = {
    'name': 'x',
    'uid': 'u',
    'resourceVersion': '7',
    'creationTimestamp': '2024-06-01T11:55:00Z',
}
CONFIG_MAPS = kinds.Resource(
    '', 'v1', 'configmaps', 'configmap', 'ConfigMap', namespaced=True, verbs=()
)
ROLES = kinds.Resource(
    'rbac.authorization.k8s.io', 'v1', 'roles', 'role', 'Role', namespaced=True, verbs=()
)
PODS = kinds.Resource('', 'v1', 'pods', 'pod', 'Pod', namespaced=True, verbs=())
OBJ = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': METADATA, 'data': {'a': '1'}}
PARTIAL = {'kind': 'PartialObjectMetadata', 'apiVersion': 'meta.k8s.io/v1', 'metadata': METADATA}


def build_custom(*custom_columns):
    return kinds.Resource(
        'example.com',
        'v1',
        'examples',
        'example',
        'Example',
        namespaced=True,
        verbs=(),
        custom=True,
        columns=custom_columns,
    )


def test_object_is_shown_in_a_table_of_its_version():
    table = tables.build_table(CONFIG_MAPS, [OBJ], now=NOW)

    headers = [
        (header['name'], header['type'], header['format'], header['priority'])
        for header in table.pop('columnDefinitions')
    ]
    assert headers == [
        ('Name', 'string', 'name', 0),
        ('Data', 'string', '', 0),
        ('Age', 'string', '', 0),
    ]
    assert table == {
        'kind': 'Table',
        'apiVersion': 'meta.k8s.io/v1',
        'metadata': {'resourceVersion': '7'},
        'rows': [{'cells': ['x', 1, '5m'], 'object': PARTIAL}],
    }


def test_every_column_has_a_description():
    table = tables.build_table(CONFIG_MAPS, [OBJ], now=NOW)

    assert all(header['description'] for header in table['columnDefinitions'])


def test_list_is_shown_with_its_own_metadata():
    metadata = {
        'resourceVersion': '99',
        'continue': 'token',
        'remainingItemCount': 5,
        'selfLink': '',
    }

    table = tables.build_table(CONFIG_MAPS, [OBJ, OBJ], now=NOW, list_metadata=metadata)

    assert table['metadata'] == {
        'resourceVersion': '99',
        'continue': 'token',
        'remainingItemCount': 5,
    }
    assert len(table['rows']) == 2


@pytest.mark.parametrize(
    'resource, expected',
    [
        pytest.param(CONFIG_MAPS, [], id='kind-with-a-printer'),
        pytest.param(build_custom(), [], id='custom'),
        pytest.param(ROLES, None, id='kind-without-a-printer'),
    ],
)
def test_empty_list_has_headers_but_no_rows(resource, expected):
    table = tables.build_table(resource, [], now=NOW, list_metadata={'resourceVersion': '99'})

    assert table['rows'] == expected
    assert table['columnDefinitions']
    assert table['metadata'] == {'resourceVersion': '99'}


def test_later_events_of_a_stream_have_no_headers():
    table = tables.build_table(CONFIG_MAPS, [OBJ], now=NOW, with_headers=False)

    assert table['columnDefinitions'] is None


@pytest.mark.parametrize(
    'include, expected',
    [
        pytest.param('None', None, id='none'),
        pytest.param('Metadata', PARTIAL, id='metadata'),
        pytest.param('Object', OBJ, id='object'),
    ],
)
def test_rows_include_what_is_asked_for(include, expected):
    table = tables.build_table(CONFIG_MAPS, [OBJ], now=NOW, include=include)

    assert table['rows'][0]['object'] == expected


def test_end_of_initial_events_is_told_even_when_no_objects_are_asked_for():
    bookmark = {
        'metadata': {'resourceVersion': '7', 'annotations': {'k8s.io/initial-events-end': 'true'}}
    }

    table = tables.build_table(CONFIG_MAPS, [bookmark], now=NOW, include='None')

    assert table['rows'][0]['object']['metadata'] == bookmark['metadata']


def test_rows_of_ended_pods_have_conditions():
    table = tables.build_table(
        PODS, [{'metadata': METADATA, 'status': {'phase': 'Failed'}}], now=NOW
    )

    assert table['rows'][0]['conditions'] == [
        {'type': 'Completed', 'status': 'True', 'reason': 'Failed', 'message': 'The pod failed.'}
    ]


@pytest.mark.parametrize(
    'text, expected',
    [
        pytest.param('', 'Metadata', id='default'),
        pytest.param('None', 'None', id='none'),
        pytest.param('Metadata', 'Metadata', id='metadata'),
        pytest.param('Object', 'Object', id='object'),
    ],
)
def test_known_inclusions_are_accepted(text, expected):
    assert tables.parse_include(text) == expected


def test_unknown_inclusion_is_refused():
    with pytest.raises(errors.ApiError) as err:
        tables.parse_include('Foo')

    assert err.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'BadRequest',
        'code': 400,
        'message': 'Unable to convert to Table as requested: includeObject: Invalid value: "Foo": '
        "must be 'Metadata', 'Object', 'None', or empty",
    }


def test_partial_object_has_metadata_only():
    assert tables.build_partial(CONFIG_MAPS, OBJ) == PARTIAL


@pytest.mark.parametrize(
    'objects, expected',
    [
        pytest.param([OBJ, OBJ], [PARTIAL, PARTIAL], id='some'),
        pytest.param([], None, id='none'),
    ],
)
def test_partial_list_has_metadata_of_all_objects(objects, expected):
    partial = tables.build_partial_list(CONFIG_MAPS, objects, {'resourceVersion': '99'})

    assert partial == {
        'kind': 'PartialObjectMetadataList',
        'apiVersion': 'meta.k8s.io/v1',
        'metadata': {'resourceVersion': '99'},
        'items': expected,
    }


def test_custom_objects_are_shown_with_names_and_ages_by_default():
    table = tables.build_table(build_custom(), [OBJ], now=NOW)

    assert [(header['name'], header['type']) for header in table['columnDefinitions']] == [
        ('Name', 'string'),
        ('Age', 'date'),
    ]
    assert table['rows'][0]['cells'] == ['x', '5m']


def test_custom_columns_are_described_by_their_paths_unless_described():
    resource = build_custom(
        kinds.Column('A', 'string', '.spec.a'),
        kinds.Column('B', 'integer', '.spec.b', format='int32', description='The b.', priority=1),
    )

    table = tables.build_table(resource, [OBJ], now=NOW)

    assert table['columnDefinitions'][1:] == [
        {
            'name': 'A',
            'type': 'string',
            'format': '',
            'priority': 0,
            'description': 'Custom resource definition column (in JSONPath format): .spec.a',
        },
        {'name': 'B', 'type': 'integer', 'format': 'int32', 'priority': 1, 'description': 'The b.'},
    ]


def test_custom_columns_are_cut_at_the_first_malformed_one():
    resource = build_custom(
        kinds.Column('A', 'string', '.spec.a'),
        kinds.Column('B', 'string', '.spec.b[x]'),
        kinds.Column('C', 'string', '.spec.c'),
    )

    table = tables.build_table(
        resource, [{'metadata': METADATA, 'spec': {'a': 'a', 'c': 'c'}}], now=NOW
    )

    assert table['rows'][0]['cells'] == ['x', 'a']


@pytest.mark.parametrize(
    'type, value, expected',
    [
        pytest.param('string', 'text', 'text', id='string'),
        pytest.param('string', '<a&b>', '<a&b>', id='string-of-html'),
        pytest.param('string', None, '<no value>', id='string-of-null'),
        pytest.param('string', 5, '5', id='string-of-integer'),
        pytest.param('string', 5.75, '5.75', id='string-of-float'),
        pytest.param('string', 3.0, '3', id='string-of-integral-float'),
        pytest.param('string', 1234567.5, '1.2345675e+06', id='string-of-big-float'),
        pytest.param('string', -0.00001, '-1e-05', id='string-of-small-float'),
        pytest.param('string', 0.0, '0', id='string-of-zero-float'),
        pytest.param('string', True, 'true', id='string-of-boolean'),
        pytest.param(
            'string', {'z': 1, 'a': '<x>'}, r'{"a":"\u003cx\u003e","z":1}', id='string-of-object'
        ),
        pytest.param('string', ['p', 'q', 3], '["p","q",3]', id='string-of-list'),
        pytest.param('string', {}, '{}', id='string-of-empty-object'),
        pytest.param('integer', 5, 5, id='integer'),
        pytest.param('integer', 5.75, 5, id='integer-of-float'),
        pytest.param('integer', 10**400, 10**400, id='integer-beyond-floats'),
        pytest.param('integer', float('inf'), None, id='integer-of-infinity'),
        pytest.param('integer', 'text', None, id='integer-of-string'),
        pytest.param('integer', True, None, id='integer-of-boolean'),
        pytest.param('integer', None, None, id='integer-of-null'),
        pytest.param('number', 5.75, 5.75, id='number'),
        pytest.param('number', 5, 5, id='number-of-integer'),
        pytest.param('number', 'text', None, id='number-of-string'),
        pytest.param('boolean', True, True, id='boolean'),
        pytest.param('boolean', 'text', None, id='boolean-of-string'),
        pytest.param('date', '2024-06-01T11:55:00Z', '5m', id='date'),
        pytest.param('date', '2024-06-01T11:55:00.123456Z', '4m59s', id='date-with-microseconds'),
        pytest.param('date', '2024-06-01T16:55:00+05:00', '5m', id='date-with-offset'),
        pytest.param('date', '2199-01-01T00:00:00Z', '<invalid>', id='date-in-future'),
        pytest.param('date', '1500-01-01T00:00:00Z', '292y', id='date-in-distant-past'),
        pytest.param('date', '2024-06-01 11:55:00Z', '<invalid>', id='date-of-wrong-format'),
        pytest.param('date', '2024-06-31T11:55:00Z', '<invalid>', id='date-that-does-not-exist'),
        pytest.param('date', '', '<unknown>', id='date-of-empty-string'),
        pytest.param('date', 5, None, id='date-of-integer'),
        pytest.param('date', None, None, id='date-of-null'),
        pytest.param('unheard-of', 'text', None, id='unknown-type'),
    ],
)
def test_custom_values_are_shown_by_the_type_of_the_column(type, value, expected):
    resource = build_custom(kinds.Column('A', type, '.spec.a'))

    table = tables.build_table(resource, [{'metadata': METADATA, 'spec': {'a': value}}], now=NOW)

    cell = table['rows'][0]['cells'][1]
    assert json.dumps(cell) == json.dumps(expected)


def test_missing_custom_values_are_null():
    resource = build_custom(kinds.Column('A', 'string', '.spec.a'))

    table = tables.build_table(resource, [{'metadata': METADATA}], now=NOW)

    assert table['rows'][0]['cells'] == ['x', None]


@pytest.mark.parametrize(
    'seconds, expected',
    [
        pytest.param(-2, '<invalid>', id='future'),
        pytest.param(-1.9, '0s', id='skew'),
        pytest.param(0, '0s', id='now'),
        pytest.param(119.9, '119s', id='119s'),
        pytest.param(120, '2m', id='2m'),
        pytest.param(123, '2m3s', id='2m3s'),
        pytest.param(599, '9m59s', id='9m59s'),
        pytest.param(601, '10m', id='10m'),
        pytest.param(3 * 3600 - 1, '179m', id='179m'),
        pytest.param(3 * 3600, '3h', id='3h'),
        pytest.param(8 * 3600 - 1, '7h59m', id='7h59m'),
        pytest.param(8 * 3600 + 60, '8h', id='8h'),
        pytest.param(48 * 3600 - 1, '47h', id='47h'),
        pytest.param(48 * 3600, '2d', id='2d'),
        pytest.param(74 * 3600, '3d2h', id='3d2h'),
        pytest.param(8 * 86400 + 3600, '8d', id='8d'),
        pytest.param(730 * 86400 - 1, '729d', id='729d'),
        pytest.param(730 * 86400, '2y', id='2y'),
        pytest.param(1050 * 86400, '2y320d', id='2y320d'),
        pytest.param(8 * 365 * 86400 + 86400, '8y', id='8y'),
    ],
)
def test_durations_are_rougher_when_they_are_longer(seconds, expected):
    assert cells.human(datetime.timedelta(seconds=seconds)) == expected


@pytest.mark.parametrize(
    'timestamp',
    [
        pytest.param(None, id='null'),
        pytest.param('', id='empty'),
        pytest.param(5, id='number'),
        pytest.param('yesterday', id='text'),
        pytest.param('0001-01-01T00:00:00Z', id='zero'),
        pytest.param('0001-01-01T00:00:00+05:00', id='before-all-times'),
    ],
)
def test_unknown_moments_have_unknown_ages(timestamp):
    assert cells.since(timestamp, NOW) == '<unknown>'


KINDS = [
    ('', 'Pod'),
    ('', 'PodTemplate'),
    ('apps', 'Deployment'),
    ('apps', 'ReplicaSet'),
    ('apps', 'DaemonSet'),
    ('apps', 'ControllerRevision'),
    ('batch', 'Job'),
    ('batch', 'CronJob'),
    ('policy', 'PodDisruptionBudget'),
    ('autoscaling', 'HorizontalPodAutoscaler'),
    ('', 'Service'),
    ('', 'Endpoints'),
    ('discovery.k8s.io', 'EndpointSlice'),
    ('networking.k8s.io', 'Ingress'),
    ('networking.k8s.io', 'IngressClass'),
    ('networking.k8s.io', 'ServiceCIDR'),
    ('', 'PersistentVolume'),
    ('', 'PersistentVolumeClaim'),
    ('storage.k8s.io', 'StorageClass'),
    ('storage.k8s.io', 'CSIDriver'),
    ('', 'Node'),
    ('', 'Event'),
    ('', 'ResourceQuota'),
    ('', 'ConfigMap'),
    ('resource.k8s.io', 'ResourceClaim'),
    ('rbac.authorization.k8s.io', 'RoleBinding'),
    ('admissionregistration.k8s.io', 'ValidatingAdmissionPolicyBinding'),
    ('certificates.k8s.io', 'CertificateSigningRequest'),
    ('flowcontrol.apiserver.k8s.io', 'FlowSchema'),
    ('flowcontrol.apiserver.k8s.io', 'PriorityLevelConfiguration'),
    ('apiregistration.k8s.io', 'APIService'),
    ('unknown', 'Unknown'),
]
FIELDS = st.sampled_from(
    [
        'metadata',
        'spec',
        'status',
        'name',
        'labels',
        'annotations',
        'creationTimestamp',
        'conditions',
        'type',
        'phase',
        'containers',
        'initContainers',
        'template',
        'selector',
        'matchLabels',
        'matchExpressions',
        'containerStatuses',
        'initContainerStatuses',
        'state',
        'terminated',
        'waiting',
        'lastState',
        'finishedAt',
        'ports',
        'subsets',
        'addresses',
        'rules',
        'capacity',
        'storage',
        'hard',
        'used',
        'metrics',
        'series',
        'webhooks',
        'subjects',
        'expirationSeconds',
        'startTime',
        'limited',
        'limitResponse',
        'queuing',
        'reason',
        'status',
        'data',
        'claimRef',
        'endpoints',
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just('2024-06-01T11:55:00Z'),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(FIELDS, children, max_size=4),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KINDS), st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_object_of_any_kind_is_shown_without_errors(kind, obj):
    resource = kinds.Resource(kind[0], 'v1', '', '', kind[1], namespaced=True, verbs=())

    table = tables.build_table(resource, [obj], now=NOW)

    assert len(table['rows'][0]['cells']) == len(columns.find_printer(resource).headers)


@given(st.sampled_from(['string', 'integer', 'number', 'boolean', 'date']), JSON)
def test_any_value_of_a_custom_object_is_shown_without_errors(type, value):
    resource = build_custom(
        kinds.Column('A', type, '.spec'), kinds.Column('B', type, '.spec.status[*]')
    )

    table = tables.build_table(resource, [{'metadata': value, 'spec': value}], now=NOW)

    assert len(table['rows'][0]['cells']) == 3
