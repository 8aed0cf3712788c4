"""Roles and bindings decide what users may do, and the refusals are worded as the API's."""

import pytest

from kopf._sandbox.auth import escalation, rbac, roles
from kopf._sandbox.meta import errors, kinds, request_info, requests

GROUP = rbac.GROUP
JANE = requests.User('jane', ('devs', 'system:authenticated'))
ROBOT = requests.User('system:serviceaccount:ns:robot', ('system:serviceaccounts',))
MASTER = requests.User('root', ('system:masters',))


class Policies:
    """Roles and bindings in lists."""

    def __init__(self, *bodies):
        self.bodies = bodies

    def _select(self, kind, namespace=''):
        return [
            body
            for body in self.bodies
            if body['kind'] == kind and body['metadata'].get('namespace', '') == namespace
        ]

    def roles(self, namespace):
        return self._select('Role', namespace)

    def cluster_roles(self):
        return self._select('ClusterRole')

    def role_bindings(self, namespace):
        return self._select('RoleBinding', namespace)

    def cluster_role_bindings(self):
        return self._select('ClusterRoleBinding')


def role(name, *rules, namespace='', **content):
    meta = {'name': name, 'namespace': namespace} if namespace else {'name': name}
    return {
        'kind': 'Role' if namespace else 'ClusterRole',
        'metadata': meta,
        'rules': list(rules),
        **content,
    }


def binding(name, target, *subjects, namespace='', kind=''):
    meta = {'name': name, 'namespace': namespace} if namespace else {'name': name}
    reference = {
        'apiGroup': GROUP,
        'kind': kind or ('Role' if namespace else 'ClusterRole'),
        'name': target,
    }
    return {
        'kind': 'RoleBinding' if namespace else 'ClusterRoleBinding',
        'metadata': meta,
        'roleRef': reference,
        'subjects': list(subjects),
    }


def rule(groups, resources, verbs, **content):
    return {'apiGroups': groups, 'resources': resources, 'verbs': verbs, **content}


AS_JANE = {'kind': 'User', 'name': 'jane', 'apiGroup': GROUP}
PODS = rbac.Attributes('list', '', 'pods', namespace='ns')


