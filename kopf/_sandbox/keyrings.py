"""
Keyrings: all secrets of a sandbox, which can be saved to outlive its process.

With the same authority, tokens and port, the kubeconfigs issued before stay valid.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from kopf._sandbox import clusters
from kopf._sandbox.auth import certificates
from kopf._sandbox.meta import requests


@dataclasses.dataclass(frozen=True)
class Login:
    """A token with its user."""

    user: str
    groups: tuple[str, ...]
    token: str = dataclasses.field(repr=False)


@dataclasses.dataclass
class Keyring:
    """The secrets. Modified only by the host: when users are added, and when the port is known."""

    ca: certificates.Pair | None = None
    signing_key: bytes = dataclasses.field(default=b'', repr=False)
    admin_token: str = dataclasses.field(default='', repr=False)
    logins: list[Login] = dataclasses.field(default_factory=list)
    port: int = 0


def install(keyring: Keyring, cluster: clusters.Cluster) -> None:
    """Install the saved key and tokens in the cluster. Raises `ValueError` if damaged."""
    if keyring.admin_token:
        cluster.admin_token = keyring.admin_token
        cluster.authenticator.add_token(keyring.admin_token, clusters.ADMIN)

    if keyring.signing_key:
        cluster.signer.key = certificates.load_key(keyring.signing_key)
    for login in keyring.logins:
        cluster.authenticator.add_token(login.token, requests.User(login.user, login.groups))


def dump_keyring(keyring: Keyring) -> bytes:
    """Encode a keyring as JSON."""
    ca = keyring.ca and {
        'certificate': keyring.ca.certificate.decode(),
        'key': keyring.ca.key.decode(),
    }
    return json.dumps(
        {
            'ca': ca,
            'signingKey': keyring.signing_key.decode(),
            'adminToken': keyring.admin_token,
            'port': keyring.port,
            'logins': [dataclasses.asdict(login) for login in keyring.logins],
        },
        indent=2,
    ).encode()


def load_keyring(raw: bytes) -> Keyring:
    """Decode a keyring. Raises `ValueError` if it is damaged."""
    try:
        saved = json.loads(raw)
        ca = saved['ca'] and certificates.Pair(
            saved['ca']['certificate'].encode(), saved['ca']['key'].encode()
        )
        logins = [_load_login(login) for login in saved['logins']]
        return Keyring(
            ca, saved['signingKey'].encode(), str(saved['adminToken']), logins, int(saved['port'])
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f'unexpected structure: {e}') from e


def _load_login(saved: Any) -> Login:
    groups: Sequence[Any] = saved['groups']
    return Login(str(saved['user']), tuple(str(group) for group in groups), str(saved['token']))
