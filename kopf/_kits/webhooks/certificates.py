"""
Certificates: how clients recognise the server, and how its certificate is renewed.

The certificate is given in files, comes in a TLS context, or is generated here as a self-signed
one. Everything here blocks on files and cryptography: call it in threads. Errors and logs contain
no secrets.
"""

import contextlib
import dataclasses
import datetime
import os
import pathlib
import ssl
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping

from kopf._cogs.helpers import certificates
from kopf._kits.webhooks import addresses, server_options, x509_fields

Builder = Callable[[Collection[str], str | None], tuple[bytes, bytes]]
"""Makes a certificate and its encrypted private key in PEM, for these host names and password."""

_MAX_COMMON_NAME = 64  # as defined by X.509
_FRESH_PART = 2 / 3  # of the lifetime; the rest is for the new certificate to spread
_HANDSHAKE_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Identity:
    """The certificate that the server presents, and the authority that clients should trust."""

    # Makes the context ready for use; called once, can be called late.
    activate: Callable[[], ssl.SSLContext | None]
    authority: bytes | None  # in PEM; None if it is well known
    # The contents of its files, by option.
    contents: Mapping[str, bytes] = dataclasses.field(repr=False)
    # When to make the next one; None if it is not generated here.
    renewal: datetime.datetime | None = None
    problem: str | None = None  # why the clients will not trust it


