"""
The number of CPU instructions per object: ``python benchmarks/instructions/run.py [SOURCES...]``.

Each of ``SOURCES`` is a directory with the package ``kopf`` in it, by default this clone: give two
clones to compare two states of the code. The life-cycle operator runs under callgrind on the
sandbox, which is a separate process. Objects are created, updated and deleted one by one, each
after the operator is done with the previous one, so that the counts do not depend on the load of
the machine: they repeat within 1 %. Needs ``valgrind``.
"""

import argparse
import asyncio
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'arena'))

import processes  # noqa: E402
import servers  # noqa: E402
import subjects  # noqa: E402

Act = Callable[[aiohttp.ClientSession, int], Awaitable[None]]
IsDone = Callable[[dict[str, Any] | None, int], bool]
PAUSE = 0.02  # seconds between checks of an object
WARMING = 3  # the first objects load some more code


class Operator(processes.Measured):
    """An operator under callgrind."""

    def __init__(
        self, python: str, sources: pathlib.Path, cluster: servers.Cluster, directory: pathlib.Path
    ) -> None:
        self.progress = directory / 'progress'
        self.directory = directory
        self.progress.touch()
        operator = subjects.OPERATORS / 'lifecycle.py'
        command = [
            'valgrind',
            '--tool=callgrind',
            '--callgrind-out-file=counts',
            python,
            '-m',
            'kopf',
            'run',
            '--namespace',
            cluster.namespace,
            str(operator),
        ]
        environ = {
            'KUBECONFIG': str(cluster.kubeconfig),
            'BENCH_TOTAL': '1000000',
            'PYTHONHASHSEED': '0',
            'BENCH_PROGRESS': str(self.progress),
            'PYTHONPATH': f'{subjects.OPERATORS}:{sources}',
        }
        super().__init__(command, directory=directory, environ=environ)

    def wait_until_started(self) -> None:
        self.wait_until(lambda: bool(self.progress.read_text()))
        self.settle()

    def count(self, number: int) -> int:
        """Count the instructions since the previous call."""
        subprocess.run(
            ['callgrind_control', '-d', str(self.process.pid)], check=True, capture_output=True
        )
        [counts] = self.directory.glob(f'counts*.{number}')
        match = re.search(r'^(?:totals|summary): (\d+)', counts.read_text(), re.M)
        if match is None:
            raise SystemExit(f'{counts} has no totals.')
        return int(match[1])


async def create(session: aiohttp.ClientSession, number: int) -> None:
    await servers.send(session, 'POST', LOADS, servers.make_object(number))


async def update(session: aiohttp.ClientSession, number: int) -> None:
    url = f'{LOADS}/load-{number}'
    await servers.send(session, 'PATCH', url, {'spec': {'replicas': 2}}, kind=servers.MERGE)


async def delete(session: aiohttp.ClientSession, number: int) -> None:
    await servers.send(session, 'DELETE', f'{LOADS}/load-{number}', None)


def has_handled(replicas: int) -> IsDone:
    text = f'"replicas":{replicas}'
    return lambda body, number: (
        body is not None
        and text in body['metadata'].get('annotations', {}).get(servers.HANDLED, '')
    )


LOADS = '/apis/bench.dev/v1/namespaces/default/loads'
STAGES: dict[str, tuple[Act, IsDone]] = {
    'create': (create, has_handled(1)),
    'update': (update, has_handled(2)),
    'delete': (delete, lambda body, number: body is None),
}


def run_stage(cluster: servers.Cluster, stage: str, total: int) -> None:
    act, is_done = STAGES[stage]
    cluster._run(lambda session: act_one_by_one(session, act, is_done, total))


async def act_one_by_one(
    session: aiohttp.ClientSession, act: Act, is_done: IsDone, total: int
) -> None:
    for number in range(total):
        await act(session, number)
        while not is_done(await get(session, number), number):  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(PAUSE)
        await asyncio.sleep(PAUSE)


async def get(session: aiohttp.ClientSession, number: int) -> dict[str, Any] | None:
    async with session.get(f'{LOADS}/load-{number}') as response:
        return None if response.status == 404 else await response.json()


def measure(
    python: str, sources: pathlib.Path, total: int, kept: pathlib.Path | None
) -> dict[str, float]:
    """Return the thousands of instructions per object, by stage."""
    with servers.serve_sandbox() as cluster, tempfile.TemporaryDirectory() as name:
        operator = Operator(python, sources, cluster, pathlib.Path(name))
        try:
            operator.wait_until_started()
            for stage in STAGES:
                run_stage(cluster, stage, WARMING)
            operator.settle()
            operator.count(1)
            figures = {}
            for number, stage in enumerate(STAGES, start=2):
                run_stage(cluster, stage, total)
                operator.settle()
                figures[stage] = operator.count(number) / total / 1000
            return figures
        finally:
            operator.stop()
            if kept is not None:
                kept.mkdir(parents=True, exist_ok=True)
                for path in operator.directory.glob('counts*'):
                    shutil.copy(path, kept)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('sources', nargs='*', type=pathlib.Path, default=[HERE.parents[1]])
    parser.add_argument(
        '--python', type=os.path.abspath, default=sys.executable, help='with the libraries'
    )
    parser.add_argument('--total', type=int, default=30, help='how many objects')
    parser.add_argument('--keep', type=pathlib.Path, help='where to leave the files of callgrind')
    args = parser.parse_args()
    print(
        f'{"thousands of instructions per object":40}',
        *(f'{stage:>8}' for stage in [*STAGES, 'all']),
    )
    for sources in args.sources:
        figures = measure(args.python, sources.resolve(), args.total, args.keep)
        print(
            f'{sources!s:40}',
            *(f'{figure:8.0f}' for figure in figures.values()),
            f'{sum(figures.values()):8.0f}',
        )


if __name__ == '__main__':
    main()
