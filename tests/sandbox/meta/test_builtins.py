import json

import pytest

from kopf._sandbox.meta import builtins, kinds, schemas

RESOURCES = builtins.load_resources()


def find(name):
    [resource] = [resource for resource in RESOURCES if str(resource) == name]
    return resource


def iterate_nodes(schema, seen):
    if id(schema) not in seen:
        seen[id(schema)] = schema
        for child in [*schema.properties.values(), schema.additional, schema.items]:
            if child is not None:
                iterate_nodes(child, seen)


@pytest.mark.parametrize('resource', RESOURCES, ids=str)
def test_every_resource_has_a_compiled_schema_of_its_kind(resource):
    schema = resource.schema

    gvk = {'group': resource.group, 'version': resource.version, 'kind': resource.kind}
    assert gvk in schema.raw['x-kubernetes-group-version-kind']
    assert {'apiVersion', 'kind', 'metadata'} <= schema.properties.keys()


@pytest.mark.parametrize('resource', RESOURCES, ids=str)
def test_every_node_of_schemas_is_typed_or_accepts_anything(resource):
    seen: dict[int, schemas.Schema] = {}
    iterate_nodes(resource.schema, seen)

    assert all(node.type or node.preserve_unknown or node.int_or_string for node in seen.values())


def test_listable_resources_have_published_lists():
    listable = [resource for resource in RESOURCES if 'list' in resource.verbs]
    names = builtins.load_definition_names()

    assert all((item.group, item.version, item.list_kind) in names for item in listable)


def test_schemas_are_compiled_once_and_share_their_parts():
    pod, template = find('pods.v1').schema, find('podtemplates.v1').schema

    assert find('pods.v1').schema is pod
    assert (
        template.properties['template'].properties['spec'].properties
        == pod.properties['spec'].properties
    )


def test_definitions_have_no_prose():
    text = (builtins.DEFINITIONS / 'schemas.json').read_text()

    assert '"description":"' not in text


def test_definitions_refer_only_to_known_ones():
    known = builtins.load_definitions()
    text = json.dumps(known)
    refs = {part.split('"')[0] for part in text.split(builtins.REF_PREFIX)[1:]}

    assert refs <= known.keys()


@pytest.mark.parametrize(
    'path, expected',
    [
        pytest.param(
            'pods.v1 spec containers * resources limits *', {'type': 'string'}, id='quantity'
        ),
        pytest.param(
            'services.v1 spec ports * targetPort',
            {'type': '', 'int_or_string': True},
            id='int-or-string',
        ),
        pytest.param('pods.v1 metadata creationTimestamp', {'type': 'string'}, id='time'),
        pytest.param(
            'leases.v1.coordination.k8s.io spec renewTime', {'type': 'string'}, id='micro-time'
        ),
        pytest.param(
            'pods.v1 metadata managedFields * fieldsV1', {'preserve_unknown': True}, id='field-set'
        ),
        pytest.param(
            'controllerrevisions.v1.apps data', {'preserve_unknown': True}, id='raw-extension'
        ),
        pytest.param(
            'customresourcedefinitions.v1.apiextensions.k8s.io spec versions * schema openAPIV3Schema default',
            {'preserve_unknown': True},
            id='any-json',
        ),
        pytest.param(
            'customresourcedefinitions.v1.apiextensions.k8s.io spec versions * schema openAPIV3Schema '
            'properties * properties * not properties * type',
            {'type': 'string'},
            id='recursive',
        ),
        pytest.param(
            'customresourcedefinitions.v1.apiextensions.k8s.io spec versions * subresources status',
            {'type': 'object', 'preserve_unknown': False},
            id='empty-object',
        ),
        pytest.param(
            'pods.v1 spec containers',
            {
                'list_type': 'map',
                'list_map_keys': ('name',),
                'patch_merge_key': 'name',
                'patch_strategies': {'merge'},
            },
            id='list-map',
        ),
        pytest.param(
            'pods.v1 spec volumes', {'patch_strategies': {'merge', 'retainKeys'}}, id='retain-keys'
        ),
        pytest.param(
            'pods.v1 metadata finalizers',
            {'list_type': 'set', 'patch_strategies': {'merge'}},
            id='list-set',
        ),
        pytest.param('pods.v1 spec nodeSelector', {'map_type': 'atomic'}, id='atomic-map'),
        pytest.param(
            'deployments.v1.apps spec strategy',
            {'type': 'object', 'patch_strategies': {'retainKeys'}},
            id='marked-ref',
        ),
        pytest.param(
            'services.v1 spec ports * protocol', {'type': 'string', 'default': 'TCP'}, id='default'
        ),
        pytest.param('configmaps.v1 data', {'type': 'object', 'is_map': True}, id='map'),
    ],
)
def test_schema_nodes_know_what_is_special_of_fields(path, expected):
    name, *steps = path.split()
    node = find(name).schema
    for step in steps:
        node = node.child(step) if step != '*' else node.items or node.additional

    assert {attribute: getattr(node, attribute) for attribute in expected} == expected


