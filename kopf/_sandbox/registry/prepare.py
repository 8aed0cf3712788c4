"""
Preparation: the steps between a request and the storage.

The steps are the same for built-in and custom resources: the identity is checked against the URL,
unknown fields are dropped or refused, defaults are set, the fields of the server or of other
endpoints are restored, and the result is validated. All functions depend only on the request and
the objects; nothing is stored here.
"""

import dataclasses
import datetime
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from kopf._sandbox.apiextensions import crds
from kopf._sandbox.apply import server_side
from kopf._sandbox.cel import availability
from kopf._sandbox.meta import builtins, errors, kinds, metadata, requests, schemas
from kopf._sandbox.registry import approvals, defaulting, deletion, strategies
from kopf._sandbox.registry.rules import entries
from kopf._sandbox.schema import jsonpaths, pruning, validation

YAML_ERRORS = 'yaml: unmarshal errors:\n  '
CRD = ('apiextensions.k8s.io', 'CustomResourceDefinition')
_STATUS_KEEPERS = ('Node',)  # their status can be set on creation
_LABEL_KEEPERS = ('Deployment',)  # their labels cannot be changed together with the status
CEL_WARNING = (
    'x-kubernetes-validations are not evaluated without the library cel-expr-python: objects are '
    'accepted regardless of these rules'
)


@dataclasses.dataclass(frozen=True)
class Sources:
    """The sources of the values that clients may not choose."""

    now: Callable[[], datetime.datetime]
    make_uid: Callable[[], str]
    allocator: entries.Allocator
    load_priorities: Callable[[], Mapping[str, Mapping[str, Any]]]

    def format_now(self) -> str:
        return deletion.format_time(self.now())

    def make_suffix(self) -> str:
        return ''.join(random.choices(metadata.SUFFIX_ALPHABET, k=5))

    def make_site(self) -> entries.Site:
        return entries.Site(self.format_now(), self.allocator, self.load_priorities())


def decode_object(request: requests.Request, body: Any) -> dict[str, Any]:
    """
    Check that the body is an object of the request's resource and name; drop the unknown fields.

    The body is modified, and the result shares its parts.
    """
    _check_is_object(request.resource, body)
    if request.verb == 'patch':
        _check_patched_kind(request.resource, body)
    _check_kind(request.resource, body)
    if body.get('metadata') is None:
        body['metadata'] = {}
    decode_fields(request, body)
    _check_identity(request, body['metadata'])
    return {
        'kind': body.pop('kind'),
        'apiVersion': body.pop('apiVersion'),
        'metadata': body.pop('metadata'),
        **body,
    }


def decode_fields(request: requests.Request, obj: dict[str, Any]) -> None:
    """Drop or refuse unknown fields, and refuse values of wrong types. Modifies the object."""
    resource = request.resource
    schema = request.resource.schema
    if schema is None:
        return

    shown = _dump(obj) if request.verb == 'patch' and is_strict(request) else ''
    unknown = pruning.prune(obj, schema)
    if unknown or request.duplicates or request.repeated_lines:
        _report_unknown(request, unknown, shown)
    if not resource.custom:
        refusal = strategies.check_types(obj, schema, resource.kind, resource.version)
        if refusal is not None and request.verb == 'patch':
            raise _refuse_patch(_dump(obj), refusal.message.partition(': ')[2])
        if refusal is not None:
            raise refusal


def check_applied(request: requests.Request, config: Any) -> None:
    """Check that the applied configuration is for the resource of the request."""
    resource = request.resource
    _check_is_object(resource, config)
    if (config.get('apiVersion'), config.get('kind')) != (resource.api_version, resource.kind):
        raise errors.bad_request(f'invalid object type: {server_side.describe_type(config)}')
    meta = config.setdefault('metadata', {})
    if not isinstance(meta, dict):
        raise errors.bad_request('metadata of the applied configuration must be an object')


def set_defaults(request: requests.Request, obj: dict[str, Any]) -> None:
    """Set the defaults of unset fields. Modifies the object."""
    resource = request.resource
    schema = request.resource.schema
    if (resource.group, resource.kind) == CRD:
        crds.default_crd(obj)
    elif not resource.custom:
        defaulting.apply_kind_defaults(resource.group, resource.version, resource.kind, obj)
    elif schema is not None:
        pruning.apply_defaults(obj, schema)


