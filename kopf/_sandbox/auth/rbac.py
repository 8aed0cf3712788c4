"""
RBAC: the permissions of users by the stored roles and bindings.

Roles are looked up for every decision, so that their changes apply immediately: the lists are
short, and the checks are cheap. Aggregated cluster roles are computed here: there is no controller
to fill in their rules.
"""

import dataclasses
import html
import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from kopf._sandbox.meta import errors, naming, request_info, requests, selectors

GROUP = 'rbac.authorization.k8s.io'
MASTERS = 'system:masters'
"""The group whose members may do everything, regardless of roles."""

# Even if the path does not support the method.
_MEANINGS = {
    'POST': 'create',
    'PUT': 'update',
    'PATCH': 'patch',
}
_Body = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Attributes:
    """The requested action: on a resource, or on a non-resource path."""

    verb: str
    group: str = ''
    resource: str = ''
    subresource: str = ''
    name: str = ''
    namespace: str = ''
    path: str | None = None

    @property
    def full_resource(self) -> str:
        return f'{self.resource}/{self.subresource}' if self.subresource else self.resource


class Decision(NamedTuple):
    allowed: bool
    reason: str = ''


class Policies(Protocol):
    """The stored roles and bindings. It must return the same bodies while they are not changed."""

    def roles(self, namespace: str) -> Iterable[_Body]: ...

    def cluster_roles(self) -> Iterable[_Body]: ...

    def role_bindings(self, namespace: str) -> Iterable[_Body]: ...

    def cluster_role_bindings(self) -> Iterable[_Body]: ...


class Authorizer(Protocol):
    """Decides on the permissions of users."""

    def authorize(self, user: requests.User, attributes: Attributes) -> Decision: ...

    def rules_for(self, user: requests.User, namespace: str) -> tuple[list[_Body], list[str]]:
        """Return all rules for the user in the namespace, and the errors of resolving them."""
        ...


class AlwaysAllow:
    """Allows everything to every user: the authorizer for sandboxes without RBAC."""

    def authorize(self, user: requests.User, attributes: Attributes) -> Decision:
        return Decision(True)

    def rules_for(self, user: requests.User, namespace: str) -> tuple[list[_Body], list[str]]:
        return [
            {'verbs': ['*'], 'apiGroups': ['*'], 'resources': ['*']},
            {'verbs': ['*'], 'nonResourceURLs': ['*']},
        ], []


class RoleAuthorizer:
    """Allows users the actions that their roles permit."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        # The rules by role, with all cluster roles as of the aggregation.
        self._aggregated: dict[str, tuple[list[_Body], list[_Body]]] = {}

    def authorize(self, user: requests.User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)

        failures: list[str] = []
        for binding, subject in self._find_bindings(user, attributes.namespace):
            rules = self.find_rules(_mapping(binding.get('roleRef')), _namespace_of(binding))
            if rules is None:
                failures.append(_describe_missing(_mapping(binding.get('roleRef'))))
            elif any(permits(rule, attributes) for rule in rules):
                return Decision(True, f'RBAC: allowed by {_describe(binding, subject)}')

        return Decision(False, f'RBAC: {aggregate(failures)}' if failures else '')

    def rules_for(self, user: requests.User, namespace: str) -> tuple[list[_Body], list[str]]:
        collected: list[_Body] = []
        failures: list[str] = []
        for binding, _ in self._find_bindings(user, namespace):
            rules = self.find_rules(_mapping(binding.get('roleRef')), _namespace_of(binding))
            if rules is None:
                failures.append(_describe_missing(_mapping(binding.get('roleRef'))))
            else:
                collected.extend(rules)

        return collected, failures

    def find_rules(self, reference: _Body, namespace: str) -> list[_Body] | None:
        """Return the rules of the role that a binding refers to; ``None`` if it does not exist."""
        kind = reference.get('kind')
        name = reference.get('name')
        if kind not in ('Role', 'ClusterRole') or (kind == 'Role' and not namespace):
            return None

        roles = (
            self._policies.roles(namespace) if kind == 'Role' else self._policies.cluster_roles()
        )
        role = next((role for role in roles if _name_of(role) == name), None)
        if role is None:
            return None
        return self._aggregate(role) if role.get('aggregationRule') else _rules_of(role)

    def _aggregate(self, role: _Body) -> list[_Body]:
        name = _name_of(role)
        roles = list(self._policies.cluster_roles())
        known, rules = self._aggregated.get(name, ([], []))
        if len(known) != len(roles) or any(map(operator.is_not, known, roles)):
            rules = collect_aggregated(role, roles)
            self._aggregated[name] = roles, rules
        return rules

    def _find_bindings(self, user: requests.User, namespace: str) -> Iterator[tuple[_Body, _Body]]:
        for binding in self._policies.cluster_role_bindings():
            subject = _find_subject(binding, user, '')
            if subject is not None:
                yield binding, subject

        for binding in self._policies.role_bindings(namespace) if namespace else ():
            subject = _find_subject(binding, user, namespace)
            if subject is not None:
                yield binding, subject


def attributes_of(
    method: str, target: request_info.Target, options: Mapping[str, str]
) -> Attributes:
    """Return the attributes of a request, even if the resource or the verb does not exist."""
    verb = request_info.detect_verb(method, target, options) or _MEANINGS.get(method, '')
    is_namespace = not target.group and target.plural == 'namespaces'
    return Attributes(
        verb,
        target.group,
        target.plural,
        target.subresource,
        target.name or (_find_selected_name(options) if verb in ('list', 'watch') else ''),
        target.name if is_namespace else target.namespace,
    )


def _find_selected_name(options: Mapping[str, str]) -> str:
    """Return the name from the field selector: such lists and watches are for one object."""
    try:
        requirements = selectors.parse_fields(options.get('fieldSelector', '')).requirements
    except errors.ApiError:  # malformed: refused later, after the authorization
        return ''

    name = next(
        (
            ''.join(requirement.values)
            for requirement in requirements
            if requirement.key == 'metadata.name' and requirement.operator == 'in'
        ),
        '',
    )
    return '' if naming.check_path_segment(name) else name


def forbidden_error(
    user: requests.User, attributes: Attributes, reason: str = ''
) -> errors.ApiError:
    """Build the API's 403 for an action."""
    tail = f': {reason}' if reason else ''
    if attributes.path is not None:
        text = _sanitize(
            f'User {_quote(user.name)} cannot {attributes.verb} path {_quote(attributes.path)}'
        )
        return errors.ApiError(403, 'Forbidden', f'forbidden: {text}{tail}', details={})

    scope = (
        f'in the namespace {_quote(attributes.namespace)}'
        if attributes.namespace
        else 'at the cluster scope'
    )
    text = (
        f'User {_quote(user.name)} cannot {attributes.verb} resource '
        f'{_quote(attributes.full_resource)} in API group {_quote(attributes.group)} {scope}'
    )
    return errors.forbidden(
        attributes.group, attributes.resource, attributes.name, f'{_sanitize(text)}{tail}'
    )


def permits(rule: _Body, attributes: Attributes) -> bool:
    """Return whether one rule of a role permits an action."""
    if not _has_any(rule, 'verbs', attributes.verb):
        return False
    if attributes.path is not None:
        return any(covers_path(path, attributes.path) for path in strings(rule, 'nonResourceURLs'))

    names = strings(rule, 'resourceNames')
    return (
        _has_any(rule, 'apiGroups', attributes.group)
        and (
            _has_any(rule, 'resources', attributes.full_resource)
            or (
                bool(attributes.subresource)
                and f'*/{attributes.subresource}' in strings(rule, 'resources')
            )
        )
        and (not names or attributes.name in names)
    )


