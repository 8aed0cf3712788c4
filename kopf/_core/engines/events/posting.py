"""
Posting: the functions and the log handler that report about objects.

The users' calls and, if configured, the log messages about objects are converted to reports for the
poster of the current operator. Nothing is posted here, so nothing blocks here, neither threads nor
coroutines.
"""

import contextlib
import contextvars
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from kopf._cogs.configs import connecting
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import bodies
from kopf._core.actions import failures, loggers

Objs: TypeAlias = Any
"""
One object or several: mappings, or objects of client libraries; only their identifiers are used.
"""

LOGGING_REASON = 'Logging'

_LEVELS = {
    'Debug': logging.DEBUG,
    'Normal': logging.INFO,
    'Warning': logging.WARNING,
    'Error': logging.ERROR,
    'Fatal': logging.CRITICAL,
}


class Poster(Protocol):
    """The queue of k8s-events of one operator."""

    @property
    def settings(self) -> settings_.OperatorSettings: ...

    def put(
        self,
        ref: Mapping[str, Any],
        *,
        type: str,
        reason: str,
        message: str,
        backoffs: connecting.Backoffs,
        is_optional: bool = False,
    ) -> None:
        """
        Queue a k8s-event to be posted; never waits, never raises; can be called from any thread.

        Optional ones are not requested by users, and may be skipped where they are forbidden.
        """


_current: contextvars.ContextVar[Poster | None] = contextvars.ContextVar(
    'kopf-poster', default=None
)
_running: list[Poster] = []


def event(
    objs: Objs,
    *,
    type: str,
    reason: str,
    message: str = '',
    backoffs: connecting.Backoffs | None = None,
) -> None:
    """
    Post a k8s-event about an object, or about each of several objects, with any type and reason.

    Can be called in handlers, both coroutines and synchronous ones, and in all tasks and threads
    that they start. It does not wait for the posting; failures are only logged. ``backoffs`` are
    seconds between the attempts; by default, as in ``settings.posting.default_backoffs``. Repeated
    k8s-events are counted. Raises `LookupError` if there is no operator to post it.
    """
    _check_backoffs(backoffs)
    poster = _get_poster()
    if is_wanted(type, poster.settings.posting):
        chosen = poster.settings.posting.default_backoffs if backoffs is None else backoffs
        for ref in build_references(objs):
            poster.put(
                ref, type=str(type), reason=str(reason), message=str(message), backoffs=chosen
            )


def info(
    objs: Objs, *, reason: str, message: str = '', backoffs: connecting.Backoffs | None = None
) -> None:
    """Post a k8s-event of the type ``Normal``; see `event`."""
    event(objs, type='Normal', reason=reason, message=message, backoffs=backoffs)


def warn(
    objs: Objs, *, reason: str, message: str = '', backoffs: connecting.Backoffs | None = None
) -> None:
    """Post a k8s-event of the type ``Warning``; see `event`."""
    event(objs, type='Warning', reason=reason, message=message, backoffs=backoffs)


def exception(
    objs: Objs,
    *,
    reason: str = '',
    message: str = '',
    exc: BaseException | None = None,
    backoffs: connecting.Backoffs | None = None,
) -> None:
    """
    Post a k8s-event of the type ``Error`` for the given or current exception; see `event`.

    By default, the reason is the class of the exception.
    """
    exc = exc if exc is not None else sys.exc_info()[1]
    if exc is not None:
        reason = reason or type(exc).__name__
        message = f'{message} {failures.read_text(exc) or type(exc).__name__}'.strip()

    event(objs, type='Error', reason=reason, message=message, backoffs=backoffs)


@contextlib.contextmanager
def attached(poster: Poster) -> Iterator[None]:
    """
    Use this poster in this task or thread, and in all tasks and threads started from it.

    Code that belongs to no operator uses it too, if there are no other operators in this process.
    """
    token = _current.set(poster)
    _running.append(poster)
    try:
        yield
    finally:
        _running.remove(poster)
        _current.reset(token)


@contextlib.contextmanager
def listening(poster: Poster) -> Iterator[None]:
    """
    Post the log messages about objects, if configured; otherwise, leave the logging untouched.

    This matters if logging is not configured: Python shows the warnings only if there are no log
    handlers at all.
    """
    if not poster.settings.posting.loggers:
        yield
        return

    handler = PostingHandler(poster)
    loggers.objects_logger.addHandler(handler)
    try:
        yield
    finally:
        loggers.objects_logger.removeHandler(handler)


