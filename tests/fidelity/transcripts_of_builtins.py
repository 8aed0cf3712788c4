"""
Built-in kinds: what the server makes of the shortest objects, and what it refuses; and the documents about the kinds.
"""
from typing import Any

import fidelity_samples
from fidelity_talks import Talk, Transcript

CONTAINERS = [{'name': 'main', 'image': 'busybox'}]
TEMPLATE = {'metadata': {'labels': {'a': 'b'}}, 'spec': {'containers': CONTAINERS}}
JOB_TEMPLATE = {'spec': {'containers': CONTAINERS, 'restartPolicy': 'Never'}}
SELECTOR = {'matchLabels': {'a': 'b'}}
BACKEND = {'service': {'name': 'x', 'port': {'number': 80}}}
TARGET = {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'name': 'x'}
ROLE = {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': 'x'}

SAMPLES: dict[str, dict[str, Any]] = {
    'apps/v1/deployments': {'spec': {'selector': SELECTOR, 'template': TEMPLATE}},
    'apps/v1/statefulsets': {'spec': {'selector': SELECTOR, 'template': TEMPLATE, 'serviceName': 'x'}},
    'apps/v1/daemonsets': {'spec': {'selector': SELECTOR, 'template': TEMPLATE}},
    'apps/v1/replicasets': {'spec': {'selector': SELECTOR, 'template': TEMPLATE}},
    'batch/v1/cronjobs': {'spec': {'schedule': '* * * * *', 'jobTemplate': {'spec': {'template': JOB_TEMPLATE}}}},
    'v1/secrets': {'data': {'a': 'eA=='}},
    'v1/serviceaccounts': {},
    'v1/limitranges': {'spec': {'limits': [{'type': 'Container', 'default': {'cpu': '1'}}]}},
    'v1/resourcequotas': {'spec': {'hard': {'pods': '5'}}},
    'v1/persistentvolumeclaims': {'spec': {
        'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}}},
    'v1/endpoints': {'subsets': [{'addresses': [{'ip': '10.1.2.3'}], 'ports': [{'port': 80}]}]},
    'networking.k8s.io/v1/ingresses': {'spec': {'defaultBackend': BACKEND}},
    'networking.k8s.io/v1/networkpolicies': {'spec': {'podSelector': {}}},
    'policy/v1/poddisruptionbudgets': {'spec': {'selector': SELECTOR, 'minAvailable': 1}},
    'autoscaling/v2/horizontalpodautoscalers': {'spec': {'scaleTargetRef': TARGET, 'maxReplicas': 5}},
    'rbac.authorization.k8s.io/v1/roles': {'rules': [{'apiGroups': [''], 'resources': ['pods'], 'verbs': ['get']}]},
    'rbac.authorization.k8s.io/v1/rolebindings': {'roleRef': ROLE},
    'coordination.k8s.io/v1/leases': {'spec': {'holderIdentity': 'x'}},
    'discovery.k8s.io/v1/endpointslices': {'addressType': 'IPv4', 'endpoints': [{'addresses': ['10.1.2.3']}]},
}


async def be_made(talk: Talk) -> None:
    """Nothing is stored: the controllers of real clusters would change it at once."""
    for place, body in SAMPLES.items():
        version, _, plural = place.rpartition('/')
        prefix = f'/api/{version}' if version == 'v1' else f'/apis/{version}'
        path = f'{prefix}/namespaces/{talk.namespace}/{plural}'
        await talk.post(path, {'metadata': {'name': 'x'}, **body}, dryRun='All')
        await talk.post(path, {'metadata': {'name': 'x'}, 'spec': {}}, dryRun='All')
        await talk.post(path, {'metadata': {'name': 'X!'}, **body}, dryRun='All')
        await talk.get(f'{path}/x')
        await talk.merge(f'{path}/x', {})
        await talk.delete(f'{path}/x')


async def be_described(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(
        talk, 'things', fidelity_samples.build_version(subresources={'status': {}, 'scale': fidelity_samples.SCALE}),
        shortNames=['th'], categories=['all']))
    document = f'/openapi/v3/apis/{talk.group}/v1'
    await talk.wait_until(document, lambda code, _: code == 200)
    await talk.get(document)
    await talk.get(f'/openapi/v3/apis/{talk.group}/v2')
    await talk.get(f'/apis/{talk.group}')
    await talk.get(f'/apis/{talk.group}/v1')
    for path in ('/api/v1', '/apis/apps/v1', '/apis/batch/v1', '/apis/coordination.k8s.io/v1', '/apis/events.k8s.io/v1',
                 '/apis/apiextensions.k8s.io/v1', '/apis/admissionregistration.k8s.io/v1',
                 '/apis/rbac.authorization.k8s.io/v1', '/apis/policy/v1', '/apis/networking.k8s.io/v1'):
        await talk.get(path)


async def be_too_large(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    configmaps, things = talk.core('configmaps'), talk.custom('things')
    await talk.post(configmaps, {'metadata': {'name': 'x'}, 'data': {'a': 'x' * (1024 * 1024 + 1)}})
    await talk.post(things, fidelity_samples.build_thing(talk))
    for path in (configmaps, things):
        await talk.post(path, b'"' + b'x' * (3 * 1024 * 1024) + b'"')
        await talk.merge(f'{path}/one', b'{"x":"' + b'x' * (3 * 1024 * 1024) + b'"}')


TRANSCRIPTS = (
    Transcript('builtin-kinds', be_made),
    Transcript('documents', be_described),
    Transcript('large-bodies', be_too_large),
)
