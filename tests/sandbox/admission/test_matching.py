"""Webhooks are matched, and their patches are applied or explained, as the API does it."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._sandbox.admission import admission_review, chain, json_patch, matching
from kopf._sandbox.http import warning_headers
from kopf._sandbox.meta import errors, kinds, requests

USER = requests.User('jane', ('devs',))


def make_resource(plural='pods', kind='Pod', *, group='', version='v1', namespaced=True):
    return kinds.Resource(
        group,
        version,
        plural,
        kind.lower(),
        kind,
        namespaced,
        (),
        storage_version='v1',
        home=kinds.Home(group, plural),
    )


PODS = make_resource()
NODES = make_resource('nodes', 'Node', namespaced=False)
NAMESPACES = make_resource('namespaces', 'Namespace', namespaced=False)
THINGS1 = make_resource('things', 'Thing', group='kopf.dev')
THINGS2 = make_resource('things', 'Thing', group='kopf.dev', version='v2')
CATALOG = kinds.Catalog([PODS, NODES, NAMESPACES, THINGS1, THINGS2])


def make_attempt(
    resource=PODS,
    operation='CREATE',
    *,
    labels=None,
    old_labels=None,
    subresource='',
    verb='create',
):
    def build(labels):
        return {
            'apiVersion': resource.api_version,
            'kind': resource.kind,
            'metadata': {'name': 'x', 'labels': labels or {}},
        }

    namespace = 'ns' if resource.namespaced else ''
    request = requests.Request(
        verb, resource, USER, namespace=namespace, name='x', subresource=subresource
    )
    new = build(labels) if operation != 'DELETE' else None
    old = build(old_labels) if operation != 'CREATE' else None
    return matching.Attempt(request, operation, new, old, {})


def make_hook(**content):
    rules = [{'operations': ['*'], 'apiGroups': ['*'], 'apiVersions': ['*'], 'resources': ['*']}]
    body = {'metadata': {'name': 'cfg'}, 'webhooks': [{'name': 'a.b.c', 'rules': rules, **content}]}
    return matching.parse_configuration(body)[0]


def make_rule(operations='*', groups='*', versions='*', resources='*', **content):
    return {
        'rules': [
            {
                'operations': operations.split(','),
                'apiGroups': groups.split(','),
                'apiVersions': versions.split(','),
                'resources': resources.split(','),
                **content,
            }
        ]
    }


def find_labels(namespace):
    return {'ns': {'team': 'a'}, 'x': {'team': 'a'}}.get(namespace)


def matches(hook, attempt):
    return matching.match(hook, attempt, CATALOG, find_labels) is not None


@pytest.mark.parametrize(
    'rule, attempt, expected',
    [
        pytest.param(make_rule(), make_attempt(), True, id='any'),
        pytest.param(make_rule('UPDATE,CREATE'), make_attempt(), True, id='operation'),
        pytest.param(make_rule('UPDATE,DELETE'), make_attempt(), False, id='other-operation'),
        pytest.param(make_rule(groups='apps'), make_attempt(), False, id='other-group'),
        pytest.param(make_rule(versions='v2'), make_attempt(), False, id='other-version'),
        pytest.param(make_rule(resources='services,pods'), make_attempt(), True, id='resource'),
        pytest.param(make_rule(resources='services'), make_attempt(), False, id='other-resource'),
        pytest.param(
            make_rule(resources='pods'),
            make_attempt(subresource='status'),
            False,
            id='not-subresources',
        ),
        pytest.param(
            make_rule(resources='*'),
            make_attempt(subresource='status'),
            False,
            id='never-subresources',
        ),
        pytest.param(
            make_rule(resources='pods/status'),
            make_attempt(subresource='status'),
            True,
            id='subresource',
        ),
        pytest.param(
            make_rule(resources='pods/*'),
            make_attempt(subresource='status'),
            True,
            id='any-subresource',
        ),
        pytest.param(
            make_rule(resources='pods/*'), make_attempt(), True, id='any-subresource-or-none'
        ),
        pytest.param(
            make_rule(resources='*/status'),
            make_attempt(subresource='status'),
            True,
            id='subresource-of-any',
        ),
        pytest.param(
            make_rule(resources='*/*'), make_attempt(subresource='status'), True, id='everything'
        ),
        pytest.param(make_rule(scope='Namespaced'), make_attempt(), True, id='namespaced'),
        pytest.param(
            make_rule(scope='Namespaced'), make_attempt(NODES), False, id='namespaced-only'
        ),
        pytest.param(
            make_rule(scope='Namespaced'),
            make_attempt(NAMESPACES),
            False,
            id='namespaces-are-not-namespaced',
        ),
        pytest.param(
            make_rule(scope='Cluster'),
            make_attempt(NAMESPACES),
            True,
            id='namespaces-are-of-cluster',
        ),
        pytest.param(make_rule(scope='Cluster'), make_attempt(), False, id='cluster-only'),
        pytest.param({'rules': None}, make_attempt(), False, id='no-rules'),
        pytest.param({'rules': [5, {'operations': 5}]}, make_attempt(), False, id='nonsense'),
    ],
)
def test_rules_select_requests(rule, attempt, expected):
    assert matches(make_hook(**rule), attempt) is expected


@pytest.mark.parametrize(
    'selector, attempt, expected',
    [
        pytest.param({'matchLabels': {'team': 'a'}}, make_attempt(), True, id='selected'),
        pytest.param({'matchLabels': {'team': 'b'}}, make_attempt(), False, id='not-selected'),
        pytest.param(
            {'matchLabels': {'team': 'b'}}, make_attempt(NODES), True, id='cluster-scoped-always'
        ),
        pytest.param(
            {'matchLabels': {'team': 'b'}},
            make_attempt(NAMESPACES, labels={'team': 'b'}),
            True,
            id='namespace-by-its-new-labels',
        ),
        pytest.param(
            {'matchLabels': {'team': 'a'}},
            make_attempt(NAMESPACES, 'DELETE'),
            True,
            id='namespace-by-its-stored-labels',
        ),
        pytest.param({}, make_attempt(), True, id='empty'),
    ],
)
def test_namespaces_are_selected_by_labels(selector, attempt, expected):
    assert matches(make_hook(namespaceSelector=selector), attempt) is expected


@pytest.mark.parametrize(
    'attempt, expected',
    [
        pytest.param(make_attempt(labels={'a': 'b'}), True, id='new'),
        pytest.param(make_attempt(operation='UPDATE', labels={'a': 'b'}), True, id='gets-label'),
        pytest.param(
            make_attempt(operation='UPDATE', old_labels={'a': 'b'}), True, id='loses-label'
        ),
        pytest.param(make_attempt(operation='DELETE', old_labels={'a': 'b'}), True, id='deleted'),
        pytest.param(make_attempt(operation='UPDATE'), False, id='neither'),
    ],
)
def test_objects_are_selected_by_old_and_new_labels(attempt, expected):
    assert matches(make_hook(objectSelector={'matchLabels': {'a': 'b'}}), attempt) is expected


def test_absent_namespace_is_not_found_only_if_it_has_to_be_selected():
    request = requests.Request('create', PODS, USER, namespace='absent')
    attempt = matching.Attempt(request, 'CREATE', {'metadata': {}}, None, {})
    selector = {'namespaceSelector': {'matchLabels': {'a': 'b'}}}

    with pytest.raises(errors.ApiError, match=r'^namespaces "absent" not found$'):
        matches(make_hook(**selector), attempt)

    assert matches(make_hook(), attempt)
    assert not matches(make_hook(**selector, **make_rule(groups='other')), attempt)


@pytest.mark.parametrize(
    'policy, expected',
    [
        pytest.param('Equivalent', THINGS1, id='equivalent'),
        pytest.param('Exact', None, id='exact'),
    ],
)
def test_other_versions_are_matched_only_if_equivalent(policy, expected):
    hook = make_hook(
        matchPolicy=policy, **make_rule(groups='kopf.dev', versions='v1', resources='things')
    )

    assert matching.match(hook, make_attempt(THINGS2), CATALOG, find_labels) is expected


def test_review_of_equivalent_version_tells_both_versions():
    review = admission_review.build_review(
        make_attempt(THINGS2, 'UPDATE', verb='patch'), THINGS1, 'uid', 'v1'
    )

    asked = review['request']
    assert review['apiVersion'] == 'admission.k8s.io/v1'
    assert asked['kind'] == {'group': 'kopf.dev', 'version': 'v1', 'kind': 'Thing'}
    assert asked['resource'] == {'group': 'kopf.dev', 'version': 'v1', 'resource': 'things'}
    assert asked['requestKind'] == {'group': 'kopf.dev', 'version': 'v2', 'kind': 'Thing'}
    assert asked['requestResource'] == {'group': 'kopf.dev', 'version': 'v2', 'resource': 'things'}
    assert asked['object']['apiVersion'] == asked['oldObject']['apiVersion'] == 'kopf.dev/v1'


def test_review_of_scale_keeps_its_own_kind():
    scale = {'apiVersion': 'autoscaling/v1', 'kind': 'Scale', 'metadata': {'name': 'x'}}
    request = requests.Request(
        'patch', THINGS2, USER, namespace='ns', name='x', subresource='scale'
    )

    asked = admission_review.build_review(
        matching.Attempt(request, 'UPDATE', scale, scale, {}), THINGS1, 'uid', 'v1'
    )['request']

    assert (
        asked['kind']
        == asked['requestKind']
        == {'group': 'autoscaling', 'version': 'v1', 'kind': 'Scale'}
    )
    assert asked['subResource'] == asked['requestSubResource'] == 'scale'
    assert asked['object'] == scale


def test_review_of_creation_has_no_old_object_and_no_subresource():
    asked = admission_review.build_review(make_attempt(), PODS, 'uid', 'v1')['request']

    assert list(asked) == [
        'uid',
        'kind',
        'resource',
        'requestKind',
        'requestResource',
        'name',
        'namespace',
        'operation',
        'userInfo',
        'object',
        'oldObject',
        'dryRun',
        'options',
    ]
    assert asked['oldObject'] is None
    assert asked['userInfo'] == {'username': 'jane', 'groups': ['devs']}


def test_review_of_collection_has_no_name():
    asked = admission_review.build_review(
        make_attempt(operation='DELETE', verb='deletecollection'), PODS, 'u', 'v1'
    )['request']

    assert 'name' not in asked


def test_review_of_namespace_is_in_itself():
    asked = admission_review.build_review(make_attempt(NAMESPACES), NAMESPACES, 'u', 'v1')[
        'request'
    ]

    assert (asked['name'], asked['namespace']) == ('x', 'x')


@pytest.mark.parametrize(
    'operation, query, given, dry_run, expected',
    [
        pytest.param('CREATE', {}, None, False, {'kind': 'CreateOptions'}, id='create'),
        pytest.param(
            'CREATE',
            {'fieldManager': 'fm', 'fieldValidation': 'Strict', 'pretty': 'true'},
            None,
            True,
            {
                'kind': 'CreateOptions',
                'dryRun': ['All'],
                'fieldManager': 'fm',
                'fieldValidation': 'Strict',
            },
            id='create-all',
        ),
        pytest.param(
            'UPDATE',
            {'fieldManager': 'fm', 'force': 'true'},
            None,
            False,
            {'kind': 'UpdateOptions', 'fieldManager': 'fm'},
            id='update',
        ),
        pytest.param(
            'DELETE',
            {'gracePeriodSeconds': '5', 'propagationPolicy': 'Foreground'},
            None,
            False,
            {'kind': 'DeleteOptions', 'gracePeriodSeconds': 5, 'propagationPolicy': 'Foreground'},
            id='delete',
        ),
        pytest.param(
            'DELETE',
            {},
            {'gracePeriodSeconds': 0, 'preconditions': {}},
            True,
            {
                'kind': 'DeleteOptions',
                'gracePeriodSeconds': 0,
                'preconditions': {},
                'dryRun': ['All'],
            },
            id='delete-body',
        ),
    ],
)
def test_review_has_the_options_of_the_operation(operation, query, given, dry_run, expected):
    request = requests.Request('x', PODS, USER, options=query, dry_run=dry_run)

    assert chain.build_options(request, operation, given) == {
        'apiVersion': 'meta.k8s.io/v1',
        **expected,
    }


def test_configuration_with_conditions_is_warned_about():
    body = {'webhooks': [{}, {'matchConditions': [{'name': 'x', 'expression': 'true'}]}]}

    assert matching.list_unsupported(body) == [
        'webhooks[1].matchConditions are not evaluated without the library cel-expr-python; '
        'the webhook is called always'
    ]


REVIEW = {'apiVersion': 'admission.k8s.io/v1', 'request': {'uid': 'u1'}}
OLD_REVIEW = {'apiVersion': 'admission.k8s.io/v1beta1', 'request': {'uid': 'u1'}}


def answer(response, **content):
    body = {
        'apiVersion': 'admission.k8s.io/v1',
        'kind': 'AdmissionReview',
        'response': response,
        **content,
    }
    return json.dumps(body).encode()


def encode(operations):
    text = operations if isinstance(operations, bytes) else json.dumps(operations).encode()
    return base64.b64encode(text).decode()


STRUCT = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
PATCH = [{'op': 'add', 'path': '/x', 'value': 1}]


@pytest.mark.parametrize(
    'raw, is_mutating, message',
    [
        pytest.param(
            answer({'uid': 'other', 'allowed': True}),
            False,
            'received invalid webhook response: expected response.uid="u1", got "other"',
            id='other-uid',
        ),
        pytest.param(
            answer(None),
            False,
            'received invalid webhook response: webhook response was absent',
            id='absent',
        ),
        pytest.param(
            answer({'uid': 'u1'}, apiVersion='admission.k8s.io/v1beta1'),
            False,
            'failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): '
            'unknown conversion',
            id='other-version',
        ),
        pytest.param(
            answer({'uid': 'u1'}, apiVersion='', kind=''),
            False,
            'received invalid webhook response: expected webhook response of admission.k8s.io/v1, '
            'Kind=AdmissionReview, got /, Kind=',
            id='no-kind',
        ),
        pytest.param(
            answer({'uid': 'u1'}, apiVersion='v1', kind='Pod'),
            False,
            'failed to call webhook: no kind "Pod" is registered for version "v1" in scheme '
            '"pkg/runtime/scheme.go:111"',
            id='other-kind',
        ),
        pytest.param(
            b'hello',
            False,
            f"failed to call webhook: couldn't get version/kind; json parse error: "
            f'json: cannot unmarshal string into Go value of type {STRUCT}',
            id='not-json',
        ),
        pytest.param(
            b'[1]',
            False,
            f"failed to call webhook: couldn't get version/kind; json parse error: "
            f'json: cannot unmarshal array into Go value of type {STRUCT}',
            id='list',
        ),
        pytest.param(
            answer({'uid': 'u1', 'allowed': 'yes'}),
            False,
            'failed to call webhook: json: cannot unmarshal string into Go struct field '
            'AdmissionResponse.response.allowed of type bool',
            id='wrong-type',
        ),
        pytest.param(
            answer(
                {'uid': 'u1', 'allowed': True, 'patch': encode(PATCH), 'patchType': 'JSONPatch'}
            ),
            False,
            'received invalid webhook response: validating webhook may not return response.patch',
            id='validating',
        ),
        pytest.param(
            answer({'uid': 'u1', 'allowed': True, 'patch': encode(PATCH)}),
            True,
            'received invalid webhook response: webhook returned response.patch but not response.patchType',
            id='no-type',
        ),
        pytest.param(
            answer({'uid': 'u1', 'allowed': True, 'patchType': 'JSONPatch'}),
            True,
            'received invalid webhook response: webhook returned response.patchType but not response.patch',
            id='no-patch',
        ),
        pytest.param(
            answer({'uid': 'u1', 'allowed': True, 'patch': encode(PATCH), 'patchType': 'Foo'}),
            True,
            'unsupported patch type "Foo"',
            id='other-type',
        ),
        pytest.param(
            answer({'uid': 'u1', 'allowed': True, 'patch': '%%%', 'patchType': 'JSONPatch'}),
            True,
            'failed to call webhook: illegal base64 data at input byte 0',
            id='not-base64',
        ),
        pytest.param(
            answer(
                {'uid': 'u1', 'allowed': True, 'patch': encode(b'zzz'), 'patchType': 'JSONPatch'}
            ),
            True,
            "received undecodable patch in webhook response: invalid character 'z' looking for beginning of value",
            id='patch-not-json',
        ),
        pytest.param(
            answer({'uid': 'u1', 'allowed': True, 'patch': encode({}), 'patchType': 'JSONPatch'}),
            True,
            'received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type '
            'jsonpatch.Patch',
            id='patch-not-list',
        ),
    ],
)
def test_wrong_answers_are_told_in_the_words_of_the_api(raw, is_mutating, message):
    with pytest.raises(admission_review.CallError) as info:
        admission_review.parse_answer(raw, REVIEW, is_mutating=is_mutating)

    assert str(info.value) == message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        'apiVersion',
                        'kind',
                        'response',
                        'uid',
                        'allowed',
                        'patch',
                        'patchType',
                        'status',
                        'warnings',
                    ]
                ),
                inner,
            )
        ),
        max_leaves=10,
    ),
    st.booleans(),
)
def test_any_answer_is_understood_or_refused(value, is_mutating):
    for raw in (
        json.dumps(value).encode(),
        answer(value),
        answer({'uid': 'u1', 'allowed': True, 'status': value}),
    ):
        try:
            verdict = admission_review.parse_answer(raw, REVIEW, is_mutating=is_mutating)
        except admission_review.CallError:
            continue
        admission_review.build_denial(make_hook(), verdict)


def test_answer_in_old_version_needs_neither_uid_nor_patch_type():
    raw = answer({'allowed': True, 'patch': encode(PATCH)}, apiVersion='admission.k8s.io/v1beta1')

    verdict = admission_review.parse_answer(raw, OLD_REVIEW, is_mutating=True)

    assert verdict.operations == tuple(PATCH)


@pytest.mark.parametrize(
    'versions, expected',
    [
        pytest.param(['v1'], 'v1', id='v1'),
        pytest.param(['v1beta1', 'v1'], 'v1beta1', id='first'),
        pytest.param(['v2', 'v1'], 'v1', id='known'),
    ],
)
def test_first_known_version_of_reviews_is_used(versions, expected):
    assert admission_review.choose_version(make_hook(admissionReviewVersions=versions)) == expected


def test_webhook_with_unknown_versions_of_reviews_cannot_be_called():
    with pytest.raises(
        admission_review.CallError,
        match=r'^could not create admission objects: webhook does not accept known '
        r'AdmissionReview versions \(v1, v1beta1\)$',
    ):
        admission_review.choose_version(make_hook(admissionReviewVersions=['v3']))


@pytest.mark.parametrize(
    'status, code, reason, tail',
    [
        pytest.param({}, 400, '', ' without explanation', id='nothing'),
        pytest.param({'message': 'no way'}, 400, '', ': no way', id='message'),
        pytest.param(
            {'message': 'no way', 'code': 418, 'reason': 'Teapot'},
            418,
            'Teapot',
            ': no way',
            id='all',
        ),
        pytest.param(
            {'code': 200, 'status': 'Success', 'reason': 'Because'},
            400,
            'Because',
            ': Because',
            id='success',
        ),
        pytest.param({'message': 'no', 'code': 403}, 403, '', ': no', id='code'),
    ],
)
def test_denial_is_worded_as_the_api_does(status, code, reason, tail):
    error = admission_review.build_denial(make_hook(), admission_review.Verdict(False, status))

    assert (error.code, error.reason) == (code, reason)
    assert error.message == f'admission webhook "a.b.c" denied the request{tail}'
    assert 'details' not in error.status


def test_denial_keeps_the_details():
    details = {'causes': [{'reason': 'x', 'message': 'm', 'field': 'f'}]}

    error = admission_review.build_denial(
        make_hook(), admission_review.Verdict(False, {'details': details})
    )

    assert error.status['details'] == details


BODY = {'metadata': {'name': 'x'}, 'items': [1, 2]}


@pytest.mark.parametrize(
    'operation, message',
    [
        pytest.param(
            {'op': 'replace', 'path': '/spec/none/x', 'value': 1},
            'replace operation does not apply: doc is missing path: /spec/none/x: missing value',
            id='replace',
        ),
        pytest.param(
            {'op': 'add', 'path': '/spec/none/x', 'value': 1},
            'add operation does not apply: doc is missing path: "/spec/none/x": missing value',
            id='add',
        ),
        pytest.param(
            {'op': 'remove', 'path': ''},
            'remove operation does not apply: doc is missing path: "": missing value',
            id='remove-all',
        ),
        pytest.param(
            {'op': 'remove', 'path': '/metadata/foo'},
            "error in remove for path: '/metadata/foo': Unable to remove nonexistent key: foo: missing value",
            id='remove-key',
        ),
        pytest.param(
            {'op': 'remove', 'path': '/items/7'},
            "error in remove for path: '/items/7': Unable to access invalid index: 7: invalid index referenced",
            id='remove-index',
        ),
        pytest.param(
            {'op': 'test', 'path': '/metadata', 'value': 1},
            'testing value /metadata failed: test failed',
            id='test',
        ),
        pytest.param(
            {'op': 'test', 'path': '/a/b', 'value': 1},
            'test operation does not apply: is missing path: /a/b: missing value',
            id='test-path',
        ),
        pytest.param(
            {'op': 'move', 'path': '/x', 'from': '/a/b'},
            'move operation does not apply: doc is missing from path: /a/b: missing value',
            id='move',
        ),
        pytest.param(
            {'op': 'copy', 'path': '/x/y', 'from': '/metadata'},
            'copy operation does not apply: doc is missing destination path: /x/y: missing value',
            id='copy',
        ),
        pytest.param({'op': 'foo', 'path': '/x'}, 'Unexpected kind: foo', id='unknown'),
        pytest.param(
            {'op': 'add', 'value': 1},
            'add operation failed to decode path: missing value',
            id='no-path',
        ),
    ],
)
def test_patch_that_does_not_fit_is_explained(operation, message):
    with pytest.raises(errors.ApiError) as info:
        json_patch.apply_operations(BODY, [{'op': 'add', 'path': '/ok', 'value': 1}, operation])

    assert info.value.code == 500
    assert info.value.message == f'Internal error occurred: {message}'


def test_patch_makes_a_new_object():
    patched = json_patch.apply_operations(
        BODY,
        [
            {'op': 'replace', 'path': '/items/0', 'value': 5},
            {'op': 'add', 'path': '/metadata/labels', 'value': {'a': 'b'}},
        ],
    )

    assert patched == {'metadata': {'name': 'x', 'labels': {'a': 'b'}}, 'items': [5, 2]}
    assert BODY == {'metadata': {'name': 'x'}, 'items': [1, 2]}


@pytest.mark.parametrize(
    'warnings, expected',
    [
        pytest.param(
            ['w1', 'w2 "q" \\b', 'w1', '', 'ctl\nx', 'é'],
            ['299 - "w1"', '299 - "w2 \\"q\\" \\\\b"', '299 - "é"'],
            id='cleaned',
        ),
        pytest.param(
            ['x' * 3000, 'y' * 1000], [f'299 - "{"x" * 3000}"', f'299 - "{"y" * 1000}"'], id='fit'
        ),
        pytest.param(
            ['x' * 3000, 'y' * 3000, 'z' * 10],
            [f'299 - "{"x" * 256}"', f'299 - "{"y" * 256}"', '299 - "zzzzzzzzzz"'],
            id='cut',
        ),
    ],
)
def test_warnings_are_fit_for_headers(warnings, expected):
    assert warning_headers.build_headers(warnings) == expected


def test_warnings_are_limited_in_total():
    headers = warning_headers.build_headers(str(number) * 300 for number in range(100, 200))

    assert len(headers) == 16
