"""The same handlers as in the life cycle; at the end, they report the latencies of changes."""

import time

import telling

import kopf

samples = []


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    telling.tell({'ready': 1})


@kopf.on.create(*telling.RESOURCE)
async def create(**_):
    telling.add('created')


@kopf.on.update(*telling.RESOURCE)
async def update(spec, **_):
    samples.append(time.time() - spec['sent'])
    telling.add('updated')


@kopf.on.delete(*telling.RESOURCE)
async def delete(**_):
    telling.add('deleted')


@kopf.on.cleanup()
async def finish(**_):
    telling.tell({'samples': samples})
