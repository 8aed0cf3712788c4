"""The same handlers as those of the life cycle, and how long ago the changes were sent, as told in the end."""

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
