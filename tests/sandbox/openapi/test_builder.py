import json

import pytest

from kopf._sandbox.meta import builtins, kinds, schemas
from kopf._sandbox.openapi import builder, descriptions

VERBS = ('delete', 'deletecollection', 'get', 'list', 'patch', 'create', 'update', 'watch')
OBJECT_META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta'


def build_resource(raw=None, *, version='v1', plural='kopfexamples', kind='KopfExample', **kwargs):
    schema = schemas.compile_schema(raw) if raw is not None else None
    return kinds.Resource(
        group='kopf.dev',
        version=version,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        list_kind=f'{kind}List',
        namespaced=True,
        verbs=VERBS,
        storage_version='v1',
        home=kinds.Home('kopf.dev', plural),
        custom=True,
        load_schema=lambda: schema,
        **kwargs,
    )


def find_refs(value):
    if isinstance(value, dict):
        if isinstance(value.get('$ref'), str):
            yield value['$ref']
        for child in value.values():
            yield from find_refs(child)
    elif isinstance(value, list):
        for child in value:
            yield from find_refs(child)


@pytest.fixture
def catalog():
    return kinds.Catalog(builtins.load_resources())


@pytest.fixture
def publisher(catalog):
    return builder.Publisher(catalog)


def test_index_has_all_versions_with_hashes_of_their_documents(publisher):
    index = publisher.build_index()

    path = index['paths']['apis/apps/v1']['serverRelativeURL']
    assert path == f'/openapi/v3/apis/apps/v1?hash={publisher.find_document("apis/apps/v1").etag}'
    assert {'api/v1', 'apis/batch/v1', 'apis/events.k8s.io/v1'} <= index['paths'].keys()
    assert list(index['paths']) == sorted(index['paths'])


def test_every_document_is_complete(catalog, publisher):
    scale = kinds.Scale('.spec.replicas', '.status.replicas')
    catalog.add(build_resource({'type': 'object'}, has_status=True, scale=scale))

    for path in publisher.build_index()['paths']:
        document = json.loads(publisher.find_document(path).body)
        names = {f'#/components/schemas/{name}' for name in document['components']['schemas']}
        assert set(find_refs(document)) <= names


def test_every_resource_can_be_found_by_its_path(catalog, publisher):
    for resource in catalog:
        prefix = f'apis/{resource.group}/{resource.version}' if resource.group else 'api/v1'
        scope = 'namespaces/{namespace}/' if resource.namespaced else ''
        document = json.loads(publisher.find_document(prefix).body)
        item = document['paths'][f'/{prefix}/{scope}{resource.plural}']
        gvks = [
            item[method]['x-kubernetes-group-version-kind']
            for method in item
            if method != 'parameters'
        ]
        assert {'group': resource.group, 'version': resource.version, 'kind': resource.kind} in gvks


def test_patching_tells_of_its_options(publisher):
    document = json.loads(publisher.find_document('apis/apps/v1').body)
    operation = document['paths']['/apis/apps/v1/namespaces/{namespace}/deployments/{name}'][
        'patch'
    ]

    assert operation['operationId'] == 'patchAppsV1NamespacedDeployment'
    assert operation['x-kubernetes-action'] == 'patch'
    assert operation['x-kubernetes-group-version-kind'] == {
        'group': 'apps',
        'version': 'v1',
        'kind': 'Deployment',
    }
    assert [item['name'] for item in operation['parameters']] == [
        'dryRun',
        'fieldManager',
        'fieldValidation',
        'force',
    ]
    assert 'application/strategic-merge-patch+json' in operation['requestBody']['content']


@pytest.mark.parametrize(
    'path, method, expected',
    [
        pytest.param('/api/v1/pods', 'get', 'listCoreV1PodForAllNamespaces', id='list-everywhere'),
        pytest.param(
            '/api/v1/namespaces/{namespace}/pods', 'get', 'listCoreV1NamespacedPod', id='list'
        ),
        pytest.param(
            '/api/v1/namespaces/{namespace}/pods',
            'delete',
            'deleteCoreV1CollectionNamespacedPod',
            id='delete-many',
        ),
        pytest.param(
            '/api/v1/namespaces/{namespace}/pods/{name}/eviction',
            'post',
            'createCoreV1NamespacedPodEviction',
            id='evict',
        ),
        pytest.param(
            '/api/v1/namespaces/{name}/finalize',
            'put',
            'replaceCoreV1NamespaceFinalize',
            id='finalize',
        ),
        pytest.param('/api/v1/nodes/{name}/status', 'get', 'readCoreV1NodeStatus', id='status'),
    ],
)
def test_operations_are_named_as_in_the_api(publisher, path, method, expected):
    document = json.loads(publisher.find_document('api/v1').body)

    assert document['paths'][path][method]['operationId'] == expected


