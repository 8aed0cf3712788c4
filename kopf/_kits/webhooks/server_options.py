"""
Server options: the configuration of a server, as its author sets it, and its validation.

Invalid options are reported when the server starts, all together. The constructor would be too
early: it is called in startup handlers, which are retried on errors.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from kopf._cogs.structs import reviews
from kopf._kits.webhooks import addresses

if TYPE_CHECKING:
    import ssl

FilePath: TypeAlias = str | os.PathLike[str]

MAX_SIZE = 7 * 1024 * 1024
"""The largest request, in bytes. Objects are up to 3 MiB, and a review can have two of them."""

INFLIGHT_BYTES = 64 * 1024 * 1024
"""The default limit of bytes for all requests in flight."""


class WebhookServerError(reviews.ServerError):
    """
    The webhook server or tunnel cannot start with these options in this environment.

    * `WebhookServerError`
        * `MissingLibraryError`
        * `CertificateError`
    """


class MissingLibraryError(WebhookServerError):
    """A library that the server needs is not installed."""


class CertificateError(WebhookServerError):
    """Certificates, keys, or authorities are not usable."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """All options of a server. Secrets are not shown in its representation."""

    addr: str | None = None
    port: int | None = None
    path: str | None = None
    host: str | None = None
    cadata: bytes | None = dataclasses.field(default=None, repr=False)
    cafile: FilePath | None = None
    cadump: FilePath | None = None
    context: 'ssl.SSLContext | None' = None
    insecure: bool = False
    certfile: FilePath | None = None
    pkeyfile: FilePath | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    extra_sans: Iterable[str] = ()
    verify_mode: 'ssl.VerifyMode | None' = None
    verify_cafile: FilePath | None = None
    verify_capath: FilePath | None = None
    verify_cadata: str | bytes | None = dataclasses.field(default=None, repr=False)
    file_check_interval: float = 60.0
    inflight_bytes: int = INFLIGHT_BYTES

    @property
    def verifies(self) -> bool:
        """Whether there is anything to verify the clients with."""
        return any(
            value is not None
            for value in (self.verify_cafile, self.verify_capath, self.verify_cadata)
        )


NAMES = tuple(field.name for field in dataclasses.fields(ServerOptions))


def check_options(options: ServerOptions) -> None:
    """Raise `WebhookServerError` with all complaints, if there are any; the files are not read."""
    raise_complaints(
        [*_iter_wrong_types(options)] or [*_iter_wrong_values(options), *_iter_conflicts(options)]
    )


def raise_complaints(complaints: list[str]) -> None:
    if complaints:
        raise WebhookServerError(f'The webhook server cannot be started: {"; ".join(complaints)}.')


def _is_context(value: object) -> bool:
    import ssl

    return isinstance(value, ssl.SSLContext)


def _is_verify_mode(value: object) -> bool:
    import ssl

    return isinstance(value, int) and not isinstance(value, bool) and value in list(ssl.VerifyMode)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_names(value: object) -> bool:
    return (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes)
        and all(isinstance(v, str) for v in value)
    )


_TEXT: tuple[str, Callable[[object], bool]] = 'a string', lambda value: isinstance(value, str)
_FILE: tuple[str, Callable[[object], bool]] = 'a path', _is_path
_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    'addr': _TEXT,
    'path': _TEXT,
    'host': _TEXT,
    'password': _TEXT,
    'port': ('an integer', _is_integer),
    'cadata': ('bytes', lambda value: isinstance(value, bytes)),
    'cafile': _FILE,
    'cadump': _FILE,
    'certfile': _FILE,
    'pkeyfile': _FILE,
    'verify_cafile': _FILE,
    'verify_capath': _FILE,
    'context': ('an ssl.SSLContext', _is_context),
    'insecure': ('True or False', lambda value: isinstance(value, bool)),
    'extra_sans': ('a collection of strings', _is_names),
    'verify_mode': ('an ssl.VerifyMode', _is_verify_mode),
    'verify_cadata': ('a string or bytes', lambda value: isinstance(value, str | bytes)),
    'file_check_interval': ('a number of seconds', _is_number),
    'inflight_bytes': ('an integer', _is_integer),
}
_MANDATORY = frozenset({'insecure', 'extra_sans', 'file_check_interval', 'inflight_bytes'})


def _iter_wrong_types(options: ServerOptions) -> Iterator[str]:
    for name, (expected, is_correct) in _TYPES.items():
        value: Any = getattr(options, name)
        if (value is not None or name in _MANDATORY) and not is_correct(value):
            yield f'{name}= must be {expected}, not {type(value).__name__}'


def _iter_wrong_values(options: ServerOptions) -> Iterator[str]:
    if options.port is not None and not 0 <= options.port <= 65535:
        yield f'port= must be of 1 to 65535, or 0 or None for a random one, not {options.port}'
    if options.host and not _is_host(options.host):
        yield (
            f'host= must be only a name or an address, not {options.host!r}; there are '
            'port= and path= for the rest'
        )

    if options.addr and not _is_host(options.addr):
        yield (
            f'addr= must be only a name or an address, not {options.addr!r}; there are '
            'port= and path= for the rest'
        )

    if options.path and any(mark in options.path for mark in '?#'):
        yield (
            'path= must have no queries and fragments, as Kubernetes does not permit them, '
            f'not {options.path!r}'
        )

    if math.isnan(options.file_check_interval) or options.file_check_interval <= 0:
        yield f'file_check_interval= must be above zero, not {options.file_check_interval}'
    if options.inflight_bytes < MAX_SIZE:
        yield (
            f'inflight_bytes= must be {MAX_SIZE} or more, or large reviews never fit, not '
            f'{options.inflight_bytes}'
        )


def _iter_conflicts(options: ServerOptions) -> Iterator[str]:
    certificates = ('certfile', 'pkeyfile', 'context')
    given = [f'{name}=' for name in certificates if getattr(options, name) is not None]
    if options.insecure and given:
        yield (
            'insecure=True means plain HTTP with no certificates, but there is '
            f'{", ".join(given)}: leave either'
        )

    if options.insecure and (options.verifies or options.verify_mode):
        yield (
            'insecure=True means plain HTTP with no certificates, so the clients cannot be '
            'verified: leave either'
        )

    if options.pkeyfile is not None and options.certfile is None:
        yield 'pkeyfile= is the key of a certificate, but there is no certfile=: add it'
    if options.cadata is not None and options.cafile is not None:
        yield 'either cadata= or cafile= can be given, not both'


def _is_host(host: str) -> bool:
    if addresses.parse_ip(host) is not None:
        return True
    return not any(mark in host for mark in '/:@?#[]%') and host.isprintable() and ' ' not in host
