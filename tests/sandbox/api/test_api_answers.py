"""
Answers over HTTP: their forms (JSON, YAML, tables, mere metadata), and errors as statuses.
"""

import io

import pytest
import yaml
from sandbox_http import GROUP

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}
TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io'
PARTIAL = 'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io'
PROTO_OPENAPI = 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf'
PARTIAL_LIST = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io'


def failure(code, reason, message, **fields):
    return {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'message': message,
        'reason': reason,
        'code': code,
        **fields,
    }


async def test_table_of_built_in_objects(api, configmaps):
    made = await api.make(configmaps, {'metadata': {'name': 'a'}, 'data': {'x': 'y', 'z': ''}})

    reply = await api.get(
        configmaps,
        headers={'Accept': f'{TABLE},application/json'},
        fieldSelector='metadata.name=a',
    )

    [row] = reply.body['rows']
    assert (reply.body['kind'], reply.body['apiVersion']) == ('Table', 'meta.k8s.io/v1')
    assert set(reply.body['metadata']) == {'resourceVersion'}
    assert [
        (column['name'], column['type'], column['priority'])
        for column in reply.body['columnDefinitions']
    ] == [('Name', 'string', 0), ('Data', 'string', 0), ('Age', 'string', 0)]
    assert row['cells'][:2] == ['a', 2]
    assert row['object'] == {
        'kind': 'PartialObjectMetadata',
        'apiVersion': 'meta.k8s.io/v1',
        'metadata': made['metadata'],
    }


async def test_table_of_one_custom_object_with_all_of_it(api, things):
    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    full = await api.get(f'{things}/a', headers={'Accept': TABLE}, includeObject='Object')
    bare = await api.get(f'{things}/a', headers={'Accept': TABLE}, includeObject='None')

    assert [column['name'] for column in full.body['columnDefinitions']] == ['Name', 'Age']
    assert [row['cells'][0] for row in full.body['rows']] == ['a']
    assert [row['object'] for row in full.body['rows']] == [made]
    assert [set(row) - {'object'} for row in bare.body['rows']] == [{'cells'}]
    assert [row.get('object') for row in bare.body['rows']] == [None]


@pytest.mark.parametrize(
    'resource, body',
    [
        pytest.param('configmaps', {'data': {'x': 'y'}}, id='built-in'),
        pytest.param('things', {**THING, 'spec': {'size': 1}}, id='custom'),
    ],
)
async def test_mere_metadata(api, paths, resource, body):
    path = paths[resource]
    made = await api.make(path, {**body, 'metadata': {'name': 'a', 'labels': {'x': 'y'}}})
    expected = {
        'kind': 'PartialObjectMetadata',
        'apiVersion': 'meta.k8s.io/v1',
        'metadata': made['metadata'],
    }

    one = await api.get(f'{path}/a', headers={'Accept': PARTIAL})
    many = await api.get(path, headers={'Accept': PARTIAL_LIST}, fieldSelector='metadata.name=a')

    assert one.body == expected
    assert (many.body['kind'], many.body['apiVersion']) == (
        'PartialObjectMetadataList',
        'meta.k8s.io/v1',
    )
    assert many.body['items'] == [expected]


async def test_yaml_is_written_and_read(api, configmaps):
    body = b'metadata:\n  name: a\ndata:\n  key: "1"\n'

    made = await api.post(
        configmaps, body, type='application/yaml', headers={'Accept': 'application/yaml'}
    )
    listed = await api.get(configmaps, headers={'Accept': 'application/yaml'})

    assert (made.code, made.headers['Content-Type']) == (201, 'application/yaml')
    assert yaml.safe_load(made.body)['data'] == {'key': '1'}
    assert [item['metadata']['name'] for item in yaml.safe_load(listed.body)['items']] == [
        'a',
        'kube-root-ca.crt',
    ]


async def test_first_acceptable_form_is_chosen(api, configmaps):
    reply = await api.get(configmaps, headers={'Accept': 'text/html, application/yaml;q=0.5, */*'})

    assert reply.code == 200
    assert reply.headers['Content-Type'] == 'application/json'


