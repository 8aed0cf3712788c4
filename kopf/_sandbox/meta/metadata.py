"""
Metadata: the requirements for the metadata of all objects, and the fields that the API sets itself.

The metadata must be decoded already: its values have the right types.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, go_format, naming

ANNOTATIONS_LIMIT: Final = 256 * 1024
SUFFIX_ALPHABET: Final = 'bcdfghjklmnpqrstvwxz2456789'
"""The characters of generated names: no vowels, and no digits that look like them."""

_SUFFIX_LENGTH: Final = 5
_PREFIX_LENGTH: Final = 63 - _SUFFIX_LENGTH
_STANDARD_FINALIZERS: Final = frozenset(('kubernetes', 'orphan', 'foregroundDeletion'))
_NEITHER: Final = 'name is neither a standard finalizer name nor is it fully qualified'
_IMMUTABLE: Final = (
    'name',
    'namespace',
    'uid',
    'creationTimestamp',
    'deletionTimestamp',
    'deletionGracePeriodSeconds',
)
_RESTORED: Final = ('generation', 'creationTimestamp', 'deletionTimestamp')
_WIPED: Final = ('deletionTimestamp', 'deletionGracePeriodSeconds', 'selfLink')
_STRINGS: Final = frozenset(('name', 'namespace', 'uid'))


def validate_metadata(
    meta: Mapping[str, Any],
    *,
    namespaced: bool,
    name_rule: naming.Check = naming.check_subdomain,
    field: str = 'metadata',
    standard_finalizers: bool = False,
) -> list[errors.FieldError]:
    """Return the problems of the metadata; most kinds have the stricter ``standard_finalizers``."""
    problems = _validate_names(meta, name_rule, field)
    namespace = meta.get('namespace') or ''
    if namespaced and not namespace:
        problems.append(errors.required(f'{field}.namespace'))
    elif namespaced:
        problems += [
            errors.invalid_value(f'{field}.namespace', namespace, text)
            for text in naming.check_label(namespace)
        ]
    elif namespace:
        problems.append(errors.forbidden_field(f'{field}.namespace', 'not allowed on this type'))

    generation = meta.get('generation') or 0
    if generation < 0:
        problems.append(
            errors.invalid_value(
                f'{field}.generation', generation, 'must be greater than or equal to 0'
            )
        )

    problems += _validate_details(meta, field)
    problems += _validate_finalizers(meta.get('finalizers') or (), field)
    return problems + (validate_standard_finalizers(meta, field) if standard_finalizers else [])


def validate_metadata_update(
    new: Mapping[str, Any], old: Mapping[str, Any]
) -> list[errors.FieldError]:
    """Return the forbidden changes of the metadata, and its wrong values."""
    problems = []
    if old.get('deletionTimestamp'):
        added = sorted({*(new.get('finalizers') or ())} - {*(old.get('finalizers') or ())})
        if added:
            listed = ', '.join(json.dumps(name, ensure_ascii=False) for name in added)
            problems.append(
                errors.forbidden_field(
                    'metadata.finalizers',
                    'no new finalizers can be added if the object is being deleted, '
                    f'found new finalizers []string{{{listed}}}',
                )
            )

    if not new.get('resourceVersion'):
        problems.append(
            errors.invalid_value('metadata.resourceVersion', '', 'must be specified for an update')
        )

    if (new.get('generation') or 0) < (old.get('generation') or 0):
        problems.append(
            errors.invalid_value(
                'metadata.generation', new.get('generation') or 0, 'must not be decremented'
            )
        )

    for name in _IMMUTABLE:
        if new.get(name) != old.get(name):
            value = new.get(name, '' if name in _STRINGS else None)
            problems.append(errors.invalid_value(f'metadata.{name}', value, 'field is immutable'))

    return problems + _validate_details(new, 'metadata')


def validate_common_update(
    new: Mapping[str, Any], old: Mapping[str, Any], *, namespaced: bool
) -> list[errors.FieldError]:
    """Return the problems of an update by the rules of all kinds; each kind repeats most of it."""
    return [
        *validate_metadata(new, namespaced=namespaced, name_rule=naming.check_path_segment),
        *validate_metadata_update(new, old),
    ]


def validate_standard_finalizers(
    meta: Mapping[str, Any], field: str = 'metadata'
) -> list[errors.FieldError]:
    """Return errors for finalizers with no domain, except for the standard ones."""
    return [
        errors.invalid_value(f'{field}.finalizers[{index}]', name, _NEITHER)
        for index, name in enumerate(meta.get('finalizers') or ())
        if '/' not in name and name not in _STANDARD_FINALIZERS
    ]


def list_warnings(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Return warnings about new finalizers with no domain, for the kinds that allow them."""
    added = sorted({*(new.get('finalizers') or ())} - {*(old.get('finalizers') or ())})
    return [
        f'metadata.finalizers: {errors.render(name)}: prefer a domain-qualified finalizer name to '
        'avoid accidental conflicts with other finalizer writers'
        for name in added
        if '/' not in name and name not in _STANDARD_FINALIZERS
    ]


