"""
Recording: the k8s-events of the components of a cluster, repeated ones counted.
"""

import dataclasses
import datetime
import logging
from collections.abc import Callable, Iterator
from typing import Any

from kopf._sandbox.meta import errors
from kopf._sandbox.registry import deletion
from kopf._sandbox.workloads import lookups, requesting

logger = logging.getLogger(__name__)

Body = dict[str, Any]

MEMORY = 4096
"""The number of events of one component that can be counted instead of posted again."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Who posts events."""

    component: str
    instance: str = ''  # the host


class Recorder:
    """Posts events of one component. They are never essential: refusals are only logged."""

    def __init__(
        self,
        client: requesting.Client,
        now: Callable[[], datetime.datetime],
        numbers: Iterator[int],
        source: 'Source',
    ) -> None:
        self._client = client
        self._now = now
        self._numbers = numbers
        self._source = source
        self._posted: dict[tuple[str, ...], Body] = {}

    async def normal(self, body: Body, reason: str, message: str, *, field: str = '') -> None:
        await self._record(body, 'Normal', reason, message, field)

    async def warn(self, body: Body, reason: str, message: str, *, field: str = '') -> None:
        await self._record(body, 'Warning', reason, message, field)

    async def _record(self, body: Body, type: str, reason: str, message: str, field: str) -> None:
        key = body['metadata']['uid'], type, reason, message, field
        try:
            posted = self._posted.pop(key, None)
            counted = None if posted is None else await self._count(posted)
            if counted is None:
                now = self._now()
                number = next(self._numbers)
                event = build_event(body, now, number, self._source, field)
                event.update(type=type, reason=reason, message=message)
                counted = await self._client.create(lookups.EVENTS, event)
            self._posted[key] = counted
        except errors.ApiError as e:
            logger.debug('An event about %s is not posted: %s', body['metadata']['name'], e)

        while len(self._posted) > MEMORY:
            del self._posted[next(iter(self._posted))]

    async def _count(self, posted: Body) -> Body | None:
        now = deletion.format_time(self._now())

        def add(event: Body) -> None:
            event.update(count=(event.get('count') or 1) + 1, lastTimestamp=now)

        return await self._client.change(lookups.EVENTS, posted, add)


def build_event(
    body: Body, now: datetime.datetime, number: int, source: Source, field: str = ''
) -> dict[str, Any]:
    """Build an event about an object, without its reason and message."""
    meta = body['metadata']
    namespace = meta.get('namespace') or ''
    moment = deletion.format_time(now)
    involved = {
        'apiVersion': body['apiVersion'],
        'kind': body['kind'],
        'name': meta['name'],
        'namespace': namespace,
        'resourceVersion': meta['resourceVersion'],
        'uid': meta['uid'],
        'fieldPath': field,
    }

    return {
        'apiVersion': 'v1',
        'kind': 'Event',
        'metadata': {
            'name': f'{meta["name"]}.{int(now.timestamp() * 1e9) + number:x}',
            'namespace': namespace or 'default',
        },
        'involvedObject': {name: value for name, value in involved.items() if value},
        'count': 1,
        'firstTimestamp': moment,
        'lastTimestamp': moment,
        'source': {
            'component': source.component,
            **({'host': source.instance} if source.instance else {}),
        },
        'reportingComponent': source.component,
        'reportingInstance': source.instance,
    }
