"""
An operator with all kinds of handlers for short-lived objects.

It reports its state to the file ``$SOAK_REPORT``. With ``$SOAK_LEAK``, it leaks on purpose.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import pathlib
import signal
import socket
import sys
import threading

import kopf

REPORT = pathlib.Path(os.environ['SOAK_REPORT'])
PLURALS = ('apples', 'pears', 'plums')
counts = {'events': 0, 'calls': 0, 'ticks': 0}
_reporters = []

LEAK = os.environ.get('SOAK_LEAK')
LEAKS = {  # the period of leaks, in events, and the leaked resource
    'tasks': (1_000, lambda: asyncio.create_task(asyncio.Event().wait())),
    'threads': (
        5_000,
        lambda: threading.Thread(target=threading.Event().wait, daemon=True).start(),
    ),
    'sockets': (5_000, socket.socket),
    'memory': (1, lambda: bytes(67)),  # 100 bytes with the overhead
}
_leaked = []


def leak():
    period, make = LEAKS[LEAK]
    if counts['events'] % period == 0:
        _leaked.append(make())


class Mallinfo(ctypes.Structure):
    """The statistics of the allocator of the C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            'arena',
            'ordblks',
            'smblks',
            'hblks',
            'hblkhd',
            'usmblks',
            'fsmblks',
            'uordblks',
            'fordblks',
            'keepcost',
        )
    ]


def measure_heap():
    """Return the megabytes in use, except small objects of Python; 0 if unknown."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0.0
    mallinfo.restype = Mallinfo
    return (mallinfo().uordblks + mallinfo().hblkhd) / 2**20


def trim():
    """Return the free memory to the system, where possible."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.1, 0.2, 0.4, 0.8, 1.6]
    settings.queueing.error_delays = [0.1, 0.2, 0.5, 1]
    _reporters.append(asyncio.create_task(report(), name='reporter'))
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, gc.collect)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, trim)


@kopf.on.cleanup()
async def finish(**_):
    for task in _reporters:
        task.cancel()


async def report():
    """Report every second the number of tasks, the memory in use, and the work done."""
    while True:
        write(
            {
                'tasks': len(asyncio.all_tasks()),
                'blocks': sys.getallocatedblocks(),
                'heap': measure_heap(),
                **counts,
            }
        )
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
        if LEAK:
            leak()

    @kopf.on.create(plural, id='keep', backoff=0.5)
    @kopf.on.update(plural, id='keep', backoff=0.5)
    @kopf.on.resume(plural, id='keep', backoff=0.5)
    async def keep(spec, retry, patch, **_):
        counts['calls'] += 1
        if spec.get('size', 0) % 7 == 0 and not retry:
            raise kopf.TemporaryError('not yet', delay=0.2)
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
    counts['ticks'] += len(by_size) > 0


@kopf.daemon('plums', cancellation_timeout=1)
async def accompany(stopped, memo, **_):
    while not stopped:
        memo.visits = memo.get('visits', 0) + 1
        await stopped.wait(0.7)


@kopf.daemon('plums', labels={'thread': 'yes'}, cancellation_timeout=1)
def accompany_in_thread(stopped, **_):
    while not stopped:
        stopped.wait(1)
