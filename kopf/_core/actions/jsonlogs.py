"""
JSON logs: one line per message, for machines to read.

Loaded only if such logs are requested.
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
"""The severities by the highest level of each; all higher levels are fatal."""

OWN_ATTRIBUTES = ('k8s_level', 'k8s_ref', 'k8s_skip', 'settings')
"""The internal attributes of the framework's log records; other extra attributes are logged."""


class JsonFormatter(pythonjsonlogger.json.JsonFormatter):
    """
    A formatter of messages as JSON objects.

    The reference of the object is under the key ``refkey``. The current handler is in ``handler``
    and ``attempt``, for any logger.
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
    """
    Return the severity as log collectors know it, including the levels between the usual ones.
    """
    return next((severity for highest, severity in SEVERITIES if level <= highest), 'fatal')
