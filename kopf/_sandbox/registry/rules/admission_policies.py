"""
Admission policies: the validating policies and their bindings.
"""

from collections.abc import Sequence
from typing import Any, Final

from kopf._sandbox.cel import availability
from kopf._sandbox.registry.rules import entries, pod_defaults

GROUP: Final = 'admissionregistration.k8s.io'


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


def _make_rules(**options: Any) -> entries.Rules:
    return entries.Rules(
        standard_finalizers=False,
        has_generation=True,
        is_bumped=entries.bumped_by_content,
        repeats_update=False,
        allows_unconditional_update=False,
        **options,
    )


RULES: Final = {
    (GROUP, 'ValidatingAdmissionPolicy'): _make_rules(
        defaults=default_policy, validate=validate_policy, initial_status={}
    ),
    (GROUP, 'ValidatingAdmissionPolicyBinding'): _make_rules(defaults=default_binding),
}