def test_custom_resource_cannot_be_patched_strategically(catalog, publisher):
    catalog.add(build_resource({'type': 'object'}))

    document = json.loads(publisher.find_document('apis/kopf.dev/v1').body)

    operation = document['paths']['/apis/kopf.dev/v1/namespaces/{namespace}/kopfexamples/{name}'][
        'patch'
    ]
    assert list(operation['requestBody']['content']) == [
        'application/apply-patch+yaml',
        'application/json-patch+json',
        'application/merge-patch+json',
    ]


def test_custom_resource_is_published_with_the_fields_of_all_objects(catalog, publisher):
    catalog.add(
        build_resource(
            {
                'type': 'object',
                'description': 'An example.',
                'properties': {
                    'metadata': {
                        'type': 'object',
                        'properties': {'name': {'type': 'string', 'maxLength': 5}},
                    },
                    'spec': {
                        'type': 'object',
                        'description': 'Wanted.',
                        'properties': {'size': {'type': 'integer', 'default': 1}},
                    },
                },
            }
        )
    )

    document = json.loads(publisher.find_document('apis/kopf.dev/v1').body)

    published = document['components']['schemas']['dev.kopf.v1.KopfExample']
    assert published['description'] == 'An example.'
    assert published['x-kubernetes-group-version-kind'] == [
        {'group': 'kopf.dev', 'kind': 'KopfExample', 'version': 'v1'}
    ]
    assert published['properties'].keys() == {'apiVersion', 'kind', 'metadata', 'spec'}
    assert published['properties']['metadata']['allOf'] == [
        {'$ref': f'#/components/schemas/{OBJECT_META}'}
    ]
    assert published['properties']['spec'] == {
        'type': 'object',
        'description': 'Wanted.',
        'properties': {'size': {'type': 'integer', 'default': 1}},
    }


def test_list_of_custom_resource_is_published_too(catalog, publisher):
    catalog.add(build_resource({'type': 'object'}))

    document = json.loads(publisher.find_document('apis/kopf.dev/v1').body)

    published = document['components']['schemas']['dev.kopf.v1.KopfExampleList']
    assert published['properties']['items']['items'] == {
        '$ref': '#/components/schemas/dev.kopf.v1.KopfExample'
    }
    assert published['required'] == ['items']


def test_custom_resource_without_schema_preserves_everything(catalog, publisher):
    catalog.add(build_resource())

    document = json.loads(publisher.find_document('apis/kopf.dev/v1').body)

    assert (
        document['components']['schemas']['dev.kopf.v1.KopfExample'][
            'x-kubernetes-preserve-unknown-fields'
        ]
        is True
    )


