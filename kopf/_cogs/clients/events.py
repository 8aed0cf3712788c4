"""
Events: what people see of an object in ``kubectl describe``, never to be confused with the events of watch-streams.

They are not worth failing for: what cannot be posted is logged and dropped.
"""
import datetime
from collections.abc import Mapping
from typing import Any

from kopf._cogs.clients import creating, errors, requests
from kopf._cogs.configs import connecting, settings
from kopf._cogs.structs import credentials, references

EVENTS = references.Resource('', 'v1', 'events', kind='Event', namespaced=True)

MESSAGE_LIMIT = 1024
"""How many bytes of a message the API accepts."""

REASON_LIMIT = 128
"""How many bytes of a reason the API accepts."""

ELLIPSIS = '...'
"""What stands in place of what is cut."""

Reference = Mapping[str, Any]
"""An object as others refer to it: ``apiVersion``, ``kind``, ``name``, ``namespace``, ``uid``; each can be absent."""

_REFERENCED = ('apiVersion', 'kind', 'name', 'namespace', 'uid')


async def post_event(
        ref: Reference,
        *,
        type: str,
        reason: str,
        message: str,
        context: requests.Context,
        backoffs: connecting.Backoffs | None = None,
) -> None:
    """
    Post a k8s-event about an object, with these delays between the attempts (by default, as the settings say).

    All failures are logged, and the k8s-event is dropped. So are, silently, k8s-events about k8s-events.
    """
    if is_about_event(ref):
        return
    posting = context.settings.posting
    body = build_event(ref, type=type, reason=reason, message=message, now=context.now(), posting=posting)
    options = requests.Options(backoffs=posting.default_backoffs if backoffs is None else backoffs)
    try:
        await creating.create_object(EVENTS, body, context=context, options=options)
    except (errors.RequestError, credentials.LoginError) as error:
        context.logger.warning("Failed to post a k8s-event about %s %s (%s: %s): %s",
                               ref.get('kind') or 'the object', ref.get('name'), type, reason, error)


def is_about_event(ref: Reference) -> bool:
    """Tell if the object is a k8s-event: posting about those would never end."""
    group, _, _ = (ref.get('apiVersion') or '').rpartition('/')
    return ref.get('kind') == 'Event' and group in ('', 'events.k8s.io')


def build_event(ref: Reference, *, type: str, reason: str, message: str,
                now: datetime.datetime, posting: settings.PostingSettings) -> dict[str, Any]:
    """Build a k8s-event about an object, such as the API accepts: it demands a reason, and limits the texts."""
    moment = now.astimezone(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%S.%fZ')
    return {
        'apiVersion': EVENTS.api_version,
        'kind': EVENTS.kind,
        'metadata': {
            'generateName': posting.event_name_prefix,
            'namespace': ref.get('namespace') or 'default',  # the only one accepted for cluster-scoped objects
        },
        'action': 'Action?',
        'type': type,
        'reason': cut(reason or type, REASON_LIMIT),
        'message': cut(message, MESSAGE_LIMIT),
        'reportingComponent': posting.reporting_component,
        'reportingInstance': posting.reporting_instance,
        'source': {'component': posting.reporting_component},
        'involvedObject': {key: ref[key] for key in _REFERENCED if ref.get(key)},
        'eventTime': moment,
        'firstTimestamp': moment,
        'lastTimestamp': moment,
    }


def cut(text: str, limit: int) -> str:
    """Replace the middle of a text, so that it has so many bytes at most; characters stay whole."""
    raw = text.encode('utf-8', errors='replace')
    if len(raw) <= limit:
        return text
    kept = limit - len(ELLIPSIS)
    head, tail = raw[:kept - kept // 2], raw[len(raw) - kept // 2:]
    return f"{head.decode('utf-8', errors='ignore')}{ELLIPSIS}{tail.decode('utf-8', errors='ignore')}"
