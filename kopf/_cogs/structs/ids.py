"""
Ids: the identifiers of handlers, in the code and in the objects.
"""

from typing import NewType

HandlerId = NewType('HandlerId', str)
"""Unique among the handlers of one object; with slashes for sub-handlers and fields."""
