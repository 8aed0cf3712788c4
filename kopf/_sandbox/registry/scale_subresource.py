"""
The scale subresource: ``Scale``, a small object with the number of replicas of another object.
"""

from collections.abc import Mapping
from typing import Any

from kopf._sandbox.apply import server_side
from kopf._sandbox.meta import errors, kinds, selectors
from kopf._sandbox.schema import jsonpaths

KIND = ('autoscaling/v1', 'Scale')

SCALES = kinds.Resource('autoscaling', 'v1', 'scales', 'scale', 'Scale', namespaced=True, verbs=())
"""The pseudo-resource of scales, only to encode them in responses."""


def build_scale(resource: kinds.Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Build the scale of an object; refuse if a custom object has no number of replicas."""
    scale = _get_scale(resource)
    replicas = jsonpaths.compile_path(scale.spec_path).get(obj, None)
    if replicas is None and resource.custom:
        raise errors.internal(
            f'the spec replicas field {errors.render(scale.spec_path)} does not exist'
        )

    status: dict[str, Any] = {
        'replicas': jsonpaths.compile_path(scale.status_path).get(obj, None) or 0
    }
    selector = _format_selector(scale, obj)
    if selector:
        status['selector'] = selector
    meta = {
        key: obj['metadata'][key]
        for key in ('name', 'namespace', 'uid', 'resourceVersion', 'creationTimestamp')
        if obj['metadata'].get(key)
    }
    return {
        'kind': 'Scale',
        'apiVersion': 'autoscaling/v1',
        'metadata': meta,
        'spec': {'replicas': replicas} if replicas else {},
        'status': status,
    }


def build_patchable(resource: kinds.Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Build the scale to be patched: an absent number of replicas is allowed."""
    try:
        return build_scale(resource, obj)
    except errors.ApiError:
        return {
            'kind': 'Scale',
            'apiVersion': 'autoscaling/v1',
            'metadata': dict(obj['metadata']),
            'spec': {},
            'status': {'replicas': 0},
        }


def scale_object(resource: kinds.Resource, obj: dict[str, Any], scale: Any) -> dict[str, Any]:
    """Set the number of replicas of a scale in the object, which is modified and returned."""
    _check_identity(obj['metadata'], scale)
    spec = scale.get('spec') if isinstance(scale, Mapping) else None
    replicas = (spec or {}).get('replicas', 0) if isinstance(spec, Mapping | None) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.bad_request(
            'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal '
            f'{errors.render(replicas)} into Go struct field ScaleSpec.spec.replicas '
            'of type int32'
        )

    if replicas < 0 and resource.custom:
        problem = errors.invalid_value(
            _get_scale(resource).spec_path, replicas, 'should be a non-negative integer'
        )
        raise errors.invalid(resource.group, resource.kind, obj['metadata']['name'], [problem])

    if replicas < 0:
        problem = errors.invalid_value(
            'spec.replicas', replicas, 'must be greater than or equal to 0'
        )
        raise errors.invalid('autoscaling', 'Scale', obj['metadata']['name'], [problem])

    version = (scale.get('metadata') or {}).get('resourceVersion')
    if version:
        obj['metadata']['resourceVersion'] = version
    jsonpaths.compile_path(_get_scale(resource).spec_path).set(obj, replicas)
    return obj


def build_applied(resource: kinds.Resource, config: Any) -> dict[str, Any]:
    """Build the configuration of the scaled object from the applied configuration of its scale."""
    is_scale = isinstance(config, dict) and (config.get('apiVersion'), config.get('kind')) == KIND
    if not is_scale or resource.custom:
        raise errors.bad_request(f'invalid object type: {server_side.describe_type(config or {})}')

    spec = config.get('spec') or {}
    kept = {'replicas': spec['replicas']} if 'replicas' in spec else {}
    return {
        'apiVersion': resource.api_version,
        'kind': resource.kind,
        'metadata': config.get('metadata') or {},
        'spec': kept,
    }


def reword_conflict(resource: kinds.Resource, error: errors.ApiError) -> errors.ApiError:
    """Name the version of scales in a conflict of field managers; keep all other errors."""
    details = dict(error.details or {})
    if error.reason != 'Conflict' or 'causes' not in details:
        return error

    old = f'using {resource.api_version}'
    new = f'using {KIND[0]}'
    details['causes'] = [
        {**cause, 'message': cause['message'].replace(old, new)} for cause in details['causes']
    ]

    return errors.ApiError(
        error.code, error.reason, error.message.replace(old, new), details=details
    )


def _check_identity(meta: Mapping[str, Any], scale: Any) -> None:
    """Refuse the scales of other objects."""
    given = (scale.get('metadata') or {}) if isinstance(scale, Mapping) else {}
    if not isinstance(given, Mapping):
        raise errors.bad_request('metadata of the scale must be an object')
    if (given.get('namespace') or meta.get('namespace')) != meta.get('namespace'):
        raise errors.bad_request(
            'the namespace of the provided object does not match the namespace sent on the request'
        )
    if not given.get('name'):
        raise errors.bad_request(
            f'the name of the object ({meta["name"]} based on URL) was undeterminable: '
            f'name must be provided'
        )
    if given['name'] != meta['name']:
        raise errors.bad_request(
            f'the name of the object ({given["name"]}) does not match '
            f'the name on the URL ({meta["name"]})'
        )


def is_owned(resource: kinds.Resource, obj: Mapping[str, Any]) -> bool:
    """Return whether the number of replicas has an owner: only then the scaling is recorded."""
    for entry in obj['metadata'].get('managedFields') or ():
        fields = entry.get('fieldsV1') or {}
        for name in _get_scale(resource).spec_path.strip('.').split('.'):
            fields = fields.get(f'f:{name}') if isinstance(fields, Mapping) else None
        if fields is not None:
            return True

    return False


def _get_scale(resource: kinds.Resource) -> kinds.Scale:
    if resource.scale is None:
        raise errors.no_such_resource()
    return resource.scale


def _format_selector(scale: kinds.Scale, obj: Mapping[str, Any]) -> str:
    """Format the selector: a string in custom objects, a map or an object in built-in ones."""
    selector = (
        jsonpaths.compile_path(scale.selector_path).get(obj, None) if scale.selector_path else None
    )
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, Mapping):
        return ''

    is_plain = not selector.keys() & {'matchLabels', 'matchExpressions'}
    return selectors.format_selector({'matchLabels': selector} if is_plain else selector)
