"""
Interfaces of the controllers of workloads, and what all of them get.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from kopf._sandbox import options
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import lookups, recording, requesting

Body = dict[str, Any]
Object = Mapping[str, Any]


class Reconciler(Protocol):
    """A controller: brings the objects of one kind, one by one, to the state that they describe."""

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        """Return the keys of the objects to reconcile after this change."""
        ...

    async def reconcile(self, key: str) -> float | None:
        """
        Bring one object closer to its desired state. The object may be absent.

        Returns after how many seconds to look at it again even if nothing changes, if at all.
        Refusals of the API are raised: it is called again, later and later.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Context:
    """What all controllers share."""

    lookup: lookups.Lookup
    settings: options.Workloads
    now: Callable[[], datetime.datetime]
    make_client: Callable[[str, str], requesting.Client]
    # Distinguishes the events of one moment of virtual time.
    numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def client(
        self, component: str, *, manager: str = 'kube-controller-manager'
    ) -> requesting.Client:
        """Return a client that writes as this component."""
        return self.make_client(component, manager)

    def recorder(self, component: str, *, instance: str = '') -> recording.Recorder:
        """Return a recorder that posts k8s-events as this component."""
        source = recording.Source(component, instance)
        return recording.Recorder(self.client(component), self.now, self.numbers, source)
