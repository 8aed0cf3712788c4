"""
Handlers of creation, updates and deletion, which record every call immediately.

The records survive any kill. Each record in the file ``$LOAD_LEDGER`` is the kind of the call, the
name of the object, the number of its edit, and the time.
"""

import json
import os
import time

import kopf

LEDGER = os.open(os.environ['LOAD_LEDGER'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
STEP = 100  # of the objects that are only seen, every 100th is recorded
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