@pytest.mark.parametrize(
    'given, asked, expected',
    [
        pytest.param(rule([''], ['pods'], ['list']), PODS, True, id='exact'),
        pytest.param(rule(['*'], ['*'], ['*']), PODS, True, id='everything'),
        pytest.param(rule([''], ['pods'], ['get', 'watch']), PODS, False, id='other-verb'),
        pytest.param(rule(['apps'], ['pods'], ['list']), PODS, False, id='other-group'),
        pytest.param(rule([''], ['services'], ['list']), PODS, False, id='other-resource'),
        pytest.param(
            rule([''], ['pods'], ['get']),
            rbac.Attributes('get', '', 'pods', 'status'),
            False,
            id='subresource',
        ),
        pytest.param(
            rule([''], ['pods/status'], ['get']),
            rbac.Attributes('get', '', 'pods', 'status'),
            True,
            id='exact-subresource',
        ),
        pytest.param(
            rule([''], ['*/scale'], ['get']),
            rbac.Attributes('get', '', 'rcs', 'scale'),
            True,
            id='any-with-subresource',
        ),
        pytest.param(
            rule([''], ['*/scale'], ['get']),
            rbac.Attributes('get', '', 'rcs', 'status'),
            False,
            id='any-with-another-subresource',
        ),
        pytest.param(
            rule([''], ['pods/*'], ['get']),
            rbac.Attributes('get', '', 'pods', 'status'),
            False,
            id='no-such-wildcard',
        ),
        pytest.param(
            rule([''], ['*'], ['get']),
            rbac.Attributes('get', '', 'pods', 'status'),
            True,
            id='all-resources',
        ),
        pytest.param(
            rule([''], ['pods'], ['get'], resourceNames=['a']),
            rbac.Attributes('get', '', 'pods', name='a'),
            True,
            id='named',
        ),
        pytest.param(
            rule([''], ['pods'], ['get'], resourceNames=['a']),
            rbac.Attributes('get', '', 'pods', name='b'),
            False,
            id='named-otherwise',
        ),
        pytest.param(
            rule([''], ['pods'], ['list'], resourceNames=['a']), PODS, False, id='unnamed'
        ),
        pytest.param(
            {'nonResourceURLs': ['/healthz*'], 'verbs': ['get']},
            rbac.Attributes('get', path='/healthz/ping'),
            True,
            id='path-prefix',
        ),
        pytest.param(
            {'nonResourceURLs': ['/healthz'], 'verbs': ['get']},
            rbac.Attributes('get', path='/healthz/ping'),
            False,
            id='path-exact',
        ),
        pytest.param(
            {'nonResourceURLs': ['*'], 'verbs': ['get']},
            rbac.Attributes('get', path='/any'),
            True,
            id='paths',
        ),
        pytest.param(
            {'nonResourceURLs': ['*'], 'verbs': ['get']},
            rbac.Attributes('post', path='/any'),
            False,
            id='path-verb',
        ),
        pytest.param(
            {'nonResourceURLs': ['*'], 'verbs': ['*']}, PODS, False, id='path-rule-for-resource'
        ),
        pytest.param(
            rule(['*'], ['*'], ['*']),
            rbac.Attributes('get', path='/any'),
            False,
            id='resource-rule-for-path',
        ),
        pytest.param({'apiGroups': 'x', 'resources': None, 'verbs': 5}, PODS, False, id='nonsense'),
    ],
)
def test_rule_permits_only_what_it_lists(given, asked, expected):
    assert rbac.permits(given, asked) is expected


@pytest.mark.parametrize(
    'user, subject, namespace, expected',
    [
        pytest.param(JANE, AS_JANE, '', True, id='user'),
        pytest.param(JANE, {'kind': 'User', 'name': 'john'}, '', False, id='other-user'),
        pytest.param(JANE, {'kind': 'Group', 'name': 'devs'}, '', True, id='group'),
        pytest.param(JANE, {'kind': 'Group', 'name': 'jane'}, '', False, id='other-group'),
        pytest.param(
            ROBOT,
            {'kind': 'ServiceAccount', 'name': 'robot', 'namespace': 'ns'},
            '',
            True,
            id='account',
        ),
        pytest.param(
            ROBOT,
            {'kind': 'ServiceAccount', 'name': 'robot', 'namespace': 'no'},
            '',
            False,
            id='namespace',
        ),
        pytest.param(
            ROBOT, {'kind': 'ServiceAccount', 'name': 'robot'}, '', False, id='no-namespace'
        ),
        pytest.param(
            ROBOT,
            {'kind': 'ServiceAccount', 'name': 'robot'},
            'ns',
            True,
            id='namespace-of-binding',
        ),
        pytest.param(JANE, {'kind': 'Strange', 'name': 'jane'}, '', False, id='strange-kind'),
        pytest.param(JANE, 'jane', '', False, id='not-a-subject'),
    ],
)
def test_binding_applies_to_its_subjects(user, subject, namespace, expected):
    authorizer = rbac.RoleAuthorizer(
        Policies(
            role('r', rule([''], ['pods'], ['list']), namespace=namespace),
            binding('b', 'r', subject, namespace=namespace),
        )
    )

    assert authorizer.authorize(user, PODS).allowed is expected


