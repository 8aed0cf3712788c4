"""
What the API server and a webhook server say to each other: admission reviews and the ways to reach a webhook.

Reviews come from outside and are not trusted: what is typed here is what is expected, not what was checked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypedDict

Headers = dict[str, str]
"""The headers of an HTTP request, with their names as they were sent."""

SSLPeer = dict[str, Any]
"""The certificate of the client, as in `ssl.SSLSocket.getpeercert`; empty if there is none, or it is not verified."""

Operation = Literal['CREATE', 'UPDATE', 'DELETE', 'CONNECT']
"""What a client of the API wants to do with an object."""


class UserInfo(TypedDict):
    """Who has made the reviewed request."""

    username: str
    uid: str
    groups: list[str]


class ResponseStatus(TypedDict, total=False):
    """Why a request is denied."""

    message: str
    code: int


class ResponsePayload(TypedDict, total=False):
    """The verdict on one request."""

    uid: str
    allowed: bool
    warnings: list[str]
    status: ResponseStatus
    patch: str
    patchType: Literal['JSONPatch']


class Response(TypedDict):
    """An answer to an ``AdmissionReview``."""

    apiVersion: str
    kind: Literal['AdmissionReview']
    response: ResponsePayload


class WebhookClientConfigService(TypedDict, total=False):
    """A webhook behind a service of the cluster."""

    namespace: str | None
    name: str | None
    path: str | None
    port: int | None


class WebhookClientConfig(TypedDict, total=False):
    """How the API servers reach the webhooks."""

    caBundle: str | None
    url: str | None
    service: WebhookClientConfigService | None


class LargeReview(dict[str, Any]):
    """A request so large that whatever looks at all of it is better done beside the event loop."""

    def __init__(self, content: Mapping[str, Any], size: int) -> None:
        super().__init__(content)
        self.size = size  # in bytes


class WebhookFn(Protocol):
    """
    The function that a webhook server calls for each request: it reviews, and returns what to respond.

    It raises :class:`ReviewRefused` for what cannot be reviewed; nothing else is raised but cancellation.
    """

    def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
        sslpeer: Mapping[str, Any] | None = None,
    ) -> Awaitable[Response]: ...


WebhookServerProtocol = Callable[[WebhookFn], AsyncIterator[WebhookClientConfig]]
"""
What serves the function, and yields how the API servers reach it: once, and again every time when it changes.

If it is also an async context manager, it is entered before and exited after that.
"""


class ServerError(Exception):
    """A webhook server or a tunnel cannot serve, or does not do it as it should. Servers can raise any other errors."""


class ReviewRefused(Exception):
    """
    Something that cannot be reviewed: malformed, or of unknown resources and webhooks, or too early.

    The text tells what is wrong, but repeats nothing of what was sent, as it can be secret.
    """

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code
        """The HTTP status to answer with: 400 or 404; 503 if the operator is not ready."""
