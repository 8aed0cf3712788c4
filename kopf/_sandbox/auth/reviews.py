"""
Reviews: the resources that are answered immediately and are not stored.

They check access, list the permissions of a user, identify the user, authenticate a token; the last
one, ``TokenRequest``, issues a token. Bodies are already decoded and defaulted; the metadata that
was set by then stays there.
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any

from kopf._sandbox.auth import authn, rbac, tokens
from kopf._sandbox.meta import errors, requests

AUTHORIZATION = 'authorization.k8s.io'
AUTHENTICATION = 'authentication.k8s.io'
TOKEN_KIND = 'TokenRequest'

DEFAULT_LIFETIME = 60 * 60
_MIN_LIFETIME = 10 * 60
_MAX_LIFETIME = 1 << 32
_BINDABLE = {'Pod': 'pods', 'Secret': 'secrets', 'Node': 'nodes'}

_Body = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Reviewer:
    """Answers the reviews of one cluster."""

    authorizer: rbac.Authorizer
    authenticator: authn.Authenticator
    signer: tokens.Signer
    lookup: authn.Lookup
    new_id: Callable[[], str]  # makes unique ids for tokens

    def answers(self, request: requests.Request) -> bool:
        """Return whether a request is a review, and must not be stored."""
        return request.subresource == 'token' or request.resource.kind.endswith('Review')

    def answer(self, request: requests.Request, body: _Body, now: float) -> dict[str, Any]:
        """Answer the creation of a review. Raises the API's errors for malformed reviews."""
        if request.subresource == 'token':
            return self._issue_token(request, body, now)

        resource = request.resource
        # The kind and the API version can be omitted.
        asked = {
            **body,
            'kind': resource.kind,
            'apiVersion': resource.api_version,
        }
        match resource.kind:
            case 'TokenReview':
                return review_token(asked, self.authenticator, now)
            case 'SelfSubjectReview':
                return review_self(request.user, now)
            case 'SelfSubjectRulesReview':
                return review_rules(asked, request.user, self.authorizer)
            case 'SelfSubjectAccessReview':
                return review_access(asked, request.user, self.authorizer)
            case 'LocalSubjectAccessReview':
                return review_local_access(asked, request.namespace, self.authorizer)
            case _:
                return review_subject_access(asked, self.authorizer)

    def _issue_token(self, request: requests.Request, body: _Body, now: float) -> dict[str, Any]:
        account = find_account(request, body, self.lookup)
        spec = build_token_spec(body)
        bound = find_bound(request, spec, self.lookup)
        uid = account['metadata']['uid']
        holder = tokens.Account(
            request.namespace, request.name, uid, self.new_id(), tuple(spec['audiences']), bound
        )
        lifetime = spec['expirationSeconds']
        token = self.signer.sign(tokens.build_claims(holder, now=now, lifetime=lifetime))
        metadata = {
            'name': request.name,
            'namespace': request.namespace,
            'uid': uid,
            **_mapping(body.get('metadata')),
            'creationTimestamp': _format(now),
        }

        return {
            'kind': TOKEN_KIND,
            'apiVersion': f'{AUTHENTICATION}/v1',
            'metadata': metadata,
            'spec': spec,
            'status': {'token': token, 'expirationTimestamp': _format(now + lifetime)},
        }


def review_access(body: _Body, user: requests.User, authorizer: rbac.Authorizer) -> dict[str, Any]:
    """Review whether the user of the request may perform an action."""
    problems = [*_check_attributes(body), *_check_metadata(body, (), 'must be empty')]
    return _decide(body, user, authorizer, problems)


def review_subject_access(body: _Body, authorizer: rbac.Authorizer) -> dict[str, Any]:
    """Review whether another user may perform an action."""
    problems = [
        *_check_attributes(body),
        *_check_subject(body),
        *_check_metadata(body, (), 'must be empty'),
    ]
    return _decide(body, _read_subject(body), authorizer, problems)


def review_local_access(body: _Body, namespace: str, authorizer: rbac.Authorizer) -> dict[str, Any]:
    """Review whether another user may perform an action in one namespace."""
    spec = _mapping(body.get('spec'))
    problems = [
        *_check_attributes(body),
        *_check_subject(body),
        *_check_metadata(body, ('namespace',), 'must be empty except for namespace'),
    ]
    asked = _text(_mapping(spec.get('resourceAttributes')).get('namespace'))

    if spec.get('resourceAttributes') is not None and asked != namespace:
        problems.append(
            errors.invalid_value(
                'spec.resourceAttributes.namespace', asked, 'must match metadata.namespace'
            )
        )

    if spec.get('nonResourceAttributes') is not None:
        problems.append(
            errors.invalid_value(
                'spec.nonResourceAttributes',
                _render_path(spec),
                'disallowed on this kind of request',
            )
        )

    return _decide(body, _read_subject(body), authorizer, problems)


