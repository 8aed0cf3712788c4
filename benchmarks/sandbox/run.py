"""
The speed and the memory of the sandbox: ``python benchmarks/sandbox/run.py``.

The sandbox runs in its own process, on one core, over TLS on loopback; the load comes from this
process, on another core if there is one. Prints a table, and writes JSON with ``--json FILE``.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import aiohttp
import yaml

GOALS = {
    'start in a process, cold (s)': ('<', 0.3),
    'start in a process, warm (s)': ('<', 0.3),
    'creates (1/s)': ('>', 1000),
    'merge patches (1/s)': ('>', 1000),
    'events to 100 watchers, lost or disordered': ('<', 1),
    'RSS with 50,000 objects (MB)': ('<', 400),
}

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'loads.bench.dev'},
    'spec': {
        'group': 'bench.dev',
        'scope': 'Namespaced',
        'names': {'plural': 'loads', 'kind': 'Load'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'subresources': {'status': {}},
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'properties': {
                            'spec': {
                                'type': 'object',
                                'properties': {
                                    'replicas': {'type': 'integer'},
                                    'payload': {'type': 'string'},
                                    'items': {
                                        'type': 'array',
                                        'items': {
                                            'type': 'object',
                                            'properties': {
                                                'name': {'type': 'string'},
                                                'size': {'type': 'integer'},
                                            },
                                        },
                                    },
                                },
                            },
                            'status': {
                                'type': 'object',
                                'x-kubernetes-preserve-unknown-fields': True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def make_object(name: str) -> dict[str, Any]:
    """Make an object of about 1 kB."""
    return {
        'apiVersion': 'bench.dev/v1',
        'kind': 'Load',
        'metadata': {
            'name': name,
            'labels': {'app': 'bench', 'shard': name[-1]},
            'annotations': {'note': 'x' * 100},
        },
        'spec': {
            'replicas': 1,
            'payload': 'y' * 400,
            'items': [{'name': f'item-{n}', 'size': n} for n in range(10)],
        },
    }


START = """
import time
import kopf.testing
for _ in 'cold', 'warm':
    since = time.perf_counter()
    with kopf.testing.Sandbox() as sandbox:
        print(time.perf_counter() - since)
