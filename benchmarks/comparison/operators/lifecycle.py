"""Creation, updates, deletion, raw events."""

from recording import record

import kopf


@kopf.on.create('kopfexamples')
def create(**kwargs):
    record('create', **kwargs)


@kopf.on.update('kopfexamples')
async def update(**kwargs):
    record('update', **kwargs)


@kopf.on.delete('kopfexamples')
async def delete(**kwargs):
    record('delete', **kwargs)
