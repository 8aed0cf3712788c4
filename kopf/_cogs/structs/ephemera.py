"""
Ephemera: only aliases, for operators that import them; the definitions are elsewhere.
"""

from typing import TYPE_CHECKING

from kopf._cogs.helpers import aliases

if not TYPE_CHECKING:  # otherwise, any misspelt name would pass type checking
    __getattr__ = aliases.build_getattr(__name__)
