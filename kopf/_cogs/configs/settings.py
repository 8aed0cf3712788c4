"""
Settings: everything that can be tuned in an operator, by sections. The defaults are fit for
production.

Every operator has its own settings, and reads them whenever it needs a value: changes made by
startup handlers apply from then on.
"""

import concurrent.futures
import dataclasses
import logging
import warnings
from typing import Literal

from kopf._cogs.aiokits import pools
from kopf._cogs.configs import connecting, diffbase, progress
from kopf._cogs.structs import backoffs, reviews


@dataclasses.dataclass
class ProcessSettings:
    """How the process of the operator is treated."""

    ultimate_exiting_timeout: float | None = 600
    """
    Seconds for the exit, usually by a signal, after which the operator is killed. More lets slow
    handlers and daemons finish, but must fit in the pod's termination grace period; ``None`` means
    to never kill.
    """


@dataclasses.dataclass
class PostingSettings:
    """How k8s-events are posted about the objects."""

    enabled: bool = True
    """Whether k8s-events are posted at all, explicitly or from log messages."""

    loggers: bool = False
    """
    Whether the messages of the objects' loggers are posted as k8s-events too; it can be a lot of
    writing. It is read once, when the operator starts.
    """

    failures: bool = True
    """
    Whether a k8s-event of the type ``Warning`` is posted when a handler of an object fails, for its
    users: immediately for unexpected and permanent errors, from the third one in a row for
    `TemporaryError`. Repeated failures are counted in one k8s-event. If ``loggers`` are on,
    failures are posted as regular log messages.
    """

    level: int = logging.INFO
    """
    The level from which messages are posted: ``logging.WARNING`` posts less, ``logging.DEBUG``
    more.
    """

    default_backoffs: connecting.Backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
    """
    Seconds between the attempts to post one explicit k8s-event; it is dropped after the last one.
    More delays survive longer outages, but hold back the later k8s-events of the same object; none
    means one attempt.
    """

    logging_backoffs: connecting.Backoffs = (1, 1, 2, 3, 5)
    """The same for k8s-events made of log messages, which are usually less valuable."""

    worker_limit: int | None = None
    """
    How many objects can have their k8s-events posted at once. Less is gentler to the API, more is
    faster; ``None`` means no limit of its own.
    """

    idle_timeout: float = 1.0
    """
    Seconds for which an idle posting worker of an object waits for more. Less frees memory sooner,
    more saves restarts of workers.
    """

    reporting_component: str = 'kopf'
    """The reporter's name: ``reportingComponent`` and ``source.component`` of the k8s-events."""

    reporting_instance: str = 'dev'
    """The instance of the reporter: ``reportingInstance`` of the k8s-events."""

    event_name_prefix: str = 'kopf-event-'
    """The beginning of the names of the k8s-events."""

    burst_limit: int | None = 25
    """
    How many k8s-events of one object are posted as they come, including repeated ones; after that,
    one in every ``burst_interval``. Further k8s-events are dropped, but still counted if they
    repeat. ``None`` means no limit.
    """

    burst_interval: float = 300.0
    """Seconds in which one more k8s-event of the same object can be posted after its burst."""

    queue_limit: int = 1000
    """
    How many k8s-events of all objects together can wait to be posted; above that, the oldest ones
    are dropped. More survives longer outages of the API, less saves memory.
    """

    exit_timeout: float = 2.0
    """
    Seconds to post the remaining k8s-events when the operator exits, both before and after its
    cleanup handlers; the rest is dropped. More loses less when the API is slow, but makes the exit
    longer.
    """


