"""
JSON logs: one line per message, for machines to read.

Loaded only if such logs are asked for.
"""

import datetime
import logging
from collections.abc import Callable
from typing import Any

import pythonjsonlogger.core
import pythonjsonlogger.json

from kopf._core.actions import execution

SEVERITIES = (
    (logging.DEBUG, 'debug'),
    (logging.INFO, 'info'),
    (logging.WARNING, 'warn'),
    (logging.ERROR, 'error'),
)
"""The severities by the highest levels of each; all that is above is fatal."""

OWN_ATTRIBUTES = ('k8s_level', 'k8s_ref', 'k8s_skip', 'settings')
"""What the records have for the framework's own purposes; all other extra attributes are logged as they are."""


class JsonFormatter(pythonjsonlogger.json.JsonFormatter):
    """
    Formats messages as JSON objects.

    The object that a message is about is under ``refkey``. The handler that logs it, whatever logger it uses, or that
    it is about, is known by ``handler`` and ``attempt``.
    """

    def __init__(self, *, refkey: str, prefix: Callable[[logging.LogRecord], str] | None) -> None:
        super().__init__(
            '%(message)s', reserved_attrs=[*pythonjsonlogger.core.RESERVED_ATTRS, *OWN_ATTRIBUTES]
        )
        self._refkey = refkey
        self._prefix = prefix

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        if self._prefix is not None:
            log_data['message'] = f'{self._prefix(record)}{log_data["message"]}'
        if ref := getattr(record, 'k8s_ref', None):
            log_data[self._refkey] = ref
        log_data.setdefault('logger', record.name)
        if (attempt := execution.get_current_attempt()) is not None:
            log_data.setdefault('handler', str(attempt.handler.id))
            log_data.setdefault('attempt', attempt.number)
        log_data['severity'] = get_severity(record.levelno)
        moment = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC)
        log_data['timestamp'] = moment.isoformat(timespec='microseconds')


def get_severity(level: int) -> str:
    """Name the severity as log collectors know it, also for the levels between the usual ones."""
    return next((severity for highest, severity in SEVERITIES if level <= highest), 'fatal')