class Source:
    """A source of identities: the first one, and the renewed ones. Used by one thread at a time."""

    def __init__(
        self, given: server_options.ServerOptions, hostnames: Collection[str], build: Builder
    ) -> None:
        self._options = given
        self._hostnames = hostnames
        self._build = build

    @property
    def has_files(self) -> bool:
        return bool(self._list_files())

    def obtain(self) -> Identity:
        """
        Read or make an identity.

        Raises `CertificateError`, or `MissingLibraryError` if the libraries to make it are not
        installed.
        """
        contents = {name: _read(name, path) for name, path in self._list_files().items()}
        authority = (
            self._options.cadata if self._options.cadata is not None else contents.get('cafile')
        )
        if self._options.insecure:
            return Identity(lambda: None, authority, contents)
        if self._options.certfile is not None:
            return self._use_files(authority, contents)

        shown = None if self._options.context is None else find_certificate(self._options.context)
        if self._options.context is not None and shown is not None:
            return self._use_context(self._options.context, shown, authority, contents)
        return self._make_own(authority, contents)

    def renew(self, identity: Identity) -> Identity:
        """
        Obtain the next identity.

        Raises `CertificateError`, even if the certificate is readable but untrusted, unlike the
        current one.
        """
        renewed = self.obtain()
        if renewed.problem is not None and identity.problem is None:
            raise server_options.CertificateError(renewed.problem)
        return renewed

    def is_outdated(self, identity: Identity, now: datetime.datetime) -> bool:
        """Return whether the files have changed, or it is time to renew our own certificate."""
        if identity.renewal is not None and identity.renewal <= now:
            return True
        try:
            return {
                name: _read(name, path) for name, path in self._list_files().items()
            } != identity.contents
        except server_options.CertificateError:
            return True

    def dump(self, authority: bytes | None) -> None:
        """Save the authority to ``cadump``, if configured. Raises `CertificateError` on failure."""
        if self._options.cadump is None or authority is None:
            return

        path = pathlib.Path(self._options.cadump)
        try:
            _replace_file(path, authority)
        except OSError as error:
            raise server_options.CertificateError(
                f'Cannot save the authority to cadump={str(path)!r}: {error.strerror or error}.'
            ) from error

    def _list_files(self) -> dict[str, server_options.FilePath]:
        given = {
            'certfile': self._options.certfile,
            'pkeyfile': self._options.pkeyfile,
            'cafile': self._options.cafile,
        }
        return {name: path for name, path in given.items() if path is not None}

    def _use_files(self, authority: bytes | None, contents: Mapping[str, bytes]) -> Identity:
        chain = self._options.certfile
        key = self._options.pkeyfile
        assert chain is not None
        if key is None and b'PRIVATE KEY-----' not in contents['certfile']:
            raise server_options.CertificateError(
                f'There is no private key in {_name("certfile", chain)}: add pkeyfile=.'
            )

        named = _name('certfile', chain) + (
            f' with {_name("pkeyfile", key)}' if key is not None else ''
        )

        def load(context: ssl.SSLContext) -> None:
            with _explained(named):
                context.load_cert_chain(
                    chain, key, password=self._options.password or _refuse_password
                )

        activate, fresh = self._prepare(load)
        fields = _read_fields(contents['certfile'])
        if authority is None and fields is not None and fields.is_self_signed:
            authority = _keep_certificates(contents['certfile'])
        return Identity(activate, authority, contents, problem=self._find_problem(fresh, authority))

    def _use_context(
        self,
        context: ssl.SSLContext,
        shown: bytes,
        authority: bytes | None,
        contents: Mapping[str, bytes],
    ) -> Identity:
        self._load_verification(context)
        if authority is None and x509_fields.read_der(shown).is_self_signed:
            authority = ssl.DER_cert_to_PEM_cert(shown).encode()
        return Identity(
            lambda: context, authority, contents, problem=self._find_problem(context, authority)
        )

    def _make_own(self, authority: bytes | None, contents: Mapping[str, bytes]) -> Identity:
        pair = certificates.Pair(*self._build(self._hostnames, self._options.password))

        def load(context: ssl.SSLContext) -> None:
            with _explained('the self-signed certificate'):
                certificates.load_pair(context, pair, self._options.password or _refuse_password)

        activate, fresh = self._prepare(load)
        authority = pair.certificate if authority is None else authority
        fields = _read_fields(pair.certificate)
        renewal = (
            fields.since + (fields.until - fields.since) * _FRESH_PART
            if fields is not None
            else None
        )

        return Identity(
            activate, authority, contents, renewal, self._find_problem(fresh, authority)
        )

    def _prepare(
        self, load: Callable[[ssl.SSLContext], None]
    ) -> tuple[Callable[[], ssl.SSLContext], ssl.SSLContext]:
        """Try the certificate in a new context; modify the given context only on activation."""
        fresh = _build_context()
        self._load_verification(fresh)
        load(fresh)
        given = self._options.context
        if given is None:
            return lambda: fresh, fresh

        def activate() -> ssl.SSLContext:
            self._load_verification(given)
            load(given)
            return given

        return activate, fresh

    def _find_problem(self, context: ssl.SSLContext, authority: bytes | None) -> str | None:
        """Return the reason why clients will not trust the server, if any."""
        named = 'cadata=' if self._options.cafile is None else _name('cafile', self._options.cafile)
        if authority is None:
            return None
        if not is_authority(authority):
            return f'There are no certificates in {named}, or they are damaged.'
        if not is_trusted(context, authority):
            return (
                'The certificate of the webhook server is not valid now, or is not signed '
                f'by {named}.'
            )
        return None

    def _load_verification(self, context: ssl.SSLContext) -> None:
        """Set up the verification of clients: by default, only of those with certificates."""
        given = self._options
        if given.verifies:
            with _explained('verify_cafile=, verify_capath=, or verify_cadata='):
                context.load_verify_locations(
                    given.verify_cafile, given.verify_capath, _as_text(given.verify_cadata)
                )
        elif given.verify_mode:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)

        if given.verify_mode is not None:
            context.verify_mode = given.verify_mode
        elif given.verifies and context.verify_mode is ssl.CERT_NONE:
            context.verify_mode = ssl.CERT_OPTIONAL


def build_certificate(
    hostnames: Collection[str], password: str | None = None, *, now: datetime.datetime | None = None
) -> tuple[bytes, bytes]:
    """
    Make a self-signed certificate for these names and addresses; return it and its key, in PEM.

    The subject is the first name, or the first address if there are no names. Unspecified
    addresses, such as 0.0.0.0, are left out. Raises `MissingLibraryError` if ``cryptography`` is
    not installed, `ValueError` if there are no names left.
    """
    hosts = list(
        dict.fromkeys(host for name in hostnames if (host := normalize_hostname(name)) is not None)
    )
    if not hosts:
        raise ValueError('There are no host names to make a certificate for.')

    names = [host for host in hosts if addresses.parse_ip(host) is None]
    common = (names or hosts)[0][:_MAX_COMMON_NAME]
    profile = certificates.Profile(
        common, hosts=hosts, purpose=certificates.Purpose.SERVER, is_authority=True
    )

    try:
        pair = certificates.issue(profile, now or datetime.datetime.now(datetime.UTC)).export(
            password
        )
    except ImportError as error:
        raise server_options.MissingLibraryError(
            "The webhook server needs the library 'cryptography' to make a certificate for itself "
            '(pip install cryptography). Or give it a certificate: certfile=, pkeyfile=. '
            'Or serve plain HTTP: insecure=True, which Kubernetes itself never uses.'
        ) from error

    return pair.certificate, pair.key


