"""
Server-side apply: the changes of fields and owners when an object is updated or a configuration is
applied.

All functions are pure: they do not modify their arguments, and the results share parts with them.
Defaulting and validation are not done here: callers set the defaults before, and validate after.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kopf._sandbox.apply import fieldsets, managed_fields, merging, ownership
from kopf._sandbox.meta import errors, go_format, schemas

FIRST_MANAGER: Final = 'before-first-apply'
KUBECTL_MANAGER: Final = 'kubectl'
LAST_APPLIED: Final = 'kubectl.kubernetes.io/last-applied-configuration'
MAX_ANNOTATIONS_SIZE: Final = 256 * 1024

Conflict: TypeAlias = tuple[managed_fields.Entry, fieldsets.FieldSet]
"""An owner, and its fields that another manager wants to change."""


def record_update(
    live: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    schema: schemas.Schema | None,
    author: managed_fields.Author,
) -> list[managed_fields.Entry] | None:
    """
    Return the managed fields of an object after its creation (``live`` is ``None``) or update.

    The author becomes the only owner of all added or modified fields; removed fields have no
    owners. If nothing changes, the result is the same list as in the live object. If the live
    object has no managed fields (users can reset them), they are not recorded anymore.
    """
    entries = managed_fields.choose_entries(live, new, author)
    if live is None:
        live = ownership.build_baseline(new, schema)
    elif not entries:
        return None

    comparison = _compare(live, new, schema, author)
    if not comparison.changed and not comparison.removed:
        return entries or None
    return managed_fields.merge_oldest(managed_fields.record(entries, comparison, author)) or None


def apply(
    live: Mapping[str, Any] | None,
    config: Any,
    *,
    schema: schemas.Schema | None,
    author: managed_fields.Author,
    force: bool = False,
) -> dict[str, Any]:
    """
    Apply a configuration; return the new object with its managed fields, but not defaulted yet.

    Fields that the author applied before and does not apply now are removed, unless they have other
    owners. Changing values of other owners is a conflict; if forced, the author takes over these
    fields. Without changes, the result is equal to the live object.
    """
    config = _check_config(live, config, author)
    schema = ownership.as_object(schema)
    complaints = merging.check(config, schema)
    if complaints:
        raise _untyped('patch', config, complaints)

    entries = managed_fields.read_entries(live)
    if live is not None and not entries:
        first = dataclasses.replace(author, manager=FIRST_MANAGER)
        entries = managed_fields.record(
            [], _compare(ownership.build_baseline(live, schema), live, schema, author), first
        )

    try:
        return _apply(live or {}, config, entries, schema=schema, author=author, force=force)
    except ValueError as e:
        raise _untyped('live', live or {}, [str(e)]) from e


def _apply(
    live: Mapping[str, Any],
    config: Mapping[str, Any],
    entries: list[managed_fields.Entry],
    *,
    schema: schemas.Schema,
    author: managed_fields.Author,
    force: bool,
) -> dict[str, Any]:
    mine = managed_fields.identify_author(author, 'Apply')
    last = next((entry for entry in entries if managed_fields.identify(entry) == mine), None)
    others = [entry for entry in entries if entry is not last]
    mentioned = _exclude_reset(ownership.extract(config, schema), author)
    merged = merging.merge(live, config, schema)

    if last is not None and fieldsets.difference(last['fieldsV1'], mentioned):
        merged = _prune(
            merged, last['fieldsV1'], [mentioned, *(entry['fieldsV1'] for entry in others)], schema
        )

    comparison = _compare(live, merged, schema, author)
    conflicts = [] if force else _find_conflicts(others, comparison.changed)
    if conflicts and author.manager == KUBECTL_MANAGER:
        conflicts = _find_conflicts(
            others, fieldsets.difference(comparison.changed, _read_last_applied(live, schema))
        )

    if conflicts:
        raise _conflict(conflicts)

    time = (
        author.now
        if comparison.changed or comparison.removed
        else last.get('time')
        if last is not None
        else None
    )
    result = managed_fields.disown(others, comparison)
    if fields := ownership.strip(mentioned):
        result.append(managed_fields.build_entry(mine, author.api_version, fields, time))
    return managed_fields.put_entries(_renew_last_applied(merged, config, author), result)


def _check_config(
    live: Mapping[str, Any] | None, config: Any, author: managed_fields.Author
) -> dict[str, Any]:
    if not isinstance(config, dict | None):
        raise errors.bad_request(
            'error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot '
            f'unmarshal {go_format.json_type(config)} into Go value of type map[string]interface '
            '{}'
        )

    checked: dict[str, Any] = config or {}
    kind = live.get('kind') if live is not None else checked.get('kind')
    if checked.get('apiVersion') != author.api_version or checked.get('kind') != kind:
        raise errors.bad_request(f'invalid object type: {describe_type(checked)}')

    metadata = checked.get('metadata')
    if isinstance(metadata, dict) and metadata.get('managedFields') is not None:
        raise errors.bad_request('metadata.managedFields must be nil')
    return checked


def _untyped(role: str, obj: Mapping[str, Any], complaints: Sequence[str]) -> errors.ApiError:
    metadata = obj.get('metadata')
    names = metadata if isinstance(metadata, dict) else {}
    listed = complaints[0] if len(complaints) == 1 else '\n  '.join(('errors:', *complaints))

    return errors.ApiError(
        500,
        '',
        f'failed to create typed {role} object ({names.get("namespace", "")}/'
        f'{names.get("name", "")}; {describe_type(obj)}): {listed}',
    )


def describe_type(obj: Mapping[str, Any]) -> str:
    """Format the kind of an object as in the messages: ``kopf.dev/v1, Kind=KopfExample``."""
    group, _, version = str(obj.get('apiVersion') or '').rpartition('/')
    return f'{group}/{version}, Kind={obj.get("kind") or ""}'


def _prune(
    merged: dict[str, Any],
    last: fieldsets.FieldSet,
    owned: Iterable[fieldsets.FieldSet],
    schema: schemas.Schema,
) -> dict[str, Any]:
    """Remove the fields that the author has stopped applying, if they have no other owners."""
    kept: fieldsets.FieldSet = {}
    for fields in owned:
        kept = fieldsets.union(kept, fields)
    last = ownership.ensure_structures(last, schema)
    kept = ownership.ensure_structures(kept, schema)
    had = _extract_all(merged, schema)
    left = _extract_all(merging.remove(merged, last, schema), schema)
    unowned = fieldsets.difference(had, fieldsets.union(left, kept))
    left = _extract_all(merging.remove(merged, unowned, schema), schema)
    doomed = fieldsets.intersection(fieldsets.difference(had, left), last)
    pruned: dict[str, Any] = merging.remove(merged, doomed, schema)

    return pruned


def _extract_all(obj: Mapping[str, Any], schema: schemas.Schema) -> fieldsets.FieldSet:
    return ownership.ensure_structures(ownership.extract(obj, schema), schema)


def _compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    schema: schemas.Schema | None,
    author: managed_fields.Author,
) -> ownership.Comparison:
    changed, removed = ownership.compare(old, new, schema)
    return ownership.Comparison(_exclude_reset(changed, author), _exclude_reset(removed, author))


def _exclude_reset(fields: fieldsets.FieldSet, author: managed_fields.Author) -> fieldsets.FieldSet:
    for path in author.reset_fields:
        fields = fieldsets.exclude(fields, tuple(f'f:{name}' for name in path.split('.')))
    return fields


def _find_conflicts(
    entries: Iterable[managed_fields.Entry], changed: fieldsets.FieldSet
) -> list[Conflict]:
    found = ((entry, fieldsets.intersection(entry['fieldsV1'], changed)) for entry in entries)
    return sorted(
        ((entry, fields) for entry, fields in found if fields),
        key=lambda conflict: managed_fields.identify(conflict[0]),
    )


def _conflict(conflicts: Sequence[Conflict]) -> errors.ApiError:
    listed = [
        (
            _describe_manager(entry),
            [fieldsets.render_path(path) for path in fieldsets.iter_paths(fields)],
        )
        for entry, fields in conflicts
    ]
    causes = [
        {'reason': 'FieldManagerConflict', 'message': f'conflict with {who}', 'field': path}
        for who, paths in listed
        for path in paths
    ]
    if len(causes) == 1:
        text = f'1 conflict: {causes[0]["message"]}: {causes[0]["field"]}'
    else:
        lines = [
            line
            for who, paths in listed
            for line in (f'conflicts with {who}:', *(f'- {path}' for path in paths))
        ]
        text = '\n'.join((f'{len(causes)} conflicts: {lines[0]}', *lines[1:]))

    return errors.ApiError(409, 'Conflict', f'Apply failed with {text}', details={'causes': causes})


def _describe_manager(entry: managed_fields.Entry) -> str:
    text = go_format.quoted(entry.get('manager', ''))
    if entry.get('subresource'):
        text += f' with subresource {go_format.quoted(entry["subresource"])}'
    return text if entry['operation'] == 'Apply' else f'{text} using {entry["apiVersion"]}'


def _read_last_applied(live: Mapping[str, Any], schema: schemas.Schema) -> fieldsets.FieldSet:
    """Return the fields applied on the client side and not changed since then."""
    try:
        config = json.loads(_get_annotations(live)[LAST_APPLIED])
    except (KeyError, TypeError, ValueError):
        return {}

    if not isinstance(config, dict) or config.get('apiVersion') != live.get('apiVersion'):
        return {}
    if merging.check(config, schema):
        return {}

    comparison = ownership.compare(config, live, schema)
    fields = fieldsets.difference(ownership.extract(config, schema), comparison.changed)
    return fieldsets.difference(fields, comparison.removed)


def _renew_last_applied(
    merged: Mapping[str, Any], config: Mapping[str, Any], author: managed_fields.Author
) -> Mapping[str, Any]:
    """Update the annotation of client-side apply, if it exists, for kubectl to use it later."""
    annotations = _get_annotations(merged)
    if author.manager != KUBECTL_MANAGER or not annotations.get(LAST_APPLIED):
        return merged

    applied = {
        name: value for name, value in _get_annotations(config).items() if name != LAST_APPLIED
    }
    metadata = {**(config.get('metadata') or {}), 'annotations': applied}
    if not applied:
        del metadata['annotations']
    renewed = {
        **annotations,
        LAST_APPLIED: f'{go_format.encode({**config, "metadata": metadata})}\n',
    }
    if (
        sum(len(str(part).encode()) for pair in renewed.items() for part in pair)
        > MAX_ANNOTATIONS_SIZE
    ):
        del renewed[LAST_APPLIED]

    return {**merged, 'metadata': {**merged['metadata'], 'annotations': renewed}}


def _get_annotations(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get('metadata')
    annotations = metadata.get('annotations') if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}
