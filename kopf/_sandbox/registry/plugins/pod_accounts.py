"""
Pod accounts: every pod has a service account, and the token of it mounted.
"""

import hashlib
from typing import Any, Final

from kopf._sandbox.meta import kinds, metadata
from kopf._sandbox.registry.plugins import subjects

ACCOUNTS: Final = kinds.Home('', 'serviceaccounts')
DEFAULT: Final = 'default'

_MIRROR: Final = 'kubernetes.io/config.mirror'
_PATH: Final = '/var/run/secrets/kubernetes.io/serviceaccount'
_PREFIX: Final = 'kube-api-access-'
_LIFETIME: Final = 3607  # seconds
_MODE: Final = 0o644


def mutate(subject: subjects.Subject) -> None:
    """
    Set the account of a new pod, and mount its token. Raises the API's 403 if there is no such
    account; the default one is coming soon if it is absent.
    """
    spec = subject.obj['spec']
    if _MIRROR in (subject.obj['metadata'].get('annotations') or {}):
        return

    name = spec.get('serviceAccountName') or DEFAULT
    stored = subject.store.get(ACCOUNTS, subject.request.namespace, name)
    if stored is None and name != DEFAULT:
        place = f'{subject.request.namespace}/{name}'
        why = f'error looking up service account {place}: serviceaccount "{name}" not found'
        raise subject.forbid(why)

    account = {} if stored is None else stored.load()
    spec['serviceAccountName'] = spec['serviceAccount'] = name
    if not spec.get('imagePullSecrets') and account.get('imagePullSecrets'):
        spec['imagePullSecrets'] = account['imagePullSecrets']
    if _is_mounted(spec, account):
        _mount(spec, f'{_PREFIX}{_make_suffix(subject)}')


def _is_mounted(spec: subjects.Body, account: subjects.Body) -> bool:
    """Return whether to mount the token: the pod says it before its account does."""
    wanted = spec.get('automountServiceAccountToken')
    if wanted is None:
        wanted = account.get('automountServiceAccountToken')
    return wanted is not False


def _make_suffix(subject: subjects.Subject) -> str:
    """Make a suffix that looks random, and is the same for the same pod: runs can be repeated."""
    meta = subject.obj['metadata']
    named = meta.get('name') or meta.get('generateName') or ''
    digest = hashlib.sha256(f'{subject.request.namespace}/{named}'.encode()).digest()
    alphabet = metadata.SUFFIX_ALPHABET
    return ''.join(alphabet[byte % len(alphabet)] for byte in digest[:5])


def _mount(spec: dict[str, Any], name: str) -> None:
    """Mount the token in all containers that have nothing else at its place."""
    known = [
        volume['name']
        for volume in spec.get('volumes') or ()
        if volume.get('name', '').startswith(_PREFIX)
    ]
    name = known[0] if known else name
    is_needed = False

    for container in subjects.list_containers(spec):
        mounts = container.get('volumeMounts') or []
        if all(mount.get('mountPath') != _PATH for mount in mounts):
            added = {'name': name, 'readOnly': True, 'mountPath': _PATH}
            container['volumeMounts'] = [*mounts, added]
            is_needed = True

    if is_needed and not known:
        spec['volumes'] = [*(spec.get('volumes') or ()), _build_volume(name)]


def _build_volume(name: str) -> dict[str, Any]:
    namespace = {'apiVersion': 'v1', 'fieldPath': 'metadata.namespace'}
    sources = [
        {'serviceAccountToken': {'expirationSeconds': _LIFETIME, 'path': 'token'}},
        {
            'configMap': {
                'name': 'kube-root-ca.crt',
                'items': [{'key': 'ca.crt', 'path': 'ca.crt'}],
            }
        },
        {'downwardAPI': {'items': [{'path': 'namespace', 'fieldRef': namespace}]}},
    ]
    return {'name': name, 'projected': {'sources': sources, 'defaultMode': _MODE}}
