"""
Escalation: users cannot grant, by roles and bindings, permissions that they do not have.

It is checked before a role or a binding is stored, and only if RBAC is enabled.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._sandbox.auth import rbac
from kopf._sandbox.meta import errors, requests

_FULL_AUTHORITY: list[Mapping[str, Any]] = [
    {'apiGroups': ['*'], 'resources': ['*'], 'verbs': ['*']},
    {'nonResourceURLs': ['*'], 'verbs': ['*']},
]
_ROLES = ('roles', 'clusterroles')
_BINDINGS = ('rolebindings', 'clusterrolebindings')


class _Atom(NamedTuple):
    """The smallest part of a rule: one verb on one resource, or on one path."""

    verb: str
    group: str = ''
    resource: str = ''
    name: str = ''
    path: str = ''


def check_escalation(
    request: requests.Request,
    new: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    authorizer: rbac.RoleAuthorizer,
) -> None:
    """
    Refuse to store a role or a binding that grants more than the user of the request has.

    Other resources are allowed, and so are updates of nothing but finalizers and owner references.
    Raises the API's 403 or 404.
    """
    plural = request.resource.plural
    if request.resource.group != rbac.GROUP or plural not in (*_ROLES, *_BINDINGS):
        return
    if rbac.MASTERS in request.user.groups or (
        old is not None and _differ_for_collector_only(new, old)
    ):
        return

    if plural in _ROLES:
        _check_role(request, new, authorizer)
    else:
        _check_binding(request, new, authorizer)


def _check_role(
    request: requests.Request, role: Mapping[str, Any], authorizer: rbac.RoleAuthorizer
) -> None:
    plural = request.resource.plural
    escalation = rbac.Attributes(
        'escalate', rbac.GROUP, plural, name=request.name, namespace=request.namespace
    )
    if authorizer.authorize(request.user, escalation).allowed:
        return

    if plural == 'clusterroles' and role.get('aggregationRule'):
        held, _ = authorizer.rules_for(request.user, request.namespace)
        if any(_find_missing(held, _FULL_AUTHORITY)):
            raise errors.forbidden(
                rbac.GROUP,
                plural,
                _name_of(role),
                'must have cluster-admin privileges to use the aggregationRule',
            )

    rules = [rule for rule in rbac.strings(role, 'rules') if isinstance(rule, Mapping)]
    _confirm_held(request, _name_of(role), rules, authorizer)


def _check_binding(
    request: requests.Request, binding: Mapping[str, Any], authorizer: rbac.RoleAuthorizer
) -> None:
    given = binding.get('roleRef')
    reference: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    kind = reference.get('kind')
    name = str(reference.get('name', ''))
    if kind not in ('Role', 'ClusterRole'):
        return  # refused by the validation

    bound = rbac.Attributes(
        'bind',
        str(reference.get('apiGroup') or rbac.GROUP),
        f'{kind.lower()}s',
        name=name,
        namespace=request.namespace,
    )
    if authorizer.authorize(request.user, bound).allowed:
        return

    rules = authorizer.find_rules(reference, request.namespace)
    if rules is None:
        raise errors.not_found(rbac.GROUP, request.resource.plural, name)

    _confirm_held(request, _name_of(binding), rules, authorizer)


def _confirm_held(
    request: requests.Request,
    name: str,
    rules: Iterable[Mapping[str, Any]],
    authorizer: rbac.RoleAuthorizer,
) -> None:
    held, failures = authorizer.rules_for(request.user, request.namespace)
    missing = list(_find_missing(held, rules))
    if not missing:
        return

    user = request.user
    plural = request.resource.plural
    # The messages name the resource of the request.
    named = [f'{plural}{failure[failure.index(".") :]}' for failure in failures]
    tail = f'; resolution errors: [{rbac.aggregate(named)}]' if failures else ''
    listed = '\n'.join(sorted(_describe_compacted(missing)))
    raise errors.forbidden(
        rbac.GROUP,
        plural,
        name,
        f'user {json.dumps(user.name, ensure_ascii=False)} (groups={_quote(user.groups)}) is '
        'attempting to grant RBAC permissions not currently held:\n'
        f'{listed}{tail}',
    )


def _find_missing(
    held: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]
) -> Iterator[_Atom]:
    rules = list(held)
    for rule in wanted:
        yield from (
            atom for atom in _split(rule) if not any(_covers(having, atom) for having in rules)
        )


def _split(rule: Mapping[str, Any]) -> Iterator[_Atom]:
    verbs = rbac.strings(rule, 'verbs')
    for group in rbac.strings(rule, 'apiGroups'):
        for resource in rbac.strings(rule, 'resources'):
            names = rbac.strings(rule, 'resourceNames') or ['']
            yield from (_Atom(verb, group, resource, name) for verb in verbs for name in names)
    for path in rbac.strings(rule, 'nonResourceURLs'):
        yield from (_Atom(verb, path=path) for verb in verbs)


def _covers(rule: Mapping[str, Any], atom: _Atom) -> bool:
    verbs = rbac.strings(rule, 'verbs')
    names = rbac.strings(rule, 'resourceNames')
    if atom.verb not in verbs and '*' not in verbs:
        return False
    if atom.path:
        return not names and any(
            rbac.covers_path(path, atom.path) for path in rbac.strings(rule, 'nonResourceURLs')
        )

    groups = rbac.strings(rule, 'apiGroups')
    resources = rbac.strings(rule, 'resources')
    _, slash, subresource = atom.resource.partition('/')

    return (
        (atom.group in groups or '*' in groups)
        and (
            atom.resource in resources
            or '*' in resources
            or (bool(slash) and f'*/{subresource}' in resources)
        )
        and (not names or atom.name in names)
    )


def _describe_compacted(atoms: Iterable[_Atom]) -> Iterator[str]:
    verbs: dict[_Atom, list[str]] = {}
    for atom in atoms:
        # Only the verbs on resources are listed together.
        key = atom if atom.path else atom._replace(verb='')
        verbs.setdefault(key, []).append(atom.verb)

    for key, listed in verbs.items():
        parts = (
            [f'NonResourceURLs:{_quote([key.path])}']
            if key.path
            else [f'APIGroups:{_quote([key.group])}', f'Resources:{_quote([key.resource])}']
        )
        parts += [f'ResourceNames:{_quote([key.name])}'] if key.name else []
        yield '{' + ', '.join([*parts, f'Verbs:{_quote(listed)}']) + '}'


def _differ_for_collector_only(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return _without_collector_fields(new) == _without_collector_fields(old)


def _without_collector_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    ignored = ('ownerReferences', 'finalizers', 'managedFields')
    metadata = {key: value for key, value in body.get('metadata', {}).items() if key not in ignored}
    return {**body, 'metadata': metadata}


def _name_of(body: Mapping[str, Any]) -> str:
    return str(body.get('metadata', {}).get('name', ''))


def _quote(items: Iterable[str]) -> str:
    return '[' + ' '.join(json.dumps(item, ensure_ascii=False) for item in items) + ']'
