"""
The rate and latency of admission reviews.

    python benchmarks/admission/run.py [--reference PYTHON]

All operators run at once, each in its own process, on one core, with the same file ``handlers.py``;
they are requested in turns, for some seconds each, from another core. The order is reversed in
every next round. ``PYTHON`` is the interpreter of a virtual environment with the reference, which
is only run, as ``PYTHON -m kopf run``. Without it, only this package is measured: as usual, and
without the optional libraries that make it faster.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import signal
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
PLAIN = 'import sys; sys.modules.update(uvloop=None, orjson=None); from kopf import cli; cli.main()'
FIGURES = ('reviews per second', 'p50, ms', 'p99, ms', 'CPU per review, ms')

sys.path.insert(0, str(HERE.parent / 'arena'))

import processes  # noqa: E402
import servers  # noqa: E402
import tables  # noqa: E402


def make_request(port: int) -> bytes:
    """Make a review of an object of 2 kB, as API servers send it."""
    resource, kind = (
        {'group': 'bench.dev', 'version': 'v1'},
        {'group': 'bench.dev', 'version': 'v1', 'kind': 'Load'},
    )
    review = {
        'apiVersion': 'admission.k8s.io/v1',
        'kind': 'AdmissionReview',
        'request': {
            'uid': '1ca13837-ad60-4c9e-abb8-86f29d6c0e84',
            'operation': 'CREATE',
            'name': 'load-1',
            'namespace': 'default',
            'kind': kind,
            'requestKind': kind,
            'resource': {**resource, 'resource': 'loads'},
            'requestResource': {**resource, 'resource': 'loads'},
            'dryRun': False,
            'oldObject': None,
            'userInfo': {'username': 'admin', 'groups': ['system:masters', 'system:authenticated']},
            'object': make_object(),
        },
    }
    content = json.dumps(review).encode()
    return (
        f'POST /check?timeout=10s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json, */*\r\n'
        f'User-Agent: kube-apiserver-admission\r\nContent-Type: application/json\r\n'
        f'Content-Length: {len(content)}\r\n\r\n'
    ).encode() + content


def make_object() -> dict[str, Any]:
    body = servers.make_object(1)
    body['metadata']['annotations'] = {'note': 'x' * 1000}
    return body


class Operator:
    """An operator that is being measured, and its figures so far."""

    def __init__(
        self, command: list[str], cluster: Any, directory: pathlib.Path, files: dict[str, str]
    ) -> None:
        with socket.create_server(('127.0.0.1', 0)) as free:
            self.port = free.getsockname()[1]
        arguments = ['run', '--quiet', '--namespace', 'default', str(HERE / 'handlers.py')]
        environ = {**files, 'KUBECONFIG': str(cluster.kubeconfig), 'BENCH_PORT': str(self.port)}
        self.process = processes.Measured(
            [*command, *arguments], core=1, directory=directory, environ=environ
        )
        self.rounds: list[dict[str, float]] = []

    def is_listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', self.port)):
            return True
        return False

    def summarize(self) -> dict[str, float]:
        return {
            figure: statistics.median(result[figure] for result in self.rounds)
            for figure in FIGURES
        }


async def ask(
    port: int, context: ssl.SSLContext | None, until: float, latencies: list[float]
) -> None:
    """Send reviews over one connection until the deadline."""
    request = make_request(port)
    reader, writer = await asyncio.open_connection('127.0.0.1', port, ssl=context)
    try:
        while (since := time.perf_counter()) < until:
            writer.write(request)
            head = await reader.readuntil(b'\r\n\r\n')
            content = await reader.readexactly(
                int(head.lower().partition(b'content-length:')[2].partition(b'\r')[0])
            )
            latencies.append(time.perf_counter() - since)
            if not head.startswith(b'HTTP/1.1 200 ') or b'true' not in content:
                raise SystemExit(f'It is not allowed: {head + content!r}')
    finally:
        writer.close()


async def measure(
    operator: Operator, context: ssl.SSLContext | None, connections: int, seconds: float
) -> None:
    """Send reviews to one operator for some seconds, over several connections at once."""
    latencies: list[float] = []
    cpu, since = operator.process.cpu, time.perf_counter()
    await asyncio.gather(
        *(ask(operator.port, context, since + seconds, latencies) for _ in range(connections))
    )
    took, spent = time.perf_counter() - since, operator.process.cpu - cpu
    latencies.sort()
    operator.rounds.append(
        {
            'reviews per second': len(latencies) / took,
            'p50, ms': latencies[len(latencies) // 2] * 1000,
            'p99, ms': latencies[len(latencies) * 99 // 100] * 1000,
            'CPU per review, ms': spent / len(latencies) * 1000,
        }
    )


@contextlib.contextmanager
def operating(
    commands: dict[str, list[str]], cluster: Any, files: dict[str, str]
) -> Iterator[dict[str, Operator]]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        operators = {}
        for name, command in commands.items():
            home = pathlib.Path(directory, name)
            home.mkdir()
            operators[name] = Operator(command, cluster, home, files)
            stack.callback(operators[name].process.stop)
        for operator in operators.values():
            operator.process.wait_until(operator.is_listening)
        # Let the operators finish their start: only then are the resources known.
        time.sleep(5)
        yield operators


def make_files(directory: pathlib.Path) -> dict[str, str]:
    from kopf._cogs.helpers import certificates

    profile = certificates.Profile('localhost', hosts=['127.0.0.1'], is_authority=True)
    pair = certificates.issue(profile, datetime.datetime.now(datetime.UTC)).export()
    paths = {'BENCH_CERTFILE': directory / 'cert.pem', 'BENCH_PKEYFILE': directory / 'key.pem'}
    paths['BENCH_CERTFILE'].write_bytes(pair.certificate)
    paths['BENCH_PKEYFILE'].write_bytes(pair.key)
    return {name: str(path) for name, path in paths.items()}


def compare(
    commands: dict[str, list[str]], cluster: Any, args: argparse.Namespace, *, is_secure: bool
) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        files = make_files(pathlib.Path(directory)) if is_secure else {}
        context = ssl.create_default_context(cafile=files['BENCH_CERTFILE']) if is_secure else None
        with operating(commands, cluster, files) as operators:
            everything = {}
            for connections in (1, args.connections):
                for operator in operators.values():
                    operator.rounds.clear()
                for number in range(args.rounds):
                    for name in list(operators)[:: -1 if number % 2 else 1]:
                        asyncio.run(measure(operators[name], context, connections, args.seconds))
                results = {name: operator.summarize() for name, operator in operators.items()}
                everything[f'{connections} connections'] = results
                print(
                    f'== {"HTTPS" if is_secure else "HTTP"}, {connections} connections, '
                    f'at the load average of {os.getloadavg()[0]:.1f}'
                )
                print(tables.compare(results))
            return everything


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--rounds', type=int, default=5, help='how many times to ask each; the medians are told'
    )
    parser.add_argument('--seconds', type=float, default=3.0, help='how long to ask at a time')
    parser.add_argument(
        '--connections', type=int, default=16, help='how many of them at once, besides one'
    )
    parser.add_argument('--reference', help='the interpreter with the reference installed')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    args = parser.parse_args()
    commands = {
        'operator': [sys.executable, '-m', 'kopf'],
        'plain operator': [sys.executable, '-c', PLAIN],
    }
    if args.reference:
        commands['reference'] = [args.reference, '-m', 'kopf']
    processes.pin(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    with servers.serve_sandbox(core=0) as cluster:
        everything = {
            scheme: compare(commands, cluster, args, is_secure=scheme == 'https')
            for scheme in ('http', 'https')
        }
    if args.json:
        args.json.write_text(json.dumps(everything, indent=2))


if __name__ == '__main__':
    main()
