"""Handlers of creation, updates and deletion; the same file is run by all frameworks in Python."""
import collections
import json
import os
import pathlib

import kopf

TOTAL, PROGRESS = int(os.environ['BENCH_TOTAL']), pathlib.Path(os.environ['BENCH_PROGRESS'])
counts = collections.Counter()


def add(stage):
    counts[stage] += 1
    if counts[stage] % TOTAL == 0:
        tell(stage, counts[stage])


def tell(name, value):
    with PROGRESS.open('a') as file:
        file.write(f'{json.dumps({name: value})}\n')


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False  # others do not do this at all
    tell('ready', 1)


@kopf.on.create('bench.dev', 'v1', 'loads')
async def create(**_):
    add('created')


@kopf.on.update('bench.dev', 'v1', 'loads')
async def update(**_):
    add('updated')


@kopf.on.delete('bench.dev', 'v1', 'loads')
async def delete(**_):
    add('deleted')
