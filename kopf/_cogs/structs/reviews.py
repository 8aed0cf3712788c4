"""
What the API server and a webhook server say to each other: admission reviews and the ways to reach a webhook.

Reviews come from outside and are not trusted: what is typed here is what is expected, not what was checked.
"""
from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypedDict

Headers = Mapping[str, str]
SSLPeer = Mapping[str, Any]

Operation = Literal['CREATE', 'UPDATE', 'DELETE', 'CONNECT']


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
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> Awaitable[Response]: ...


WebhookServerProtocol = Callable[[WebhookFn], AsyncIterator[WebhookClientConfig]]


class ReviewRefused(Exception):
    """Something that is not a review of ours: malformed, or of unknown resources and webhooks."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code
        """The HTTP status to answer with: of 4xx."""