@pytest.mark.parametrize(
    'raw, expected_v3, expected_v2',
    [
        pytest.param(
            {'type': 'string', 'nullable': True, 'enum': ['a']},
            {'type': 'string', 'nullable': True, 'enum': ['a']},
            {'enum': ['a']},
            id='nullable',
        ),
        pytest.param(
            {'type': 'integer', 'default': 1, 'minimum': 0},
            {'type': 'integer', 'default': 1, 'minimum': 0},
            {'type': 'integer', 'minimum': 0},
            id='default',
        ),
        pytest.param(
            {'x-kubernetes-int-or-string': True},
            {
                'x-kubernetes-int-or-string': True,
                'anyOf': [{'type': 'integer'}, {'type': 'string'}],
            },
            {'x-kubernetes-int-or-string': True},
            id='int-or-string',
        ),
        pytest.param(
            {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
            {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
            {'x-kubernetes-preserve-unknown-fields': True},
            id='preserving',
        ),
        pytest.param(
            {'type': 'integer', 'not': {'minimum': 5}, 'anyOf': [{'minimum': 1}, {'maximum': 0}]},
            {'type': 'integer', 'not': {'minimum': 5}, 'anyOf': [{'minimum': 1}, {'maximum': 0}]},
            {'type': 'integer'},
            id='logic',
        ),
        pytest.param(
            {'type': 'array', 'items': {'additionalProperties': {'type': 'string', 'default': ''}}},
            {'type': 'array', 'items': {'additionalProperties': {'type': 'string', 'default': ''}}},
            {'type': 'array', 'items': {'additionalProperties': {'type': 'string'}}},
            id='nested',
        ),
    ],
)
def test_fields_of_custom_resources_are_published_in_both_formats(
    catalog, publisher, raw, expected_v3, expected_v2
):
    catalog.add(build_resource({'type': 'object', 'properties': {'field': raw}}))

    document = json.loads(publisher.find_document('apis/kopf.dev/v1').body)
    swagger = json.loads(publisher.load_swagger().body)

    name = 'dev.kopf.v1.KopfExample'
    assert document['components']['schemas'][name]['properties']['field'] == expected_v3
    assert swagger['definitions'][name]['properties']['field'] == expected_v2


def test_embedded_resources_are_published_with_the_fields_of_all_objects(catalog, publisher):
    embedded = {
        'type': 'object',
        'required': ['kind'],
        'x-kubernetes-embedded-resource': True,
        'properties': {'spec': {'type': 'object'}},
    }
    catalog.add(build_resource({'type': 'object', 'properties': {'template': embedded}}))

    document = json.loads(publisher.find_document('apis/kopf.dev/v1').body)

    published = document['components']['schemas']['dev.kopf.v1.KopfExample']['properties'][
        'template'
    ]
    assert published['required'] == ['kind', 'apiVersion']
    assert published['properties'].keys() == {'apiVersion', 'kind', 'metadata', 'spec'}


def test_documents_are_kept_until_their_resources_change(catalog, publisher):
    catalog.add(build_resource({'type': 'object'}))
    apps, examples = (
        publisher.find_document('apis/apps/v1'),
        publisher.find_document('apis/kopf.dev/v1'),
    )

    catalog.add(build_resource({'type': 'object', 'properties': {'spec': {'type': 'object'}}}))

    assert publisher.find_document('apis/apps/v1') is apps
    assert publisher.find_document('apis/kopf.dev/v1').etag != examples.etag


def test_documents_and_definitions_disappear_with_resources(catalog, publisher):
    resource = build_resource({'type': 'object'})
    catalog.add(resource)
    assert publisher.find_document('apis/kopf.dev/v1') is not None
    assert 'dev.kopf.v1.KopfExample' in json.loads(publisher.load_swagger().body)['definitions']

    catalog.discard(resource.home)

    assert publisher.find_document('apis/kopf.dev/v1') is None
    assert 'apis/kopf.dev/v1' not in publisher.build_index()['paths']
    assert 'dev.kopf.v1.KopfExample' not in json.loads(publisher.load_swagger().body)['definitions']


@pytest.mark.parametrize('path', ['', 'api', 'apis/apps', 'apis/apps/v2', 'apis/no.such.group/v1'])
def test_unknown_documents_are_absent(publisher, path):
    assert publisher.find_document(path) is None


def test_swagger_in_protobuf_is_the_same_and_follows_the_catalog(catalog, publisher):
    before = publisher.load_packed_swagger()
    catalog.add(build_resource({'type': 'object'}))
    after = publisher.load_packed_swagger()

    assert before.etag != after.etag
    assert after.etag == publisher.load_swagger().etag
    assert after is publisher.load_packed_swagger()
    assert b'dev.kopf.v1.KopfExample' in after.body
    assert b'dev.kopf.v1.KopfExample' not in before.body


def test_swagger_refers_only_to_its_own_definitions(publisher):
    swagger = json.loads(publisher.load_swagger().body)

    assert set(find_refs(swagger)) <= {f'#/definitions/{name}' for name in swagger['definitions']}


@pytest.mark.parametrize(
    'name, expected',
    [
        pytest.param(
            'io.k8s.apimachinery.pkg.api.resource.Quantity', {'type': 'string'}, id='quantity'
        ),
        pytest.param(
            'io.k8s.apimachinery.pkg.util.intstr.IntOrString',
            {'type': 'string', 'format': 'int-or-string'},
            id='int-or-string',
        ),
    ],
)
def test_swagger_has_its_own_way_for_scalars(publisher, name, expected):
    swagger = json.loads(publisher.load_swagger().body)

    assert swagger['definitions'][name] == expected


def test_swagger_keeps_the_marks_beside_references(publisher):
    swagger = json.loads(publisher.load_swagger().body)

    assert swagger['definitions']['io.k8s.api.apps.v1.DeploymentSpec']['properties'][
        'strategy'
    ] == {
        'description': descriptions.FIELDS['DeploymentSpec']['strategy'],
        'x-kubernetes-patch-strategy': 'retainKeys',
        '$ref': '#/definitions/io.k8s.api.apps.v1.DeploymentStrategy',
    }


@pytest.mark.parametrize('resource', builtins.load_resources(), ids=str)
def test_every_builtin_kind_is_explained(resource):
    name = builtins.load_definition_names()[resource.group, resource.version, resource.kind]

    definition = builder.load_definition(name)

    assert definition['description']
    assert definition['properties']['metadata']['description']


def test_descriptions_are_only_of_existing_fields():
    known = {
        name.rpartition('.')[-1]: definition
        for name, definition in builtins.load_definitions().items()
    }

    assert descriptions.KINDS.keys() <= known.keys()
    assert all(
        fields.keys() <= known[kind]['properties'].keys()
        for kind, fields in descriptions.FIELDS.items()
    )
