import kubernetes

import kopf


@kopf.on.create('kopfexamples')
def create_pod(spec, namespace, logger, **_):
    pod = {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'spec': {
            'restartPolicy': 'Never',
            'containers': [
                {
                    'name': 'main',
                    'image': 'busybox',
                    'command': ['sh', '-c', f'sleep {spec.get("duration", "1m")}'],
                }
            ],
        },
    }
    kopf.adopt(pod)

    api = kubernetes.client.CoreV1Api()
    created = api.create_namespaced_pod(namespace, pod)

    logger.info(f'The pod {created.metadata.name} is created.')
    return {'pod': created.metadata.name}
