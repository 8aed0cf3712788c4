"""
Errors: what can go wrong with a request to the API.

    RequestError                     a request has failed
    ├── FencedRequestError           it was not sent: this replica of the operator does not lead
    ├── APIConnectionError           there is no response, or not all of it
    │   ├── APIUnreachableError      the request was not sent: refused, DNS, TLS, or too slow
    │   ├── APIDisconnectedError     the connection was lost; the request was possibly executed
    │   ├── APITimeoutError          no (whole) response in time; it was possibly executed
    │   │   └── APISilenceError      nothing came in an open stream for too long
    │   ├── APISessionClosedError    we closed the session, as its credentials were discarded
    │   └── APIGarbledError          the response makes no sense: not JSON, or no body
    └── APIError                     the server has refused
        ├── APIClientError           4xx: the request is wrong
        │   ├── APIUnauthorizedError     401
        │   ├── APIForbiddenError        403
        │   ├── APINotFoundError         404
        │   ├── APIConflictError         409
        │   ├── APIGoneError             410
        │   ├── APIInvalidError          422
        │   └── APITooManyRequestsError  429
        └── APIServerError           5xx: the server is wrong
            └── APIUnavailableError      503

The messages quote the server, but contain neither whole bodies, nor anything like credentials.
"""

import dataclasses
import datetime
import math
import re
from collections.abc import Mapping
from typing import Any

from kopf._cogs.helpers import jsons
from kopf._cogs.structs import dicts, leaderships

TEXT_LIMIT = 256
"""How many characters are shown of responses of proxies, load balancers, etc."""

_AUTHORIZATION = re.compile(r'\b(bearer|basic|digest|negotiate)\s+[^\s"\'<,]+', re.IGNORECASE)

_QUOTED_BODY = re.compile(r'(Invalid value: )"\{.*\}"', re.DOTALL)


class RequestError(Exception):
    """A request to the API has failed."""


class FencedRequestError(RequestError, leaderships.LeadershipLostError):
    """The request was not sent, as this replica of the operator does not lead."""


class APIConnectionError(RequestError):
    """There is no response from the API, or it is incomplete; the request was possibly executed."""


class APIUnreachableError(APIConnectionError):
    """There is no connection to the API: the request was not even sent."""


class APIDisconnectedError(APIConnectionError):
    """The connection was lost after the request was sent."""


class APITimeoutError(APIConnectionError):
    """The request was sent, but the whole response has not come in time."""


class APISilenceError(APITimeoutError):
    """The stream is open, but nothing has come for too long; its connection is probably dead."""


class APISessionClosedError(APIConnectionError):
    """The session was closed with its credentials during the request. See ``is_sent``."""

    def __init__(self, message: str, *, is_sent: bool) -> None:
        super().__init__(message)
        self.is_sent = is_sent


class APIGarbledError(APIConnectionError):
    """The response is a success, but not of the API: not JSON, truncated, or empty."""


class APIError(RequestError):
    """The API has refused a request. The reasons are in the attributes."""

    def __init__(self, refusal: 'Refusal') -> None:
        super().__init__(str(refusal))
        self.code = refusal.code
        self.reason = refusal.reason
        self.message = refusal.message
        self.details = refusal.details
        self.retry_after = refusal.retry_after

    def has_cause(self, reason: str) -> bool:
        """Return whether the server names this reason among the causes of the refusal."""
        causes = self.details.get('causes')
        if not isinstance(causes, list):
            return False
        return any(dicts.is_mapping(cause) and cause.get('reason') == reason for cause in causes)


class APIClientError(APIError):
    """The request is wrong, or not permitted, or untimely (HTTP 4xx)."""


class APIUnauthorizedError(APIClientError):
    """The credentials are not accepted (HTTP 401)."""


class APIForbiddenError(APIClientError):
    """The credentials do not permit this (HTTP 403)."""


class APINotFoundError(APIClientError):
    """There is no such object or resource (HTTP 404)."""


class APIConflictError(APIClientError):
    """The object already exists, or was changed in the meantime (HTTP 409)."""


