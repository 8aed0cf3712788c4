"""
Collectors: users' own Prometheus metrics in tests, which execute files many times in one process.

The default registry of Prometheus is global, and refuses duplicate names. So, the metrics
registered by a file are unregistered when the file is executed again, or when its operator ends.
The metrics registered by modules stay, as modules are executed only once; so do the metrics that
handlers register.
"""

import dataclasses
import os
import sys
from collections.abc import Collection, Iterable
from typing import Any

from kopf._cogs.helpers import loaders


@dataclasses.dataclass
class _Script:
    """The collectors registered by one execution of a file."""

    module: str
    collectors: list[Any] = dataclasses.field(default_factory=list)


_scripts: dict[str, _Script] = {}


def watch() -> None:
    """Track the collectors that files register from now on. Can be called repeatedly."""
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
    """List the files that have registered any collectors."""
    return frozenset(_scripts)


def forget(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Unregister all collectors of the last executions of these files."""
    for path in paths:
        script = _scripts.pop(os.path.abspath(path), None)
        for collector in script.collectors if script is not None else ():
            _unregister(collector)


def _unregister(collector: Any) -> None:
    import prometheus_client

    try:
        prometheus_client.REGISTRY.unregister(collector)
    except KeyError:
        pass  # the file or its handlers have unregistered it already


def _find_script() -> tuple[str, str] | None:
    """Find the file that the loader executes now, unless the caller is a module imported by it."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != '<module>':
        frame = frame.f_back  # type: ignore[assignment]
    module = '' if frame is None else str(frame.f_globals.get('__name__'))
    return (
        (os.path.abspath(frame.f_code.co_filename), module) if loaders.is_script(module) else None
    )
