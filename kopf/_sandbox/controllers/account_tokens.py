"""
Account tokens: secrets of the type for tokens of service accounts get their tokens.

A secret names its account in an annotation. It goes away with the account, or if there is none.
"""

from typing import Any, Final

from kopf._sandbox.auth import tokens
from kopf._sandbox.controllers import interfaces
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

SECRETS: Final = kinds.Home('', 'secrets')
ACCOUNTS: Final = kinds.Home('', 'serviceaccounts')
TYPE: Final = 'kubernetes.io/service-account-token'
NAME: Final = 'kubernetes.io/service-account.name'
UID: Final = 'kubernetes.io/service-account.uid'


class TokenController:
    """Fills and removes the secrets of service accounts. The authority is set before the first."""

    def __init__(
        self, store: memory.Storage, hands: interfaces.Hands, signer: tokens.Signer
    ) -> None:
        self._store = store
        self._hands = hands
        self._signer = signer
        self._suspects: dict[str, None] = {}  # the keys of secrets to examine, in order
        self.authority = b''  # the certificate in PEM

    def notice(self, change: memory.Change) -> None:
        if change.home == SECRETS and change.new.fields.get('type') == TYPE:
            self._suspects[change.new.key] = None
        elif change.home == ACCOUNTS and change.type == 'DELETED':
            secrets = self._store.shelf(SECRETS).select(change.new.namespace)
            self._suspects |= dict.fromkeys(
                stored.key for stored in secrets if stored.fields.get('type') == TYPE
            )

    def settle(self) -> bool:
        """Examine all suspects; return whether there were any."""
        suspects = self._suspects
        self._suspects = {}
        for key in suspects:
            stored = self._store.shelf(SECRETS).objects.get(key)
            if stored is not None and not stored.is_leaving:
                self._examine(stored)

        return bool(suspects)

    def _examine(self, stored: memory.Stored) -> None:
        body = stored.load()
        annotations = body['metadata'].get('annotations') or {}
        name = annotations.get(NAME) or ''
        uid = annotations.get(UID) or ''
        account = self._store.get(ACCOUNTS, stored.namespace, name)

        if account is None or uid not in ('', account.uid):
            self._hands.delete(SECRETS, stored, 'Background')
            return

        data: dict[str, Any] = body.get('data') or {}
        names = ('ca.crt', 'namespace', 'token') if self.authority else ('namespace', 'token')
        if uid and all(data.get(key) for key in names):
            return

        owner = tokens.Account(stored.namespace, name, account.uid)
        made = tokens.build_secret_data(self._signer, owner, stored.name, self.authority)
        body['data'] = {**{key: made[key] for key in names}, **data}
        body['metadata']['annotations'] = {**annotations, UID: account.uid}
        self._hands.update(SECRETS, stored, body)