class PostingHandler(logging.Handler):
    """A log handler that posts the messages about objects of one operator, if configured."""

    def __init__(self, poster: Poster) -> None:
        super().__init__()
        self._poster = poster

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_wanted(record):
                self._poster.put(
                    vars(record)['k8s_ref'],
                    type=choose_type(get_level(record)),
                    reason=LOGGING_REASON,
                    message=build_message(record),
                    backoffs=self._poster.settings.posting.logging_backoffs,
                )
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        posting = self._poster.settings.posting
        current = _current.get()
        is_ours = getattr(record, 'settings', None) is self._poster.settings and current in (
            None,
            self._poster,
        )
        is_public = bool(getattr(record, 'k8s_ref', None)) and not getattr(
            record, 'k8s_skip', False
        )

        return (
            is_ours
            and is_public
            and posting.enabled
            and posting.loggers
            and get_level(record) >= posting.level
        )


def is_wanted(type: str, posting: settings_.PostingSettings) -> bool:
    """Return whether k8s-events of this type are posted; types without a level always are."""
    return posting.enabled and _LEVELS.get(type, sys.maxsize) >= posting.level


def choose_type(level: int) -> str:
    """Choose the type of a k8s-event for a log message."""
    return max(
        (known, type) for type, known in _LEVELS.items() if known <= max(level, logging.DEBUG)
    )[1]


def get_level(record: logging.LogRecord) -> int:
    """Return the level of a log message for k8s-events."""
    level: int = getattr(record, 'k8s_level', record.levelno)
    return level


def build_message(record: logging.LogRecord) -> str:
    """
    Return the text of a log message with its exception, unless included already, but no traceback.
    """
    exc = record.exc_info[1] if record.exc_info else None
    text = record.getMessage()
    if exc is None or text.endswith(failures.describe(exc)):
        return text
    return f'{text} {type(exc).__name__}: {exc}'


def build_references(objs: Objs) -> list[bodies.ObjectReference]:
    """
    Build the references to one or several objects, even if few of their fields are known.

    Accepts bodies, references, and objects of client libraries, as is or converted to dicts; also
    mixed.
    """
    body = _get_body(objs)
    if body is not None:
        return [_build_reference(body)]
    if isinstance(objs, Iterable) and not isinstance(objs, str | bytes):
        return [ref for obj in objs for ref in build_references(obj)]
    raise TypeError(
        'K8s-events are posted about objects as dicts, or lists of them, not about '
        f'{type(objs).__name__}.'
    )


def _get_body(obj: Any) -> Mapping[str, Any] | None:
    """Return the content of an object; ``None`` if it is not an object."""
    if isinstance(obj, Mapping):
        return obj
    if isinstance(inner := getattr(obj, 'obj', None), Mapping):  # as in pykube
        return inner
    if callable(convert := getattr(obj, 'to_dict', None)) and isinstance(
        made := convert(), Mapping
    ):
        return made
    return None


def _build_reference(body: Mapping[str, Any]) -> bodies.ObjectReference:
    """Build a reference from the keys of the API or of the official client, or from a reference."""
    metadata = body.get('metadata') if 'metadata' in body else body
    return bodies.build_object_reference(
        {
            'apiVersion': body.get('apiVersion') or body.get('api_version'),
            'kind': body.get('kind'),
            'metadata': metadata if isinstance(metadata, Mapping) else {},
        }
    )


def get_current() -> Poster | None:
    """Get the poster of the operator that has started the current task or thread, if any."""
    return _current.get()


def _get_poster() -> Poster:
    poster = _current.get()
    if poster is not None:
        return poster

    running = list(_running)
    if len(running) == 1:  # in threads that do not inherit the context
        return running[0]
    raise LookupError(
        'K8s-events can be posted only for a running operator, and '
        + ('there is none.' if not running else 'it is not clear for which one of several.')
    )


def _check_backoffs(backoffs: connecting.Backoffs | None) -> None:
    if isinstance(backoffs, str | bytes) or not isinstance(backoffs, int | float | Iterable | None):
        raise TypeError(f'backoffs= is a number of seconds or several of them, not {backoffs!r}.')
