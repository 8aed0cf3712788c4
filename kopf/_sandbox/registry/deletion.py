"""
Deletion: the decisions on an object that is requested to be deleted.

The decisions are pure: an object is either removed immediately, or marked as being deleted until
its finalizers or its grace period release it. The results are stored by `writer`; the controllers
continue the deletions.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any

from kopf._sandbox.apiextensions import crds
from kopf._sandbox.meta import errors, kinds
from kopf._sandbox.storage import memory

ORPHAN = 'orphan'
FOREGROUND = 'foregroundDeletion'
_POLICIES = ('Background', 'Foreground', 'Orphan')

RETURNED = frozenset(
    {
        ('', 'pods'),
        ('', 'services'),
        ('', 'serviceaccounts'),
        ('', 'persistentvolumes'),
        ('', 'persistentvolumeclaims'),
        ('', 'podtemplates'),
        ('', 'resourcequotas'),
        ('resource.k8s.io', 'deviceclasses'),
        ('resource.k8s.io', 'resourceclaims'),
        ('resource.k8s.io', 'resourceclaimtemplates'),
        ('resource.k8s.io', 'resourceslices'),
        ('storage.k8s.io', 'storageclasses'),
        ('storage.k8s.io', 'csidrivers'),
        ('storage.k8s.io', 'csinodes'),
        ('storage.k8s.io', 'volumeattachments'),
    }
)
"""The resources whose deletion is answered with the last state of the object, not a status."""


ORPHANING = frozenset({('', 'replicationcontrollers'), ('batch', 'jobs')})
"""The resources whose dependents are orphaned by default."""


CRD = ('apiextensions.k8s.io', 'CustomResourceDefinition')
NAMESPACE = ('', 'Namespace')
POD = ('', 'Pod')


class Verdict(enum.Enum):
    REMOVE = enum.auto()  # nothing blocks the removal
    DISMISS = enum.auto()  # the same, but it is marked before the removal
    MARK = enum.auto()  # it stays, marked with the deletion's time and finalizers
    WAIT = enum.auto()  # it is marked already, and nothing changes


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a deletion."""

    grace_period: int | None = None
    propagation: str = ''  # Background, Foreground, Orphan; '' for the resource's default
    uid: str = ''  # the preconditions
    version: str = ''
    dry_run: bool = False
    # The options as they were sent, for webhooks.
    body: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def parse_options(body: Mapping[str, Any] | None, query: Mapping[str, str]) -> Options:
    """Parse the decoded ``DeleteOptions`` of the body, or the query if there is no body."""
    given = _read_query(query) if body is None else body
    problems = _check_options(given)
    if problems:
        raise errors.invalid('meta.k8s.io', 'DeleteOptions', '', problems)

    preconditions = given.get('preconditions') or {}
    return Options(
        grace_period=_parse_grace(given.get('gracePeriodSeconds')),
        propagation=_choose_propagation(given),
        uid=preconditions.get('uid') or '',
        version=preconditions.get('resourceVersion') or '',
        dry_run=bool(given.get('dryRun')),
        body=body or {},
    )


def _check_options(given: Mapping[str, Any]) -> list[errors.FieldError]:
    propagation = given.get('propagationPolicy') or ''
    dry_run = given.get('dryRun') or []
    problems = []
    if dry_run and dry_run != ['All']:
        problems.append(errors.unknown_dry_run(dry_run))
    if propagation and propagation not in _POLICIES:
        supported = ['Foreground', 'Background', 'Orphan', 'nil']
        problems.append(errors.not_supported('propagationPolicy', propagation, supported))

    if propagation and given.get('orphanDependents') is not None:
        why = 'orphanDependents and deletionPropagation cannot be both set'
        problems.append(errors.invalid_value('propagationPolicy', propagation, why))

    return problems


def _choose_propagation(given: Mapping[str, Any]) -> str:
    """Return the policy by its name or by the old flag; they are never given together."""
    orphan = given.get('orphanDependents')
    if orphan is None:
        return given.get('propagationPolicy') or ''
    return 'Orphan' if orphan else 'Background'


def check_preconditions(resource: kinds.Resource, stored: memory.Stored, options: Options) -> None:
    """Raise the API's 409 if the object has another UID or version than required."""
    why = ''
    if options.uid and options.uid != stored.uid:
        why = (
            f'the UID in the precondition ({options.uid}) does not match the UID in record '
            f'({stored.uid}). The object might have been deleted and then recreated'
        )
    elif options.version and options.version != str(stored.version):
        why = (
            f'the ResourceVersion in the precondition ({options.version}) does not match '
            f'the ResourceVersion in record ({stored.version}). The object might have been modified'
        )

    if why:
        raise errors.conflict(resource.group, resource.kind, stored.name, why)


def mark(
    resource: kinds.Resource, obj: dict[str, Any], options: Options, now: datetime.datetime
) -> Verdict:
    """Decide on the deletion. The object is modified only if it must be stored as marked."""
    holds = _find_holds(resource, obj, options)
    verdict = _decide(resource, obj['metadata'], holds)
    if verdict in (Verdict.DISMISS, Verdict.MARK):
        _apply_holds(resource, obj, holds, now)
    return verdict


@dataclasses.dataclass(frozen=True)
class _Holds:
    """The reasons not to remove an object immediately."""

    finalizers: list[str]
    has_spec_finalizers: bool
    grace: int  # seconds

    @property
    def is_free(self) -> bool:
        return not (self.finalizers or self.has_spec_finalizers or self.grace)


