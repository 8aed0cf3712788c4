"""
Roles: the default cluster roles and bindings of every cluster.

Only the roles for people and operators are here: the sandbox does not run the control plane's
components.
"""

from typing import Any

from kopf._sandbox.auth import rbac

_READ = 'get list watch'
_WRITE = 'create delete deletecollection patch update'
_ALL = 'create delete deletecollection get list patch update watch'
_WORKLOADS = 'deployments deployments/scale replicasets replicasets/scale'


def _rule(groups: str, resources: str, verbs: str) -> dict[str, Any]:
    return {
        'apiGroups': groups.split(',') if groups else [''],
        'resources': sorted(resources.split()),
        'verbs': verbs.split(),
    }


_AGGREGATED_TO_ADMIN = [
    _rule('authorization.k8s.io', 'localsubjectaccessreviews', 'create'),
    _rule('rbac.authorization.k8s.io', 'rolebindings roles', _ALL),
]

_AGGREGATED_TO_EDIT = [
    _rule('', 'pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy', _READ),
    _rule('', 'serviceaccounts', 'impersonate'),
    _rule('', 'pods pods/attach pods/exec pods/portforward pods/proxy', _WRITE),
    _rule('', 'pods/eviction', 'create'),
    _rule(
        '',
        'configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale '
        'secrets serviceaccounts services services/proxy',
        _WRITE,
    ),
    _rule('', 'serviceaccounts/token', 'create'),
    _rule(',events.k8s.io', 'events', _WRITE),
    _rule(
        'apps',
        f'daemonsets {_WORKLOADS} deployments/rollback statefulsets statefulsets/scale',
        _WRITE,
    ),
    _rule('autoscaling', 'horizontalpodautoscalers', _WRITE),
    _rule('batch', 'cronjobs jobs', _WRITE),
    _rule(
        'extensions',
        f'daemonsets {_WORKLOADS} deployments/rollback ingresses networkpolicies '
        'replicationcontrollers/scale',
        _WRITE,
    ),
    _rule('policy', 'poddisruptionbudgets', _WRITE),
    _rule('networking.k8s.io', 'ingresses networkpolicies', _WRITE),
    _rule('coordination.k8s.io', 'leases', _ALL),
    _rule('resource.k8s.io', 'resourceclaims resourceclaimtemplates', _WRITE),
]

_AGGREGATED_TO_VIEW = [
    _rule(
        '',
        'configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods '
        'replicationcontrollers replicationcontrollers/scale serviceaccounts services '
        'services/status',
        _READ,
    ),
    _rule(
        '',
        'bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status '
        'resourcequotas resourcequotas/status',
        _READ,
    ),
    _rule('', 'namespaces', _READ),
    _rule(',events.k8s.io', 'events', _READ),
    _rule('discovery.k8s.io', 'endpointslices', _READ),
    _rule(
        'apps',
        f'controllerrevisions daemonsets daemonsets/status {_WORKLOADS} deployments/status '
        'replicasets/status statefulsets statefulsets/scale statefulsets/status',
        _READ,
    ),
    _rule('autoscaling', 'horizontalpodautoscalers horizontalpodautoscalers/status', _READ),
    _rule('batch', 'cronjobs cronjobs/status jobs jobs/status', _READ),
    _rule(
        'extensions',
        f'daemonsets daemonsets/status {_WORKLOADS} deployments/status ingresses ingresses/status '
        'networkpolicies replicasets/status replicationcontrollers/scale',
        _READ,
    ),
    _rule('policy', 'poddisruptionbudgets poddisruptionbudgets/status', _READ),
    _rule('networking.k8s.io', 'ingresses ingresses/status networkpolicies', _READ),
    _rule('resource.k8s.io', 'resourceclaims resourceclaims/status resourceclaimtemplates', _READ),
]

_HEALTH = ['/healthz', '/livez', '/readyz', '/version', '/version/']
_DISCOVERY = [
    '/api',
    '/api/*',
    '/apis',
    '/apis/*',
    '/healthz',
    '/livez',
    '/openapi',
    '/openapi/*',
    '/readyz',
    '/version',
    '/version/',
]

_PLAIN: dict[str, list[dict[str, Any]]] = {
    'cluster-admin': [_rule('*', '*', '*'), {'nonResourceURLs': ['*'], 'verbs': ['*']}],
    'system:auth-delegator': [
        _rule('authentication.k8s.io', 'tokenreviews', 'create'),
        _rule('authorization.k8s.io', 'subjectaccessreviews', 'create'),
    ],
    'system:basic-user': [
        _rule('authorization.k8s.io', 'selfsubjectaccessreviews selfsubjectrulesreviews', 'create'),
        _rule('authentication.k8s.io', 'selfsubjectreviews', 'create'),
    ],
    'system:discovery': [{'nonResourceURLs': _DISCOVERY, 'verbs': ['get']}],
    'system:monitoring': [
        {
            'nonResourceURLs': [
                '/healthz',
                '/healthz/*',
                '/livez',
                '/livez/*',
                '/metrics',
                '/metrics/slis',
                '/readyz',
                '/readyz/*',
            ],
            'verbs': ['get'],
        },
        _rule('', 'nodes/metrics', 'get'),
    ],
    'system:public-info-viewer': [{'nonResourceURLs': _HEALTH, 'verbs': ['get']}],
}

_AGGREGATED = [  # the name, the role that aggregates it, its own rules
    ('admin', '', _AGGREGATED_TO_ADMIN),
    ('edit', 'admin', _AGGREGATED_TO_EDIT),
    ('view', 'edit', _AGGREGATED_TO_VIEW),
]

_BOUND_GROUPS = {
    'cluster-admin': [rbac.MASTERS],
    'system:basic-user': ['system:authenticated'],
    'system:discovery': ['system:authenticated'],
    'system:monitoring': ['system:monitoring'],
    'system:public-info-viewer': ['system:authenticated', 'system:unauthenticated'],
}


def default_objects() -> list[dict[str, Any]]:
    """Build the roles and bindings, without the metadata that the server sets."""
    objects = [_build('ClusterRole', name, rules=rules) for name, rules in _PLAIN.items()]
    for name, target, rules in _AGGREGATED:
        label = {f'{rbac.GROUP}/aggregate-to-{name}': 'true'}
        rule = {'clusterRoleSelectors': [{'matchLabels': label}]}
        extra = {f'{rbac.GROUP}/aggregate-to-{target}': 'true'} if target else {}
        objects.append(_build('ClusterRole', name, extra, aggregationRule=rule, rules=None))
        objects.append(_build('ClusterRole', f'system:aggregate-to-{name}', label, rules=rules))

    for name, groups in _BOUND_GROUPS.items():
        reference = {'apiGroup': rbac.GROUP, 'kind': 'ClusterRole', 'name': name}
        subjects = [{'apiGroup': rbac.GROUP, 'kind': 'Group', 'name': group} for group in groups]
        objects.append(_build('ClusterRoleBinding', name, roleRef=reference, subjects=subjects))

    return objects


def _build(
    kind: str, name: str, labels: dict[str, str] | None = None, **content: Any
) -> dict[str, Any]:
    metadata = {
        'name': name,
        'labels': {'kubernetes.io/bootstrapping': 'rbac-defaults', **(labels or {})},
        'annotations': {'rbac.authorization.kubernetes.io/autoupdate': 'true'},
    }
    return {'apiVersion': f'{rbac.GROUP}/v1', 'kind': kind, 'metadata': metadata, **content}
