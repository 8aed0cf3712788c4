"""
Loggers: messages that know which object they are about, and how they are shown on the console.

All messages about objects go through the logger ``kopf.objects``. Their records carry ``k8s_ref`` (the reference of
the object), ``k8s_skip`` (whether they are kept out of k8s-events) and ``settings`` (of the operator), for formatters
and filters. Importing this configures nothing; `configure` touches nothing but the root logger.
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
"""The file whose functions are not the callers of loggers."""

NAME_WIDTH = 20
"""The characters for the names of loggers in the full format."""

LOW_LEVEL = (
    'asyncio.',
    'aiohttp.',
    'kubernetes.',
    'kubernetes_asyncio.',
    'urllib3.',
    'kopf.sandbox.',
)
"""Loggers whose debug messages are shown only on demand: there are many, some with whole objects, also secret ones."""

COLOURS = (
    (logging.ERROR, '31'),
    (logging.WARNING, '33'),
    (logging.INFO, ''),
    (logging.NOTSET, '2'),
)
"""The codes of terminals by the lowest levels of each: red, yellow, none, faint."""


class LogFormat(enum.Enum):
    """How log messages look."""

    PLAIN = '%(message)s'
    FULL = '[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s'
    JSON = '-json-'


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """
    A logger of messages about one object.

    It is made for every event of every object, so it takes only the identifiers, as they are now,
    and does the rest when there is something to log.
    """

    _is_local = False

    def __init__(self, *, body: Mapping[str, Any], settings: 'settings_.OperatorSettings') -> None:
        self.logger = objects_logger  # the rest of an adapter is made below when it is needed
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
        """What all records of this logger have."""
        ref = bodies.build_object_reference(self._identifiers)
        return {'k8s_ref': ref, 'k8s_skip': self._is_local, 'settings': self._settings}

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Do the same as in the library, but with a third of its calls, if there is only a text with its values."""
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
        text, extra = msg, self.extra
        if type(self).process is not ObjectLogger.process:  # in classes of users
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
    """The same, but its messages are never posted as k8s-events."""

    _is_local = True


class TextFormatter(logging.Formatter):
    """
    A formatter of texts.

    If ``is_prefixed``, it begins the messages about objects with the objects' names. If ``name_width`` is given, only
    those last parts of the loggers' names are shown that fit there: ``kopf._core.reactor.operating`` is too much.
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
        """Format the seconds once: there are usually many messages in each of them."""
        if datefmt is not None or self.default_msec_format is None:
            return super().formatTime(record, datefmt)
        second, text = self._second
        if second != int(record.created):
            text = time.strftime(self.default_time_format, self.converter(record.created))
            self._second = (int(record.created), text)
        return self.default_msec_format % (text, record.msecs)

    def formatMessage(self, record: logging.LogRecord) -> str:
        if self._is_prefixed:
            record.message = (
                build_prefix(record) + record.message
            )  # every formatter sets it again before using it
        name = record.name
        if self._name_width is not None:  # not in a copy: making one takes as long as the rest
            record.name = shorten_name(name, self._name_width)
        try:
            return self._pattern % record.__dict__  # as the library does it in three calls
        finally:
            record.name = name


class ConsoleHandler(logging.Handler):
    """Writes to the standard error stream, whichever it is at the moment: it is often replaced, e.g. in tests."""

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
    Show the log messages on the standard error stream; again, if called again.

    By default, they are shown from INFO up; if ``quiet``, from WARNING up; if ``verbose``, all but those of low-level
    libraries; if ``debug``, all. The format can also be a text, as for `logging.Formatter`. The prefix is the name of
    the object; if ``None``, it is there for texts but not for JSON, which has the whole reference of the object under
    the key ``log_refkey``. On a terminal, texts are coloured by their levels, unless the environment has ``NO_COLOR``,
    or the terminal knows no colours.
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
    """Make a formatter that suits; the library for JSON is loaded only if needed."""
    is_json = log_format is LogFormat.JSON
    is_prefixed = not is_json if log_prefix is None else log_prefix
    if is_json:
        from kopf._core.actions import jsonlogs

        return jsonlogs.JsonFormatter(
            refkey=log_refkey or DEFAULT_REFKEY, prefix=build_prefix if is_prefixed else None
        )
    if log_format is LogFormat.FULL:
        pattern = log_format.value.replace(
            f'.{NAME_WIDTH}s', 's'
        )  # a single part is not cut even if it does not fit
        return TextFormatter(pattern, is_prefixed=is_prefixed, name_width=NAME_WIDTH)
    return TextFormatter(
        log_format.value if isinstance(log_format, LogFormat) else log_format,
        is_prefixed=is_prefixed,
    )


def build_prefix(record: logging.LogRecord) -> str:
    """Tell how a message begins: with its object's namespace and name; with nothing if it is not about an object."""
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
    """Colour a text by its level: nothing for the usual messages, so that all others can be seen among them."""
    colour = next((colour for lowest, colour in COLOURS if level >= lowest), '')
    return f'\033[{colour}m{text}\033[0m' if colour else text


def is_colour_welcome(environ: Mapping[str, str]) -> bool:
    """Tell if the user wants colours, as far as the environment knows: https://no-color.org/."""
    return not environ.get('NO_COLOR') and environ.get('TERM') != 'dumb'


def is_informative(record: logging.LogRecord) -> bool:
    """Tell if a message is of interest to operator authors, not only to those who look into the libraries."""
    return record.levelno > logging.DEBUG or not f'{record.name}.'.startswith(LOW_LEVEL)
