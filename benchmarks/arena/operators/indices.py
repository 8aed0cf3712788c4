"""An index of all objects by name, and many lookups in it on request: ``spec.lookups``."""

import time

import telling

import kopf

seen = set()


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    telling.tell({'ready': 1})


@kopf.index(*telling.RESOURCE)
async def by_name(name, spec, **_):
    return {name: spec['replicas']}


@kopf.on.event(*telling.RESOURCE)
async def see(name, spec, by_name, **_):
    if name not in seen:
        seen.add(name)
        telling.add('seen')
    if 'lookups' in spec:
        since = time.process_time()
        look_up(by_name, spec['lookups'])
        telling.tell(
            {
                'lookups': spec['lookups'],
                'taken': time.process_time() - since,
                'indexed': len(by_name),
            }
        )


def look_up(index, times):
    names = list(index)
    for number in range(times):
        for _ in index[names[number % len(names)]]:
            pass