@pytest.mark.parametrize(
    'bodies, attributes, reason',
    [
        pytest.param(
            [role('r', rule([''], ['pods'], ['list'])), binding('b', 'r', AS_JANE)],
            PODS,
            'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "jane"',
            id='cluster-role',
        ),
        pytest.param(
            [
                role('r', rule([''], ['pods'], ['list']), namespace='ns'),
                binding('b', 'r', AS_JANE, namespace='ns'),
            ],
            PODS,
            'RBAC: allowed by RoleBinding "b/ns" of Role "r" to User "jane"',
            id='role',
        ),
        pytest.param(
            [
                role('r', rule([''], ['pods'], ['list'])),
                binding('b', 'r', AS_JANE, namespace='ns', kind='ClusterRole'),
            ],
            PODS,
            'RBAC: allowed by RoleBinding "b/ns" of ClusterRole "r" to User "jane"',
            id='role-in-namespace',
        ),
    ],
)
def test_permission_tells_where_it_comes_from(bodies, attributes, reason):
    decision = rbac.RoleAuthorizer(Policies(*bodies)).authorize(JANE, attributes)

    assert decision == (True, reason)


def test_permission_of_service_account_names_it_with_the_namespace():
    authorizer = rbac.RoleAuthorizer(
        Policies(
            role('r', rule([''], ['pods'], ['list'])),
            binding('b', 'r', {'kind': 'ServiceAccount', 'name': 'robot', 'namespace': 'ns'}),
        )
    )

    assert authorizer.authorize(ROBOT, PODS).reason.endswith('to ServiceAccount "robot/ns"')


@pytest.mark.parametrize('namespace', ['', 'other'])
def test_role_binding_means_nothing_outside_of_its_namespace(namespace):
    authorizer = rbac.RoleAuthorizer(
        Policies(
            role('r', rule([''], ['pods'], ['list']), namespace='ns'),
            binding('b', 'r', AS_JANE, namespace='ns'),
        )
    )

    decision = authorizer.authorize(JANE, rbac.Attributes('list', '', 'pods', namespace=namespace))

    assert decision == (False, '')


def test_bindings_to_missing_roles_are_told_in_the_refusal():
    authorizer = rbac.RoleAuthorizer(
        Policies(binding('b', 'gone', AS_JANE), binding('c', 'nope', AS_JANE, namespace='ns'))
    )

    decision = authorizer.authorize(JANE, PODS)

    assert decision == (
        False,
        f'RBAC: [clusterrole.{GROUP} "gone" not found, role.{GROUP} "nope" not found]',
    )


def test_masters_may_do_everything_with_no_roles():
    assert rbac.RoleAuthorizer(Policies()).authorize(MASTER, PODS) == (True, '')


def test_aggregated_role_has_the_rules_of_those_it_selects_and_they_select():
    selecting = {'clusterRoleSelectors': [{'matchLabels': {'to': 'a'}}]}
    nested = {'clusterRoleSelectors': [{'matchLabels': {'to': 'b'}}, {'matchLabels': {'to': 'a'}}]}
    first = role('first', rule([''], ['pods'], ['list']))
    first['metadata']['labels'] = {'to': 'a'}
    middle = role('middle', aggregationRule=nested)
    middle['metadata']['labels'] = {'to': 'a'}
    last = role('last', rule([''], ['pods'], ['get']))
    last['metadata']['labels'] = {'to': 'b'}
    authorizer = rbac.RoleAuthorizer(
        Policies(
            role('all', aggregationRule=selecting),
            first,
            middle,
            last,
            binding('b', 'all', AS_JANE),
        )
    )

    rules, failures = authorizer.rules_for(JANE, 'ns')

    assert rules == [rule([''], ['pods'], ['list']), rule([''], ['pods'], ['get'])]
    assert failures == []


