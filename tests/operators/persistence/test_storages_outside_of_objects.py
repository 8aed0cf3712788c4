"""
Storages that keep nothing on the objects: the rest of a change is handled all the same.
"""

import asyncio

import kopf


class OwnProgress(kopf.ProgressStorage):
    """Keeps nothing on the object."""

    def __init__(self):
        self.records = {}

    def fetch(self, *, key, body):
        return self.records.get(key)

    def store(self, *, key, record, body, patch):
        self.records[key] = record

    def purge(self, *, key, body, patch):
        self.records.pop(key, None)

    def touch(self, *, body, patch, value):
        pass

    def clear(self, *, essence):
        return essence


class OwnDiffBase(kopf.DiffBaseStorage):
    """Keeps nothing on the object."""

    essence = None

    def fetch(self, *, body):
        return self.essence

    def store(self, *, body, patch, essence):
        self.essence = essence


async def test_rest_of_a_change_is_handled_though_nothing_is_kept_on_the_object(
    cluster, registry, run_operator, calls, settings
):
    settings.persistence.progress_storage = OwnProgress()
    settings.persistence.diffbase_storage = OwnDiffBase()

    @kopf.on.create('kopfexamples', id='quick', registry=registry)
    @kopf.on.update('kopfexamples', id='quick', registry=registry)
    async def quick(spec, **_):
        calls.append(f'quick {spec["x"]}')

    @kopf.on.create('kopfexamples', id='slow', registry=registry)
    @kopf.on.update('kopfexamples', id='slow', registry=registry)
    async def slow(spec, retry, **_):
        calls.append(f'slow {spec["x"]}')
        if not retry and spec['x'] == 1:
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await cluster.create()
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(300)

    assert calls == ['quick 1', 'slow 1', 'slow 2', 'quick 2']
