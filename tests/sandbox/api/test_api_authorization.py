"""
Who may do what: roles and bindings, users and groups, impersonation, certificates.
"""

import base64
import ssl

import aiohttp
import pytest
import sandbox_http
import yaml
from sandbox_http import GROUP

import kopf.testing

ROLE = {
    'apiVersion': 'rbac.authorization.k8s.io/v1',
    'kind': 'Role',
    'metadata': {'name': 'reader'},
    'rules': [{'apiGroups': [''], 'resources': ['configmaps'], 'verbs': ['get', 'list', 'watch']}],
}
BINDING = {
    'apiVersion': 'rbac.authorization.k8s.io/v1',
    'kind': 'RoleBinding',
    'metadata': {'name': 'readers'},
    'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': 'reader'},
    'subjects': [
        {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'User', 'name': 'alice'},
        {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Group', 'name': 'readers'},
        {'kind': 'ServiceAccount', 'name': 'robot', 'namespace': 'default'},
    ],
}
CONFIGMAPS = '/api/v1/namespaces/default/configmaps'


@pytest.fixture(scope='module')
def sandbox():
    with kopf.testing.Sandbox(rbac=True, apply=[sandbox_http.THINGS, ROLE, BINDING]) as sandbox:
        yield sandbox


@pytest.fixture
async def alice(sandbox):
    async with sandbox_http.open_api(sandbox, sandbox.add_user('alice').token) as api:
        yield api


@pytest.fixture
async def admin(sandbox):
    async with sandbox_http.open_api(sandbox, sandbox.token) as api:
        yield api


async def test_granted_requests_are_served(alice):
    assert (await alice.get(CONFIGMAPS)).code == 200
    assert (await alice.get(f'{CONFIGMAPS}/absent')).code == 404
    async with alice.watch(CONFIGMAPS):
        pass


@pytest.mark.parametrize(
    'method, path, message',
    [
        pytest.param(
            'POST',
            CONFIGMAPS,
            'configmaps is forbidden: User "alice" cannot create resource "configmaps" '
            'in API group "" in the namespace "default"',
            id='verb',
        ),
        pytest.param(
            'DELETE',
            f'{CONFIGMAPS}/a',
            'configmaps "a" is forbidden: User "alice" cannot delete resource "configmaps" '
            'in API group "" in the namespace "default"',
            id='object',
        ),
        pytest.param(
            'GET',
            '/api/v1/namespaces/kube-system/configmaps',
            'configmaps is forbidden: User "alice" cannot list resource "configmaps" '
            'in API group "" in the namespace "kube-system"',
            id='namespace',
        ),
        pytest.param(
            'GET',
            '/api/v1/configmaps',
            'configmaps is forbidden: User "alice" cannot list resource "configmaps" '
            'in API group "" at the cluster scope',
            id='cluster',
        ),
        pytest.param(
            'GET',
            f'/apis/{GROUP}/v1/namespaces/default/things',
            f'things.{GROUP} is forbidden: User "alice" cannot list resource "things" '
            f'in API group "{GROUP}" in the namespace "default"',
            id='custom',
        ),
        pytest.param(
            'PUT',
            f'/apis/{GROUP}/v1/namespaces/default/things/a/status',
            f'things.{GROUP} "a" is forbidden: User "alice" cannot update resource "things/status" '
            f'in API group "{GROUP}" in the namespace "default"',
            id='subresource',
        ),
        pytest.param(
            'DELETE',
            CONFIGMAPS,
            'configmaps is forbidden: User "alice" cannot deletecollection resource "configmaps" '
            'in API group "" in the namespace "default"',
            id='collection',
        ),
    ],
)
async def test_other_requests_are_forbidden(alice, method, path, message):
    reply = await alice.ask(method, path)

    assert reply.code == 403
    assert reply.body['reason'] == 'Forbidden'
    assert reply.body['message'] == message


