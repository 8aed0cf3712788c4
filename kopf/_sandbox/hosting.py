"""
Hosting: one running sandbox with all its parts: the cluster, the server, the secrets, and the
files.

If the start fails, nothing is left behind: no port, no files, no changes in the saved objects.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import errno
import pathlib
import secrets
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kopf._sandbox import admin_client, clusters, keyrings, kubeconfigs, options, persistence
from kopf._sandbox.auth import certificates
from kopf._sandbox.codec import manifests
from kopf._sandbox.http import filters, server
from kopf._sandbox.meta import requests
from kopf._sandbox.schema import patterns

if TYPE_CHECKING:
    from kopf._sandbox.workloads import running


@dataclasses.dataclass(frozen=True)
class Credentials:
    """The credentials of a user of the sandbox."""

    user: str
    token: str = dataclasses.field(repr=False)  # empty if there is a certificate instead
    kubeconfig: pathlib.Path


class Host:
    """One sandbox, started and stopped once, in one event loop."""

    def __init__(self, chosen: options.Options) -> None:
        self._options = chosen
        self._keyring = keyrings.Keyring()
        self._ca: certificates.Authority | None = None
        self._saver: persistence.Saver | None = None
        self._stack = contextlib.AsyncExitStack()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.cluster = clusters.Cluster(with_rbac=chosen.rbac, now=_choose_clock(chosen))
        self.operator = admin_client.Operator(self.cluster)
        self.server = server.Server(self.cluster, host=chosen.host, port=chosen.port)
        self._workloads: running.Workloads | None = None
        self.kubeconfig = pathlib.Path()
        self.ca_path = pathlib.Path()

    @property
    def _directory(self) -> pathlib.Path:
        assert self._temporary is not None, 'the sandbox is not started'
        return pathlib.Path(self._temporary.name)

    @property
    def workloads(self) -> 'running.Workloads':
        """The controllers and the nodes. Raises `RuntimeError` if the sandbox has none."""
        if self._workloads is None:
            raise RuntimeError('The sandbox has no workloads: use Sandbox(workloads=True).')
        return self._workloads

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the authority; empty without TLS."""
        return b'' if self._ca is None else self._ca.pem

    async def start(self) -> None:
        """
        Start serving, with the saved objects restored and with the manifests applied.

        Raises `ManifestError`, `ApiError`, `SaveError`, `MissingLibraryError`, or `OSError` with a
        message for the user.
        """
        patterns.check_engine()
        bodies = manifests.load_sources(self._options.apply)
        if self._options.kubeconfig is not None:
            kubeconfigs.check_replaceable(self._options.kubeconfig)
        async with contextlib.AsyncExitStack() as stack:
            self._temporary = tempfile.TemporaryDirectory(prefix='kopf-sandbox-')
            stack.enter_context(self._temporary)
            self._restore(stack)
            stack.push_async_callback(self.cluster.close)
            stack.callback(self.operator.close)
            self._secure()
            await self.cluster.start(self.ca_pem)
            self.cluster.settle()
            await self.operator.apply(bodies)
            await self._start_workloads(stack)
            stack.push_async_callback(self.server.stop)
            await self._listen()
            self.cluster.publish(self._options.host, self.server.port)
            self._write_files()
            self._begin_saving()
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Stop serving, and clean up: all steps are tried even if some of them fail."""
        await self._stack.aclose()

    def abandon(self) -> None:
        """Remove the temporary files, which have secrets, if the process exits without `stop`."""
        if self._temporary is not None:
            self._temporary.cleanup()

    async def restart(self, downtime: float, *, compact: bool) -> None:
        """Stop listening, and listen again after a while. Raises `OSError` if the port is taken."""
        await self.server.stop()
        if compact:
            self.cluster.store.compact()
        await asyncio.sleep(downtime)
        await self.server.start()

    def add_user(self, name: str, groups: Sequence[str], *, certificate: bool) -> Credentials:
        """Add a user with a token or a client certificate, and write a kubeconfig."""
        token = ''
        pair = None
        if certificate:
            if self._ca is None:
                raise ValueError('There are no client certificates without TLS.')
            pair = certificates.issue_client(self._ca, name, groups, clusters.utc_now())
        else:
            token = secrets.token_urlsafe(24)
            self.cluster.authenticator.add_token(token, requests.User(name, tuple(groups)))
            self._keyring.logins.append(keyrings.Login(name, tuple(groups), token))
            if self._saver is not None:
                self._saver.save_keyring(self._keyring)

        path = self._directory / f'kubeconfig-{secrets.token_hex(4)}'
        config = kubeconfigs.build_kubeconfig(
            self._build_address(token), self.ca_pem, token=token, pair=pair
        )
        kubeconfigs.write_kubeconfig(path, config)

        return Credentials(name, token, path)

    def _restore(self, stack: contextlib.AsyncExitStack) -> None:
        if self._options.save is None:
            return

        self._saver = persistence.Saver(self._options.save)
        saved = self._saver.open()
        stack.callback(self._saver.close)
        self._keyring = saved.keyring

        try:
            keyrings.install(saved.keyring, self.cluster)
        except ValueError as e:
            raise persistence.SaveError(
                f'The credentials in {self._options.save} are damaged: {e}.'
            ) from e

        if saved.version:
            self.cluster.restore(saved.version, saved.objects)

    async def _start_workloads(self, stack: contextlib.AsyncExitStack) -> None:
        if self._options.workloads is None:
            return
        from kopf._sandbox.workloads import running

        self._workloads = running.Workloads(self.cluster, self._options.workloads)
        stack.push_async_callback(self._workloads.stop)
        await self._workloads.start()

    def _secure(self) -> None:
        """Prepare the TLS, if it is enabled."""
        if not self._options.tls:
            return

        now = clusters.utc_now()
        self._ca = (
            certificates.make_ca(now)
            if self._keyring.ca is None
            else certificates.load_ca(self._keyring.ca)
        )
        hosts = dict.fromkeys((*certificates.LOCAL_HOSTS, self._options.host))
        pair = certificates.issue_server(self._ca, hosts, now)
        self.server.context = certificates.build_server_context(pair, self._ca.pem)

    async def _listen(self) -> None:
        """Listen on the requested port; if any is accepted, on the saved one if it is free."""
        if not self._options.port and self._keyring.port:
            self.server.port = self._keyring.port
            try:
                return await self.server.start()
            except OSError:
                self.server.port = 0

        try:
            await self.server.start()
        except OSError as e:
            why = 'the port is busy' if e.errno == errno.EADDRINUSE else e.strerror or e
            text = f'Cannot listen on {self._options.host}:{self._options.port}: {why}.'
            raise (OSError(text) if e.errno is None else OSError(e.errno, text)) from e

    def _build_address(self, token: str) -> str:
        """
        Build the URL for a kubeconfig: without TLS, it includes the token, as kubectl does not send
        it otherwise.
        """
        return self.server.url if self._options.tls else filters.add_token(self.server.url, token)

    def _write_files(self) -> None:
        self.ca_path = self._directory / 'ca.crt'
        self.ca_path.write_bytes(self.ca_pem)
        self.kubeconfig = (self._options.kubeconfig or self._directory / 'kubeconfig').absolute()
        token = self.cluster.admin_token
        config = kubeconfigs.build_kubeconfig(self._build_address(token), self.ca_pem, token=token)
        kubeconfigs.write_kubeconfig(self.kubeconfig, config)

    def _begin_saving(self) -> None:
        if self._saver is None:
            return

        self._keyring.ca = (
            self._keyring.ca if self._ca is None else certificates.export_ca(self._ca)
        )
        self._keyring.signing_key = certificates.export_key(self.cluster.signer.key)
        self._keyring.admin_token = self.cluster.admin_token
        self._keyring.port = self.server.port

        try:
            self._saver.begin(self.cluster.store, self._keyring)
        except BaseException:
            self.kubeconfig.unlink(missing_ok=True)
            raise


def _choose_clock(chosen: options.Options) -> Callable[[], datetime.datetime]:
    """Choose the clock of the times in objects: workloads compare them with their own timers."""
    if chosen.now is not None:
        return chosen.now
    if chosen.workloads is None:
        return clusters.utc_now
    from kopf._sandbox.workloads import running

    return running.LoopClock()
