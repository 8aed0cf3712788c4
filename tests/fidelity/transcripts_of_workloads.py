"""
Workloads: what controllers make of deployments, stateful sets, daemon sets, jobs, and services.

There are no kubelets on either side: the transcripts themselves report that pods are ready, or have
ended. What is compared is the state after the controllers have settled, not the way to it.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from fidelity_talks import Exchange, Talk, Transcript

SUFFIX = '[bcdfghjklmnpqrstvwxz2456789]'
# What pods have of their service accounts, and when the numbers are those of other writers.
OMITTED = (
    'serviceAccount',
    'serviceAccountName',
    'volumeMounts',
    'managedFields',
    'podIP',
    'podIPs',
)
VOLATILE = ('resourceVersion', 'uid', 'generation', 'observedGeneration')


def build_template(labels: dict[str, str], image: str = 'example:1', **spec: Any) -> dict[str, Any]:
    ports = [{'name': 'http', 'containerPort': 8080}]
    containers = [{'name': 'main', 'image': image, 'ports': ports}]
    return {'metadata': {'labels': labels}, 'spec': {'containers': containers, **spec}}


def build(name: str, replicas: int | None = 2, **spec: Any) -> dict[str, Any]:
    labels = {'app': name}
    counted = {} if replicas is None else {'replicas': replicas}
    template = build_template(labels)
    selector = {'matchLabels': labels}
    return {
        'metadata': {'name': name, 'labels': labels, 'annotations': {'example.com/note': 'yes'}},
        'spec': {**counted, 'selector': selector, 'template': template, **spec},
    }


def build_image_patch(image: str) -> dict[str, Any]:
    return {'spec': {'template': {'spec': {'containers': [{'name': 'main', 'image': image}]}}}}


def build_job(name: str, **spec: Any) -> dict[str, Any]:
    template = build_template({'kind': 'job'}, restartPolicy='Never')
    return {'metadata': {'name': name}, 'spec': {'template': template, **spec}}


def jobs(talk: Talk, name: str = '') -> str:
    return '/'.join(filter(None, ['/apis/batch/v1/namespaces', talk.namespace, 'jobs', name]))


def is_alive(pod: dict[str, Any]) -> bool:
    return 'deletionTimestamp' not in pod['metadata']


async def list_pods(talk: Talk, **labels: str) -> list[dict[str, Any]]:
    selector = ','.join(f'{key}={value}' for key, value in labels.items())
    found = await talk.wait_until(
        talk.core('pods'), lambda code, _: code == 200, labelSelector=selector
    )
    return sorted(filter(is_alive, found['items']), key=lambda pod: pod['metadata']['name'])


async def report(talk: Talk, pods: list[dict[str, Any]], phase: str = 'Running') -> None:
    """Report the phase of pods, as kubelets do."""
    for number, pod in enumerate(pods, 1):
        name = pod['metadata']['name']
        address = f'10.1.0.{number}'
        ready = {'type': 'Ready', 'status': 'True' if phase == 'Running' else 'False'}
        status = {
            'phase': phase,
            'conditions': [{**ready, 'lastTransitionTime': '2026-01-01T00:00:00Z'}],
            'podIP': address,
            'podIPs': [{'ip': address}],
        }
        await talk._request(
            'PATCH',
            talk.core('pods', name, 'status'),
            {'status': status},
            type='application/merge-patch+json',
        )


async def settle(
    talk: Talk, path: str, check: Callable[[dict[str, Any], dict[str, Any]], bool]
) -> None:
    """Wait until the controllers have seen an object, and its status is as expected."""

    def is_settled(code: int, body: Any) -> bool:
        status = body.get('status') or {}
        seen = status.get('observedGeneration', body['metadata'].get('generation'))
        return code == 200 and seen == body['metadata'].get('generation') and check(status, body)

    await talk.wait_until(path, is_settled)


async def keep_ready(
    talk: Talk, path: str, check: Callable[[dict[str, Any], dict[str, Any]], bool], **labels: str
) -> None:
    """Report all pods as ready, over and over, until the status is as expected."""
    for _ in range(600):
        await asyncio.sleep(0.1)
        await report(talk, [pod for pod in await list_pods(talk, **labels) if not has_ended(pod)])
        body = await talk.wait_until(path, lambda code, _: code == 200)
        status = body.get('status') or {}
        if status.get('observedGeneration') == body['metadata']['generation'] and check(
            status, body
        ):
            return
    raise AssertionError(f'{path} is not as expected: {status}')


def has_ended(pod: dict[str, Any]) -> bool:
    return pod['status'].get('phase') in ('Succeeded', 'Failed', 'Running')


def is_updating(field: str, count: int) -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    return lambda status, _: status.get(field) == count and 'ReplicaSetUpdated' in str(status)


def is_complete(replicas: int) -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    fields = ('replicas', 'updatedReplicas', 'readyReplicas', 'availableReplicas')
    return lambda status, _: [status.get(field, 0) for field in fields] == [replicas] * 4


async def show(talk: Talk, label: str, *paths: str) -> None:
    """Write down the objects, without what depends on the number and the order of writes."""
    hashes = await find_hashes(talk)
    for path in paths:
        exchange = await talk._request('GET', path)
        body = exchange.body
        items = [simplify(item) for item in body.get('items', [body])]
        text = json.dumps(items)
        for digest, mark in hashes.items():
            text = text.replace(digest, mark)
        text = re.sub(rf'(<hash \d+>-|"(?:job|set)-(?:\d-)?){SUFFIX}{{5}}\b', r'\1<suffix>', text)
        shown = sorted(json.loads(text), key=_rank)
        name = f'{label}: GET {path}'
        talk.exchanges.append(Exchange(name, exchange.code, {}, {'items': shown}))


def _rank(item: dict[str, Any]) -> tuple[str, str]:
    untimed = re.sub(r'\d\d:\d\d:\d\dZ', '', json.dumps(item, sort_keys=True))
    return item['metadata']['name'], untimed


async def find_hashes(talk: Talk) -> dict[str, str]:
    """Number the hashes of templates by their images."""
    hashes: dict[str, str] = {}
    for plural, label in (
        ('replicasets', 'pod-template-hash'),
        ('controllerrevisions', 'controller-revision-hash'),
    ):
        found = await talk.wait_until(talk.apps(plural), lambda code, _: code == 200)
        for item in found['items']:
            digest = (item['metadata'].get('labels') or {}).get(label)
            image = json.dumps(item).partition('example:')[2][:1]
            if digest:
                hashes[digest] = f'<hash {image}>'
    return hashes


def simplify(value: Any) -> Any:
    if isinstance(value, list):
        return [simplify(item) for item in value if 'kube-api-access' not in str(item)[:50]]
    if not isinstance(value, dict):
        return value
    kept = {key: simplify(item) for key, item in value.items() if key not in (*OMITTED, *VOLATILE)}
    return {key: item for key, item in kept.items() if (key, item) != ('volumes', [])}


async def roll_deployments(talk: Talk) -> None:
    path, sets, pods = talk.apps('deployments', 'web'), talk.apps('replicasets'), talk.core('pods')
    await talk.post(talk.apps('deployments'), build('web'))
    await settle(talk, path, is_updating('unavailableReplicas', 2))
    await show(talk, 'created', path, sets, pods)
    await keep_ready(talk, path, is_complete(2), app='web')
    await show(talk, 'available', path, sets)
    await talk._request(
        'PATCH',
        path,
        build_image_patch('example:2'),
        type='application/strategic-merge-patch+json',
    )
    await settle(talk, path, is_updating('replicas', 3))
    await show(talk, 'begun', path, sets)
    await keep_ready(talk, path, is_complete(2), app='web')
    await show(talk, 'rolled out', path, sets)
    merge = 'application/merge-patch+json'
    await talk._request('PATCH', path, {'spec': {'paused': True, 'replicas': 3}}, type=merge)
    await settle(talk, path, lambda status, _: status.get('replicas') == 3)
    await show(talk, 'paused and scaled', path, sets)
    await talk._request('PATCH', path, {'spec': {'paused': False}}, type=merge)
    await keep_ready(talk, path, is_complete(3), app='web')
    await show(talk, 'resumed', path, sets)
    await talk._request(
        'PATCH',
        path,
        build_image_patch('example:1'),
        type='application/strategic-merge-patch+json',
    )
    await keep_ready(talk, path, is_complete(3), app='web')
    await show(talk, 'rolled back', path, sets)


async def limit_deployments(talk: Talk) -> None:
    path, sets = talk.apps('deployments', 'web'), talk.apps('replicasets')
    rolling = {'maxSurge': 3, 'maxUnavailable': 2}
    strategy = {'type': 'RollingUpdate', 'rollingUpdate': rolling}
    body = build('web', 10, strategy=strategy, revisionHistoryLimit=0, minReadySeconds=5)
    await talk.post(talk.apps('deployments'), body)
    await keep_ready(talk, path, is_complete(10), app='web')
    await talk._request(
        'PATCH',
        path,
        build_image_patch('example:2'),
        type='application/strategic-merge-patch+json',
    )
    await settle(talk, path, is_updating('updatedReplicas', 5))
    await show(talk, 'in the middle', path, sets)
    merge = 'application/merge-patch+json'
    await talk._request('PATCH', path, {'spec': {'replicas': 15}}, type=merge)
    await settle(talk, path, lambda status, _: status.get('replicas') == 18)
    await show(talk, 'scaled in the middle', path, sets)
    await keep_ready(talk, path, is_complete(15), app='web')
    await talk.wait_until(sets, lambda _, body: len(body['items']) == 1)
    await show(talk, 'rolled out', path, sets)


async def recreate_deployments(talk: Talk) -> None:
    path, sets = talk.apps('deployments', 'web'), talk.apps('replicasets')
    await talk.post(talk.apps('deployments'), build('web', 1, strategy={'type': 'Recreate'}))
    await keep_ready(talk, path, is_complete(1), app='web')
    await talk._request(
        'PATCH',
        path,
        build_image_patch('example:2'),
        type='application/strategic-merge-patch+json',
    )
    await settle(talk, path, is_updating('updatedReplicas', 1))
    await show(talk, 'recreated', path, sets, talk.core('pods'))


async def order_stateful_sets(talk: Talk) -> None:
    path, pods = talk.apps('statefulsets', 'set'), talk.core('pods')
    claim = {
        'metadata': {'name': 'files', 'labels': {'kind': 'files'}},
        'spec': {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}},
    }
    body = build('set', serviceName='set', volumeClaimTemplates=[claim])
    await talk.post(talk.apps('statefulsets'), body)
    await settle(talk, path, lambda status, _: status.get('replicas') == 1)
    claims, revisions = talk.core('persistentvolumeclaims'), talk.apps('controllerrevisions')
    await talk.wait_until(claims, lambda _, body: len(body['items']) == 1)
    await show(talk, 'first', path, pods, claims, revisions)
    await keep_ready(talk, path, is_complete(2), app='set')
    await show(talk, 'all', path, pods)
    await talk._request(
        'PATCH',
        path,
        build_image_patch('example:2'),
        type='application/strategic-merge-patch+json',
    )
    await settle(talk, path, lambda status, _: status.get('updatedReplicas') == 1)
    await show(talk, 'updating', path, pods, revisions)
    await keep_ready(
        talk,
        path,
        lambda status, _: status.get('currentRevision') == status.get('updateRevision'),
        app='set',
    )
    await show(talk, 'updated', path, pods)
    await talk._request(
        'PATCH', path, {'spec': {'replicas': 0}}, type='application/merge-patch+json'
    )
    await settle(talk, path, lambda status, _: status.get('replicas') == 0)
    await show(talk, 'scaled down', path)


async def place_daemon_sets(talk: Talk) -> None:
    node = f'node-{talk.namespace}'
    labels = {'only': talk.namespace}
    await talk._request(
        'POST',
        '/api/v1/nodes',
        {
            'metadata': {'name': node, 'labels': labels},
            'status': {'conditions': [{'type': 'Ready', 'status': 'True'}]},
        },
    )
    await talk.wait_until(
        f'/api/v1/nodes/{node}', lambda _, body: 'taints' not in (body.get('spec') or {})
    )
    body = build('set', None)
    body['spec']['template']['spec']['nodeSelector'] = labels
    path = talk.apps('daemonsets', 'set')
    await talk.post(talk.apps('daemonsets'), body)
    await settle(talk, path, lambda status, _: status.get('currentNumberScheduled') == 1)
    await show(talk, 'scheduled', path, talk.core('pods'), talk.apps('controllerrevisions'))
    await keep_ready(talk, path, lambda status, _: status.get('numberAvailable') == 1, app='set')
    await show(talk, 'available', path)
    await talk._request('DELETE', f'/api/v1/nodes/{node}')


async def complete_jobs(talk: Talk) -> None:
    path, pods = jobs(talk, 'job'), talk.core('pods')
    await talk.post(jobs(talk), build_job('job', completions=3, parallelism=2))
    await settle(talk, path, lambda status, _: status.get('active') == 2)
    await show(talk, 'started', path, pods)
    await report(talk, await list_pods(talk, kind='job'), 'Succeeded')
    await settle(
        talk, path, lambda status, _: (status.get('succeeded'), status.get('active')) == (2, 1)
    )
    await show(talk, 'nearly done', path)
    await report(talk, await list_pods(talk, kind='job'), 'Succeeded')
    await settle(talk, path, lambda status, _: 'completionTime' in status)
    await talk.wait_until(pods, lambda _, body: 'finalizers' not in str(body))
    await show(talk, 'done', path, pods)


async def index_jobs(talk: Talk) -> None:
    path, pods = jobs(talk, 'job'), talk.core('pods')
    body = build_job('job', completions=3, parallelism=3, completionMode='Indexed')
    await talk.post(jobs(talk), body)
    await settle(talk, path, lambda status, _: status.get('active') == 3)
    await show(talk, 'started', path, pods)
    await report(talk, (await list_pods(talk, kind='job'))[::2], 'Succeeded')
    await settle(talk, path, lambda status, _: status.get('succeeded') == 2)
    await show(talk, 'nearly done', path)
    await report(talk, (await list_pods(talk, kind='job'))[1:2], 'Succeeded')
    await settle(talk, path, lambda status, _: 'completionTime' in status)
    await show(talk, 'done', path)


async def fail_jobs(talk: Talk) -> None:
    path = jobs(talk, 'job')
    await talk.post(jobs(talk), build_job('job', backoffLimit=0))
    await settle(talk, path, lambda status, _: status.get('active') == 1)
    await report(talk, await list_pods(talk, kind='job'), 'Failed')
    await settle(talk, path, lambda status, _: "'Failed'" in str(status))
    await show(talk, 'failed', path)
    late = jobs(talk, 'late')
    await talk.post(jobs(talk), build_job('late', activeDeadlineSeconds=1))
    await settle(talk, late, lambda status, _: "'Failed'" in str(status))
    await show(talk, 'late', late)


async def suspend_jobs(talk: Talk) -> None:
    path, merge = jobs(talk, 'job'), 'application/merge-patch+json'
    await talk.post(jobs(talk), build_job('job', suspend=True))
    await settle(talk, path, lambda status, _: 'Suspended' in str(status))
    await show(talk, 'suspended', path)
    await talk._request('PATCH', path, {'spec': {'suspend': False}}, type=merge)
    await settle(talk, path, lambda status, _: status.get('active') == 1)
    await show(talk, 'resumed', path)
    await talk._request('PATCH', path, {'spec': {'suspend': True}}, type=merge)
    await settle(
        talk,
        path,
        lambda status, _: (
            'active' not in status and not status['terminating'] and 'JobSuspended' in str(status)
        ),
    )
    await show(talk, 'suspended again', path)


async def start_cron_jobs(talk: Talk) -> None:
    template = build_job('unused')
    template['metadata'] = {'labels': {'kind': 'cron'}, 'annotations': {'example.com/note': 'yes'}}
    body = {
        'metadata': {'name': 'cron'},
        'spec': {'schedule': '* * * * *', 'jobTemplate': template},
    }
    path = f'/apis/batch/v1/namespaces/{talk.namespace}/cronjobs'
    await talk.post(path, body)
    await talk.wait_until(f'{path}/cron', lambda _, body: 'active' in body['status'])
    await settle(talk, jobs(talk), lambda _, body: bool(body['items']))
    await talk.wait_until(
        jobs(talk), lambda _, body: body['items'][0].get('status', {}).get('active') == 1
    )
    await talk._request(
        'PATCH', f'{path}/cron', {'spec': {'suspend': True}}, type='application/merge-patch+json'
    )
    await show(talk, 'started', f'{path}/cron', jobs(talk))


async def balance_services(talk: Talk) -> None:
    node = f'node-{talk.namespace}'
    await talk._request('POST', '/api/v1/nodes', {'metadata': {'name': node}})
    template = build_template({'app': 'web'}, nodeName=node)
    for name in ('one', 'two'):
        body = {**template, 'metadata': {**template['metadata'], 'name': name}}
        await talk._request('POST', talk.core('pods'), body)
    ports = [{'name': 'http', 'port': 80, 'targetPort': 'http'}]
    for name, more in (('web', {}), ('headless', {'clusterIP': 'None'})):
        body = {
            'metadata': {'name': name, 'labels': {'kind': 'service'}},
            'spec': {'selector': {'app': 'web'}, 'ports': ports, **more},
        }
        await talk._request('POST', talk.core('services'), body)
    await talk._request(
        'POST',
        f'/apis/policy/v1/namespaces/{talk.namespace}/poddisruptionbudgets',
        {
            'metadata': {'name': 'web'},
            'spec': {'minAvailable': 1, 'selector': {'matchLabels': {'app': 'web'}}},
        },
    )
    slices = f'/apis/discovery.k8s.io/v1/namespaces/{talk.namespace}/endpointslices'
    await talk.wait_until(slices, lambda _, body: len(body['items']) == 2)
    await report(talk, await list_pods(talk, app='web'))
    await talk.wait_until(slices, lambda _, body: str(body).count("'ready': True") == 4)
    for name in ('web', 'headless'):
        path = talk.core('endpoints', name)
        await talk.wait_until(path, lambda _, body: str(body).count("'ip'") == 2)
        await show(talk, 'ready', path)
        found = await talk.wait_until(slices, lambda code, _: code == 200)
        listed = [
            item
            for item in found['items']
            if item['metadata']['labels']['kubernetes.io/service-name'] == name
        ]
        for item in listed:
            item['metadata'].pop('name')
            item['endpoints'].sort(key=lambda endpoint: endpoint['addresses'])
        label = f'slices of {name}'
        talk.exchanges.append(Exchange(label, 200, {}, {'items': simplify(listed)}))
    budget = f'/apis/policy/v1/namespaces/{talk.namespace}/poddisruptionbudgets/web'
    await settle(talk, budget, lambda status, _: status.get('currentHealthy') == 2)
    await show(talk, 'healthy', budget)
    eviction = {'apiVersion': 'policy/v1', 'kind': 'Eviction'}
    for name in ('one', 'two'):
        path = talk.core('pods', name, 'eviction')
        await talk.post(path, {**eviction, 'metadata': {'name': name}})
    await settle(
        talk,
        budget,
        lambda status, _: status.get('currentHealthy') == 1 and 'disruptedPods' not in status,
    )
    await show(talk, 'evicted', budget)
    await talk._request('DELETE', f'/api/v1/nodes/{node}')


TRANSCRIPTS = (
    Transcript('rollouts', roll_deployments),
    Transcript('rollout-limits', limit_deployments),
    Transcript('recreations', recreate_deployments),
    Transcript('stateful-sets', order_stateful_sets),
    Transcript('daemon-sets', place_daemon_sets),
    Transcript('completed-jobs', complete_jobs),
    Transcript('indexed-jobs', index_jobs),
    Transcript('failed-jobs', fail_jobs),
    Transcript('suspended-jobs', suspend_jobs),
    Transcript('cron-jobs', start_cron_jobs),
    Transcript('service-endpoints', balance_services),
)