async def test_unacceptable_forms_are_refused(api, configmaps):
    reply = await api.get(configmaps, headers={'Accept': 'text/html'})

    assert reply.code == 406
    assert reply.body == failure(
        406,
        'NotAcceptable',
        '406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, '
        'application/vnd.kubernetes.protobuf, application/json;stream=watch, '
        'application/vnd.kubernetes.protobuf;stream=watch',
        details={},
    )


async def test_unacceptable_forms_of_custom_objects_are_refused(api, things):
    reply = await api.get(things, headers={'Accept': 'text/html'})

    assert reply.code == 406
    assert reply.body == failure(
        406,
        'NotAcceptable',
        'only the following media types are accepted: '
        'application/json, application/yaml, '
        'application/vnd.kubernetes.protobuf',
    )


async def test_unknown_bodies_are_refused(api, configmaps):
    reply = await api.post(configmaps, b'a=b', type='application/x-www-form-urlencoded')

    assert reply.code == 415
    assert reply.body == failure(
        415,
        'UnsupportedMediaType',
        'the body of the request was in an unknown format - accepted media types include: '
        'application/json, application/yaml, application/vnd.kubernetes.protobuf',
    )


async def test_huge_bodies_are_refused(api, configmaps):
    reply = await api.post(configmaps, io.BytesIO(b' ' * (3 * 1024 * 1024 + 1)))

    assert reply.code == 413
    assert reply.body == failure(
        413, 'RequestEntityTooLarge', 'Request entity too large: limit is 3145728'
    )


async def test_objects_of_another_kind_are_refused(api, configmaps, things):
    built_in = await api.post(
        configmaps, {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'a'}}
    )
    custom = await api.post(things, {**THING, 'kind': 'Other', 'metadata': {'name': 'a'}})
    version = await api.post(
        things, {**THING, 'apiVersion': f'{GROUP}/v2', 'metadata': {'name': 'a'}}
    )

    assert (built_in.code, custom.code, version.code) == (400, 422, 400)
    assert built_in.body == failure(
        400,
        'BadRequest',
        'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown '
        'conversion',
    )
    assert (
        custom.body['message']
        == f'Other.{GROUP} "a" is invalid: kind: Invalid value: "Other": must be Thing'
    )
    assert version.body['message'] == (
        f'the API version in the data ({GROUP}/v2) does not match the expected API version ({GROUP}/v1)'
    )


@pytest.mark.parametrize(
    'resource, body, message',
    [
        pytest.param(
            'configmaps',
            b'{"metadata": ',
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
            'json parse error: unexpected end of JSON input ({"metadata": )',
            id='truncated',
        ),
        pytest.param(
            'configmaps',
            b'',
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
            'json parse error: unexpected end of JSON input (<empty>)',
            id='empty',
        ),
        pytest.param(
            'things',
            b'{"a":NaN}',
            "the object provided is unrecognized (must be of type Thing): couldn't get version/kind; "
            'json parse error: invalid character \'N\' looking for beginning of value ({"a":NaN})',
            id='no-json',
        ),
        pytest.param(
            'configmaps',
            b'[]',
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
            'json parse error: json: cannot unmarshal array into Go value of type struct '
            '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } '
            '(5b5d)',
            id='list',
        ),
        pytest.param(
            'things',
            b'{"metadata":{"name":"a"}}',
            "the object provided is unrecognized (must be of type Thing): Object 'Kind' is missing in "
            '\'{"metadata":{"name":"a"}}\' ({"metadata":{"name":"a"}})',
            id='no-kind',
        ),
        pytest.param(
            'configmaps',
            b'{"metadata": {"name": "a"}, "data": []}',
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array '
            'into Go struct field ConfigMap.data of type map[string]string',
            id='mistyped',
        ),
        pytest.param(
            'things',
            b'{"metadata": [], "apiVersion": "api.tests.kopf.dev/v1", "kind": "Thing"}',
            'Thing in version "v1" cannot be handled as a Thing: json: cannot unmarshal array '
            'into Go value of type v1.ObjectMeta',
            id='mistyped-metadata',
        ),
    ],
)
async def test_malformed_bodies_are_refused(api, paths, resource, body, message):
    reply = await api.post(paths[resource], body)

    assert reply.code == 400
    assert reply.body == failure(400, 'BadRequest', message)


