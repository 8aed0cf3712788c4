"""
Credentials: how to reach the API of a cluster, and how to authenticate there.

Values only: login handlers obtain them, and vaults keep them. Secrets are never shown: neither in
the representations of the values, nor in the errors. Importing this module is cheap: TLS is loaded
when its context is built.
"""

import base64
import binascii
import contextlib
import dataclasses
import datetime
import functools
import os
import pathlib
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    import ssl

    import aiohttp

FilePath: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# Greedy: passwords can have any of :/?#@. Only from the beginnings of words, to be linear.
_USERINFO = re.compile(r'(?<![^\s\'"<>(])([A-Za-z][A-Za-z0-9+.-]*://)?[^\s\'"<>(]*@')
_PEM_MARK = b'-----BEGIN '
_SECRETS = frozenset({'username', 'password', 'scheme', 'token', 'private_key_data'})
_BULKY = frozenset({'ca_data', 'certificate_data'})
_URLS = frozenset({'server', 'proxy_url'})


class LoginError(Exception):
    """The operator cannot log in to the cluster: no credentials, or rejected or unusable ones."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ConnectionInfo:
    """
    One set of credentials: everything needed to connect to the API, but not the ways to obtain it.

    The CA, the certificate and the private key are each given either by path or by data: as PEM or
    as base64 of PEM. An expiration without a timezone is in UTC. Of several valid credentials,
    those of the highest priority are used.
    """

    server: str
    priority: int = 0
    default_namespace: str | None = None
    expiration: datetime.datetime | None = None
    ca_path: FilePath | None = None
    ca_data: str | bytes | None = None
    insecure: bool | None = None
    username: str | None = None
    password: str | None = None
    scheme: str | None = None
    token: str | None = None
    certificate_path: FilePath | None = None
    certificate_data: str | bytes | None = None
    private_key_path: FilePath | None = None
    private_key_data: str | bytes | None = None
    proxy_url: str | None = None
    trust_env: bool = False
    # The name to expect in the server's certificate, if not the one in the URL.
    tls_server_name: str | None = None
    # Its name in the kubeconfig, for logging.
    context: str | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ('ca', 'certificate', 'private_key'):
            if getattr(self, f'{name}_path') and getattr(self, f'{name}_data'):
                raise ValueError(
                    f'Both {name}_path and {name}_data are given: leave only one of them.'
                )

    def __repr__(self) -> str:
        return _represent(self)

    def as_http_headers(self) -> dict[str, str]:
        """Build the headers that authenticate each request, if any are needed."""
        if self.username is not None and self.password is not None:
            # Lone surrogates are sent as they are: the server will reject them.
            pair = f'{self.username}:{self.password}'.encode(errors='surrogatepass')
            return {'Authorization': f'Basic {base64.b64encode(pair).decode()}'}

        if self.token:
            return {'Authorization': f'{self.scheme or "Bearer"} {self.token}'}
        return {'Authorization': self.scheme} if self.scheme else {}

    def as_ssl_context(self) -> 'ssl.SSLContext':
        """
        Build the TLS context with the trusted authorities and the client certificate.

        It reads files, and takes tens of milliseconds: call it in a thread, once per set of
        credentials. Raises `LoginError` if some of the certificates or keys cannot be used.
        """
        import ssl

        with _explained(_name_source('certificate authority', self.ca_path)):
            authority = _read_pem(self.ca_path, self.ca_data)
            context = ssl.create_default_context(cadata=authority)

        context.__class__ = _get_context_class()
        if authority is not None:
            # As Go does: authorities of clusters often do not satisfy strict verification, or are
            # intermediate.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN

        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE

        self._load_identity(context)
        return context

    def as_aiohttp_basic_auth(self) -> None:
        """Return nothing: the header is made by `as_http_headers`. Deprecated."""
        warnings.warn(
            'as_aiohttp_basic_auth() is deprecated; use as_http_headers().',
            DeprecationWarning,
            stacklevel=2,
        )

    def _load_identity(self, context: 'ssl.SSLContext') -> None:
        has_certificate = bool(self.certificate_path or self.certificate_data)
        has_private_key = bool(self.private_key_path or self.private_key_data)
        if has_private_key and not has_certificate:
            raise LoginError(
                'Cannot use the private key: it is given without its client certificate.'
            )
        if not has_certificate:
            return

        source = _name_source('client certificate', self.certificate_path)
        if has_private_key:
            source = f'{source} with {_name_source("private key", self.private_key_path)}'
        with (
            _explained(source),
            _materialized(self.certificate_path, self.certificate_data) as certificate,
            _materialized(self.private_key_path, self.private_key_data) as private_key,
        ):
            context.load_cert_chain(certificate, private_key or None, password=_refuse_password)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AiohttpSession:
    """
    A ready-made session as the credentials: its authentication, TLS, proxies and limits are up to
    its maker.

    The framework takes ownership of the session, and closes it when the credentials are no longer
    needed.
    """

    server: str
    priority: int = 0
    default_namespace: str | None = None
    expiration: datetime.datetime | None = None
    aiohttp_session: 'aiohttp.ClientSession'

    def __repr__(self) -> str:
        return _represent(self)


Credentials: TypeAlias = ConnectionInfo | AiohttpSession
Footprints: TypeAlias = tuple[tuple[int, int, int] | None, ...]


def are_same(one: Credentials, two: Credentials) -> bool:
    """
    Return whether the credentials are the same, except for their expiration.

    Some sources extend the expiration on each login; that alone does not make rejected credentials
    acceptable.
    """
    return dataclasses.replace(one, expiration=None) == dataclasses.replace(two, expiration=None)


def read_footprints(credentials: Credentials) -> Footprints:
    """
    Return the identities of the files of the credentials; ``None`` for absent files.

    When certificates are rotated, the files are replaced, while the credentials look the same.
    """
    if isinstance(credentials, AiohttpSession):
        return ()
    paths = (credentials.ca_path, credentials.certificate_path, credentials.private_key_path)
    return tuple(_read_footprint(path) for path in paths if path)


def is_expired(credentials: Credentials, now: datetime.datetime) -> bool:
    """Return whether the credentials are expired at this moment, which has a timezone."""
    expiration = credentials.expiration
    if expiration is None:
        return False
    if expiration.tzinfo is None:
        expiration = expiration.replace(tzinfo=datetime.UTC)
    return expiration <= now


def describe(credentials: Credentials) -> str:
    """Describe the target of the credentials, without secrets."""
    context = getattr(credentials, 'context', None)
    return hide_userinfo(credentials.server) + (
        '' if context is None else f' (the context {context!r})'
    )


def hide_userinfo(text: str) -> str:
    """
    Show a URL, or a text with URLs, without usernames, passwords and tokens.

    The URLs may lack schemes. The URLs of the sandbox have tokens in their paths.
    """
    return _USERINFO.sub(r'\1***@', re.sub(r'(?<=/token/)[^/?#\s]+', '***', text))


def is_exposed(credentials: Credentials) -> bool:
    """
    Return whether the traffic can be read on its way: plain HTTP that leaves this machine.

    Proxies on other machines receive all the traffic, even if it is for a loopback address.
    """
    import urllib.parse

    parts = urllib.parse.urlsplit(credentials.server)
    proxy = None if isinstance(credentials, AiohttpSession) else credentials.proxy_url
    try:
        gate = (
            urllib.parse.urlsplit(f'//{proxy.rpartition("://")[2]}').hostname
            if proxy
            else 'localhost'
        )
    except ValueError:  # such a proxy will be refused anyway
        gate = None

    return parts.scheme == 'http' and not all(
        _is_loopback(host or '') for host in (parts.hostname, gate)
    )


def disarm(info: ConnectionInfo) -> ConnectionInfo:
    """Remove everything that authenticates each request, i.e. all but certificates."""
    server = re.sub(r'(?<=//)[^/?#]*@', '', info.server)
    return dataclasses.replace(
        info, server=server, username=None, password=None, scheme=None, token=None
    )


def has_secrets(info: ConnectionInfo) -> bool:
    """Return whether there is anything for `disarm` to remove."""
    return info != disarm(info)


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip('.').lower() == 'localhost'


def _represent(credentials: Credentials) -> str:
    shown: list[str] = []
    for field in dataclasses.fields(credentials):
        value = getattr(credentials, field.name)
        if field.default is not dataclasses.MISSING and value == field.default:
            continue
        shown.append(f'{field.name}={_represent_value(field.name, value)}')
    return f'{type(credentials).__name__}({", ".join(shown)})'


def _represent_value(name: str, value: object) -> str:
    if name in _SECRETS:
        return '<hidden>'
    if name in _BULKY:
        return '<set>'
    return repr(hide_userinfo(value) if name in _URLS and isinstance(value, str) else value)


def _name_source(what: str, path: FilePath | None) -> str:
    return f'the {what} of {_expand(path)}' if path else f'the inline {what}'


def _read_footprint(path: FilePath) -> tuple[int, int, int] | None:
    try:
        status = os.stat(_expand(path))
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def _explained(source: str) -> Iterator[None]:
    """Convert errors of files and OpenSSL to `LoginError` with the file and its purpose."""
    import ssl

    try:
        yield
    except ssl.SSLError as error:
        reason = error.reason.replace('_', ' ').lower() if error.reason else 'malformed PEM'
        raise LoginError(f'Cannot load {source}: {reason}.') from error
    except OSError as error:
        raise LoginError(f'Cannot load {source}: {error.strerror or error}.') from error
    except ValueError as error:
        raise LoginError(f'Cannot load {source}: {error}.') from None


@functools.cache
def _get_context_class() -> 'type[ssl.SSLContext]':
    """Return a context class that loads the tables of international names only for such names."""
    import ssl

    class Context(ssl.SSLContext):
        def wrap_bio(
            self,
            incoming: ssl.MemoryBIO,
            outgoing: ssl.MemoryBIO,
            server_side: bool = False,
            server_hostname: str | bytes | None = None,
            session: ssl.SSLSession | None = None,
        ) -> ssl.SSLObject:
            if isinstance(server_hostname, str) and server_hostname.isascii():
                server_hostname = server_hostname.encode()
            return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    return Context


def _read_pem(path: FilePath | None, raw: str | bytes | None) -> str | None:
    if not path and not raw:
        return None
    content = pathlib.Path(_expand(path)).read_bytes() if path else _decode(raw or b'')
    if _PEM_MARK not in content:
        raise ValueError('it is not PEM')
    # Comments can be in any encoding.
    return content.decode('ascii', 'replace').replace('\ufffd', '?')


def _decode(raw: str | bytes) -> bytes:
    encoded = raw.encode() if isinstance(raw, str) else raw
    if _PEM_MARK in encoded:
        return encoded

    try:
        decoded = base64.b64decode(b''.join(encoded.split()), validate=True)
    except binascii.Error:
        decoded = b''

    if _PEM_MARK not in decoded:
        raise ValueError('it is neither PEM nor base64 of PEM')
    return decoded


def _expand(path: FilePath) -> str:
    return os.path.expanduser(os.fsdecode(path))


@contextlib.contextmanager
def _materialized(path: FilePath | None, raw: str | bytes | None) -> Iterator[str]:
    """Yield a path to the data, as OpenSSL reads only files; temporary ones are deleted."""
    if path or not raw:
        yield _expand(path) if path else ''
        return

    # Slow to import because of its archive formats; not needed with usual credentials of pods.
    import tempfile

    content = _decode(raw)
    descriptor, temporary = tempfile.mkstemp(prefix='kopf-', suffix='.pem')  # with mode 0600
    try:
        with os.fdopen(descriptor, 'wb') as file:
            file.write(content)
        yield temporary
    finally:
        os.unlink(temporary)


def _refuse_password() -> NoReturn:
    # Otherwise, OpenSSL would ask for the password in the terminal, and wait.
    raise ValueError('the private key is encrypted, which is not supported')
