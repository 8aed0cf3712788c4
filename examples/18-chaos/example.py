import cloud

import kopf


@kopf.on.create('kopfexamples')
async def create_fn(spec, uid, patch, logger, **_):
    bucket = cloud.find_bucket(tag=uid) or cloud.create_bucket(tag=uid, size=spec.get('size', 1))
    patch.status['bucket'] = bucket
    logger.info(f'There is {bucket} for it.')


@kopf.on.update('kopfexamples')
@kopf.on.resume('kopfexamples')
async def update_fn(spec, uid, **kwargs):
    bucket = cloud.find_bucket(tag=uid)
    if bucket is None:
        raise kopf.PermanentError('The bucket is lost.')
    cloud.resize_bucket(bucket, spec.get('size', 1))


@kopf.on.delete('kopfexamples')
async def delete_fn(uid, **_):
    bucket = cloud.find_bucket(tag=uid)
    if bucket is not None:
        cloud.delete_bucket(bucket)
