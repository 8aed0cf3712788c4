"""
Reviews: admission reviews between the API server and a webhook server, and the ways to reach a
webhook.

Reviews come from outside and are not trusted: the types here are expected, not checked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypedDict

Headers = dict[str, str]
"""The headers of an HTTP request, with their names as they were sent."""

SSLPeer = dict[str, Any]
"""The client's certificate, as in `ssl.SSLSocket.getpeercert`; empty if absent or unverified."""

Operation = Literal['CREATE', 'UPDATE', 'DELETE', 'CONNECT']
"""The operation requested by a client of the API on an object."""


class UserInfo(TypedDict):
    """The user who made the reviewed request."""

    username: str
    uid: str
    groups: list[str]


class ResponseStatus(TypedDict, total=False):
    """The reason for a denial."""

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
    """A response to an ``AdmissionReview``."""

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
    """The way for the API servers to reach the webhooks."""

    caBundle: str | None
    url: str | None
    service: WebhookClientConfigService | None


class LargeReview(dict[str, Any]):
    """A request so large that it should be scanned outside of the event loop."""

    def __init__(self, content: Mapping[str, Any], size: int) -> None:
        super().__init__(content)
        self.size = size  # in bytes


class WebhookFn(Protocol):
    """
    The function that a webhook server calls for each request: it reviews the request, and returns
    the response.

    It raises :class:`ReviewRefused` for requests that cannot be reviewed, and nothing else but
    cancellation.
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
A server of the function; it yields how the API servers can reach it: once, and again on every
change. If it is also an async context manager, it is entered before and exited after that.
"""


class ServerError(Exception):
    """A webhook server or a tunnel fails or misbehaves. Servers can also raise any other errors."""


class ReviewRefused(Exception):
    """
    The request cannot be reviewed: it is malformed, or for an unknown resource or webhook, or too
    early.

    The message describes the problem, but quotes nothing of the request, as it can be secret.
    """

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code
        """The HTTP status of the response: 400 or 404; 503 if the operator is not ready."""
