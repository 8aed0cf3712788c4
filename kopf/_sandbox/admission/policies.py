"""
Policies: the validating admission policies and their bindings, and what they say about a request.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.admission import admission_review, match_conditions, matching
from kopf._sandbox.cel import cel_types, interpreter, programs, values
from kopf._sandbox.meta import errors, kinds, selectors
from kopf._sandbox.storage import memory

POLICIES: Final = kinds.Home(matching.GROUP, 'validatingadmissionpolicies')
NAMES: Final = ('params', 'namespaceObject', 'variables')
_CODES: Final = {'Unauthorized': 401, 'Forbidden': 403, 'RequestEntityTooLarge': 413}
_INVALID: Final = 422
_HIDDEN: Final = ('uid', 'object', 'oldObject')

_Body = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Denial:
    """A problem with a request, and what to do about it."""

    message: str
    reason: str
    actions: frozenset[str]


class Enforcer:
    """Evaluates the policies. It never awaits."""

    def __init__(self, store: memory.Storage, catalog: kinds.Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def enforce(self, attempt: matching.Attempt) -> None:
        """Raise the API's error if a policy denies the request; add the warnings to it."""
        if matching.is_exempt(attempt.request.resource):
            return
        policies = {stored.name: stored.load() for stored in self._store.shelf(POLICIES).select('')}
        for stored in self._store.shelf(matching.BINDINGS).select(''):
            binding = stored.load()
            policy = policies.get(str(_dig(binding, 'spec').get('policyName')))
            if policy is not None:
                self._enforce_bound(policy, binding, attempt)

    def _enforce_bound(self, policy: _Body, binding: _Body, attempt: matching.Attempt) -> None:
        names = str(policy['metadata']['name']), str(binding['metadata']['name'])
        for denial in self._judge(policy, binding, attempt):
            if 'Warn' in denial.actions:
                attempt.request.warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{names[0]}' "
                    f"with binding '{names[1]}': {denial.message}"
                )
            if 'Deny' in denial.actions:
                raise build_denial(attempt, names, denial)

    def _judge(self, policy: _Body, binding: _Body, attempt: matching.Attempt) -> Iterator[Denial]:
        spec = _dig(policy, 'spec')
        bound = _dig(binding, 'spec')
        resource = self._match(spec.get('matchConstraints'), attempt)
        if resource is None or not self._is_bound(bound, attempt):
            return

        actions = frozenset(bound.get('validationActions') or ())
        fails_open = spec.get('failurePolicy') == 'Ignore'
        try:
            for params in self._find_params(spec, bound, attempt):
                data = self._build_data(spec, attempt, resource, params)
                conditions = match_conditions.parse_conditions(spec.get('matchConditions'))
                if match_conditions.are_met(conditions, data, NAMES):
                    yield from _evaluate_all(spec, data, actions)
        except (match_conditions.ConditionError, values.EvaluationError) as error:
            if not fails_open:
                yield Denial(str(error), '', actions)

    def _match(self, constraints: Any, attempt: matching.Attempt) -> kinds.Resource | None:
        constraints = constraints if isinstance(constraints, Mapping) else {}
        hook = matching.parse_hook(
            {**constraints, 'rules': constraints.get('resourceRules')}, 'policy'
        )
        excluded = matching.parse_hook({'rules': constraints.get('excludeResourceRules')}, '')

        if any(_is_named(item, attempt) for item in _exclude(constraints)):
            resource = attempt.request.resource
            if any(matching.match_rule(rule, attempt, resource) for rule in excluded.rules):
                return None

        named = [_is_named(rule, attempt) for rule in constraints.get('resourceRules') or ()]
        if named and not any(named):
            return None
        return matching.match(hook, attempt, self._catalog, self._find_labels)

    def _is_bound(self, bound: _Body, attempt: matching.Attempt) -> bool:
        constraints = bound.get('matchResources')
        if not isinstance(constraints, Mapping):
            return True
        everything = [
            {'operations': ['*'], 'apiGroups': ['*'], 'apiVersions': ['*'], 'resources': ['*/*']}
        ]
        rules = constraints.get('resourceRules') or everything
        return self._match({**constraints, 'resourceRules': rules}, attempt) is not None

    def _find_labels(self, namespace: str) -> Mapping[str, str] | None:
        stored = self._store.get(matching.NAMESPACES, '', namespace)
        return stored.labels if stored is not None else None

    def _find_params(
        self, spec: _Body, bound: _Body, attempt: matching.Attempt
    ) -> Sequence[Mapping[str, Any] | None]:
        kind = spec.get('paramKind')
        ref = bound.get('paramRef')
        if not kind or not ref:
            return [None]

        group, version = kinds.split_api_version(kind.get('apiVersion'))
        resource = self._catalog.find_kind(group, version, str(kind.get('kind')))
        if resource is None:
            raise values.EvaluationError('failed to configure binding: paramKind is not served')

        namespace = str(ref.get('namespace') or attempt.namespace) if resource.namespaced else ''
        found = self._select_params(resource, ref, namespace)
        if not found and ref.get('parameterNotFoundAction') != 'Allow':
            raise values.EvaluationError(
                'failed to configure binding: no params found for policy binding with `Deny` '
                'parameterNotFoundAction'
            )
        return [{**stored.load(), 'apiVersion': resource.api_version} for stored in found]

    def _select_params(
        self, resource: kinds.Resource, ref: _Body, namespace: str
    ) -> list[memory.Stored]:
        if ref.get('name'):
            stored = self._store.get(resource.home, namespace, str(ref['name']))
            return [] if stored is None else [stored]
        selector = selectors.build_selector(ref.get('selector') or {})
        items = self._store.shelf(resource.home).select(namespace)
        return [stored for stored in items if selector.matches(stored.labels)]

    def _build_data(
        self,
        spec: _Body,
        attempt: matching.Attempt,
        resource: kinds.Resource,
        params: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        stored = self._store.get(matching.NAMESPACES, '', attempt.request.namespace)
        data = build_data(attempt, resource)
        data['params'] = params
        data['namespaceObject'] = None if stored is None else stored.load()
        variables: dict[str, Any] = {}
        data['variables'] = variables

        for item in spec.get('variables') or ():
            variables[str(item['name'])] = interpreter.Lazy(
                _make_calculation(str(item['name']), str(item['expression']), data)
            )

        return data


def _make_calculation(name: str, text: str, data: Mapping[str, Any]) -> Callable[[], Any]:
    def calculate() -> Any:
        try:
            return _compile(text, ()).evaluate(data)
        except values.EvaluationError as error:
            raise values.EvaluationError(
                f'composited variable "{name}" fails to evaluate: {error}'
            ) from None

    return calculate


def build_data(attempt: matching.Attempt, resource: kinds.Resource) -> dict[str, Any]:
    """Return the variables of expressions about a request."""
    review = admission_review.build_review(attempt, resource, '', 'v1')['request']
    request = {name: value for name, value in review.items() if name not in _HIDDEN}
    return {
        'request': request,
        'object': review.get('object'),
        'oldObject': review.get('oldObject'),
    }


def _exclude(constraints: _Body) -> Sequence[_Body]:
    return constraints.get('excludeResourceRules') or ()


def _is_named(rule: _Body, attempt: matching.Attempt) -> bool:
    names = rule.get('resourceNames') or ()
    return not names or attempt.name in names


def _compile(text: str, wanted: tuple[cel_types.Type, ...]) -> programs.Program:
    try:
        return match_conditions.compile_expression(text, NAMES, wanted)
    except programs.CompilationError as error:
        raise values.EvaluationError(str(error)) from error


def _evaluate_all(
    spec: _Body, data: Mapping[str, Any], actions: frozenset[str]
) -> Iterator[Denial]:
    for validation in spec.get('validations') or ():
        text = str(validation.get('expression') or '')
        try:
            if _compile(text, (cel_types.BOOL,)).evaluate(data):
                continue
        except values.EvaluationError as error:
            if spec.get('failurePolicy') != 'Ignore':
                yield Denial(f"expression '{text}' resulted in error: {error}", '', actions)
            continue
        yield Denial(_make_message(validation, data), str(validation.get('reason') or ''), actions)


def _make_message(validation: _Body, data: Mapping[str, Any]) -> str:
    fallback = str(validation.get('message') or '').strip()
    fallback = fallback or f'failed expression: {str(validation.get("expression")).strip()}'
    if not validation.get('messageExpression'):
        return fallback

    try:
        made = str(
            _compile(str(validation['messageExpression']), (cel_types.STRING,)).evaluate(data)
        ).strip()
    except values.EvaluationError:
        return fallback

    return made if made and '\n' not in made else fallback


def build_denial(
    attempt: matching.Attempt, names: tuple[str, str], denial: Denial
) -> errors.ApiError:
    """Build the error for a request that a policy denies."""
    resource = attempt.request.resource
    text = (
        f"ValidatingAdmissionPolicy '{names[0]}' with binding '{names[1]}' denied request: "
        f'{denial.message}'
    )
    error = errors.forbidden(resource.group, resource.plural, attempt.name, text)
    reason = denial.reason or 'Invalid'
    details = {**(error.details or {}), 'causes': [{'message': text}]}

    return errors.ApiError(_CODES.get(reason, _INVALID), reason, error.message, details=details)


def _dig(body: _Body, field: str) -> _Body:
    found = body.get(field)
    return found if isinstance(found, Mapping) else {}
