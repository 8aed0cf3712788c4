"""
Admission policies: the validating policies and their bindings.
"""

from collections.abc import Sequence
from typing import Any, Final

from kopf._sandbox.cel import availability
from kopf._sandbox.meta import errors, naming
from kopf._sandbox.registry.rules import entries, pod_defaults

GROUP: Final = 'admissionregistration.k8s.io'
_ACTIONS: Final = ('Audit', 'Deny', 'Warn')
_FALLBACKS: Final = ('Deny', 'Allow')
_REFERENCES: Final = ('name', 'selector')
_EXCLUSIVE: Final = 'name and selector are mutually exclusive'
_REPEATED: Final = (
    'must not contain both Deny and Warn (repeating the same validation failure information in '
    'the API response and headers serves no purpose)'
)


def default_policy(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    pod_defaults.fill(spec, {'failurePolicy': 'Fail'})
    _default_constraints(spec.get('matchConstraints'))


def default_binding(obj: dict[str, Any]) -> None:
    _default_constraints(obj.setdefault('spec', {}).get('matchResources'))


def _default_constraints(constraints: dict[str, Any] | None) -> None:
    if constraints is not None:
        pod_defaults.fill(constraints, {'matchPolicy': 'Equivalent'})
        for name in ('namespaceSelector', 'objectSelector'):
            constraints.setdefault(name, {})
        for rule in (
            *(constraints.get('resourceRules') or ()),
            *(constraints.get('excludeResourceRules') or ()),
        ):
            pod_defaults.fill(rule, {'scope': '*'})


def validate_policy(obj: entries.Object) -> entries.Problems:
    if not availability.is_available():
        return []
    from kopf._sandbox.admission import policy_rules  # it imports CEL

    return policy_rules.validate_policy(obj)


def check_conditions(conditions: Sequence[entries.Object], path: str) -> entries.Problems:
    """Return the problems of the expressions of match conditions."""
    if not conditions or not availability.is_available():
        return []
    from kopf._sandbox.admission import policy_rules  # it imports CEL

    return policy_rules.check_conditions(conditions, path)


def validate_binding(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    name = str(spec.get('policyName') or '')
    problems = [] if name else [errors.required('spec.policyName')]
    problems += [
        errors.invalid_value('spec.policyName', name, text)
        for text in (naming.check_subdomain(name) if name else ())
    ]
    if spec.get('paramRef') is not None:
        problems += _check_reference(spec['paramRef'], 'spec.paramRef')
    return problems + _check_actions(spec.get('validationActions') or [], 'spec.validationActions')


def _check_reference(ref: entries.Object, path: str) -> entries.Problems:
    problems = []
    if ref.get('name') and ref.get('selector') is not None:
        problems = [errors.forbidden_field(f'{path}.{field}', _EXCLUSIVE) for field in _REFERENCES]
    elif not ref.get('name') and ref.get('selector') is None:
        problems = [errors.required(path, 'one of name or selector must be specified')]

    action = ref.get('parameterNotFoundAction')
    where = f'{path}.parameterNotFoundAction'
    if not action:
        problems.append(errors.required(where))
    elif action not in _FALLBACKS:
        problems.append(errors.not_supported(where, action, _FALLBACKS))

    return problems


def _check_actions(actions: Sequence[str], path: str) -> entries.Problems:
    if not actions:
        return [errors.required(path, 'at least one validation action is required')]

    problems = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            problems.append(errors.not_supported(f'{path}[{index}]', action, _ACTIONS))
        if action in actions[:index]:
            problems.append(errors.duplicate(f'{path}[{index}]', action))

    if {'Deny', 'Warn'} <= set(actions):
        problems.append(errors.invalid_value(path, list(actions), _REPEATED))
    return problems


RULES: Final = {
    (GROUP, 'ValidatingAdmissionPolicy'): entries.build_admission_rules(
        defaults=default_policy, validate=validate_policy, initial_status={}
    ),
    (GROUP, 'ValidatingAdmissionPolicyBinding'): entries.build_admission_rules(
        defaults=default_binding, validate=validate_binding
    ),
}
