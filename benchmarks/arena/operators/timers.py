"""A timer per object; it reports how late the calls are."""

import time

import telling

import kopf

INTERVAL = 5.0
ended = {}
latenesses = []
calls = 0


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    telling.tell({'ready': 1})


@kopf.timer(*telling.RESOURCE, interval=INTERVAL)
async def tick(name, **_):
    global calls
    now = time.monotonic()
    if name in ended:
        latenesses.append(now - ended[name] - INTERVAL)
    calls += 1
    if calls % telling.TOTAL == 0:
        report()
    ended[name] = time.monotonic()


def report():
    values = sorted(latenesses) or [0.0]
    latenesses.clear()
    telling.tell(
        {
            'calls': calls,
            'objects': len(ended),
            'p50': values[len(values) // 2],
            'p99': values[len(values) * 99 // 100],
        }
    )
