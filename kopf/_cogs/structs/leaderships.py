"""
Leaderships: the error that ends what only the leading replica of an operator may do.
"""


class LeadershipLostError(Exception):
    """
    This replica of the operator does not lead, or no longer does.

    Raised instead of sending a request, and by an operator that has lost its leadership.
    """