@pytest.mark.parametrize(
    'attributes, message, details',
    [
        pytest.param(
            rbac.Attributes('list', '', 'pods', namespace='default'),
            'pods is forbidden: User "jane" cannot list resource "pods" in API group "" '
            'in the namespace "default"',
            {'kind': 'pods'},
            id='namespace',
        ),
        pytest.param(
            rbac.Attributes('list', '', 'pods'),
            'pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope',
            {'kind': 'pods'},
            id='cluster',
        ),
        pytest.param(
            rbac.Attributes('get', 'apps', 'deployments', 'scale', 'x', 'default'),
            'deployments.apps "x" is forbidden: User "jane" cannot get resource "deployments/scale" '
            'in API group "apps" in the namespace "default"',
            {'name': 'x', 'group': 'apps', 'kind': 'deployments'},
            id='subresource',
        ),
        pytest.param(
            rbac.Attributes('get', path='/metrics'),
            'forbidden: User "jane" cannot get path "/metrics"',
            {},
            id='path',
        ),
        pytest.param(
            rbac.Attributes('list', '', 'pods', namespace='<a'),
            'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "&lt;a"',
            {'kind': 'pods'},
            id='markup',
        ),
    ],
)
def test_refusal_is_worded_as_the_api_does(attributes, message, details):
    error = rbac.forbidden_error(JANE, attributes)

    assert error.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'message': message,
        'reason': 'Forbidden',
        'details': details,
        'code': 403,
    }


def test_refusal_ends_with_the_reason():
    error = rbac.forbidden_error(JANE, PODS, 'RBAC: because')

    assert error.message.endswith('in the namespace "ns": RBAC: because')


def make_request(plural, *, user=JANE, verb='create', namespace='', name=''):
    resource = kinds.Resource(GROUP, 'v1', plural, plural, plural, bool(namespace), ())
    return requests.Request(verb, resource, user, namespace=namespace, name=name)


def test_namespace_itself_is_asked_for_in_itself():
    attributes = rbac.attributes_of(
        'GET', request_info.Target('', 'v1', 'namespaces', name='foo'), {}
    )

    assert attributes == rbac.Attributes('get', '', 'namespaces', '', 'foo', 'foo')


@pytest.mark.parametrize(
    'method, options, name',
    [
        pytest.param('GET', {'fieldSelector': 'metadata.name=x'}, 'x', id='list'),
        pytest.param(
            'GET', {'fieldSelector': 'metadata.name==x', 'watch': 'true'}, 'x', id='watch'
        ),
        pytest.param(
            'GET',
            {'fieldSelector': 'metadata.namespace=ns,metadata.name=x'},
            'x',
            id='among-others',
        ),
        pytest.param('GET', {'fieldSelector': 'metadata.name!=x'}, '', id='all-but-one'),
        pytest.param('GET', {'fieldSelector': 'metadata.name=x/y'}, '', id='not-a-name'),
        pytest.param('GET', {'fieldSelector': 'metadata.name'}, '', id='malformed'),
        pytest.param('GET', {'fieldSelector': 'spec.nodeName=x'}, '', id='other-field'),
        pytest.param('DELETE', {'fieldSelector': 'metadata.name=x'}, '', id='delete'),
    ],
)
def test_selected_name_is_the_name_that_is_asked_for(method, options, name):
    attributes = rbac.attributes_of(method, request_info.Target('', 'v1', 'pods', 'ns'), options)

    assert (attributes.name, attributes.namespace) == (name, 'ns')


def make_default_authorizer(*bodies):
    return rbac.RoleAuthorizer(Policies(*roles.default_objects(), *bodies))


@pytest.mark.parametrize(
    'user, attributes, expected',
    [
        pytest.param(JANE, rbac.Attributes('get', path='/apis/apps/v1'), True, id='discovery'),
        pytest.param(
            requests.User('system:anonymous', ('system:unauthenticated',)),
            rbac.Attributes('get', path='/version'),
            True,
            id='anonymous-version',
        ),
        pytest.param(
            requests.User('system:anonymous', ('system:unauthenticated',)),
            rbac.Attributes('get', path='/api'),
            False,
            id='anonymous-discovery',
        ),
        pytest.param(
            JANE,
            rbac.Attributes('create', 'authorization.k8s.io', 'selfsubjectaccessreviews'),
            True,
            id='self',
        ),
        pytest.param(JANE, PODS, False, id='pods'),
    ],
)
def test_default_roles_let_users_look_around(user, attributes, expected):
    assert make_default_authorizer().authorize(user, attributes).allowed is expected


