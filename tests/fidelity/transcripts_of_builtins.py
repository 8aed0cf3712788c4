"""
Built-in kinds: what the server makes of the shortest objects, and what it refuses; and the
documents about the kinds.
"""

import dataclasses
from typing import Any

import fidelity_samples
from fidelity_talks import Exchange, Talk, Transcript

AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'
GROUPS = (
    'apps',
    'batch',
    'autoscaling',
    'coordination.k8s.io',
    'events.k8s.io',
    'apiextensions.k8s.io',
    'admissionregistration.k8s.io',
    'rbac.authorization.k8s.io',
    'policy',
    'networking.k8s.io',
    'authentication.k8s.io',
    'authorization.k8s.io',
    'storage.k8s.io',
    'scheduling.k8s.io',
    'discovery.k8s.io',
)

CONTAINERS = [{'name': 'main', 'image': 'busybox'}]
TEMPLATE = {'metadata': {'labels': {'a': 'b'}}, 'spec': {'containers': CONTAINERS}}
JOB_TEMPLATE = {'spec': {'containers': CONTAINERS, 'restartPolicy': 'Never'}}
SELECTOR = {'matchLabels': {'a': 'b'}}
BACKEND = {'service': {'name': 'x', 'port': {'number': 80}}}
TARGET = {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'name': 'x'}
ROLE = {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': 'x'}

SAMPLES: dict[str, dict[str, Any]] = {
    'apps/v1/deployments': {'spec': {'selector': SELECTOR, 'template': TEMPLATE}},
    'apps/v1/statefulsets': {
        'spec': {'selector': SELECTOR, 'template': TEMPLATE, 'serviceName': 'x'}
    },
    'apps/v1/daemonsets': {'spec': {'selector': SELECTOR, 'template': TEMPLATE}},
    'apps/v1/replicasets': {'spec': {'selector': SELECTOR, 'template': TEMPLATE}},
    'batch/v1/cronjobs': {
        'spec': {'schedule': '* * * * *', 'jobTemplate': {'spec': {'template': JOB_TEMPLATE}}}
    },
    'v1/secrets': {'data': {'a': 'eA=='}},
    'v1/serviceaccounts': {},
    'v1/limitranges': {'spec': {'limits': [{'type': 'Container', 'default': {'cpu': '1'}}]}},
    'v1/resourcequotas': {'spec': {'hard': {'pods': '5'}}},
    'v1/persistentvolumeclaims': {
        'spec': {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}}
    },
    'v1/endpoints': {'subsets': [{'addresses': [{'ip': '10.1.2.3'}], 'ports': [{'port': 80}]}]},
    'networking.k8s.io/v1/ingresses': {'spec': {'defaultBackend': BACKEND}},
    'networking.k8s.io/v1/networkpolicies': {'spec': {'podSelector': {}}},
    'policy/v1/poddisruptionbudgets': {'spec': {'selector': SELECTOR, 'minAvailable': 1}},
    'autoscaling/v2/horizontalpodautoscalers': {
        'spec': {'scaleTargetRef': TARGET, 'maxReplicas': 5}
    },
    'rbac.authorization.k8s.io/v1/roles': {
        'rules': [{'apiGroups': [''], 'resources': ['pods'], 'verbs': ['get']}]
    },
    'rbac.authorization.k8s.io/v1/rolebindings': {'roleRef': ROLE},
    'coordination.k8s.io/v1/leases': {'spec': {'holderIdentity': 'x'}},
    'discovery.k8s.io/v1/endpointslices': {
        'addressType': 'IPv4',
        'endpoints': [{'addresses': ['10.1.2.3']}],
    },
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
    await talk.define(
        fidelity_samples.build_crd(
            talk,
            'things',
            fidelity_samples.build_version(
                subresources={'status': {}, 'scale': fidelity_samples.SCALE}
            ),
            shortNames=['th'],
            categories=['all'],
        )
    )
    document = f'/openapi/v3/apis/{talk.group}/v1'
    await talk.wait_until(document, lambda code, _: code == 200)
    await talk.get(document)
    await talk.get(f'/openapi/v3/apis/{talk.group}/v2')
    await talk.get(f'/apis/{talk.group}')
    await talk.get(f'/apis/{talk.group}/v1')
    for path in (
        '/api/v1',
        '/apis/apps/v1',
        '/apis/batch/v1',
        '/apis/coordination.k8s.io/v1',
        '/apis/events.k8s.io/v1',
        '/apis/apiextensions.k8s.io/v1',
        '/apis/admissionregistration.k8s.io/v1',
        '/apis/rbac.authorization.k8s.io/v1',
        '/apis/policy/v1',
        '/apis/networking.k8s.io/v1',
    ):
        await talk.get(path)


async def be_described_at_once(talk: Talk) -> None:
    more = fidelity_samples.build_version('v2', subresources={'status': {}})
    await talk.define(
        fidelity_samples.build_crd(
            talk,
            'things',
            fidelity_samples.build_version(
                subresources={'status': {}, 'scale': fidelity_samples.SCALE}
            ),
            {**more, 'storage': False},
            shortNames=['th'],
            categories=['all'],
        )
    )
    await talk.define(fidelity_samples.build_crd(talk, 'others', scope='Cluster'))
    await talk.wait_until(
        '/apis',
        lambda _, body: (
            [
                resource['resource']
                for group in body['items']
                if group['metadata'].get('name') == talk.group
                for resource in group['versions'][-1]['resources']
            ]
            == ['others', 'things']
        ),
        headers={'Accept': AGGREGATED},
    )
    for accept in (
        AGGREGATED,
        f'{AGGREGATED},application/json',
        f'application/json,{AGGREGATED};q=0.5',
        AGGREGATED.replace('v2', 'v2beta1'),
        AGGREGATED.replace('v2', 'v9'),
        f'{AGGREGATED};profile=x',
        'application/json;as=APIGroupDiscoveryList',
        f'{AGGREGATED.replace("v2", "v9")},application/json',
    ):
        talk.note(accept)
        await talk.get('/api', headers={'Accept': accept})
        await talk.get('/apis', headers={'Accept': accept})
        talk.exchanges[-1] = _select_groups(talk.exchanges[-1], talk.group)
    for path in (
        '/api',
        '/apis/apps',
        '/apis/apps/v1',
        f'/apis/{talk.group}/v1',
        '/version',
        '/apis/none.kopf.dev',
    ):
        await talk.get(path, headers={'Accept': 'application/yaml;q=0'})
    await talk.get('/api', headers={'Accept': AGGREGATED.replace('json', 'yaml')})
    for accept in ('text/html', 'application/*', fidelity_samples.TABLE):
        talk.note(accept)
        for path in (
            '/api',
            '/api/v1',
            '/apis',
            '/apis/apps',
            '/apis/apps/v1',
            f'/apis/{talk.group}',
            f'/apis/{talk.group}/v1',
            '/version',
        ):
            await talk.get(path, headers={'Accept': accept})
            talk.exchanges[-1] = _select_groups(talk.exchanges[-1], talk.group)


def _select_groups(exchange: Exchange, own: str) -> Exchange:
    """Leave the groups that are of interest: in any cluster, there can be any others."""
    match exchange.body:
        case {'items': list(items)}:
            groups = {group['metadata']['name']: group for group in items}
            return dataclasses.replace(
                exchange,
                body={
                    **exchange.body,
                    'items': {name: groups.get(name) for name in (*GROUPS, own)},
                },
            )
        case {'groups': list(items)}:
            groups = {group['name']: group for group in items}
            return dataclasses.replace(
                exchange,
                body={
                    **exchange.body,
                    'groups': {name: groups.get(name) for name in (*GROUPS, own)},
                },
            )
        case _:
            return exchange


async def become_pods(talk: Talk) -> None:
    pods = talk.core('pods')
    await talk.post(
        talk.core('serviceaccounts'),
        {
            'metadata': {'name': 'quiet'},
            'automountServiceAccountToken': False,
            'imagePullSecrets': [{'name': 'pulling'}],
        },
    )
    await talk.wait_until_accepted(
        pods, {'metadata': {'name': 'x'}, 'spec': {'containers': CONTAINERS}}
    )
    mount = {'name': 'token', 'mountPath': '/var/run/secrets/kubernetes.io/serviceaccount'}
    volume = {'name': 'token', 'emptyDir': {}}
    for note, spec in {
        'shortest': {},
        'of an account': {'serviceAccountName': 'quiet'},
        'with a token on request': {
            'serviceAccountName': 'quiet',
            'automountServiceAccountToken': True,
        },
        'with no token': {'automountServiceAccountToken': False},
        'with own tokens': {
            'containers': [{**CONTAINERS[0], 'volumeMounts': [mount]}],
            'volumes': [volume],
        },
        'with more containers': {
            'containers': [*CONTAINERS, {'name': 'more', 'image': 'busybox:1.36'}],
            'initContainers': [{'name': 'init', 'image': 'busybox:latest'}],
        },
        'with secrets to pull': {
            'imagePullSecrets': [{'name': 'own'}],
            'serviceAccountName': 'quiet',
        },
        'with a priority': {'priorityClassName': 'absent'},
        'with resources': {
            'containers': [
                {
                    **CONTAINERS[0],
                    'resources': {
                        'limits': {'cpu': '1', 'memory': '1Gi'},
                        'requests': {'cpu': '100m'},
                    },
                }
            ]
        },
        'with tolerations': {'tolerations': [{'key': 'a', 'operator': 'Exists'}]},
    }.items():
        talk.note(note)
        body = {'metadata': {'name': 'x'}, 'spec': {'containers': CONTAINERS, **spec}}
        await talk.post(pods, body, dryRun='All')
    talk.note('stored')
    await talk.post(pods, {'metadata': {'name': 'one'}, 'spec': {'containers': CONTAINERS}})
    await talk.merge(
        f'{pods}/one', {'metadata': {'labels': {'a': 'b'}, 'finalizers': ['kopf.dev/f']}}
    )
    await talk.merge(f'{pods}/one', {'spec': {'nodeName': 'x'}})
    await talk.merge(f'{pods}/one', {'spec': {'activeDeadlineSeconds': 5}})
    await talk.merge(f'{pods}/one/status', {'status': {'phase': 'Running'}})
    await talk.delete(f'{pods}/one')
    await talk.merge(f'{pods}/one', {'metadata': {'finalizers': None}})
    await talk.get(f'{pods}/one')
    talk.note('of an absent account')
    await talk.post(
        pods,
        {
            'metadata': {'name': 'x'},
            'spec': {'containers': CONTAINERS, 'serviceAccountName': 'absent'},
        },
        dryRun='All',
    )


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
    Transcript('aggregated-documents', be_described_at_once),
    Transcript('pods', become_pods),
    Transcript('large-bodies', be_too_large),
)
