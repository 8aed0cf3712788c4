"""Tokens, client certificates and impersonation tell who asks."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._sandbox.auth import authn, rbac, tokens
from kopf._sandbox.meta import errors, requests

NOW = 1_700_000_000.0
ACCOUNT = tokens.Account('ns', 'robot', 'uid-1', token_id='id-1', audiences=(tokens.AUDIENCE,))
SIGNER = tokens.Signer()


class Objects(dict):
    """A storage of core objects: the bodies by (plural, namespace, name)."""

    def __call__(self, plural, namespace, name):
        return self.get((plural, namespace, name))


def make_objects():
    return Objects({('serviceaccounts', 'ns', 'robot'): {'metadata': {'uid': 'uid-1'}}})


def make_authenticator(objects=None, *, anonymous=True):
    authenticator = authn.Authenticator(
        SIGNER, objects if objects is not None else make_objects(), anonymous=anonymous
    )
    authenticator.add_token('sesame', requests.User('admin', ('system:masters',), 'admin-uid'))
    return authenticator


def sign(account=ACCOUNT, *, lifetime=3600):
    return SIGNER.sign(tokens.build_claims(account, now=NOW, lifetime=lifetime))


def test_known_token_authenticates_its_user():
    user = make_authenticator().authenticate('Bearer sesame', None, NOW)

    assert user == requests.User('admin', ('system:masters', 'system:authenticated'), 'admin-uid')


@pytest.mark.parametrize(
    'header',
    [
        pytest.param('Bearer wrong', id='unknown'),
        pytest.param('bearer sesam', id='prefix'),
        pytest.param('Bearer a.b.c', id='looks-like-jwt'),
        pytest.param('Bearer é.ü.\udce4', id='garbage'),
    ],
)
def test_wrong_token_is_unauthorized(header):
    with pytest.raises(errors.ApiError) as info:
        make_authenticator().authenticate(header, None, NOW)

    assert info.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'message': 'Unauthorized',
        'reason': 'Unauthorized',
        'code': 401,
    }


@pytest.mark.parametrize('header', ['', 'Basic abc', 'Bearer', 'Bearer  sesame', 'Nonsense'])
def test_request_with_no_token_is_anonymous(header):
    user = make_authenticator().authenticate(header, None, NOW)

    assert user == requests.User('system:anonymous', ('system:unauthenticated',))


def test_anonymous_request_is_unauthorized_where_everything_is_allowed():
    with pytest.raises(errors.ApiError) as info:
        make_authenticator(anonymous=False).authenticate('', None, NOW)

    assert info.value.code == 401


def test_client_certificate_goes_before_tokens():
    certificate = {
        'subject': (
            (('organizationName', 'a'),),
            (('organizationName', 'b'),),
            (('commonName', 'jane'),),
        )
    }

    user = make_authenticator().authenticate('Bearer wrong', certificate, NOW)

    assert user == requests.User('jane', ('a', 'b', 'system:authenticated'))


def test_certificate_without_common_name_is_no_credential():
    user = make_authenticator().authenticate('', {'subject': ()}, NOW)

    assert user is authn.ANONYMOUS


def test_service_account_token_authenticates_the_account():
    user = make_authenticator().authenticate(f'Bearer {sign()}', None, NOW)

    assert user == requests.User(
        'system:serviceaccount:ns:robot',
        ('system:serviceaccounts', 'system:serviceaccounts:ns', 'system:authenticated'),
        'uid-1',
        {'authentication.kubernetes.io/credential-id': ('JTI=id-1',)},
    )


def test_token_has_the_claims_of_the_api():
    header, claims, _ = (part + '=' * (-len(part) % 4) for part in sign().split('.'))

    assert json.loads(base64.urlsafe_b64decode(header))['alg'] == 'ES256'
    assert json.loads(base64.urlsafe_b64decode(claims)) == {
        'aud': ['https://kubernetes.default.svc'],
        'exp': NOW + 3600,
        'iat': NOW,
        'nbf': NOW,
        'jti': 'id-1',
        'iss': 'https://kubernetes.default.svc',
        'sub': 'system:serviceaccount:ns:robot',
        'kubernetes.io': {'namespace': 'ns', 'serviceaccount': {'name': 'robot', 'uid': 'uid-1'}},
    }


POD = tokens.Account(
    'ns', 'robot', 'uid-1', 'id-1', (tokens.AUDIENCE,), tokens.Bound('pod', 'p', 'uid-p')
)


@pytest.mark.parametrize(
    'account, objects, now, error',
    [
        pytest.param(
            ACCOUNT, make_objects(), NOW + 3661, 'service account token has expired', id='expired'
        ),
        pytest.param(
            ACCOUNT,
            make_objects(),
            NOW - 61,
            'service account token is not valid yet',
            id='too-early',
        ),
        pytest.param(
            ACCOUNT, Objects(), NOW, 'serviceaccounts "robot" not found', id='account-gone'
        ),
        pytest.param(
            ACCOUNT,
            Objects({('serviceaccounts', 'ns', 'robot'): {'metadata': {'uid': 'other'}}}),
            NOW,
            'service account UID (other) does not match claim (uid-1)',
            id='account-remade',
        ),
        pytest.param(
            POD, make_objects(), NOW, 'service account token has been invalidated', id='pod-gone'
        ),
        pytest.param(
            POD,
            make_objects() | {('pods', 'ns', 'p'): {'metadata': {'uid': 'z'}}},
            NOW,
            'pod UID (z) does not match service account pod ref claim (uid-p)',
            id='pod-remade',
        ),
        pytest.param(
            tokens.Account('ns', 'robot', 'uid-1', 'id-1', ('vault',)),
            make_objects(),
            NOW,
            'token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc"]',
            id='other-audience',
        ),
    ],
)
def test_outlived_service_account_token_is_refused_with_the_reason(account, objects, now, error):
    authenticator = make_authenticator(Objects(objects))

    with pytest.raises(tokens.TokenError) as info:
        authenticator.authenticate_token(sign(account), now)
    with pytest.raises(errors.ApiError):
        authenticator.authenticate(f'Bearer {sign(account)}', None, now)

    assert str(info.value) == f'[invalid bearer token, {error}]'


def test_token_is_good_for_a_minute_after_its_end():
    user = make_authenticator().authenticate(f'Bearer {sign()}', None, NOW + 3659)

    assert user.name == 'system:serviceaccount:ns:robot'


def test_bound_token_tells_of_its_pod():
    objects = make_objects() | {('pods', 'ns', 'p'): {'metadata': {'uid': 'uid-p'}}}

    user = make_authenticator(Objects(objects)).authenticate(f'Bearer {sign(POD)}', None, NOW)

    assert user.extra['authentication.kubernetes.io/pod-name'] == ('p',)
    assert user.extra['authentication.kubernetes.io/pod-uid'] == ('uid-p',)


def test_token_of_secret_is_good_while_it_is_in_the_secret():
    data = tokens.build_secret_data(SIGNER, tokens.Account('ns', 'robot', 'uid-1'), 'creds', b'ca')
    token = base64.b64decode(data['token']).decode()
    objects = Objects(make_objects() | {('secrets', 'ns', 'creds'): {'metadata': {}, 'data': data}})
    authenticator = make_authenticator(objects)

    user = authenticator.authenticate(f'Bearer {token}', None, NOW * 2)
    objects['secrets', 'ns', 'creds'] = {'metadata': {}, 'data': {'token': '%'}}

    assert user.name == 'system:serviceaccount:ns:robot'
    assert (data['ca.crt'], data['namespace']) == ('Y2E=', 'bnM=')
    with pytest.raises(tokens.TokenError, match="Token does not match server's copy"):
        authenticator.authenticate_token(token, NOW)


def test_token_of_another_process_is_refused():
    token = tokens.Signer().sign(tokens.build_claims(ACCOUNT, now=NOW, lifetime=3600))

    with pytest.raises(tokens.TokenError, match=r'^invalid bearer token$'):
        make_authenticator().authenticate_token(token, NOW)


@given(st.integers(0, 10_000), st.sampled_from('abcXYZ019-_'))
def test_tampered_token_is_refused(position, letter):
    token = sign()
    place = position % len(token)
    tampered = token[:place] + letter + token[place + 1 :]

    claims = SIGNER.verify(tampered)

    # The last letter of base64 has unused bits.
    assert claims is None or claims == SIGNER.verify(token)


def test_authenticator_does_not_keep_tokens():
    authenticator = make_authenticator()

    assert 'sesame' not in repr(vars(authenticator))


def permit(user, attributes):
    return rbac.Decision(user.name == 'admin')


ADMIN = requests.User('admin')


@pytest.mark.parametrize(
    'headers, expected',
    [
        pytest.param([], ADMIN, id='none'),
        pytest.param(
            [('Impersonate-User', 'jane')],
            requests.User('jane', ('system:authenticated',)),
            id='user',
        ),
        pytest.param(
            [
                ('Impersonate-User', 'jane'),
                ('Impersonate-Group', 'g1'),
                ('impersonate-group', 'g2'),
            ],
            requests.User('jane', ('g1', 'g2', 'system:authenticated')),
            id='groups',
        ),
        pytest.param(
            [('Impersonate-User', 'jane'), ('Impersonate-Group', 'system:unauthenticated')],
            requests.User('jane', ('system:unauthenticated',)),
            id='unauthenticated',
        ),
        pytest.param([('Impersonate-User', 'system:anonymous')], authn.ANONYMOUS, id='anonymous'),
        pytest.param(
            [('Impersonate-User', 'system:serviceaccount:ns:robot')],
            requests.User(
                'system:serviceaccount:ns:robot',
                ('system:serviceaccounts', 'system:serviceaccounts:ns', 'system:authenticated'),
            ),
            id='account',
        ),
        pytest.param(
            [
                ('Impersonate-User', 'jane'),
                ('Impersonate-Uid', 'u1'),
                ('Impersonate-Extra-Scopes%2Ffoo', 'v1'),
                ('Impersonate-Extra-Scopes%2Ffoo', 'v2'),
            ],
            requests.User('jane', ('system:authenticated',), 'u1', {'scopes/foo': ('v1', 'v2')}),
            id='extras',
        ),
    ],
)
def test_impersonation_replaces_the_user(headers, expected):
    assert authn.impersonate(ADMIN, headers, permit) == expected


@pytest.mark.parametrize(
    'headers, message',
    [
        pytest.param(
            [('Impersonate-User', 'jane')],
            'users "jane" is forbidden: User "nobody" cannot impersonate resource "users" in API group "" '
            'at the cluster scope',
            id='user',
        ),
        pytest.param(
            [('Impersonate-User', 'system:serviceaccount:default:foo')],
            'serviceaccounts "foo" is forbidden: User "nobody" cannot impersonate resource "serviceaccounts" '
            'in API group "" in the namespace "default"',
            id='account',
        ),
    ],
)
def test_impersonation_without_rights_is_forbidden(headers, message):
    with pytest.raises(errors.ApiError) as info:
        authn.impersonate(requests.User('nobody'), headers, permit)

    assert info.value.code == 403
    assert info.value.message == message


def test_impersonation_of_extras_needs_rights_to_each_of_them():
    asked = []

    def note(user, attributes):
        asked.append((attributes.group, attributes.full_resource, attributes.name))
        return rbac.Decision(True)

    authn.impersonate(
        ADMIN,
        [('Impersonate-User', 'jane'), ('Impersonate-Extra-Scope', 'a'), ('Impersonate-Uid', 'u')],
        note,
    )

    assert asked == [
        ('', 'users', 'jane'),
        ('authentication.k8s.io', 'userextras/scope', 'a'),
        ('authentication.k8s.io', 'uids', 'u'),
    ]


@pytest.mark.parametrize(
    'headers, message',
    [
        pytest.param(
            [('Impersonate-Group', 'jane')],
            'requested [{Group  jane    }] without impersonating a user',
            id='group',
        ),
        pytest.param(
            [('Impersonate-Uid', 'u')],
            'requested [{UID  u  authentication.k8s.io/v1  }] without impersonating a user',
            id='uid',
        ),
    ],
)
def test_impersonation_of_nobody_is_a_bad_request(headers, message):
    with pytest.raises(errors.ApiError) as info:
        authn.impersonate(ADMIN, headers, permit)

    assert (info.value.code, info.value.message) == (400, message)
