"""
Kubernetes operators in Python: declare what to do with objects, and let the framework do the rest.

Only the names of this module, `kopf.on`, `kopf.testing` and `kopf.cli` are promised; all other modules are internal.
Importing it is cheap: no HTTP, YAML or TLS is loaded until an operator runs.
"""
from typing import TYPE_CHECKING, Any

from kopf._cogs.helpers import versions as _versions

__all__: list[str] = []

__version__ = _versions.version
__version_tuple__ = _versions.version_tuple
__commit_id__: str | None

if not TYPE_CHECKING:  # otherwise, any misspelt name would pass the type checks

    def __getattr__(name: str) -> Any:
        if name == '__commit_id__':
            return _versions.installed_commit()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
