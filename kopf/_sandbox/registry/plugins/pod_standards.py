"""
Pod standards: what pods may not do by the standards ``baseline`` and ``restricted``.

Every check returns its title with the details of the violation, or nothing. The checks of the
restricted standard replace the weaker ones of the baseline.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

Spec = Mapping[str, Any]
Violation = tuple[str, str]  # the title, and the details

_CAPABILITIES: Final = frozenset(
    (
        *('AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD'),
        *('NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT'),
    )
)
_SYSCTLS: Final = frozenset(
    (
        'kernel.shm_rmid_forced',
        'net.ipv4.ip_local_port_range',
        'net.ipv4.ip_local_reserved_ports',
        'net.ipv4.ip_unprivileged_port_start',
        'net.ipv4.ping_group_range',
        'net.ipv4.tcp_fin_timeout',
        'net.ipv4.tcp_keepalive_intvl',
        'net.ipv4.tcp_keepalive_probes',
        'net.ipv4.tcp_keepalive_time',
        'net.ipv4.tcp_rmem',
        'net.ipv4.tcp_syncookies',
        'net.ipv4.tcp_wmem',
    )
)
_VOLUMES: Final = frozenset(
    (
        *('name', 'configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'image'),
        *('persistentVolumeClaim', 'projected', 'secret'),
    )
)
_SELINUX_TYPES: Final = frozenset(
    ('', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t')
)
_PROFILES: Final = ('RuntimeDefault', 'Localhost')


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of a standard, beginning with a minor version of Kubernetes."""

    run: Callable[[Spec], Violation | None]
    since: int = 0


def check(spec: Spec, level: str, version: int) -> list[Violation]:
    """Return all violations of a standard as of a minor version, in the order of the API."""
    checks = _STANDARDS.get(level, ())
    found = (item.run(spec) for item in checks if version >= item.since)
    return [violation for violation in found if violation is not None]


def _containers(spec: Spec) -> Iterator[Spec]:
    for group in ('initContainers', 'containers', 'ephemeralContainers'):
        yield from spec.get(group) or ()


def _context(holder: Spec) -> Spec:
    return holder.get('securityContext') or {}


def _select(spec: Spec, is_wrong: Callable[[Spec], bool]) -> list[str]:
    """Return the names of the containers whose security context is wrong."""
    return [item['name'] for item in _containers(spec) if is_wrong(_context(item))]


def _quote(names: Iterable[str]) -> str:
    return ', '.join(f'"{name}"' for name in names)


def _name(kind: str, names: Sequence[str]) -> str:
    return f'{kind}{"s" if len(names) != 1 else ""} {_quote(names)}'


def _name_holders(is_pod: bool, names: Sequence[str]) -> str:
    """Name the pod and its containers that do something."""
    parts = (['pod'] if is_pod else []) + ([_name('container', names)] if names else [])
    return ' and '.join(parts)


def _forbid(title: str, is_pod: bool, names: Sequence[str], what: str) -> Violation | None:
    if not is_pod and not names:
        return None
    return title, f'{_name_holders(is_pod, names)} must not set {what}'


def _check_escalation(spec: Spec) -> Violation | None:
    names = _select(spec, lambda context: context.get('allowPrivilegeEscalation') is not False)
    text = f'{_name("container", names)} must set securityContext.allowPrivilegeEscalation=false'
    return ('allowPrivilegeEscalation != false', text) if names else None


def _check_app_armor(spec: Spec) -> Violation | None:
    def is_wrong(context: Spec) -> bool:
        return (context.get('appArmorProfile') or {}).get('type') == 'Unconfined'

    what = 'AppArmor profile type to "Unconfined"'
    is_pod = is_wrong(_context(spec))
    names = _select(spec, is_wrong)
    return _forbid('forbidden AppArmor profile', is_pod, names, what)


