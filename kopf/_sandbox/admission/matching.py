"""
Matching: the configured admission webhooks, and which of them apply to a request.

Configurations are validated when they are stored; any field that is malformed nevertheless is
treated as absent. The ``matchConditions`` are evaluated by the chain.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kopf._sandbox.meta import errors, kinds, requests, selectors

GROUP = 'admissionregistration.k8s.io'
EXEMPT_KINDS = frozenset(
    {
        'ValidatingWebhookConfiguration',
        'MutatingWebhookConfiguration',
        'ValidatingAdmissionPolicy',
        'ValidatingAdmissionPolicyBinding',
        'MutatingAdmissionPolicy',
        'MutatingAdmissionPolicyBinding',
    }
)
"""The kinds that are never sent to webhooks: otherwise, broken webhooks could block their fixes."""

DEFAULT_TIMEOUT = 10
BINDINGS = kinds.Home(GROUP, 'validatingadmissionpolicybindings')
NAMESPACES = kinds.Home('', 'namespaces')

_Body = Mapping[str, Any]
LabelsOf = Callable[[str], Mapping[str, str] | None]
"""Returns the labels of a namespace, or ``None`` if it does not exist."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule: each list must contain the value or an asterisk."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]  # with their subresources
    scope: str = '*'


@dataclasses.dataclass(frozen=True)
class Service:
    """A reference to a service in the cluster."""

    namespace: str
    name: str
    port: int = 443
    path: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class Hook:
    """One webhook of a configuration."""

    name: str
    id: str  # unique among all webhooks
    rules: tuple[Rule, ...]
    namespaces: selectors.Selector
    objects: selectors.Selector
    url: str = ''
    service: Service | None = None
    ca_bundle: str = ''  # base64
    timeout: int = DEFAULT_TIMEOUT
    versions: tuple[str, ...] = ()
    side_effects: str = ''
    fails_open: bool = False
    is_exact: bool = False  # match only the versions in the rules, not the equivalent ones
    is_reinvocable: bool = False
    conditions: tuple[_Body, ...] = ()  # expressions that must be true


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An attempt to change an object, as sent to webhooks."""

    request: requests.Request
    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    new: dict[str, Any] | None
    old: dict[str, Any] | None
    options: _Body

    @property
    def subject(self) -> dict[str, Any]:
        """The object of the attempt: the new one, or the deleted one."""
        return self.new or self.old or {}

    @property
    def name(self) -> str:
        if self.request.verb == 'deletecollection':
            return ''
        return self.request.name or str(_mapping(self.subject.get('metadata')).get('name') or '')

    @property
    def namespace(self) -> str:
        """The namespace of the object; for a namespace, its own name."""
        return self.name if self.request.resource.home == NAMESPACES else self.request.namespace


def parse_configuration(body: _Body) -> tuple[Hook, ...]:
    """Return the webhooks of one configuration, in their order."""
    configuration = _text(_mapping(body.get('metadata')).get('name'))
    return tuple(
        parse_hook(item, f'{configuration}/{index}')
        for index, item in enumerate(_mappings(body.get('webhooks')))
    )


def list_unsupported(body: _Body) -> list[str]:
    """Return warnings about what is not evaluated if the library of CEL is not installed."""
    unevaluated = (
        ['policies are not evaluated without the library cel-expr-python']
        if str(body.get('kind')).startswith('ValidatingAdmissionPolicy')
        else []
    )
    return unevaluated + [
        f'webhooks[{index}].matchConditions are not evaluated without the library cel-expr-python; '
        'the webhook is called always'
        for index, item in enumerate(_mappings(body.get('webhooks')))
        if item.get('matchConditions')
    ]


def is_exempt(resource: kinds.Resource) -> bool:
    return resource.group == GROUP and resource.kind in EXEMPT_KINDS


def match(
    hook: Hook, attempt: Attempt, catalog: kinds.Catalog, labels_of: LabelsOf
) -> kinds.Resource | None:
    """
    Return the resource in the version to send to a webhook: the requested or an equivalent one;
    ``None`` if the webhook does not match.

    Raises the API's 404 if the namespace must be selected by its labels but does not exist.
    """
    resource = attempt.request.resource
    if not _match_object(hook, attempt):
        return None

    found = resource if _match_rules(hook, attempt, resource) else None
    if found is None and not hook.is_exact:
        found = _find_equivalent(hook, attempt, catalog)
    return found if found is not None and _match_namespace(hook, attempt, labels_of) else None


def _find_equivalent(hook: Hook, attempt: Attempt, catalog: kinds.Catalog) -> kinds.Resource | None:
    versions = catalog.find_versions(attempt.request.resource.home).values()
    others = [other for other in versions if other is not attempt.request.resource]
    for rule in hook.rules:
        for other in others:
            if match_rule(rule, attempt, other):
                return other
    return None


def _match_rules(hook: Hook, attempt: Attempt, resource: kinds.Resource) -> bool:
    return any(match_rule(rule, attempt, resource) for rule in hook.rules)


def match_rule(rule: Rule, attempt: Attempt, resource: kinds.Resource) -> bool:
    """Return whether a rule matches an attempt as if it was made in this version."""
    return (
        _has(rule.operations, attempt.operation)
        and _has(rule.groups, resource.group)
        and _has(rule.versions, resource.version)
        and any(
            plural in ('*', resource.plural) and subresource in ('*', attempt.request.subresource)
            for plural, subresource in rule.resources
        )
        and (rule.scope == '*' or (rule.scope == 'Namespaced') == _is_in_namespace(attempt))
    )


def _is_in_namespace(attempt: Attempt) -> bool:
    return bool(attempt.request.namespace) and attempt.request.resource.home != NAMESPACES


def _match_namespace(hook: Hook, attempt: Attempt, labels_of: LabelsOf) -> bool:
    selector = hook.namespaces
    if not selector or not attempt.namespace:
        return True

    is_namespace = attempt.request.resource.home == NAMESPACES and not attempt.request.subresource
    if is_namespace and attempt.new is not None:
        return selector.matches(labels_in(attempt.new))

    labels = labels_of(attempt.namespace)
    if labels is None:
        raise errors.not_found('', 'namespaces', attempt.namespace)
    return selector.matches(labels)


def _match_object(hook: Hook, attempt: Attempt) -> bool:
    bodies = [body for body in (attempt.new, attempt.old) if body]
    return not hook.objects or any(hook.objects.matches(labels_in(body)) for body in bodies)


def labels_in(body: _Body) -> Mapping[str, str]:
    return _mapping(_mapping(body.get('metadata')).get('labels'))


def parse_hook(item: _Body, id: str) -> Hook:
    """Return one webhook; ``id`` is unique among all of them."""
    client = _mapping(item.get('clientConfig'))
    timeout = item.get('timeoutSeconds')
    return Hook(
        name=_text(item.get('name')),
        id=id,
        rules=tuple(_parse_rule(rule) for rule in _mappings(item.get('rules'))),
        namespaces=selectors.build_selector(_mapping(item.get('namespaceSelector'))),
        objects=selectors.build_selector(_mapping(item.get('objectSelector'))),
        url=_text(client.get('url')),
        service=_parse_service(client.get('service')),
        ca_bundle=_text(client.get('caBundle')),
        timeout=timeout if isinstance(timeout, int) else DEFAULT_TIMEOUT,
        versions=_texts(item.get('admissionReviewVersions')),
        side_effects=_text(item.get('sideEffects')),
        fails_open=item.get('failurePolicy') == 'Ignore',
        is_exact=item.get('matchPolicy') == 'Exact',
        is_reinvocable=item.get('reinvocationPolicy') == 'IfNeeded',
        conditions=tuple(_mappings(item.get('matchConditions'))),
    )


def _parse_rule(rule: _Body) -> Rule:
    resources = tuple(
        (plural, subresource)
        for plural, _, subresource in (
            text.partition('/') for text in _texts(rule.get('resources'))
        )
    )
    return Rule(
        frozenset(_texts(rule.get('operations'))),
        frozenset(_texts(rule.get('apiGroups'))),
        frozenset(_texts(rule.get('apiVersions'))),
        resources,
        _text(rule.get('scope')) or '*',
    )


def _parse_service(value: Any) -> Service | None:
    if not isinstance(value, Mapping):
        return None
    port = value.get('port')
    return Service(
        _text(value.get('namespace')),
        _text(value.get('name')),
        port if isinstance(port, int) else 443,
        _text(value.get('path')),
    )


def _has(values: frozenset[str], value: str) -> bool:
    return value in values or '*' in values


def _mappings(value: Any) -> Iterator[_Body]:
    yield from (
        (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()
    )


def _mapping(value: Any) -> _Body:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ''
