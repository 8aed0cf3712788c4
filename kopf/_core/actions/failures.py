"""
Failures: the errors by which handlers control their retries, and by which they end.

::

    Exception
     ├── TemporaryError              retry later
     │    └── HandlerChildrenRetry   (internal) the sub-handlers are not finished yet
     └── PermanentError              do not retry
          ├── HandlerTimeoutError    the time of the handler is over
          ├── HandlerRetriesError    the attempts of the handler are exhausted
          ├── AdmissionError         the reviewed request is denied, with this message and code
          └── InvalidObjectError     (internal) the object does not fit the types of the arguments

Any other error is arbitrary: its effect depends on the errors mode of the handler.
"""

import enum
import re

MESSAGE_LIMIT = 2048
"""How many characters of an error are kept: the cluster refuses objects that are too large."""

_HEADERS = re.compile(r'\nHTTP response headers:.*?(?=\nHTTP response body:|\Z)', re.DOTALL)
_BODY = re.compile(r'\nHTTP response body:(.*)\Z', re.DOTALL)
_USERINFO = re.compile(r'(?<=://)[^/@\s]+(?=@)')
_AUTHORIZATION = re.compile(
    r'\b(authorization\W+\w+\s+)[^\s,;\'"]+|\b(bearer\s+)[\w.~+/=-]{16,}', re.IGNORECASE
)


class ErrorsMode(enum.Enum):
    """The meaning of arbitrary errors, as opposed to temporary and permanent ones."""

    IGNORED = 1  # the error is logged, and the handler is done
    TEMPORARY = 2  # the handler is retried
    PERMANENT = 3  # the handler has failed, and is not retried


class TemporaryError(Exception):
    """The handler has not succeeded yet: it is retried after the delay, if any, or immediately."""

    def __init__(self, msg: str | None = None, delay: float | None = 60) -> None:
        if delay is not None and not isinstance(delay, int | float):
            raise TypeError(
                f'The delay of a temporary error is in seconds, or None; got {delay!r}.'
            )
        super().__init__(*([msg] if msg is not None else []))
        self.delay = delay


class PermanentError(Exception):
    """The handler has failed, and will not be retried for the same change of the object."""


class HandlerTimeoutError(PermanentError):
    """The handler has failed because its time is over, including all attempts and delays."""


class HandlerRetriesError(PermanentError):
    """The handler has failed because it has used all its attempts."""


class AdmissionError(PermanentError):
    """
    The request to the API is denied; the message and the HTTP code are returned to the requester.
    """

    def __init__(self, message: str | None = '', code: int | None = 500) -> None:
        super().__init__(*([message] if message else []))
        self.code = code


class InvalidObjectError(PermanentError):
    """
    The object does not fit the types of the handler's arguments, so the handler is not called.

    It is reported once per object and problem, not for each of the handlers and attempts.
    """

    def __init__(self, problem: str, *, resource: str, is_first: bool) -> None:
        super().__init__(f'The object does not fit its type: {problem}')
        self.resource = resource
        self.is_first = is_first


class HandlerChildrenRetry(TemporaryError):
    """
    The handler waits for its sub-handlers, of which the earliest is due in ``delay`` seconds.

    It leaves the handler's function at the place where the sub-handlers are executed. It does not
    mean a failure.
    """

    def __init__(self, delay: float | None = None) -> None:
        super().__init__('Waiting for the sub-handlers.', delay=delay)


def read_text(error: BaseException) -> str:
    """Return the text of an error; empty if it has none, or if its class fails to make it."""
    try:
        return str(error)
    except Exception:  # foreign code: it must not hide the error itself
        return ''


def describe(error: BaseException) -> str:
    """Return the text of an error, with its class where the text alone would be meaningless."""
    text = read_text(error)
    name = type(error).__name__
    if isinstance(error, KeyError):
        return f'{name}: {text}'
    return text or name


def summarize(error: BaseException) -> str:
    """
    Return the text of an error to be stored on objects: of limited size, with no secrets.

    Client libraries add the headers and the body of the response to the text: only the message of
    the body is kept. Credentials in URLs and in headers are masked.
    """
    text = _BODY.sub(_extract_message, _HEADERS.sub('', read_text(error))) or type(error).__name__
    text = _AUTHORIZATION.sub(r'\1\2***', _USERINFO.sub('***', text))
    return text if len(text) <= MESSAGE_LIMIT else f'{text[: MESSAGE_LIMIT - 1]}…'


def _extract_message(found: 're.Match[str]') -> str:
    """Extract the message of the API from the body of its response."""
    import json  # only for errors

    try:
        status = json.loads(found[1])
    except ValueError:
        return ''

    message = status.get('message') if isinstance(status, dict) else None
    return f'\n{message}' if message else ''
