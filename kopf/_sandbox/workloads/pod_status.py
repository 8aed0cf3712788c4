"""
Pod status: what a kubelet reports about a pod. All pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import pod_lives, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

OWN = ('PodReadyToStartContainers', 'Initialized', 'Ready', 'ContainersReady', 'PodScheduled')


def build_status(
    pod: Object, life: pod_lives.Life, *, is_healthy: bool, addresses: Object, now: str
) -> Body:
    """Build the status of a pod on a node."""
    old = pod.get('status') or {}
    spec = pod['spec']
    inits = life.inits
    mains = life.mains
    phase = find_phase(life)
    ready = {
        item.name: item.is_running and item.is_ready and (is_healthy or item.is_init)
        for item in life.containers
    }
    generation = pod['metadata'].get('generation') or 0
    made: Body = {
        **{key: old[key] for key in ('qosClass', 'nominatedNodeName') if key in old},
        'observedGeneration': generation,
        'phase': phase,
        'startTime': old.get('startTime') or now,
        'conditions': build_conditions(pod, life, phase, ready, now),
        **addresses,
        'containerStatuses': [
            _build_container(item, _find(spec['containers'], item.name), ready[item.name])
            for item in mains
        ],
    }

    if inits:
        made['initContainerStatuses'] = [
            _build_container(item, _find(spec['initContainers'], item.name), ready[item.name])
            for item in inits
        ]

    return made


def find_phase(life: pod_lives.Life) -> str:
    if life.has_failed_to_initialize:
        return 'Failed'
    if life.has_ended:
        is_failed = any(item.exit is not None and item.exit.code for item in life.mains)
        return 'Failed' if is_failed else 'Succeeded'
    has_begun = all(item.since or item.restarts for item in life.mains)
    return 'Running' if has_begun and life.is_initialized else 'Pending'


def build_conditions(
    pod: Object, life: pod_lives.Life, phase: str, ready: Mapping[str, bool], now: str
) -> list[Body]:
    """Build the conditions of a pod; those of others are kept."""
    judged = {
        'PodReadyToStartContainers': _judge(phase not in pod_states.ENDED),
        'Initialized': _judge_initialization(life, phase),
        'Ready': _judge_containers(life, phase, ready),
        'ContainersReady': _judge_containers(life, phase, ready),
        'PodScheduled': _judge(True),
    }
    if judged['ContainersReady']['status'] == 'True':
        judged['Ready'] = _judge_gates(pod)
    known = {item['type']: item for item in (pod.get('status') or {}).get('conditions') or ()}
    generation = pod['metadata'].get('generation') or 0
    made = [
        _stamp({'type': type, **judged[type], 'observedGeneration': generation}, known, now)
        for type in OWN
    ]

    return [*made, *(item for type, item in known.items() if type not in OWN)]


def _stamp(condition: Body, known: Mapping[str, Object], now: str) -> Body:
    """Add the time of the last transition."""
    old = known.get(condition['type'])
    is_same = old is not None and old['status'] == condition['status']
    since = old.get('lastTransitionTime') if old is not None and is_same else now
    return {**condition, 'lastProbeTime': None, 'lastTransitionTime': since or now}


def _judge(is_true: bool, reason: str = '', message: str = '') -> Body:
    explained = {'reason': reason, 'message': message}
    return {
        'status': 'True' if is_true else 'False',
        **{key: text for key, text in explained.items() if text and not is_true},
    }


def _judge_initialization(life: pod_lives.Life, phase: str) -> Body:
    if phase == 'Succeeded':
        return {'status': 'True', 'reason': 'PodCompleted'}
    waiting = [item.name for item in life.inits if not pod_lives.is_passed(item)]
    text = f'containers with incomplete status: {_list(waiting)}'
    return _judge(not waiting, 'ContainersNotInitialized', text)


def _judge_containers(life: pod_lives.Life, phase: str, ready: Mapping[str, bool]) -> Body:
    if phase == 'Succeeded':
        return {'status': 'False', 'reason': 'PodCompleted'}
    if phase == 'Failed':
        return {'status': 'False', 'reason': 'PodFailed'}
    relevant = [item for item in life.containers if item.is_sidecar or not item.is_init]
    unready = [item.name for item in relevant if not ready[item.name]]
    text = f'containers with unready status: {_list(unready)}'

    return _judge(not unready, 'ContainersNotReady', text)


def _judge_gates(pod: Object) -> Body:
    """Judge the readiness of a pod by the conditions that others must set."""
    texts = []
    for gate in pod['spec'].get('readinessGates') or ():
        type = gate['conditionType']
        condition = pod_states.find_condition(pod, type)
        if condition is None:
            texts.append(f'corresponding condition of pod readiness gate "{type}" does not exist.')
        elif condition['status'] != 'True':
            status = condition['status']
            texts.append(f'the status of pod readiness gate "{type}" is not "True", but {status}')

    return _judge(not texts, 'ReadinessGatesNotReady', ', '.join(texts))


def _list(names: Sequence[str]) -> str:
    return f'[{" ".join(names)}]'


def _find(containers: Sequence[Object], name: str) -> Object:
    return next(item for item in containers if item['name'] == name)


def _build_container(item: pod_lives.ContainerLife, spec: Object, is_ready: bool) -> Body:
    has_run = bool(item.since)
    image = spec.get('image') or ''
    digest = f'sandbox://{item.name}-{item.restarts}'
    is_done = item.is_init and item.exit is not None and item.exit.code == 0

    return {
        'name': item.name,
        'image': image,
        'imageID': f'sandbox://{image}' if has_run else '',
        'ready': is_ready or is_done,
        'restartCount': item.restarts,
        'started': item.is_running,
        'state': _build_state(item, digest, image),
        'lastState': {} if item.last is None else _build_exit(item.last, digest),
        **({'containerID': digest} if has_run else {}),
    }


def _build_state(item: pod_lives.ContainerLife, digest: str, image: str) -> Body:
    if item.waiting:
        message = {
            pod_lives.CRASHING: f'back-off restarting failed container {item.name}',
            pod_lives.PULLING: f'failed to pull image "{image}": not found',
            pod_lives.UNPULLED: f'Back-off pulling image "{image}"',
        }.get(item.waiting)
        return {'waiting': {'reason': item.waiting, **({'message': message} if message else {})}}

    if item.exit is not None:
        return _build_exit(item.exit, digest)
    return {'running': {'startedAt': item.since}}


def _build_exit(exit: pod_lives.Exit, digest: str) -> Body:
    return {
        'terminated': {
            'exitCode': exit.code,
            'reason': exit.reason,
            'startedAt': exit.started,
            'finishedAt': exit.finished,
            'containerID': digest,
        }
    }
