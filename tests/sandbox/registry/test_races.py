"""
While a webhook thinks of one request, the world goes on; what is stored in the end is never based
on what is gone.
"""

import asyncio
import ssl

import aiohttp
import pytest

import kopf.testing

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'things.races.kopf.dev'},
    'spec': {
        'group': 'races.kopf.dev',
        'scope': 'Namespaced',
        'names': {'plural': 'things', 'kind': 'Thing'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'subresources': {'status': {}},
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'x-kubernetes-preserve-unknown-fields': True,
                    }
                },
            }
        ],
    },
}
CONFIGURATION = {
    'apiVersion': 'admissionregistration.k8s.io/v1',
    'kind': 'ValidatingWebhookConfiguration',
    'metadata': {'name': 'slow'},
    'webhooks': [
        {
            'name': 'slow.races.kopf.dev',
            'sideEffects': 'None',
            'admissionReviewVersions': ['v1'],
            'clientConfig': {'service': {'namespace': 'default', 'name': 'slow'}},
            'objectSelector': {'matchLabels': {'speed': 'slow'}},
            'rules': [
                {
                    'operations': ['*'],
                    'apiGroups': ['*'],
                    'apiVersions': ['*'],
                    'resources': ['things', 'things/status'],
                }
            ],
        }
    ],
}


def make_thing(name='thing', namespace='default', **spec):
    return {
        'apiVersion': 'races.kopf.dev/v1',
        'kind': 'Thing',
        'spec': spec,
        'metadata': {'name': name, 'namespace': namespace, 'labels': {'speed': 'slow'}},
    }


class SlowWebhook:
    """Allows everything, but the first request only when it is released."""

    def __init__(self):
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def __call__(self, path, review):
        if not self.asked.is_set():
            self.asked.set()
            await self.released.wait()
        return {**review, 'response': {'uid': review['request']['uid'], 'allowed': True}}


@pytest.fixture
async def webhook():
    return SlowWebhook()


@pytest.fixture
async def sandbox(webhook):
    async with kopf.testing.Sandbox() as sandbox:
        await sandbox.apply(CRD)
        await sandbox.add_service('default', 'slow', webhook)
        yield sandbox


async def start_slow(sandbox, webhook, coroutine):
    """Start a request that is held by the webhook."""
    await sandbox.create(CONFIGURATION)
    task = asyncio.create_task(coroutine)
    await webhook.asked.wait()
    return task


async def test_nothing_is_created_in_a_namespace_that_has_gone_meanwhile(sandbox, webhook):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'gone'}})
    task = await start_slow(sandbox, webhook, sandbox.create(make_thing(namespace='gone')))
    await sandbox.delete('namespaces', 'gone')
    await sandbox.wait('namespaces', 'gone', lambda body: body is None)
    webhook.released.set()

    with pytest.raises(kopf.testing.ApiError, match='namespaces "gone" not found'):
        await task
    assert await sandbox.list('things') == []


async def test_nothing_is_created_of_a_kind_that_has_gone_meanwhile(sandbox, webhook):
    task = await start_slow(sandbox, webhook, sandbox.create(make_thing()))
    await sandbox.delete('crds', 'things.races.kopf.dev')
    await sandbox.wait('crds', 'things.races.kopf.dev', lambda body: body is None)
    webhook.released.set()

    with pytest.raises(kopf.testing.ApiError) as e:
        await task
    assert e.value.code == 404
    await sandbox.apply(CRD)
    assert await sandbox.list('things') == []


async def test_names_are_taken_by_the_fastest(sandbox, webhook):
    task = await start_slow(sandbox, webhook, sandbox.create(make_thing(by='slow')))
    await sandbox.create(make_thing(by='fast'))
    webhook.released.set()

    with pytest.raises(kopf.testing.ApiError, match='"thing" already exists'):
        await task
    assert (await sandbox.get('things', 'thing'))['spec'] == {'by': 'fast'}


async def test_patches_are_repeated_on_what_has_changed_meanwhile(sandbox, webhook):
    await sandbox.create(make_thing())
    task = await start_slow(
        sandbox, webhook, sandbox.patch('things', 'thing', {'spec': {'slow': 1}})
    )
    await sandbox.patch('things', 'thing', {'spec': {'fast': 1}})
    webhook.released.set()
    await task

    assert (await sandbox.get('things', 'thing'))['spec'] == {'slow': 1, 'fast': 1}


async def test_updates_of_older_versions_are_refused(sandbox, webhook):
    made = await sandbox.create(make_thing())
    task = await start_slow(sandbox, webhook, sandbox.update({**made, 'spec': {'slow': 1}}))
    await sandbox.patch('things', 'thing', {'spec': {'fast': 1}})
    webhook.released.set()

    with pytest.raises(kopf.testing.ApiError, match='the object has been modified'):
        await task
    assert (await sandbox.get('things', 'thing'))['spec'] == {'fast': 1}


async def test_configurations_are_applied_to_what_was_created_meanwhile(sandbox, webhook):
    task = await start_slow(
        sandbox, webhook, sandbox.patch('things', 'thing', make_thing(slow=1), type='apply')
    )
    await sandbox.create(make_thing(fast=1))
    webhook.released.set()
    await task

    assert (await sandbox.get('things', 'thing'))['spec'] == {'slow': 1, 'fast': 1}


async def test_status_of_absent_objects_cannot_be_applied(sandbox):
    with pytest.raises(kopf.testing.ApiError) as e:
        await sandbox.patch('things', 'thing', make_thing(), type='apply', subresource='status')

    assert (e.value.code, e.value.reason) == (404, 'NotFound')


async def test_changes_of_types_are_changes(sandbox):
    made = await sandbox.create(make_thing(x=1))

    changed = await sandbox.patch('things', 'thing', {'spec': {'x': True}})

    assert changed['spec']['x'] is True
    assert changed['metadata']['generation'] == 2
    assert changed['metadata']['resourceVersion'] != made['metadata']['resourceVersion']


async def test_deletions_of_older_versions_are_refused(sandbox, webhook):
    made = await sandbox.create(make_thing())
    deletion = delete_version(sandbox, made['metadata']['resourceVersion'])
    task = await start_slow(sandbox, webhook, deletion)
    await sandbox.patch('things', 'thing', {'spec': {'fast': 1}})
    webhook.released.set()

    assert await task == 409
    assert (await sandbox.get('things', 'thing'))['spec'] == {'fast': 1}


async def delete_version(sandbox, version):
    context = ssl.create_default_context(cadata=sandbox.ca_data.decode())
    url = f'{sandbox.url}/apis/races.kopf.dev/v1/namespaces/default/things/thing'
    headers = {'Authorization': f'Bearer {sandbox.token}'}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.delete(
            url, json={'preconditions': {'resourceVersion': version}}, ssl=context
        ) as response,
    ):
        return response.status
