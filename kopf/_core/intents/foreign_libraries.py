"""
Foreign libraries: other clients of Kubernetes are imported and used, whatever they raise or log.

They are optional. The texts of their errors are shown only in part: they may quote whole entries of
kubeconfigs, with the secrets.
"""

import contextlib
import contextvars
import importlib
import importlib.util
import logging
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from kopf._cogs.structs import credentials

_QUOTED = 200
"""The maximum number of characters of a quoted error."""

# The libraries that log the errors of plugins, some of them in the root logger.
_TALKATIVE = ('kubernetes', 'kubernetes_asyncio')
_is_muted = contextvars.ContextVar('is_muted', default=False)


def is_installed(library: str) -> bool:
    """Return whether the library can be imported, without importing it."""
    if library in sys.modules:
        module = sys.modules[library]
        return module is not None and not _is_directory(module)
    spec = importlib.util.find_spec(library)
    return spec is not None and spec.origin is not None  # not a mere directory, as below


def import_module(library: str, module: str) -> Any:
    """
    Import a module of the library; return `None` if the library is not installed.

    Broken libraries, and those with broken or missing dependencies, can raise any errors.
    """
    try:
        importlib.import_module(library)  # it can be blocked even if its modules are loaded
        return importlib.import_module(module)
    except Exception as error:
        if not is_installed(library):
            return None
        raise credentials.LoginError(
            f'The library {library!r} is installed, but cannot be imported: {_quote(error)}. '
            f'Repair or uninstall it.'
        ) from None


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """
    Reduce the libraries' messages about exec plugins to the debug level: they can contain secrets.

    Other logins at the same time are not affected, in any thread.
    """
    libraries = [
        name for name in logging.root.manager.loggerDict if name.partition('.')[0] in _TALKATIVE
    ]
    affected = [logging.root, *map(logging.getLogger, libraries)]

    def soften(record: logging.LogRecord) -> bool:
        if _is_muted.get() and record.levelno > logging.DEBUG:
            logging.getLogger(__name__).debug('%s', record.getMessage())
            return False
        return True

    token = _is_muted.set(True)
    for one in affected:
        one.addFilter(soften)
    try:
        yield
    finally:
        for one in affected:
            one.removeFilter(soften)
        _is_muted.reset(token)


def build_absence_error(
    library: str, inside: Exception, outside: Exception, *, kubeconfig: str
) -> credentials.LoginError:
    """Explain that the library works, but has found nothing to log in with."""
    return credentials.LoginError(
        f'The library {library!r} finds neither a service account ({_quote(inside)}) '
        f'nor a kubeconfig in {kubeconfig} ({_quote(outside)}).'
    )


def build_failure(library: str, error: Exception) -> credentials.LoginError:
    """Explain that the library has failed in an unexpected way."""
    return credentials.LoginError(f'The library {library!r} has failed to log in: {_quote(error)}')


def _is_directory(module: types.ModuleType) -> bool:
    """Return whether it is a mere directory of the same name, e.g. with manifests."""
    spec = getattr(module, '__spec__', None)
    return spec is not None and spec.origin is None


def _quote(error: Exception) -> str:
    text = credentials.hide_userinfo(str(error))
    complaint = re.match(r'exec: process returned -?\d+', text)
    text = complaint[0] if complaint else text
    for bracket in '{[\n':
        text = text.partition(bracket)[0]
    return (
        f'{type(error).__name__}: {text[:_QUOTED].strip()}'
        if text.strip()
        else type(error).__name__
    )
