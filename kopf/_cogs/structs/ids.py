"""
Ids: what handlers are known by, in the code and on the objects.
"""

from typing import NewType

HandlerId = NewType('HandlerId', str)
"""Unique among the handlers of one object; with slashes for sub-handlers and fields."""
