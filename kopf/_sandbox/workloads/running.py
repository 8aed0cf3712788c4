"""
Running: all controllers of workloads of one cluster, and its nodes.
"""

import asyncio
import datetime
from collections.abc import Callable, Sequence

from kopf._sandbox import clusters, options
from kopf._sandbox.meta import errors, requests
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import (
    behaviours,
    cron_jobs,
    daemon_sets,
    deployments,
    disruptions,
    interfaces,
    jobs,
    kubelets,
    lookups,
    nodes,
    pod_states,
    queues,
    replica_sets,
    requesting,
    scheduling,
    service_endpoints,
    stateful_sets,
    volumes,
)

KUBELET_VERSION = 'v1.35.4'
_SYSTEM_USERS = {
    'kubelet': ('system:node:sandbox', ('system:nodes',)),
    'kube-scheduler': ('system:kube-scheduler', ()),
}

Maker = Callable[[interfaces.Context], interfaces.Reconciler]

MACHINERY: Sequence[Maker] = (
    scheduling.Scheduler,
    volumes.ClaimController,
    volumes.VolumeController,
)
"""What there is only with nodes, besides the kubelet."""

CONTROLLERS: Sequence[Sequence[Maker]] = (
    (nodes.NodeController,),
    (
        replica_sets.ReplicaSetController,
        stateful_sets.StatefulSetController,
        daemon_sets.DaemonSetController,
        jobs.JobController,
    ),
    (deployments.DeploymentController, cron_jobs.CronJobController),
    (
        service_endpoints.EndpointsController,
        service_endpoints.SlicesController,
        disruptions.DisruptionController,
    ),
)
"""Those of each row summarize the objects of the rows above, and wait a little for them."""


class Workloads:
    """
    The controllers and the nodes of a cluster. Used only in the event loop of the cluster.

    Call `start` once, when the cluster is started, and `stop` at the end.
    """

    def __init__(self, cluster: clusters.Cluster, settings: options.Workloads) -> None:
        self._cluster = cluster
        self._settings = settings
        self.troubles = behaviours.Troubles()
        self._tasks: list[asyncio.Task[None]] = []
        self._kubelet: kubelets.Kubelet | None = None
        self._kubelet_queue: queues.WorkQueue | None = None
        self._lookup: lookups.Lookup | None = None

    async def start(self) -> None:
        """Create the nodes, and start the controllers with all existing objects."""
        lookup = self._lookup = lookups.Lookup(self._cluster.store)
        self._cluster.store.observe(lookup.notice)
        context = interfaces.Context(
            lookup, self._settings, self._cluster.sources.now, self._make_client
        )
        await self._create_nodes(context)
        made = self._make_nodes_queues(context) if self._settings.nodes else []
        for row in CONTROLLERS:
            made += [queues.WorkQueue(make(context), tuple(made)) for make in row]
        for queue in made:
            self._fill(queue)
            self._cluster.store.observe(queue.notice)
            self._tasks.append(asyncio.create_task(queue.run(), name='sandbox workloads'))

    def _make_nodes_queues(self, context: interfaces.Context) -> list[queues.WorkQueue]:
        self._kubelet = kubelets.Kubelet(context, self.troubles)
        self._kubelet_queue = queues.WorkQueue(self._kubelet)
        self.troubles.on_change = self._look_at_pods
        return [self._kubelet_queue, *(queues.WorkQueue(make(context)) for make in MACHINERY)]

    async def stop(self) -> None:
        """Stop the controllers, wherever they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def fail_pod(
        self, namespace: str, name: str, containers: Sequence[str], code: int, reason: str
    ) -> None:
        """Make the containers of a running pod exit. Raises `ApiError` if there is no such pod."""
        key = memory.make_key(namespace, name)
        lookup = self._lookup
        kubelet = self._kubelet
        queue = self._kubelet_queue
        if lookup is None or lookup.get(lookups.PODS, key) is None:
            raise errors.not_found('', 'pods', name)

        if kubelet is None or queue is None or not kubelet.fail(key, containers, code, reason):
            which = f'containers {", ".join(containers)}' if containers else 'containers'
            raise ValueError(f'The pod {name!r} has no running {which} to fail.')

        queue.add(key)

    def _look_at_pods(self) -> None:
        if self._lookup is not None and self._kubelet_queue is not None:
            for key in self._lookup.list_keys(lookups.PODS):
                self._kubelet_queue.add(key)

    def _fill(self, queue: queues.WorkQueue) -> None:
        for home, shelf in self._cluster.store:
            for stored in shelf.select(''):
                queue.notice(memory.Change(stored.version, 'ADDED', home, stored, None))

    async def _create_nodes(self, context: interfaces.Context) -> None:
        client = context.client('kubelet', manager='kubelet')
        controller = nodes.NodeController(context)
        now = pod_states.format_time(context.now())

        for number in range(1, self._settings.nodes + 1):
            node = nodes.build_node(number, KUBELET_VERSION, now)
            if context.lookup.get(lookups.NODES, node['metadata']['name']) is None:
                await client.create(lookups.NODES, node)
                await controller.reconcile(node['metadata']['name'])

    def _make_client(self, component: str, manager: str) -> requesting.Client:
        if component in _SYSTEM_USERS:
            name, groups = _SYSTEM_USERS[component]
        else:
            name = f'system:serviceaccount:kube-system:{component}'
            groups = ('system:serviceaccounts', 'system:serviceaccounts:kube-system')
        user = requests.User(name, (*groups, 'system:authenticated'))
        return requesting.Client(self._cluster, user, manager)


class LoopClock:
    """The time of day by the clock of the event loop in which it is first asked."""

    def __init__(self) -> None:
        self._origin: tuple[datetime.datetime, float] | None = None

    def __call__(self) -> datetime.datetime:
        elapsed = asyncio.get_running_loop().time()
        if self._origin is None:
            self._origin = clusters.utc_now(), elapsed
        return self._origin[0] + datetime.timedelta(seconds=elapsed - self._origin[1])
