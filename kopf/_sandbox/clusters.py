"""
Clusters: all parts of one sandbox put together, without the network.
"""

import asyncio
import datetime
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kopf._sandbox import faults
from kopf._sandbox.admission import chain, webhook_client
from kopf._sandbox.auth import authn, escalation, rbac, reviews, roles, tokens
from kopf._sandbox.controllers import (
    account_tokens,
    crd_finalizer,
    establishing,
    garbage_collector,
    initial_objects,
    interfaces,
    internal_client,
    namespace_contents,
    namespaces,
    protections,
    quotas,
    self_publishing,
)
from kopf._sandbox.meta import builtins, kinds, requests, rest_mapper
from kopf._sandbox.openapi import builder
from kopf._sandbox.registry import (
    allocations,
    conversion_webhooks,
    conversions,
    prepare,
    writer,
)
from kopf._sandbox.storage import memory

ADMIN = requests.User('kopf-sandbox-admin', ('system:masters',))
SYSTEM = requests.User('system:apiserver', ('system:masters',))

NAMESPACES = ('default', 'kube-node-lease', 'kube-public', 'kube-system')
PRIORITIES = kinds.Home('scheduling.k8s.io', 'priorityclasses')
ROLES = 'rbac.authorization.k8s.io'


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(tz=datetime.UTC)


def make_uid() -> str:
    return str(uuid.uuid4())