def prepare_create(request: requests.Request, obj: dict[str, Any], sources: Sources) -> None:
    """Set the server's fields, and remove those that clients may not set. Modifies the object."""
    resource = request.resource
    if not request.dry_run:
        metadata.check_new_version(obj)
    obj['metadata'].pop('resourceVersion', None)
    metadata.prepare_create(
        obj, now=sources.now(), make_uid=sources.make_uid, make_suffix=sources.make_suffix
    )
    if (resource.group, resource.kind) == CRD:
        obj['status'] = crds.build_initial_status(obj)
    elif resource.has_status and resource.kind not in _STATUS_KEEPERS:
        obj.pop('status', None)

    strategies.prepare_create(resource.group, resource.kind, obj, sources.make_site())


def prepare_update(
    request: requests.Request, obj: dict[str, Any], old: Mapping[str, Any], sources: Sources
) -> dict[str, Any]:
    """Restore the fields of the server and of other endpoints; return the object to store."""
    resource = request.resource
    metadata.prepare_update(obj, old)
    if request.subresource in ('status', 'approval'):
        return _take_any_status(request, obj, old, sources)
    if request.subresource == 'binding':
        return _take_node(obj, old, sources.format_now())
    if request.subresource == 'finalize':
        return {
            **old,
            'metadata': {**old['metadata'], 'finalizers': obj['metadata'].get('finalizers') or []},
            'spec': obj.get('spec') or {},
        }

    if resource.has_status or (resource.group, resource.kind) == CRD:
        _copy_field(obj, old, 'status')
    if (resource.group, resource.kind) == CRD:
        obj['status'] = {
            **(obj.get('status') or {}),
            'storedVersions': crds.find_stored_versions(obj, old),
        }

    counts_status = resource.custom and not resource.has_status
    strategies.prepare_update(
        resource.group, resource.kind, obj, old, sources.make_site(), counts_status=counts_status
    )
    return obj


def _take_any_status(
    request: requests.Request, obj: dict[str, Any], old: Mapping[str, Any], sources: Sources
) -> dict[str, Any]:
    if request.resource.home == approvals.REQUESTS:
        is_approval = request.subresource == 'approval'
        now = sources.format_now()
        status = approvals.merge_status(obj, old, is_approval=is_approval, now=now)
        obj = {**obj, 'status': status}
    return _take_status(request.resource, obj, old)


def list_reset_fields(request: requests.Request) -> tuple[str, ...]:
    """Return the fields that are not writable through the endpoint, so they do not become owned."""
    if request.subresource in ('status', 'approval'):
        return ('spec', 'metadata.labels') if request.resource.kind in _LABEL_KEEPERS else ('spec',)
    return ('status',) if request.resource.has_status else ()


def validate(
    request: requests.Request, obj: dict[str, Any], old: Mapping[str, Any] | None = None
) -> None:
    """Raise the API's 422 with all problems of the object. Bindings are not validated."""
    if request.subresource == 'binding':
        return

    resource = request.resource
    schema = request.resource.schema
    if old is None:
        problems = strategies.validate_create(
            resource.group, resource.kind, obj, namespaced=resource.namespaced
        )
    else:
        problems = strategies.validate_update(
            resource.group, resource.kind, obj, old, namespaced=resource.namespaced
        )

    if resource.home == approvals.REQUESTS and old is not None:
        is_approval = request.subresource == 'approval'
        problems += approvals.validate(obj, old, is_approval=is_approval)

    if (resource.group, resource.kind) == CRD:
        problems += crds.validate_crd(obj, old)
        request.warnings.extend([*crds.list_warnings(obj, old), *_warn_of_rules(obj)])
    elif resource.custom and schema is not None:
        problems += _validate_custom(request, obj, schema, old)

    if problems:
        raise errors.invalid(
            resource.home.group, resource.kind, obj['metadata'].get('name') or '', problems
        )

    if not resource.custom:
        request.warnings.extend(strategies.list_warnings(obj, old))
        return

    request.warnings.extend(
        metadata.list_warnings(obj['metadata'], old['metadata'] if old is not None else {})
    )


