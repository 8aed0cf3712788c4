"""
Availability: whether the library of CEL is installed. It imports nothing of CEL itself.
"""

import importlib.util
from typing import Final

LIBRARY: Final = 'cel_expr_python'


def is_available() -> bool:
    """Return whether expressions can be parsed."""
    return importlib.util.find_spec(LIBRARY) is not None