@pytest.mark.parametrize(
    'method, path, message',
    [
        pytest.param(
            'GET',
            '/apis/nope.example/v1/namespaces/x/foos',
            'foos.nope.example is forbidden: User "alice" cannot list resource "foos" '
            'in API group "nope.example" in the namespace "x"',
            id='group',
        ),
        pytest.param(
            'GET',
            '/api/v1/nopes/a',
            'nopes "a" is forbidden: User "alice" cannot get resource "nopes" '
            'in API group "" at the cluster scope',
            id='resource',
        ),
        pytest.param(
            'GET',
            '/api/v1/namespaces/x/pods/x/log',
            'pods "x" is forbidden: User "alice" cannot get resource "pods/log" '
            'in API group "" in the namespace "x"',
            id='subresource',
        ),
        pytest.param(
            'GET',
            '/api/v1/pods/x',
            'pods "x" is forbidden: User "alice" cannot get resource "pods" '
            'in API group "" at the cluster scope',
            id='no-namespace',
        ),
        pytest.param(
            'PUT',
            '/api/v1/namespaces/x/pods',
            'pods is forbidden: User "alice" cannot update resource "pods" '
            'in API group "" in the namespace "x"',
            id='verb',
        ),
        pytest.param(
            'OPTIONS',
            '/api/v1/namespaces/x/pods/y',
            'pods "y" is forbidden: User "alice" cannot  resource "pods" '
            'in API group "" in the namespace "x"',
            id='method',
        ),
        pytest.param(
            'GET',
            '/api/v1/pods?fieldSelector=metadata.name%3Dx',
            'pods "x" is forbidden: User "alice" cannot list resource "pods" '
            'in API group "" at the cluster scope',
            id='by-name',
        ),
    ],
)
async def test_what_does_not_exist_is_forbidden_too(alice, method, path, message):
    reply = await alice.ask(method, path)

    assert (reply.code, reply.body['message']) == (403, message)


async def test_list_and_watch_of_one_object_are_granted_by_its_name(admin, alice):
    roles = '/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public'
    rule = {
        'apiGroups': [''],
        'resources': ['secrets'],
        'verbs': ['list', 'watch'],
        'resourceNames': ['x'],
    }
    await admin.make(f'{roles}/roles', {'metadata': {'name': 'one'}, 'rules': [rule]})
    await admin.make(
        f'{roles}/rolebindings',
        {
            'metadata': {'name': 'one'},
            'roleRef': {**BINDING['roleRef'], 'name': 'one'},
            'subjects': BINDING['subjects'],
        },
    )
    secrets = '/api/v1/namespaces/kube-public/secrets'

    listed = [
        (await alice.get(secrets, fieldSelector=f'metadata.name={name}')).code for name in 'xy'
    ]
    everything = await alice.get(secrets)
    async with alice.watch(secrets, fieldSelector='metadata.name=x'):
        pass

    assert listed == [200, 403]
    assert everything.code == 403


async def test_refusal_is_a_status_with_details(alice):
    reply = await alice.ask('DELETE', f'{CONFIGMAPS}/a')

    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'Forbidden',
        'code': 403,
        'message': 'configmaps "a" is forbidden: User "alice" cannot delete resource "configmaps" in API group "" in '
        'the namespace "default"',
        'details': {'name': 'a', 'kind': 'configmaps'},
    }


async def test_other_paths_are_forbidden_too(alice):
    reply = await alice.get('/metrics')

    assert reply.code == 403
    assert reply.body['message'] == 'forbidden: User "alice" cannot get path "/metrics"'
    assert [(await alice.get(path)).code for path in ('/version', '/apis', '/healthz')] == [
        200,
        200,
        200,
    ]


async def test_strangers_are_unauthorized(sandbox):
    async with sandbox_http.open_api(sandbox, 'wrong') as stranger:
        reply = await stranger.get(CONFIGMAPS)

    assert reply.code == 401
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'message': 'Unauthorized',
        'reason': 'Unauthorized',
        'code': 401,
    }


async def test_those_without_credentials_are_anonymous(sandbox):
    async with sandbox_http.open_api(sandbox, '') as anonymous:
        reply = await anonymous.get(CONFIGMAPS)
        healthy = await anonymous.get('/readyz')

    assert reply.code == 403
    assert reply.body['message'] == (
        'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the '
        'namespace "default"'
    )
    assert healthy.code == 200


async def test_members_of_groups_have_their_rights(sandbox):
    async with sandbox_http.open_api(sandbox, sandbox.add_user('bob', ['readers']).token) as bob:
        assert (await bob.get(CONFIGMAPS)).code == 200


async def test_rights_follow_the_roles_at_once(admin, alice):
    secrets = '/api/v1/namespaces/default/secrets'
    roles = '/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles'
    before = await alice.get(secrets)
    await admin.ask(
        'PATCH',
        f'{roles}/reader',
        [
            {
                'op': 'add',
                'path': '/rules/-',
                'value': {'apiGroups': [''], 'resources': ['secrets'], 'verbs': ['list']},
            }
        ],
        type='application/json-patch+json',
    )

    granted = await alice.get(secrets)
    await admin.ask(
        'PATCH',
        f'{roles}/reader',
        [{'op': 'remove', 'path': '/rules/1'}],
        type='application/json-patch+json',
    )
    revoked = await alice.get(secrets)

    assert [reply.code for reply in (before, granted, revoked)] == [403, 200, 403]


