"""
What the built-in admission makes of objects: quotas, ranges, classes, pod security, ports of nodes.
"""

from typing import Any

from fidelity_talks import Talk, Transcript

PORTS = {'ports': [{'port': 80}]}
SAFE = {
    'allowPrivilegeEscalation': False,
    'capabilities': {'drop': ['ALL']},
    'runAsNonRoot': True,
    'seccompProfile': {'type': 'RuntimeDefault'},
}


def build_pod(name: str = 'one', container: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{'name': 'main', 'image': 'none', **(container or {})}]
    given = {'automountServiceAccountToken': False, 'containers': containers, **spec}
    return {'metadata': {'name': name}, 'spec': given}


def ask_for(cpu: str, memory: str) -> dict[str, Any]:
    return {'resources': {'requests': {'cpu': cpu}, 'limits': {'memory': memory}}}


async def wait_until_used(talk: Talk, path: str, **used: str) -> None:
    def is_used(_: int, body: Any) -> bool:
        known = body.get('status', {}).get('used', {})
        return bool(known) and all(known.get(name) == amount for name, amount in used.items())

    await talk.wait_until(path, is_used)


async def begin(talk: Talk) -> None:
    """Wait until pods can be made, and the config map of the namespace is there."""
    await talk.wait_until_accepted(talk.core('pods'), build_pod('any'))
    await talk.wait_until(talk.core('configmaps', 'kube-root-ca.crt'), lambda code, _: code == 200)


async def exceed_quotas(talk: Talk) -> None:
    quotas, configmaps, pods = (
        talk.core(name) for name in ('resourcequotas', 'configmaps', 'pods')
    )
    await begin(talk)
    hard = {'configmaps': '3', 'pods': '2', 'requests.cpu': '500m', 'limits.memory': '1Gi'}
    hard |= {'services.nodeports': '1', 'count/secrets': '1', 'requests.storage': '2Gi'}
    await talk.post(quotas, {'metadata': {'name': 'one'}, 'spec': {'hard': hard}})
    await wait_until_used(talk, f'{quotas}/one', configmaps='1')
    talk.note('counted')
    for name in ('a', 'b', 'c'):
        await talk.post(configmaps, {'metadata': {'name': name}})
    await talk.post(talk.core('secrets'), {'metadata': {'name': 'one'}})
    await talk.post(talk.core('secrets'), {'metadata': {'name': 'two'}}, dryRun='All')
    await talk.delete(f'{configmaps}/a')
    await wait_until_used(talk, f'{quotas}/one', configmaps='2', **{'count/secrets': '1'})
    talk.note('measured')
    small, large = ask_for('300m', '512Mi'), ask_for('300m', '600Mi')
    await talk.post(pods, build_pod('unspecified'), dryRun='All')
    for item in (build_pod('fits', small), build_pod('exceeds', large)):
        await talk.wait_until(f'{quotas}/one', lambda code, _: code == 200)
        answer = await talk.post(pods, item, dryRun='All')
        assert answer
    claim = {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '3Gi'}}}
    await talk.post(
        talk.core('persistentvolumeclaims'), {'metadata': {'name': 'large'}, 'spec': claim}
    )
    talk.note('status')
    found = await talk.wait_until(f'{quotas}/one', lambda code, _: code == 200)
    assert found['status']['hard'] == hard
    talk.note('scopes')
    scoped = {'hard': {'cpu': '1'}, 'scopes': ['BestEffort']}
    await talk.post(quotas, {'metadata': {'name': 'wrong'}, 'spec': scoped}, dryRun='All')


