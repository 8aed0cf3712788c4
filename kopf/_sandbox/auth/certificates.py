"""
Certificates: the TLS of the sandbox, issued when it starts.

One certificate authority signs the certificates of the server and of the clients. They have all the
extensions that the strict verifiers of Go, OpenSSL and Python require. Keys stay in memory, except
for the moment when OpenSSL loads them, and except for the authority if it is exported.
"""

import datetime
import ssl
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kopf._cogs.helpers import certificates
from kopf._sandbox import options

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

Authority = certificates.Issued
Pair = certificates.Pair
load_pair = certificates.load_pair

LOCAL_HOSTS = (
    'localhost',
    '127.0.0.1',
    '::1',
    'kubernetes',
    'kubernetes.default',
    'kubernetes.default.svc',
    'kubernetes.default.svc.cluster.local',
)
"""The names of the sandbox: on this machine, and inside of clusters."""


def make_ca(now: datetime.datetime) -> Authority:
    """Make a self-signed authority. Raises `MissingLibraryError` without the library for it."""
    try:
        return certificates.issue(certificates.Profile('kopf-sandbox-ca', is_authority=True), now)
    except ImportError as error:
        raise options.MissingLibraryError('cryptography', 'its certificates') from error


def export_ca(ca: Authority) -> Pair:
    """Encode an authority with its key, to save it for another process."""
    return ca.export()


def load_ca(pair: Pair) -> Authority:
    """Load an exported authority. Raises `ValueError` if damaged, and `MissingLibraryError`."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise options.MissingLibraryError('cryptography', 'its certificates') from error

    return Authority(
        pair.certificate, x509.load_pem_x509_certificate(pair.certificate), load_key(pair.key)
    )


def export_key(key: 'ec.EllipticCurvePrivateKey') -> bytes:
    """Encode a private key as PEM."""
    return certificates.export_key(key)


def load_key(pem: bytes) -> 'ec.EllipticCurvePrivateKey':
    """Load a private key from PEM. Raises `ValueError` if it is not an elliptic curve key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError('the key is of another type')
    return key


def issue_server(ca: Authority, hosts: Iterable[str], now: datetime.datetime) -> Pair:
    """Issue a certificate for a server with these host names and addresses."""
    profile = certificates.Profile(
        'kube-apiserver', hosts=tuple(hosts), purpose=certificates.Purpose.SERVER
    )
    return certificates.issue(profile, now, ca).export()


def issue_client(ca: Authority, user: str, groups: Sequence[str], now: datetime.datetime) -> Pair:
    """Issue a certificate that authenticates a user as a member of these groups."""
    profile = certificates.Profile(user, groups, purpose=certificates.Purpose.CLIENT)
    return certificates.issue(profile, now, ca).export()


def build_server_context(pair: Pair, client_ca: bytes | None = None) -> ssl.SSLContext:
    """Build the TLS context of a server; with ``client_ca``, it accepts client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, pair)

    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL

    return context