async def test_nobody_grants_more_than_they_have(admin, alice):
    await admin.make(
        '/apis/rbac.authorization.k8s.io/v1/clusterroles',
        {
            'metadata': {'name': 'granters'},
            'rules': [
                {
                    'apiGroups': ['rbac.authorization.k8s.io'],
                    'resources': ['*'],
                    'verbs': ['create'],
                }
            ],
        },
    )
    await admin.make(
        '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
        {
            'metadata': {'name': 'granters'},
            'roleRef': {
                'apiGroup': 'rbac.authorization.k8s.io',
                'kind': 'ClusterRole',
                'name': 'granters',
            },
            'subjects': [
                {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'User', 'name': 'alice'}
            ],
        },
    )

    reply = await alice.post(
        '/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles',
        {
            'metadata': {'name': 'greedy'},
            'rules': [{'apiGroups': [''], 'resources': ['secrets'], 'verbs': ['get']}],
        },
    )

    assert reply.code == 403
    assert reply.body['message'] == (
        'roles.rbac.authorization.k8s.io "greedy" is forbidden: user "alice" (groups=["system:authenticated"]) '
        'is attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], '
        'Verbs:["get"]}'
    )


async def test_administrators_can_be_anybody(admin):
    headers = {'Impersonate-User': 'carol', 'Impersonate-Group': 'readers'}

    listed = await admin.get(CONFIGMAPS, headers=headers)
    refused = await admin.post(CONFIGMAPS, {'metadata': {'name': 'a'}}, headers=headers)

    assert listed.code == 200
    assert refused.code == 403
    assert refused.body['message'].startswith(
        'configmaps is forbidden: User "carol" cannot create resource'
    )


async def test_others_cannot_impersonate(alice):
    reply = await alice.get(CONFIGMAPS, headers={'Impersonate-User': 'admin'})

    assert reply.code == 403
    assert reply.body['message'] == (
        'users "admin" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the cluster '
        'scope'
    )


async def test_service_accounts_come_with_their_tokens(sandbox, admin):
    await admin.make('/api/v1/namespaces/default/serviceaccounts', {'metadata': {'name': 'robot'}})
    request = await admin.post(
        '/api/v1/namespaces/default/serviceaccounts/robot/token',
        {
            'apiVersion': 'authentication.k8s.io/v1',
            'kind': 'TokenRequest',
            'spec': {'expirationSeconds': 3600},
        },
    )

    async with sandbox_http.open_api(sandbox, request.body['status']['token']) as robot:
        listed = await robot.get(CONFIGMAPS)
        refused = await robot.get('/api/v1/namespaces/default/secrets')
        review = await robot.post(
            '/apis/authentication.k8s.io/v1/selfsubjectreviews',
            {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'},
        )

    assert listed.code == 200
    assert refused.body['message'].startswith(
        'secrets is forbidden: User "system:serviceaccount:default:robot" cannot list'
    )
    assert review.body['status']['userInfo']['username'] == 'system:serviceaccount:default:robot'


async def test_rights_are_told_to_those_who_ask(alice):
    def review(**attributes):
        return {
            'apiVersion': 'authorization.k8s.io/v1',
            'kind': 'SelfSubjectAccessReview',
            'spec': {'resourceAttributes': attributes},
        }

    path = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews'
    allowed = await alice.post(
        path, review(verb='list', resource='configmaps', namespace='default')
    )
    denied = await alice.post(path, review(verb='list', resource='nodes'))
    rules = await alice.post(
        '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews',
        {
            'apiVersion': 'authorization.k8s.io/v1',
            'kind': 'SelfSubjectRulesReview',
            'spec': {'namespace': 'default'},
        },
    )

    assert (allowed.code, allowed.body['status']['allowed'], denied.body['status']['allowed']) == (
        201,
        True,
        False,
    )
    assert {
        'verbs': ['get', 'list', 'watch'],
        'apiGroups': [''],
        'resources': ['configmaps'],
    } in rules.body['status']['resourceRules']


async def test_certificates_name_their_users(sandbox, tmp_path):
    config = yaml.safe_load(
        sandbox.add_user('alice', ['some'], certificate=True).kubeconfig.read_text()
    )
    user = config['users'][0]['user']
    context = ssl.create_default_context(cafile=sandbox.ca_path)
    for name in ('client-certificate-data', 'client-key-data'):
        (tmp_path / name).write_bytes(base64.b64decode(user[name]))
    context.load_cert_chain(tmp_path / 'client-certificate-data', tmp_path / 'client-key-data')

    async with aiohttp.ClientSession(
        sandbox.url, connector=aiohttp.TCPConnector(ssl=context)
    ) as session:
        api = sandbox_http.Api(session)
        listed = await api.get(CONFIGMAPS)
        refused = await api.get('/api/v1/nodes')

    assert listed.code == 200
    assert refused.body['message'] == (
        'nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope'
    )
