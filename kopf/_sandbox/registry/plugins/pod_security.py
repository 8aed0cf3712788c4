"""
Pod security: pods must follow the standards that the labels of their namespace name.

Pods are refused; the templates of pods only cause warnings. The standards themselves are in
`pod_standards`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.meta import errors, kinds
from kopf._sandbox.registry.plugins import pod_standards, subjects

PREFIX: Final = 'pod-security.kubernetes.io/'
LEVELS: Final = ('privileged', 'baseline', 'restricted')

_VERSION: Final = re.compile(r'latest|v1\.(0|[1-9][0-9]*)')
_LATEST: Final = 35
_TEMPLATES: Final[Mapping[kinds.Home, tuple[str, ...]]] = {
    kinds.Home('', 'replicationcontrollers'): ('spec', 'template', 'spec'),
    kinds.Home('', 'podtemplates'): ('template', 'spec'),
    **{
        kinds.Home('apps', plural): ('spec', 'template', 'spec')
        for plural in ('deployments', 'replicasets', 'statefulsets', 'daemonsets')
    },
    kinds.Home('batch', 'jobs'): ('spec', 'template', 'spec'),
    kinds.Home('batch', 'cronjobs'): ('spec', 'jobTemplate', 'spec', 'template', 'spec'),
}


def validate(subject: subjects.Subject) -> None:
    """Refuse or warn about pods and templates, and refuse wrong labels of namespaces."""
    if subject.home == kinds.NAMESPACES:
        _check_namespace(subject)
        return

    path = ('spec',) if subject.home == subjects.PODS else _TEMPLATES.get(subject.home)
    if path is None:
        return

    namespace = subject.store.get(kinds.NAMESPACES, '', subject.request.namespace)
    labels = {} if namespace is None else namespace.labels
    spec = _dig(subject.obj, path)
    is_same = subject.old is not None and _dig(subject.old, path) == spec
    if not any(name.startswith(PREFIX) for name in labels) or spec is None or is_same:
        return

    enforced = _explain(labels, 'enforce', spec) if subject.home == subjects.PODS else ''
    if enforced:
        raise subject.forbid(f'violates PodSecurity {enforced}')

    warned = _explain(labels, 'warn', spec)
    subject.request.warnings.extend([f'would violate PodSecurity {warned}'] if warned else [])


def _explain(labels: Mapping[str, str], mode: str, spec: Mapping[str, Any]) -> str:
    """Return the standard and how it is violated; nothing if it is not."""
    level, version = _read(labels, mode)
    violations = pod_standards.check(spec, level, _number(version))
    listed = ', '.join(f'{what} ({why})' if why else what for what, why in violations)
    return f'"{level}:{version}": {listed}' if violations else ''


def _check_namespace(subject: subjects.Subject) -> None:
    """Refuse wrong labels; warn if the pods of the namespace violate its new standard."""
    labels = subject.obj['metadata'].get('labels') or {}
    known = ((subject.old or {}).get('metadata') or {}).get('labels') or {}
    problems = []

    for mode in ('enforce', 'audit', 'warn'):
        level = f'{PREFIX}{mode}'
        version = f'{PREFIX}{mode}-version'
        if labels.get(level, 'privileged') not in LEVELS:
            why = f'must be one of {", ".join(LEVELS)}'
            problems.append(errors.invalid_value(f'metadata.labels[{level}]', labels[level], why))
        if _VERSION.fullmatch(labels.get(version, 'latest')) is None:
            why = 'must be "latest" or "v1.x"'
            problems.append(
                errors.invalid_value(f'metadata.labels[{version}]', labels[version], why)
            )

    changed = [problem for problem in problems if labels != known]
    if changed:
        raise errors.invalid('', 'Namespace', subject.name, changed)

    if not subject.is_new and _read(labels, 'enforce') != _read(known, 'enforce'):
        subject.request.warnings.extend(_list_violations(subject, labels))


def _list_violations(subject: subjects.Subject, labels: Mapping[str, str]) -> list[str]:
    """Describe the pods that violate the enforced standard, grouped by how they do it."""
    level, version = _read(labels, 'enforce')
    found: dict[str, list[str]] = {}
    for pod in subject.list(subjects.PODS, subject.name):
        violations = pod_standards.check(pod.get('spec') or {}, level, _number(version))
        if violations:
            listed = ', '.join(what for what, _ in violations)
            found.setdefault(listed, []).append(pod['metadata']['name'])

    if not found:
        return []

    title = f'existing pods in namespace "{subject.name}" violate the new PodSecurity enforce level'
    return [
        f'{title} "{level}:{version}"',
        *sorted(f'{_name_pods(names)}: {listed}' for listed, names in found.items()),
    ]


def _name_pods(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f'{names[0]} (and {others} other {"pods" if others > 1 else "pod"})'


def _read(labels: Mapping[str, str], mode: str) -> tuple[str, str]:
    level = labels.get(f'{PREFIX}{mode}', 'privileged')
    return level, labels.get(f'{PREFIX}{mode}-version', 'latest')


def _number(version: str) -> int:
    return _LATEST if version == 'latest' else int(version.removeprefix('v1.'))


def _dig(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj
