"""
Level-triggered operators as their users write them, and what is done to their objects and children.

Their functions compare the children in memory with the wanted ones, and correct the difference with
a client of their own. Whatever happens, the end must be the same as after one call, there must be
only one child for each purpose, and no calls and no writes must follow.
"""

import dataclasses
import hashlib
import json
import os
import re

import aiohttp
import yaml
from chaotic_operators import Case, build_configmap, build_crd, build_object

import kopf

PATHS = {
    'configmaps': 'api/v1',
    'namespaces': 'api/v1',
    'services': 'api/v1',
    'deployments': 'apis/apps/v1',
    'statefulsets': 'apis/apps/v1',
}

WRITE = re.compile(r'^(create|update|patch|delete|deletecollection) (?!events |leases )')
"""The requests in timelines that can change something."""


@dataclasses.dataclass(frozen=True)
class Client:
    """What the functions talk to the cluster with: any library would do it."""

    url: str
    headers: dict[str, str]

    @classmethod
    def read(cls, kubeconfig):
        with open(kubeconfig, encoding='utf-8') as file:
            config = yaml.safe_load(file)
        token = config['users'][0]['user'].get('token')
        url = config['clusters'][0]['cluster']['server']
        return cls(url, {'Authorization': f'Bearer {token}'})

    async def list(self, plural, labels):
        path = f'{PATHS[plural]}/{plural}?labelSelector={labels}'
        return (await self._ask('GET', path))['items']

    async def get(self, plural, name, namespace=None):
        return await self._ask('GET', self._locate(plural, namespace, name))

    async def create(self, plural, body):
        """Return the new object, or `None` if there is another one of this name."""
        path = self._locate(plural, body['metadata'].get('namespace'))
        return await self._ask('POST', path, body, absent=409)

    async def patch(self, plural, known, body):
        """Change this very object to be like the body."""
        metadata = {**body['metadata'], 'uid': known['metadata']['uid']}
        path = self._locate(plural, metadata.get('namespace'), metadata['name'])
        return await self._ask('PATCH', path, {**body, 'metadata': metadata})

    async def delete(self, plural, known):
        """Delete this very object, and not one that has taken its name."""
        metadata = known['metadata']
        path = self._locate(plural, metadata.get('namespace'), metadata['name'])
        options = {'preconditions': {'uid': metadata['uid']}}
        await self._ask('DELETE', path, options, absent=404)

    def _locate(self, plural, namespace, name=''):
        scope = f'/namespaces/{namespace}' if namespace else ''
        return f'{PATHS[plural]}{scope}/{plural}/{name}'.rstrip('/')

    async def _ask(self, method, path, body=None, *, absent=None):
        kind = {'Content-Type': 'application/merge-patch+json'} if method == 'PATCH' else {}
        headers = {**self.headers, **kind}
        async with aiohttp.request(
            method, f'{self.url}/{path}', json=body, headers=headers
        ) as response:
            if response.status == absent:
                return None
            response.raise_for_status()
            return await response.json()


def is_like(wanted, actual):
    """Return whether all that is wanted is there, besides what the server has added."""
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(
            is_like(value, actual.get(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(actual, list)
            and len(wanted) == len(actual)
            and all(map(is_like, wanted, actual))
        )
    return wanted == actual


async def keep(client, plural, known, body):
    """
    Make the child, or change it to be as wanted; return whether it was there and so already.

    If not, it must be looked at again, even if no event comes: it can be deleted before it is seen.
    """
    if known is None:
        await client.create(plural, body)
        return False
    if is_like(body, json.loads(json.dumps(dict(known)))):
        return True
    await client.patch(plural, known, body)
    return False


def conclude(kept):
    """Ask to be called again until everything that was written is seen, or is found missing."""
    return None if all(kept) else kopf.Requeue(10, reason='not all children are seen as wanted')


def build_workload(kind, name, replicas, annotations, **spec):
    labels = {'app': name}
    template = {
        'metadata': {'labels': labels, 'annotations': annotations},
        'spec': {'containers': [{'name': 'main', 'image': 'main:1'}]},
    }
    return {
        'apiVersion': 'apps/v1',
        'kind': kind,
        'metadata': {'name': name, 'namespace': 'default'},
        'spec': {
            'replicas': replicas,
            'selector': {'matchLabels': labels},
            'template': template,
            **spec,
        },
    }


def build_service(name, port):
    return {
        'apiVersion': 'v1',
        'kind': 'Service',
        'metadata': {'name': name, 'namespace': 'default'},
        'spec': {'selector': {'app': name}, 'ports': [{'port': port, 'protocol': 'TCP'}]},
    }


def hash_value(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def declare_websites(registry, *, settle=1):
    """Every version of the pages has its own config map; the former ones are removed."""
    client = Client.read(os.environ['KUBECONFIG'])

    @kopf.on.reconcile(
        'websites',
        registry=registry,
        owns=['deployments', 'services', 'configmaps'],
        settle=settle,  # if the events of the parent are late, the garbage collector undoes what is made
    )
    async def serve(name, spec, owned, patch, **_):
        pages = {
            **build_configmap(f'{name}-{hash_value(dict(spec["pages"]))}'),
            'data': dict(spec['pages']),
        }
        current = pages['metadata']['name']
        children = {
            'configmaps': pages,
            'services': build_service(name, spec['port']),
            'deployments': build_workload(
                'Deployment', name, spec['replicas'], {'example.com/pages': current}
            ),
        }
        kept = await keep_owned(client, owned, children)
        for body in owned['configmaps']:
            if body.metadata.name != current:
                await client.delete('configmaps', body)
        patch.status['pages'] = current
        return conclude(kept)


async def keep_owned(client, owned, children):
    """Keep one child of each resource."""
    kept = []
    for plural, child in children.items():
        kopf.append_owner_reference(child)
        known = owned.get(plural, child['metadata']['name'])
        kept.append(await keep(client, plural, known, child))
    return kept


def build_website(name, **spec):
    return build_object(
        name, 'Website', **{'pages': {'index': name}, 'port': 80, 'replicas': 1, **spec}
    )


def change_websites(sandbox):
    for name in ('one', 'two', 'three'):
        sandbox.create(build_website(name))
    sandbox.sleep(20)
    sandbox.patch('websites', 'one', {'spec': {'pages': {'index': 'new'}, 'replicas': 2}})
    sandbox.sleep(0.5)
    sandbox.patch('websites', 'one', {'spec': {'pages': {'about': 'newer'}}})
    delete_if_present(sandbox, 'services', 'two')
    sandbox.sleep(10)
    patch_if_present(sandbox, 'deployments', 'two', {'spec': {'replicas': 9}})
    sandbox.delete('websites', 'three')
    sandbox.sleep(10)
    sandbox.create(build_website('three', port=8080))
    sandbox.sleep(5)
    sandbox.patch('websites', 'two', {'spec': {'pages': {'index': None, 'help': 'yes'}}})


def observe_websites(sandbox):
    check_rest(sandbox)
    for body in sandbox.list('websites'):
        for plural in ('deployments', 'services', 'configmaps'):
            found = list_owned(sandbox, plural, body['metadata']['uid'])
            assert len(found) == 1, f'{body["metadata"]["name"]} has {plural} {found}.'


disks: dict[str, str] = {}
"""The state of the disks of databases outside of the cluster; it outlives the operators."""


def declare_databases(registry):
    """The secret is waited for, and also the disk, which tells nothing by itself."""
    client = Client.read(os.environ['KUBECONFIG'])

    @kopf.on.reconcile(
        'databases',
        registry=registry,
        owns=['statefulsets', 'services'],
        watches={'secrets': kopf.ref('spec.secretName')},
        deletion=True,
        settle=1,
    )
    async def run(name, spec, owned, related, deleting, patch, **_):
        if deleting:
            return release_disk(name)

        secret = related.get('secrets', spec['secretName'])
        if secret is None:
            patch.status['phase'] = 'waiting for the secret'
            return None
        if disks.get(name) != 'ready':
            disks[name] = 'ready' if name in disks else 'formatting'
            patch.status['phase'] = 'waiting for the disk'
            return kopf.Requeue(5, reason='the disk is being formatted')

        annotations = {'example.com/secret': hash_value(dict(secret['data']))}
        children = {
            'services': build_service(name, 5432),
            'statefulsets': build_workload(
                'StatefulSet', name, spec['replicas'], annotations, serviceName=name
            ),
        }
        kept = await keep_owned(client, owned, children)
        patch.status['phase'] = 'ready'
        return conclude(kept)


def release_disk(name):
    """Release the disk in two steps; return a request to be called again after the first one."""
    if disks.pop(name, None) in (None, 'closing'):
        return None
    disks[name] = 'closing'
    return kopf.Requeue(5, reason='the disk is being closed')


def build_secret(name, value):
    return {
        'apiVersion': 'v1',
        'kind': 'Secret',
        'metadata': {'name': name, 'namespace': 'default'},
        'stringData': {'password': value},
    }


def change_databases(sandbox):
    disks.clear()
    sandbox.create(build_secret('first', 'a'))
    for name, secret in {'one': 'first', 'two': 'second', 'three': 'first'}.items():
        sandbox.create(build_object(name, 'Database', secretName=secret, replicas=1))
    sandbox.sleep(20)
    sandbox.create(build_secret('second', 'b'))
    sandbox.patch('databases', 'one', {'spec': {'replicas': 3}})
    sandbox.sleep(10)
    sandbox.patch('secrets', 'first', {'stringData': {'password': 'c'}})
    sandbox.sleep(0.5)
    sandbox.patch('databases', 'one', {'spec': {'secretName': 'second'}})
    sandbox.delete('databases', 'three')
    sandbox.sleep(10)
    sandbox.delete('secrets', 'second')
    delete_if_present(sandbox, 'statefulsets', 'one')
    sandbox.sleep(5)
    sandbox.create(build_secret('second', 'd'))
    patch_if_present(sandbox, 'services', 'two', {'spec': {'selector': {'app': 'other'}}})


def observe_databases(sandbox):
    check_rest(sandbox)
    for body in sandbox.list('databases'):
        for plural in ('statefulsets', 'services'):
            found = list_owned(sandbox, plural, body['metadata']['uid'])
            assert len(found) == 1, f'{body["metadata"]["name"]} has {plural} {found}.'
    return dict(disks)


def find_tenants(labels, **_):
    return [labels['tenant']] if 'tenant' in labels else []


def declare_tenants(registry):
    """Children in other namespaces, which nothing deletes together with their owner."""
    client = Client.read(os.environ['KUBECONFIG'])

    @kopf.on.reconcile(
        'tenants',
        registry=registry,
        owns=[kopf.Owns('configmaps', by='label')],
        watches={'namespaces': find_tenants},
        deletion=True,
    )
    async def house(name, uid, spec, owned, related, deleting, patch, **_):
        if deleting:
            # Not from memory: what it does not know of yet would be left behind.
            left = await client.list('namespaces', labels=f'tenant={name}')
            await remove_namespaces(client, left)
            return kopf.Requeue(5, reason='the namespaces are being deleted') if left else None

        teams = {f'{name}-{team}': size for team, size in spec['teams'].items()}
        unwanted = [body for body in related['namespaces'] if body.metadata.name not in teams]
        await remove_namespaces(client, unwanted)
        kept = []
        for namespace, size in teams.items():
            labels = {'tenant': name, 'kopf.dev/owner-uid': uid}
            wanted = build_namespace(namespace, labels)
            known = related.get('namespaces', namespace)
            if known is not None and known.metadata.get('deletionTimestamp'):
                raise kopf.TemporaryError(f'{namespace} is being deleted.', delay=5)
            kept.append(await keep(client, 'namespaces', known, wanted))
            settings = build_configmap('settings', namespace=namespace, labels=labels)
            settings['data'] = {'size': str(size)}
            known = owned.get('configmaps', 'settings', namespace)
            kept.append(await keep_settings(client, known, settings))
        patch.status['namespaces'] = sorted(teams)
        return conclude(kept)


async def remove_namespaces(client, bodies):
    for body in bodies:
        if not body['metadata'].get('deletionTimestamp'):
            await client.delete('namespaces', body)


async def keep_settings(client, known, body):
    """Keep the settings; take over those of a former tenant of the same name."""
    if known is not None:
        return await keep(client, 'configmaps', known, body)
    if await client.create('configmaps', body) is None:
        namesake = await client.get('configmaps', 'settings', body['metadata']['namespace'])
        await keep(client, 'configmaps', namesake, body)
    return False


def build_namespace(name, labels):
    return {
        'apiVersion': 'v1',
        'kind': 'Namespace',
        'metadata': {'name': name, 'labels': labels},
    }


def build_tenant(name, **teams):
    body = build_object(name, 'Tenant', teams=teams)
    del body['metadata']['namespace']
    return body


def change_tenants(sandbox):
    sandbox.create(build_tenant('one', web=1, data=2))
    sandbox.create(build_tenant('two', web=1))
    sandbox.create(build_tenant('three', web=1))
    sandbox.sleep(20)
    sandbox.patch('tenants', 'one', {'spec': {'teams': {'data': None, 'ops': 3, 'web': 4}}})
    sandbox.delete('tenants', 'three')
    sandbox.sleep(0.5)
    delete_if_present(sandbox, 'configmaps', 'settings', 'two-web')
    sandbox.sleep(10)
    delete_if_present(sandbox, 'namespaces', 'one-web')
    patch_if_present(sandbox, 'namespaces', 'two-web', {'metadata': {'labels': {'tenant': None}}})
    sandbox.sleep(10)
    patch_if_present(
        sandbox, 'configmaps', 'settings', {'data': {'size': 'huge'}}, namespace='one-ops'
    )
    sandbox.wait('tenants', 'three', lambda body: body is None, timeout=3600)
    sandbox.create(build_tenant('three', data=5))


def observe_tenants(sandbox):
    check_rest(sandbox)
    for body in sandbox.list('tenants'):
        uid, teams = body['metadata']['uid'], body['spec']['teams']
        for plural in ('namespaces', 'configmaps'):
            found = sandbox.list(plural, labels=f'kopf.dev/owner-uid={uid}')
            assert len(found) == len(teams), f'{body["metadata"]["name"]} has {plural} {found}.'


def list_owned(sandbox, plural, uid):
    """List the names of the children by their references."""
    return [
        body['metadata']['name']
        for body in sandbox.list(plural, 'default')
        if any(owner['uid'] == uid for owner in body['metadata'].get('ownerReferences', ()))
    ]


def check_rest(sandbox):
    """Check that there were no calls and no writes in the end, those of other clients included."""
    moments = list(sandbox.timeline)
    kinds = [moment.kind for moment in moments]
    assert 'rest' in kinds
    for moment in moments[kinds.index('rest') :]:
        is_write = moment.kind == 'request' and WRITE.match(moment.text)
        is_call = moment.kind == 'log' and moment.text.endswith(' is invoked.')
        assert not is_write, f'It writes though nothing happens: {moment}'
        assert not is_call, f'It is called though nothing happens: {moment}'


def delete_if_present(sandbox, plural, name, namespace=None):
    """Delete a child; when the operator is down, it can be absent."""
    ignore_absence(lambda: sandbox.delete(plural, name, namespace))


def patch_if_present(sandbox, plural, name, changes, namespace=None):
    ignore_absence(lambda: sandbox.patch(plural, name, changes, namespace))


def ignore_absence(act):
    try:
        act()
    except kopf.testing.ApiError as error:
        assert error.code == 404


def build_levelled_crd(plural, kind, scope='Namespaced'):
    crd = build_crd(plural, kind)
    crd['spec']['scope'] = scope
    return crd


OPTIONS = {'rest': 1800.0, 'ignore': ['Service.spec.clusterIP', 'Service.spec.clusterIPs']}

CASES = [
    Case(
        'websites',
        declare_websites,
        change_websites,
        observe_websites,
        manifests=(build_levelled_crd('websites', 'Website'),),
        is_levelled=True,
        extra=OPTIONS,
    ),
    Case(
        'databases',
        declare_databases,
        change_databases,
        observe_databases,
        manifests=(build_levelled_crd('databases', 'Database'),),
        is_recreatable=True,
        extra=OPTIONS,
    ),
    Case(
        'tenants',
        declare_tenants,
        change_tenants,
        observe_tenants,
        manifests=(build_levelled_crd('tenants', 'Tenant', 'Cluster'),),
        is_recreatable=True,
        extra=OPTIONS,
    ),
]
