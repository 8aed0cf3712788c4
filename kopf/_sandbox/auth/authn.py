"""
Authentication: tokens, client certificates and impersonation become a `requests.User`.

Permissions are not checked here. Tokens are kept only as digests, so that they cannot leak.
"""

import base64
import binascii
import hashlib
import hmac
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kopf._sandbox.auth import rbac, tokens
from kopf._sandbox.meta import errors, requests

ANONYMOUS = requests.User('system:anonymous', ('system:unauthenticated',))
AUTHENTICATED = 'system:authenticated'
UNAUTHENTICATED = 'system:unauthenticated'
MASTERS = rbac.MASTERS

FINGERPRINT = 'fingerprint'
"""The digest of a certificate (SHA-256, hexadecimal), beside its fields as decoded by `ssl`."""

_INVALID_TOKEN = 'invalid bearer token'
_EXTRA_PREFIX = 'impersonate-extra-'
_ACCOUNT_PREFIX = 'system:serviceaccount:'
_EXTRA_DOMAIN = 'authentication.kubernetes.io'
_AUTHENTICATION_API = 'authentication.k8s.io/v1'


class Lookup(Protocol):
    """Returns a stored object of the core API: a service account, a secret, a pod or a node."""

    def __call__(self, plural: str, namespace: str, name: str) -> Mapping[str, Any] | None: ...


class Authenticator:
    """
    Authenticates requests. Modified only by `add_token`, from the loop that serves requests.

    With ``anonymous`` set, requests with no credentials are made by the anonymous user; otherwise,
    they are refused. As in kube-apiserver, it requires an authorizer that can deny requests.
    """

    def __init__(self, signer: tokens.Signer, lookup: Lookup, *, anonymous: bool) -> None:
        self._signer = signer
        self._lookup = lookup
        self._nobody = ANONYMOUS if anonymous else None
        self._users: dict[bytes, requests.User] = {}  # by the digests of their tokens

    def add_token(self, token: str, user: requests.User) -> None:
        """Accept this token as the user's from now on."""
        self._users[_digest(token)] = _mark_authenticated(user)

    def authenticate(
        self, authorization: str, certificate: Mapping[str, Any] | None, now: float
    ) -> requests.User:
        """
        Return the user by the header ``Authorization`` and by the client certificate as decoded by
        `ssl`.

        Raises the API's 401 if the credentials are wrong, or if there are none and anonymous
        requests are refused.
        """
        user = _read_certificate(certificate) if certificate else None
        if user is not None:
            return user

        token = _read_bearer(authorization)
        if token:
            try:
                return self.authenticate_token(token, now)[0]
            except tokens.TokenError as error:
                raise errors.unauthorized() from error

        if self._nobody is None:
            raise errors.unauthorized()
        return self._nobody

    def authenticate_token(
        self,
        token: str,
        now: float,
        audiences: Sequence[str] = (),
    ) -> tuple[requests.User, tuple[str, ...]]:
        """
        Return the user of a token, and the requested audiences that it is valid for. Raises
        `tokens.TokenError` if it is invalid.
        """
        asked = audiences or (tokens.AUDIENCE,)
        # A lookup by digest reveals nothing about tokens: no need for constant time.
        user = self._users.get(_digest(token))
        if user is not None and tokens.AUDIENCE in asked:
            return user, (tokens.AUDIENCE,)

        claims = self._signer.verify(token)
        if claims is None:
            raise tokens.TokenError(_INVALID_TOKEN)

        try:
            account = tokens.parse_claims(claims, now)
            common = tokens.intersect_audiences(asked, account)
            if account.is_legacy:
                self._check_secret(account, token)
            else:
                self._check_bound(account)
            self._check_account(account)
        except tokens.TokenError as error:
            raise tokens.TokenError(f'[{_INVALID_TOKEN}, {error}]') from error

        return _build_account_user(account), common

    def _check_account(self, account: tokens.Account) -> None:
        stored = self._lookup('serviceaccounts', account.namespace, account.name)
        if stored is None:
            raise tokens.TokenError(f'serviceaccounts "{account.name}" not found')
        uid = stored['metadata'].get('uid', '')
        if uid != account.uid:
            raise tokens.TokenError(
                f'service account UID ({uid}) does not match claim ({account.uid})'
            )

    def _check_bound(self, account: tokens.Account) -> None:
        if account.bound is None:
            return

        kind = account.bound.kind
        namespace = '' if kind == 'node' else account.namespace
        stored = self._lookup(f'{kind}s', namespace, account.bound.name)
        if stored is None:
            raise tokens.TokenError('service account token has been invalidated')

        uid = stored['metadata'].get('uid', '')
        if uid != account.bound.uid:
            raise tokens.TokenError(
                f'{kind} UID ({uid}) does not match service account {kind} ref claim '
                f'({account.bound.uid})'
            )

    def _check_secret(self, account: tokens.Account, token: str) -> None:
        secret = (
            self._lookup('secrets', account.namespace, account.bound.name)
            if account.bound
            else None
        )
        if secret is None or 'deletionTimestamp' in secret['metadata']:
            raise tokens.TokenError('Token has been invalidated')

        try:
            kept = base64.b64decode((secret.get('data') or {}).get('token') or '', validate=True)
        except (binascii.Error, ValueError):
            kept = b''

        if not hmac.compare_digest(kept, token.encode()):
            raise tokens.TokenError("Token does not match server's copy")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode('utf-8', 'surrogateescape')).digest()


