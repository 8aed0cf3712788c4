"""
A real control plane: etcd, kube-apiserver and kube-controller-manager, on free ports of the
loopback, no containers.

Every one begins empty and has its own certificates, tokens and files; all of them are gone when it
stops. The processes never outlive the one that has started them, however it ends: they are tethered
by their standard input.

By hand, it serves until Ctrl-C::

    python tests/controlplanes.py
"""

import contextlib
import csv
import dataclasses
import datetime
import json
import os
import pathlib
import secrets
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kopf._sandbox import kubeconfigs
from kopf._sandbox.auth import certificates

VERSION = '1.35.4'  # the same as in the Makefile
BUILD = f'kopf-tests/controlplane-{VERSION}'  # in the user's cache; made by `make controlplane`
PROGRAMS = ('etcd', 'kube-apiserver', 'kube-controller-manager')
ADMINS = 'system:masters'
START_PATIENCE = 120.0  # seconds; it takes ten on an idle machine
STOP_PATIENCE = 10.0
PAUSE = 0.1

AUDIT_POLICY = {
    'apiVersion': 'audit.k8s.io/v1',
    'kind': 'Policy',
    'omitStages': ['RequestReceived'],
    'rules': [{'level': 'Metadata'}],
}


class StartError(Exception):
    """The control plane does not start; the text has the end of the log."""


@dataclasses.dataclass(frozen=True)
class Credentials:
    """How a user gets into the cluster."""

    user: str
    token: str = dataclasses.field(repr=False)
    kubeconfig: pathlib.Path


def find_build(environ: Mapping[str, str]) -> pathlib.Path | None:
    """
    Find the directory with the programs in the user's cache; ``None`` if they are not built yet.
    """
    cache = environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    build = pathlib.Path(cache, BUILD)
    return build if all(os.access(build / program, os.X_OK) for program in PROGRAMS) else None


