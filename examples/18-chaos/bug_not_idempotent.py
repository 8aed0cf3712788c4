import cloud

import kopf


@kopf.on.create('kopfexamples')
async def create_fn(spec, uid, **_):
    # If the operator is killed before the success is recorded, there will be two buckets, and one
    # of them belongs to no object.
    cloud.create_bucket(tag=uid, size=spec.get('size', 1))