def _read_bearer(authorization: str) -> str:
    scheme, _, rest = authorization.strip().partition(' ')
    return rest.partition(' ')[0] if scheme.lower() == 'bearer' else ''


def _read_certificate(certificate: Mapping[str, Any]) -> requests.User | None:
    pairs = [pair for names in certificate.get('subject', ()) for pair in names]
    common = [value for key, value in pairs if key == 'commonName']
    groups = tuple(value for key, value in pairs if key == 'organizationName')
    extra = {}
    if certificate.get(FINGERPRINT):
        extra[f'{_EXTRA_DOMAIN}/credential-id'] = (f'X509SHA256={certificate[FINGERPRINT]}',)
    user = requests.User(common[-1], groups, extra=extra) if common else None
    return None if user is None else _mark_authenticated(user)


def _mark_authenticated(user: requests.User) -> requests.User:
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return requests.User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def _build_account_user(account: tokens.Account) -> requests.User:
    extra: dict[str, tuple[str, ...]] = {}
    if account.token_id:
        extra[f'{_EXTRA_DOMAIN}/credential-id'] = (f'JTI={account.token_id}',)
    if account.bound is not None and account.bound.kind != 'secret':
        extra[f'{_EXTRA_DOMAIN}/{account.bound.kind}-name'] = (account.bound.name,)
        extra[f'{_EXTRA_DOMAIN}/{account.bound.kind}-uid'] = (account.bound.uid,)

    groups = (*_account_groups(account.namespace), AUTHENTICATED)
    return requests.User(account.username, groups, account.uid, extra)


def _account_groups(namespace: str) -> tuple[str, ...]:
    return 'system:serviceaccounts', f'system:serviceaccounts:{namespace}'


class Claim(NamedTuple):
    """One claim of an impersonation; formatted as Go prints an object reference."""

    kind: str  # User, ServiceAccount, Group, UserExtra, UID
    name: str
    namespace: str = ''
    api_version: str = ''
    key: str = ''

    def __str__(self) -> str:
        return f'{{{self.kind} {self.namespace} {self.name}  {self.api_version}  {self.key}}}'

    @property
    def attributes(self) -> rbac.Attributes:
        """The permission that the user needs for the claim."""
        plurals = {
            'User': 'users',
            'ServiceAccount': 'serviceaccounts',
            'Group': 'groups',
            'UserExtra': 'userextras',
            'UID': 'uids',
        }
        return rbac.Attributes(
            'impersonate',
            group=self.api_version.rpartition('/')[0],
            resource=plurals[self.kind],
            subresource=self.key,
            name=self.name,
            namespace=self.namespace,
        )


def impersonate(
    user: requests.User,
    headers: Iterable[tuple[str, str]],
    authorize: Callable[[requests.User, rbac.Attributes], rbac.Decision],
) -> requests.User:
    """
    Return the user from the headers ``Impersonate-*``, or the same user if there are none.

    Raises the API's 403 if the user may not make some of the claims, and 400 if the headers do not
    name a user.
    """
    claims = _read_claims(headers)
    if not claims:
        return user

    if claims[0].kind not in ('User', 'ServiceAccount'):
        listed = ' '.join(str(claim) for claim in claims)
        raise errors.bad_request(f'requested [{listed}] without impersonating a user')

    for claim in claims:
        decision = authorize(user, claim.attributes)
        if not decision.allowed:
            raise rbac.forbidden_error(user, claim.attributes, decision.reason)

    return _build_impersonated(claims)


def _read_claims(headers: Iterable[tuple[str, str]]) -> list[Claim]:
    users: list[Claim] = []
    groups: list[Claim] = []
    extras: list[Claim] = []
    uids: list[Claim] = []

    for header, value in headers:
        name = header.lower()
        if name == 'impersonate-user' and value:
            users.append(_read_user_claim(value))
        elif name == 'impersonate-group':
            groups.append(Claim('Group', value))
        elif name == 'impersonate-uid' and value:
            uids.append(Claim('UID', value, api_version=_AUTHENTICATION_API))
        elif name.startswith(_EXTRA_PREFIX):
            key = urllib.parse.unquote(name.removeprefix(_EXTRA_PREFIX))
            extras.append(Claim('UserExtra', value, api_version=_AUTHENTICATION_API, key=key))

    return [*users[:1], *groups, *extras, *uids[:1]]


def _read_user_claim(username: str) -> Claim:
    namespace, _, name = username.removeprefix(_ACCOUNT_PREFIX).partition(':')
    is_account = username.startswith(_ACCOUNT_PREFIX) and namespace and name and ':' not in name
    return Claim('ServiceAccount', name, namespace) if is_account else Claim('User', username)


def _build_impersonated(claims: Sequence[Claim]) -> requests.User:
    first = claims[0]
    groups = tuple(claim.name for claim in claims if claim.kind == 'Group')
    if first.kind == 'ServiceAccount':
        username = f'{_ACCOUNT_PREFIX}{first.namespace}:{first.name}'
        groups = groups or _account_groups(first.namespace)
    else:
        username = first.name

    extra: dict[str, tuple[str, ...]] = {}
    for claim in claims:
        if claim.kind == 'UserExtra':
            extra[claim.key] = (*extra.get(claim.key, ()), claim.name)

    uid = ''.join(claim.name for claim in claims if claim.kind == 'UID')
    impersonated = requests.User(username, groups, uid, extra)
    if username != ANONYMOUS.name:
        return _mark_authenticated(impersonated)

    marked = groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    return requests.User(username, marked, uid, extra)
