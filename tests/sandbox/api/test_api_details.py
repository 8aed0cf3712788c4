"""
Small things that were found by the comparison with a real API server, each of which some client can
depend on.
"""

import base64

import pytest
from sandbox_http import GROUP, build_crd

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}
CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
UNRECOGNIZED = 'the object provided is unrecognized (must be of type'


@pytest.mark.parametrize(
    'resource, body',
    [
        pytest.param('configmaps', {}, id='built-in'),
        pytest.param('things', THING, id='custom'),
    ],
)
async def test_update_of_an_impossible_version_fails(api, paths, resource, body):
    path = paths[resource]
    await api.make(path, {**body, 'metadata': {'name': 'a'}})

    reply = await api.put(f'{path}/a', {**body, 'metadata': {'name': 'a', 'resourceVersion': 'x'}})

    assert (reply.code, reply.body['message']) == (
        500,
        'strconv.ParseUint: parsing "x": invalid syntax',
    )


async def test_long_values_of_labels_are_measured_in_bytes(api, configmaps):
    reply = await api.post(configmaps, {'metadata': {'name': 'a', 'labels': {'x': 'y' * 64}}})

    assert reply.code == 422
    assert reply.body['message'].endswith('must be no more than 63 bytes')


async def test_unqualified_finalizers_are_warned_of_once_they_are_added(api, things):
    made = await api.post(
        things, {**THING, 'metadata': {'name': 'a', 'finalizers': ['plain', 'kopf.dev/good']}}
    )
    changed = await api.merge(f'{things}/a', {'metadata': {'labels': {'x': 'y'}}})
    wrong = await api.post(
        things, {**THING, 'metadata': {'name': 'b', 'finalizers': ['bad name!']}}
    )

    [warning] = made.warnings
    assert 'metadata.finalizers: \\"plain\\": prefer a domain-qualified finalizer name' in warning
    assert (changed.code, changed.warnings) == (200, ())
    assert (wrong.code, wrong.warnings) == (422, ())


@pytest.mark.parametrize(
    'patch, message',
    [
        pytest.param(
            {'kind': 'Other'}, 'no kind "Other" is registered for version "v1"', id='kind'
        ),
        pytest.param(
            {'apiVersion': 'v9'}, 'no kind "ConfigMap" is registered for version "v9"', id='version'
        ),
    ],
)
async def test_patches_cannot_change_the_kinds_of_built_in_objects(api, configmaps, patch, message):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.merge(f'{configmaps}/a', patch)

    assert (reply.code, reply.body['details']['causes'][0]['field']) == (422, 'patch')
    assert message in reply.body['message']


