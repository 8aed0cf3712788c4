"""
The asynchronous sandbox: a sandbox in the current event loop.

It uses the clock of that loop, so virtual time applies to it. Objects are accessed without the
network.
"""

import contextlib
import pathlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kopf._sandbox import admin_client, fault_injection, hosting, options
from kopf._sandbox.admission import webhook_client
from kopf._sandbox.codec import manifests

if TYPE_CHECKING:
    from kopf._sandbox.workloads import behaviours

Condition = Callable[[admin_client.Body | None], bool]
"""Returns whether an object is as expected; gets ``None`` if the object does not exist."""


class AsyncSandbox:
    """
    A running Kubernetes API with its objects, for coroutines: the target of ``async with
    kopf.testing.Sandbox(...)``.

    Resources are named as for kubectl (``pods``, ``po``, ``Pod``, ``kopfexamples.kopf.dev``), or
    with their versions (``v1/pods``, ``kopf.dev/v1/kopfexamples``). Errors of the API are raised as
    ``kopf.testing.ApiError``.
    """

    def __init__(self, host: hosting.Host) -> None:
        self._host = host
        self._operator = host.operator
        self.faults = fault_injection.AsyncFaults(host.cluster.faults, host)
        self.requests = fault_injection.Requests(host.server.requests)

    @property
    def url(self) -> str:
        """The URL of the sandbox: ``https://127.0.0.1:12345``."""
        return self._host.server.url

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The path of the administrator's kubeconfig."""
        return self._host.kubeconfig

    @property
    def token(self) -> str:
        """The bearer token of the administrator."""
        return self._host.cluster.admin_token

    @property
    def ca_path(self) -> pathlib.Path:
        """The file with the certificate of the server's authority; empty without TLS."""
        return self._host.ca_path

    @property
    def ca_data(self) -> bytes:
        """The certificate of the authority in PEM; empty without TLS."""
        return self._host.ca_pem

    async def apply(self, *sources: options.Source) -> admin_client.Bodies:
        """
        Create or update the objects to match the manifests, as ``kubectl apply`` does; return them.

        The sources are paths of files and directories, texts of YAML or JSON (with line breaks),
        objects, and lists. All of them are read, and their kinds are checked, before the first one
        is applied: raises ``ManifestError``.
        """
        return await self._operator.apply(manifests.load_sources(sources))

    async def get(
        self, resource: str, name: str, namespace: str = admin_client.DEFAULT_NAMESPACE
    ) -> admin_client.Body:
        """Return an object. The namespace is ignored for cluster-scoped resources."""
        return await self._operator.get(admin_client.Target(resource, name, namespace))

    async def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: admin_client.Selection = None,
        fields: admin_client.Selection = None,
    ) -> admin_client.Bodies:
        """Return the objects of one or all namespaces, by selectors (``a=b,c!=d`` or a dict)."""
        return await self._operator.list(admin_client.Query(resource, namespace, labels, fields))

    async def create(self, body: Mapping[str, Any]) -> admin_client.Body:
        """
        Create an object; return it as stored. Without a namespace in its metadata, it goes to the
        default namespace.
        """
        return await self._operator.create(body)

    async def update(self, body: Mapping[str, Any], *, subresource: str = '') -> admin_client.Body:
        """Replace an object, or only its ``status`` or another subresource."""
        return await self._operator.update(body, subresource)

    async def patch(
        self,
        resource: str,
        name: str,
        patch: Any,
        namespace: str = admin_client.DEFAULT_NAMESPACE,
        *,
        type: admin_client.PatchType = 'merge',
        subresource: str = '',
    ) -> admin_client.Body:
        """Patch an object: ``merge``, ``json``, ``strategic``, or (without force) ``apply``."""
        return await self._operator.patch(
            admin_client.Target(resource, name, namespace, subresource), patch, type
        )

    async def delete(
        self,
        resource: str,
        name: str,
        namespace: str = admin_client.DEFAULT_NAMESPACE,
        *,
        propagation: str = '',
        grace_period: int | None = None,
    ) -> None:
        """Delete an object, or mark it as being deleted if it has finalizers or a grace period."""
        target = admin_client.Target(resource, name, namespace)
        await self._operator.delete(target, propagation=propagation, grace_period=grace_period)

    async def wait(
        self,
        resource: str,
        name: str,
        condition: Condition,
        namespace: str = admin_client.DEFAULT_NAMESPACE,
        *,
        timeout: float = 10.0,
    ) -> admin_client.Body | None:
        """
        Wait until an object is as expected; return it in that state, or ``None`` if it must be
        absent.

        The condition is checked on the current state, and then on every change. Any number of tasks
        may wait. Raises `TimeoutError` after ``timeout`` seconds of the loop's clock.
        """
        last: admin_client.Body | None = None
        async with contextlib.aclosing(
            self.follow(resource, name, namespace, timeout=timeout)
        ) as states:
            async for last in states:
                if condition(last):
                    return last

        if self._operator.is_closed:
            raise RuntimeError('The sandbox is no longer running.')
        raise TimeoutError(describe_timeout(resource, name, timeout, last))

    def follow(
        self,
        resource: str,
        name: str,
        namespace: str = admin_client.DEFAULT_NAMESPACE,
        *,
        timeout: float = options.DAY,
    ) -> AsyncGenerator[admin_client.Body | None]:
        """
        Iterate over the states of one object, from the current one as of the call; ``None`` while
        it does not exist.
        """
        return self._operator.follow(admin_client.Target(resource, name, namespace), timeout)

    def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: admin_client.Selection = None,
        fields: admin_client.Selection = None,
        since: str | None = None,
        timeout: float = options.DAY,
    ) -> AsyncGenerator[admin_client.Body]:
        """
        Iterate over the raw events of a resource (``type``, ``object``): of the changes after a
        version; without a version, of the objects that exist at the time of the call, as added, and
        then of the changes.
        """
        return self._operator.watch(
            admin_client.Query(resource, namespace, labels, fields), since=since, timeout=timeout
        )

    async def compact(self) -> None:
        """Forget the history, so that watches and lists from past versions get 410."""
        self._host.cluster.store.compact()

    async def add_user(
        self, name: str, groups: Sequence[str] = (), *, certificate: bool = False
    ) -> hosting.Credentials:
        """Add a user with a token or a client certificate; return the credentials."""
        return self._host.add_user(name, groups, certificate=certificate)

    async def fail_pod(
        self,
        name: str,
        namespace: str = admin_client.DEFAULT_NAMESPACE,
        *,
        container: str | None = None,
        exit_code: int = 1,
        reason: str = 'Error',
    ) -> None:
        """
        Make the containers of a running pod exit, or one of them. What follows is up to the restart
        policy of the pod. Raises ``ApiError`` if there is no such pod, and `ValueError` if it does
        not run.
        """
        containers = [] if container is None else [container]
        self._host.workloads.fail_pod(namespace, name, containers, exit_code, reason)

    async def break_pods(
        self,
        trouble: 'behaviours.TroubleKind',
        *,
        labels: admin_client.Selection = None,
        namespace: str | None = None,
        image: str = '*',
    ) -> 'Breakage':
        """
        Break the selected pods, present and future, until the returned breakage is lifted: as a
        context manager, or by its ``lift()``.

        The trouble is ``crash`` (the containers exit with an error, again and again), ``image``
        (images cannot be pulled), or ``unready`` (the containers run, but are not ready). The
        selected are those with the labels, in the namespace, with an image of this pattern.
        """
        from kopf._sandbox.workloads import behaviours

        troubles = self._host.workloads.troubles
        made = behaviours.make_trouble(
            trouble, namespace or '', admin_client.join_selection(labels), image
        )
        troubles.add(made)

        return Breakage(lambda: troubles.lift(made))

    async def add_service(
        self, namespace: str, name: str, endpoint: str | webhook_client.Handler, *, port: int = 443
    ) -> None:
        """Register a service for webhooks: a URL, or a coroutine function of path and review."""
        self._host.cluster.gate.services.register(namespace, name, endpoint, port=port)


class Breakage:
    """Pods that are broken until this is lifted."""

    def __init__(self, lift: Callable[[], object]) -> None:
        self._lift = lift

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lift()

    def lift(self) -> None:
        """Repair the pods. Those that crashed are started again when their back-off is over."""
        self._lift()


def describe_timeout(
    resource: str, name: str, timeout: float, last: admin_client.Body | None
) -> str:
    """Build the message about an object that was not as expected in time."""
    state = (
        'it does not exist'
        if last is None
        else f'its last version is {last["metadata"]["resourceVersion"]}'
    )
    return (
        f'The object {name!r} of {resource} is not as expected after {timeout:g} seconds: {state}.'
    )