def _find_added(spec: Spec, allowed: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the containers that add capabilities besides the allowed ones, and these."""
    names = []
    added = set[str]()
    for container in _containers(spec):
        capabilities = _context(container).get('capabilities') or {}
        wrong = {*(capabilities.get('add') or ())} - {*allowed}
        names += [container['name']] if wrong else []
        added |= wrong

    return names, sorted(added)


def _describe_added(names: Sequence[str], added: Sequence[str]) -> str:
    listed = f'{_quote(added)} in securityContext.capabilities.add'
    return f'{_name("container", names)} must not include {listed}'


def _check_capabilities(spec: Spec) -> Violation | None:
    names, added = _find_added(spec, _CAPABILITIES)
    return ('non-default capabilities', _describe_added(names, added)) if names else None


def _check_all_capabilities(spec: Spec) -> Violation | None:
    def is_wrong(context: Spec) -> bool:
        return 'ALL' not in ((context.get('capabilities') or {}).get('drop') or ())

    keeping = _select(spec, is_wrong)
    names, added = _find_added(spec, ('NET_BIND_SERVICE',))
    texts = [_describe_added(names, added)] if names else []

    if keeping:
        drop = 'must set securityContext.capabilities.drop=["ALL"]'
        texts.insert(0, f'{_name("container", keeping)} {drop}')

    return ('unrestricted capabilities', '; '.join(texts)) if texts else None


def _check_namespaces(spec: Spec) -> Violation | None:
    found = [name for name in ('hostNetwork', 'hostPID', 'hostIPC') if spec.get(name)]
    listed = ', '.join(f'{name}=true' for name in found)
    return ('host namespaces', listed) if found else None


def _check_paths(spec: Spec) -> Violation | None:
    names = [volume['name'] for volume in spec.get('volumes') or () if 'hostPath' in volume]
    return ('hostPath volumes', _name('volume', names)) if names else None


def _check_ports(spec: Spec) -> Violation | None:
    names = []
    found = set[int]()
    for container in _containers(spec):
        taken = {port['hostPort'] for port in container.get('ports') or () if port.get('hostPort')}
        names += [container['name']] if taken else []
        found |= taken

    ports = ', '.join(str(port) for port in sorted(found))
    verb = 'uses' if len(names) == 1 else 'use'
    word = 'hostPort' if len(found) == 1 else 'hostPorts'

    return ('hostPort', f'{_name("container", names)} {verb} {word} {ports}') if names else None


def _check_hosts(spec: Spec) -> Violation | None:
    names = []
    found = set[str]()
    for container in _containers(spec):
        hosts = set(_list_hosts(container))
        names += [container['name']] if hosts else []
        found |= hosts

    verb = 'uses' if len(names) == 1 else 'use'
    word = 'host' if len(found) == 1 else 'hosts'
    text = f'{_name("container", names)} {verb} probe or lifecycle {word} {_quote(sorted(found))}'

    return ('probe or lifecycle host', text) if names else None


def _list_hosts(container: Spec) -> Iterator[str]:
    lifecycle = container.get('lifecycle') or {}
    hooks = [container.get(f'{name}Probe') for name in ('liveness', 'readiness', 'startup')]
    for hook in (*hooks, lifecycle.get('postStart'), lifecycle.get('preStop')):
        for way in ('httpGet', 'tcpSocket'):
            host = ((hook or {}).get(way) or {}).get('host')
            if host:
                yield host


def _check_privileged(spec: Spec) -> Violation | None:
    names = _select(spec, lambda context: bool(context.get('privileged')))
    return _forbid('privileged', False, names, 'securityContext.privileged=true')


def _check_proc(spec: Spec) -> Violation | None:
    names = _select(spec, lambda context: context.get('procMount') not in (None, 'Default'))
    return _forbid('procMount', False, names, 'securityContext.procMount to "Unmasked"')


def _check_proc_of_host(spec: Spec) -> Violation | None:
    return None if spec.get('hostUsers') is False else _check_proc(spec)


def _check_volumes(spec: Spec) -> Violation | None:
    names = []
    types = set[str]()
    for volume in spec.get('volumes') or ():
        wrong = volume.keys() - _VOLUMES
        names += [volume['name']] if wrong else []
        types |= wrong

    verb, word = ('uses', 'type') if len(names) == 1 else ('use', 'types')
    listed = f'restricted volume {word} {_quote(sorted(types))}'
    return (
        ('restricted volume types', f'{_name("volume", names)} {verb} {listed}') if names else None
    )


def _check_root(spec: Spec) -> Violation | None:
    title = 'runAsNonRoot != true'
    field = 'securityContext.runAsNonRoot'
    whole = _context(spec).get('runAsNonRoot')
    refused = _select(spec, lambda context: context.get('runAsNonRoot') is False)
    if refused or whole is False:
        return _forbid(title, whole is False, refused, f'{field}=false')

    unset = _select(spec, lambda context: context.get('runAsNonRoot') is None)
    if whole or not unset:
        return None
    return title, f'pod or {_name("container", unset)} must set {field}=true'


def _check_user(spec: Spec) -> Violation | None:
    names = _select(spec, lambda context: context.get('runAsUser') == 0)
    return _forbid('runAsUser=0', _context(spec).get('runAsUser') == 0, names, 'runAsUser=0')


def _check_selinux(spec: Spec) -> Violation | None:
    def read(context: Spec) -> Spec:
        return context.get('seLinuxOptions') or {}

    def is_wrong(context: Spec) -> bool:
        options = read(context)
        is_typed = (options.get('type') or '') not in _SELINUX_TYPES
        return is_typed or bool(options.get('user') or options.get('role'))

    names = _select(spec, is_wrong)
    is_pod = is_wrong(_context(spec))
    if not names and not is_pod:
        return None

    all_options = [read(_context(holder)) for holder in (spec, *_containers(spec))]
    types = sorted({options.get('type') or '' for options in all_options} - _SELINUX_TYPES)
    texts = [f'type{"s" if len(types) > 1 else ""} {_quote(types)}'] if types else []

    for field in ('user', 'role'):
        if any(options.get(field) for options in all_options):
            texts.append(f'{field} may not be set')

    what = f'set forbidden securityContext.seLinuxOptions: {"; ".join(texts)}'
    return 'seLinuxOptions', f'{_name_holders(is_pod, names)} {what}'


def _check_seccomp(spec: Spec) -> Violation | None:
    def is_wrong(context: Spec) -> bool:
        return (context.get('seccompProfile') or {}).get('type') == 'Unconfined'

    what = 'securityContext.seccompProfile.type to "Unconfined"'
    is_pod = is_wrong(_context(spec))
    names = _select(spec, is_wrong)
    return _forbid('seccompProfile', is_pod, names, what)


def _check_all_seccomp(spec: Spec) -> Violation | None:
    refused = _check_seccomp(spec)
    if refused is not None or _context(spec).get('seccompProfile'):
        return refused
    names = _select(spec, lambda context: not context.get('seccompProfile'))
    profiles = ' or '.join(f'"{name}"' for name in _PROFILES)
    what = f'must set securityContext.seccompProfile.type to {profiles}'
    return ('seccompProfile', f'pod or {_name("container", names)} {what}') if names else None


def _check_sysctls(spec: Spec) -> Violation | None:
    given = [item['name'] for item in _context(spec).get('sysctls') or ()]
    found = [name for name in given if name not in _SYSCTLS]
    return ('forbidden sysctls', ', '.join(found)) if found else None


def _check_windows(spec: Spec) -> Violation | None:
    def is_wrong(context: Spec) -> bool:
        return bool((context.get('windowsOptions') or {}).get('hostProcess'))

    what = 'securityContext.windowsOptions.hostProcess=true'
    return _forbid('hostProcess', is_wrong(_context(spec)), _select(spec, is_wrong), what)


_BOTH_FIRST: Final = (Check(_check_app_armor),)
_BOTH_MIDDLE: Final = (Check(_check_ports), Check(_check_hosts, since=34), Check(_check_privileged))
_BOTH_LAST: Final = (Check(_check_sysctls), Check(_check_windows))

_STANDARDS: Final[Mapping[str, tuple[Check, ...]]] = {
    'baseline': (
        *_BOTH_FIRST,
        Check(_check_capabilities),
        Check(_check_namespaces),
        Check(_check_paths),
        *_BOTH_MIDDLE,
        Check(_check_proc_of_host),
        Check(_check_selinux),
        Check(_check_seccomp, since=19),
        *_BOTH_LAST,
    ),
    'restricted': (
        *_BOTH_FIRST,
        Check(_check_namespaces),
        *_BOTH_MIDDLE,
        Check(_check_proc),
        Check(_check_selinux),
        *_BOTH_LAST,
        Check(_check_escalation, since=8),
        Check(_check_all_capabilities, since=22),
        Check(_check_volumes),
        Check(_check_root),
        Check(_check_user, since=23),
        Check(_check_all_seccomp, since=19),
    ),
}