def normalize_hostname(name: str) -> str | None:
    """Convert a name or an address for use in certificates; ``None`` if it cannot be used there."""
    ip = addresses.parse_ip(name)
    if ip is not None:
        return None if ip.is_unspecified else ip.compressed.partition('%')[0]
    return (
        name.strip().encode('idna').decode('ascii')
        if name.strip() and not name.isascii()
        else name.strip() or None
    )


def is_authority(pem: bytes) -> bool:
    """Return whether the text contains certificates, and all of them are complete."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode('ascii'))
    except (ssl.SSLError, ValueError):
        return False
    return pem.count(b'-----BEGIN ') == pem.count(b'-----END ')


def is_trusted(context: ssl.SSLContext, authority: bytes) -> bool:
    """Return whether clients with this authority trust the certificate, apart from its names."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # The same flags as in Go.
    client.verify_flags = (
        client.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN
    ) & ~ssl.VERIFY_X509_STRICT
    client.load_verify_locations(cadata=authority.decode('ascii'))

    return _shake_hands(client, context) is not None


def find_certificate(context: ssl.SSLContext) -> bytes | None:
    """Return the certificate (DER) that a server presents with this context, if any."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return _shake_hands(client, context)


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes | None:
    """Connect the contexts in memory; return the server's certificate (DER) if it is accepted."""
    there = ssl.MemoryBIO()
    back = ssl.MemoryBIO()
    caller = client.wrap_bio(back, there)

    try:
        answerer = server.wrap_bio(there, back, server_side=True)
    except ssl.SSLError as error:
        raise server_options.CertificateError(
            'The TLS of context= is of clients; make it for servers: '
            'ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).'
        ) from error

    for _ in range(_HANDSHAKE_STEPS):
        try:
            caller.do_handshake()
            return caller.getpeercert(True)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            return None
        # Including SSLWantReadError; other errors are seen by the client.
        with contextlib.suppress(ssl.SSLError):
            answerer.do_handshake()

    return None


def _build_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(['http/1.1'])
    return context


def _read(name: str, path: server_options.FilePath) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise server_options.CertificateError(
            f'Cannot read {_name(name, path)}: {error.strerror or error}.'
        ) from error


def _replace_file(path: pathlib.Path, content: bytes) -> None:
    """Write the file atomically, readable for everyone. On `OSError`, no files are left behind."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f'.{path.name}.', delete=False
    ) as file:
        try:
            file.write(content)
            file.flush()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise


def _name(name: str, path: server_options.FilePath | None) -> str:
    return f'{name}={os.fspath(path or "")!r}'


def _as_text(data: str | bytes | None) -> str | bytes | None:
    """Decode PEM to a text: OpenSSL takes any bytes for DER."""
    return data.decode('ascii') if isinstance(data, bytes) and b'-----BEGIN ' in data else data


def _read_fields(pem: bytes) -> x509_fields.CertificateFields | None:
    try:
        return x509_fields.read_pem(pem)
    except ValueError:
        return None  # accepted by OpenSSL, but too exotic for our parser


def _keep_certificates(pem: bytes) -> bytes:
    """Return only the certificates: the same file can contain a private key."""
    begin = b'-----BEGIN CERTIFICATE-----'
    end = b'-----END CERTIFICATE-----'
    blocks = [block.partition(end)[0] for block in pem.split(begin)[1:]]
    return b''.join(begin + block + end + b'\n' for block in blocks)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn the errors of OpenSSL, which name no file and no purpose, into errors that do."""
    try:
        yield
    except ssl.SSLError as error:
        reason = error.reason.replace('_', ' ').lower() if error.reason else 'malformed PEM'
        raise server_options.CertificateError(f'Cannot use {what}: {reason}.') from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise server_options.CertificateError(f'Cannot use {what}: {reason}.') from error


def _refuse_password() -> str:
    raise server_options.CertificateError(
        'The private key of the webhook server is encrypted: add password=.'
    )
