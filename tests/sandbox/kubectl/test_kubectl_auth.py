"""
kubectl auth: who is who, and who may do what, with roles in force.
"""

import dataclasses

import kubectls
import pytest
from kubectls import GROUP

import kopf.testing

pytestmark = pytest.mark.slow

RBAC = 'rbac.authorization.k8s.io/v1'


@pytest.fixture(scope='module')
def sandbox():
    """A cluster where only what the roles grant is allowed."""
    with kopf.testing.Sandbox(rbac=True, apply=[kubectls.WIDGETS]) as sandbox:
        yield sandbox


@pytest.fixture
def roles(make, namespace):
    """
    Bob may read config maps and paint one widget, the robot may view the rest, the developers may
    edit it: here.
    """
    make(
        kubectls.build(
            'Role',
            'reader',
            RBAC,
            rules=[
                {'apiGroups': [''], 'resources': ['configmaps'], 'verbs': ['get', 'list', 'watch']}
            ],
        ),
        kubectls.build(
            'Role',
            'painter',
            RBAC,
            rules=[
                {
                    'apiGroups': [GROUP],
                    'resources': ['widgets', 'widgets/status'],
                    'resourceNames': ['one'],
                    'verbs': ['get', 'patch'],
                }
            ],
        ),
        build_binding('bob-reads', 'Role', 'reader', kind='User', name='bob'),
        build_binding('bob-paints', 'Role', 'painter', kind='User', name='bob'),
        build_binding(
            'robot-views',
            'ClusterRole',
            'view',
            kind='ServiceAccount',
            name='robot',
            namespace=namespace,
        ),
        build_binding('devs-edit', 'ClusterRole', 'edit', kind='Group', name='devs'),
    )


def build_binding(title, role_kind, role_name, **subject):
    group = {'apiGroup': RBAC.split('/')[0]}
    role = {**group, 'kind': role_kind, 'name': role_name}
    whose = {} if subject['kind'] == 'ServiceAccount' else group
    return kubectls.build('RoleBinding', title, RBAC, roleRef=role, subjects=[{**whose, **subject}])


@pytest.mark.parametrize(
    'question, expected',
    [
        pytest.param('get configmaps', True, id='granted'),
        pytest.param('get configmaps/any', True, id='granted-for-any-name'),
        pytest.param('create configmaps', False, id='not-granted'),
        pytest.param('get configmaps -n default', False, id='another-namespace'),
        pytest.param('get configmaps -A', False, id='all-namespaces'),
        pytest.param(f'patch widgets.{GROUP}/one', True, id='by-name'),
        pytest.param(f'patch widgets.{GROUP}/two', False, id='by-another-name'),
        pytest.param(f'patch widgets.{GROUP}/one --subresource=status', True, id='subresource'),
        pytest.param(
            f'patch widgets.{GROUP}/one --subresource=scale', False, id='another-subresource'
        ),
        pytest.param('get /healthz', True, id='path'),
        pytest.param('get /metrics', False, id='another-path'),
        pytest.param("'*' '*'", False, id='everything'),
    ],
)
def test_rights_of_a_user_are_told(kubectl, roles, question, expected):
    run = kubectl(f'auth can-i {question} --as=bob')

    assert (run.code, run.out) == ((0, 'yes\n') if expected else (1, 'no\n'))


@pytest.mark.parametrize(
    'question, who, expected',
    [
        pytest.param("'*' '*'", '', True, id='administrator'),
        pytest.param(
            'list pods', '--as=system:serviceaccount:{namespace}:robot', True, id='service-account'
        ),
        pytest.param(
            'list secrets',
            '--as=system:serviceaccount:{namespace}:robot',
            False,
            id='service-account-not',
        ),
        pytest.param('create deployments', '--as=ann --as-group=devs', True, id='group'),
        pytest.param('create rolebindings', '--as=ann --as-group=devs', False, id='group-not'),
    ],
)
def test_rights_of_others_are_told(kubectl, roles, namespace, question, who, expected):
    run = kubectl(f'auth can-i {question} {who.format(namespace=namespace)}')

    assert (run.code, run.out) == ((0, 'yes\n') if expected else (1, 'no\n'))


