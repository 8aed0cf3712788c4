"""
An operator in a process of its own, and the clients that attack its servers: silent, slow, and
oversized ones.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import time

OPERATOR = """
    import asyncio
    import kopf

    longest = 0.0

    async def measure_turns():
        global longest
        loop, period = asyncio.get_running_loop(), 0.001
        while True:
            since = loop.time()
            await asyncio.sleep(period)
            longest = max(longest, loop.time() - since - period)

    @kopf.on.startup()
    def configure(settings, memo, **_):
        settings.admission.server = kopf.WebhookServer(**{options!r})

    @kopf.on.startup()
    async def start_measuring(memo, **_):
        memo.measuring = asyncio.create_task(measure_turns())

    @kopf.on.cleanup()
    async def stop_measuring(memo, **_):
        memo.measuring.cancel()

    @kopf.on.validate('kopfexamples')
    async def report(warnings, **_):
        global longest
        warnings.append(f'{{longest:.4f}}')
        longest = 0.0

    @kopf.on.mutate('kopfexamples')
    async def mark(patch, **_):
        patch.metadata.labels['seen'] = 'yes'
"""

DEFINITION = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'KopfExample', 'plural': 'kopfexamples'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'x-kubernetes-preserve-unknown-fields': True,
                    }
                },
            }
        ],
    },
}

PROBE = b'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'


def find_free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(('127.0.0.1', 0))
        return [sock.getsockname()[1] for sock in sockets]


def build_review(spec=None, old=None):
    """Build the review of a change of an object with this spec."""
    metadata = {'name': 'x', 'namespace': 'default', 'uid': 'u'}
    obj = {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': metadata,
        'spec': spec or {},
    }
    request = {
        'uid': 'r',
        'operation': 'UPDATE',
        'object': obj,
        'oldObject': {**obj, 'spec': old or {}},
        'resource': {'group': 'kopf.dev', 'version': 'v1', 'resource': 'kopfexamples'},
    }
    return json.dumps(
        {'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': request}
    ).encode()


def build_post(body, *, path='/report', declared=None):
    """Build a request with this body; with another declared size, it never ends."""
    size = len(body) if declared is None else declared
    return (
        b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % (path.encode(), size)
        + body
    )


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: dict
    body: bytes
    delay: float  # seconds from the beginning of the connection

    @property
    def json(self):
        return json.loads(self.body)


def read_answer(sock, since):
    with sock.makefile('rb') as file:
        line = file.readline()
        if not line:
            raise ConnectionError('The connection was closed with no answer.')
        headers = {}
        while header := file.readline().strip():
            name, _, value = header.decode().partition(':')
            headers[name.lower()] = value.strip()
        body = file.read(int(headers.get('content-length', 0)))
    return Answer(int(line.split()[1]), headers, body, time.monotonic() - since)


@dataclasses.dataclass(frozen=True)
class Port:
    """One port of the operator, for good and for bad clients."""

    number: int
    authority: pathlib.Path | None = None

    @functools.cached_property
    def context(self):
        return ssl.create_default_context(cafile=str(self.authority))

    def connect(self, timeout=30):
        return socket.create_connection(('127.0.0.1', self.number), timeout=timeout)

    def connect_securely(self, timeout=30):
        sock = self.connect(timeout)
        return (
            sock
            if self.authority is None
            else self.context.wrap_socket(sock, server_hostname='localhost')
        )

    def ask(self, request, timeout=30):
        """Make one good request; return the answer."""
        since = time.monotonic()
        with self.connect_securely(timeout) as sock:
            sock.sendall(request)
            return read_answer(sock, since)


@dataclasses.dataclass(frozen=True)
class Victim:
    """The running operator."""

    process: subprocess.Popen
    probes: Port
    webhooks: Port
    log: pathlib.Path

    @property
    def memory(self):
        """The resident memory, in MB."""
        lines = pathlib.Path(f'/proc/{self.process.pid}/status').read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith('VmRSS:'))

    def review(self, review=None, path='/report'):
        return self.webhooks.ask(build_post(review or build_review(), path=path))


@contextlib.contextmanager
def running_operator(
    folder, *, files_limit=None, runner=(sys.executable, '-m', 'kopf'), env=None, **options
):
    """Run an operator with a probe server and a webhook server until the end of the block."""
    probes, webhooks = find_free_ports(2)
    authority = None if options.get('insecure') else folder / 'ca.pem'
    options.update(
        addr='127.0.0.1', host='localhost', port=webhooks, cadump=authority and str(authority)
    )
    (folder / 'crd.json').write_text(json.dumps(DEFINITION))
    lines = [line[4:] for line in OPERATOR.format(options=options).splitlines()]
    (folder / 'handlers.py').write_text('\n'.join(lines))
    command = [
        *runner,
        'run',
        '--sandbox',
        '--apply',
        'crd.json',
        '-A',
        '--log-format=plain',
        f'--liveness=http://127.0.0.1:{probes}/healthz',
        'handlers.py',
    ]

    def limit():
        if files_limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files_limit, files_limit))

    with (
        (folder / 'log').open('wb') as log,
        subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, preexec_fn=limit, env=env
        ) as process,
    ):
        victim = Victim(process, Port(probes), Port(webhooks, authority), folder / 'log')
        try:
            wait_until_ready(victim)
            yield victim
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_ready(victim, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        assert victim.process.poll() is None, victim.log.read_text()
        with contextlib.suppress(OSError):
            ready = victim.probes.ask(b'GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n', timeout=5)
            if ready.status == 200 and victim.review().status == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f'The operator is not ready: {victim.log.read_text()}')


@contextlib.contextmanager
def crowd(port, count, sent=b'', *, is_secure=False):
    """Keep so many connections open, each having sent this; they are not read from."""
    with contextlib.ExitStack() as stack:
        members = []
        for _ in range(count):
            sock = stack.enter_context(
                contextlib.closing(port.connect_securely() if is_secure else port.connect())
            )
            with contextlib.suppress(OSError):
                sock.sendall(sent)
            members.append(sock)
        yield members


def count_open(members):
    """Count the connections that the server has not closed."""
    poller = select.poll()
    for sock in members:
        poller.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    closed = poller.poll(0)
    return len(members) - len(closed)