def test_quantities_are_marked_for_their_own_decoding():
    limits = (
        find('pods.v1')
        .schema.properties['spec']
        .properties['containers']
        .items.properties['resources']
    )

    assert limits.properties['limits'].additional.raw['format'] == 'quantity'


def test_both_events_live_in_one_home():
    assert (
        find('events.v1').home == find('events.v1.events.k8s.io').home == kinds.Home('', 'events')
    )


@pytest.mark.parametrize(
    'resource', [item for item in RESOURCES if item.plural != 'events'], ids=str
)
def test_other_resources_live_in_their_own_homes(resource):
    assert resource.home == kinds.Home(resource.group, resource.plural)
    assert resource.stored_api_version == resource.api_version
    assert not resource.custom


@pytest.mark.parametrize(
    'name, has_status, has_scale, others',
    [
        pytest.param('deployments.v1.apps', True, True, (), id='deployments'),
        pytest.param('replicationcontrollers.v1', True, True, (), id='replicationcontrollers'),
        pytest.param('configmaps.v1', False, False, (), id='configmaps'),
        pytest.param('namespaces.v1', True, False, ('finalize',), id='namespaces'),
        pytest.param('serviceaccounts.v1', False, False, ('token',), id='serviceaccounts'),
        pytest.param('pods.v1', True, False, ('binding', 'eviction'), id='pods'),
    ],
)
def test_only_the_supported_subresources_are_served(name, has_status, has_scale, others):
    resource = find(name)

    assert (resource.has_status, resource.scale is not None, resource.subresources) == (
        has_status,
        has_scale,
        others,
    )


@pytest.mark.parametrize(
    'name',
    [
        'selfsubjectaccessreviews.v1.authorization.k8s.io',
        'tokenreviews.v1.authentication.k8s.io',
    ],
)
def test_reviews_can_only_be_created(name):
    assert find(name).verbs == ('create',)
    assert find(name).list_kind == ''


def test_deprecated_resources_warn():
    assert (
        find('endpoints.v1').warning
        == 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'
    )
    assert find('pods.v1').warning == ''


@pytest.mark.parametrize(
    'name, obj, expected',
    [
        pytest.param(
            'pods.v1',
            {'spec': {'nodeName': 'n1'}},
            {
                'spec.nodeName': 'n1',
                'spec.host': 'n1',
                'spec.hostNetwork': 'false',
                'status.phase': '',
            },
            id='pod',
        ),
        pytest.param(
            'pods.v1',
            {
                'spec': {'hostNetwork': True},
                'status': {'podIPs': [{'ip': '10.0.0.1'}, {'ip': '::1'}]},
            },
            {'spec.hostNetwork': 'true', 'status.podIP': '10.0.0.1', 'status.podIPs': ''},
            id='pod-network',
        ),
        pytest.param(
            'pods.v1',
            {'spec': 'bad', 'status': {'podIPs': ['bad']}},
            {'spec.nodeName': '', 'status.podIP': ''},
            id='pod-of-wrong-types',
        ),
        pytest.param(
            'nodes.v1',
            {'spec': {'unschedulable': True}},
            {'spec.unschedulable': 'true'},
            id='cordoned-node',
        ),
        pytest.param('nodes.v1', {}, {'spec.unschedulable': 'false'}, id='node'),
        pytest.param(
            'jobs.v1.batch', {'status': {'succeeded': 3}}, {'status.successful': '3'}, id='job'
        ),
        pytest.param('jobs.v1.batch', {}, {'status.successful': '0'}, id='new-job'),
        pytest.param('secrets.v1', {'type': 'Opaque'}, {'type': 'Opaque'}, id='secret'),
        pytest.param('configmaps.v1', {'data': {}}, {}, id='nothing-selectable'),
        pytest.param(
            'events.v1',
            {'reportingComponent': 'kopf'},
            {'source': 'kopf', 'reportingComponent': 'kopf'},
            id='event',
        ),
        pytest.param(
            'events.v1',
            {'reportingComponent': 'kopf', 'source': {'component': 'dev'}},
            {'source': 'dev'},
            id='old-event',
        ),
        pytest.param(
            'events.v1.events.k8s.io',
            {'involvedObject': {'kind': 'Pod'}},
            {'regarding.kind': 'Pod', 'involvedObject.kind': 'Pod'},
            id='event-in-both-shapes',
        ),
    ],
)
def test_fields_for_selectors_are_taken_from_objects(name, obj, expected):
    fields = builtins.extract_fields(find(name), obj)

    assert {key: fields.get(key) for key in expected} == expected


