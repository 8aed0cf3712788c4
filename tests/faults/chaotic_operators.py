"""
Operators of all kinds of handlers, and what is done to their objects, to be disturbed in all ways.

Each is made of a function that declares its handlers in a registry, for every start anew, and of a
scenario. What they do outside of the cluster is in the cloud: a dict, which outlives the operators.
"""

import asyncio
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import aiohttp
import yaml

import kopf
import kopf.testing

PLURAL = 'kopfexamples'


def build_crd(plural=PLURAL, kind='KopfExample', *, has_status=True):
    anything = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    version = {
        'name': 'v1',
        'served': True,
        'storage': True,
        **({'subresources': {'status': {}}} if has_status else {}),
        'schema': {
            'openAPIV3Schema': {
                'type': 'object',
                'properties': {'spec': anything, 'status': anything},
            }
        },
    }
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.kopf.dev'},
        'spec': {
            'group': 'kopf.dev',
            'scope': 'Namespaced',
            'versions': [version],
            'names': {'kind': kind, 'plural': plural, 'singular': kind.lower()},
        },
    }


def build_object(name, kind='KopfExample', **spec):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': kind,
        'metadata': {'name': name, 'namespace': 'default'},
        'spec': spec,
    }


def build_configmap(name, **metadata):
    return {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': name, 'namespace': 'default', **metadata},
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator with its scenario. What `observe` returns is a part of the end."""

    name: str
    declare: Callable[[kopf.OperatorRegistry], None]
    scenario: Callable[[Any], None]
    observe: Callable[[Any], object] | None = None
    manifests: tuple[dict[str, Any], ...] = (build_crd(),)
    is_levelled: bool = False  # does it depend on nothing but the latest state, and do nothing outside of the cluster?
    # Does it bring a new object of the same name to the same state as the old one?
    is_recreatable: bool = False
    attempts: int = 1  # calls of a handler for a change by others: with retries, edits meanwhile, changes by handlers
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # other options of the checks

    @property
    def options(self):
        observing = {'observe': self.observe} if self.observe is not None else {}
        return {'apply': list(self.manifests), **observing, **self.extra}


cloud: dict[str, Any] = {}


def look_at_cloud(_):
    return dict(cloud)


def declare_changes(registry, *, delays=(0.0, 2.0)):
    """
    All handlers of changes, some of them in several attempts, with results and with changes of the
    objects.
    """
    kwargs = {'registry': registry, 'backoff': 3}

    @kopf.on.create(PLURAL, **kwargs)
    @kopf.on.update(PLURAL, **kwargs)
    @kopf.on.resume(PLURAL, **kwargs)
    async def provide(name, spec, patch, **_):
        await asyncio.sleep(delays[0])
        cloud[name] = spec.get('size')
        patch.status['size'] = spec.get('size')

    @kopf.on.create(PLURAL, **kwargs)
    async def prepare(spec, retry, **_):
        if not retry:
            raise kopf.TemporaryError('not yet', delay=5)
        await asyncio.sleep(delays[1])
        return {'prepared': True}

    @kopf.on.update(PLURAL, **kwargs)
    async def follow(new, retry, **_):
        if not retry:
            raise RuntimeError('try again')
        return {'size': new['spec'].get('size')}

    @kopf.on.field(PLURAL, field='spec.colour', **kwargs)
    async def paint(new, patch, **_):
        patch.metadata.labels['colour'] = new

    @kopf.on.delete(PLURAL, **kwargs)
    async def remove(name, **_):
        await asyncio.sleep(delays[1])
        cloud.pop(name, None)

    @kopf.on.event(PLURAL, registry=registry)
    async def look(**_):
        await asyncio.sleep(0)


def change(sandbox):
    """Create, edit and delete; also with one more under the same name."""
    cloud.clear()
    for name in ('one', 'two', 'three'):
        sandbox.create(build_object(name, size=1, colour='red'))
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 2}})
    sandbox.patch(PLURAL, 'two', {'spec': {'colour': 'blue'}})
    sandbox.sleep(1)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 3, 'colour': 'green'}})
    sandbox.delete(PLURAL, 'three')
    sandbox.sleep(20)
    sandbox.wait(PLURAL, 'three', lambda body: body is None)
    sandbox.create(build_object('three', size=4, colour='white'))
    sandbox.delete(PLURAL, 'two')


def declare_subhandlers(registry):
    """Sub-handlers, one per item of the spec, each in its own number of attempts."""

    @kopf.on.create(PLURAL, registry=registry, backoff=3)
    @kopf.on.update(PLURAL, registry=registry, backoff=3)
    @kopf.on.resume(PLURAL, registry=registry, backoff=3)
    async def handle(spec, **_):
        for key in [key for key in cloud if key not in spec['items']]:
            del cloud[key]
        for key, value in spec['items'].items():

            @kopf.subhandler(id=key, param=value)
            async def handle_item(param, retry, key=key, **_):
                if retry < param % 2:
                    raise kopf.TemporaryError('not yet', delay=4)
                cloud[key] = param


def change_items(sandbox):
    cloud.clear()
    sandbox.create(build_object('one', items={'a': 1, 'b': 2, 'c': 3}))
    sandbox.sleep(15)
    sandbox.patch(PLURAL, 'one', {'spec': {'items': {'a': None, 'b': 5, 'd': 6}}})
    sandbox.sleep(2)
    sandbox.patch(PLURAL, 'one', {'spec': {'items': {'d': 7}}})


class Client:
    """What handlers talk to the cluster with, for their children: any library would do it."""

    def __init__(self, kubeconfig):
        with open(kubeconfig, encoding='utf-8') as file:
            config = yaml.safe_load(file)
        self._url = config['clusters'][0]['cluster']['server']
        self._headers = {'Authorization': f'Bearer {config["users"][0]["user"].get("token")}'}

    async def apply(self, body):
        """Create the config map, or change it to be such, by the server."""
        await self._ask('PATCH', f'/{body["metadata"]["name"]}?fieldManager=tests&force=true', body)

    async def list(self):
        return (await self._ask('GET', ''))['items']

    async def delete(self, name):
        await self._ask('DELETE', f'/{name}')

    async def _ask(self, method, path, body=None):
        url = f'{self._url}/api/v1/namespaces/default/configmaps{path}'
        kind = {'Content-Type': 'application/apply-patch+yaml'} if method == 'PATCH' else {}
        headers = {**self._headers, **kind}
        async with aiohttp.request(method, url, json=body, headers=headers) as response:
            if response.status == 404 and method == 'DELETE':
                return None
            response.raise_for_status()
            return await response.json()


def declare_children(registry):
    """
    Children are made to be as the parent wants, are restored if changed or deleted, and are removed
    if unwanted.
    """
    client = Client(os.environ['KUBECONFIG'])

    @kopf.on.create(PLURAL, registry=registry, backoff=3)
    @kopf.on.update(PLURAL, registry=registry, backoff=3)
    @kopf.on.resume(PLURAL, registry=registry, backoff=3)
    async def keep(name, spec, **_):
        wanted = {f'{name}-{key}': value for key, value in spec['children'].items()}
        for child, value in wanted.items():
            body = {
                **build_configmap(child, labels={'parent': name}),
                'data': {'value': str(value)},
            }
            kopf.append_owner_reference(body)
            await client.apply(body)
        for child in await client.list():
            labels = child['metadata'].get('labels') or {}
            if labels.get('parent') == name and child['metadata']['name'] not in wanted:
                await client.delete(child['metadata']['name'])

    @kopf.timer(PLURAL, registry=registry, interval=30, backoff=3)
    async def restore(name, spec, **kwargs):
        await keep(name=name, spec=spec, **kwargs)


def change_children(sandbox):
    sandbox.create(build_object('one', children={'a': 1, 'b': 2}))
    sandbox.create(build_object('two', children={'a': 1}))
    sandbox.sleep(15)
    sandbox.patch(PLURAL, 'one', {'spec': {'children': {'a': 3, 'b': None, 'c': 4}}})
    sandbox.delete(PLURAL, 'two')
    sandbox.sleep(10)
    for body in sandbox.list('configmaps', labels='parent=one')[:1]:
        sandbox.delete('configmaps', body['metadata']['name'])


def declare_background(registry):
    """Daemons and timers: what they write is what they see."""

    @kopf.daemon(PLURAL, registry=registry, cancellation_timeout=1)
    async def accompany(name, spec, stopped, patch, **_):
        cloud[name] = 'accompanied'
        try:
            while not stopped:
                patch.status['accompanied'] = spec.get('size')
                await stopped.wait(10)
                return_early = spec.get('size') == 'enough'
                if return_early:
                    break
        finally:
            if stopped and stopped.reason and 'DELETED' in str(stopped.reason):
                cloud.pop(name, None)

    @kopf.timer(PLURAL, registry=registry, interval=7, initial_delay=1)
    async def tick(spec, patch, **_):
        patch.status['seen'] = spec.get('size')

    @kopf.timer(PLURAL, registry=registry, interval=20, idle=10)
    async def rest(spec, patch, **_):
        patch.status['rested'] = spec.get('size')


def change_background(sandbox):
    cloud.clear()
    sandbox.create(build_object('one', size=1))
    sandbox.create(build_object('two', size=1))
    sandbox.sleep(25)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 2}})
    sandbox.delete(PLURAL, 'two')
    sandbox.sleep(15)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 3}})


def declare_indices(registry):
    """Indices, as they are seen by handlers of other objects."""

    @kopf.index('configmaps', labels={'app': kopf.PRESENT}, id='by_app', registry=registry)
    async def by_app(name, labels, **_):
        return {labels['app']: name}

    @kopf.timer(PLURAL, registry=registry, interval=10)
    async def count(name, by_app, patch, **_):
        patch.status['names'] = sorted(by_app.get(name, []))

    @kopf.on.event('configmaps', labels={'app': kopf.PRESENT}, registry=registry)
    async def look(by_app, **_):
        assert by_app is not None


def change_indexed(sandbox):
    sandbox.create(build_object('one'))
    for number in range(3):
        sandbox.create(build_configmap(f'map{number}', labels={'app': 'one'}))
    sandbox.sleep(15)
    sandbox.delete('configmaps', 'map0')
    sandbox.patch('configmaps', 'map1', {'metadata': {'labels': {'app': 'other'}}})
    sandbox.sleep(1)
    sandbox.create(build_configmap('map3', labels={'app': 'one'}))
    sandbox.delete('configmaps', 'map2')
    sandbox.create(build_configmap('map2', labels={'app': 'one'}))


class Hall:
    """
    Where the reviews of the sandbox meet the operator that serves them, as long as there is one.
    """

    def __init__(self):
        self._review = None

    async def serve(self, review):
        self._review = review
        try:
            yield {'service': {'namespace': 'default', 'name': 'hall'}}
            await asyncio.Event().wait()
        finally:
            self._review = None

    async def answer(self, path, review):
        if self._review is None:
            raise ConnectionError('Nobody is there.')
        return await self._review(review, webhook=path.removeprefix('/'))


hall = Hall()


def declare_admission(registry):
    """
    Objects are completed and checked before they are stored, also when the operator itself changes
    them.
    """

    @kopf.on.startup(registry=registry)
    async def configure(settings, **_):
        settings.admission.managed = 'auto.kopf.dev'
        settings.admission.server = hall.serve

    @kopf.on.mutate(PLURAL, registry=registry, operations=['CREATE', 'UPDATE'])
    async def complete(spec, patch, **_):
        if 'size' not in spec:
            patch.spec['size'] = 1

    @kopf.on.validate(PLURAL, registry=registry, operations=['CREATE', 'UPDATE'])
    async def check(spec, **_):
        if spec['size'] < 0:
            raise kopf.AdmissionError('It is too small.', code=400)

    @kopf.on.create(PLURAL, registry=registry)
    @kopf.on.update(PLURAL, registry=registry)
    @kopf.on.resume(
        PLURAL, registry=registry
    )  # for edits taken back while nobody is there: nothing else tells of them
    async def keep(spec, patch, **_):
        patch.status['size'] = spec['size']


def change_admitted(sandbox):
    """Ask until it is accepted or denied: while there is no operator, nothing can be changed."""

    def insist(act):
        while True:
            try:
                return act()
            except kopf.testing.ApiError as error:
                if 'denied the request' in str(error):
                    return error
            sandbox.sleep(5)

    def insist_on(change):
        return insist(lambda: sandbox.patch(PLURAL, 'one', {'spec': change}))

    sandbox.add_service('default', 'hall', hall.answer)
    for plural in ('mutatingwebhookconfigurations', 'validatingwebhookconfigurations'):
        sandbox.wait(
            plural, 'auto.kopf.dev', lambda body: body and body.get('webhooks'), timeout=3600
        )
    insist(lambda: sandbox.create(build_object('one')))
    sandbox.sleep(5)
    insist_on({'size': 5})
    assert isinstance(insist_on({'size': -5}), kopf.testing.ApiError)
    sandbox.sleep(5)
    insist_on({'size': None})
    sandbox.sleep(5)
    insist(lambda: sandbox.create(build_object('two', size=2)))


CASES = [
    Case('changes', declare_changes, change, look_at_cloud),
    Case('status in the object', declare_changes, change, manifests=(build_crd(has_status=False),)),
    Case('sub-handlers', declare_subhandlers, change_items, look_at_cloud),
    Case('children', declare_children, change_children, is_levelled=True),
    Case('daemons, timers', declare_background, change_background, is_levelled=True),
    Case('indices', declare_indices, change_indexed, is_levelled=True),
    Case('admission', declare_admission, change_admitted),
]