async def test_patches_cannot_change_the_versions_of_custom_objects(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    reply = await api.merge(f'{things}/a', {'apiVersion': 'kopf.dev/v9'})

    assert (reply.code, reply.body['message']) == (
        422,
        f'Thing.kopf.dev "a" is invalid: apiVersion: Invalid value: "kopf.dev/v9": must be {GROUP}/v1',
    )


@pytest.mark.parametrize('resource', ['configmaps', 'things'])
@pytest.mark.parametrize(
    'identity, shown',
    [
        pytest.param({}, '/, Kind=', id='none'),
        pytest.param({'apiVersion': 'v9', 'kind': 'Other'}, '/v9, Kind=Other', id='other'),
    ],
)
async def test_configurations_of_other_kinds_are_not_applied(api, paths, resource, identity, shown):
    reply = await api.apply(
        f'{paths[resource]}/a', {**identity, 'metadata': {'name': 'a'}}, fieldManager='me'
    )

    assert (reply.code, reply.body['message']) == (400, f'invalid object type: {shown}')


@pytest.mark.parametrize(
    'length, code', [pytest.param(128, 200, id='fits'), pytest.param(129, 422, id='long')]
)
async def test_names_of_field_managers_are_limited(api, configmaps, length, code):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.merge(f'{configmaps}/a', {'data': {'x': 'y'}}, fieldManager='x' * length)

    assert reply.code == code
    if code != 200:
        assert reply.body['details']['causes'] == [
            {
                'reason': 'FieldValueTooLong',
                'message': 'Too long: may not be more than 128 bytes',
                'field': 'fieldManager',
            }
        ]


async def test_everything_wrong_in_the_options_of_a_list_is_told_at_once(api, configmaps):
    reply = await api.get(configmaps, resourceVersionMatch='Wrong', sendInitialEvents='true')

    assert [cause['reason'] for cause in reply.body['details']['causes']] == [
        'FieldValueForbidden',
        'FieldValueNotSupported',
        'FieldValueForbidden',
    ]


async def test_everything_wrong_in_the_options_of_a_watch_is_told_at_once(api, configmaps):
    reply = await api.get(configmaps, watch='true', resourceVersionMatch='Exact')
    limited = await api.get(configmaps, watch='true', limit='x')

    assert [cause['reason'] for cause in reply.body['details']['causes']] == [
        'FieldValueForbidden',
        'FieldValueNotSupported',
    ]
    assert (limited.code, limited.body['message']) == (
        400,
        'strconv.ParseInt: parsing "x": invalid syntax',
    )


async def test_garbage_in_place_of_a_token_is_explained_as_go_does(api, configmaps):
    reply = await api.get(configmaps, **{'continue': 'garbage'})

    assert reply.code == 400
    assert reply.body['message'].endswith(
        r"invalid character '\u0081' looking for beginning of value"
    )


@pytest.mark.parametrize(
    'resource, accept, message',
    [
        pytest.param('configmaps', 'text/html', '406: Not Acceptable', id='built-in-unknown'),
        pytest.param('configmaps', 'application/*', '406: Not Acceptable', id='built-in-wildcard'),
        pytest.param(
            'configmaps',
            'application/json;as=Other;v=v1;g=meta.k8s.io',
            'only the following',
            id='built-in-shape',
        ),
        pytest.param('things', 'text/html', 'only the following', id='custom-unknown'),
        pytest.param('things', 'application/*', None, id='custom-wildcard'),
    ],
)
async def test_unknown_forms_are_not_acceptable(api, paths, resource, accept, message):
    path = f'{paths[resource]}/a'
    body = THING if resource == 'things' else {}
    await api.make(paths[resource], {**body, 'metadata': {'name': 'a'}})

    reply = await api.get(path, headers={'Accept': accept})

    assert reply.code == (200 if message is None else 406)
    assert message is None or reply.body['message'].startswith(message)
    assert 'stream=watch' not in str(reply.body)


async def test_malformed_options_of_deletions_are_refused_in_few_words(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.delete(f'{configmaps}/a', b'{not json')

    assert reply.body['message'] == (
        "couldn't get version/kind; json parse error: invalid character 'n' "
        'looking for beginning of object key string'
    )


@pytest.mark.parametrize(
    'resource, body, message',
    [
        pytest.param(
            'things',
            b'null',
            "Thing): Object 'Kind' is missing in 'null' (6e756c6c)",
            id='custom-null',
        ),
        pytest.param(
            'things',
            b'{"metadata": 5}',
            'Thing): Object \'Kind\' is missing in \'{"metadata": 5}\' ({"metadata": 5})',
            id='custom-kindless',
        ),
        pytest.param(
            'configmaps',
            b'{"kind": 5}',
            "ConfigMap): couldn't get version/kind; json parse error: json: cannot "
            'unmarshal number into Go struct field .kind of type string ({"kind": 5})',
            id='number',
        ),
    ],
)
async def test_unrecognized_bodies_are_quoted_as_they_are(api, paths, resource, body, message):
    reply = await api.post(paths[resource], body)

    assert (reply.code, reply.body['message']) == (400, f'{UNRECOGNIZED} {message}')


async def test_null_is_an_empty_built_in_object(api, configmaps):
    reply = await api.post(configmaps, b'null')

    assert (reply.code, reply.body['details']['causes'][0]['field']) == (422, 'metadata.name')


@pytest.mark.parametrize(
    'method, code, message',
    [
        pytest.param('PUT', 400, 'name must be provided', id='put'),
        pytest.param('PATCH', 400, 'name must be provided', id='patch'),
        pytest.param(
            'OPTIONS', 405, f' is not supported on resources of kind "things.{GROUP}"', id='options'
        ),
    ],
)
async def test_lists_of_custom_objects_refuse_what_is_for_single_ones(
    api, things, method, code, message
):
    reply = await api.ask(method, things, {}, type='application/merge-patch+json')

    assert (reply.code, reply.body['message']) == (code, message)


@pytest.mark.parametrize(
    'path, code',
    [
        pytest.param('/api', 405, id='core'),
        pytest.param('/api/v1', 405, id='core-version'),
        pytest.param('/apis/apps/v1', 405, id='version'),
        pytest.param('/version', 405, id='build'),
        pytest.param('/apis', 200, id='groups'),
        pytest.param(f'/apis/{GROUP}/v1', 200, id='custom-version'),
        pytest.param('/nowhere', 404, id='nothing'),
    ],
)
async def test_some_documents_are_only_for_reading(api, path, code):
    reply = await api.post(path, {})

    assert reply.code == code


async def test_status_of_a_definition_is_owned_by_the_server(api):
    await api.make(CRDS, build_crd('owneds'))

    stored = await api.get(f'{CRDS}/owneds.{GROUP}')

    entries = {entry['manager']: entry for entry in stored.body['metadata']['managedFields']}
    assert (set(entries), entries['kube-apiserver']['subresource']) == (
        {'api-tests', 'kube-apiserver'},
        'status',
    )
    assert set(entries['kube-apiserver']['fieldsV1']) == {'f:status'}


async def test_definition_without_a_name_has_only_this_wrong(api):
    reply = await api.post(CRDS, {**build_crd('nameless'), 'metadata': {}})

    assert [cause['reason'] for cause in reply.body['details']['causes']] == ['FieldValueRequired']


async def test_zeros_that_nobody_sent_are_owned_by_nobody(api, namespace):
    event = {'metadata': {'name': 'a'}, 'involvedObject': {'namespace': namespace}}

    made = await api.make(f'/api/v1/namespaces/{namespace}/events', event)

    [entry] = made['metadata']['managedFields']
    assert (made['firstTimestamp'], made['reportingComponent']) == (None, '')
    assert entry['fieldsV1'] == {'f:involvedObject': {}}


@pytest.fixture
async def modern_event(api, namespace):
    """An event of the newer API, and its path."""
    path = f'/apis/events.k8s.io/v1/namespaces/{namespace}/events'
    await api.make(
        path,
        {
            'metadata': {'name': 'a'},
            'regarding': {'namespace': namespace, 'name': 'x'},
            'action': 'Act',
            'type': 'Normal',
            'reason': 'Testing',
            'note': 'It works.',
            'reportingController': 'kopf.dev/kopf',
            'reportingInstance': 'dev',
            'eventTime': '2020-01-01T00:00:00.000000Z',
        },
    )
    return f'{path}/a'


@pytest.mark.parametrize(
    'patch, message',
    [
        pytest.param({'note': 'x'}, 'message: Invalid value: "x": field is immutable', id='note'),
        pytest.param(
            {'reportingController': 'x'},
            'reportingController: Invalid value: "x": field is immutable',
            id='reporter',
        ),
        pytest.param(
            {'series': {'count': 1, 'lastObservedTime': '2020-01-01T00:00:01.000000Z'}},
            'series.count: Invalid value: "": should be at least 2',
            id='series',
        ),
    ],
)
async def test_events_of_the_newer_api_are_immutable(api, modern_event, patch, message):
    reply = await api.merge(modern_event, patch)

    assert (reply.code, reply.body['message']) == (422, f'Event "a" is invalid: {message}')


async def test_events_of_the_newer_api_go_on_as_series(api, modern_event):
    reply = await api.merge(
        modern_event, {'series': {'count': 2, 'lastObservedTime': '2020-01-01T00:00:01.000000Z'}}
    )

    assert (reply.code, reply.body['series']['count']) == (200, 2)


async def test_events_of_the_newer_api_are_listed_in_the_older_one_as_all_others(
    api, namespace, modern_event
):
    reply = await api.get(f'/api/v1/namespaces/{namespace}/events')

    [event] = reply.body['items']
    assert event['message'] == 'It works.'
    assert 'kind' not in event and 'apiVersion' not in event


@pytest.mark.parametrize(
    'query, is_told',
    [
        pytest.param({}, True, id='latest'),
        pytest.param({'resourceVersion': '0'}, True, id='any'),
        pytest.param({'resourceVersion': '1'}, False, id='past'),
    ],
)
async def test_end_of_the_current_objects_is_told_to_those_who_take_bookmarks(
    api, things, query, is_told
):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    async with api.watch(things, allowWatchBookmarks='true', timeoutSeconds=1, **query) as stream:
        events = await stream.rest()

    assert [type for type, _ in events] == ['ADDED', *(['BOOKMARK'] if is_told else [])]


async def test_references_that_the_collector_removes_are_owned_by_nobody(
    api, configmaps, namespace
):
    secrets = f'/api/v1/namespaces/{namespace}/secrets'
    owner = await api.make(secrets, {'metadata': {'name': 'owner'}})
    reference = {
        'apiVersion': 'v1',
        'kind': 'Secret',
        'name': 'owner',
        'uid': owner['metadata']['uid'],
    }
    await api.make(
        configmaps, {'metadata': {'name': 'a', 'ownerReferences': [reference]}, 'data': {'x': 'y'}}
    )

    await api.delete(f'{secrets}/owner', propagationPolicy='Orphan')
    await api.wait_until_gone(f'{secrets}/owner')
    left = await api.get(f'{configmaps}/a')

    [entry] = left.body['metadata']['managedFields']
    assert 'ownerReferences' not in left.body['metadata']
    assert entry['fieldsV1'] == {'f:data': {'.': {}, 'f:x': {}}}


async def test_fields_that_webhooks_invent_are_dropped_without_warnings(
    sandbox, api, configmaps, namespace
):
    async def invent(path, review):
        patch = base64.b64encode(b'[{"op": "add", "path": "/unknown", "value": 1}]').decode()
        response = {
            'uid': review['request']['uid'],
            'allowed': True,
            'patchType': 'JSONPatch',
            'patch': patch,
        }
        return {**review, 'response': response}

    sandbox.add_service(namespace, 'inventor', invent)
    await api.make(
        '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations',
        {
            'metadata': {'name': namespace},
            'webhooks': [
                {
                    'name': 'hook.kopf.dev',
                    'sideEffects': 'None',
                    'admissionReviewVersions': ['v1'],
                    'clientConfig': {'service': {'namespace': namespace, 'name': 'inventor'}},
                    'namespaceSelector': {
                        'matchLabels': {'kubernetes.io/metadata.name': namespace}
                    },
                    'rules': [
                        {
                            'operations': ['*'],
                            'apiGroups': [''],
                            'apiVersions': ['*'],
                            'resources': ['configmaps'],
                        }
                    ],
                }
            ],
        },
    )

    reply = await api.post(configmaps, {'metadata': {'name': 'a'}}, fieldValidation='Strict')

    assert (reply.code, reply.warnings, 'unknown' in reply.body) == (201, (), False)


async def test_operations_of_groups_with_dashes_are_named_as_others(api):
    group = f'with-dashes.{GROUP}'
    crd = build_crd('dasheds')
    crd = {**crd, 'metadata': {'name': f'dasheds.{group}'}, 'spec': {**crd['spec'], 'group': group}}
    await api.make(CRDS, crd)

    reply = await api.get(f'/openapi/v3/apis/{group}/v1')
    absent = await api.get(f'/openapi/v3/apis/{group}/v2')

    operation = reply.body['paths'][f'/apis/{group}/v1/namespaces/{{namespace}}/dasheds']['get']
    assert operation['operationId'].startswith('listWithDashesApiTests')
    assert operation['tags'] == ['withDashesApiTestsKopfDev_v1']
    assert (absent.code, absent.body) == (404, b'')


async def test_definitions_are_hashed_as_in_the_version_that_is_gone(api):
    reply = await api.get('/apis/apiextensions.k8s.io/v1')

    hashes = [resource.get('storageVersionHash') for resource in reply.body['resources']]
    assert hashes == ['jfWCUB31mvA=', None]


async def test_counter_of_daemon_sets_is_owned_by_their_makers(api, namespace):
    spec = {
        'selector': {'matchLabels': {'a': 'b'}},
        'template': {
            'metadata': {'labels': {'a': 'b'}},
            'spec': {'containers': [{'name': 'main', 'image': 'busybox'}]},
        },
    }

    made = await api.make(
        f'/apis/apps/v1/namespaces/{namespace}/daemonsets',
        {'metadata': {'name': 'a'}, 'spec': spec},
    )

    [entry] = made['metadata']['managedFields']
    counter = 'deprecated.daemonset.template.generation'
    assert made['metadata']['annotations'] == {counter: '1'}
    assert entry['fieldsV1']['f:metadata'] == {'f:annotations': {'.': {}, f'f:{counter}': {}}}