@pytest.mark.parametrize('resource', RESOURCES, ids=str)
def test_all_selectable_fields_are_extracted(resource):
    fields = builtins.extract_fields(resource, {})

    assert {name.removeprefix('.') for name in resource.selectable} <= fields.keys()


FULL_CORE_EVENT = {
    'apiVersion': 'v1',
    'kind': 'Event',
    'metadata': {'name': 'e'},
    'involvedObject': {'kind': 'Pod'},
    'related': {'kind': 'Node'},
    'message': 'm',
    'reason': 'r',
    'type': 'Normal',
    'source': {'component': 'c', 'host': 'h'},
    'count': 3,
    'firstTimestamp': '2020-01-01T00:00:00Z',
    'lastTimestamp': '2020-01-02T00:00:00Z',
    'eventTime': '2020-01-01T00:00:00.123456Z',
    'series': {'count': 2},
    'action': 'a',
    'reportingComponent': 'rc',
    'reportingInstance': 'ri',
}
FULL_NEW_EVENT = {
    'apiVersion': 'events.k8s.io/v1',
    'kind': 'Event',
    'metadata': {'name': 'e'},
    'regarding': {'kind': 'Pod'},
    'related': {'kind': 'Node'},
    'note': 'm',
    'reason': 'r',
    'type': 'Normal',
    'deprecatedSource': {'component': 'c', 'host': 'h'},
    'deprecatedCount': 3,
    'deprecatedFirstTimestamp': '2020-01-01T00:00:00Z',
    'deprecatedLastTimestamp': '2020-01-02T00:00:00Z',
    'eventTime': '2020-01-01T00:00:00.123456Z',
    'series': {'count': 2},
    'action': 'a',
    'reportingController': 'rc',
    'reportingInstance': 'ri',
}
SHORT_CORE_EVENT = {
    'apiVersion': 'v1',
    'kind': 'Event',
    'metadata': {'name': 'e'},
    'involvedObject': {'kind': 'Pod'},
    'source': {},
    'firstTimestamp': None,
    'lastTimestamp': None,
    'eventTime': None,
    'reportingComponent': '',
    'reportingInstance': '',
}
SHORT_NEW_EVENT = {
    'apiVersion': 'events.k8s.io/v1',
    'kind': 'Event',
    'metadata': {'name': 'e'},
    'regarding': {'kind': 'Pod'},
    'eventTime': None,
    'deprecatedSource': {},
    'deprecatedFirstTimestamp': None,
    'deprecatedLastTimestamp': None,
}


@pytest.mark.parametrize(
    'core, new',
    [
        pytest.param(FULL_CORE_EVENT, FULL_NEW_EVENT, id='full'),
        pytest.param(SHORT_CORE_EVENT, SHORT_NEW_EVENT, id='short'),
    ],
)
def test_events_are_converted_there_and_back(core, new):
    assert builtins.convert_event(core, 'events.k8s.io/v1') == new
    assert builtins.convert_event(new, 'v1') == core


def test_events_of_the_needed_version_are_not_converted():
    converted = builtins.convert_event({'apiVersion': 'v1', 'message': 'm'}, 'v1')

    assert converted == {'apiVersion': 'v1', 'message': 'm'}
