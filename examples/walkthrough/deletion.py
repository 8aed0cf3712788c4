import kubernetes

import kopf


@kopf.on.create('ephemeralvolumeclaims')
def create_fn(name, namespace, spec, logger, **_):
    size = spec.get('size')
    if not size:
        raise kopf.PermanentError('There is no size in the spec.')

    claim = {
        'apiVersion': 'v1',
        'kind': 'PersistentVolumeClaim',
        'metadata': {'name': name},
        'spec': {
            'accessModes': ['ReadWriteOnce'],
            'resources': {'requests': {'storage': size}},
        },
    }
    kopf.adopt(claim)  # this is new
    api = kubernetes.client.CoreV1Api()
    created = api.create_namespaced_persistent_volume_claim(namespace, claim)
    logger.info(f'The claim is created: {created.metadata.name}')
    return {'claim': created.metadata.name}


@kopf.on.update('ephemeralvolumeclaims', field='spec.size')
def update_fn(namespace, spec, status, logger, **_):
    size = spec.get('size')
    if not size:
        raise kopf.PermanentError('The size was removed from the spec.')

    claim = status['create_fn']['claim']
    patch = {'spec': {'resources': {'requests': {'storage': size}}}}
    api = kubernetes.client.CoreV1Api()
    api.patch_namespaced_persistent_volume_claim(claim, namespace, patch)
    logger.info(f'The claim {claim} is resized: it wants {size} now.')


@kopf.on.update('ephemeralvolumeclaims', field='metadata.labels')
def relabel_fn(old, new, diff, namespace, status, logger, **_):
    for operation, path, before, after in diff:
        logger.info(f'Labels: {operation} {".".join(path) or "all"}: {before!r} -> {after!r}')

    claim = status['create_fn']['claim']
    labels = {**dict.fromkeys(old or {}), **(new or {})}
    api = kubernetes.client.CoreV1Api()
    api.patch_namespaced_persistent_volume_claim(claim, namespace, {'metadata': {'labels': labels}})
