"""
Events: k8s-events, which people see in ``kubectl describe``; not to be confused with events of
watch-streams.

Their failures are not fatal: k8s-events that cannot be posted are logged and dropped.
"""

import dataclasses
import datetime
import enum
from collections.abc import Collection, Mapping
from typing import Any

from kopf._cogs.clients import creating, errors, requests
from kopf._cogs.configs import connecting, settings
from kopf._cogs.structs import credentials, dicts, references

EVENTS = references.Resource('', 'v1', 'events', kind='Event', namespaced=True)

MESSAGE_LIMIT = 1024
"""The limit of the API for a message, in bytes."""

REASON_LIMIT = 128
"""The limit of the API for a reason, in bytes."""

ELLIPSIS = '...'
"""The replacement of the cut text."""

DEFAULT_NAMESPACE = 'default'

Reference = Mapping[str, Any]
"""
A reference to an object: ``apiVersion``, ``kind``, ``name``, ``namespace``, ``uid``; each can be
absent.
"""

_REFERENCED = ('apiVersion', 'kind', 'name', 'namespace', 'uid')
_SYSTEM_NAMESPACES = (DEFAULT_NAMESPACE, 'kube-system')


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to an object, once or several times."""

    ref: Reference
    type: str
    reason: str
    message: str
    first: datetime.datetime
    last: datetime.datetime
    count: int = 1

    def __str__(self) -> str:
        return (
            f'{self.ref.get("kind") or "the object"} {self.ref.get("name")} ({self.type}: '
            f'{self.reason})'
        )


@dataclasses.dataclass(frozen=True)
class Posted:
    """The location of a k8s-event in the cluster."""

    namespace: str
    name: str


class Repetition(enum.Enum):
    """The result of counting a repeated k8s-event."""

    DONE = enum.auto()
    GONE = enum.auto()  # the k8s-event no longer exists: they are short-lived
    FORBIDDEN = enum.auto()  # only new k8s-events are permitted
    FAILED = enum.auto()  # already logged


async def post_event(
    event: Event,
    *,
    context: requests.Context,
    backoffs: connecting.Backoffs | None = None,
    answers: Collection[int] = (),
) -> Posted | None:
    """
    Post a new k8s-event, with these delays between the attempts (by default, those of the
    settings).

    All failures are logged, and the k8s-event is dropped; only refusals with the codes in
    ``answers`` are raised.
    """
    options = dataclasses.replace(_build_options(context, backoffs), answers=tuple(answers))
    try:
        namespace = event.ref.get('namespace') or await _choose_namespace(context)
        body = build_event(event, namespace=namespace, posting=context.settings.posting)
        created = await creating.create_object(EVENTS, body, context=context, options=options)
        name = dicts.resolve(created, ('metadata', 'name'))
        return None if name is None else Posted(namespace, name)
    except (errors.RequestError, credentials.LoginError) as error:
        if isinstance(error, errors.APIError) and error.code in answers:
            raise
        context.logger.warning('Failed to post a k8s-event about %s: %s', event, error)
        return None


async def repeat_event(
    posted: Posted,
    event: Event,
    *,
    context: requests.Context,
    backoffs: connecting.Backoffs | None = None,
) -> Repetition:
    """
    Increase the count of a posted k8s-event instead of posting the same again. Unexpected failures
    are logged.

    It needs more permissions than posting; without them, or if the k8s-event is gone, the caller
    should post a new one.
    """
    url = EVENTS.get_url(namespace=references.NamespaceName(posted.namespace), name=posted.name)
    options = dataclasses.replace(_build_options(context, backoffs), answers=(403, 404))
    try:
        await requests.patch(url, context=context, payload=build_series(event), options=options)
    except errors.APINotFoundError:
        return Repetition.GONE
    except errors.APIForbiddenError:
        return Repetition.FORBIDDEN
    except (errors.RequestError, credentials.LoginError) as error:
        context.logger.warning('Failed to count a k8s-event about %s: %s', event, error)
        return Repetition.FAILED

    return Repetition.DONE


def is_about_event(ref: Reference) -> bool:
    """Return whether the object is a k8s-event: posting about k8s-events would never end."""
    group, _, _ = (ref.get('apiVersion') or '').rpartition('/')
    return ref.get('kind') == 'Event' and group in ('', 'events.k8s.io')


def build_event(
    event: Event, *, namespace: str, posting: settings.PostingSettings
) -> dict[str, Any]:
    """Build a k8s-event that the API accepts: it requires a reason, and limits the texts."""
    ref = {key: event.ref[key] for key in _REFERENCED if event.ref.get(key)}
    if namespace not in _SYSTEM_NAMESPACES:
        ref.setdefault('namespace', namespace)  # required there even for cluster-scoped objects
    first = _format_time(event.first)
    last = _format_time(event.last)
    return {
        'apiVersion': EVENTS.api_version,
        'kind': EVENTS.kind,
        'metadata': {'generateName': posting.event_name_prefix, 'namespace': namespace},
        'action': 'Action?',
        'type': event.type,
        'reason': cut(event.reason or event.type, REASON_LIMIT),
        'message': cut(event.message, MESSAGE_LIMIT),
        'reportingComponent': posting.reporting_component,
        'reportingInstance': posting.reporting_instance,
        'source': {'component': posting.reporting_component},
        'involvedObject': ref,
        'eventTime': first,
        'firstTimestamp': first,
        'lastTimestamp': last,
        **(build_series(event) if event.count > 1 else {}),
    }


def build_series(event: Event) -> dict[str, Any]:
    """Build the fields about the repetitions, in both formats that are in use."""
    last = _format_time(event.last)
    return {
        'count': event.count,
        'lastTimestamp': last,
        'series': {'count': event.count, 'lastObservedTime': last},
    }


def cut(text: str, limit: int) -> str:
    """Replace the middle of a text to fit it into this many bytes; characters stay whole."""
    raw = text.encode('utf-8', errors='replace')
    if len(raw) <= limit:
        return text

    kept = limit - len(ELLIPSIS)
    head = raw[: kept - kept // 2]
    tail = raw[len(raw) - kept // 2 :]

    return (
        f'{head.decode("utf-8", errors="ignore")}{ELLIPSIS}{tail.decode("utf-8", errors="ignore")}'
    )


def _format_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%S.%fZ')


def _build_options(
    context: requests.Context, backoffs: connecting.Backoffs | None
) -> requests.Options:
    return requests.Options(
        backoffs=context.settings.posting.default_backoffs if backoffs is None else backoffs
    )


async def _choose_namespace(context: requests.Context) -> str:
    """Choose the namespace of k8s-events about cluster-scoped objects: our own or default."""
    _, info = await context.vault.select()
    return info.default_namespace or DEFAULT_NAMESPACE
