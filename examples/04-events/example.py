import kopf


@kopf.on.create('kopfexamples')
def create_fn(body, **_):
    kopf.info(body, reason='Started', message='The work has begun.')
    kopf.warn(body, reason='Suspicious', message='Something looks wrong.')
    kopf.event(body, type='Custom', reason='Noticed', message='The type can be anything.')
    try:
        raise RuntimeError('This is what went wrong.')
    except RuntimeError:
        kopf.exception(body, reason='Failed', message='The work has failed:')
