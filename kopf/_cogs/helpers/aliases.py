"""
Aliases: private names of other implementations, for operators that import them.

The aliases are not promised and may be removed in any release: each of them has a public name,
which the warning mentions. The framework itself does not use them.
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

PUBLIC_NAMES = {
    'kopf._cogs.helpers.typedefs.Logger': 'Logger',
    'kopf._cogs.structs.bodies.Body': 'Body',
    'kopf._cogs.structs.ephemera.Memo': 'Memo',
    'kopf._core.intents.causes.Reason': 'Reason',
    'kopf._core.intents.registries.SmartOperatorRegistry': 'OperatorRegistry',
}


def build_getattr(module: str) -> Callable[[str], Any]:
    """Build the `__getattr__` of a module that resolves its aliases, with one warning per name."""
    resolved: dict[str, Any] = {}

    def __getattr__(name: str) -> Any:
        public = PUBLIC_NAMES.get(f'{module}.{name}')
        if public is None:
            raise AttributeError(f'module {module!r} has no attribute {name!r}')

        if name not in resolved:
            warnings.warn(
                f'{module}.{name} is hidden, and can be gone any time. Use kopf.{public}.',
                FutureWarning,
                stacklevel=2,
            )
            resolved[name] = getattr(importlib.import_module('kopf'), public)

        return resolved[name]

    return __getattr__
