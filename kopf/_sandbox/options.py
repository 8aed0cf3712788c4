"""
Options: the parameters of a sandbox, common to all ways to start it.

It is cheap to import: nothing else is loaded until a sandbox is needed.
"""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Source = str | os.PathLike[str] | type[Any] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""
A source of manifests: a path of a file or a directory, a text of YAML or JSON, an object, or a list
of objects; also a class that stands for a custom resource.

A string is a text if it has line breaks, and a path otherwise.
"""

MANIFEST = '__kopf_manifest__'
"""The attribute of classes that stand for resources: a function that returns their definition."""

DAY = 24 * 60 * 60.0


class MissingLibraryError(Exception):
    """A library that the sandbox requires is not installed."""

    def __init__(self, library: str, purpose: str) -> None:
        super().__init__(
            f'The sandbox needs the library {library!r} for {purpose}. '
            f'Install what it needs: pip install cryptography google-re2'
        )


@dataclasses.dataclass(frozen=True)
class Workloads:
    """
    How the workloads of a sandbox move: on how many nodes, and how long their pods take.

    All durations are in seconds. With no nodes, pods are created but stay pending.
    """

    nodes: int = 1
    ready_after: float = 1.0
    """From the assignment to a node until the containers run; the same for each init container."""

    completed_after: float = 1.0
    """For how long the containers of pods that do not always restart run, e.g. those of jobs."""

    stopped_after: float = 0.5
    """From the deletion until the pod is gone; the grace period of the pod if that is shorter."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kinds = (int,) if field.name == 'nodes' else (int, float)
            if not isinstance(value, kinds) or isinstance(value, bool) or not value >= 0:
                raise ValueError(
                    f'The option {field.name!r} of workloads must be a number, zero or more, '
                    f'not {value!r}.'
                )


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a sandbox, as set by the user."""

    host: str = '127.0.0.1'
    port: int = 0  # 0 for any free port
    rbac: bool = False
    tls: bool = True
    apply: Sequence[Source] = ()
    save: str | os.PathLike[str] | None = None  # the directory to save the objects to
    # For the times in objects; None for the real time.
    now: Callable[[], datetime.datetime] | None = None
    workloads: Workloads | None = None  # None for no controllers of workloads
    kubeconfig: pathlib.Path | None = None  # the path to write it to; None for a temporary file


def parse_workloads(given: bool | Workloads) -> Workloads | None:
    """Return the options of workloads; ``None`` if there are none."""
    if isinstance(given, Workloads):
        return given
    if not isinstance(given, bool):
        raise TypeError(f'Workloads are True, False, or kopf.testing.Workloads(), not {given!r}.')
    return Workloads() if given else None
