"""
Permissions: roles and their bindings.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, naming
from kopf._sandbox.registry.rules import checks, entries, pod_defaults

GROUP: Final = 'rbac.authorization.k8s.io'
_SUBJECT_KINDS: Final = ('ServiceAccount', 'User', 'Group')


def default_binding(obj: dict[str, Any]) -> None:
    ref = obj.setdefault('roleRef', {})
    ref['apiGroup'] = ref.get('apiGroup') or GROUP
    for subject in obj.get('subjects') or ():
        if subject.get('kind') in ('User', 'Group'):
            pod_defaults.fill(subject, {'apiGroup': GROUP})


def _validate_rules(rules: Sequence[entries.Object], *, namespaced: bool) -> entries.Problems:
    return [
        problem
        for index, rule in enumerate(rules)
        for problem in _validate_rule(rule, f'rules[{index}]', namespaced=namespaced)
    ]


def _validate_rule(rule: entries.Object, field: str, *, namespaced: bool) -> entries.Problems:
    problems = []
    if not rule.get('verbs'):
        problems.append(errors.required(f'{field}.verbs', 'verbs must contain at least one value'))
    if urls := rule.get('nonResourceURLs'):
        if namespaced:
            problems.append(
                errors.invalid_value(
                    f'{field}.nonResourceURLs',
                    urls,
                    'namespaced rules cannot apply to non-resource URLs',
                )
            )
        if any(rule.get(name) for name in ('apiGroups', 'resources', 'resourceNames')):
            problems.append(
                errors.invalid_value(
                    f'{field}.nonResourceURLs',
                    urls,
                    'rules cannot apply to both regular resources and non-resource URLs',
                )
            )
        return problems

    if not rule.get('apiGroups'):
        problems.append(
            errors.required(
                f'{field}.apiGroups', 'resource rules must supply at least one api group'
            )
        )

    if not rule.get('resources'):
        problems.append(
            errors.required(
                f'{field}.resources', 'resource rules must supply at least one resource'
            )
        )

    return problems


def validate_role(obj: entries.Object) -> entries.Problems:
    return _validate_rules(obj.get('rules') or (), namespaced=True)


def validate_cluster_role(obj: entries.Object) -> entries.Problems:
    problems = _validate_rules(obj.get('rules') or (), namespaced=False)
    if 'aggregationRule' not in obj:
        return problems

    selectors = obj['aggregationRule'].get('clusterRoleSelectors') or ()
    field = 'aggregationRule.clusterRoleSelectors'
    if not selectors:
        text = 'at least one clusterRoleSelector required if aggregationRule is non-nil'
        problems.append(errors.required(field, text))

    for index, selector in enumerate(selectors):
        problems += checks.check_selector(selector, f'{field}[{index}]')
    return problems


def _make_validator(
    kinds: Sequence[str], *, namespaced: bool
) -> Callable[[entries.Object], entries.Problems]:
    def validate_binding(obj: entries.Object) -> entries.Problems:
        ref = obj.get('roleRef') or {}
        problems = [
            *checks.check_optional_enum(ref.get('apiGroup') or '', 'roleRef.apiGroup', (GROUP,)),
            *checks.check_optional_enum(ref.get('kind') or '', 'roleRef.kind', kinds),
            *checks.check_required_name(ref.get('name'), 'roleRef.name', naming.check_path_segment),
        ]
        for index, subject in enumerate(obj.get('subjects') or ()):
            problems += _validate_subject(subject, f'subjects[{index}]', namespaced=namespaced)
        return problems

    return validate_binding


def _validate_subject(subject: entries.Object, field: str, *, namespaced: bool) -> entries.Problems:
    kind = subject.get('kind') or ''
    name = subject.get('name')
    group = subject.get('apiGroup') or ''
    problems = [] if name else [errors.required(f'{field}.name')]
    if kind not in _SUBJECT_KINDS:
        return [*problems, errors.not_supported(f'{field}.kind', kind, _SUBJECT_KINDS)]
    if kind != 'ServiceAccount':
        return problems + checks.check_optional_enum(group, f'{field}.apiGroup', (GROUP,))

    problems += checks.check_name(name, f'{field}.name', naming.check_subdomain)
    problems += checks.check_optional_enum(group, f'{field}.apiGroup', ('',))
    if not namespaced and not subject.get('namespace'):
        problems.append(errors.required(f'{field}.namespace'))
    return problems


def validate_binding_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    ref = new.get('roleRef') or {}
    if ref == old.get('roleRef'):
        return []
    shown = {
        'APIGroup': ref.get('apiGroup') or '',
        'Kind': ref.get('kind') or '',
        'Name': ref.get('name') or '',
    }
    return [checks.invalid_struct('roleRef', shown, 'cannot change roleRef')]


def _make_rules(**options: Any) -> entries.Rules:
    return entries.Rules(
        name_rule=naming.check_path_segment, allows_create_on_update=True, **options
    )


RULES: Final = {
    (GROUP, 'Role'): _make_rules(validate=validate_role),
    (GROUP, 'ClusterRole'): _make_rules(validate=validate_cluster_role),
    (GROUP, 'RoleBinding'): _make_rules(
        defaults=default_binding,
        validate=_make_validator(('Role', 'ClusterRole'), namespaced=True),
        validate_update=validate_binding_update,
    ),
    (GROUP, 'ClusterRoleBinding'): _make_rules(
        defaults=default_binding,
        validate=_make_validator(('ClusterRole',), namespaced=False),
        validate_update=validate_binding_update,
    ),
}
