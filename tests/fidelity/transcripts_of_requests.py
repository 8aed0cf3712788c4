"""
Requests that are refused whatever they are about: unknown paths, broken bodies, wrong methods and
types, no rights.
"""

import fidelity_samples
from fidelity_talks import Talk, Transcript

ROLES = '/apis/rbac.authorization.k8s.io/v1/namespaces'
REVIEWS = '/apis/authorization.k8s.io/v1'


async def be_wrong(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things, configmaps = talk.custom('things'), talk.core('configmaps')
    for path in (
        '/nowhere',
        '/api/v2',
        '/api/v1/nothings',
        '/apis/none.kopf.dev',
        '/apis/none.kopf.dev/v1/things',
        '/apis/apps/v9/deployments',
        talk.core('nothings', 'x'),
        talk.custom('nothings'),
        f'{things}/one/nothing',
        f'{configmaps}/one/status',
        f'{configmaps}/one/nothing',
    ):
        await talk.get(path)
    talk.note('bodies')
    for path in (configmaps, things):
        for body in (
            b'',
            b'{',
            b'[]',
            b'null',
            b'"text"',
            b'{"metadata": 5}',
            b'{"kind": 5}',
            b'\xff\xfe',
            b'a: b',
            b'{"apiVersion": "v1", "kind": "Other", "metadata": {"name": "x"}}',
            b'{"apiVersion": "v9", "kind": "ConfigMap", "metadata": {"name": "x"}}',
            b'{"metadata": {"name": "x", "name": "y"}, "data": {}}',
        ):
            talk.note(repr(body))
            await talk.post(path, body)
    talk.note('types')
    for path, sample in (
        (configmaps, fidelity_samples.build_configmap('typed')),
        (things, fidelity_samples.build_thing(talk, 'typed')),
    ):
        for type in ('text/plain', 'application/xml', 'application/merge-patch+json', ''):
            talk.note(f'type {type!r}')
            await talk.post(path, sample, type=type)
    talk.note('methods')
    for path in ('/api', '/api/v1', '/apis/apps/v1', f'/apis/{talk.group}/v1', '/version'):
        await talk.post(path, {})
        await talk.ask('OPTIONS', path)
    for path in (configmaps, f'{configmaps}/one', things, f'{things}/one'):
        for method in ('PUT', 'POST', 'DELETE', 'OPTIONS'):
            if (method, path.rpartition('/')[2]) not in (
                ('POST', 'configmaps'),
                ('POST', 'things'),
                ('DELETE', 'configmaps'),
                ('DELETE', 'things'),
            ):
                await talk.ask(method, path, {} if method in ('PUT', 'POST') else None)


async def be_denied(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things, configmaps = talk.custom('things'), talk.core('configmaps')
    await talk.post(configmaps, fidelity_samples.build_configmap())
    user = {'headers': {'Impersonate-User': 'fidelity-operator'}}
    for path in (
        configmaps,
        f'{configmaps}/one',
        things,
        f'/apis/{talk.group}/v1/things',
        f'{things}/one/status',
        '/api/v1/namespaces',
        '/api/v1/nodes',
        '/version',
        '/api',
        '/metrics',
        talk.core('nothings'),
    ):
        await talk.get(path, **user)
    await talk.post(configmaps, fidelity_samples.build_configmap('two'), **user)
    await talk.put(f'{configmaps}/one', fidelity_samples.build_configmap(), **user)
    await talk.merge(f'{configmaps}/one', {'data': {}}, **user)
    await talk.merge(f'{things}/one/status', {'status': {}}, **user)
    await talk.delete(f'{configmaps}/one', **user)
    await talk.delete(configmaps, **user)
    async with talk.watch(configmaps, **user):
        pass
    talk.note('granted')
    await _grant(talk)
    await talk.wait_until(configmaps, lambda code, _: code == 200, **user)
    await talk.get(f'{configmaps}/one', **user)
    await talk.merge(f'{configmaps}/one', {'data': {'b': '2'}}, **user)
    await talk.get(f'{configmaps}/two', **user)
    await talk.merge(f'{configmaps}/two', {'data': {'b': '2'}}, **user)
    await talk.get('/api/v1/configmaps', **user)
    talk.note('escalation')
    await _grant(talk, 'more', **user)
    talk.note('reviews')
    for attributes in (
        {'verb': 'get', 'resource': 'configmaps', 'namespace': talk.namespace},
        {'verb': 'delete', 'resource': 'configmaps', 'namespace': talk.namespace},
        {'verb': 'list', 'resource': 'things', 'group': talk.group},
    ):
        await talk.post(
            f'{REVIEWS}/selfsubjectaccessreviews',
            {'spec': {'resourceAttributes': attributes}},
            **user,
        )
        await talk.post(
            f'{REVIEWS}/subjectaccessreviews',
            {'spec': {'resourceAttributes': attributes, 'user': 'fidelity-operator'}},
        )
    talk.note('anonymous')
    await talk.get(configmaps, headers={'Authorization': ''})
    await talk.get(configmaps, headers={'Authorization': 'Bearer wrong'})
    await talk.get('/version', headers={'Authorization': 'Bearer wrong'})
    await talk.get(configmaps, headers={'Impersonate-Group': 'x'})


async def _grant(talk: Talk, name: str = 'reader', **user: object) -> None:
    await talk.post(
        f'{ROLES}/{talk.namespace}/roles',
        {
            'metadata': {'name': name},
            'rules': [
                {'apiGroups': [''], 'resources': ['configmaps'], 'verbs': ['get', 'list', 'watch']},
                {
                    'apiGroups': [''],
                    'resources': ['configmaps'],
                    'resourceNames': ['one'],
                    'verbs': ['patch'],
                },
            ],
        },
        **user,
    )
    await talk.post(
        f'{ROLES}/{talk.namespace}/rolebindings',
        {
            'metadata': {'name': name},
            'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': name},
            'subjects': [
                {
                    'apiGroup': 'rbac.authorization.k8s.io',
                    'kind': 'User',
                    'name': 'fidelity-operator',
                }
            ],
        },
        **user,
    )


async def post_events(talk: Talk) -> None:
    events, newer = (
        talk.core('events'),
        f'/apis/events.k8s.io/v1/namespaces/{talk.namespace}/events',
    )
    involved = {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'name': 'one',
        'namespace': talk.namespace,
        'uid': 'x',
    }
    event = {
        'metadata': {'generateName': 'kopf-event-', 'namespace': talk.namespace},
        'involvedObject': involved,
        'action': 'Action?',
        'type': 'Normal',
        'reason': 'Testing',
        'message': 'It works.',
        'reportingComponent': 'kopf',
        'reportingInstance': 'dev',
        'source': {'component': 'kopf'},
        'firstTimestamp': '2020-01-01T00:00:00.000000Z',
        'lastTimestamp': '2020-01-01T00:00:00.000000Z',
        'eventTime': '2020-01-01T00:00:00.000000Z',
    }
    made = await talk.post(events, event)
    path = f'{events}/{made["metadata"]["name"]}'
    await talk.get(path.replace('/api/v1/', '/apis/events.k8s.io/v1/'))
    await talk.merge(path, {'count': 2, 'lastTimestamp': '2020-01-01T00:00:01Z'})
    await talk.merge(
        path, {'series': {'count': 2, 'lastObservedTime': '2020-01-01T00:00:01.000000Z'}}
    )
    await talk.post(
        events, {'metadata': {'name': 'bare'}, 'involvedObject': {'namespace': talk.namespace}}
    )
    wrong = (
        {'type': 'Other'},
        {'reason': ''},
        {'message': 'x' * 1025},
        {'involvedObject': {**involved, 'namespace': 'x'}},
        {'action': ''},
        {'reportingComponent': ''},
        {'reportingInstance': ''},
        {'eventTime': None},
        {'eventTime': 'now'},
        {'firstTimestamp': None, 'eventTime': None, 'action': ''},
        {'involvedObject': None},
    )
    for fields in wrong:
        talk.note(str(fields)[:60])
        await talk.post(events, {**event, 'metadata': {'name': 'wrong'}, **fields})
    talk.note('newer')
    modern = {
        'metadata': {'name': 'modern'},
        'regarding': involved,
        'action': 'Act',
        'type': 'Warning',
        'reason': 'Testing',
        'note': 'It works.',
        'reportingController': 'kopf.dev/kopf',
        'reportingInstance': 'dev',
        'eventTime': '2020-01-01T00:00:00.000000Z',
    }
    await talk.post(newer, modern)
    await talk.get(f'{events}/modern')
    await talk.merge(f'{newer}/modern', {'note': 'other'})
    await talk.merge(
        f'{newer}/modern',
        {'series': {'count': 2, 'lastObservedTime': '2020-01-01T00:00:01.000000Z'}},
    )
    await talk.merge(f'{newer}/modern', {'series': {'count': 1}})
    await talk.merge(
        f'{newer}/modern',
        {'action': 'Other', 'reportingController': 'kopf.dev/other', 'type': 'Normal'},
    )
    for fields in (
        {'eventTime': None},
        {'type': 'Other'},
        {'note': 'x' * 1025},
        {'reportingController': ''},
    ):
        talk.note(str(fields)[:60])
        await talk.post(newer, {**modern, 'metadata': {'name': 'other'}, **fields})
    await talk.get(events, fieldSelector='involvedObject.name=one,reason=Testing,type=Warning')
    await talk.delete(f'{events}/modern')


async def keep_leases(talk: Talk) -> None:
    leases = f'/apis/coordination.k8s.io/v1/namespaces/{talk.namespace}/leases'
    spec = {
        'holderIdentity': 'me',
        'leaseDurationSeconds': 10,
        'renewTime': '2020-01-01T00:00:00.000000Z',
    }
    made = await talk.post(leases, {'metadata': {'name': 'one'}, 'spec': spec})
    await talk.put(f'{leases}/one', {**made, 'spec': {**spec, 'holderIdentity': 'you'}})
    await talk.put(f'{leases}/one', {**made, 'spec': {**spec, 'holderIdentity': 'they'}})
    await talk.merge(f'{leases}/one', {'spec': {'leaseDurationSeconds': 0}})
    await talk.merge(f'{leases}/one', {'spec': {'renewTime': 'now'}})
    await talk.merge(f'{leases}/one', {'spec': {'renewTime': '2020-01-01T00:00:00Z'}})


async def be_strange(talk: Talk) -> None:
    """Send what fuzzing has found to be answered otherwise."""
    configmaps, pods, endless = talk.core('configmaps'), talk.core('pods'), '9' * 25
    made = await talk.post(configmaps, fidelity_samples.build_configmap())
    await talk.get(configmaps, resourceVersion=endless)
    await talk.get(f'{configmaps}/one', resourceVersion=endless)
    await talk.put(
        f'{configmaps}/one', {**made, 'metadata': {**made['metadata'], 'resourceVersion': endless}}
    )
    await talk.post(
        f'{pods}/one/eviction',
        {
            'apiVersion': 'policy/v1',
            'kind': 'Eviction',
            'metadata': {'name': 'one'},
            'deleteOptions': [{}],
        },
    )
    for target in ([1], {'name': 5}):
        await talk.post(
            f'{pods}/one/binding',
            {'apiVersion': 'v1', 'kind': 'Binding', 'metadata': {'name': 'one'}, 'target': target},
        )


TRANSCRIPTS = (
    Transcript('wrong-requests', be_wrong),
    Transcript('denials', be_denied),
    Transcript('events', post_events),
    Transcript('leases', keep_leases),
    Transcript('strange-requests', be_strange),
)