def test_answer_may_be_quiet(kubectl, roles):
    assert dataclasses.astuple(kubectl('auth can-i create configmaps --as=bob --quiet')) == (
        1,
        '',
        '',
    )
    assert dataclasses.astuple(kubectl('auth can-i get configmaps --as=bob --quiet')) == (0, '', '')


def test_rights_are_listed(kubectl, roles):
    run = kubectl('auth can-i --list --as=bob')

    assert run.code == 0
    assert run.rows[0] == ['Resources', 'Non-Resource URLs', 'Resource Names', 'Verbs']
    assert sorted(row for row in run.rows[1:] if not row[0].startswith('[')) == [
        ['configmaps', '[]', '[]', '[get list watch]'],
        ['selfsubjectaccessreviews.authorization.k8s.io', '[]', '[]', '[create]'],
        ['selfsubjectreviews.authentication.k8s.io', '[]', '[]', '[create]'],
        ['selfsubjectrulesreviews.authorization.k8s.io', '[]', '[]', '[create]'],
        [f'widgets.{GROUP}', '[]', '[one]', '[get patch]'],
        [f'widgets.{GROUP}/status', '[]', '[one]', '[get patch]'],
    ]
    assert ['[/healthz]', '[]', '[get]'] in run.rows


def test_rights_of_the_administrator_are_listed(kubectl):
    rows = kubectl('auth can-i --list').rows

    assert ['*.*', '[]', '[]', '[*]'] in rows
    assert ['[*]', '[]', '[*]'] in rows


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param(
            'get configmaps -A',
            'configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" '
            'at the cluster scope',
            id='all-namespaces',
        ),
        pytest.param(
            'get pods',
            'pods is forbidden: User "bob" cannot list resource "pods" in API group "" '
            'in the namespace "{namespace}"',
            id='list',
        ),
        pytest.param(
            'get namespaces',
            'namespaces is forbidden: User "bob" cannot list resource "namespaces" '
            'in API group "" at the cluster scope',
            id='cluster',
        ),
        pytest.param(
            'delete configmap one',
            'configmaps "one" is forbidden: User "bob" cannot delete resource '
            '"configmaps" in API group "" in the namespace "{namespace}"',
            id='delete',
        ),
        pytest.param(
            'get widget two',
            f'widgets.{GROUP} "two" is forbidden: User "bob" cannot get resource "widgets" '
            f'in API group "{GROUP}" in the namespace "{{namespace}}"',
            id='custom',
        ),
        pytest.param(
            'get widget one --subresource=scale',
            f'widgets.{GROUP} "one" is forbidden: User "bob" cannot get '
            f'resource "widgets/scale" in API group "{GROUP}" in the namespace "{{namespace}}"',
            id='subresource',
        ),
        pytest.param(
            'create role more --verb=get --resource=secrets',
            'roles.rbac.authorization.k8s.io is forbidden: User "bob" cannot create resource "roles" in API group '
            '"rbac.authorization.k8s.io" in the namespace "{namespace}"',
            id='roles',
        ),
        pytest.param(
            'get --raw /metrics', 'forbidden: User "bob" cannot get path "/metrics"', id='path'
        ),
    ],
)
def test_what_is_not_granted_is_forbidden(kubectl, roles, make, namespace, command, problem):
    make(kubectls.build_widget())

    run = kubectl(f'{command} --as=bob')

    assert (run.code, run.out) == (1, '')
    assert run.err == f'Error from server (Forbidden): {problem.format(namespace=namespace)}\n'


