"""
Tokens: the JSON web tokens of service accounts, signed and verified with the key of this process.

The claims are those of kube-apiserver; the signatures are ES256. Tokens are valid as long as the
key exists: until the end of the process, unless the key is saved. The existence of the account is
not checked here, but in the authentication.
"""

import base64
import binascii
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

ISSUER = 'https://kubernetes.default.svc'
LEGACY_ISSUER = 'kubernetes/serviceaccount'
AUDIENCE = ISSUER
"""The audience of the tokens for the API server itself."""

_LEGACY_PREFIX = 'kubernetes.io/serviceaccount/'
_SIGNATURE_HALF = 32  # bytes of each of the two numbers in an ES256 signature


class TokenError(Exception):
    """A token is not accepted; the message is for `TokenReview`."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """The object whose lifetime limits a token: a pod, a secret or a node."""

    kind: str  # pod, secret, node
    name: str
    uid: str


@dataclasses.dataclass(frozen=True)
class Account:
    """The owner of a token, by its claims."""

    namespace: str
    name: str
    uid: str
    token_id: str = ''
    audiences: tuple[str, ...] = ()
    bound: Bound | None = None
    is_legacy: bool = False  # stored in a secret, has no audiences, and never expires

    @property
    def username(self) -> str:
        return f'system:serviceaccount:{self.namespace}:{self.name}'


def build_claims(account: Account, *, now: float, lifetime: int) -> dict[str, Any]:
    """Build the claims of a token requested by a ``TokenRequest``."""
    private: dict[str, Any] = {
        'namespace': account.namespace,
        'serviceaccount': {'name': account.name, 'uid': account.uid},
    }
    if account.bound is not None:
        private[account.bound.kind] = {'name': account.bound.name, 'uid': account.bound.uid}
    issued = int(now)
    return {
        'aud': list(account.audiences),
        'exp': issued + lifetime,
        'iat': issued,
        'iss': ISSUER,
        'jti': account.token_id,
        'kubernetes.io': private,
        'nbf': issued,
        'sub': account.username,
    }


def build_legacy_claims(account: Account, secret_name: str) -> dict[str, Any]:
    """Build the claims of a token for a secret of type ``kubernetes.io/service-account-token``."""
    return {
        'iss': LEGACY_ISSUER,
        f'{_LEGACY_PREFIX}namespace': account.namespace,
        f'{_LEGACY_PREFIX}secret.name': secret_name,
        f'{_LEGACY_PREFIX}service-account.name': account.name,
        f'{_LEGACY_PREFIX}service-account.uid': account.uid,
        'sub': account.username,
    }


def build_secret_data(
    signer: 'Signer', account: Account, secret_name: str, ca_pem: bytes
) -> dict[str, str]:
    """Build the data of a secret of type ``kubernetes.io/service-account-token``."""
    token = signer.sign(build_legacy_claims(account, secret_name))
    values = {'ca.crt': ca_pem, 'namespace': account.namespace.encode(), 'token': token.encode()}
    return {key: base64.b64encode(value).decode() for key, value in values.items()}


def parse_claims(claims: Mapping[str, Any], now: float, *, leeway: float = 60) -> Account:
    """
    Return the owner of a token. Raises `TokenError` if it is expired, not valid yet, or not of a
    service account.
    """
    if now - leeway > claims.get('exp', now):
        raise TokenError('service account token has expired')
    if now + leeway < claims.get('nbf', now):
        raise TokenError('service account token is not valid yet')
    if claims.get('iss') == LEGACY_ISSUER:
        return _parse_legacy(claims)

    private = claims['kubernetes.io']
    kinds = [kind for kind in ('pod', 'secret', 'node') if kind in private]
    bound = Bound(kinds[0], private[kinds[0]]['name'], private[kinds[0]]['uid']) if kinds else None

    return Account(
        private['namespace'],
        private['serviceaccount']['name'],
        private['serviceaccount']['uid'],
        token_id=claims['jti'],
        audiences=tuple(claims['aud']),
        bound=bound,
    )


def _parse_legacy(claims: Mapping[str, Any]) -> Account:
    secret = Bound('secret', claims[f'{_LEGACY_PREFIX}secret.name'], uid='')
    return Account(
        claims[f'{_LEGACY_PREFIX}namespace'],
        claims[f'{_LEGACY_PREFIX}service-account.name'],
        claims[f'{_LEGACY_PREFIX}service-account.uid'],
        bound=secret,
        is_legacy=True,
    )


class Signer:
    """Signs and verifies tokens with one key. The key is generated when it is first needed."""

    def __init__(self) -> None:
        # Clients repeat their tokens, and verifying one takes longer than the rest of a small
        # request.
        self._verify_cached = functools.lru_cache(maxsize=256)(self._verify)

    @functools.cached_property
    def key(self) -> 'ec.EllipticCurvePrivateKey':
        """The key; another one can be assigned only before the first use."""
        from cryptography.hazmat.primitives.asymmetric import ec

        return ec.generate_private_key(ec.SECP256R1())

    @functools.cached_property
    def _header(self) -> str:
        from cryptography.hazmat.primitives import serialization

        public = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return _encode(_dump({'alg': 'ES256', 'kid': _encode(hashlib.sha256(public).digest())}))

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Sign the claims; return a token."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        signed = f'{self._header}.{_encode(_dump(claims))}'
        pair = utils.decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = b''.join(number.to_bytes(_SIGNATURE_HALF, 'big') for number in pair)
        return f'{signed}.{_encode(signature)}'

    def verify(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token, or ``None`` if another key signed it. Ignores the time."""
        return self._verify_cached(token) if token.count('.') == 2 else None

    def _verify(self, token: str) -> Mapping[str, Any] | None:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        signed, _, signature = token.rpartition('.')
        header, _, payload = signed.partition('.')
        try:
            raw = _decode(signature)
            halves = [
                int.from_bytes(half, 'big')
                for half in (raw[:_SIGNATURE_HALF], raw[_SIGNATURE_HALF:])
            ]
            encoded = utils.encode_dss_signature(*halves)
            self.key.public_key().verify(encoded, signed.encode(), ec.ECDSA(hashes.SHA256()))
        except (exceptions.InvalidSignature, binascii.Error, ValueError):
            return None

        claims: Mapping[str, Any] = json.loads(_decode(payload))
        return claims if header == self._header else None


def intersect_audiences(asked: Sequence[str], account: Account) -> tuple[str, ...]:
    """Return the requested audiences for which a token is valid; raise `TokenError` if none."""
    offered = (AUDIENCE,) if account.is_legacy else account.audiences
    common = tuple(audience for audience in asked if audience in offered)
    if not common:
        raise TokenError(
            f'token audiences {_quote(offered)} is invalid for the target audiences {_quote(asked)}'
        )
    return common


def _quote(items: Sequence[str]) -> str:
    return '[' + ' '.join(json.dumps(item, ensure_ascii=False) for item in items) + ']'


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(',', ':'), ensure_ascii=False).encode()


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b'=').decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + '=' * (-len(text) % 4), altchars=b'-_', validate=True)