def validate_labels(labels: Mapping[str, str], field: str) -> list[errors.FieldError]:
    problems = []
    for key, value in labels.items():
        problems += [errors.invalid_value(field, key, text) for text in naming.check_key(key)]
        problems += [
            errors.invalid_value(field, value, text) for text in naming.check_label_value(value)
        ]
    return problems


def validate_annotations(annotations: Mapping[str, str], field: str) -> list[errors.FieldError]:
    problems = [
        errors.invalid_value(field, key, text)
        for key in annotations
        for text in naming.check_key(key.lower())
    ]
    size = sum(_measure(key) + _measure(value) for key, value in annotations.items())
    return (
        [*problems, errors.too_long(field, ANNOTATIONS_LIMIT)]
        if size > ANNOTATIONS_LIMIT
        else problems
    )


def _measure(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode('utf-8', 'surrogatepass'))


def _validate_names(
    meta: Mapping[str, Any], name_rule: naming.Check, field: str
) -> list[errors.FieldError]:
    name = meta.get('name') or ''
    prefix = meta.get('generateName') or ''
    problems = [
        errors.invalid_value(f'{field}.generateName', prefix, text)
        for text in (naming.check_prefix(name_rule, prefix) if prefix else ())
    ]
    if not name:
        return [*problems, errors.required(f'{field}.name', 'name or generateName is required')]
    return problems + [
        errors.invalid_value(f'{field}.name', name, text) for text in name_rule(name)
    ]


def _validate_details(meta: Mapping[str, Any], field: str) -> list[errors.FieldError]:
    labels = meta.get('labels')
    annotations = meta.get('annotations')
    owners = meta.get('ownerReferences')

    return [
        *(validate_labels(labels, f'{field}.labels') if labels else ()),
        *(validate_annotations(annotations, f'{field}.annotations') if annotations else ()),
        *(_validate_owners(owners, f'{field}.ownerReferences') if owners else ()),
    ]


def _validate_owners(owners: Sequence[Mapping[str, Any]], field: str) -> list[errors.FieldError]:
    problems = []
    controller = ''
    for owner in owners:
        problems += _validate_owner(owner, field)
        if not owner.get('controller'):
            continue
        named = f'{owner.get("kind", "")}/{owner.get("name", "")}'
        if controller:
            problems.append(
                _refuse_owners(
                    field,
                    [_order_owner(item) for item in owners],
                    'Only one reference can have Controller set to true. '
                    f'Found "true" in references for {controller} and {named}',
                )
            )
        controller = controller or named

    return problems