@pytest.mark.parametrize(
    'name, attributes, expected',
    [
        pytest.param('view', PODS, True, id='view-pods'),
        pytest.param(
            'view', rbac.Attributes('get', '', 'secrets', namespace='ns'), False, id='view-secrets'
        ),
        pytest.param('edit', PODS, True, id='edit-includes-view'),
        pytest.param(
            'edit', rbac.Attributes('get', '', 'secrets', namespace='ns'), True, id='edit-secrets'
        ),
        pytest.param(
            'edit',
            rbac.Attributes('create', GROUP, 'roles', namespace='ns'),
            False,
            id='edit-roles',
        ),
        pytest.param(
            'admin',
            rbac.Attributes('create', GROUP, 'roles', namespace='ns'),
            True,
            id='admin-roles',
        ),
        pytest.param(
            'admin',
            rbac.Attributes('delete', '', 'pods', namespace='ns'),
            True,
            id='admin-includes-edit',
        ),
        pytest.param(
            'cluster-admin',
            rbac.Attributes('invent', 'any', 'thing', namespace='ns'),
            True,
            id='cluster-admin',
        ),
    ],
)
def test_default_roles_of_people_can_be_bound(name, attributes, expected):
    authorizer = make_default_authorizer(
        binding('b', name, AS_JANE, namespace='ns', kind='ClusterRole')
    )

    assert authorizer.authorize(JANE, attributes).allowed is expected


GRANTER = [
    role(
        'granter',
        rule([GROUP], ['roles', 'rolebindings'], ['create', 'update', 'get']),
        rule([''], ['pods', '*/scale'], ['get']),
        namespace='ns',
    ),
    binding('granter', 'granter', AS_JANE, namespace='ns'),
]


def check(plural, body, *others, user=JANE, old=None, namespace='ns'):
    request = make_request(plural, user=user, namespace=namespace)
    escalation.check_escalation(
        request, body, old, rbac.RoleAuthorizer(Policies(*GRANTER, *others))
    )


def refuse(plural, body, *others, **kwargs):
    """Check, and get the message of the refusal, if any."""
    try:
        check(plural, body, *others, **kwargs)
    except errors.ApiError as e:
        return e.message
    return ''


@pytest.mark.parametrize(
    'given',
    [
        pytest.param(rule([''], ['pods'], ['get']), id='same'),
        pytest.param(rule([''], ['pods'], ['get'], resourceNames=['a']), id='narrower'),
        pytest.param(rule([''], ['rcs/scale'], ['get']), id='by-subresource'),
        pytest.param(rule([], [], []), id='nothing'),
    ],
)
def test_role_within_own_rights_can_be_granted(given):
    assert refuse('roles', role('mine', given, namespace='ns')) == ''


def test_role_beyond_own_rights_is_refused_with_all_that_is_missing():
    body = role(
        'more',
        rule(['', 'apps'], ['pods', 'deployments'], ['get', 'list']),
        rule([''], ['secrets'], ['get', 'list'], resourceNames=['a', 'b']),
        {'nonResourceURLs': ['/x'], 'verbs': ['get', 'post']},
        namespace='ns',
    )

    with pytest.raises(errors.ApiError) as info:
        check('roles', body)

    assert info.value.code == 403
    assert info.value.details == {'name': 'more', 'group': GROUP, 'kind': 'roles'}
    assert info.value.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" (groups=["devs" "system:authenticated"]) '
        'is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["deployments"], Verbs:["get" "list"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}\n'
        '{NonResourceURLs:["/x"], Verbs:["get"]}\n'
        '{NonResourceURLs:["/x"], Verbs:["post"]}'
    )