def review_rules(body: _Body, user: requests.User, authorizer: rbac.Authorizer) -> dict[str, Any]:
    """Review which actions the user of the request may perform in a namespace."""
    namespace = _text(_mapping(body.get('spec')).get('namespace'))
    if not namespace:
        raise errors.bad_request('no namespace on request')

    rules, failures = authorizer.rules_for(user, namespace)
    status: dict[str, Any] = {
        'resourceRules': [
            _pick(rule, 'verbs', 'apiGroups', 'resources', 'resourceNames')
            for rule in rules
            if rule.get('resources')
        ],
        'nonResourceRules': [
            _pick(rule, 'verbs', 'nonResourceURLs') for rule in rules if rule.get('nonResourceURLs')
        ],
        'incomplete': False,
    }
    if failures:
        status['evaluationError'] = rbac.aggregate(failures)
    return {
        'kind': 'SelfSubjectRulesReview',
        'apiVersion': f'{AUTHORIZATION}/v1',
        'metadata': {},
        'spec': {},
        'status': status,
    }


def review_self(user: requests.User, now: float) -> dict[str, Any]:
    """Review who the user of the request is."""
    return {
        'kind': 'SelfSubjectReview',
        'apiVersion': f'{AUTHENTICATION}/v1',
        'metadata': {'creationTimestamp': _format(now)},
        'status': {'userInfo': build_user_info(user)},
    }


def review_token(body: _Body, authenticator: authn.Authenticator, now: float) -> dict[str, Any]:
    """Review whose the token is."""
    spec = _mapping(body.get('spec'))
    token = _text(spec.get('token'))
    if not token:
        raise errors.bad_request('token is required for TokenReview in authentication')

    try:
        user, audiences = authenticator.authenticate_token(
            token, now, rbac.strings(spec, 'audiences')
        )
    except tokens.TokenError as error:
        status: dict[str, Any] = {'user': {}, 'error': str(error)}
    else:
        status = {
            'authenticated': True,
            'user': build_user_info(user),
            'audiences': list(audiences),
        }

    return _complete(body, status)


def find_account(request: requests.Request, body: _Body, lookup: authn.Lookup) -> _Body:
    """Return the service account to issue a token for; refuse if the body names another one."""
    metadata = _mapping(body.get('metadata'))
    for field, wanted in (('name', request.name), ('namespace', request.namespace)):
        if metadata.get(field) and metadata[field] != wanted:
            problem = errors.invalid_value(
                f'metadata.{field}',
                metadata[field],
                f'must match the service account {field} if specified',
            )
            raise errors.invalid(AUTHENTICATION, TOKEN_KIND, request.name, [problem])

    account = lookup('serviceaccounts', request.namespace, request.name)
    if account is None:
        raise errors.not_found('', 'serviceaccounts', request.name)

    asked = metadata.get('uid')
    actual = account['metadata']['uid']
    if asked and asked != actual:
        raise errors.conflict(
            AUTHENTICATION,
            TOKEN_KIND,
            request.name,
            f'the UID in the token request ({asked}) does '
            f'not match the UID of the service account ({actual})',
        )
    return account


def build_token_spec(body: _Body) -> dict[str, Any]:
    """Return the spec of the requested token, with defaults; refuse unsupported lifetimes."""
    spec = _mapping(body.get('spec'))
    lifetime = spec.get('expirationSeconds')
    if not isinstance(lifetime, int):
        lifetime = DEFAULT_LIFETIME
    limit = 'less than 10 minutes' if lifetime < _MIN_LIFETIME else 'larger than 2^32 seconds'
    if not _MIN_LIFETIME <= lifetime <= _MAX_LIFETIME:
        problem = errors.invalid_value(
            'spec.expirationSeconds', lifetime, f'may not specify a duration {limit}'
        )
        raise errors.invalid(AUTHENTICATION, TOKEN_KIND, '', [problem])

    return {
        'audiences': rbac.strings(spec, 'audiences') or [tokens.AUDIENCE],
        'expirationSeconds': lifetime,
        'boundObjectRef': spec.get('boundObjectRef'),
    }


