"""
Admission policies: what their expressions are given, and what they say; also the conditions of
webhooks.
"""

from typing import Any

import fidelity_samples
from fidelity_talks import Talk, Transcript
from transcripts_of_webhooks import CONFIGS, run_webhooks

POLICIES = f'{CONFIGS}/validatingadmissionpolicies'
BINDINGS = f'{CONFIGS}/validatingadmissionpolicybindings'
PROBE = "object.metadata.name != 'probe'"
RULE = {
    'operations': ['CREATE', 'UPDATE', 'DELETE'],
    'apiGroups': [''],
    'apiVersions': ['v1'],
    'resources': ['configmaps'],
}


class Policy:
    """A policy with its binding for the configmaps in the namespace."""

    def __init__(self, talk: Talk, name: str = 'policy') -> None:
        self._talk = talk
        self.name = f'{talk.namespace}-{name}'
        self._others: list[str] = []

    async def apply(self, spec: dict[str, Any], **binding: Any) -> None:
        """Create them, and wait until they are in effect."""
        talk = self._talk
        only_here = {'matchLabels': {'kubernetes.io/metadata.name': talk.namespace}}
        body = {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingAdmissionPolicy',
            'metadata': {'name': self.name},
            'spec': {
                **spec,
                'matchConstraints': {'resourceRules': [RULE], **spec.get('matchConstraints', {})},
            },
        }
        await talk.post(POLICIES, body)
        binding = {'validationActions': ['Deny'], **binding}
        scope = {'namespaceSelector': only_here, **binding.pop('matchResources', {})}
        bound = {'policyName': self.name, 'matchResources': scope, **binding}
        await talk.post(BINDINGS, {'metadata': {'name': self.name}, 'spec': bound})

    async def deny_probes(self) -> None:
        """Bind it once more, to be denied as a sign that it is in effect."""
        bound = {
            'policyName': self.name,
            'validationActions': ['Deny'],
            'matchResources': {
                'namespaceSelector': {
                    'matchLabels': {'kubernetes.io/metadata.name': self._talk.namespace}
                },
                'objectSelector': {'matchLabels': {'checked': 'yes'}},
            },
        }
        self._others.append(f'{self.name}-probes')
        await self._talk.post(BINDINGS, {'metadata': {'name': self._others[0]}, 'spec': bound})

    async def wait(self, text: str = 'no probes') -> None:
        probe = fidelity_samples.build_configmap('probe', labels={'checked': 'yes'})
        await self._talk.wait_until_denied(self._talk.core('configmaps'), probe, text)

    async def remove(self) -> None:
        for name in (self.name, *self._others):
            await self._talk.delete(f'{BINDINGS}/{name}')
        await self._talk.delete(f'{POLICIES}/{self.name}')
        probe = fidelity_samples.build_configmap('probe', labels={'checked': 'yes'})
        await self._talk.wait_until_accepted(self._talk.core('configmaps'), probe)


