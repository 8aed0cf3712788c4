import kopf


@kopf.on.field('kopfexamples', field='spec.duration')
def duration_fn(name, old, new, **_):
    print(f'CHANGED {name}: {old!r} -> {new!r}')


@kopf.on.create('kopfexamples')
async def create_fn(spec, retry, patch, logger, **_):
    if retry < spec.get('failures', 0):
        raise kopf.TemporaryError('It is too early.', delay=3600)
    patch.status['duration'] = spec.get('duration', 'unknown')
    logger.info('The object is ready.')