def _validate_owner(owner: Mapping[str, Any], field: str) -> list[errors.FieldError]:
    problems = []
    api_version = owner.get('apiVersion') or ''
    if not api_version or api_version.count('/') > 1 or api_version.endswith('/'):
        problems.append(
            errors.invalid_value(f'{field}.apiVersion', api_version, 'version must not be empty')
        )

    problems += [
        errors.invalid_value(f'{field}.{name}', '', 'must not be empty')
        for name in ('kind', 'name', 'uid')
        if not owner.get(name)
    ]
    if (api_version, owner.get('kind')) == ('v1', 'Event'):
        problems.append(
            _refuse_owners(
                field, _order_owner(owner), '/v1, Kind=Event is disallowed from being an owner'
            )
        )

    return problems


def _refuse_owners(field: str, shown: Any, detail: str) -> errors.FieldError:
    text = json.dumps(shown, separators=(',', ':'), ensure_ascii=False)
    return errors.FieldError('FieldValueInvalid', field, f'Invalid value: {text}: {detail}')


def _order_owner(owner: Mapping[str, Any]) -> dict[str, Any]:
    names = ('apiVersion', 'kind', 'name', 'uid', 'controller', 'blockOwnerDeletion')
    return {name: owner[name] for name in names if name in owner}


def _validate_finalizers(finalizers: Sequence[str], field: str) -> list[errors.FieldError]:
    problems = [
        errors.invalid_value(f'{field}.finalizers', name, text)
        for name in finalizers
        for text in naming.check_key(name)
    ]
    if 'orphan' in finalizers and 'foregroundDeletion' in finalizers:
        problems.append(
            errors.invalid_value(
                f'{field}.finalizers',
                list(finalizers),
                'finalizer orphan and foregroundDeletion cannot be both set',
            )
        )

    return problems


def prepare_create(
    obj: dict[str, Any],
    *,
    now: datetime.datetime,
    make_uid: Callable[[], str],
    make_suffix: Callable[[], str],
) -> None:
    """
    Set the server's fields in the metadata of a new object, and remove those that clients may not
    set. Modifies the object.

    ``make_suffix`` returns the five random characters of generated names, out of `SUFFIX_ALPHABET`.
    """
    wipe(obj)
    meta = obj['metadata']
    meta['uid'] = make_uid()
    meta['creationTimestamp'] = now.astimezone(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
    if meta.get('generateName') and not meta.get('name'):
        meta['name'] = meta['generateName'][:_PREFIX_LENGTH] + make_suffix()


def wipe(obj: dict[str, Any]) -> None:
    """Remove the metadata that clients may not set in new objects, before it becomes owned."""
    meta = obj.setdefault('metadata', {})
    for name in _WIPED:
        meta.pop(name, None)


def check_new_version(obj: Mapping[str, Any]) -> None:
    """
    Raise the API's 500 if a new object already has a version (not checked in dry runs). As in the
    API, texts that are no versions are ignored.
    """
    try:
        version = go_format.parse_uint(obj['metadata'].get('resourceVersion') or '0')
    except ValueError:
        return

    if version:
        raise errors.ApiError(500, '', 'resourceVersion should not be set on objects to be created')


def parse_version(obj: Mapping[str, Any]) -> int:
    """Return the version that an update is based on, or 0; raise the API's 500 if malformed."""
    text = obj['metadata'].get('resourceVersion') or ''
    try:
        return go_format.parse_uint(text) if text else 0
    except ValueError as e:
        raise errors.ApiError(500, '', str(e)) from None


def prepare_update(new: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Restore the metadata that clients may not change. Modifies the new object."""
    meta = new['metadata']
    known = old['metadata']
    meta.pop('selfLink', None)
    meta.pop('generation', None)
    meta.update({name: known[name] for name in _RESTORED if name in known})
    if not meta.get('uid'):
        meta['uid'] = known['uid']
    if 'deletionGracePeriodSeconds' in known and meta.get('deletionGracePeriodSeconds') is None:
        meta['deletionGracePeriodSeconds'] = known['deletionGracePeriodSeconds']