@dataclasses.dataclass
class PeeringSettings:
    """How operators of the same purpose detect each other, so that only one of them is active."""

    name: str = 'default'
    """The name of the peering object: operators with different names do not see each other."""

    stealth: bool = False
    """Whether to log nothing about the keep-alives, which are sent anyway."""

    priority: int = 0
    """
    The priority of this operator: it pauses while there are other operators of a higher or the same
    priority; the latter is fine only if they share the objects by
    ``settings.watching.shard_selectors``.
    """

    lifetime: int = 60
    """
    Seconds after which this operator is considered dead if it does not report. Less lets other
    operators take over sooner after a crash, more makes fewer writes. More than 600 seconds count
    as 600.
    """

    mandatory: bool = False
    """
    Whether the operator pauses until the peering object exists, in each of the served namespaces if
    they are chosen. Otherwise, it runs alone where there is none.
    """

    standalone: bool = False
    """Whether to ignore all other operators, and to be invisible to them."""

    clusterwide: bool = False
    """
    Whether the peering is for the whole cluster, not for namespaces. Set from the scope of the
    operator.
    """

    @property
    def namespaced(self) -> bool:
        """The inverse of ``clusterwide``."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclasses.dataclass
class LeadershipSettings:
    """How one of several replicas of the operator is chosen to handle the objects: by a Lease."""

    name: str | None = None
    """
    The name of the Lease, the same for all replicas, e.g. ``'databases.example.com'``. ``None``
    means that there are no other replicas.
    """

    namespace: str | None = None
    """
    The namespace of the Lease. ``None`` means the namespace of the pod; outside of pods, it must be
    set.
    """

    lease_duration: float = 15.0
    """
    Seconds for which other replicas wait for the leader to renew the Lease. Less lets them take
    over sooner after a crash, more makes fewer changes of leaders when the API is slow.
    """

    renew_deadline: float = 10.0
    """
    Seconds after which the leader stops if it cannot renew the Lease; less than the duration. The
    difference is for clocks of different rates, and for handlers to be interrupted.
    """

    retry_period: float = 2.0
    """
    Seconds between the renewals of the leader, and between the attempts of others to take over.
    Less than the deadline. Less makes more requests.
    """

    standby: Literal['hot', 'cold'] = 'hot'
    """
    What the other replicas do meanwhile. ``'hot'`` watches the objects and keeps the indices, so
    that the work is known when the replica is promoted; it takes memory, and loads the API as much
    as the leader. ``'cold'`` watches nothing, and lists the objects when it is promoted.
    """


@dataclasses.dataclass
class QueueingSettings:
    """How the events of objects are queued and handled."""

    worker_limit: int | None = None
    """
    How many objects can be handled at once. Less is gentler to all involved, more is faster;
    ``None`` means no limit.
    """

    idle_timeout: float = 5.0
    """
    Seconds for which an idle worker of an object may stay. Workers exit as soon as there is nothing
    to do, and are cheap to start, so it makes no difference; it exists for the operators that set
    it.
    """

    exit_timeout: float = 2.0
    """
    Seconds for the workers to finish when the operator exits or stops watching, before they are
    cancelled. More is gentler to slow handlers, but makes the exit longer.
    """

    error_delays: connecting.Backoffs = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
    """
    Seconds for which an object is left alone after each next error outside of its handlers; the
    last delay is repeated. Longer delays spare the API, shorter ones recover sooner; an empty
    sequence means no delays.
    """

    _batch_window: float = dataclasses.field(default=0.1, init=False, repr=False, compare=False)

    @property
    def batch_window(self) -> float:
        """Deprecated: has no effect, as there is no batching by time."""
        _deprecate('settings.queueing.batch_window is deprecated: it has no effect.')
        return self._batch_window

    @batch_window.setter
    def batch_window(self, value: float) -> None:
        _deprecate('settings.queueing.batch_window is deprecated: it has no effect.')
        self._batch_window = value


@dataclasses.dataclass
class AdmissionSettings:
    """How admission webhooks are served and configured."""

    server: reviews.WebhookServerProtocol | None = None
    """
    The server or the tunnel for webhooks, e.g. ``kopf.WebhookServer()``. ``None`` means that
    nothing is served.
    """

    managed: str | None = None
    """
    The name of the webhook configurations that the operator creates and updates itself: a domain
    name of 3+ parts. ``None`` means that they are managed outside of the operator.
    """

    def __post_init__(self) -> None:
        self._fallback: tuple[reviews.WebhookServerProtocol, str] | None = None

    def _fall_back_to(self, server: reviews.WebhookServerProtocol, name: str) -> None:
        """Choose the server and the name for operators that set no server at startup."""
        # The server was set by the previous run.
        if self._fallback is not None and self.server is self._fallback[0]:
            self.server = None
        self._fallback = (server, name)

    def _fall_back(self) -> None:
        """Apply the chosen server if the operator has set none of its own."""
        if self.server is None and self._fallback is not None:
            self.server, name = self._fallback
            self.managed = self.managed or name


@dataclasses.dataclass
class ExecutionSettings:
    """How handlers are executed."""

    default_backoff: float | backoffs.Backoff = 60
    """
    Seconds before the retry of a handler after an arbitrary error, if it has no ``backoff=`` of its
    own. Less recovers sooner, more is gentler to the failed dependencies. With ``kopf.Backoff()``,
    the delays grow: it is both.
    """

    blocking_limit: float | None = 5.0
    """
    Seconds for which the event loop may be blocked, e.g. by a coroutine that does not await, before
    it is logged with the place in the code; the liveness probes fail then too. Less notices more;
    ``None`` means that any time is fine.
    """

    executor: concurrent.futures.Executor = dataclasses.field(default_factory=pools.OwnPool)
    """
    The executor of synchronous handlers. When it is replaced, running handlers stay in the previous
    one. The default one ends with the operator, and is replaced by a new one; yours is left to you.
    """

    _max_workers: int | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def max_workers(self) -> int | None:
        """
        How many synchronous handlers can be executed at once; set it after the executor if both are
        changed. More threads use more memory; fewer keep handlers waiting. ``None`` means the
        default of the interpreter.

        Raises `ValueError` if set below 1, and `TypeError` if the executor has no such limit.
        """
        return self._max_workers

    @max_workers.setter
    def max_workers(self, value: int | None) -> None:
        if value is not None and value < 1:
            raise ValueError(f'settings.execution.max_workers must be 1 or more, not {value!r}.')
        # The pools of the standard library read it for every task.
        if not hasattr(self.executor, '_max_workers'):
            raise TypeError(
                f'settings.execution.max_workers needs an executor with such a limit; '
                f'{type(self.executor).__name__} has none.'
            )

        default = concurrent.futures.ThreadPoolExecutor()
        self.executor._max_workers = vars(default)['_max_workers'] if value is None else value
        self._max_workers = value


def release_threads(execution: ExecutionSettings) -> int:
    """
    Let the threads end when idle, unless the executor was set by the user. New threads start on
    demand.

    Returns how many of them are still busy.
    """
    if not isinstance(execution.executor, pools.OwnPool):
        return 0

    previous = execution.executor
    execution.executor = pools.OwnPool(execution.max_workers)
    return previous.release()


@dataclasses.dataclass
class BackgroundSettings:
    """How daemons and timers are stopped."""

    cancellation_polling: float = 60
    """
    Seconds between the reminders to a daemon that does not exit when asked, if it has no
    ``cancellation_polling=`` of its own. Its exit is noticed immediately in any case.
    """

    instant_exit_timeout: float | None = None
    """
    Seconds to wait for an instant exit of a daemon before the gradual stopping begins. More blocks
    the handling of the object for longer; ``None`` means that ``instant_exit_zero_time_cycles``
    decides.
    """

    instant_exit_zero_time_cycles: int | None = 10
    """
    How many zero-time turns of the event loop to wait for an instant exit of a daemon before the
    gradual stopping begins. More suits daemons with many awaits at their end; ``None`` means none.
    """


@dataclasses.dataclass
class PersistenceSettings:
    """How the state of handling is kept in the objects."""

    finalizer: str = 'kopf.zalando.org/KopfFinalizerMarker'
    """
    The finalizer that blocks the deletion of objects until they are handled; unique for each
    operator.
    """

    progress_storage: progress.ProgressStorage = dataclasses.field(
        default_factory=progress.SmartProgressStorage
    )
    """
    Where the progress of unfinished handlers is kept. Operators that handle the same objects need
    different places, e.g. ``kopf.AnnotationsProgressStorage(prefix='my-op.example.com')``.
    """

    diffbase_storage: diffbase.DiffBaseStorage = dataclasses.field(
        default_factory=diffbase.AnnotationsDiffBaseStorage
    )
    """
    Where the last handled state of objects is kept. Operators that handle the same objects need
    different places. If it is replaced without a transition by ``kopf.MultiDiffBaseStorage``, all
    objects count as never handled before.
    """

    secrets: Literal['values', 'digests'] = 'values'
    """
    How the values of Secrets are kept in their last handled state: as the values themselves, or as
    their digests. With digests, changes are still noticed, but the values are in no annotations;
    changed values are ``***`` in ``old``. It can be changed at any time without causing calls of
    handlers. Digests are recommended.
    """

    consistency_timeout: float = 5.0
    """
    Seconds to wait for our own changes of an object to come back before it is handled further. Less
    can cause repeated handling when the API is slow, more can delay it when the changes never come
    back.
    """


@dataclasses.dataclass
class BreakerSettings:
    """
    When to slow down an object that this operator's own changes cause to be handled again and
    again.
    """

    limit: int | None = 10
    """
    How many cycles that call handlers may end in a row, within the window, without changes by other
    writers in between. More lets loops run longer, fewer can slow down handlers that need several
    rounds. ``None`` never slows down.
    """

    window: float = 60.0
    """Seconds in which these cycles are counted. Longer also finds slower loops."""

    delay: float = 10.0
    """
    Seconds for which the object is left alone at first; twice as long each next time, until another
    writer changes it.
    """

    max_delay: float = 600.0
    """Seconds for which the object is left alone at most."""


@dataclasses.dataclass
class OperatorSettings:
    """All settings of one operator, by sections."""

    process: ProcessSettings = dataclasses.field(default_factory=ProcessSettings)
    posting: PostingSettings = dataclasses.field(default_factory=PostingSettings)
    peering: PeeringSettings = dataclasses.field(default_factory=PeeringSettings)
    leadership: LeadershipSettings = dataclasses.field(default_factory=LeadershipSettings)
    watching: connecting.WatchingSettings = dataclasses.field(
        default_factory=connecting.WatchingSettings
    )
    queueing: QueueingSettings = dataclasses.field(default_factory=QueueingSettings)
    scanning: connecting.ScanningSettings = dataclasses.field(
        default_factory=connecting.ScanningSettings
    )
    admission: AdmissionSettings = dataclasses.field(default_factory=AdmissionSettings)
    execution: ExecutionSettings = dataclasses.field(default_factory=ExecutionSettings)
    background: BackgroundSettings = dataclasses.field(default_factory=BackgroundSettings)
    networking: connecting.NetworkingSettings = dataclasses.field(
        default_factory=connecting.NetworkingSettings
    )
    persistence: PersistenceSettings = dataclasses.field(default_factory=PersistenceSettings)
    breaker: BreakerSettings = dataclasses.field(default_factory=BreakerSettings)

    @property
    def batching(self) -> QueueingSettings:
        """Deprecated: the former name of ``queueing``."""
        _deprecate('settings.batching is deprecated: use settings.queueing.')
        return self.queueing


def _deprecate(message: str) -> None:
    warnings.warn(message, DeprecationWarning, stacklevel=3)
