"""Reviews are answered as the API answers them."""

import itertools

import pytest

from kopf._sandbox.auth import authn, rbac, reviews, tokens
from kopf._sandbox.meta import errors, kinds, requests

NOW = 1_700_000_000.0
TIME = '2023-11-14T22:13:20Z'
JANE = requests.User('jane', ('devs', 'system:authenticated'), 'uid-j', {'k': ('v',)})
SIGNER = tokens.Signer()
OBJECTS = {
    ('serviceaccounts', 'ns', 'robot'): {'metadata': {'name': 'robot', 'uid': 'uid-r'}},
    ('pods', 'ns', 'p'): {'metadata': {'uid': 'uid-p'}, 'spec': {'serviceAccountName': 'robot'}},
    ('pods', 'ns', 'q'): {'metadata': {'uid': 'uid-q'}, 'spec': {'serviceAccountName': 'other'}},
}


def lookup(plural, namespace, name):
    return OBJECTS.get((plural, namespace, name))


class PodReaders:
    """An authorizer that lets only devs read, and only pods."""

    def authorize(self, user, attributes):
        allowed = 'devs' in user.groups and attributes.resource == 'pods'
        return rbac.Decision(allowed, 'because' if allowed else '')

    def rules_for(self, user, namespace):
        return [
            {'verbs': ['get'], 'apiGroups': [''], 'resources': ['pods'], 'resourceNames': []},
            {'verbs': ['get'], 'nonResourceURLs': ['/x']},
        ], ['oops']


def make_reviewer():
    authenticator = authn.Authenticator(SIGNER, lookup, anonymous=True)
    authenticator.add_token('sesame', JANE)
    ids = (f'id-{number}' for number in itertools.count(1))
    return reviews.Reviewer(PodReaders(), authenticator, SIGNER, lookup, lambda: next(ids))


def make_request(kind, *, group=reviews.AUTHORIZATION, **kwargs):
    resource = kinds.Resource(
        group, 'v1', f'{kind.lower()}s', kind.lower(), kind, False, ('create',)
    )
    return requests.Request('create', resource, JANE, **kwargs)


def ask(kind, spec, *, metadata=None, group=reviews.AUTHORIZATION, **kwargs):
    body = {'kind': kind, 'apiVersion': f'{group}/v1', 'metadata': metadata or {}, 'spec': spec}
    return make_reviewer().answer(make_request(kind, group=group, **kwargs), body, NOW)


PODS = {'verb': 'list', 'resource': 'pods', 'namespace': 'ns'}


@pytest.mark.parametrize(
    'spec, status',
    [
        pytest.param(
            {'resourceAttributes': PODS}, {'allowed': True, 'reason': 'because'}, id='allowed'
        ),
        pytest.param(
            {'resourceAttributes': {'resource': 'x'}}, {'allowed': False}, id='not-allowed'
        ),
        pytest.param(
            {'nonResourceAttributes': {'path': '/x', 'verb': 'get'}}, {'allowed': False}, id='path'
        ),
    ],
)
def test_own_access_is_reviewed(spec, status):
    answer = ask('SelfSubjectAccessReview', spec)

    assert answer == {
        'kind': 'SelfSubjectAccessReview',
        'apiVersion': 'authorization.k8s.io/v1',
        'metadata': {},
        'spec': spec,
        'status': status,
    }


@pytest.mark.parametrize(
    'spec, allowed',
    [
        pytest.param(
            {'user': 'x', 'groups': ['devs'], 'resourceAttributes': PODS}, True, id='by-group'
        ),
        pytest.param({'user': 'jane', 'resourceAttributes': PODS}, False, id='not-in-group'),
        pytest.param(
            {
                'user': 'x',
                'groups': 'devs',
                'extra': {'a': 1},
                'uid': 1,
                'resourceAttributes': PODS,
            },
            False,
            id='nonsense',
        ),
    ],
)
def test_access_of_others_is_reviewed(spec, allowed):
    assert ask('SubjectAccessReview', spec)['status']['allowed'] is allowed


def test_access_of_others_is_reviewed_in_namespace():
    answer = ask(
        'LocalSubjectAccessReview',
        {'groups': ['devs'], 'resourceAttributes': PODS},
        metadata={'namespace': 'ns'},
        namespace='ns',
    )

    assert answer['status'] == {'allowed': True, 'reason': 'because'}
    assert answer['metadata'] == {'namespace': 'ns'}


