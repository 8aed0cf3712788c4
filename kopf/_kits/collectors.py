"""
Collectors: the users' own metrics of Prometheus in tests, where files are executed many times in one process.

The default registry of the library is one for the whole process, and refuses the same names. So, what a file has
registered is forgotten when the file is executed again, or when its operator ends. What is registered by modules stays,
as modules are executed only once; so does what is registered later, by handlers.
"""

import dataclasses
import os
import sys
from collections.abc import Collection, Iterable
from typing import Any

from kopf._cogs.helpers import loaders


@dataclasses.dataclass
class _Script:
    """What one execution of a file has registered."""

    module: str
    collectors: list[Any] = dataclasses.field(default_factory=list)


_scripts: dict[str, _Script] = {}


def watch() -> None:
    """Notice from now on what the files register. It can be repeated."""
    import prometheus_client

    registry = prometheus_client.REGISTRY
    if 'register' in vars(registry):
        return
    original = registry.register

    def register(collector: Any) -> None:
        place = _find_script()
        if place is None:
            original(collector)
            return
        path, module = place
        if path in _scripts and _scripts[path].module != module:
            forget([path])
        original(collector)
        _scripts.setdefault(path, _Script(module)).collectors.append(collector)

    registry.register = register  # type: ignore[method-assign]


def list_paths() -> Collection[str]:
    """List the files that have registered anything."""
    return frozenset(_scripts)


def forget(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Forget all that the last executions of these files have registered."""
    for path in paths:
        script = _scripts.pop(os.path.abspath(path), None)
        for collector in script.collectors if script is not None else ():
            _unregister(collector)


def _unregister(collector: Any) -> None:
    import prometheus_client

    try:
        prometheus_client.REGISTRY.unregister(collector)
    except KeyError:
        pass  # the file or its handlers have done it already


def _find_script() -> tuple[str, str] | None:
    """Find the file that is being executed by the loader now, if it is not a module imported by it."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != '<module>':
        frame = frame.f_back  # type: ignore[assignment]
    module = '' if frame is None else str(frame.f_globals.get('__name__'))
    return (
        (os.path.abspath(frame.f_code.co_filename), module) if loaders.is_script(module) else None
    )
