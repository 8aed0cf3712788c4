"""
Defaults of pods: the defaults of pod specs, both in pods and in templates.
"""

from collections.abc import Iterator
from typing import Any, Final

from kopf._sandbox.registry.rules import checks

_FILE_MODE: Final = 0o644
_VOLUME_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    'secret': {'defaultMode': _FILE_MODE},
    'configMap': {'defaultMode': _FILE_MODE},
    'downwardAPI': {'defaultMode': _FILE_MODE},
    'projected': {'defaultMode': _FILE_MODE},
    'hostPath': {'type': ''},
    'iscsi': {'iscsiInterface': 'default'},
    'rbd': {'pool': 'rbd', 'user': 'admin', 'keyring': '/etc/ceph/keyring'},
    'azureDisk': {
        'cachingMode': 'ReadWrite',
        'fsType': 'ext4',
        'readOnly': False,
        'kind': 'Shared',
    },
    'scaleIO': {'storageMode': 'ThinProvisioned', 'fsType': 'xfs'},
}
_PROBES: Final = ('livenessProbe', 'readinessProbe', 'startupProbe')
_PROBE_DEFAULTS: Final = {
    'timeoutSeconds': 1,
    'periodSeconds': 10,
    'successThreshold': 1,
    'failureThreshold': 3,
}
_HTTP_DEFAULTS: Final = {'path': '/', 'scheme': 'HTTP'}


def fill(obj: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Set the unset fields. Modifies the object."""
    for name, value in defaults.items():
        if name not in obj:
            obj[name] = value


def default_template(template: dict[str, Any] | None) -> None:
    """Set the defaults of a pod template. Modifies it."""
    if template is not None:
        default_spec(template.setdefault('spec', {}))


def default_spec(spec: dict[str, Any]) -> None:
    """Set the defaults of a pod spec. Modifies the spec."""
    fill(
        spec,
        {
            'dnsPolicy': 'ClusterFirst',
            'restartPolicy': 'Always',
            'terminationGracePeriodSeconds': 30,
            'schedulerName': 'default-scheduler',
        },
    )
    if 'securityContext' not in spec:
        spec['securityContext'] = {}
    if account := spec.get('serviceAccountName') or spec.get('serviceAccount'):
        spec['serviceAccountName'] = spec['serviceAccount'] = account
    for volume in spec.get('volumes') or ():
        _default_volume(volume)
    for container in iterate_containers(spec):
        _default_container(container)
    if spec.get('hostNetwork'):
        _default_host_ports(spec)


def default_pod(pod: dict[str, Any]) -> None:
    """Set the defaults of a pod, including those that templates do not have. Modifies the pod."""
    spec = pod.setdefault('spec', {})
    default_spec(spec)
    fill(spec, {'enableServiceLinks': True})

    for container in (*(spec.get('containers') or ()), *(spec.get('initContainers') or ())):
        limits = checks.dig(container, 'resources', 'limits')
        if limits:
            fill(container['resources'].setdefault('requests', {}), limits)


def iterate_containers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ('initContainers', 'containers', 'ephemeralContainers'):
        yield from spec.get(name) or ()


def default_pull_policy(image: str) -> str:
    """Return the pull policy: always for mutable images, once for others."""
    name, _, digest = image.partition('@')
    tag = name.rpartition('/')[2].partition(':')[2]
    return 'Always' if tag == 'latest' or (image and not tag and not digest) else 'IfNotPresent'


def _default_volume(volume: dict[str, Any]) -> None:
    if len(volume) == 1:
        volume['emptyDir'] = {}
    for name, defaults in _VOLUME_DEFAULTS.items():
        if name in volume:
            fill(volume[name], defaults)

    if 'image' in volume:
        fill(
            volume['image'],
            {'pullPolicy': default_pull_policy(volume['image'].get('reference') or '')},
        )

    claim = checks.dig(volume, 'ephemeral', 'volumeClaimTemplate', 'spec')
    if claim is not None:
        fill(claim, {'volumeMode': 'Filesystem'})
    _default_file_fields(checks.dig(volume, 'downwardAPI', 'items'))
    for source in checks.dig(volume, 'projected', 'sources') or ():
        _default_file_fields(checks.dig(source, 'downwardAPI', 'items'))
        if 'serviceAccountToken' in source:
            fill(source['serviceAccountToken'], {'expirationSeconds': 3600})


def _default_file_fields(items: list[dict[str, Any]] | None) -> None:
    for item in items or ():
        if 'fieldRef' in item:
            fill(item['fieldRef'], {'apiVersion': 'v1'})


def _default_container(container: dict[str, Any]) -> None:
    fill(
        container,
        {'terminationMessagePath': '/dev/termination-log', 'terminationMessagePolicy': 'File'},
    )
    if 'imagePullPolicy' not in container:
        container['imagePullPolicy'] = default_pull_policy(container.get('image') or '')
    for variable in container.get('env') or ():
        field = checks.dig(variable, 'valueFrom', 'fieldRef')
        if field is not None:
            fill(field, {'apiVersion': 'v1'})

    for name in _PROBES:
        if name in container:
            fill(container[name], _PROBE_DEFAULTS)
            _default_handler(container[name])

    for handler in (container.get('lifecycle') or {}).values():
        if isinstance(handler, dict):
            _default_handler(handler)


def _default_handler(handler: dict[str, Any]) -> None:
    if 'httpGet' in handler:
        fill(handler['httpGet'], _HTTP_DEFAULTS)
    if 'grpc' in handler and handler['grpc'].get('service') is None:
        handler['grpc']['service'] = ''


def _default_host_ports(spec: dict[str, Any]) -> None:
    for name in ('containers', 'initContainers'):
        for container in spec.get(name) or ():
            for port in container.get('ports') or ():
                fill(port, {'hostPort': port.get('containerPort') or 0})
