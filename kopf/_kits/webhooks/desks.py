"""
Desks: one HTTP request in, one HTTP response out, with a review in the middle.

Whatever is sent there, is answered. Refusals are written as the API's ``Status``, so that API servers tell the reason
to their users, and people can read it, too.
"""
import asyncio
import http
import logging
from typing import Any

import aiohttp
from aiohttp import web

from kopf._cogs.helpers import jsons
from kopf._cogs.structs import reviews
from kopf._kits.webhooks import addresses

logger = logging.getLogger(__name__)

MAX_SIZE = 7 * 1024 * 1024
"""
The biggest request, in bytes. Objects are up to 3 MiB in the API, and a review can have two of them: old and new.
"""

BODY_TIMEOUT = 30.0
"""Seconds for a client to send its whole request after the headers; API servers do not wait longer themselves."""


class Refusal(Exception):
    """The request is not a review, so it is refused before it is reviewed."""

    def __init__(self, code: http.HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code


class Desk:
    """Answers the requests by calling the function. Any number of them are answered at once."""

    def __init__(self, fn: reviews.WebhookFn, path: str) -> None:
        self._fn = fn
        self._path = path

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer one request. It never fails, except for the cancellation."""
        try:
            body = await self._review(request)
        except Refusal as refusal:
            return _refuse(refusal.code, str(refusal))
        except reviews.ReviewRefused as refusal:
            return _refuse(refusal.code, str(refusal))
        except Exception:  # foreign code: whatever it raises, there is no review
            logger.exception("A webhook request has failed in an unexpected way.")
            return _refuse(http.HTTPStatus.INTERNAL_SERVER_ERROR,
                           "The review has failed in an unexpected way. See the logs of the operator.")
        return web.Response(body=body, content_type='application/json')

    async def _review(self, request: web.BaseRequest) -> bytes:
        webhook = self._parse_webhook(request)
        review = _parse_review(await _read_body(request))
        transport = request.transport
        sslpeer = transport.get_extra_info('peercert') if transport is not None else None
        response = await self._fn(review, webhook=webhook, headers=dict(request.headers), sslpeer=sslpeer or None)
        return jsons.dumps(response)

    def _parse_webhook(self, request: web.BaseRequest) -> str | None:
        try:
            webhook = addresses.parse_webhook(request.path, self._path)
        except LookupError as error:
            raise Refusal(http.HTTPStatus.NOT_FOUND, f"There are no webhooks outside of {self._path}/.") from error
        if request.method != 'POST':
            raise Refusal(http.HTTPStatus.METHOD_NOT_ALLOWED, "Only admission reviews are served here, by POST.")
        return webhook


async def _read_body(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > MAX_SIZE:
        raise _make_size_refusal()
    if request.headers.get('Expect', '').lower() == '100-continue':
        await request.writer.write(b'HTTP/1.1 100 Continue\r\n\r\n')
        request.writer.output_size = 0  # or else, the real response is not expected to come
    try:
        async with asyncio.timeout(None if request.content.is_eof() else BODY_TIMEOUT):  # it is costly to count time
            return await request.read()
    except TimeoutError as error:
        raise Refusal(http.HTTPStatus.REQUEST_TIMEOUT, "The request was not sent in time.") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise _make_size_refusal() from error
    except (web.RequestPayloadError, aiohttp.ClientError, OSError) as error:
        raise Refusal(http.HTTPStatus.BAD_REQUEST, "The request was not sent to its end.") from error


def _make_size_refusal() -> Refusal:
    return Refusal(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request is larger than {MAX_SIZE} bytes.")


def _parse_review(raw: bytes) -> dict[str, Any]:
    try:
        review = jsons.loads(raw)
    except ValueError as error:
        message = "The request must be an AdmissionReview in JSON, but it is not JSON."
        raise Refusal(http.HTTPStatus.BAD_REQUEST, message) from error
    if not isinstance(review, dict):
        raise Refusal(http.HTTPStatus.BAD_REQUEST, "The request must be an AdmissionReview: a JSON object.")
    return review


def _refuse(code: int, message: str) -> web.Response:
    """Refuse as the API does it. What is not read of the request, is not needed; nor is the connection then."""
    status = {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {}, 'status': 'Failure', 'message': message,
              'code': int(code)}
    headers = {'Allow': 'POST'} if code == http.HTTPStatus.METHOD_NOT_ALLOWED else {}
    response = web.Response(status=int(code), body=jsons.dumps(status), content_type='application/json',
                            headers=headers)
    if code in (http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, http.HTTPStatus.REQUEST_TIMEOUT):
        response.force_close()
    return response
