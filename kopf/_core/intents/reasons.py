"""
Reasons: what has happened to objects.
"""

import enum


class Reason(enum.StrEnum):
    """What has happened to an object."""

    CREATE = 'create'
    UPDATE = 'update'
    DELETE = 'delete'
    RESUME = 'resume'
    NOOP = 'noop'  # nothing of importance
    FREE = 'free'  # it is being deleted, but does not wait for us
    GONE = 'gone'  # it does not exist any more
