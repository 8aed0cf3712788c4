"""
How much it costs to list and to watch many objects: ``python benchmarks/streams/run.py --reference PYTHON``.

One sandbox in a process of its own, on one core, over TLS on loopback; the clients run on another core, one after
another, each in a process of its own: our client code alone, our whole operator, and the reference. ``PYTHON`` is
the interpreter of a virtual environment with the reference installed: it is run as ``PYTHON -m kopf run``, and known
only by that. Without it, only we are measured; with it, the ratios to it are in the parentheses.
"""
import argparse
import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import yaml

HERE = pathlib.Path(__file__).resolve().parent
COLLECTION = '/apis/bench.dev/v1/namespaces/default/loads'
CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'loads.bench.dev'},
    'spec': {'group': 'bench.dev', 'scope': 'Namespaced', 'names': {'plural': 'loads', 'kind': 'Load'}, 'versions': [{
        'name': 'v1', 'served': True, 'storage': True,
        'schema': {'openAPIV3Schema': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}}}]},
}


def make_object(number: int) -> dict[str, Any]:
    """An object of 2 kB as it is stored, besides ``managedFields``."""
    return {
        'apiVersion': 'bench.dev/v1', 'kind': 'Load',
        'metadata': {'name': f'load-{number}', 'labels': {'app': 'bench', 'shard': str(number % 10)},
                     'annotations': {'note': 'x' * 200}},
        'spec': {'replicas': 1, 'items': [{'name': f'item-{n}', 'size': n, 'note': 'y' * 20} for n in range(25)]},
    }


def pin(core: int) -> None:
    if hasattr(os, 'sched_setaffinity') and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


class Measured:
    """A process, and what it has taken from the system so far."""

    def __init__(self, command: list[str], *, core: int, cwd: pathlib.Path, **environ: str) -> None:
        # Not from here: modules of the current directory would be taken instead of the installed ones.
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **environ},
                                        cwd=cwd, preexec_fn=lambda: pin(core))

    @property
    def cpu(self) -> float:
        fields = pathlib.Path(f'/proc/{self.process.pid}/stat').read_text().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    @property
    def peak(self) -> float:
        """The peak of the resident memory in megabytes."""
        match = re.search(r'VmHWM:\s+(\d+) kB', pathlib.Path(f'/proc/{self.process.pid}/status').read_text())
        return int(match[1]) / 1024 if match else float('nan')

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Cluster:
    """A sandbox with the objects."""

    def __init__(self, directory: pathlib.Path, total: int) -> None:
        self.kubeconfig, self.total = directory / 'kubeconfig', total
        command = [sys.executable, '-m', 'kopf', 'sandbox', '--kubeconfig', str(self.kubeconfig)]
        self.sandbox = Measured(command, core=0, cwd=directory)
        wait_until(lambda: self.kubeconfig.exists() and self.kubeconfig.stat().st_size > 0, self.sandbox)
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.url = config['clusters'][0]['cluster']['server']
        self.token = config['users'][0]['user']['token']
        authority = base64.b64decode(config['clusters'][0]['cluster']['certificate-authority-data']).decode()
        self.context = ssl.create_default_context(cadata=authority)

    async def send(self, method: str, url: str, bodies: list[dict[str, Any]], *, kind: str = 'application/json',
                   is_named: bool = False) -> None:
        """Make the same request with many bodies, by several connections."""
        queue = iter(list(enumerate(bodies)))
        async with aiohttp.ClientSession(
                base_url=self.url, headers={'Authorization': f'Bearer {self.token}', 'Content-Type': kind},
                connector=aiohttp.TCPConnector(ssl=self.context)) as session:

            async def work() -> None:
                for number, body in queue:
                    target = f'{url}/load-{number}' if is_named else url
                    async with session.request(method, target, data=json.dumps(body)) as response:
                        await response.read()
                        response.raise_for_status()

            await asyncio.gather(*(work() for _ in range(8)))

    async def fill(self) -> None:
        await self.send('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', [CRD])
        await self.send('POST', COLLECTION, [make_object(number) for number in range(self.total)])

    async def change(self, replicas: int) -> None:
        await self.send('PATCH', COLLECTION, [{'spec': {'replicas': replicas}}] * self.total,
                        kind='application/merge-patch+json', is_named=True)


@contextlib.contextmanager
def serving(total: int) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(pathlib.Path(directory), total)
        try:
            yield cluster
        finally:
            cluster.sandbox.stop()


def wait_until(condition: Any, *measured: Measured, timeout: float = 600) -> None:
    deadline = time.perf_counter() + timeout
    while not condition():
        for one in measured:
            if one.process.poll() is not None:
                raise SystemExit(f'{one.process.args} has exited with the code {one.process.returncode}.')
        if time.perf_counter() > deadline:
            raise SystemExit('It takes too long.')
        time.sleep(0.01)


def measure(cluster: Cluster, command: list[str]) -> dict[str, float]:
    """Let a client see all objects, then all of them changed once."""
    asyncio.run(cluster.change(1))
    with tempfile.TemporaryDirectory() as directory:
        progress = pathlib.Path(directory) / 'progress'
        progress.touch()
        started = time.perf_counter()
        client = Measured(command, core=1, cwd=progress.parent, KUBECONFIG=str(cluster.kubeconfig),
                          BENCH_PROGRESS=str(progress), BENCH_TOTAL=str(cluster.total))
        try:
            wait_until(lambda: '1' in progress.read_text().split(), client)
            listed = {'listed, s': time.perf_counter() - started, 'listed, CPU s': client.cpu,
                      'listed, peak RSS MB': client.peak}
            time.sleep(10)  # let it do whatever it does afterwards
            settled = client.cpu
            asyncio.run(cluster.change(2))
            wait_until(lambda: '2' in progress.read_text().split(), client)
            time.sleep(10)
            return {**listed, 'watched, CPU s': client.cpu - settled, 'in all, CPU s': client.cpu,
                    'in all, peak RSS MB': client.peak}
        finally:
            client.stop()


def report(results: dict[str, dict[str, float]]) -> None:
    print(f'{"":22}', *(f'{name:>20}' for name in results))
    for figure in next(iter(results.values())):
        values = {name: result[figure] for name, result in results.items()}
        base = values.get('reference')
        cells = [f'{value:.2f}' + (f' ({value / base:.2f})' if base else '') for value in values.values()]
        print(f'{figure:22}', *(f'{cell:>20}' for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--total', type=int, default=10_000, help='how many objects')
    parser.add_argument('--reference', help='the interpreter with the reference installed')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    args = parser.parse_args()
    operator = ['-m', 'kopf', 'run', '--quiet', '--namespace', 'default', str(HERE / 'handlers.py')]
    commands = {'client': [sys.executable, str(HERE / 'counting.py')], 'operator': [sys.executable, *operator]}
    if args.reference:
        commands['reference'] = [args.reference, *operator]
    pin(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    with serving(args.total) as cluster:
        asyncio.run(cluster.fill())
        results = {name: measure(cluster, command) for name, command in commands.items()}
    report(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == '__main__':
    main()