async def limit_ranges(talk: Talk) -> None:
    pods = talk.core('pods')
    await begin(talk)
    container = {'type': 'Container', 'default': {'cpu': '500m', 'memory': '1Gi'}}
    container |= {'defaultRequest': {'cpu': '200m'}, 'max': {'cpu': '1'}, 'min': {'memory': '4Mi'}}
    limits = [
        {**container, 'maxLimitRequestRatio': {'cpu': '4'}},
        {'type': 'Pod', 'max': {'cpu': '2'}},
        {'type': 'PersistentVolumeClaim', 'max': {'storage': '2Gi'}, 'min': {'storage': '1Gi'}},
    ]
    await talk.post(
        talk.core('limitranges'), {'metadata': {'name': 'one'}, 'spec': {'limits': limits}}
    )
    cases = {
        'minimum': {'limits': {'memory': '1Mi'}},
        'maximum': {'limits': {'cpu': '3'}},
        'ratio': {'requests': {'cpu': '100m'}, 'limits': {'cpu': '1'}},
        'requests': {'limits': {'cpu': '200m'}},
    }
    await talk.wait_until_forbidden(pods, build_pod('any', {'resources': cases['maximum']}))
    for name, resources in cases.items():
        talk.note(name)
        await talk.post(pods, build_pod(name, {'resources': resources}), dryRun='All')
    talk.note('claims')
    for size in ('1Mi', '3Gi'):
        claim = {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': size}}}
        body = {'metadata': {'name': 'any'}, 'spec': claim}
        await talk.post(talk.core('persistentvolumeclaims'), body, dryRun='All')


async def choose_classes(talk: Talk) -> None:
    name = f'{talk.namespace}-class'
    await begin(talk)
    runtime = {'overhead': {'podFixed': {'cpu': '10m'}}, 'handler': 'none'}
    runtime |= {'scheduling': {'nodeSelector': {'a': 'b'}, 'tolerations': [{'key': 'k'}]}}
    runtime['scheduling']['tolerations'][0]['operator'] = 'Exists'
    classes = '/apis/node.k8s.io/v1/runtimeclasses'
    await talk.post(classes, {'metadata': {'name': name}, **runtime})
    made = build_pod('any', runtimeClassName=name)
    await talk.wait_until_accepted(talk.core('pods'), made)
    for spec in (
        {'runtimeClassName': 'none'},
        {'runtimeClassName': name, 'nodeSelector': {'a': 'c'}},
        {'overhead': {'cpu': '1'}},
        {'runtimeClassName': name, 'overhead': {'cpu': '1'}},
    ):
        await talk.post(talk.core('pods'), build_pod('one', **spec), dryRun='All')
    await talk.post(talk.core('pods'), made, dryRun='All')
    await talk.delete(f'{classes}/{name}')


async def secure_pods(talk: Talk) -> None:
    pods, namespace = talk.core('pods'), f'/api/v1/namespaces/{talk.namespace}'
    prefix = 'pod-security.kubernetes.io'
    await begin(talk)
    await talk.merge(namespace, {'metadata': {'labels': {f'{prefix}/enforce': 'wrong'}}})
    await talk.merge(namespace, {'metadata': {'labels': {f'{prefix}/warn-version': 'wrong'}}})
    for level in ('baseline', 'restricted'):
        talk.note(level)
        await talk.merge(namespace, {'metadata': {'labels': {f'{prefix}/enforce': level}}})
        await talk.wait_until_forbidden(pods, build_pod('any', hostNetwork=True))
        for spec in ({'hostPID': True}, {'volumes': [{'name': 'v', 'hostPath': {'path': '/'}}]}):
            await talk.post(pods, build_pod('one', {'securityContext': SAFE}, **spec), dryRun='All')
        for context in (
            {},
            SAFE,
            {**SAFE, 'capabilities': {'add': ['SYS_ADMIN'], 'drop': ['ALL']}},
            {**SAFE, 'runAsUser': 0},
            {**SAFE, 'runAsNonRoot': False},
            {**SAFE, 'seLinuxOptions': {'type': 'bad', 'user': 'one'}},
            {**SAFE, 'seccompProfile': {'type': 'Unconfined'}},
            {**SAFE, 'appArmorProfile': {'type': 'Unconfined'}},
        ):
            body = build_pod('one', {'securityContext': context})
            await talk.post(pods, body, dryRun='All')
    talk.note('warnings')
    labels = {f'{prefix}/enforce': None, f'{prefix}/warn': 'restricted'}
    await talk.merge(namespace, {'metadata': {'labels': labels}})
    await talk.wait_until_accepted(pods, build_pod('any', hostNetwork=True))
    template = {'metadata': {'labels': {'a': 'b'}}, 'spec': build_pod()['spec']}
    spec = {'selector': {'matchLabels': {'a': 'b'}}, 'template': template}
    body = {'metadata': {'name': 'one'}, 'spec': spec}
    await talk.post(talk.apps('deployments'), body, dryRun='All')


async def take_ports(talk: Talk) -> None:
    services = talk.core('services')
    talk.note('ports')
    for name, port in (('small', 80), ('large', 40000), ('negative', -1)):
        await talk.post(services, build_service(name, port))
    await talk.post(
        services, {'metadata': {'name': 'far'}, 'spec': {**PORTS, 'clusterIP': '10.1.1.1'}}
    )
    await talk.post(
        services, {'metadata': {'name': 'used'}, 'spec': {**PORTS, 'clusterIP': '10.96.0.1'}}
    )


def build_service(name: str, port: int) -> dict[str, Any]:
    ports = [{'port': 80, 'nodePort': port}] if port else [{'port': 80}]
    return {'metadata': {'name': name}, 'spec': {'type': 'NodePort', 'ports': ports}}


TRANSCRIPTS = (
    Transcript('quotas', exceed_quotas),
    Transcript('limit-ranges', limit_ranges),
    Transcript('runtime-classes', choose_classes),
    Transcript('pod-security', secure_pods),
    Transcript('node-ports', take_ports),
)