@pytest.mark.parametrize(
    'kind, spec, metadata, causes',
    [
        pytest.param(
            'SelfSubjectAccessReview',
            {},
            {},
            [
                (
                    'spec.resourceAttributes',
                    'Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes '
                    'must be specified',
                )
            ],
            id='nothing',
        ),
        pytest.param(
            'SelfSubjectAccessReview',
            {'resourceAttributes': {}, 'nonResourceAttributes': {'path': '/'}},
            {'name': 'x'},
            [
                (
                    'spec.nonResourceAttributes',
                    'Invalid value: {"Path":"/","Verb":""}: cannot be specified in combination with '
                    'resourceAttributes',
                ),
                ('metadata', 'Invalid value: {"name":"x"}: must be empty'),
            ],
            id='both-and-metadata',
        ),
        pytest.param(
            'SubjectAccessReview',
            {'resourceAttributes': PODS},
            {},
            [('spec.user', 'Invalid value: "": at least one of user or group must be specified')],
            id='nobody',
        ),
        pytest.param(
            'LocalSubjectAccessReview',
            {'user': 'x', 'resourceAttributes': {'verb': 'list'}},
            {},
            [
                (
                    'spec.resourceAttributes.namespace',
                    'Invalid value: "": must match metadata.namespace',
                )
            ],
            id='namespace',
        ),
        pytest.param(
            'LocalSubjectAccessReview',
            {'user': 'x', 'nonResourceAttributes': {'verb': 'list', 'path': 'pods'}},
            {},
            [
                (
                    'spec.nonResourceAttributes',
                    'Invalid value: {"Path":"pods","Verb":"list"}: disallowed on this kind of '
                    'request',
                )
            ],
            id='local-path',
        ),
    ],
)
def test_bad_questions_are_refused(kind, spec, metadata, causes):
    with pytest.raises(errors.ApiError) as info:
        ask(kind, spec, metadata=metadata, namespace='ns')

    assert info.value.code == 422
    assert info.value.message.startswith('.authorization.k8s.io "" is invalid: ')
    assert info.value.details['group'] == 'authorization.k8s.io'
    assert [(cause['field'], cause['message']) for cause in info.value.details['causes']] == causes


def test_own_rules_are_listed():
    answer = ask('SelfSubjectRulesReview', {'namespace': 'ns'})

    assert answer['spec'] == {}
    assert answer['status'] == {
        'resourceRules': [{'verbs': ['get'], 'apiGroups': [''], 'resources': ['pods']}],
        'nonResourceRules': [{'verbs': ['get'], 'nonResourceURLs': ['/x']}],
        'incomplete': False,
        'evaluationError': 'oops',
    }


def test_own_rules_are_listed_only_in_a_namespace():
    with pytest.raises(errors.ApiError, match=r'^no namespace on request$'):
        ask('SelfSubjectRulesReview', {})


def test_everyone_may_do_everything_without_rbac():
    answer = reviews.review_rules({'spec': {'namespace': 'ns'}}, JANE, rbac.AlwaysAllow())

    assert answer['status'] == {
        'resourceRules': [{'verbs': ['*'], 'apiGroups': ['*'], 'resources': ['*']}],
        'nonResourceRules': [{'verbs': ['*'], 'nonResourceURLs': ['*']}],
        'incomplete': False,
    }


def test_user_can_ask_who_it_is():
    answer = ask('SelfSubjectReview', {}, group=reviews.AUTHENTICATION)

    assert answer == {
        'kind': 'SelfSubjectReview',
        'apiVersion': 'authentication.k8s.io/v1',
        'metadata': {'creationTimestamp': TIME},
        'status': {
            'userInfo': {
                'username': 'jane',
                'uid': 'uid-j',
                'groups': ['devs', 'system:authenticated'],
                'extra': {'k': ['v']},
            }
        },
    }


@pytest.mark.parametrize(
    'spec, status',
    [
        pytest.param(
            {'token': 'sesame'},
            {
                'authenticated': True,
                'audiences': ['https://kubernetes.default.svc'],
                'user': {
                    'username': 'jane',
                    'uid': 'uid-j',
                    'groups': ['devs', 'system:authenticated'],
                    'extra': {'k': ['v']},
                },
            },
            id='known',
        ),
        pytest.param(
            {'token': 'wrong'}, {'user': {}, 'error': 'invalid bearer token'}, id='unknown'
        ),
        pytest.param(
            {'token': 'sesame', 'audiences': ['foo']},
            {'user': {}, 'error': 'invalid bearer token'},
            id='other-audience',
        ),
    ],
)
def test_token_is_reviewed(spec, status):
    answer = ask('TokenReview', spec, group=reviews.AUTHENTICATION)

    assert answer['status'] == status
    assert answer['spec'] == spec


def test_absent_token_is_not_reviewed():
    with pytest.raises(
        errors.ApiError, match=r'^token is required for TokenReview in authentication$'
    ):
        ask('TokenReview', {}, group=reviews.AUTHENTICATION)


def demand(spec, *, metadata=None, name='robot'):
    resource = kinds.Resource(
        '', 'v1', 'serviceaccounts', 'serviceaccount', 'ServiceAccount', True, ('create',)
    )
    request = requests.Request(
        'create', resource, JANE, namespace='ns', name=name, subresource='token'
    )
    reviewer = make_reviewer()
    assert reviewer.answers(request)
    return reviewer.answer(request, {'metadata': metadata or {}, 'spec': spec}, NOW)


