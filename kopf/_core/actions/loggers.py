"""
Loggers: log messages with references to objects, and their formats on the console.

All messages about objects go through the logger ``kopf.objects``. Their records carry ``k8s_ref``
(the reference of the object), ``k8s_skip`` (whether they are kept out of k8s-events) and
``settings`` (of the operator), for formatters and filters. Importing this module configures
nothing; `configure` changes only the root logger.
"""

import enum
import functools
import logging
import os
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TextIO

from kopf._cogs.helpers import lazies
from kopf._cogs.structs import bodies

if TYPE_CHECKING:
    from kopf._cogs.configs import settings as settings_

objects_logger = logging.getLogger('kopf.objects')

DEFAULT_REFKEY = 'object'

LIBRARY = logging.Logger.info.__code__.co_filename
"""The file whose functions are skipped when the caller of a logger is looked for."""

NAME_WIDTH = 20
"""The number of characters for the names of loggers in the full format."""

LOW_LEVEL = (
    'asyncio.',
    'aiohttp.',
    'kubernetes.',
    'kubernetes_asyncio.',
    'urllib3.',
    'kopf.sandbox.',
)
"""Loggers with many debug messages, some with whole objects or secrets: shown only on demand."""

COLOURS = (
    (logging.ERROR, '31'),
    (logging.WARNING, '33'),
    (logging.INFO, ''),
    (logging.NOTSET, '2'),
)
"""The terminal codes by the lowest level of each: red, yellow, none, faint."""


class LogFormat(enum.Enum):
    """The formats of log messages."""

    PLAIN = '%(message)s'
    FULL = '[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s'
    JSON = '-json-'


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """
    A logger of messages about one object.

    It is created for every event of every object, so it takes only the current identifiers, and
    does the rest when there is something to log.
    """

    _is_local = False

    def __init__(self, *, body: Mapping[str, Any], settings: 'settings_.OperatorSettings') -> None:
        # The other attributes of the adapter are computed below on demand.
        self.logger = objects_logger
        metadata = body.get('metadata') or {}
        self._settings = settings
        self._identifiers: dict[str, Any] = {
            'apiVersion': body.get('apiVersion'),
            'kind': body.get('kind'),
            'metadata': {
                'name': metadata.get('name'),
                'uid': metadata.get('uid'),
                'namespace': metadata.get('namespace'),
            },
        }

    @lazies.lazy
    def extra(self) -> dict[str, Any]:
        """The extra attributes of all records of this logger."""
        ref = bodies.build_object_reference(self._identifiers)
        return {'k8s_ref': ref, 'k8s_skip': self._is_local, 'settings': self._settings}

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """
        Log as the library does, but with a third of its calls if there are no keyword arguments.
        """
        if not self.logger.isEnabledFor(level):
            return

        if kwargs:
            super().log(
                level, msg, *args, **{**kwargs, 'stacklevel': kwargs.get('stacklevel', 1) + 1}
            )
            return

        frame = sys._getframe(1)
        while frame.f_code.co_filename == LIBRARY and frame.f_back is not None:
            frame = frame.f_back
        text = msg
        extra = self.extra
        if type(self).process is not ObjectLogger.process:  # overridden in users' classes
            text, options = self.process(msg, {})
            extra = options['extra']

        self.logger.handle(
            self.logger.makeRecord(
                self.logger.name,
                level,
                frame.f_code.co_filename,
                frame.f_lineno,
                text,
                args,
                None,
                frame.f_code.co_name,
                extra,
            )
        )

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, 'extra': {**self.extra, **(kwargs.get('extra') or {})}}


class LocalObjectLogger(ObjectLogger):
    """A logger of messages about one object that are never posted as k8s-events."""

    _is_local = True