async def test_malformed_patches_and_yaml_are_refused(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    patch = await api.merge(f'{things}/a', b'{"spec": x}')
    applied = await api.apply(f'{things}/a', b'spec: size: 1', fieldManager='me')

    assert patch.body == failure(
        400,
        'BadRequest',
        "error decoding patch: invalid character 'x' looking for beginning of value",
    )
    assert applied.body == failure(
        400,
        'BadRequest',
        'error decoding YAML: error converting YAML to JSON: yaml: '
        'mapping values are not allowed in this context',
    )


async def test_whole_numbers_are_integers_in_custom_objects_only(api, things, deployments):
    raw = b'{"apiVersion":"%b/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":1e3,"replicas":2.0}}'
    custom = await api.post(things, raw % GROUP.encode())
    config = f'{{apiVersion: {GROUP}/v1, kind: Thing, metadata: {{name: b}}, spec: {{size: 5.0}}}}'
    applied = await api.apply(f'{things}/b', config.encode(), fieldManager='me')
    built_in = await api.post(deployments, b'{"metadata":{"name":"a"},"spec":{"replicas":1.0}}')

    shown = (await api.ask('GET', f'{things}/a', headers={'Accept': 'application/yaml'})).body
    assert custom.body['spec'] == {'size': 1000, 'replicas': 2, 'color': 'grey'}
    assert b'replicas: 2\n' in shown and b'size: 1000\n' in shown
    assert isinstance(applied.body['spec']['size'], int)
    assert (built_in.code, 'cannot unmarshal number 1' in built_in.body['message']) == (400, True)


async def test_mistyped_patches_are_refused_with_their_results(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}, 'data': {'k': 'v'}})

    reply = await api.merge(f'{configmaps}/a', {'data': {'k': 1}})

    assert reply.code == 422
    assert reply.body['reason'] == 'Invalid'
    assert reply.body['message'].startswith(
        ' "" is invalid: patch: Invalid value: "{\\"apiVersion\\":\\"v1\\",\\"data\\":{\\"k\\":1},'
    )
    assert reply.body['message'].endswith(
        '": json: cannot unmarshal number into Go struct field ConfigMap.data of type string'
    )
    assert [cause['field'] for cause in reply.body['details']['causes']] == ['patch']


async def test_custom_object_is_not_created_without_its_namespace(api):
    reply = await api.post(f'/apis/{GROUP}/v1/things', {**THING, 'metadata': {'name': 'a'}})

    assert (reply.code, reply.body) == (404, b'404 page not found\n')


async def test_absent_subresource_is_not_found(api, plains):
    await api.make(
        plains, {'apiVersion': f'{GROUP}/v1', 'kind': 'Plain', 'metadata': {'name': 'a'}}
    )

    reply = await api.get(f'{plains}/a/status')

    assert reply.code == 404
    assert reply.body['message'] == f'plains.{GROUP} "a" not found'


