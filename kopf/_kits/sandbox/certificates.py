"""
Certificates: the TLS of the sandbox, made when it starts.

One certificate authority signs the server's certificate and those of the clients. They carry all that the strict
verifiers of Go, OpenSSL and Python demand. Keys stay in memory, except for the instant when OpenSSL reads them,
and except for the authority that is exported on purpose.
"""
import dataclasses
import datetime
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

LOCAL_HOSTS = ('localhost', '127.0.0.1', '::1', 'kubernetes', 'kubernetes.default', 'kubernetes.default.svc',
               'kubernetes.default.svc.cluster.local')
"""The names under which the sandbox can be reached: from this machine, and as it is known inside of clusters."""

_CLOCK_SKEW = datetime.timedelta(hours=1)
_LIFETIME = datetime.timedelta(days=365)


class MissingLibraryError(Exception):
    """The library that makes certificates is not installed."""

    def __init__(self) -> None:
        super().__init__("The sandbox needs the library 'cryptography' for its certificates: install kopf[dev].")


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both in PEM."""
    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Authority:
    """A certificate authority: the certificate is for everyone, the key never leaves the process."""
    pem: bytes
    certificate: 'x509.Certificate' = dataclasses.field(repr=False)
    key: 'ec.EllipticCurvePrivateKey' = dataclasses.field(repr=False)


def make_ca(now: datetime.datetime) -> Authority:
    """Make a self-signed authority. Raises `MissingLibraryError` if there is nothing to make it with."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingLibraryError from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = _build_name('kopf-sandbox-ca')
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _start_building(now, name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_build_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256()))
    return Authority(certificate.public_bytes(serialization.Encoding.PEM), certificate, key)


def export_ca(ca: Authority) -> Pair:
    """Take an authority out of the process, with its key: to save it for the next one."""
    return Pair(ca.pem, export_key(ca.key))


def load_ca(pair: Pair) -> Authority:
    """Take up an authority that was exported. Raises `ValueError` if it is damaged, and `MissingLibraryError`."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise MissingLibraryError from error
    return Authority(pair.certificate, x509.load_pem_x509_certificate(pair.certificate), load_key(pair.key))


def export_key(key: 'ec.EllipticCurvePrivateKey') -> bytes:
    """Write a private key as PEM."""
    from cryptography.hazmat.primitives import serialization
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def load_key(pem: bytes) -> 'ec.EllipticCurvePrivateKey':
    """Read a private key from PEM. Raises `ValueError` if it is not one of ours."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError('the key is of another type')
    return key


def issue_server(ca: Authority, hosts: Iterable[str], now: datetime.datetime) -> Pair:
    """Issue a certificate for a server with these host names and addresses."""
    from cryptography import x509
    from cryptography.x509 import oid
    names = [_build_host(host) for host in hosts]
    extensions = [(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), False),
                  (x509.SubjectAlternativeName(names), False)]
    return _issue(ca, _build_name('kube-apiserver'), extensions, now)


def issue_client(ca: Authority, user: str, groups: Sequence[str], now: datetime.datetime) -> Pair:
    """Issue a certificate that authenticates a user who is a member of these groups."""
    from cryptography import x509
    from cryptography.x509 import oid
    extensions = [(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.CLIENT_AUTH]), False)]
    return _issue(ca, _build_name(user, groups), extensions, now)


def build_server_context(pair: Pair, client_ca: bytes | None = None) -> ssl.SSLContext:
    """Build the TLS of a server; with ``client_ca``, the clients may present certificates signed by it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, pair)
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Load a certificate and its key, which OpenSSL takes only from a file: private, and gone at once."""
    descriptor, path = tempfile.mkstemp(prefix='kopf-sandbox-', suffix='.pem')
    try:
        with os.fdopen(descriptor, 'wb') as file:
            file.write(pair.key + pair.certificate)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


def _issue(ca: Authority, name: 'x509.Name', extensions: Iterable[tuple[Any, bool]], now: datetime.datetime) -> Pair:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _start_building(now, name, ca.certificate.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    certificate = builder.sign(ca.key, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), export_key(key))


def _start_building(now: datetime.datetime, subject: 'x509.Name', issuer: 'x509.Name',
                    key: 'ec.EllipticCurvePublicKey') -> 'x509.CertificateBuilder':
    from cryptography import x509
    return x509.CertificateBuilder(
        subject_name=subject, issuer_name=issuer, public_key=key, serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCK_SKEW, not_valid_after=now + _LIFETIME)


def _build_name(common: str, organizations: Sequence[str] = ()) -> 'x509.Name':
    from cryptography import x509
    from cryptography.x509 import oid
    listed = [x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*listed, x509.NameAttribute(oid.NameOID.COMMON_NAME, common)])


def _build_host(host: str) -> 'x509.GeneralName':
    from cryptography import x509
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _build_usage(*, signs_certificates: bool) -> 'x509.KeyUsage':
    from cryptography import x509
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False)
