"""Handlers of creation, updates and deletion; all frameworks in Python run the same file."""

import telling

import kopf


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False  # other subjects do not post events at all
    telling.tell({'ready': 1})


@kopf.on.create(*telling.RESOURCE)
async def create(**_):
    telling.add('created')


@kopf.on.update(*telling.RESOURCE)
async def update(**_):
    telling.add('updated')


@kopf.on.delete(*telling.RESOURCE)
async def delete(**_):
    telling.add('deleted')