def _find_holds(resource: kinds.Resource, obj: Mapping[str, Any], options: Options) -> _Holds:
    meta = obj['metadata']
    finalizers = choose_finalizers(meta.get('finalizers') or [], options.propagation)
    if (resource.group, resource.kind) == CRD and not _is_marked(meta):
        finalizers.append(crds.CLEANUP_FINALIZER)
    return _Holds(
        finalizers=finalizers,
        has_spec_finalizers=has_spec_finalizers(resource, obj),
        grace=_choose_grace(resource, obj, options),
    )


def _decide(resource: kinds.Resource, meta: Mapping[str, Any], holds: _Holds) -> Verdict:
    if holds.is_free:
        is_pod = (resource.group, resource.kind) == POD
        return Verdict.DISMISS if is_pod else Verdict.REMOVE
    has_changed = _is_rescheduled(meta, holds) or holds.finalizers != (meta.get('finalizers') or [])
    return Verdict.MARK if has_changed else Verdict.WAIT


def _apply_holds(
    resource: kinds.Resource, obj: dict[str, Any], holds: _Holds, now: datetime.datetime
) -> None:
    """Mark the object for deletion. Modifies the object."""
    meta = obj['metadata']
    was_marked = _is_marked(meta)
    is_rescheduled = _is_rescheduled(meta, holds)

    _set_or_pop(meta, 'finalizers', holds.finalizers)
    if is_rescheduled:
        meta['deletionTimestamp'] = format_time(now + datetime.timedelta(seconds=holds.grace))
        meta['deletionGracePeriodSeconds'] = holds.grace

    is_bumped = not was_marked and (resource.group, resource.kind) != CRD
    if is_bumped and meta.get('generation'):
        meta['generation'] += 1
    _note_termination(resource, obj)


def _is_marked(meta: Mapping[str, Any]) -> bool:
    return meta.get('deletionTimestamp') is not None


def _is_rescheduled(meta: Mapping[str, Any], holds: _Holds) -> bool:
    """Return whether the deletion time must be set: for the first time, or to an earlier one."""
    return not _is_marked(meta) or holds.grace < (meta.get('deletionGracePeriodSeconds') or 0)


def _note_termination(resource: kinds.Resource, obj: dict[str, Any]) -> None:
    """Report the deletion in the status of namespaces and CRDs."""
    if (resource.group, resource.kind) == NAMESPACE:
        obj.setdefault('status', {})['phase'] = 'Terminating'
    elif (resource.group, resource.kind) == CRD:
        crds.note_deletion(obj, has_begun=False)
    else:
        return

    obj['metadata'].pop('deletionGracePeriodSeconds', None)


def choose_finalizers(finalizers: list[str], propagation: str) -> list[str]:
    """Adjust the finalizers of the garbage collector to the propagation policy."""
    if not propagation:
        return list(finalizers)
    kept = [finalizer for finalizer in finalizers if finalizer not in (ORPHAN, FOREGROUND)]
    return kept + {'Orphan': [ORPHAN], 'Foreground': [FOREGROUND]}.get(propagation, [])


def is_released(resource: kinds.Resource, obj: Mapping[str, Any]) -> bool:
    """Return whether an object is being deleted, and nothing blocks its removal anymore."""
    meta = obj['metadata']
    return (
        meta.get('deletionTimestamp') is not None
        and not meta.get('finalizers')
        and not meta.get('deletionGracePeriodSeconds')
        and not has_spec_finalizers(resource, obj)
    )


def has_spec_finalizers(resource: kinds.Resource, obj: Mapping[str, Any]) -> bool:
    """Return whether a namespace has finalizers in its spec, besides those in the metadata."""
    return (resource.group, resource.kind) == NAMESPACE and bool(
        (obj.get('spec') or {}).get('finalizers')
    )


def build_answer(resource: kinds.Resource, stored: memory.Stored) -> dict[str, Any]:
    """Build the status about the removal of an object."""
    named = {
        'name': stored.name,
        'group': resource.group,
        'kind': resource.plural,
        'uid': stored.uid,
    }
    return {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Success',
        'details': {key: value for key, value in named.items() if value},
    }


def format_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')


def _choose_grace(resource: kinds.Resource, obj: Mapping[str, Any], options: Options) -> int:
    """Return the grace period in seconds; zero for all but running pods assigned to a node."""
    spec = obj.get('spec') or {}
    phase = (obj.get('status') or {}).get('phase')
    if (
        (resource.group, resource.kind) != POD
        or not spec.get('nodeName')
        or phase in ('Succeeded', 'Failed')
    ):
        return 0
    if options.grace_period is not None:
        return options.grace_period

    known = obj['metadata'].get('deletionGracePeriodSeconds')
    return int(known if known is not None else spec.get('terminationGracePeriodSeconds') or 0)


def _read_query(query: Mapping[str, str]) -> dict[str, Any]:
    flags = {'true': True, '1': True, 'false': False, '0': False}
    return {
        'propagationPolicy': query.get('propagationPolicy'),
        'gracePeriodSeconds': query.get('gracePeriodSeconds'),
        'orphanDependents': flags.get(query.get('orphanDependents', '')),
        'dryRun': [query['dryRun']] if query.get('dryRun') else [],
    }


def _parse_grace(value: Any) -> int | None:
    try:
        return None if value is None or value == '' else max(int(value), 0)
    except (TypeError, ValueError):
        raise errors.bad_request(
            f'gracePeriodSeconds must be a number, not {errors.render(value)}'
        ) from None


def _set_or_pop(mapping: dict[str, Any], key: str, value: Any) -> None:
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)