def test_demanded_token_authenticates_the_account():
    answer = demand({})

    token = answer['status'].pop('token')
    assert answer == {
        'kind': 'TokenRequest',
        'apiVersion': 'authentication.k8s.io/v1',
        'metadata': {'name': 'robot', 'namespace': 'ns', 'uid': 'uid-r', 'creationTimestamp': TIME},
        'spec': {
            'audiences': ['https://kubernetes.default.svc'],
            'expirationSeconds': 3600,
            'boundObjectRef': None,
        },
        'status': {'expirationTimestamp': '2023-11-14T23:13:20Z'},
    }
    user = make_reviewer().authenticator.authenticate(f'Bearer {token}', None, NOW)
    assert user.name == 'system:serviceaccount:ns:robot'


def test_token_for_others_is_good_only_for_them():
    token = demand({'audiences': ['vault']})['status']['token']

    mine = ask('TokenReview', {'token': token}, group=reviews.AUTHENTICATION)
    theirs = ask(
        'TokenReview', {'token': token, 'audiences': ['vault', 'x']}, group=reviews.AUTHENTICATION
    )

    assert mine['status']['error'] == (
        '[invalid bearer token, token audiences ["vault"] is invalid for the target '
        'audiences ["https://kubernetes.default.svc"]]'
    )
    assert theirs['status']['authenticated'] is True
    assert theirs['status']['audiences'] == ['vault']


def test_token_can_be_bound_to_a_pod_of_the_account():
    token = demand({'boundObjectRef': {'kind': 'Pod', 'apiVersion': 'v1', 'name': 'p'}})['status'][
        'token'
    ]

    user = make_reviewer().authenticator.authenticate(f'Bearer {token}', None, NOW)

    assert user.extra['authentication.kubernetes.io/pod-uid'] == ('uid-p',)


@pytest.mark.parametrize(
    'kwargs, code, message',
    [
        pytest.param(
            {'spec': {'expirationSeconds': 5}},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: '
            'may not specify a duration less than 10 minutes',
            id='too-short',
        ),
        pytest.param(
            {'spec': {'expirationSeconds': 1 << 33}},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 8589934592: '
            'may not specify a duration larger than 2^32 seconds',
            id='too-long',
        ),
        pytest.param(
            {'spec': {}, 'metadata': {'name': 'bar'}},
            422,
            'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "bar": '
            'must match the service account name if specified',
            id='other-name',
        ),
        pytest.param(
            {'spec': {}, 'metadata': {'uid': 'x'}},
            409,
            'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token '
            'request (x) does not match the UID of the service account (uid-r)',
            id='other-uid',
        ),
        pytest.param(
            {'spec': {}, 'name': 'none'}, 404, 'serviceaccounts "none" not found', id='no-account'
        ),
        pytest.param(
            {'spec': {'boundObjectRef': {'kind': 'Pod', 'apiVersion': 'v1', 'name': 'no'}}},
            404,
            'pods "no" not found',
            id='no-pod',
        ),
        pytest.param(
            {'spec': {'boundObjectRef': {'kind': 'Pod', 'apiVersion': 'v1', 'name': 'q'}}},
            400,
            'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.',
            id='pod-of-another',
        ),
        pytest.param(
            {
                'spec': {
                    'boundObjectRef': {'kind': 'Pod', 'apiVersion': 'v1', 'name': 'p', 'uid': 'z'}
                }
            },
            409,
            'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (z) does not match '
            'the UID in record. The object might have been deleted and then recreated',
            id='pod-remade',
        ),
        pytest.param(
            {'spec': {'boundObjectRef': {'kind': 'ConfigMap', 'apiVersion': 'v1', 'name': 'no'}}},
            400,
            'cannot bind token to object of type /v1, Kind=ConfigMap',
            id='not-bindable',
        ),
    ],
)
def test_bad_demands_are_refused(kwargs, code, message):
    with pytest.raises(errors.ApiError) as info:
        demand(**kwargs)

    assert (info.value.code, info.value.message) == (code, message)


@pytest.mark.parametrize(
    'kind, group, spec',
    [
        pytest.param('TokenReview', reviews.AUTHENTICATION, {'token': 'sesame'}, id='token'),
        pytest.param('SelfSubjectReview', reviews.AUTHENTICATION, {}, id='self'),
        pytest.param(
            'SelfSubjectRulesReview', reviews.AUTHORIZATION, {'namespace': 'ns'}, id='rules'
        ),
        pytest.param(
            'SelfSubjectAccessReview',
            reviews.AUTHORIZATION,
            {'resourceAttributes': PODS},
            id='own-access',
        ),
        pytest.param(
            'SubjectAccessReview',
            reviews.AUTHORIZATION,
            {'user': 'x', 'resourceAttributes': PODS},
            id='access',
        ),
        pytest.param(
            'LocalSubjectAccessReview',
            reviews.AUTHORIZATION,
            {'user': 'x', 'resourceAttributes': PODS},
            id='local-access',
        ),
    ],
)
def test_answer_has_a_kind_even_if_the_question_has_none(kind, group, spec):
    answer = make_reviewer().answer(
        make_request(kind, group=group, namespace='ns'), {'spec': spec}, NOW
    )

    assert (answer['kind'], answer['apiVersion']) == (kind, f'{group}/v1')
