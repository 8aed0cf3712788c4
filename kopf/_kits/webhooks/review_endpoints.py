"""
Review endpoints: one HTTP request in, one HTTP response out, with a review in the middle.

Every request is answered. Refusals are written as ``Status`` of the Kubernetes API, so that API
servers show the reason to their users.
"""

import http
import logging
from typing import Any

from aiohttp import web

from kopf._cogs.aiokits import listeners, offloads
from kopf._cogs.helpers import jsons, pieces
from kopf._cogs.structs import reviews
from kopf._kits.webhooks import addresses, payloads

logger = logging.getLogger(__name__)

LIMITS = listeners.Limits(
    connections=500,
    headers_timeout=10.0,
    idle_timeout=120.0,
    lingering_timeout=2.0,
    closing_timeout=5.0,
)
"""
The limits for clients.

API servers close idle connections after 90 seconds, so they never write to a connection being
closed.
"""

_HEADERS: dict[int, dict[str, str]] = {
    http.HTTPStatus.METHOD_NOT_ALLOWED: {'Allow': 'POST'},
    http.HTTPStatus.SERVICE_UNAVAILABLE: {'Retry-After': str(payloads.RETRY_AFTER)},
}
_FINAL = frozenset(
    {
        http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        http.HTTPStatus.REQUEST_TIMEOUT,
        http.HTTPStatus.SERVICE_UNAVAILABLE,
        http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    }
)
"""The codes after which the connection is closed: the request is not read to its end."""


class ReviewEndpoint:
    """An HTTP endpoint that answers requests concurrently, by calling the function."""

    def __init__(self, fn: reviews.WebhookFn, path: str, budget: payloads.Budget) -> None:
        self._fn = fn
        self._path = path
        self._budget = budget
        self._parsing = payloads.Parsing()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer one request. Never fails, except when cancelled."""
        try:
            body = await self._review(request)
        except payloads.Refusal as refusal:
            return _refuse(refusal.code, str(refusal))
        except reviews.ReviewRefused as refusal:
            return _refuse(refusal.code, str(refusal))
        except Exception:  # foreign code: whatever it raises, there is no review
            logger.exception('A webhook request has failed in an unexpected way.')
            return _refuse(
                http.HTTPStatus.INTERNAL_SERVER_ERROR,
                'The review has failed in an unexpected way. See the logs of the operator.',
            )

        return web.Response(body=body, content_type='application/json')

    async def _review(self, request: web.BaseRequest) -> bytes:
        webhook = self._parse_webhook(request)
        async with (
            self._budget.receive(request) as payload,
            self._parsing.admit(payload.size),
        ):
            run = offloads.choose_run(payload.size)
            review = await run(_parse_review, payload.content)
            payload.free()
            transport = request.transport
            sslpeer = transport.get_extra_info('peercert') if transport is not None else None
            response = await self._fn(
                review, webhook=webhook, headers=dict(request.headers), sslpeer=sslpeer or None
            )
            return await run(jsons.dumps, response)

    def _parse_webhook(self, request: web.BaseRequest) -> str | None:
        try:
            webhook = addresses.parse_webhook(request.path, self._path)
        except LookupError as error:
            message = f'There are no webhooks outside of {self._path}/.'
            raise payloads.Refusal(http.HTTPStatus.NOT_FOUND, message) from error

        if request.method != 'POST':
            message = 'Only admission reviews are served here, by POST.'
            raise payloads.Refusal(http.HTTPStatus.METHOD_NOT_ALLOWED, message)

        if request.headers.get('Content-Encoding', 'identity').lower() != 'identity':
            message = 'Compressed reviews are not accepted: send JSON with no Content-Encoding.'
            raise payloads.Refusal(http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)

        return webhook


def _parse_review(content: payloads.Content) -> dict[str, Any]:
    is_small = len(content) <= pieces.PIECE_SIZE
    try:
        review = jsons.loads(bytes(content)) if is_small else pieces.loads(content)
    except pieces.TooManyContainersError as error:
        message = f'The review has more than {pieces.CONTAINERS_LIMIT} lists and objects in it.'
        raise payloads.Refusal(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message) from error
    except ValueError as error:
        message = 'The request must be an AdmissionReview in JSON, but it is not JSON.'
        raise payloads.Refusal(http.HTTPStatus.BAD_REQUEST, message) from error

    if not isinstance(review, dict):
        raise payloads.Refusal(
            http.HTTPStatus.BAD_REQUEST, 'The request must be an AdmissionReview: a JSON object.'
        )
    return review if is_small else reviews.LargeReview(review, len(content))


def _refuse(code: int, message: str) -> web.Response:
    """Refuse a request as the API does. The rest of the request is not read."""
    status = {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'message': message,
        'code': int(code),
    }
    response = web.Response(
        status=int(code),
        body=jsons.dumps(status),
        content_type='application/json',
        headers=_HEADERS.get(code),
    )
    if code in _FINAL:
        response.force_close()
    return response
