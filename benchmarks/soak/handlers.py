"""
An operator with handlers of all kinds for objects that come and go. It tells of itself to the file of ``$SOAK_REPORT``.
"""
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import pathlib

import kopf

REPORT = pathlib.Path(os.environ['SOAK_REPORT'])
PLURALS = ('apples', 'pears', 'plums')
counts = {'events': 0, 'calls': 0}
_reporters = []


def trim():
    """Give the free memory back to the system, where it is possible: so it is seen what is really in use."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.1, 0.2, 0.4, 0.8, 1.6]
    settings.queueing.error_delays = [0.1, 0.2, 0.5, 1]
    _reporters.append(asyncio.create_task(report(), name='reporter'))


@kopf.on.cleanup()
async def finish(**_):
    for task in _reporters:
        task.cancel()


async def report():
    """Tell once a second how many tasks there are, and how much was done. What is not used is given back before."""
    while True:
        gc.collect()
        trim()
        write({'tasks': len(asyncio.all_tasks()), **counts})
        await asyncio.sleep(1)


def write(figures):
    with REPORT.open('a') as file:
        file.write(f'{json.dumps(figures)}\n')


@kopf.index(kopf.EVERYTHING, labels={'soak': 'yes'})
async def by_size(name, spec, **_):
    return {spec.get('size', 0) % 10: name}


for plural in PLURALS:

    @kopf.on.event(plural)
    async def see(**_):
        counts['events'] += 1

    @kopf.on.create(plural, id='keep', backoff=0.5)
    @kopf.on.update(plural, id='keep', backoff=0.5)
    @kopf.on.resume(plural, id='keep', backoff=0.5)
    async def keep(spec, retry, patch, **_):
        counts['calls'] += 1
        if spec.get('size', 0) % 7 == 0 and not retry:
            raise kopf.TemporaryError("not yet", delay=0.2)
        patch.status['size'] = spec.get('size')

    @kopf.on.delete(plural, backoff=0.5)
    async def remove(**_):
        counts['calls'] += 1


@kopf.on.update('apples', field='spec.size')
async def split(new, **_):
    for part in range(2):
        @kopf.subhandler(id=f'part{part}')
        async def take(**_):
            counts['calls'] += 1


@kopf.timer('pears', interval=1.0)
async def tick(by_size: kopf.Index, **_):
    counts['calls'] += len(by_size) > 0


@kopf.daemon('plums', cancellation_timeout=1)
async def accompany(stopped, memo, **_):
    while not stopped:
        memo.visits = memo.get('visits', 0) + 1
        await stopped.wait(0.7)


@kopf.daemon('plums', labels={'thread': 'yes'}, cancellation_timeout=1)
def accompany_in_thread(stopped, **_):
    while not stopped:
        stopped.wait(1)
