import kopf


@kopf.on.create('ephemeralvolumeclaims')
def create_fn(name, spec, logger, **_):
    logger.info(f'{name} is created. It asks for this: {dict(spec)}.')
