"""A handler of raw events only; all frameworks in Python run the same file."""

import telling

import kopf


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    telling.tell({'ready': 1})


@kopf.on.event(*telling.RESOURCE)
async def see(**_):
    telling.add('seen')