async def deny(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    policy = Policy(talk)
    validations = [
        {'expression': PROBE, 'message': 'no probes'},
        {'expression': "!has(object.data) || !('bad' in object.data)"},
        {
            'expression': "!has(object.data) || !('worse' in object.data)",
            'message': 'much worse',
            'reason': 'Forbidden',
        },
        {
            'expression': 'request.operation != "UPDATE" || object.data == oldObject.data',
            'messageExpression': "request.name + ' of ' + oldObject.data.a + variables.suffix",
            'reason': 'RequestEntityTooLarge',
        },
        {'expression': "!has(object.data) || object.data.a != 'fail' || object.data.b == 'c'"},
        {'expression': 'namespaceObject.metadata.name == request.namespace'},
        {
            'expression': "request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'"
        },
        {'expression': 'request.dryRun || true', 'reason': 'RequestEntityTooLarge'},
        {
            'expression': "!has(object.data) || object.data.a != 'late' || variables.broken == 1",
            'messageExpression': 'string(object.absent)',
            'message': 'fallback',
        },
    ]
    spec = {
        'validations': validations,
        'variables': [
            {'name': 'bang', 'expression': "'!'"},
            {'name': 'suffix', 'expression': 'variables.bang + variables.bang'},
            {'name': 'broken', 'expression': 'object.data.absent == "x" ? 1 : 2'},
        ],
        'matchConditions': [
            {'name': 'no-deletions', 'expression': "request.operation != 'DELETE'"},
            {'name': 'not-exempt', 'expression': "object.metadata.name != 'exempt'"},
        ],
    }
    await policy.apply(spec)
    await policy.wait()
    for data in ({'a': 'b'}, {'bad': 'x', 'a': 'b'}, {'worse': 'x', 'a': 'b'}, {'a': 'fail'}):
        talk.note(str(data))
        await talk.post(configmaps, {**fidelity_samples.build_configmap('new'), 'data': data})
    talk.note('several')
    both = {**fidelity_samples.build_configmap('two'), 'data': {'bad': 'x', 'worse': 'y', 'a': 'b'}}
    await talk.post(configmaps, both)
    talk.note('variables')
    await talk.post(configmaps, {**both, 'data': {'a': 'late'}})
    talk.note('exempt')
    exempt = {**both, 'metadata': {'name': 'exempt'}}
    await talk.post(configmaps, exempt)
    talk.note('update')
    await talk.merge(f'{configmaps}/new', {'data': {'a': 'z'}})
    await talk.merge(f'{configmaps}/new', {'metadata': {'labels': {'x': 'y'}}})
    await talk.delete(f'{configmaps}/new')
    await policy.remove()


async def act(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    for policy_name, failure, actions in (
        ('warned', 'Fail', ['Warn']),
        ('audited', 'Fail', ['Audit', 'Deny']),
        ('ignored', 'Ignore', ['Deny']),
    ):
        talk.note(policy_name)
        policy = Policy(talk, policy_name)
        validations = [
            {'expression': PROBE, 'message': 'no probes'},
            {'expression': "object.data['absent'] == 'x'", 'message': 'absent'},
            {'expression': "object.metadata.name != 'one'"},
        ]
        await policy.apply(
            {'validations': validations, 'failurePolicy': failure}, validationActions=actions
        )
        if actions == ['Warn']:
            await policy.deny_probes()
        await policy.wait()
        await talk.post(configmaps, fidelity_samples.build_configmap(), dryRun='All')
        await policy.remove()


async def use_params(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    limit = {**fidelity_samples.build_configmap('limit', labels={'l': 'm'}), 'data': {'max': '3'}}
    await talk.post(configmaps, limit)
    validations = [
        {'expression': PROBE, 'message': 'no probes'},
        {
            'expression': "request.name == 'limit' || object.data.size() <= int(params.data.max)",
            'messageExpression': "'more than ' + params.data.max",
        },
    ]
    spec = {'validations': validations, 'paramKind': {'apiVersion': 'v1', 'kind': 'ConfigMap'}}
    data = dict.fromkeys('abcd', 'x')
    body = {**fidelity_samples.build_configmap('many'), 'data': data}
    for name, ref in (
        ('named', {'name': 'limit', 'namespace': talk.namespace}),
        ('selected', {'selector': {'matchLabels': {'l': 'm'}}}),
    ):
        talk.note(name)
        policy = Policy(talk, name)
        await policy.apply(spec, paramRef={**ref, 'parameterNotFoundAction': 'Deny'})
        await policy.wait()
        await talk.post(configmaps, body, dryRun='All')
        await talk.post(configmaps, {**body, 'data': {'a': 'b'}}, dryRun='All')
        await policy.remove()
    talk.note('absent')
    policy = Policy(talk, 'absent')
    ref = {'name': 'absent', 'namespace': talk.namespace, 'parameterNotFoundAction': 'Deny'}
    await policy.apply(spec, paramRef=ref)
    await policy.wait('no params found')
    await talk.post(configmaps, body, dryRun='All')
    await policy.remove()


async def refuse(talk: Talk) -> None:
    base = {'matchConstraints': {'resourceRules': [RULE]}}
    good = [{'expression': 'true'}]
    for note, spec in {
        'syntax': {'validations': [{'expression': 'object.'}]},
        'type': {'validations': [{'expression': "'x'"}]},
        'unknown': {'validations': [{'expression': 'self.x == 1'}]},
        'no params': {'validations': [{'expression': 'params.x == 1'}]},
        'request': {'validations': [{'expression': 'request.absent == 1'}]},
        'message': {'validations': [{'expression': 'true', 'messageExpression': '1'}]},
        'condition': {
            'validations': good,
            'matchConditions': [{'name': 'x', 'expression': 'variables.a'}],
        },
        'condition syntax': {
            'validations': good,
            'matchConditions': [{'name': 'x', 'expression': 'object.'}],
        },
        'variable': {'validations': good, 'variables': [{'name': 'x', 'expression': 'y'}]},
        'nothing': {},
        'reason': {'validations': [{'expression': 'true', 'reason': 'Whatever'}]},
    }.items():
        talk.note(note)
        body = {'metadata': {'name': f'{talk.namespace}-wrong'}, 'spec': {**base, **spec}}
        await talk.post(POLICIES, body, dryRun='All')
    for note, fields in {
        'no actions': {'validationActions': []},
        'two actions': {'validationActions': ['Deny', 'Warn']},
        'same actions': {'validationActions': ['Deny', 'Deny']},
        'unknown action': {'validationActions': ['Shout']},
        'no policy': {'policyName': ''},
        'bad policy': {'policyName': 'Bad Name'},
        'empty ref': {'paramRef': {}},
        'full ref': {'paramRef': {'name': 'x', 'selector': {}, 'parameterNotFoundAction': 'Deny'}},
        'unclear ref': {'paramRef': {'name': 'x', 'parameterNotFoundAction': 'Shout'}},
    }.items():
        talk.note(note)
        spec = {'policyName': 'absent', 'validationActions': ['Deny'], **fields}
        body = {'metadata': {'name': f'{talk.namespace}-wrong'}, 'spec': spec}
        await talk.post(BINDINGS, body, dryRun='All')


async def condition(talk: Talk) -> None:
    """Conditions of webhooks."""
    configmaps = talk.core('configmaps')
    async with run_webhooks(talk) as webhooks:
        webhooks.is_recording = False
        webhooks.answer = lambda request: {'allowed': False}
        for policy in ('Fail', 'Ignore'):
            name = f'{talk.namespace}-{policy.lower()}'
            hook = {
                'name': 'hook.kopf.dev',
                'sideEffects': 'None',
                'admissionReviewVersions': ['v1'],
                'failurePolicy': policy,
                'clientConfig': {'url': f'{webhooks.url}/hook', 'caBundle': webhooks.bundle},
                'namespaceSelector': {
                    'matchLabels': {'kubernetes.io/metadata.name': talk.namespace}
                },
                'rules': [RULE],
                'matchConditions': [
                    {'name': 'not-free', 'expression': "object.metadata.name != 'free'"},
                    {'name': 'right', 'expression': "object.?data.a.orValue('') != 'skip'"},
                    {'name': 'failing', 'expression': "!has(object.data) || object.data.b == 'x'"},
                ],
            }
            body = {'metadata': {'name': name}, 'webhooks': [hook]}
            talk.note(policy)
            await talk.post(f'{CONFIGS}/validatingwebhookconfigurations', body)
            probe = {'metadata': {'name': 'probe'}}
            await talk.wait_until_refused(configmaps, probe)
            await talk.post(configmaps, {'metadata': {'name': 'free'}}, dryRun='All')
            for data in ({'a': 'skip'}, {'a': 'y', 'b': 'x'}, {'a': 'y'}):
                await talk.post(
                    configmaps, {'metadata': {'name': 'some'}, 'data': data}, dryRun='All'
                )
            await talk.delete(f'{CONFIGS}/validatingwebhookconfigurations/{name}')
        for text in ('object.', '1', 'self.x == 1', 'request.absent == 1'):
            talk.note(text)
            wrong = {**hook, 'matchConditions': [{'name': 'x', 'expression': text}]}
            body = {'metadata': {'name': f'{talk.namespace}-wrong'}, 'webhooks': [wrong]}
            await talk.post(f'{CONFIGS}/validatingwebhookconfigurations', body, dryRun='All')


TRANSCRIPTS = (
    Transcript('policies-deny', deny),
    Transcript('policies-act', act),
    Transcript('policies-params', use_params),
    Transcript('policies-refused', refuse),
    Transcript('policies-conditions', condition, is_intrusive=True),
)