@contextlib.contextmanager
def run_controlplane(build: pathlib.Path) -> Iterator['ControlPlane']:
    """Start a control plane of these programs, and stop it in the end. Raises `StartError`."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix='kopf-controlplane-'))
        controlplane = ControlPlane(build, pathlib.Path(directory))
        stack.callback(controlplane.stop)
        controlplane.start()
        yield controlplane


class Program:
    """
    One process, in a session of its own: what comes from the terminal (Ctrl-C) does not reach it.
    """

    def __init__(self, command: Sequence[str | os.PathLike[str]], log: pathlib.Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        with self._log.open('ab') as log:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, 'TETHERED': '1'},
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> None:
        """
        End the process, politely or not, and wait until it is gone; nothing happens if there is
        none.
        """
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=STOP_PATIENCE)  # closes the tether
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait_until(self, check: Callable[[], bool]) -> None:
        """
        Wait until the condition is true. Raises `StartError` if the process ends before that, or it
        lasts long.
        """
        deadline = time.monotonic() + START_PATIENCE
        while not check():
            if self._process is None or self._process.poll() is not None:
                raise StartError(self._describe('has ended'))
            if time.monotonic() > deadline:
                raise StartError(self._describe(f'is not ready after {START_PATIENCE:.0f} seconds'))
            time.sleep(PAUSE)

    def _describe(self, what: str) -> str:
        tail = ''.join(self._log.read_text(errors='replace').splitlines(keepends=True)[-20:])
        return f'{pathlib.Path(self._command[0]).name} {what}. The end of its log:\n{tail}'


class ControlPlane:
    """
    One cluster without nodes. RBAC is on: ``admin`` may do everything, ``operator`` nothing until
    it is granted.
    """

    url: str
    admin: Credentials
    operator: Credentials

    def __init__(self, build: pathlib.Path, directory: pathlib.Path) -> None:
        self.build = build
        self._directory = directory
        client_port, peer_port, api_port, controllers_port = find_free_ports(4)
        self._etcd_url = f'http://127.0.0.1:{client_port}'
        self.url = f'https://127.0.0.1:{api_port}'
        self.ca_path = directory / 'ca.crt'
        self.audit_path = directory / 'audit.log'
        self._write_certificates()
        self.admin, self.operator, self._controllers = self._write_users(
            {'admin': ADMINS, 'operator': '', 'controller-manager': ADMINS}
        )
        (directory / 'audit-policy.json').write_text(json.dumps(AUDIT_POLICY))
        self._etcd = self._build_program('etcd', self._build_etcd_options(peer_port))
        self._apiserver = self._build_program(
            'kube-apiserver', self._build_apiserver_options(api_port)
        )
        self._controller_manager = self._build_program(
            'kube-controller-manager', self._build_controllers_options(controllers_port)
        )

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        programs = (self._etcd, self._apiserver, self._controller_manager)
        return [program.pid for program in programs if program.pid is not None]

    def start(self) -> None:
        """Start all of it, and wait until it works. Raises `StartError`."""
        self._etcd.start()
        self._etcd.wait_until(self._is_etcd_ready)
        self.start_apiserver()
        self._controller_manager.start()
        self._controller_manager.wait_until(self._are_controllers_ready)

    def stop(self) -> None:
        """Stop all of it, as far as it was started."""
        for program in (self._controller_manager, self._apiserver, self._etcd):
            program.stop()

    def start_apiserver(self) -> None:
        """Start the API server, and wait until it is ready. Raises `StartError`."""
        self._apiserver.start()
        self._apiserver.wait_until(self._is_api_ready)

    def stop_apiserver(self) -> None:
        """
        Stop the API server alone: its clients are cut off. The objects are kept, the history of
        watches is not.
        """
        self._apiserver.stop()

    def ask(self, path: str) -> Any:
        """
        Get something from the API as the administrator; ``None`` if it is not there, or the API is
        not.
        """
        request = urllib.request.Request(
            self.url + path, headers={'Authorization': f'Bearer {self.admin.token}'}
        )
        return _fetch(request, context=self.build_context())

    def build_context(self) -> ssl.SSLContext:
        """Build the TLS context that trusts the API server."""
        return ssl.create_default_context(cafile=self.ca_path)

    def compact(self) -> None:
        """Make etcd forget all but the current versions of objects."""
        found = self._ask_etcd('/v3/kv/range', {'key': 'AA==', 'limit': 1})
        self._ask_etcd(
            '/v3/kv/compaction', {'revision': found['header']['revision'], 'physical': True}
        )

    def read_audit(self) -> list[dict[str, Any]]:
        """
        Read all that the API was asked of, in the order of the answers: one audit event per line.
        """
        with self.audit_path.open() as lines:
            return [json.loads(line) for line in lines]

    def _is_etcd_ready(self) -> bool:
        answer = _fetch(urllib.request.Request(f'{self._etcd_url}/health'))
        return bool(answer) and answer['health'] == 'true'

    def _is_api_ready(self) -> bool:
        return self.ask('/readyz?verbose') is not None

    def _are_controllers_ready(self) -> bool:
        """Tell if they have made what clusters begin with."""
        return (
            self.ask('/api/v1/namespaces/default/serviceaccounts/default') is not None
            and self.ask('/api/v1/namespaces/default/configmaps/kube-root-ca.crt') is not None
        )

    def _ask_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(self._etcd_url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=STOP_PATIENCE) as response:
            return json.load(response)

    def _write_certificates(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        authority = certificates.make_ca(now)
        server = certificates.issue_server(authority, certificates.LOCAL_HOSTS, now)
        self.ca_path.write_bytes(authority.pem)
        (self._directory / 'server.crt').write_bytes(server.certificate)
        (self._directory / 'server.key').write_bytes(server.key)
        key = ec.generate_private_key(ec.SECP256R1())
        (self._directory / 'tokens.key').write_bytes(certificates.export_key(key))
        (self._directory / 'tokens.pub').write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def _write_users(self, groups: Mapping[str, str]) -> list[Credentials]:
        users: list[Credentials] = []
        for user in groups:
            credentials = Credentials(
                user, secrets.token_hex(16), self._directory / f'{user}.kubeconfig'
            )
            kubeconfig = kubeconfigs.build_kubeconfig(
                self.url, self.ca_path.read_bytes(), token=credentials.token
            )
            kubeconfigs.write_kubeconfig(credentials.kubeconfig, kubeconfig)
            users.append(credentials)
        with (self._directory / 'tokens.csv').open('w', newline='') as file:
            csv.writer(file).writerows(
                [user.token, user.user, user.user, groups[user.user]] for user in users
            )
        return users

    def _build_program(self, name: str, options: Mapping[str, object]) -> Program:
        arguments = [f'--{key}={value}' for key, value in options.items()]
        return Program([self.build / name, *arguments], self._directory / f'{name}.log')

    def _build_etcd_options(self, peer_port: int) -> dict[str, object]:
        peer_url = f'http://127.0.0.1:{peer_port}'
        return {
            'name': 'etcd',
            'data-dir': self._directory / 'etcd',
            'listen-client-urls': self._etcd_url,
            'advertise-client-urls': self._etcd_url,
            'listen-peer-urls': peer_url,
            'initial-advertise-peer-urls': peer_url,
            'initial-cluster': f'etcd={peer_url}',
            'heartbeat-interval': 10,  # milliseconds: alone, it needs no patience to elect itself
            'election-timeout': 100,
            'unsafe-no-fsync': 'true',
            'log-level': 'warn',
        }

    def _build_apiserver_options(self, port: int) -> dict[str, object]:
        return {
            'etcd-servers': self._etcd_url,
            'etcd-compaction-interval': 0,  # only when the tests want it
            'bind-address': '127.0.0.1',
            'secure-port': port,
            'endpoint-reconciler-type': 'none',
            'service-cluster-ip-range': '10.96.0.0/12',  # as in the sandbox
            'tls-cert-file': self._directory / 'server.crt',
            'tls-private-key-file': self._directory / 'server.key',
            'client-ca-file': self.ca_path,
            'token-auth-file': self._directory / 'tokens.csv',
            'service-account-issuer': 'https://kubernetes.default.svc',
            'service-account-key-file': self._directory / 'tokens.pub',
            'service-account-signing-key-file': self._directory / 'tokens.key',
            'authorization-mode': 'RBAC',
            'audit-policy-file': self._directory / 'audit-policy.json',
            'audit-log-path': self.audit_path,
            'audit-log-mode': 'blocking-strict',  # what was answered, is written
        }

    def _build_controllers_options(self, port: int) -> dict[str, object]:
        return {
            'kubeconfig': self._controllers.kubeconfig,
            'bind-address': '127.0.0.1',
            'secure-port': port,
            'cert-dir': self._directory / 'controllers',
            'leader-elect': 'false',
            'root-ca-file': self.ca_path,
            'service-account-private-key-file': self._directory / 'tokens.key',
        }


def find_free_ports(count: int) -> list[int]:
    """Find some ports of the loopback that nobody listens to at the moment, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(('127.0.0.1', 0))
        return [free.getsockname()[1] for free in sockets]


def wait_until_ended(pid: int) -> None:
    """
    Wait until a process has ended, whosoever child it is and whether it is reaped. Raises
    `TimeoutError`.
    """
    deadline = time.monotonic() + STOP_PATIENCE
    while True:
        shown = subprocess.run(
            ['ps', '-o', 'stat=', '-p', str(pid)], capture_output=True, text=True
        ).stdout.strip()
        if not shown or shown.startswith('Z'):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f'The process {pid} is still running.')
        time.sleep(PAUSE)


def _fetch(request: urllib.request.Request, context: ssl.SSLContext | None = None) -> Any:
    """
    Get an answer: decoded if it is JSON, as bytes if not; ``None`` if there is none, or it is a
    refusal.
    """
    try:
        with urllib.request.urlopen(request, timeout=STOP_PATIENCE, context=context) as response:
            raw = response.read()
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except OSError:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw


if __name__ == '__main__':
    found = find_build(os.environ)
    if found is None:
        raise SystemExit('There is no control plane: run `make controlplane`, which needs Go.')
    with contextlib.suppress(KeyboardInterrupt), run_controlplane(found) as served:
        print(served.admin.kubeconfig, flush=True)  # noqa: T201
        signal.pause()