"""
"""The first sandbox of a process also imports its dependencies, e.g. the HTTP library."""

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != 'PYTHONDONTWRITEBYTECODE'
}


class Target:
    """A sandbox in another process."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.kubeconfig = pathlib.Path(self.directory.name) / 'kubeconfig'
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'kopf', 'sandbox', '--kubeconfig', str(self.kubeconfig)],
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: pin(0),
            env=ENVIRONMENT,
        )
        self._wait_until_serving()
        self.start_time = time.perf_counter() - started

    def _wait_until_serving(self) -> None:
        deadline = time.perf_counter() + 30
        while time.perf_counter() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f'The sandbox has exited with the code {self.process.returncode}.')
            with contextlib.suppress(OSError, TypeError, KeyError):
                config = yaml.safe_load(self.kubeconfig.read_text())
                self.url = config['clusters'][0]['cluster']['server']
                ca = base64.b64decode(
                    config['clusters'][0]['cluster']['certificate-authority-data']
                ).decode()
                self.token = config['users'][0]['user']['token']
                self.context = ssl.create_default_context(cadata=ca)
                headers = {'Authorization': f'Bearer {self.token}'}
                request = urllib.request.Request(f'{self.url}/readyz', headers=headers)
                with urllib.request.urlopen(request, context=self.context):
                    return
            time.sleep(0.005)
        raise SystemExit('The sandbox does not serve.')

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            base_url=self.url,
            headers={'Authorization': f'Bearer {self.token}', 'User-Agent': 'bench/1'},
            connector=aiohttp.TCPConnector(ssl=self.context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    @property
    def rss(self) -> float:
        match = re.search(
            r'VmRSS:\s+(\d+) kB', pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        )
        return int(match[1]) / 1024 if match else float('nan')

    @property
    def cpu(self) -> float:
        fields = (
            pathlib.Path(f'/proc/{self.process.pid}/stat').read_text().rpartition(')')[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)
        self.directory.cleanup()


def pin(core: int) -> None:
    if hasattr(os, 'sched_setaffinity') and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def running() -> Iterator[Target]:
    target = Target()
    try:
        yield target
    finally:
        target.stop()


async def flood(
    target: Target, method: str, urls: list[str], bodies: list[bytes], *, kind: str, workers: int
) -> tuple[float, float]:
    """
    Send the requests over several connections.

    Returns the rate, and the CPU seconds of the sandbox per 1,000 requests.
    """
    queue = iter(list(zip(urls, bodies, strict=True)))
    async with target.session() as session:

        async def work() -> None:
            for url, body in queue:
                async with session.request(
                    method, url, data=body, headers={'Content-Type': kind}
                ) as response:
                    await response.read()
                    response.raise_for_status()

        cpu, started = target.cpu, time.perf_counter()
        await asyncio.gather(*(work() for _ in range(workers)))
        elapsed = time.perf_counter() - started
    return len(urls) / elapsed, (target.cpu - cpu) / len(urls) * 1000


async def prepare(target: Target) -> None:
    async with (
        target.session() as session,
        session.post(
            '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', json=CRD
        ) as response,
    ):
        response.raise_for_status()


COLLECTION = '/apis/bench.dev/v1/namespaces/default/loads'


async def measure_writes(count: int, results: dict[str, float]) -> None:
    with running() as target:
        await prepare(target)
        bodies = [json.dumps(make_object(f'load-{n}')).encode() for n in range(count)]
        rate, cpu = await flood(
            target, 'POST', [COLLECTION] * count, bodies, kind='application/json', workers=8
        )
        results['creates (1/s)'], results['creates, CPU s per 1,000'] = rate, cpu
        patches = [json.dumps({'spec': {'replicas': n + 2}}).encode() for n in range(count)]
        urls = [f'{COLLECTION}/load-{n}' for n in range(count)]
        rate, cpu = await flood(
            target, 'PATCH', urls, patches, kind='application/merge-patch+json', workers=8
        )
        results['merge patches (1/s)'], results['merge patches, CPU s per 1,000'] = rate, cpu


async def measure_watchers(watchers: int, events: int, results: dict[str, float]) -> None:
    with running() as target:
        await prepare(target)
        faults, ready = 0, asyncio.Semaphore(0)
        pattern = re.compile(rb'"type":"(\w+)".*?"name":"load-(\d+)"', re.DOTALL)

        async def watch() -> int:
            seen, bad = 0, 0
            async with (
                target.session() as session,
                session.get(COLLECTION, params={'watch': '1'}) as response,
            ):
                ready.release()
                async for line in response.content:
                    match = pattern.search(line)
                    bad += match is None or match[1] != b'ADDED' or int(match[2]) != seen
                    seen += 1
                    if seen == events:
                        break
            return bad

        tasks = [asyncio.create_task(watch()) for _ in range(watchers)]
        for _ in range(watchers):
            await ready.acquire()
        started, cpu = time.perf_counter(), target.cpu
        bodies = [json.dumps(make_object(f'load-{n}')).encode() for n in range(events)]
        await flood(
            target, 'POST', [COLLECTION] * events, bodies, kind='application/json', workers=1
        )
        faults = sum(await asyncio.gather(*tasks))
        elapsed = time.perf_counter() - started
        results['events to 100 watchers, lost or disordered'] = faults
        results['events to 100 watchers (1/s in all)'] = watchers * events / elapsed
        results['events to 100 watchers, CPU s'] = target.cpu - cpu


async def measure_memory(count: int, results: dict[str, float]) -> None:
    with running() as target:
        results['RSS at start (MB)'] = target.rss
        await prepare(target)
        bodies = [json.dumps(make_object(f'load-{n}')).encode() for n in range(count)]
        await flood(
            target, 'POST', [COLLECTION] * count, bodies, kind='application/json', workers=8
        )
        results['RSS with 50,000 objects (MB)'] = target.rss


def measure_start(results: dict[str, float], attempts: int = 5) -> None:
    runs = [
        subprocess.run(
            [sys.executable, '-c', START],
            capture_output=True,
            check=True,
            text=True,
            env=ENVIRONMENT,
        )
        for _ in range(attempts)
    ]
    for name, times in zip(
        ('cold', 'warm'), zip(*(run.stdout.split() for run in runs), strict=True), strict=True
    ):
        results[f'start in a process, {name} (s)'] = statistics.median(map(float, times))
    starts = []
    for _ in range(attempts):
        with running() as target:
            starts.append(target.start_time)
    results['start of a process (s)'] = statistics.median(starts)


def report(results: dict[str, float]) -> None:
    for name, value in results.items():
        relation, goal = GOALS.get(name, ('', 0.0))
        verdict = (
            ''
            if not relation
            else f'goal {relation} {goal:g}: '
            + ('met' if (value < goal if relation == '<' else value > goal) else 'MISSED')
        )
        print(f'{name:45} {value:12.3f}   {verdict}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true', help='a tenth of the load')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    parser.add_argument('--only', choices=['start', 'writes', 'watchers', 'memory'])
    args = parser.parse_args()
    scale = 10 if args.quick else 1
    results: dict[str, float] = {}
    pin(1)
    if args.only in (None, 'start'):
        measure_start(results)
    if args.only in (None, 'writes'):
        asyncio.run(measure_writes(10_000 // scale, results))
    if args.only in (None, 'watchers'):
        asyncio.run(measure_watchers(100, 10_000 // scale, results))
    if args.only in (None, 'memory'):
        asyncio.run(measure_memory(50_000 // scale, results))
    report(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == '__main__':
    main()
