"""
Validating admission policies, and the conditions of webhooks.
"""

import pytest

import kopf.testing
from kopf._sandbox.cel import availability

CONFIGMAPS = {
    'operations': ['CREATE', 'UPDATE'],
    'apiGroups': [''],
    'apiVersions': ['v1'],
    'resources': ['configmaps'],
}


def build_policy(*validations, **spec):
    return {
        'apiVersion': 'admissionregistration.k8s.io/v1',
        'kind': 'ValidatingAdmissionPolicy',
        'metadata': {'name': 'policy'},
        'spec': {
            'matchConstraints': {'resourceRules': [CONFIGMAPS]},
            'validations': list(validations),
            **spec,
        },
    }


def build_binding(**spec):
    return {
        'apiVersion': 'admissionregistration.k8s.io/v1',
        'kind': 'ValidatingAdmissionPolicyBinding',
        'metadata': {'name': 'binding'},
        'spec': {'policyName': 'policy', 'validationActions': ['Deny'], **spec},
    }


def build_configmap(name='one', labels=None, **data):
    metadata = {'name': name, **({'labels': labels} if labels else {})}
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': metadata, 'data': data}


NO_BAD = {'expression': "!('bad' in object.data)", 'message': 'no bad data'}


def test_requests_are_denied(kopf_sandbox):
    kopf_sandbox.apply(build_policy(NO_BAD), build_binding())
    kopf_sandbox.create(build_configmap(good='x'))

    with pytest.raises(kopf.testing.ApiError) as caught:
        kopf_sandbox.create(build_configmap('two', bad='x'))

    assert (caught.value.code, caught.value.reason) == (422, 'Invalid')
    assert caught.value.message == (
        'configmaps "two" is forbidden: ValidatingAdmissionPolicy \'policy\' with binding '
        "'binding' denied request: no bad data"
    )


def test_policies_without_bindings_deny_nothing(kopf_sandbox):
    kopf_sandbox.apply(build_policy(NO_BAD))

    assert kopf_sandbox.create(build_configmap(bad='x'))


def test_warnings_do_not_deny(kopf_sandbox):
    kopf_sandbox.apply(build_policy(NO_BAD), build_binding(validationActions=['Warn', 'Audit']))

    assert kopf_sandbox.create(build_configmap(bad='x'))


def test_variables_and_parameters_are_given(kopf_sandbox):
    kopf_sandbox.create(build_configmap('limits', count='1'))
    validation = {
        'expression': 'variables.count <= int(params.data.count)',
        'messageExpression': '"%d items".format([variables.count])',
    }
    policy = build_policy(
        validation,
        paramKind={'apiVersion': 'v1', 'kind': 'ConfigMap'},
        variables=[{'name': 'count', 'expression': 'object.data.size()'}],
    )
    ref = {'name': 'limits', 'namespace': 'default', 'parameterNotFoundAction': 'Deny'}
    kopf_sandbox.apply(policy, build_binding(paramRef=ref))

    kopf_sandbox.create(build_configmap(a='x'))
    with pytest.raises(kopf.testing.ApiError, match='denied request: 2 items'):
        kopf_sandbox.create(build_configmap('two', a='x', b='y'))


@pytest.mark.parametrize('action, is_denied', [('Deny', True), ('Allow', False)])
def test_absent_parameters_are_handled_as_configured(kopf_sandbox, action, is_denied):
    policy = build_policy(NO_BAD, paramKind={'apiVersion': 'v1', 'kind': 'ConfigMap'})
    ref = {'name': 'absent', 'namespace': 'default', 'parameterNotFoundAction': action}
    kopf_sandbox.apply(policy, build_binding(paramRef=ref))

    if is_denied:
        with pytest.raises(kopf.testing.ApiError, match='no params found'):
            kopf_sandbox.create(build_configmap(bad='x'))
    else:
        assert kopf_sandbox.create(build_configmap(bad='x'))


@pytest.mark.parametrize('policy, is_denied', [('Fail', True), ('Ignore', False)])
def test_failures_are_handled_as_configured(kopf_sandbox, policy, is_denied):
    broken = {'expression': 'object.data.absent == "x"'}
    kopf_sandbox.apply(build_policy(broken, failurePolicy=policy), build_binding())

    if is_denied:
        with pytest.raises(kopf.testing.ApiError, match='no such key: absent'):
            kopf_sandbox.create(build_configmap(a='x'))
    else:
        assert kopf_sandbox.create(build_configmap(a='x'))


def test_only_selected_objects_are_checked(kopf_sandbox):
    selected = {'objectSelector': {'matchLabels': {'checked': 'yes'}}}
    conditions = [{'name': 'named', 'expression': "object.metadata.name != 'exempt'"}]
    kopf_sandbox.apply(
        build_policy(NO_BAD, matchConditions=conditions), build_binding(matchResources=selected)
    )

    kopf_sandbox.create(build_configmap(bad='x'))
    kopf_sandbox.create(build_configmap('exempt', {'checked': 'yes'}, bad='x'))
    with pytest.raises(kopf.testing.ApiError, match='no bad data'):
        kopf_sandbox.create(build_configmap('two', {'checked': 'yes'}, bad='x'))


def test_wrong_policies_are_refused(kopf_sandbox):
    wrong = build_policy({'expression': 'object.'}, variables=[{'name': 'x', 'expression': 'y'}])

    with pytest.raises(kopf.testing.ApiError) as caught:
        kopf_sandbox.create(wrong)

    fields = [cause['field'] for cause in caught.value.status['details']['causes']]
    assert fields == ['spec.variables[0].expression', 'spec.validations[0].expression']


def test_policies_have_no_effect_without_the_library(kopf_sandbox, monkeypatch):
    monkeypatch.setattr(availability, 'LIBRARY', 'absent_library_of_cel')
    kopf_sandbox.apply(build_policy(NO_BAD), build_binding())

    assert kopf_sandbox.create(build_configmap(bad='x'))


def test_webhooks_are_called_only_if_their_conditions_are_true(kopf_sandbox):
    called = []

    async def answer(path, review):
        called.append(review['request']['name'])
        return {**review, 'response': {'uid': review['request']['uid'], 'allowed': True}}

    kopf_sandbox.add_service('default', 'hook', answer)
    hook = {
        'name': 'hook.kopf.dev',
        'sideEffects': 'None',
        'admissionReviewVersions': ['v1'],
        'clientConfig': {'service': {'namespace': 'default', 'name': 'hook'}},
        'rules': [CONFIGMAPS],
        'matchConditions': [{'name': 'wanted', 'expression': "'wanted' in object.data"}],
    }
    kopf_sandbox.apply(
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingWebhookConfiguration',
            'metadata': {'name': 'hooks'},
            'webhooks': [hook],
        }
    )

    kopf_sandbox.create(build_configmap('one', wanted='x'))
    kopf_sandbox.create(build_configmap('two', other='x'))

    assert called == ['one']
