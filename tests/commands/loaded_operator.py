"""
An operator with handlers of all kinds: quick and slow, failing and not, for the tests that stop it
at any moment.

It writes a journal, one JSON object per line, to the file of ``$JOURNAL``: what has begun, and what
has ended.
"""

import asyncio
import json
import os
import time

import kopf

JOURNAL = os.open(os.environ['JOURNAL'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
LIMIT = float(os.environ['EXIT_LIMIT'])


def note(what, fn, name=None, value=None):
    line = json.dumps({'what': what, 'fn': fn, 'name': name, 'value': value})
    # At once, by one call: whatever happens next, it is there.
    os.write(JOURNAL, f'{line}\n'.encode())


@kopf.on.startup()
async def startup_fn(settings, **_):
    note('begin', 'startup')
    settings.process.ultimate_exiting_timeout = LIMIT
    settings.queueing.exit_timeout = 1
    settings.execution.max_workers = 3  # fewer than objects: some functions wait for their threads
    settings.peering.lifetime = 30
    await asyncio.sleep(0.1)
    note('end', 'startup')


@kopf.on.cleanup()
async def cleanup_fn(**_):
    note('begin', 'cleanup')
    await asyncio.sleep(0.1)
    note('end', 'cleanup')


@kopf.index('kopfexamples')
async def values(name, spec, **_):
    return {name: spec.get('value')}


@kopf.on.event('kopfexamples')
async def event_fn(name, spec, **_):
    note('begin', 'event', name, spec['value'])


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples', field='spec')
async def quick_async(name, spec, **_):
    note('end', 'quick_async', name, spec['value'])


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples', field='spec')
def slow_sync(name, spec, **_):
    note('begin', 'slow_sync', name, spec['value'])
    time.sleep(0.2)
    note('end', 'slow_sync', name, spec['value'])
    return {'value': spec['value']}


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples', field='spec')
async def slow_async(name, spec, patch, **_):
    note('begin', 'slow_async', name, spec['value'])
    # Sometimes, longer than the exit lets it be.
    await asyncio.sleep(1.5 if spec['value'] % 10 == 0 else 0.1)
    patch.status['slow'] = spec['value']
    note('end', 'slow_async', name, spec['value'])


@kopf.on.create('kopfexamples', backoff=0.1)
@kopf.on.update('kopfexamples', field='spec', backoff=0.1)
async def failing(name, spec, retry, **_):
    note('begin', 'failing', name, spec['value'])
    if retry == 0:
        raise kopf.TemporaryError('not yet', delay=0.2)
    if retry == 1:
        raise ValueError('never expected')
    note('end', 'failing', name, spec['value'])


@kopf.on.delete('kopfexamples')
async def delete_fn(name, retry, **_):
    note('begin', 'delete', name)
    if retry == 0:
        raise kopf.TemporaryError('not yet', delay=0.1)
    await asyncio.sleep(0.1)
    note('end', 'delete', name)


@kopf.daemon('kopfexamples')
async def obedient_daemon(stopped, **_):
    while not stopped:
        await stopped.wait(0.5)


@kopf.daemon('kopfexamples')
def sync_daemon(stopped, **_):
    while not stopped:
        stopped.wait(0.5)


@kopf.daemon('kopfexamples', cancellation_backoff=0.1, cancellation_timeout=1)
async def disobedient_daemon(**_):
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(0.05)


@kopf.timer('kopfexamples', interval=0.5)
async def async_timer(patch, retry, **_):
    patch.status['ticked'] = time.time()
    await asyncio.sleep(0.05)


@kopf.timer('kopfexamples', interval=1, backoff=0.1)
def failing_timer(retry, **_):
    time.sleep(0.02)
    if retry == 0:
        raise ValueError('never expected')
