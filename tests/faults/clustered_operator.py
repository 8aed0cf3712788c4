"""
An operator with handlers of all kinds, for real clusters. Whatever happens, it brings its objects
to the same state.
"""

import asyncio

import kopf

RESOURCE = 'chaosexamples'


@kopf.on.startup()
async def configure(settings, **_):
    settings.networking.error_backoffs = [0.1, 0.2, 0.4, 0.8, 1.6]
    settings.queueing.error_delays = [0.1, 0.2, 0.4, 0.8]
    settings.persistence.consistency_timeout = 1.0
    settings.posting.enabled = False


@kopf.index('configmaps', labels={'app': kopf.PRESENT})
async def names_by_app(name, labels, **_):
    return {labels['app']: name}


@kopf.on.create(RESOURCE, backoff=0.2)
@kopf.on.update(RESOURCE, backoff=0.2)
@kopf.on.resume(RESOURCE, backoff=0.2)
async def provide(spec, patch, **_):
    patch.status['size'] = spec.get('size')


@kopf.on.create(RESOURCE, backoff=0.2)
async def prepare(retry, **_):
    if not retry:
        raise kopf.TemporaryError('not yet', delay=0.2)
    return {'prepared': True}


@kopf.on.create(RESOURCE, backoff=0.2)
@kopf.on.update(RESOURCE, backoff=0.2)
async def handle(spec, **_):
    for key, value in spec.get('items', {}).items():

        @kopf.subhandler(id=key, param=value)
        async def handle_item(param, **_):
            return {'value': param}


@kopf.on.field(RESOURCE, field='spec.colour', backoff=0.2)
async def paint(new, patch, **_):
    patch.metadata.labels['colour'] = new


@kopf.on.delete(RESOURCE, backoff=0.2)
async def remove(**_):
    await asyncio.sleep(0.05)


@kopf.on.event(RESOURCE)
async def look(**_):
    pass


@kopf.timer(RESOURCE, interval=0.3)
async def tick(spec, name, patch, names_by_app: kopf.Index, **_):
    patch.status['seen'] = spec.get('size')
    patch.status['names'] = sorted(names_by_app.get(name, []))


@kopf.daemon(RESOURCE, cancellation_timeout=0.5)
async def accompany(spec, patch, stopped, **_):
    patch.status['accompanied'] = True
    while not stopped:
        await stopped.wait(1)