@pytest.mark.parametrize(
    'user, others',
    [
        pytest.param(MASTER, [], id='master'),
        pytest.param(
            JANE,
            [role('e', rule([GROUP], ['roles'], ['escalate'])), binding('e', 'e', AS_JANE)],
            id='escalate',
        ),
    ],
)
def test_role_beyond_own_rights_is_granted_by_those_who_may(user, others):
    assert (
        refuse('roles', role('more', rule(['*'], ['*'], ['*']), namespace='ns'), *others, user=user)
        == ''
    )


def test_role_beyond_own_rights_can_lose_finalizers():
    old = role('more', rule(['*'], ['*'], ['*']), namespace='ns')
    old['metadata']['finalizers'] = ['a/b']
    new = role('more', rule(['*'], ['*'], ['*']), namespace='ns')

    assert refuse('roles', new, old=old) == ''


def test_binding_to_role_within_own_rights_can_be_made():
    assert refuse('rolebindings', binding('mine', 'granter', AS_JANE, namespace='ns')) == ''


def test_binding_to_role_beyond_own_rights_is_refused():
    with pytest.raises(
        errors.ApiError,
        match=r'^rolebindings.* "b" is forbidden: user "jane" .* not currently held',
    ):
        check(
            'rolebindings',
            binding('b', 'big', AS_JANE, namespace='ns', kind='ClusterRole'),
            role('big', rule(['*'], ['*'], ['*'])),
        )


def test_binding_to_role_beyond_own_rights_is_made_by_those_who_may_bind_it():
    refusal = refuse(
        'rolebindings',
        binding('b', 'big', AS_JANE, namespace='ns', kind='ClusterRole'),
        role('big', rule(['*'], ['*'], ['*'])),
        role('binder', rule([GROUP], ['clusterroles'], ['bind'], resourceNames=['big'])),
        binding('binder', 'binder', AS_JANE),
    )

    assert refusal == ''


def test_binding_to_missing_role_is_not_found():
    with pytest.raises(errors.ApiError) as info:
        check('rolebindings', binding('b', 'nope', AS_JANE, namespace='ns', kind='ClusterRole'))

    assert (info.value.code, info.value.message) == (
        404,
        'rolebindings.rbac.authorization.k8s.io "nope" not found',
    )


def test_aggregation_needs_all_rights():
    body = role('agg', aggregationRule={'clusterRoleSelectors': [{'matchLabels': {'a': 'b'}}]})

    with pytest.raises(errors.ApiError) as info:
        check('clusterroles', body, namespace='')

    assert info.value.message == (
        'clusterroles.rbac.authorization.k8s.io "agg" is forbidden: '
        'must have cluster-admin privileges to use the aggregationRule'
    )


def test_failures_of_own_roles_are_told_in_the_refusal():
    with pytest.raises(errors.ApiError) as info:
        check(
            'roles',
            role('more', rule([''], ['x'], ['get']), namespace='ns'),
            binding('dangling', 'nope', AS_JANE, namespace='ns'),
        )

    assert info.value.message.endswith(
        '; resolution errors: [roles.rbac.authorization.k8s.io "nope" not found]'
    )


def test_other_resources_are_not_checked():
    assert refuse('pods', {'metadata': {}}) == ''


def test_aggregated_role_follows_the_changes_of_others():
    selecting = {'clusterRoleSelectors': [{'matchLabels': {'to': 'a'}}]}
    policies = Policies(role('all', aggregationRule=selecting), binding('b', 'all', AS_JANE))
    authorizer = rbac.RoleAuthorizer(policies)
    added = role('added', rule([''], ['pods'], ['list']))
    added['metadata']['labels'] = {'to': 'a'}

    before = authorizer.authorize(JANE, PODS)
    policies.bodies = (*policies.bodies, added)
    after = authorizer.authorize(JANE, PODS)

    assert (before.allowed, after.allowed) == (False, True)