class APIGoneError(APIClientError):
    """The requested version of resources is too old (HTTP 410)."""


class APIInvalidError(APIClientError):
    """The object or the patch is invalid (HTTP 422)."""


class APITooManyRequestsError(APIClientError):
    """The server asks to retry later (HTTP 429)."""


class APIServerError(APIError):
    """The server cannot execute this request (HTTP 5xx)."""


class APIUnavailableError(APIServerError):
    """The server currently cannot execute any requests (HTTP 503)."""


CLASSES: Mapping[int, type[APIError]] = {
    401: APIUnauthorizedError,
    403: APIForbiddenError,
    404: APINotFoundError,
    409: APIConflictError,
    410: APIGoneError,
    422: APIInvalidError,
    429: APITooManyRequestsError,
    503: APIUnavailableError,
}


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A refusal by the server, in a response to a request or in a watch-stream."""

    code: int
    reason: str = ''  # a word for programs, e.g. "NotFound"
    message: str = ''  # a text for people
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    retry_after: float | None = None  # seconds

    def __str__(self) -> str:
        words = ' '.join(word for word in (f'HTTP {self.code}', self.reason) if word)
        return f'{words}: {self.message}' if self.message else words


def build_error(refusal: Refusal) -> APIError:
    """Build the error of the most specific class for the code."""
    fallback = (
        APIServerError
        if refusal.code >= 500
        else APIClientError
        if refusal.code >= 400
        else APIError
    )
    return CLASSES.get(refusal.code, fallback)(refusal)


def parse_status(status: Mapping[str, Any], *, code: int = 0) -> Refusal:
    """Parse the API's ``Status``, as in ERROR events; fields of wrong types count as absent."""
    reason = status.get('reason')
    message = status.get('message')
    details = status.get('details')
    own_code = status.get('code')
    details = details if isinstance(details, Mapping) else {}
    delay = details.get('retryAfterSeconds')

    return Refusal(
        code=code or (own_code if isinstance(own_code, int) else 0),
        reason=reason if isinstance(reason, str) else '',
        message=_hide_bodies(_hide_credentials(message)) if isinstance(message, str) else '',
        details=details,
        retry_after=float(delay)
        if isinstance(delay, int | float) and delay > 0 and math.isfinite(delay)
        else None,
    )


def parse_answer(
    code: int, headers: Mapping[str, str], raw: bytes, *, now: datetime.datetime
) -> Refusal:
    """
    Parse a refusal, sent either by the API itself or by a proxy in between.

    JSON bodies are shown only if they are the API's ``Status``; of other bodies, only the beginning
    is shown. For the delay of retries, the header takes precedence over the body; ``now`` is for
    the dates in the header.
    """
    try:
        body = jsons.loads(raw)
    except ValueError:
        # Up to 4 bytes per character.
        text = raw[: TEXT_LIMIT * 4].decode('utf-8', errors='replace')
        refusal = Refusal(code, message=_hide_credentials(text[:TEXT_LIMIT].strip()))
    else:
        is_status = isinstance(body, dict) and body.get('kind') == 'Status'
        refusal = parse_status(body, code=code) if is_status else Refusal(code)

    delay = parse_retry_after(headers.get('Retry-After', ''), now=now)
    return refusal if delay is None else dataclasses.replace(refusal, retry_after=delay)


def parse_retry_after(text: str, *, now: datetime.datetime) -> float | None:
    """Parse the header: seconds or a date; return ``None`` for anything else, or for no delay."""
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text) or None

    # It imports much more than needed, and is rarely needed.
    import email.utils

    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None

    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    delay = (moment - now).total_seconds()
    return delay if delay > 0 else None


def _hide_credentials(text: str) -> str:
    return _AUTHORIZATION.sub(r'\1 ***', text)


def _hide_bodies(text: str) -> str:
    """Hide the objects that are quoted in error messages about patches; they can be Secrets."""
    return _QUOTED_BODY.sub(r'\1{...}', text)
