"""
Refusals: what it means that the cluster does not accept a patch.
"""

import dataclasses
from collections.abc import Mapping

from kopf._cogs.clients import errors
from kopf._cogs.clients.patching import application, plans
from kopf._cogs.structs import dicts

REFUSALS = (400, 403, 413)
"""
The codes treated the same as 409 and 422: wrong content, denied by a webhook or RBAC, too large.
"""

INAPPLICABLE = ('the server rejected our request due to an error in our request', 'test failed')
"""
How servers report that a JSON patch does not fit the object, e.g. its version, with no details.
"""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A request that the cluster has refused."""

    error: errors.APIError
    kind: plans.Kind


def is_refusal(error: errors.RequestError) -> bool:
    """
    Return whether the cluster refuses the request and will refuse it again; otherwise, retry later.
    """
    return isinstance(error, errors.APIInvalidError) or (
        isinstance(error, errors.APIError) and error.code in REFUSALS
    )


def is_outdated(refusal: errors.APIError) -> bool:
    """
    Return whether a JSON patch is refused only because the object has changed in the meantime.
    """
    if isinstance(refusal, errors.APIConflictError):
        return True

    is_explained = bool(dicts.resolve(refusal.details, ('causes',)))
    return (
        refusal.code == 422
        and not is_explained
        and any(text in refusal.message for text in INAPPLICABLE)
    )


def is_namesake(refusal: errors.APIError | None) -> bool:
    """
    Return whether the changes are refused because the name now belongs to another object.

    The code matters: webhooks usually deny with other codes, possibly quoting such words.
    """
    if not isinstance(refusal, errors.APIConflictError | errors.APIInvalidError):
        return False

    causes = refusal.details.get('causes')
    listed = causes if isinstance(causes, list) else []
    fields = [cause.get('field') for cause in listed if isinstance(cause, Mapping)]
    return 'metadata.uid' in fields or 'UID in precondition' in refusal.message


def is_conflicting(refusal: errors.APIError, changes: application.Changes) -> bool:
    """Return whether the changes are refused only because of concurrent changes."""
    is_conflict = isinstance(refusal, errors.APIConflictError)
    return is_conflict and not plans.is_versioned(changes.patch)