def _validate_custom(
    request: requests.Request,
    obj: dict[str, Any],
    schema: schemas.Schema,
    old: Mapping[str, Any] | None,
) -> list[errors.FieldError]:
    before = schemas.UNSET if old is None else old
    if request.subresource == 'status' and old is not None:
        problems = validation.validate_status(obj, schema, old)
    else:
        problems = validation.validate(obj, schema, old=before)

    if not validation.has_cel(schema) or not availability.is_available():
        return problems
    if any(problem.reason in validation.BLOCKING for problem in problems):
        return problems

    from kopf._sandbox.cel import validation_rules  # only if there are rules

    findings = validation_rules.validate(obj, schema, old=before)
    request.warnings.extend(str(found.problem) for found in findings if found.is_tolerated)
    return problems + [found.problem for found in findings if not found.is_tolerated]


def extract_fields(resource: kinds.Resource, obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the fields by which stored objects of this resource can be selected."""
    if not resource.selectable:
        return {}
    if not resource.custom:
        return builtins.extract_fields(resource, obj)
    return {
        path.removeprefix('.'): _show(jsonpaths.compile_path(path).get(obj, None))
        for path in resource.selectable
    }


def _dump(obj: Mapping[str, Any]) -> str:
    return json.dumps(obj, separators=(',', ':'), sort_keys=True)


def _refuse_patch(shown: str, why: str) -> errors.ApiError:
    """Build the error for a patch: it shows the whole result instead of the object's name."""
    return errors.invalid('', '', '', [errors.invalid_value('patch', shown, why)])


def _check_is_object(resource: kinds.Resource, body: Any) -> None:
    if isinstance(body, dict):
        return

    kind = {list: 'array', str: 'string', bool: 'bool', int: 'number', float: 'number'}.get(
        type(body), 'null'
    )
    raise errors.bad_request(
        f'the object provided is unrecognized (must be of type {resource.kind}): '
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {kind} "
        'into Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
        'Kind string "json:\\"kind,omitempty\\"" } '
        f'({json.dumps(body).encode().hex()})'
    )


def _check_kind(resource: kinds.Resource, body: dict[str, Any]) -> None:
    api_version = body.get('apiVersion')
    kind = body.get('kind')
    if resource.custom and (not kind or not api_version):
        shown = json.dumps(body, separators=(',', ':'))
        missing = 'Kind' if not kind else 'apiVersion'
        raise errors.bad_request(
            f'the object provided is unrecognized (must be of type {resource.kind}): '
            f"Object '{missing}' is missing in '{shown}' ({shown})"
        )

    api_version = api_version or resource.api_version
    kind = kind or resource.kind
    if not resource.custom:
        _check_builtin_kind(resource, str(api_version), str(kind))
    if api_version != resource.api_version:
        raise errors.bad_request(
            f'the API version in the data ({api_version}) does not match the expected API version '
            f'({resource.api_version})'
        )

    if kind != resource.kind:
        meta = body.get('metadata')
        name = str(meta.get('name') or '') if isinstance(meta, dict) else ''
        problem = errors.invalid_value('kind', kind, f'must be {resource.kind}')
        raise errors.invalid(resource.group, str(kind), name, [problem])

    body['apiVersion'] = api_version
    body['kind'] = kind


def _check_patched_kind(resource: kinds.Resource, body: dict[str, Any]) -> None:
    """Refuse patches that change the kind; the error differs from that for other requests."""
    api_version = str(body.get('apiVersion'))
    kind = str(body.get('kind'))
    if (api_version, kind) == (resource.api_version, resource.kind) or not body.get('apiVersion'):
        return
    if not resource.custom:
        raise _refuse_patch(_dump(body), errors.describe_unknown_kind(kind, api_version))

    if api_version != resource.api_version and kind == resource.kind:
        problem = errors.invalid_value('apiVersion', api_version, f'must be {resource.api_version}')
        group, _ = kinds.split_api_version(api_version)
        raise errors.invalid(group, kind, str(body['metadata'].get('name') or ''), [problem])


def _check_builtin_kind(resource: kinds.Resource, api_version: str, kind: str) -> None:
    """Refuse other built-in kinds: unknown, or not convertible to the expected one."""
    group, version = kinds.split_api_version(api_version)
    is_known = (group, version, kind) in builtins.load_definition_names()
    if is_known and kind == resource.kind:
        return

    package = resource.group.partition('.')[0] or 'core'
    why = (
        f'converting ({version}.{kind}) to ({package}.{resource.kind}): unknown conversion'
        if is_known
        else errors.describe_unknown_kind(kind, api_version)
    )
    text = (
        f'{kind} in version {errors.render(version)} cannot be handled as a {resource.kind}: {why}'
    )
    raise errors.bad_request(text)


def _check_identity(request: requests.Request, meta: dict[str, Any]) -> None:
    if request.namespace and meta.setdefault('namespace', request.namespace) != request.namespace:
        raise errors.bad_request(
            'the namespace of the provided object does not match the namespace sent on the request'
        )

    if not request.resource.namespaced:
        meta.pop('namespace', None)
    if request.name and not meta.get('name'):
        raise errors.bad_request(
            f'the name of the object ({request.name} based on URL) was undeterminable: '
            f'name must be provided'
        )
    if request.name and meta['name'] != request.name:
        raise errors.bad_request(
            f'the name of the object ({meta["name"]}) does not match '
            f'the name on the URL ({request.name})'
        )


def is_strict(request: requests.Request) -> bool:
    """Return whether unknown and repeated fields are errors instead of warnings."""
    return request.options.get('fieldValidation') == 'Strict'


def _report_unknown(request: requests.Request, unknown: list[str], shown: str) -> None:
    """Refuse or warn about unknown and repeated fields; ``shown`` is the result of a patch."""
    resource = request.resource
    texts = _describe_fields(request, unknown)
    lines = '\n  '.join(request.repeated_lines)
    repeated = [f'{YAML_ERRORS}{lines}'] if lines and is_strict(request) else request.repeated_lines
    texts = [*repeated, *texts]
    if is_strict(request) and shown:
        raise _refuse_patch(shown, f'strict decoding error: {", ".join(texts)}')
    if is_strict(request):
        raise errors.bad_request(
            f'{resource.kind} in version {errors.render(resource.version)} cannot be handled as a '
            f'{resource.kind}: strict decoding error: {", ".join(texts)}'
        )

    if request.options.get('fieldValidation') != 'Ignore':
        request.warnings.extend(texts)


def _describe_fields(request: requests.Request, unknown: list[str]) -> list[str]:
    """
    Describe repeated and unknown fields in the order of the API: that of the text for bodies of
    built-in objects, the repeated ones first for others.
    """
    repeated = [(path, f'duplicate field {errors.render(path)}') for path in request.duplicates]
    unknown = sorted(unknown) if request.verb == 'patch' else unknown
    fields = [*repeated, *((path, f'unknown field {errors.render(path)}') for path in unknown)]
    if request.positions and not request.resource.custom and request.verb != 'patch':
        fields.sort(key=lambda field: request.positions.get(field[0], len(request.positions)))
    return [text for _, text in fields]


def _take_status(
    resource: kinds.Resource, obj: dict[str, Any], old: Mapping[str, Any]
) -> dict[str, Any]:
    """Take only the status from the new object; for built-in resources, also the metadata."""
    result = dict(old) if resource.custom else {**old, 'metadata': obj['metadata']}
    result['metadata'] = dict(result['metadata'])
    if resource.kind in _LABEL_KEEPERS:
        _copy_field(result['metadata'], old['metadata'], 'labels')
    _copy_field(result['metadata'], obj['metadata'], 'managedFields')
    _copy_field(result, obj, 'status')
    return result


def _take_node(obj: dict[str, Any], old: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Take only the node of a pod, and note that the pod is scheduled."""
    status = old.get('status') or {}
    condition = {
        'type': 'PodScheduled',
        'status': 'True',
        'lastProbeTime': None,
        'lastTransitionTime': now,
    }
    others = [item for item in status.get('conditions') or () if item['type'] != condition['type']]

    return {
        **old,
        'metadata': obj['metadata'],
        'spec': {**old['spec'], 'nodeName': obj['spec'].get('nodeName') or ''},
        'status': {**status, 'conditions': [*others, condition]},
    }


def _copy_field(target: dict[str, Any], source: Mapping[str, Any], key: str) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def _warn_of_rules(crd: Mapping[str, Any]) -> list[str]:
    has_rules = '"x-kubernetes-validations"' in json.dumps(crd.get('spec'))
    return [CEL_WARNING] if has_rules and not availability.is_available() else []


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    return '' if value is None else str(value)
