"""
Strategies: the preparation and validation of new and updated objects, by the rules of their kinds.

For custom resources, only the metadata is checked here: the rest is checked by their schemas. The
order of a write: decoding, defaulting, the metadata set by the server, the preparation, the
validation.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.codec import decoding
from kopf._sandbox.meta import equality, errors, metadata, naming, schemas
from kopf._sandbox.registry import rules
from kopf._sandbox.registry.rules import checks, entries

_TEMPLATES: Final = (
    ('spec', 'template', 'spec'),
    ('spec', 'jobTemplate', 'spec', 'template', 'spec'),
)
_OLD_CLASS: Final = 'kubernetes.io/ingress.class'
_USE_CLASS: Final = "please use 'spec.ingressClassName' instead"
_NEGATIVE: Final = 'must be >= 0; negative values are invalid and will be treated as 1'


def check_types(
    obj: dict[str, Any], schema: schemas.Schema, kind: str, version: str
) -> errors.ApiError | None:
    """
    Decode a built-in object to its normal form. Modifies the object.

    Returns the error if some values have wrong types; the object is then partially decoded and
    unusable.
    """
    try:
        decoding.decode_object(obj, schema, kind=kind, version=version)
    except errors.ApiError as e:
        return e

    return None


def prepare_create(group: str, kind: str, obj: dict[str, Any], site: entries.Site) -> None:
    """Set the server's fields in a new object: generation, status, etc. Modifies the object."""
    found = rules.find_rules(group, kind)
    if found.has_generation:
        obj['metadata']['generation'] = 1
    if found.initial_status is not None:
        obj['status'] = copy.deepcopy(found.initial_status)
    found.prepare_create(obj, site)


def prepare_update(
    group: str,
    kind: str,
    new: dict[str, Any],
    old: Mapping[str, Any],
    site: entries.Site,
    *,
    counts_status: bool = False,
) -> None:
    """Restore the server's fields, and update the generation. Modifies the new object."""
    found = rules.find_rules(group, kind)
    found.prepare_update(new, old, site)
    if is_generation_bumped(group, kind, new, old, counts_status=counts_status):
        new['metadata']['generation'] = (old['metadata'].get('generation') or 0) + 1


def is_generation_bumped(
    group: str,
    kind: str,
    new: Mapping[str, Any],
    old: Mapping[str, Any],
    *,
    counts_status: bool = False,
) -> bool:
    """
    Return whether this change increments the generation of an object.

    Changes of the status count only for custom resources without the status subresource.
    """
    if counts_status and not equality.is_same(new.get('status'), old.get('status')):
        return True
    return rules.find_rules(group, kind).is_bumped(new, old)


def has_generation(group: str, kind: str) -> bool:
    """Return whether new objects of this kind have a generation; deletions increment it too."""
    return rules.find_rules(group, kind).has_generation


def validate_create(
    group: str, kind: str, obj: Mapping[str, Any], *, namespaced: bool
) -> list[errors.FieldError]:
    """Return the problems of a new object."""
    found = rules.find_rules(group, kind)
    problems = (
        found.validate_metadata(obj, namespaced=namespaced)
        + found.validate(obj)
        + found.validate_new(obj)
    )
    if problems or found.name_rule is not None:
        return problems
    return metadata.validate_metadata(
        obj['metadata'], namespaced=namespaced, name_rule=naming.check_path_segment
    )


def validate_update(
    group: str, kind: str, new: Mapping[str, Any], old: Mapping[str, Any], *, namespaced: bool
) -> list[errors.FieldError]:
    """
    Return the problems of an updated object, and its forbidden changes.

    Problems of the metadata are repeated as many times as the API repeats them in the causes of its
    errors.
    """
    found = rules.find_rules(group, kind)
    problems = metadata.validate_common_update(
        new['metadata'], old['metadata'], namespaced=namespaced
    )
    if found.repeats_update:
        problems += metadata.validate_metadata_update(new['metadata'], old['metadata'])
        problems += (
            metadata.validate_standard_finalizers(new['metadata'])
            if found.standard_finalizers
            else []
        )

    wrong = found.validate_metadata(new, namespaced=namespaced) if found.repeats_metadata else []
    wrong += found.validate(new) if found.validates_updated else []
    changes = found.validate_update(new, old)

    return [*problems, *changes, *wrong] if found.changes_first else [*problems, *wrong, *changes]


def list_warnings(obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """Return the warnings about a new or changed object: its template of pods, its old fields."""
    for path in _TEMPLATES:
        found = checks.dig(obj, *path)
        known = checks.dig(old or {}, *path)
        grace = found.get('terminationGracePeriodSeconds') if isinstance(found, dict) else None
        if isinstance(grace, int) and grace < 0 and found != known:
            field = f'{".".join(path)}.terminationGracePeriodSeconds'
            return [f'{field}: {_NEGATIVE}']

    annotations = obj['metadata'].get('annotations') or {}
    is_old_ingress = old is None and obj.get('kind') == 'Ingress' and _OLD_CLASS in annotations
    return [f'annotation "{_OLD_CLASS}" is deprecated, {_USE_CLASS}'] if is_old_ingress else []


def allows_unconditional_update(group: str, kind: str) -> bool:
    """Return whether objects of this kind can be replaced without ``resourceVersion``."""
    return rules.find_rules(group, kind).allows_unconditional_update


def allows_create_on_update(group: str, kind: str) -> bool:
    """Return whether PUT creates absent objects of this kind."""
    return rules.find_rules(group, kind).allows_create_on_update
