"""
Operators with timers, daemons or an index, according to ``$BENCH_KIND``.

They are the same for all frameworks. They report how many objects they have seen, and their
lateness.
"""

import asyncio
import os
import time

import telling
from telling import RESOURCE, TOTAL

import kopf

KIND = os.environ['BENCH_KIND']
INTERVAL = 60
met: set[str] = set()
ended: dict[str, float] = {}
latenesses: list[float] = []


def meet(name):
    if name not in met:
        met.add(name)
        if len(met) in (1, TOTAL):
            telling.tell({'met': len(met)})


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    if KIND == 'limited':  # the reference would wait forever
        settings.queueing.worker_limit = 1


if KIND == 'nothing':

    @kopf.on.event(*RESOURCE)
    async def see(name, **_):
        meet(name)

elif KIND == 'rest':

    @kopf.on.event(*RESOURCE)
    async def see(name, **_):
        meet(name)

    @kopf.timer(*RESOURCE, initial_delay=100_000, interval=INTERVAL)
    async def never(**_):
        pass

elif KIND == 'timers':

    @kopf.timer(*RESOURCE, interval=INTERVAL)
    async def tick(name, **_):
        now = asyncio.get_running_loop().time()
        meet(name)
        if name in ended:
            latenesses.append(now - ended[name] - INTERVAL)
            if len(latenesses) in (TOTAL, 2 * TOTAL):
                values = sorted(latenesses)
                telling.tell(
                    {
                        'ticks': len(values),
                        'p50': values[len(values) // 2],
                        'p99': values[len(values) * 99 // 100],
                    }
                )
        ended[name] = asyncio.get_running_loop().time()

elif KIND == 'daemons':

    @kopf.daemon(*RESOURCE)
    def live(name, stopped, **_):
        meet(name)
        stopped.wait()

    @kopf.on.update(*RESOURCE)
    def update(spec, **_):
        telling.tell({'handled': time.time() - spec['sent']})

elif KIND in ('index', 'limited'):

    @kopf.index(*RESOURCE)
    async def by_shard(name, labels, **_):
        return {(labels['shard'], name): name}

    @kopf.on.event(*RESOURCE)
    async def see(name, by_shard, **_):
        if not met:
            telling.tell({'indexed': len(by_shard)})
        meet(name)