class Cluster:
    """
    A cluster without a network: the storage, the authorization, and the controllers.

    Used only from one event loop. Call `start` once before anything else, and `close` at the end.
    """

    def __init__(
        self, *, with_rbac: bool = False, now: Callable[[], datetime.datetime] = utc_now
    ) -> None:
        self.store = memory.Storage()
        self.sources = prepare.Sources(
            now, make_uid, allocations.Allocator(self.store), self._load_priorities
        )
        self.catalog = kinds.Catalog(builtins.load_resources())
        self.faults = faults.Faults()
        self.policies = Policies(self.store)
        self.roles = rbac.RoleAuthorizer(self.policies) if with_rbac else None
        self.authorizer: rbac.Authorizer = self.roles or rbac.AlwaysAllow()
        self.signer = tokens.Signer()
        self.authenticator = authn.Authenticator(self.signer, self._look_up, anonymous=with_rbac)
        self.admin_token = secrets.token_urlsafe(24)
        self.authenticator.add_token(self.admin_token, ADMIN)
        self.reviewer = reviews.Reviewer(
            self.authorizer, self.authenticator, self.signer, self._look_up, make_uid
        )
        caller = webhook_client.Caller(webhook_client.Services())
        self.converter = conversion_webhooks.Converter(caller, make_uid)
        self.gate = chain.Gate(
            self.store, self.catalog, make_uid, caller=caller, convert=self.converter.convert
        )
        self.writer = writer.Writer(
            self.store, self.gate, self.converter, self.sources, self._guard
        )
        self.publisher = builder.Publisher(self.catalog)
        self._hands = internal_client.Housekeeper(self.store, self.catalog, self.sources)
        self._contents = namespace_contents.ContentController(self.store, self._hands)
        self._tokens = account_tokens.TokenController(self.store, self._hands, self.signer)
        self._publisher = self_publishing.SelfPublisher(
            self.store, self._hands, self.sources.format_now
        )
        self._controllers = self._make_controllers(self._hands)
        self._settling: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, authority: bytes = b'') -> None:
        """
        Create the objects that every new cluster has; ``authority`` is its certificate, if any.
        """
        self._contents.authority = self._tokens.authority = authority
        self._loop = asyncio.get_running_loop()
        for name in NAMESPACES:
            await self._seed({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}})
        for body in roles.default_objects():
            await self._seed(body)
        priorities = initial_objects.build_priorities(self.sources.format_now())
        for home, body in (*priorities, *initial_objects.build_components()):
            if self.store.get(home, '', body['metadata']['name']) is None:
                self._hands.create(home, body)

    def publish(self, host: str, port: int) -> None:
        """Let clients in the cluster find the API server: it listens there from now on."""
        self._publisher.publish(host, port)

    def restore(self, version: int, objects: Iterable[tuple[kinds.Home, dict[str, Any]]]) -> None:
        """Restore the objects saved as of a version, CRDs among them. Call it before the start."""
        self.store.resume(version)
        for home, body in sorted(objects, key=lambda item: item[0] != kinds.CRDS):
            resource = rest_mapper.find_stored_resource(self.catalog, home)
            obj = (
                conversions.reread(resource, body)
                if resource is not None and resource.custom
                else body
            )
            self.store.restore(
                home, obj, prepare.extract_fields(resource, obj) if resource is not None else {}
            )

    async def close(self) -> None:
        """Stop the controllers, lift the faults, and close the connections to webhooks."""
        if self._settling is not None:
            self._settling.cancel()
        self.faults.lift()
        await self.gate.close()

    def settle(self) -> None:
        """Let the controllers do all their pending work."""
        self._settling = None
        # All of the controllers in turns, until all are idle.
        while sum(controller.settle() for controller in self._controllers):
            pass

    def find(self, api_version: str, kind: str) -> kinds.Resource | None:
        """Return the resource of a kind."""
        return self.catalog.find_kind(*kinds.split_api_version(api_version), kind)

    def _make_controllers(self, hands: interfaces.Hands) -> Sequence[interfaces.Controller]:
        self.store.observe(
            establishing.Establisher(self.store, self.catalog, self.sources.format_now).notice
        )
        made: list[interfaces.Controller] = [
            garbage_collector.GarbageCollector(self.store, hands),
            namespaces.NamespaceController(self.store, hands),
            crd_finalizer.DefinitionController(self.store, hands),
            self._contents,
            self._tokens,
            protections.ProtectionController(self.store, hands),
            quotas.QuotaController(self.store, hands),
            self._publisher,
        ]
        for controller in made:
            self.store.observe(controller.notice)
        self.store.observe(self._schedule)
        return made

    def _schedule(self, change: memory.Change) -> None:
        """Schedule the controllers to run soon after a change, but never inside of a request."""
        if self._loop is not None and self._settling is None:
            self._settling = self._loop.call_soon(self.settle)

    async def _seed(self, body: dict[str, Any]) -> None:
        resource = self.find(body['apiVersion'], body['kind'])
        assert resource is not None, f'{body["kind"]} is not served'
        namespace = body['metadata'].get('namespace', '')
        name = body['metadata']['name']

        if self.store.get(resource.home, namespace, name) is None:
            request = requests.Request(
                'create', resource, SYSTEM, namespace=namespace, field_manager='kube-apiserver'
            )
            await self.writer.create(request, body)

    def _look_up(self, plural: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        stored = self.store.get(kinds.Home('', plural), namespace, name)
        return None if stored is None else stored.load()

    def _guard(
        self, request: requests.Request, new: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> None:
        if self.roles is not None:
            escalation.check_escalation(request, new, old, self.roles)

    def _load_priorities(self) -> Mapping[str, Mapping[str, Any]]:
        return {stored.name: stored.load() for stored in self.store.shelf(PRIORITIES).select('')}


class Policies:
    """The stored roles and bindings, decoded once until they change."""

    def __init__(self, store: memory.Storage) -> None:
        self._store = store
        self._cached: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        store.observe(self._forget)

    def roles(self, namespace: str) -> list[Mapping[str, Any]]:
        return self._load('roles', namespace)

    def cluster_roles(self) -> list[Mapping[str, Any]]:
        return self._load('clusterroles', '')

    def role_bindings(self, namespace: str) -> list[Mapping[str, Any]]:
        return self._load('rolebindings', namespace)

    def cluster_role_bindings(self) -> list[Mapping[str, Any]]:
        return self._load('clusterrolebindings', '')

    def _load(self, plural: str, namespace: str) -> list[Mapping[str, Any]]:
        if (plural, namespace) not in self._cached:
            shelf = self._store.shelf(kinds.Home(ROLES, plural))
            self._cached[plural, namespace] = [stored.load() for stored in shelf.select(namespace)]
        return self._cached[plural, namespace]

    def _forget(self, change: memory.Change) -> None:
        if change.home.group == ROLES:
            self._cached.clear()
