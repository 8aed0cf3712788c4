"""
Certificates: how the framework issues them, for verifiers as strict as Go, OpenSSL and Python.

The library that issues certificates is optional and is loaded on demand: without it, `ImportError`
is raised. Keys stay in memory, except for the instant when OpenSSL reads them: it reads only files.
"""

import dataclasses
import datetime
import enum
import ipaddress
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLOCK_SKEW = datetime.timedelta(hours=1)
"""How long before its issuing a new certificate becomes valid: other clocks may be slow."""

LIFETIME = datetime.timedelta(days=365)
"""How long after its issuing a new certificate expires."""


class Purpose(enum.Enum):
    """The side of a connection that presents the certificate."""

    SERVER = 'SERVER_AUTH'
    CLIENT = 'CLIENT_AUTH'


@dataclasses.dataclass(frozen=True)
class Profile:
    """The content of a certificate: its holder, and what it is valid for."""

    name: str
    organizations: Sequence[str] = ()
    hosts: Sequence[str] = ()  # DNS names and IP addresses
    purpose: Purpose | None = None
    is_authority: bool = False  # whether it may sign other certificates


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Issued:
    """A certificate with its key, for signing other certificates or for its own use."""

    pem: bytes
    certificate: 'x509.Certificate' = dataclasses.field(repr=False)
    key: 'ec.EllipticCurvePrivateKey' = dataclasses.field(repr=False)

    def export(self, password: str | None = None) -> Pair:
        """Export the certificate and the key as PEM; a password encrypts the key."""
        return Pair(self.pem, export_key(self.key, password))


def issue(profile: Profile, now: datetime.datetime, issuer: Issued | None = None) -> Issued:
    """Issue a certificate with a new key, signed by the issuer, or self-signed if there is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _build_name(profile)
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_id = (
        own_id
        if issuer is None
        else (
            issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        )
    )
    builder = (
        x509.CertificateBuilder(
            subject_name=subject,
            issuer_name=subject if issuer is None else issuer.certificate.subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - CLOCK_SKEW,
            not_valid_after=now + LIFETIME,
        )
        .add_extension(
            x509.BasicConstraints(ca=profile.is_authority, path_length=None), critical=True
        )
        .add_extension(_build_usage(signs_certificates=profile.is_authority), critical=True)
        .add_extension(own_id, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id),
            critical=False,
        )
    )
    for extension in _build_extensions(profile):
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(key if issuer is None else issuer.key, hashes.SHA256())
    return Issued(certificate.public_bytes(serialization.Encoding.PEM), certificate, key)


def export_key(key: 'ec.EllipticCurvePrivateKey', password: str | None = None) -> bytes:
    """Export a private key as PEM, encrypted if there is a password."""
    from cryptography.hazmat.primitives import serialization

    encryption = (
        serialization.BestAvailableEncryption(password.encode())
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def load_pair(
    context: 'ssl.SSLContext', pair: Pair, password: str | Callable[[], str] | None = None
) -> None:
    """Load a certificate and its key via a private temporary file: OpenSSL reads only files."""
    descriptor, path = tempfile.mkstemp(prefix='kopf-', suffix='.pem')
    try:
        with os.fdopen(descriptor, 'wb') as file:
            file.write(pair.key + pair.certificate)
        context.load_cert_chain(path, password=password)
    finally:
        os.unlink(path)


def _build_extensions(profile: Profile) -> 'list[x509.ExtensionType]':
    from cryptography import x509
    from cryptography.x509 import oid

    extensions: list[x509.ExtensionType] = []
    if profile.purpose is not None:
        extensions.append(
            x509.ExtendedKeyUsage([getattr(oid.ExtendedKeyUsageOID, profile.purpose.value)])
        )

    if profile.hosts:
        extensions.append(
            x509.SubjectAlternativeName([_build_host(host) for host in profile.hosts])
        )

    return extensions


def _build_name(profile: Profile) -> 'x509.Name':
    from cryptography import x509
    from cryptography.x509 import oid

    listed = [
        x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, name) for name in profile.organizations
    ]
    return x509.Name([*listed, x509.NameAttribute(oid.NameOID.COMMON_NAME, profile.name)])


def _build_host(host: str) -> 'x509.GeneralName':
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _build_usage(*, signs_certificates: bool) -> 'x509.KeyUsage':
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
