"""
Reasons: the kinds of changes of objects.
"""

import enum


class Reason(enum.StrEnum):
    """The kind of a change of an object."""

    CREATE = 'create'
    UPDATE = 'update'
    DELETE = 'delete'
    RESUME = 'resume'
    NOOP = 'noop'  # nothing essential
    FREE = 'free'  # it is being deleted, but does not wait for us
    GONE = 'gone'  # it no longer exists
