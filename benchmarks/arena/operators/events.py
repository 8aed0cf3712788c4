"""A handler of raw events only; the same file is run by all frameworks in Python."""
import json
import os
import pathlib

import kopf

TOTAL, PROGRESS = int(os.environ['BENCH_TOTAL']), pathlib.Path(os.environ['BENCH_PROGRESS'])
seen = 0


def tell(name, value):
    with PROGRESS.open('a') as file:
        file.write(f'{json.dumps({name: value})}\n')


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    tell('ready', 1)


@kopf.on.event('bench.dev', 'v1', 'loads')
async def see(**_):
    global seen
    seen += 1
    if seen % TOTAL == 0:
        tell('seen', seen)