def find_bound(request: requests.Request, spec: _Body, lookup: authn.Lookup) -> tokens.Bound | None:
    """Return the object to bind a token to, if there is one."""
    reference = _mapping(spec.get('boundObjectRef'))
    if not reference:
        return None

    kind = _text(reference.get('kind'))
    name = _text(reference.get('name'))
    group, _, version = _text(reference.get('apiVersion')).rpartition('/')
    if group or kind not in _BINDABLE:
        raise errors.bad_request(
            f'cannot bind token to object of type {group}/{version}, Kind={kind}'
        )

    stored = lookup(_BINDABLE[kind], '' if kind == 'Node' else request.namespace, name)
    if stored is None:
        raise errors.not_found('', _BINDABLE[kind], name)
    if kind == 'Pod' and stored.get('spec', {}).get('serviceAccountName', '') != request.name:
        raise errors.bad_request(
            f'cannot bind token for serviceaccount "{request.name}" to pod running with '
            f'different serviceaccount name.'
        )

    uid = stored['metadata']['uid']
    if reference.get('uid') not in (None, '', uid):
        raise errors.conflict(
            '',
            kind,
            name,
            f'the UID in the bound object reference ({reference["uid"]}) does not '
            'match the UID in record. The object might have been deleted and then recreated',
        )
    return tokens.Bound(kind.lower(), name, uid)


def build_user_info(user: requests.User) -> dict[str, Any]:
    """Describe a user in the form of reviews; empty fields are omitted."""
    described = {
        'username': user.name,
        'uid': user.uid,
        'groups': list(user.groups),
        'extra': {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in described.items() if value}


def _decide(
    body: _Body, user: requests.User, authorizer: rbac.Authorizer, problems: list[errors.FieldError]
) -> dict[str, Any]:
    if problems:
        raise errors.invalid(AUTHORIZATION, '', '', problems)
    allowed, reason = authorizer.authorize(user, _read_attributes(_mapping(body.get('spec'))))
    return _complete(
        body, {'allowed': allowed, 'reason': reason} if reason else {'allowed': allowed}
    )


def _complete(body: _Body, status: dict[str, Any]) -> dict[str, Any]:
    return {
        'kind': body['kind'],
        'apiVersion': body['apiVersion'],
        'metadata': body.get('metadata') or {},
        'spec': body.get('spec') or {},
        'status': status,
    }


def _read_attributes(spec: _Body) -> rbac.Attributes:
    resource = spec.get('resourceAttributes')
    path = _mapping(spec.get('nonResourceAttributes'))
    if resource is None:
        return rbac.Attributes(_text(path.get('verb')), path=_text(path.get('path')))
    fields = ('verb', 'group', 'resource', 'subresource', 'name', 'namespace')
    return rbac.Attributes(*(_text(_mapping(resource).get(field)) for field in fields))


def _read_subject(body: _Body) -> requests.User:
    spec = _mapping(body.get('spec'))
    extra = {
        key: tuple(rbac.strings(_mapping(spec.get('extra')), key))
        for key in _mapping(spec.get('extra'))
    }
    return requests.User(
        _text(spec.get('user')), tuple(rbac.strings(spec, 'groups')), _text(spec.get('uid')), extra
    )


def _check_attributes(body: _Body) -> list[errors.FieldError]:
    spec = _mapping(body.get('spec'))
    resource = spec.get('resourceAttributes')
    path = spec.get('nonResourceAttributes')
    if resource is not None and path is not None:
        return [
            errors.invalid_value(
                'spec.nonResourceAttributes',
                _render_path(spec),
                'cannot be specified in combination with resourceAttributes',
            )
        ]
    if resource is None and path is None:
        return [
            errors.invalid_value(
                'spec.resourceAttributes',
                None,
                'exactly one of nonResourceAttributes or resourceAttributes must be specified',
            )
        ]
    return []


def _check_subject(body: _Body) -> list[errors.FieldError]:
    spec = _mapping(body.get('spec'))
    if spec.get('user') or spec.get('groups'):
        return []
    return [
        errors.invalid_value('spec.user', '', 'at least one of user or group must be specified')
    ]


def _check_metadata(
    body: _Body, permitted: tuple[str, ...], message: str
) -> list[errors.FieldError]:
    metadata = _mapping(body.get('metadata'))
    if any(value for key, value in metadata.items() if key not in ('managedFields', *permitted)):
        return [errors.invalid_value('metadata', metadata, message)]
    return []


def _render_path(spec: _Body) -> dict[str, str]:
    path = _mapping(spec.get('nonResourceAttributes'))
    return {'Path': _text(path.get('path')), 'Verb': _text(path.get('verb'))}


def _pick(rule: _Body, *fields: str) -> dict[str, Any]:
    return {field: rule[field] for field in fields if rule.get(field)}


def _format(now: float) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')


def _mapping(value: Any) -> _Body:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ''
