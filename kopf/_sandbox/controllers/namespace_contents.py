"""
Namespace contents: what is in every namespace from its beginning.

These are the service account for pods that name no other one, and the certificate of the
authority by which pods recognise the API server. Deleted ones are created again, and the
certificate is restored when others change it; in namespaces that are being deleted, nothing is.
"""

from typing import Any, Final

from kopf._sandbox.controllers import interfaces
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

ACCOUNTS: Final = kinds.Home('', 'serviceaccounts')
CONFIGMAPS: Final = kinds.Home('', 'configmaps')
ACCOUNT: Final = 'default'
AUTHORITY: Final = 'kube-root-ca.crt'

_DESCRIPTION: Final = 'kubernetes.io/description'
_ANNOTATIONS: Final = {
    _DESCRIPTION: 'Contains a CA bundle that can be used to verify the kube-apiserver when using '
    'internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage '
    'is guaranteed across distributions of Kubernetes clusters.'
}
_OWNED: Final = {
    'f:data': {'.': {}, 'f:ca.crt': {}},
    'f:metadata': {'f:annotations': {'.': {}, f'f:{_DESCRIPTION}': {}}},
}


class ContentController:
    """Keeps the initial objects of all namespaces. The authority is set before the first one."""

    def __init__(self, store: memory.Storage, hands: interfaces.Hands) -> None:
        self._store = store
        self._hands = hands
        self._suspects: dict[str, None] = {}  # the namespaces to examine, in order
        self.authority = b''  # the certificate in PEM

    def notice(self, change: memory.Change) -> None:
        if change.home == kinds.NAMESPACES:
            self._suspects[change.new.name] = None
        elif (change.home == ACCOUNTS and change.new.name == ACCOUNT) or (
            change.home == CONFIGMAPS and change.new.name == AUTHORITY
        ):
            self._suspects[change.new.namespace] = None

    def settle(self) -> bool:
        """Restore what is missing; return whether there was any work."""
        suspects = self._suspects
        self._suspects = {}
        for namespace in suspects:
            stored = self._store.get(kinds.NAMESPACES, '', namespace)
            if stored is not None and not stored.is_leaving:
                self._fill(namespace)

        return bool(suspects)

    def _fill(self, namespace: str) -> None:
        if self._store.get(ACCOUNTS, namespace, ACCOUNT) is None:
            self._hands.create(ACCOUNTS, build_account(namespace))
        stored = self._store.get(CONFIGMAPS, namespace, AUTHORITY)
        wanted = build_authority(namespace, self.authority.decode())
        if stored is None:
            self._hands.create(CONFIGMAPS, wanted, owned=_OWNED)
            return

        body = stored.load()
        if body.get('data') != wanted['data'] or _is_undescribed(body):
            body['data'] = wanted['data']
            body['metadata'].setdefault('annotations', {}).update(_ANNOTATIONS)
            body.pop('binaryData', None)
            self._hands.update(CONFIGMAPS, stored, body)


def build_account(namespace: str) -> dict[str, Any]:
    """Build the service account of a namespace."""
    metadata = {'name': ACCOUNT, 'namespace': namespace}
    return {'kind': 'ServiceAccount', 'apiVersion': 'v1', 'metadata': metadata}


def build_authority(namespace: str, certificate: str) -> dict[str, Any]:
    """Build the config map with the certificate of the authority of the API server."""
    metadata = {'name': AUTHORITY, 'namespace': namespace, 'annotations': dict(_ANNOTATIONS)}
    data = {'ca.crt': certificate}
    return {'kind': 'ConfigMap', 'apiVersion': 'v1', 'metadata': metadata, 'data': data}


def _is_undescribed(body: dict[str, Any]) -> bool:
    annotations = body['metadata'].get('annotations') or {}
    return any(annotations.get(name) != text for name, text in _ANNOTATIONS.items())
