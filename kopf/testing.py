"""
For tests of operators: a Kubernetes API with nothing to install.

Importing it is cheap: the sandbox itself is loaded when it is entered.
"""
from typing import TYPE_CHECKING, Any

from kopf._kits.sandbox.errors import ApiError
from kopf._kits.sandbox.manifests import ManifestError
from kopf._kits.sandbox.sandboxes import Sandbox

if TYPE_CHECKING:
    from kopf._kits.sandbox.coroutines import AsyncSandbox

__all__ = ['ApiError', 'AsyncSandbox', 'ManifestError', 'Sandbox']

if not TYPE_CHECKING:  # otherwise, any misspelt name would pass the type checks

    def __getattr__(name: str) -> Any:
        if name == 'AsyncSandbox':
            from kopf._kits.sandbox.coroutines import AsyncSandbox
            return AsyncSandbox
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
