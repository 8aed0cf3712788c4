"""
Tools for tests of operators: a Kubernetes API with nothing to install, and ways to run operators.

Importing this module is cheap: each tool is loaded when it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kopf._sandbox.codec.manifests import ManifestError
from kopf._sandbox.meta.errors import ApiError
from kopf._sandbox.options import Workloads
from kopf._sandbox.sandboxes import Sandbox

if TYPE_CHECKING:
    from kopf._kits.calls import call
    from kopf._kits.histories import Span, find_overlaps
    from kopf._kits.runner import KopfRunner
    from kopf._kits.simulations import Operator, Simulation
    from kopf._sandbox.async_sandbox import AsyncSandbox
    from kopf.testing import chaos

__all__ = [
    'ApiError',
    'AsyncSandbox',
    'KopfRunner',
    'ManifestError',
    'Operator',
    'Sandbox',
    'Simulation',
    'Span',
    'Workloads',
    'call',
    'chaos',
    'find_overlaps',
]

_ORIGINS = {
    'AsyncSandbox': 'kopf._sandbox.async_sandbox',
    'KopfRunner': 'kopf._kits.runner',
    'Operator': 'kopf._kits.simulations',
    'Simulation': 'kopf._kits.simulations',
    'Span': 'kopf._kits.histories',
    'call': 'kopf._kits.calls',
    'find_overlaps': 'kopf._kits.histories',
}

if not TYPE_CHECKING:  # otherwise, misspelt names would pass the type checks

    def __getattr__(name: str) -> Any:
        if name == 'chaos':
            return importlib.import_module('kopf.testing.chaos')
        if name not in _ORIGINS:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        return getattr(importlib.import_module(_ORIGINS[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
