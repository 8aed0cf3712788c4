"""
Admitters: which built-in plugins decide on a request, and in which order.

Mutating plugins modify the object before the webhooks do; validating ones decide on the object as
it will be stored. Only new objects are changed. Namespaces with neither ranges nor quotas nor
labels of pod security cost a few lookups.
"""

from typing import Any

from kopf._sandbox.meta import requests
from kopf._sandbox.registry import approvals
from kopf._sandbox.registry.plugins import (
    default_classes,
    limit_ranges,
    pod_accounts,
    pod_security,
    resource_quotas,
    runtime_classes,
    subjects,
)
from kopf._sandbox.registry.rules import pods
from kopf._sandbox.storage import memory


class Admitter:
    """The built-in admission of one cluster."""

    def __init__(self, store: memory.Storage) -> None:
        self._store = store

    def mutate(
        self, request: requests.Request, obj: dict[str, Any], old: dict[str, Any] | None
    ) -> None:
        """Set the defaults of the cluster in a new object. Modifies the object."""
        subject = subjects.Subject(request, obj, old, self._store)
        if request.subresource or old is not None:
            return

        if subject.home == subjects.PODS:
            limit_ranges.mutate(subject)
            pod_accounts.mutate(subject)
            if obj['spec'].get('runtimeClassName') or obj['spec'].get('overhead'):
                pods.add_tolerations(obj['spec'])
                runtime_classes.mutate(subject)
        elif subject.home in (subjects.CLAIMS, default_classes.INGRESSES):
            default_classes.mutate(subject)
        elif subject.home == approvals.REQUESTS:
            _sign(subject)

    def validate(
        self, request: requests.Request, obj: dict[str, Any], old: dict[str, Any] | None
    ) -> None:
        """Raise the API's 403 if the cluster does not admit an object."""
        subject = subjects.Subject(request, obj, old, self._store)
        if request.subresource:
            return
        if subject.is_new and subject.home in (subjects.PODS, subjects.CLAIMS):
            limit_ranges.validate(subject)
        pod_security.validate(subject)

    def charge(
        self, request: requests.Request, obj: dict[str, Any], old: dict[str, Any] | None
    ) -> None:
        """Raise the API's 403 if an object exceeds a quota of its namespace. It goes last."""
        quotas = self._store.shelf(resource_quotas.QUOTAS)
        if request.subresource or not request.namespace or not quotas.keys:
            return
        resource_quotas.validate(subjects.Subject(request, obj, old, self._store))


def _sign(subject: subjects.Subject) -> None:
    """Note who asks for a certificate. Modifies the request for it."""
    user = subject.request.user
    spec = subject.obj.setdefault('spec', {})
    extra = {name: list(values) for name, values in user.extra.items()}
    known = {'username': user.name, 'uid': user.uid, 'groups': list(user.groups), 'extra': extra}

    for name, value in known.items():
        spec.pop(name, None)
        if value:
            spec[name] = value
