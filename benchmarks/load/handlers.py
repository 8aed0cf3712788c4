"""
Handlers of creation, updates and deletion, which write down each call at once: what is written survives any kill.

What is written to the file of ``$LOAD_LEDGER``: what was called, the object, which edit of it was seen, and when.
"""

import json
import os
import time

import kopf

LEDGER = os.open(os.environ['LOAD_LEDGER'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
STEP = 100  # of the objects that are only looked at, it is enough to write down how many of them there were
seen = [0]


def record(what, name='', mark=0):
    os.write(LEDGER, f'{json.dumps([what, name, mark, time.monotonic()])}\n'.encode())


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    record('ready')


@kopf.on.event('bench.dev', 'v1', 'loads')
async def look(type, **_):
    if type is None:
        seen[0] += 1
        if seen[0] == 1 or seen[0] % STEP == 0:
            record('seen', mark=seen[0])


@kopf.on.create('bench.dev', 'v1', 'loads')
async def create(name, spec, **_):
    record('create', name, spec['replicas'])


@kopf.on.update('bench.dev', 'v1', 'loads')
async def update(name, spec, **_):
    record('update', name, spec['replicas'])


@kopf.on.delete('bench.dev', 'v1', 'loads')
async def delete(name, spec, **_):
    record('delete', name, spec['replicas'])
