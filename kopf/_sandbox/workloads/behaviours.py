"""
Behaviours: what the containers of a pod pretend to do, by the settings, the annotations of the pod,
and the troubles that tests make.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from kopf._sandbox import options
from kopf._sandbox.meta import selectors

Object = Mapping[str, Any]

PREFIX = 'sandbox.kopf.dev'
READY_AFTER = f'{PREFIX}/ready-after'
RUNS_FOR = f'{PREFIX}/runs-for'
EXIT_CODE = f'{PREFIX}/exit-code'

TroubleKind = Literal['crash', 'image', 'unready']


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """What the containers of one pod do. Durations are in seconds."""

    ready_after: float  # from the assignment to a node, or from the previous init container
    runs_for: float  # infinite for servers
    exit_code: int = 0
    has_image: bool = True
    is_healthy: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Trouble:
    """What is wrong with the selected pods, as long as it is not lifted."""

    kind: str  # one of those in TroubleKind
    namespace: str = ''  # '' for all
    labels: str = ''
    image: str = '*'

    def affects(self, pod: Object) -> bool:
        meta = pod['metadata']
        images = [container['image'] for container in pod['spec']['containers']]
        selector = selectors.parse_labels(self.labels)

        return (
            self.namespace in ('', meta.get('namespace'))
            and selector.matches(meta.get('labels') or {})
            and any(fnmatch.fnmatchcase(image, self.image) for image in images)
        )


def make_trouble(kind: str, namespace: str, labels: str, image: str) -> Trouble:
    """Make a trouble; raise `ValueError` or `ApiError` for wrong arguments."""
    if kind not in get_args(TroubleKind):
        known = ', '.join(get_args(TroubleKind))
        raise ValueError(f'The trouble of pods must be one of {known}, not {kind!r}.')
    selectors.parse_labels(labels)
    return Trouble(kind, namespace, labels, image)


class Troubles:
    """The troubles in force now."""

    def __init__(self) -> None:
        self._troubles: list[Trouble] = []
        self.on_change: Callable[[], object] = lambda: None

    def add(self, trouble: Trouble) -> None:
        self._troubles.append(trouble)
        self.on_change()

    def lift(self, trouble: Trouble) -> None:
        """End a trouble; does nothing if it has ended already."""
        if trouble in self._troubles:
            self._troubles.remove(trouble)
            self.on_change()

    def find(self, pod: Object) -> frozenset[str]:
        """Return the kinds of all troubles of a pod."""
        return frozenset(trouble.kind for trouble in self._troubles if trouble.affects(pod))


def choose_behaviour(
    pod: Object, settings: options.Workloads, troubles: frozenset[str]
) -> Behaviour:
    """Choose what the containers of a pod do."""
    annotations = pod['metadata'].get('annotations') or {}
    is_server = (pod['spec'].get('restartPolicy') or 'Always') == 'Always'
    runs_for = math.inf if is_server else settings.completed_after
    code = int(_parse_number(annotations.get(EXIT_CODE), 0))
    has_code = EXIT_CODE in annotations
    runs_for = _parse_number(
        annotations.get(RUNS_FOR), settings.completed_after if has_code else runs_for
    )

    if 'crash' in troubles:
        runs_for = min(runs_for, settings.completed_after)
        code = code or 1

    return Behaviour(
        ready_after=_parse_number(annotations.get(READY_AFTER), settings.ready_after),
        runs_for=runs_for,
        exit_code=code,
        has_image='image' not in troubles,
        is_healthy='unready' not in troubles,
    )


def _parse_number(text: str | None, default: float) -> float:
    """Return the number; the default if it is absent or is not a number."""
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return default if math.isnan(value) or value < 0 else value
