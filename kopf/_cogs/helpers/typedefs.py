"""
Type definitions: only aliases, for operators that import them; everything of that is elsewhere.
"""

from typing import TYPE_CHECKING

from kopf._cogs.helpers import aliases

if not TYPE_CHECKING:  # otherwise, any misspelt name would pass the type checks
    __getattr__ = aliases.build_getattr(__name__)
