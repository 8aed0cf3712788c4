import cloud

import kopf


@kopf.on.create('kopfexamples')
async def create_fn(spec, uid, **_):
    if cloud.find_bucket(tag=uid) is None:
        cloud.create_bucket(tag=uid, size=spec.get('size', 1))


@kopf.on.event('kopfexamples')
async def event_fn(event, spec, uid, **_):
    # What is changed while the operator is down is not a modification when it is back.
    if event['type'] == 'MODIFIED' and cloud.find_bucket(tag=uid):
        cloud.resize_bucket(cloud.find_bucket(tag=uid), spec.get('size', 1))
