import cloud

import kopf


@kopf.on.create('kopfexamples')
async def create_fn(spec, uid, **_):
    if cloud.find_bucket(tag=uid) is None:
        cloud.create_bucket(tag=uid, size=spec.get('size', 1))


@kopf.on.delete('kopfexamples', backoff=5)
async def delete_fn(uid, **_):
    # If the operator is killed when the bucket is gone, but the object is not yet, this fails for
    # ever.
    cloud.delete_bucket(cloud.find_bucket(tag=uid))
