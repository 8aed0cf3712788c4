"""
Sandboxes: a cluster in this process as a context manager, for tests and experiments.

This module is cheap to import: everything else is loaded when a sandbox is entered.
"""

import datetime
import logging
import os
import pathlib
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kopf._sandbox import options

if TYPE_CHECKING:
    from kopf._sandbox import admin_client, async_sandbox, fault_injection, hosting, threads
    from kopf._sandbox.admission import webhook_client
    from kopf._sandbox.workloads import behaviours

logger = logging.getLogger('kopf.sandbox')

T = TypeVar('T')


class Sandbox:
    """
    A Kubernetes API in memory, served on a port of this machine while the context is entered.

    As ``with Sandbox() as sandbox:``, it runs in its own thread, and its methods can be called from
    any other thread. As ``async with Sandbox() as sandbox:``, it runs in the current event loop,
    and its methods are awaited.

    ``host`` and ``port`` are the address to listen on (0 for any free port; `OSError` if it is
    busy). With ``rbac``, only the permissions granted by roles are allowed. Without ``tls``, plain
    HTTP is served, and clients without credentials are administrators. ``apply`` lists initial
    manifests; ``save`` is a directory in which the objects outlive the sandbox; ``now`` is the
    clock for the times in the objects. With ``workloads``, deployments roll out, jobs complete,
    and pods become ready on nodes that do not exist.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        port: int = 0,
        host: str = '127.0.0.1',
        rbac: bool = False,
        tls: bool = True,
        apply: Sequence[options.Source] = (),
        save: str | os.PathLike[str] | None = None,
        now: Callable[[], datetime.datetime] | None = None,
        workloads: bool | options.Workloads = False,
    ) -> None:
        self._options = options.Options(
            host=host,
            port=port,
            rbac=rbac,
            tls=tls,
            apply=apply,
            save=save,
            now=now,
            workloads=options.parse_workloads(workloads),
        )
        self._host: hosting.Host | None = None
        self._thread: threads.LoopThread | None = None
        self._inner: async_sandbox.AsyncSandbox | None = None
        self._requests: fault_injection.Requests | None = None

    async def __aenter__(self) -> 'async_sandbox.AsyncSandbox':
        from kopf._sandbox import async_sandbox

        return async_sandbox.AsyncSandbox(await self._start())

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        host = self._host
        self._host = None
        try:
            if host is not None:
                await host.stop()
        except Exception:
            if exc is None:
                raise
            logger.exception('The sandbox has failed to stop.')

    def __enter__(self) -> Self:
        self._check_idle()
        self._thread = self._make_thread()
        self._thread.start()

        try:
            self._inner = self._thread.call(self.__aenter__())
        except BaseException:
            self._stop_thread()
            raise

        self._requests = self._running.requests.from_thread(self._thread)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        try:
            self._call(self.__aexit__(exc_type, exc, traceback))
        finally:
            self._stop_thread()

    @property
    def url(self) -> str:
        """The URL of the sandbox: ``https://127.0.0.1:12345``."""
        return self._running.url

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The path of the administrator's kubeconfig."""
        return self._running.kubeconfig

    @property
    def token(self) -> str:
        """The bearer token of the administrator."""
        return self._running.token

    @property
    def ca_path(self) -> pathlib.Path:
        """The file with the certificate of the server's authority; empty without TLS."""
        return self._running.ca_path

    @property
    def ca_data(self) -> bytes:
        """The certificate of the authority in PEM; empty without TLS."""
        return self._running.ca_data

    @property
    def faults(self) -> 'fault_injection.SyncFaults':
        """The faults to inject into the requests."""
        from kopf._sandbox import fault_injection

        return fault_injection.SyncFaults(self._running.faults, self._running_thread)

    @property
    def requests(self) -> 'fault_injection.Requests':
        """The requests of clients to the sandbox; available even after it has ended."""
        if self._requests is None:
            raise _not_running()
        return self._requests

    def apply(self, *sources: options.Source) -> 'admin_client.Bodies':
        """
        Create or update the objects to match the manifests, as ``kubectl apply`` does; return them.

        The sources are paths of files and directories, texts of YAML or JSON (with line breaks),
        objects, and lists. All of them are read, and their kinds are checked, before the first one
        is applied: raises ``ManifestError``.
        """
        return self._call(self._running.apply(*sources))

    def get(self, resource: str, name: str, namespace: str = 'default') -> 'admin_client.Body':
        """Return an object. The namespace is ignored for cluster-scoped resources."""
        return self._call(self._running.get(resource, name, namespace))

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: 'admin_client.Selection' = None,
        fields: 'admin_client.Selection' = None,
    ) -> 'admin_client.Bodies':
        """Return the objects of one or all namespaces, by selectors (``a=b,c!=d`` or a dict)."""
        return self._call(self._running.list(resource, namespace, labels=labels, fields=fields))

    def create(self, body: Mapping[str, Any]) -> 'admin_client.Body':
        """
        Create an object; return it as stored. Without a namespace in its metadata, it goes to the
        default namespace.
        """
        return self._call(self._running.create(body))

    def update(self, body: Mapping[str, Any], *, subresource: str = '') -> 'admin_client.Body':
        """Replace an object, or only its ``status`` or another subresource."""
        return self._call(self._running.update(body, subresource=subresource))

    def patch(
        self,
        resource: str,
        name: str,
        patch: Any,
        namespace: str = 'default',
        *,
        type: 'admin_client.PatchType' = 'merge',
        subresource: str = '',
    ) -> 'admin_client.Body':
        """Patch an object: ``merge``, ``json``, ``strategic``, or (without force) ``apply``."""
        return self._call(
            self._running.patch(
                resource, name, patch, namespace, type=type, subresource=subresource
            )
        )

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = 'default',
        *,
        propagation: str = '',
        grace_period: int | None = None,
    ) -> None:
        """Delete an object, or mark it as being deleted if it has finalizers or a grace period."""
        self._call(
            self._running.delete(
                resource, name, namespace, propagation=propagation, grace_period=grace_period
            )
        )

    def wait(
        self,
        resource: str,
        name: str,
        condition: 'async_sandbox.Condition',
        namespace: str = 'default',
        *,
        timeout: float = 10.0,
    ) -> 'admin_client.Body | None':
        """
        Wait until an object is as expected; return it in that state, or ``None`` if it must be
        absent.

        The condition is checked in this thread, on the current state, and then on every change.
        Raises `TimeoutError` after ``timeout`` seconds.
        """
        from kopf._sandbox import async_sandbox

        last = None
        for last in self.follow(resource, name, namespace, timeout=timeout):
            if condition(last):
                return last

        if self._host is None:
            raise _not_running()
        raise TimeoutError(async_sandbox.describe_timeout(resource, name, timeout, last))

    def follow(
        self, resource: str, name: str, namespace: str = 'default', *, timeout: float = options.DAY
    ) -> 'Iterator[admin_client.Body | None]':
        """
        Iterate over the states of one object, from the current one as of the call; ``None`` while
        it does not exist.
        """
        return self._iterate(
            lambda: self._running.follow(resource, name, namespace, timeout=timeout)
        )

    def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: 'admin_client.Selection' = None,
        fields: 'admin_client.Selection' = None,
        since: str | None = None,
        timeout: float = options.DAY,
    ) -> 'Iterator[admin_client.Body]':
        """
        Iterate over the raw events of a resource (``type``, ``object``): of the changes after a
        version; without a version, of the objects that exist at the time of the call, as added, and
        then of the changes.
        """
        return self._iterate(
            lambda: self._running.watch(
                resource, namespace, labels=labels, fields=fields, since=since, timeout=timeout
            )
        )

    def compact(self) -> None:
        """Forget the history, so that watches and lists from past versions get 410."""
        self._call(self._running.compact())

    def add_user(
        self, name: str, groups: Sequence[str] = (), *, certificate: bool = False
    ) -> 'hosting.Credentials':
        """Add a user with a token or a client certificate; return the credentials."""
        return self._call(self._running.add_user(name, groups, certificate=certificate))

    def add_service(
        self,
        namespace: str,
        name: str,
        endpoint: 'str | webhook_client.Handler',
        *,
        port: int = 443,
    ) -> None:
        """Register a service for webhooks: a URL, or a coroutine function of path and review."""
        self._call(self._running.add_service(namespace, name, endpoint, port=port))

    def fail_pod(
        self,
        name: str,
        namespace: str = 'default',
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
        self._call(
            self._running.fail_pod(
                name, namespace, container=container, exit_code=exit_code, reason=reason
            )
        )

    def break_pods(
        self,
        trouble: 'behaviours.TroubleKind',
        *,
        labels: 'admin_client.Selection' = None,
        namespace: str | None = None,
        image: str = '*',
    ) -> 'async_sandbox.Breakage':
        """
        Break the selected pods, present and future, until the returned breakage is lifted: as a
        context manager, or by its ``lift()``.

        The trouble is ``crash`` (the containers exit with an error, again and again), ``image``
        (images cannot be pulled), or ``unready`` (the containers run, but are not ready). The
        selected are those with the labels, in the namespace, with an image of this pattern.
        """
        from kopf._sandbox import async_sandbox

        breakage = self._call(
            self._running.break_pods(trouble, labels=labels, namespace=namespace, image=image)
        )
        return async_sandbox.Breakage(lambda: self._call(_call_soon(breakage.lift)))

    async def _start(self) -> 'hosting.Host':
        from kopf._sandbox import hosting

        self._check_idle()
        host = hosting.Host(self._options)
        await host.start()
        self._host = host
        return host

    def _make_thread(self) -> 'threads.LoopThread':
        from kopf._sandbox import threads

        return threads.LoopThread(name='kopf-sandbox')

    def _check_idle(self) -> None:
        if self._host is not None:
            raise RuntimeError('The sandbox is running already.')

    @property
    def _running(self) -> 'async_sandbox.AsyncSandbox':
        if self._inner is None:
            raise _not_running()
        return self._inner

    @property
    def _running_thread(self) -> 'threads.LoopThread':
        if self._thread is None:
            raise _not_running()
        return self._thread

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._running_thread.call(coroutine)

    def _iterate(self, begin: Callable[[], AsyncGenerator[T]]) -> Iterator[T]:
        """Start a generator immediately, and iterate over it while the sandbox is running."""
        return _iterate(self._running_thread, self._call(_begin(begin)))

    def _stop_thread(self) -> None:
        thread = self._thread
        self._thread = None
        self._inner = None
        if thread is not None:
            thread.stop()


async def _call_soon(fn: Callable[[], None]) -> None:
    fn()


async def _begin(fn: Callable[[], AsyncGenerator[T]]) -> AsyncGenerator[T]:
    return fn()


def _iterate(thread: 'threads.LoopThread', generator: AsyncGenerator[T]) -> Iterator[T]:
    """
    Iterate over a generator that runs in the thread's event loop. If the iteration is abandoned, in
    any thread, that loop closes the generator.
    """
    from kopf._sandbox import threads

    while thread.is_running:
        try:
            items = thread.call(_take_next(generator))
        except threads.EndedError:
            return
        if not items:
            return
        yield items[0]


async def _take_next(generator: AsyncGenerator[T]) -> Sequence[T]:
    async for item in generator:
        return [item]
    return []


def _not_running() -> RuntimeError:
    return RuntimeError('The sandbox is not running: use it as a context manager.')
