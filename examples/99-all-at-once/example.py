import kopf


@kopf.on.startup()
async def start(settings, logger, **_):
    settings.execution.default_backoff = 1
    settings.posting.reporting_component = 'all-at-once'
    logger.info('STARTUP is over.')


@kopf.on.cleanup()
async def stop(logger, **_):
    logger.info('CLEANUP is over.')


@kopf.on.probe(id='objects')
def count_objects(names: kopf.Index, **_):
    return len(names)


@kopf.index('kopfexamples')
async def names(name, **_):
    return name


@kopf.on.event('kopfexamples')
async def see(type, name, logger, **_):
    logger.info(f'EVENT {type} of {name}')


@kopf.on.resume('kopfexamples')
@kopf.on.create('kopfexamples')
def appear(body, reason, memo, logger, **_):
    memo.reason = reason
    kopf.info(body, reason='Noticed', message='The object is noticed.')
    logger.info(f'APPEARED because of {reason}')
    return {'reason': str(reason)}


@kopf.on.create('kopfexamples', backoff=0.5)
async def recover(retry, logger, **_):
    if retry < 1:
        raise RuntimeError('It fails once.')
    logger.info('RECOVERED')


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples', field='spec.items')
async def spread(spec, logger, **_):
    for item in spec.get('items', []):

        @kopf.subhandler(id=item)
        async def prepare(item=item, **_):
            logger.info(f'PREPARED {item}')


@kopf.on.update('kopfexamples')
def update(diff, memo, logger, **_):
    logger.info(f'UPDATED after {memo.reason}: {[list(item.field) for item in diff]}')


@kopf.on.field('kopfexamples', field='spec.field')
async def field(old, new, logger, **_):
    logger.info(f'FIELD {old!r} -> {new!r}')


@kopf.on.delete('kopfexamples')
async def delete(logger, **_):
    logger.info('DELETED')


@kopf.daemon('kopfexamples')
async def daemon(stopped, logger, **_):
    logger.info('DAEMON is here.')
    await stopped.wait()
    logger.info('DAEMON is gone.')


@kopf.timer('kopfexamples', interval=60)
async def timer(patch, logger, **_):
    patch.status['timer'] = 'was here'
    logger.info('TIMER was here.')
