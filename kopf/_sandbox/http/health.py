"""
Health: what the API server says about itself. It is healthy whenever it answers.
"""

from collections.abc import Mapping

CHECKS = (
    'ping',
    'log',
    'etcd',
    'poststarthook/start-apiserver-admission-initializer',
    'poststarthook/generic-apiserver-start-informers',
    'poststarthook/priority-and-fairness-config-consumer',
    'poststarthook/priority-and-fairness-filter',
    'poststarthook/storage-object-count-tracker-hook',
    'poststarthook/start-apiextensions-informers',
    'poststarthook/start-apiextensions-controllers',
    'poststarthook/crd-informer-synced',
    'poststarthook/start-system-namespaces-controller',
    'poststarthook/start-cluster-authentication-info-controller',
    'poststarthook/start-kube-apiserver-identity-lease-controller',
    'poststarthook/start-kube-apiserver-identity-lease-garbage-collector',
    'poststarthook/start-legacy-token-tracking-controller',
    'poststarthook/start-service-ip-repair-controllers',
    'poststarthook/rbac/bootstrap-roles',
    'poststarthook/scheduling/bootstrap-system-priority-classes',
    'poststarthook/priority-and-fairness-config-producer',
    'poststarthook/bootstrap-controller',
    'poststarthook/start-kubernetes-service-cidr-controller',
    'poststarthook/start-kube-aggregator-informers',
    'poststarthook/apiservice-status-local-available-controller',
    'poststarthook/apiservice-status-remote-available-controller',
    'poststarthook/apiservice-registration-controller',
    'poststarthook/apiservice-discovery-controller',
    'poststarthook/kube-apiserver-autoregistration',
    'autoregister-completion',
    'poststarthook/apiservice-openapi-controller',
    'poststarthook/apiservice-openapiv3-controller',
)
ROOTS = ('/healthz', '/livez', '/readyz')

_READINESS = ('etcd-readiness', 'informer-sync')


def describe(path: str, options: Mapping[str, str]) -> str | None:
    """Return the answer to a question about the health; ``None`` for unknown checks."""
    root, _, name = path.strip('/').partition('/')
    checks = list_checks(root)
    if name:
        return 'ok' if name in checks else None
    if 'verbose' not in options:
        return 'ok'

    excluded = options.get('exclude', '')
    lines = [f'[+]{check} {"excluded: ok" if check == excluded else "ok"}\n' for check in checks]
    unknown = f'warn: some health checks cannot be excluded: no matches for "{excluded}"\n'
    lines += [unknown] if excluded and excluded not in checks else []

    return f'{"".join(lines)}{root} check passed\n'


def list_checks(root: str) -> tuple[str, ...]:
    """Return the names of the checks: of the readiness, there are more."""
    return (*CHECKS[:3], *_READINESS, *CHECKS[3:], 'shutdown') if root == 'readyz' else CHECKS
