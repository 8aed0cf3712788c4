"""
Pod lives: what happens to the containers of a pod over time. All pure.

A pod on a node first runs its init containers, one after another, then all other containers at
once. Containers that exit are started again, or not, by the restart policy of the pod.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import behaviours

Object = Mapping[str, Any]

BACKOFF = 10.0
"""Seconds before the second restart of a container; twice as long each time, up to the limit."""

BACKOFF_LIMIT = 300.0

CREATING = 'ContainerCreating'
INITIALIZING = 'PodInitializing'
CRASHING = 'CrashLoopBackOff'
PULLING = 'ErrImagePull'
UNPULLED = 'ImagePullBackOff'


@dataclasses.dataclass(frozen=True)
class Exit:
    """How a container has ended."""

    code: int
    reason: str
    started: str
    finished: str


@dataclasses.dataclass(frozen=True)
class ContainerLife:
    """The state of one container: it waits, runs, or has ended."""

    name: str
    is_init: bool = False
    is_sidecar: bool = False
    waiting: str = CREATING  # the reason; '' if it does not wait
    due: float = math.inf  # the moment of the next step: to start, or to exit
    ready_at: float = math.inf  # the moment when its readiness probe begins to succeed
    is_ready: bool = False
    since: str = ''  # when it was started
    exit: Exit | None = None  # of a container that has ended
    last: Exit | None = None  # of the previous run
    restarts: int = 0
    will_fail: tuple[int, str] | None = None  # the code and the reason, if it is made to fail

    @property
    def is_running(self) -> bool:
        return bool(self.since) and not self.waiting and self.exit is None


@dataclasses.dataclass(frozen=True)
class Step:
    """What has happened to a container, for k8s-events."""

    container: str
    what: str  # started, crashed, unpulled, backoff, failed


@dataclasses.dataclass(frozen=True)
class Life:
    """The state of all containers of a pod."""

    containers: tuple[ContainerLife, ...]
    steps: tuple[Step, ...] = ()  # since the previous state

    @property
    def inits(self) -> list[ContainerLife]:
        return [item for item in self.containers if item.is_init]

    @property
    def mains(self) -> list[ContainerLife]:
        return [item for item in self.containers if not item.is_init]

    @property
    def is_initialized(self) -> bool:
        return all(is_passed(item) for item in self.inits)

    @property
    def has_ended(self) -> bool:
        """Return whether the pod has succeeded or failed."""
        return all(item.exit for item in self.mains) or self.has_failed_to_initialize

    @property
    def has_failed_to_initialize(self) -> bool:
        return any(item.exit is not None and item.exit.code for item in self.inits)

    @property
    def due(self) -> float:
        """The moment of the next step."""
        return min(
            (
                item.due if item.is_ready else min(item.due, item.ready_at)
                for item in self.containers
            ),
            default=math.inf,
        )


def begin(pod: Object) -> Life:
    """Return the life of a pod that is just assigned to a node."""
    return Life(tuple(_list_containers(pod['spec'])))


def _list_containers(spec: Object) -> Iterator[ContainerLife]:
    for container in spec.get('initContainers') or ():
        is_sidecar = container.get('restartPolicy') == 'Always'
        yield ContainerLife(container['name'], True, is_sidecar, INITIALIZING)
    waiting = INITIALIZING if spec.get('initContainers') else CREATING
    for container in spec['containers']:
        yield ContainerLife(container['name'], waiting=waiting)


def resume(pod: Object, now: float) -> Life:
    """Return the life of a pod that ran before the sandbox was restarted."""
    statuses = [
        *((pod.get('status') or {}).get('initContainerStatuses') or ()),
        *((pod.get('status') or {}).get('containerStatuses') or ()),
    ]
    known = {status['name']: status for status in statuses}
    return Life(
        tuple(
            _resume_container(item, known.get(item.name) or {}, now)
            for item in begin(pod).containers
        )
    )


def _resume_container(item: ContainerLife, status: Object, now: float) -> ContainerLife:
    state = status.get('state') or {}
    item = dataclasses.replace(item, restarts=status.get('restartCount') or 0)
    if 'running' in state:
        since = state['running'].get('startedAt') or ''
        return dataclasses.replace(item, waiting='', since=since, ready_at=now, is_ready=True)

    if 'terminated' in state:
        found = state['terminated']
        names = ('exitCode', 'reason', 'startedAt', 'finishedAt')
        code, reason, started, finished = (found.get(name) or '' for name in names)
        ended = Exit(int(code or 0), reason, started, finished)
        return dataclasses.replace(item, waiting='', since=started, exit=ended)

    return item


def is_passed(item: ContainerLife) -> bool:
    """Return whether the next init container may start."""
    if item.is_sidecar:
        return item.is_running
    return item.exit is not None and item.exit.code == 0


@dataclasses.dataclass(frozen=True)
class Moment:
    """The time: by the clock of the loop, and as it is written to objects."""

    now: float
    text: str


def advance(pod: Object, life: Life, behaviour: behaviours.Behaviour, moment: Moment) -> Life:
    """Make all steps that are due by now."""
    spec = pod['spec']
    policy = spec.get('restartPolicy') or 'Always'
    delays = {
        container['name']: float(
            (container.get('readinessProbe') or {}).get('initialDelaySeconds') or 0
        )
        for container in spec['containers']
    }
    containers: list[ContainerLife] = []
    steps: list[Step] = []
    is_blocked = False  # by an init container that has not passed yet

    for item in life.containers:
        if not is_blocked:
            chosen = 'Always' if item.is_sidecar else policy
            item, made = _advance_container(
                item, behaviour, moment, chosen, delays.get(item.name, 0.0)
            )
            steps += made
        containers.append(item)
        is_blocked = is_blocked or (item.is_init and not is_passed(item))

    return Life(tuple(containers), tuple(steps))


def _advance_container(
    item: ContainerLife,
    behaviour: behaviours.Behaviour,
    moment: Moment,
    policy: str,
    probe_delay: float,
) -> tuple[ContainerLife, list[Step]]:
    """Make the steps of one container."""
    steps: list[Step] = []
    while True:
        made, what = _step(item, behaviour, moment, policy, probe_delay)
        if made is item:
            return item, steps
        item = made
        steps += [Step(item.name, what)] if what else []


def _step(
    item: ContainerLife,
    behaviour: behaviours.Behaviour,
    moment: Moment,
    policy: str,
    probe_delay: float,
) -> tuple[ContainerLife, str]:
    if item.waiting:
        return _step_waiting(item, behaviour, moment, probe_delay)
    if item.is_running:
        return _step_running(item, behaviour, moment, policy)
    return item, ''


def _step_waiting(
    item: ContainerLife,
    behaviour: behaviours.Behaviour,
    moment: Moment,
    probe_delay: float,
) -> tuple[ContainerLife, str]:
    if item.waiting in (CREATING, INITIALIZING) and item.due == math.inf:
        return dataclasses.replace(item, due=moment.now + behaviour.ready_after), ''
    is_pulled = item.waiting in (PULLING, UNPULLED) and behaviour.has_image
    if item.due <= moment.now or is_pulled:
        return _start(item, behaviour, moment, probe_delay)
    return item, ''


def _step_running(
    item: ContainerLife, behaviour: behaviours.Behaviour, moment: Moment, policy: str
) -> tuple[ContainerLife, str]:
    now = moment.now
    if item.will_fail is not None:
        return _end(item, *item.will_fail, moment, policy)

    if item.due <= now:
        code = 0 if item.is_init else behaviour.exit_code
        return _end(item, code, 'Error' if code else 'Completed', moment, policy)

    lasts = _measure_run(item, behaviour)
    if math.isinf(item.due) != math.isinf(lasts):
        return dataclasses.replace(item, due=now + lasts), ''
    if not item.is_ready and item.ready_at <= now:
        return dataclasses.replace(item, is_ready=True), ''
    return item, ''


def _measure_run(item: ContainerLife, behaviour: behaviours.Behaviour) -> float:
    """Return for how long a container runs. Init containers take no time of their own."""
    if item.is_init and not item.is_sidecar:
        return 0.0
    return math.inf if item.is_sidecar else behaviour.runs_for


def _start(
    item: ContainerLife,
    behaviour: behaviours.Behaviour,
    moment: Moment,
    probe_delay: float,
) -> tuple[ContainerLife, str]:
    if not behaviour.has_image:
        reason = PULLING if item.waiting != PULLING else UNPULLED
        due = moment.now + BACKOFF
        return dataclasses.replace(item, waiting=reason, due=due), 'unpulled'

    started = dataclasses.replace(
        item,
        waiting='',
        since=moment.text,
        exit=None,
        due=moment.now + _measure_run(item, behaviour),
        ready_at=moment.now + probe_delay,
        is_ready=False,
    )
    return started, 'started'


def _end(
    item: ContainerLife, code: int, reason: str, moment: Moment, policy: str
) -> tuple[ContainerLife, str]:
    ended = Exit(code, reason, item.since, moment.text)
    is_restarted = policy == 'Always' or (policy == 'OnFailure' and code != 0)
    if item.is_init and not item.is_sidecar:
        is_restarted = policy != 'Never' and code != 0
    base = dataclasses.replace(item, will_fail=None, is_ready=False, ready_at=math.inf)
    if not is_restarted:
        return dataclasses.replace(base, exit=ended, due=math.inf), ''

    delay = 0.0 if not item.restarts else min(BACKOFF * 2.0 ** (item.restarts - 1), BACKOFF_LIMIT)
    waiting = dataclasses.replace(
        base,
        waiting=CRASHING,
        last=ended,
        restarts=item.restarts + 1,
        due=moment.now + delay,
    )
    return waiting, 'backoff' if delay else ''


def fail(life: Life, containers: Sequence[str], code: int, reason: str) -> Life:
    """Make running containers fail at the next step; all of them if none are named."""
    return dataclasses.replace(
        life,
        containers=tuple(
            dataclasses.replace(item, will_fail=(code, reason))
            if item.is_running and not item.is_init and (not containers or item.name in containers)
            else item
            for item in life.containers
        ),
    )


def stop(life: Life, pod: Object, now: str) -> Life:
    """End all containers of a pod that is being deleted."""
    is_server = (pod['spec'].get('restartPolicy') or 'Always') == 'Always'
    code, reason = (0, 'Completed') if is_server else (143, 'Error')

    def end(item: ContainerLife) -> ContainerLife:
        if item.exit is not None:
            return item
        return dataclasses.replace(
            item,
            waiting='',
            exit=Exit(code, reason, item.since or now, now),
            due=math.inf,
            ready_at=math.inf,
            is_ready=False,
        )

    return Life(tuple(map(end, life.containers)))