def covers_path(pattern: str, path: str) -> bool:
    """Return whether a path matches a path of a rule, which may end with an asterisk."""
    return pattern == path or (pattern.endswith('*') and path.startswith(pattern.rstrip('*')))


def collect_aggregated(role: _Body, roles: Iterable[_Body]) -> list[_Body]:
    """Collect the rules of all cluster roles that a role aggregates, directly or indirectly."""
    listed = sorted(roles, key=_name_of)
    collected: list[_Body] = []
    seen = {_name_of(role)}
    queue = [role]

    while queue:
        for found in _select_roles(queue.pop(0), listed):
            if _name_of(found) in seen:
                continue
            seen.add(_name_of(found))
            queue.extend([found] if found.get('aggregationRule') else [])
            collected.extend(rule for rule in _rules_of(found) if rule not in collected)

    return collected


def _select_roles(role: _Body, roles: Iterable[_Body]) -> Iterator[_Body]:
    wanted = _mapping(role.get('aggregationRule')).get('clusterRoleSelectors')
    found = (
        [selector for selector in wanted if isinstance(selector, Mapping)]
        if isinstance(wanted, list)
        else []
    )
    for candidate in roles:
        labels = _mapping(_mapping(candidate.get('metadata')).get('labels'))
        if any(selectors.match_label_selector(selector, labels) for selector in found):
            yield candidate


def aggregate(failures: Iterable[str]) -> str:
    """Join errors as Go does: a single one as it is, several in brackets, without duplicates."""
    unique = list(dict.fromkeys(failures))
    return unique[0] if len(unique) == 1 else f'[{", ".join(unique)}]'


def strings(rule: _Body, field: str) -> list[Any]:
    """Return a list from a rule; empty if the field is not a list."""
    value = rule.get(field)
    return value if isinstance(value, list) else []


def _has_any(rule: _Body, field: str, value: str) -> bool:
    values = strings(rule, field)
    return value in values or '*' in values


def _find_subject(binding: _Body, user: requests.User, namespace: str) -> _Body | None:
    for subject in strings(binding, 'subjects'):
        if isinstance(subject, Mapping) and _is_subject(subject, user, namespace):
            return subject
    return None


def _is_subject(subject: _Body, user: requests.User, namespace: str) -> bool:
    kind = subject.get('kind')
    name = subject.get('name')
    if kind == 'User':
        return name == user.name
    if kind == 'Group':
        return name in user.groups

    home = subject.get('namespace') or namespace
    return (
        kind == 'ServiceAccount'
        and bool(home)
        and user.name == f'system:serviceaccount:{home}:{name}'
    )


def _describe(binding: _Body, subject: _Body) -> str:
    namespace = _namespace_of(binding)
    reference = _mapping(binding.get('roleRef'))
    name = f'{_name_of(binding)}/{namespace}' if namespace else _name_of(binding)
    bound = str(subject.get('name'))
    if subject.get('kind') == 'ServiceAccount':
        bound = f'{bound}/{subject.get("namespace") or namespace}'
    return (
        f'{"RoleBinding" if namespace else "ClusterRoleBinding"} {_quote(name)} of '
        f'{reference.get("kind")} {_quote(str(reference.get("name")))} to {subject.get("kind")} '
        f'{_quote(bound)}'
    )


def _describe_missing(reference: _Body) -> str:
    return (
        f'{str(reference.get("kind")).lower()}.{GROUP} '
        f'{_quote(str(reference.get("name")))} not found'
    )


def _rules_of(role: _Body) -> list[_Body]:
    return [rule for rule in strings(role, 'rules') if isinstance(rule, Mapping)]


def _name_of(body: _Body) -> str:
    return str(_mapping(body.get('metadata')).get('name', ''))


def _namespace_of(body: _Body) -> str:
    return str(_mapping(body.get('metadata')).get('namespace', ''))


def _mapping(value: Any) -> _Body:
    return value if isinstance(value, Mapping) else {}


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _sanitize(text: str) -> str:
    return html.escape(text, quote=False)
