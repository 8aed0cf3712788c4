"""
An operator that only counts objects, with one handler of raw events: the same for all frameworks under test.

It says to the file of ``$BENCH_PROGRESS`` when all objects were seen, and when all of them were seen changed.
"""
import collections
import os
import pathlib

import kopf

TOTAL = int(os.environ['BENCH_TOTAL'])
PROGRESS = pathlib.Path(os.environ['BENCH_PROGRESS'])
counts: collections.Counter[int] = collections.Counter()


def report(generation: int) -> None:
    with PROGRESS.open('a') as file:
        file.write(f'{generation}\n')


@kopf.on.event('bench.dev', 'v1', 'loads')
async def count(body, **_):
    generation = body['spec']['replicas']
    counts[generation] += 1
    if counts[generation] == TOTAL:
        report(generation)