def test_what_is_granted_is_allowed(kubectl, roles, make):
    make(kubectls.build_config(), kubectls.build_widget(), kubectls.build_widget('two'))

    read = kubectl('get configmaps -o name --as=bob')
    painted = kubectl(
        'patch widget one --type=merge -p \'{"spec":{"color":"blue"}}\' --as=bob -o name'
    )
    created = kubectl('create configmap two --as=ann --as-group=devs')

    assert read.out == 'configmap/kube-root-ca.crt\nconfigmap/one\n'
    assert painted.out == f'widget.{GROUP}/one\n'
    assert created.out == 'configmap/two created\n'


def test_nobody_grants_more_than_they_have(kubectl, namespace):
    kubectl('create role granter --verb=create --resource=roles,rolebindings')
    kubectl('create rolebinding granter --role=granter --user=eve')

    role = kubectl('create role more --verb=get --resource=secrets --as=eve')
    binding = kubectl('create rolebinding more --clusterrole=view --user=eve --as=eve')

    assert role.err == (
        'Error from server (Forbidden): roles.rbac.authorization.k8s.io "more" is forbidden: '
        'user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions '
        'not currently held:\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}\n'
    )
    assert binding.err.startswith(
        'error: failed to create rolebinding: rolebindings.rbac.authorization.k8s.io "more" '
        'is forbidden: user "eve" (groups=["system:authenticated"]) is attempting to grant '
        'RBAC permissions not currently held:\n'
    )


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param(
            '',
            [
                ['Username', 'kopf-sandbox-admin'],
                ['Groups', '[system:masters system:authenticated]'],
            ],
            id='administrator',
        ),
        pytest.param(
            '--as=bob',
            [['Username', 'bob'], ['Groups', '[system:authenticated]']],
            id='impersonated',
        ),
        pytest.param(
            '--as=bob --as-group=devs --as-user-extra=a=b --as-uid=u1',
            [
                ['Username', 'bob'],
                ['UID', 'u1'],
                ['Groups', '[devs system:authenticated]'],
                ['Extra: a', '[b]'],
            ],
            id='in-detail',
        ),
    ],
)
def test_user_is_told(kubectl, options, expected):
    assert kubectl(f'auth whoami {options}').rows == [['ATTRIBUTE', 'VALUE'], *expected]


@pytest.mark.parametrize('certificate', [False, True], ids=['token', 'certificate'])
def test_users_come_with_their_own_credentials(kubectl, sandbox, namespace, roles, certificate):
    credentials = sandbox.add_user('bob', ['devs'], certificate=certificate)
    bob = dataclasses.replace(
        kubectl, environment={**kubectl.environment, 'KUBECONFIG': str(credentials.kubeconfig)}
    )

    shown = bob('auth whoami').rows[1:]
    assert shown[:2] == [['Username', 'bob'], ['Groups', '[devs system:authenticated]']]
    assert [row[0] for row in shown[2:]] == (
        ['Extra: authentication.kubernetes.io/credential-id'] if certificate else []
    )
    assert bob('auth can-i get configmaps').out == 'yes\n'
    assert bob('auth can-i get roles').out == 'no\n'


def test_service_account_comes_with_its_token(kubectl, namespace, roles):
    kubectl('create serviceaccount robot')
    token = kubectl('create token robot').out.strip()

    who = kubectl(f'auth whoami --token={token}')
    listed = kubectl(f'get configmaps --token={token}')
    refused = kubectl(f'get secrets --token={token}')

    assert who.rows[1] == ['Username', f'system:serviceaccount:{namespace}:robot']
    assert listed.code == 0
    assert refused.err == (
        'Error from server (Forbidden): secrets is forbidden: User '
        f'"system:serviceaccount:{namespace}:robot" cannot list resource "secrets" in API group "" '
        f'in the namespace "{namespace}"\n'
    )


def test_strangers_are_not_let_in(kubectl):
    run = kubectl('get configmaps --token=no-such-token')

    assert (run.code, run.err) == (1, 'error: You must be logged in to the server (Unauthorized)\n')
