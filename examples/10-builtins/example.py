import os

import kubernetes

import kopf

LIFETIME = float(os.environ.get('POD_LIFETIME', '30'))


def is_expendable(namespace, **_):
    return not namespace.startswith('kube-')


@kopf.on.resume('v1', 'pods', when=is_expendable)
@kopf.on.create('v1', 'pods', when=is_expendable)
def limit_lifetime(runtime, name, namespace, logger, **_):
    left = LIFETIME - runtime.total_seconds()
    if left > 0:
        raise kopf.TemporaryError(f'The pod has {left:.1f} seconds left.', delay=left)

    logger.warning('The time is over.')
    kubernetes.client.CoreV1Api().delete_namespaced_pod(name, namespace, grace_period_seconds=0)