class TextFormatter(logging.Formatter):
    """
    A formatter of plain texts.

    If ``is_prefixed``, messages about objects begin with the names of the objects. If
    ``name_width`` is given, the names of loggers are reduced to the last parts that fit:
    ``kopf._core.reactor.operating`` is too long.
    """

    def __init__(
        self, pattern: str, *, is_prefixed: bool = False, name_width: int | None = None
    ) -> None:
        super().__init__(pattern)
        self._pattern = pattern
        self._is_prefixed = is_prefixed
        self._name_width = name_width
        self._second = (0, '')

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Format each second only once: it usually has many messages."""
        if datefmt is not None or self.default_msec_format is None:
            return super().formatTime(record, datefmt)
        second, text = self._second
        if second != int(record.created):
            text = time.strftime(self.default_time_format, self.converter(record.created))
            self._second = (int(record.created), text)

        return self.default_msec_format % (text, record.msecs)

    def formatMessage(self, record: logging.LogRecord) -> str:
        if self._is_prefixed:
            # Every formatter sets the message again before using it.
            record.message = build_prefix(record) + record.message

        name = record.name
        if self._name_width is not None:  # not in a copy, which would double the time
            record.name = shorten_name(name, self._name_width)
        try:
            return self._pattern % record.__dict__  # as the library does in three calls
        finally:
            record.name = name


class ConsoleHandler(logging.Handler):
    """The handler for the current standard error stream, which is often replaced, e.g. in tests."""

    def __init__(self, *, is_colourful: bool = False) -> None:
        super().__init__()
        self._is_colourful = is_colourful  # if the stream is a terminal
        self._terminal: tuple[object, bool] = (None, False)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = sys.stderr
            text = self.format(record)
            if self._is_colourful and self._is_terminal(stream):
                text = paint(text, record.levelno)
            stream.write(f'{text}\n')
            stream.flush()
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def _is_terminal(self, stream: TextIO) -> bool:
        if self._terminal[0] is not stream:
            self._terminal = (stream, stream.isatty())
        return self._terminal[1]


def configure(
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> None:
    """
    Show the log messages on the standard error stream; replace the previous configuration, if any.

    By default, messages are shown from INFO up; if ``quiet``, from WARNING up; if ``verbose``, all
    but those of low-level libraries; if ``debug``, all. The format can also be a text, as for
    `logging.Formatter`. The prefix is the name of the object; if ``None``, it is added to texts but
    not to JSON, which has the whole reference of the object under the key ``log_refkey``. On a
    terminal, texts are coloured by their levels, unless the environment has ``NO_COLOR``, or the
    terminal supports no colours.
    """
    handler = ConsoleHandler(
        is_colourful=log_format is not LogFormat.JSON and is_colour_welcome(os.environ)
    )
    handler.setFormatter(make_formatter(log_format, log_prefix=log_prefix, log_refkey=log_refkey))
    if not debug:
        handler.addFilter(is_informative)
    root = logging.getLogger()
    for previous in [handler for handler in root.handlers if isinstance(handler, ConsoleHandler)]:
        root.removeHandler(previous)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO)


def make_formatter(
    log_format: LogFormat | str, *, log_prefix: bool | None, log_refkey: str | None
) -> logging.Formatter:
    """Make a suitable formatter; the library for JSON is loaded only if needed."""
    is_json = log_format is LogFormat.JSON
    is_prefixed = not is_json if log_prefix is None else log_prefix
    if is_json:
        from kopf._core.actions import jsonlogs

        return jsonlogs.JsonFormatter(
            refkey=log_refkey or DEFAULT_REFKEY, prefix=build_prefix if is_prefixed else None
        )

    if log_format is LogFormat.FULL:
        # A single part is not cut even if it does not fit.
        pattern = log_format.value.replace(f'.{NAME_WIDTH}s', 's')
        return TextFormatter(pattern, is_prefixed=is_prefixed, name_width=NAME_WIDTH)

    return TextFormatter(
        log_format.value if isinstance(log_format, LogFormat) else log_format,
        is_prefixed=is_prefixed,
    )


def build_prefix(record: logging.LogRecord) -> str:
    """
    Return the namespace and name of the record's object; nothing if it is not about an object.
    """
    ref: Mapping[str, Any] = getattr(record, 'k8s_ref', None) or {}
    name = '/'.join(filter(None, [ref.get('namespace'), ref.get('name')]))
    return f'[{name}] ' if name else ''


@functools.lru_cache(maxsize=1000)
def shorten_name(name: str, width: int) -> str:
    """Return as many last parts of a dotted name as fit in this width, but at least one."""
    while len(name) > width and '.' in name:
        name = name.partition('.')[2]
    return name


def paint(text: str, level: int) -> str:
    """Colour a text by its level: usual messages have no colour, so that all others stand out."""
    colour = next((colour for lowest, colour in COLOURS if level >= lowest), '')
    return f'\033[{colour}m{text}\033[0m' if colour else text


def is_colour_welcome(environ: Mapping[str, str]) -> bool:
    """Return whether the environment permits colours: https://no-color.org/."""
    return not environ.get('NO_COLOR') and environ.get('TERM') != 'dumb'


def is_informative(record: logging.LogRecord) -> bool:
    """
    Return whether a message is of interest to operator authors, not only to library developers.
    """
    return record.levelno > logging.DEBUG or not f'{record.name}.'.startswith(LOW_LEVEL)
