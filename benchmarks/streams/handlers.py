"""
An operator that only counts objects, with one handler of raw events.

It is the same for all frameworks under test. It reports when all objects were seen, and when all of
them were seen changed.
"""

import collections

import telling

import kopf

counts: collections.Counter[int] = collections.Counter()


@kopf.on.event(*telling.RESOURCE)
async def count(body, **_):
    generation = body['spec']['replicas']
    counts[generation] += 1
    if counts[generation] == telling.TOTAL:
        telling.tell({'generation': generation})