async def test_all_wrong_fields_are_told_at_once(api, things):
    reply = await api.post(
        things, {**THING, 'metadata': {'name': 'A'}, 'spec': {'size': 'big', 'color': 1}}
    )

    assert reply.code == 422
    assert reply.body['reason'] == 'Invalid'
    causes = [
        (cause['field'], cause['reason'], cause['message'])
        for cause in reply.body['details'].pop('causes')
    ]
    assert reply.body['details'] == {'name': 'A', 'group': GROUP, 'kind': 'Thing'}
    assert sorted(causes) == [
        (
            'metadata.name',
            'FieldValueInvalid',
            'Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
            "'example.com', "
            "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            'spec.color',
            'FieldValueTypeInvalid',
            'Invalid value: "integer": spec.color in body must be of type string: "integer"',
        ),
        (
            'spec.size',
            'FieldValueTypeInvalid',
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
    ]


async def test_object_without_a_name_is_invalid(api, configmaps):
    reply = await api.post(configmaps, {'data': {}})

    assert reply.code == 422
    assert reply.body == failure(
        422,
        'Invalid',
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
        details={
            'kind': 'ConfigMap',
            'causes': [
                {
                    'reason': 'FieldValueRequired',
                    'message': 'Required value: name or generateName is required',
                    'field': 'metadata.name',
                }
            ],
        },
    )


@pytest.mark.parametrize(
    'method, path, code, message',
    [
        pytest.param(
            'GET',
            '/api/v1/unknowns',
            404,
            'the server could not find the requested resource',
            id='unknown-resource',
        ),
        pytest.param(
            'GET',
            '/apis/apps/v2',
            404,
            'the server could not find the requested resource',
            id='unknown-version',
        ),
        pytest.param(
            'GET',
            '/api/v2',
            404,
            'the server could not find the requested resource',
            id='unknown-core-version',
        ),
        pytest.param(
            'POST',
            '/api/v1/watch/namespaces/default/configmaps',
            405,
            'the server does not allow this method on the requested resource',
            id='post-to-watch',
        ),
        pytest.param(
            'GET',
            '/api/v1/namespaces/default/namespaces',
            404,
            'the server could not find the requested resource',
            id='no-namespaces',
        ),
        pytest.param(
            'GET',
            '/api/v1/namespaces/default/configmaps/a/status',
            404,
            'the server could not find the requested resource',
            id='subresource',
        ),
        pytest.param(
            'POST',
            '/api/v1/configmaps',
            405,
            'the server does not allow this method on the requested resource',
            id='no-namespace',
        ),
        pytest.param(
            'POST',
            '/api/v1/namespaces/default/configmaps/a',
            405,
            'the server does not allow this method on the requested resource',
            id='post-to-object',
        ),
        pytest.param(
            'PUT',
            '/api/v1/namespaces/default/configmaps',
            405,
            'the server does not allow this method on the requested resource',
            id='put-to-collection',
        ),
        pytest.param(
            'DELETE',
            '/api/v1/namespaces',
            405,
            'the server does not allow this method on the requested resource',
            id='no-collections',
        ),
    ],
)
async def test_senseless_paths_are_refused(api, method, path, code, message):
    reply = await api.ask(method, path, {} if method != 'GET' else None)

    reasons = {404: 'NotFound', 405: 'MethodNotAllowed'}
    assert reply.code == code
    assert reply.body == failure(code, reasons[code], message, details={})


@pytest.mark.parametrize(
    'path',
    [
        '/apis/unknown.example.com/v1/things',
        f'/apis/{GROUP}/v9/things',
        '/unknown',
        f'/apis/{GROUP}/v1/unknowns',
        f'/apis/{GROUP}/v1/things/a',
    ],
)
async def test_unknown_paths_have_no_status(api, path):
    reply = await api.get(path)

    assert reply.code == 404
    assert reply.body == b'404 page not found\n'
    assert reply.headers['Content-Type'] == 'text/plain; charset=utf-8'


async def test_health_is_told(api):
    replies = [await api.get(path) for path in ('/healthz', '/livez', '/readyz')]

    assert [(reply.code, reply.body) for reply in replies] == [(200, b'ok')] * 3


async def test_version_is_told(api):
    reply = await api.get('/version')

    assert (reply.body['major'], reply.body['minor']) == ('1', '35')


@pytest.mark.parametrize(
    'accept, media_type',
    [
        pytest.param('*/*', 'application/json', id='any'),
        pytest.param('application/json', 'application/json', id='json'),
        pytest.param(PROTO_OPENAPI, PROTO_OPENAPI, id='protobuf'),
        pytest.param(
            PROTO_OPENAPI.replace('v2.v1', 'v2@v1'),
            PROTO_OPENAPI,
            id='protobuf-as-kubectl-spells-it',
        ),
        pytest.param(f'application/json;q=0.5,{PROTO_OPENAPI}', PROTO_OPENAPI, id='preferred'),
    ],
)
async def test_definitions_of_all_resources_are_published(api, accept, media_type):
    reply = await api.get('/openapi/v2', headers={'Accept': accept})
    refused = await api.get('/openapi/v2', headers={'Accept': 'text/html'})

    assert (reply.code, reply.headers['Content-Type'].split(';')[0]) == (200, media_type)
    assert refused.code == 406


async def test_discovery_lists_the_resources(api):
    core = (await api.get('/api/v1')).body
    custom = (await api.get(f'/apis/{GROUP}/v1')).body
    groups = (await api.get('/apis')).body

    assert 'configmaps' in {resource['name'] for resource in core['resources']}
    assert {resource['name'] for resource in custom['resources']} == {
        'plains',
        'things',
        'things/status',
        'things/scale',
    }
    assert GROUP in {group['name'] for group in groups['groups']}


async def test_pretty_answers_are_for_people(api, configmaps):
    plain = await api.ask('GET', configmaps, headers={'Accept': 'application/json'})
    pretty = await api.ask('GET', configmaps, headers={'User-Agent': 'curl/8.0'})

    assert int(pretty.headers['Content-Length']) > int(plain.headers['Content-Length'])


async def test_scale_is_a_view_of_the_object(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'replicas': 2}})
    await api.merge(f'{things}/a/status', {'status': {'replicas': 1, 'selector': 'x=y'}})

    before = await api.get(f'{things}/a/scale')
    after = await api.merge(f'{things}/a/scale', {'spec': {'replicas': 5}})
    body = (await api.get(f'{things}/a')).body

    meta = before.body['metadata']
    assert before.body == {
        'kind': 'Scale',
        'apiVersion': 'autoscaling/v1',
        'metadata': meta,
        'spec': {'replicas': 2},
        'status': {'replicas': 1, 'selector': 'x=y'},
    }
    assert set(meta) == {'name', 'namespace', 'uid', 'resourceVersion', 'creationTimestamp'}
    assert after.body['spec'] == {'replicas': 5}
    assert after.body['metadata']['resourceVersion'] == body['metadata']['resourceVersion']
    assert body['spec'] == {'replicas': 5, 'color': 'grey'}
    assert body['metadata']['generation'] == 2


