"""
An operator to be run in several processes: it notes when its handlers begin and end.
"""

import asyncio
import json
import os
import time

import kopf

LEASE, DURATION, DEADLINE, RETRY = os.environ['ELECTION'].split(',')
NOTES = open(os.environ['NOTES'], 'a', buffering=1)  # noqa: SIM115 - until the process ends


def note(what, subject=''):
    NOTES.write(json.dumps([what, subject, time.monotonic()]) + '\n')


@kopf.on.startup()
def configure(settings, **_):
    settings.leadership.name = LEASE
    settings.leadership.namespace = 'default'
    settings.leadership.lease_duration = float(DURATION)
    settings.leadership.renew_deadline = float(DEADLINE)
    settings.leadership.retry_period = float(RETRY)


@kopf.on.promoted()
def promoted(**_):
    note('promoted')


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples')
async def handle(name, spec, patch, **_):
    note('begin', name)
    if (block := os.environ.get('BLOCK')) and spec.get('x', 0) > 9:
        time.sleep(float(block))  # noqa: ASYNC251 - the event loop is blocked on purpose
    await asyncio.sleep(0.02)
    patch.status['seen'] = spec.get('x')
    note('end', name)