async def test_scale_is_shown_in_other_forms(api, things):
    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'replicas': 2}})

    table = await api.get(f'{things}/a/scale', headers={'Accept': TABLE})
    partial = await api.get(f'{things}/a/scale', headers={'Accept': PARTIAL})

    assert [column['name'] for column in table.body['columnDefinitions']] == [
        'Name',
        'Desired',
        'Available',
        'Age',
    ]
    assert [row['cells'][:3] for row in table.body['rows']] == [['a', 2, 0]]
    assert partial.body['kind'] == 'PartialObjectMetadata'
    assert partial.body['metadata'] == {
        key: made['metadata'][key] for key in partial.body['metadata']
    }
    assert 'managedFields' not in partial.body['metadata']


async def test_scale_is_replaced(api, deployments):
    await api.make(
        deployments,
        {
            'metadata': {'name': 'a'},
            'spec': {
                'selector': {'matchLabels': {'app': 'a'}},
                'template': {
                    'metadata': {'labels': {'app': 'a'}},
                    'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
                },
            },
        },
    )
    scale = (await api.get(f'{deployments}/a/scale')).body

    reply = await api.put(f'{deployments}/a/scale', {**scale, 'spec': {'replicas': 3}})
    wrong = await api.put(f'{deployments}/a/scale', {**scale, 'spec': {'replicas': -1}})

    assert scale['spec'] == {'replicas': 1}
    assert scale['status'] == {'replicas': 0, 'selector': 'app=a'}
    assert reply.body['spec'] == {'replicas': 3}
    assert (await api.get(f'{deployments}/a')).body['spec']['replicas'] == 3
    assert wrong.code == 422
    assert wrong.body['message'] == (
        'Scale.autoscaling "a" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


@pytest.mark.parametrize(
    'wrong, message',
    [
        pytest.param(
            {'name': 'b'},
            'the name of the object (b) does not match the name on the URL (a)',
            id='name',
        ),
        pytest.param(
            {'name': 'a', 'namespace': 'elsewhere'},
            'the namespace of the provided object does not match the namespace sent on the request',
            id='namespace',
        ),
        pytest.param(
            {},
            'the name of the object (a based on URL) was undeterminable: name must be provided',
            id='nothing',
        ),
    ],
)
async def test_scale_of_another_object_is_refused(api, things, wrong, message):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'replicas': 2}})

    reply = await api.put(
        f'{things}/a/scale',
        {
            'apiVersion': 'autoscaling/v1',
            'kind': 'Scale',
            'metadata': wrong,
            'spec': {'replicas': 3},
        },
    )

    assert reply.body == failure(400, 'BadRequest', message)
    assert (await api.get(f'{things}/a')).body['spec']['replicas'] == 2


async def test_negative_scale_is_refused(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'replicas': 2}})

    reply = await api.merge(f'{things}/a/scale', {'spec': {'replicas': -1}})

    assert reply.code == 422
    assert reply.body['message'] == (
        f'Thing.{GROUP} "a" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer'
    )
