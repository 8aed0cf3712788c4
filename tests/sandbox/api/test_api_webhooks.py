"""
Admission webhooks, called for real by writes: over HTTPS, with certificates of our own.
"""

import base64
import datetime
import json

import pytest
from aiohttp import web
from sandbox_http import GROUP

from kopf._sandbox.auth import certificates

NOW = datetime.datetime.now(datetime.UTC)
CA = certificates.make_ca(NOW)
PAIR = certificates.issue_server(CA, ['127.0.0.1'], NOW)
HOOKS = '/apis/admissionregistration.k8s.io/v1'
THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}


class Webhook:
    """A server that answers each review by a function of the request."""

    def __init__(self):
        self.requests, self.decide, self.url = [], lambda request: {'allowed': True}, ''

    async def handle(self, http):
        review = await http.json()
        assert (review['kind'], review['apiVersion']) == ('AdmissionReview', 'admission.k8s.io/v1')
        self.requests.append(review['request'])
        response = self.decide(review['request'])
        if not isinstance(response, dict):
            return response
        return web.json_response(
            {
                'kind': 'AdmissionReview',
                'apiVersion': 'admission.k8s.io/v1',
                'response': {'uid': review['request']['uid'], **response},
            }
        )


@pytest.fixture
async def webhook():
    webhook = Webhook()
    app = web.Application()
    app.router.add_post('/{path:.*}', webhook.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(
        runner, '127.0.0.1', 0, ssl_context=certificates.build_server_context(PAIR)
    ).start()
    webhook.url = f'https://127.0.0.1:{runner.addresses[0][1]}/review'
    yield webhook
    for connection in runner.server.connections:
        connection.transport.abort()  # the cluster keeps them open for the next calls
    await runner.cleanup()


@pytest.fixture
async def install(api, namespace, webhook):
    """Install the webhook for the things of this test; it is uninstalled in the end."""
    made = []

    async def install(kind='Validating', operations=('*',), **fields):
        plural = f'{kind.lower()}webhookconfigurations'
        hook = {
            'name': 'hook.tests.kopf.dev',
            'sideEffects': 'None',
            'admissionReviewVersions': ['v1'],
            'clientConfig': {'url': webhook.url, 'caBundle': base64.b64encode(CA.pem).decode()},
            'namespaceSelector': {'matchLabels': {'kubernetes.io/metadata.name': namespace}},
            'rules': [
                {
                    'apiGroups': [GROUP],
                    'apiVersions': ['*'],
                    'resources': ['*/*'],
                    'operations': list(operations),
                }
            ],
        }
        await api.make(
            f'{HOOKS}/{plural}',
            {'metadata': {'name': f'{namespace}-{len(made)}'}, 'webhooks': [{**hook, **fields}]},
        )
        made.append(f'{HOOKS}/{plural}/{namespace}-{len(made)}')

    yield install
    for path in made:
        await api.delete(path)


def patch_with(*operations):
    return {
        'allowed': True,
        'patchType': 'JSONPatch',
        'patch': base64.b64encode(json.dumps(operations).encode()).decode(),
    }


async def test_allowed_creation_is_reviewed_and_stored(api, things, namespace, webhook, install):
    await install()

    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    [request] = webhook.requests
    assert (request['operation'], request['name'], request['namespace']) == (
        'CREATE',
        'a',
        namespace,
    )
    assert (
        request['kind']
        == request['requestKind']
        == {'group': GROUP, 'version': 'v1', 'kind': 'Thing'}
    )
    assert (
        request['resource']
        == request['requestResource']
        == {'group': GROUP, 'version': 'v1', 'resource': 'things'}
    )
    assert request['oldObject'] is None and request['dryRun'] is False
    assert request['object']['spec'] == {'size': 1, 'color': 'grey'}
    assert request['object']['metadata']['uid'] == made['metadata']['uid']
    assert request['options'] == {'kind': 'CreateOptions', 'apiVersion': 'meta.k8s.io/v1'}
    assert 'system:masters' in request['userInfo']['groups']


async def test_updates_and_deletions_are_reviewed_with_the_old_objects(
    api, things, webhook, install
):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})
    await install()

    await api.merge(f'{things}/a', {'spec': {'size': 2}}, fieldManager='me')
    await api.merge(f'{things}/a/status', {'status': {'x': 1}})
    await api.delete(f'{things}/a', propagationPolicy='Background')

    update, status, deletion = webhook.requests
    assert (
        update['operation'],
        update['oldObject']['spec']['size'],
        update['object']['spec']['size'],
    ) == ('UPDATE', 1, 2)
    assert update['options'] == {
        'kind': 'UpdateOptions',
        'apiVersion': 'meta.k8s.io/v1',
        'fieldManager': 'me',
    }
    assert (status['operation'], status['subResource'], status['object']['status']) == (
        'UPDATE',
        'status',
        {'x': 1},
    )
    assert (deletion['operation'], deletion['object'], deletion['oldObject']['spec']['size']) == (
        'DELETE',
        None,
        2,
    )
    assert deletion['options'] == {
        'kind': 'DeleteOptions',
        'apiVersion': 'meta.k8s.io/v1',
        'propagationPolicy': 'Background',
    }


@pytest.mark.parametrize(
    'status, code, message',
    [
        pytest.param(
            None,
            400,
            'admission webhook "hook.tests.kopf.dev" denied the request without explanation',
            id='silent',
        ),
        pytest.param(
            {'message': 'no way'},
            400,
            'admission webhook "hook.tests.kopf.dev" denied the request: no way',
            id='message',
        ),
        pytest.param(
            {'message': 'no way', 'code': 403, 'reason': 'Forbidden'},
            403,
            'admission webhook "hook.tests.kopf.dev" denied the request: no way',
            id='code',
        ),
    ],
)
async def test_denied_creation_is_refused(api, things, webhook, install, status, code, message):
    await install()
    webhook.decide = lambda request: {'allowed': False, **({'status': status} if status else {})}

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}})

    assert reply.code == code
    assert reply.body.get('reason') == (status or {}).get('reason')
    assert reply.body['message'] == message
    assert (await api.get(f'{things}/a')).code == 404


async def test_denied_deletion_is_refused(api, things, webhook, install):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})
    await install(operations=['DELETE'])
    webhook.decide = lambda request: {'allowed': False}

    reply = await api.delete(f'{things}/a')

    assert reply.code == 400
    assert 'deletionTimestamp' not in (await api.get(f'{things}/a')).body['metadata']


async def test_patches_of_mutating_webhooks_are_stored(api, things, webhook, install):
    await install('Mutating')
    webhook.decide = lambda request: patch_with(
        {'op': 'add', 'path': '/metadata/labels', 'value': {'x': 'y'}},
        {'op': 'replace', 'path': '/spec/size', 'value': 5},
    )

    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    assert (made['metadata']['labels'], made['spec']) == ({'x': 'y'}, {'size': 5, 'color': 'grey'})
    assert (await api.get(f'{things}/a')).body == made


async def test_results_of_mutating_webhooks_are_validated(api, things, webhook, install):
    await install('Mutating')
    webhook.decide = lambda request: patch_with(
        {'op': 'replace', 'path': '/spec/size', 'value': -1}
    )

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    assert reply.code == 422
    assert reply.body['message'] == (
        f'Thing.{GROUP} "a" is invalid: spec.size: Invalid value: -1: spec.size in body should be greater than or '
        f'equal to 0'
    )


async def test_warnings_are_passed_on(api, things, webhook, install):
    await install()
    webhook.decide = lambda request: {'allowed': True, 'warnings': ['be careful', 'very "careful"']}

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}})

    assert reply.code == 201
    assert reply.warnings == ('299 - "be careful"', '299 - "very \\"careful\\""')


async def test_dry_runs_are_told(api, things, webhook, install):
    await install()

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}}, dryRun='All')

    assert reply.code == 201
    assert [request['dryRun'] for request in webhook.requests] == [True]
    assert webhook.requests[0]['options']['dryRun'] == ['All']


async def test_failing_webhook_fails_the_request(api, things, webhook, install):
    await install()
    webhook.decide = lambda request: web.Response(status=503, text='sorry')

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}})

    assert reply.code == 500
    assert reply.body['reason'] == 'InternalError'
    assert reply.body['message'] == (
        'Internal error occurred: failed calling webhook "hook.tests.kopf.dev": failed to call webhook: the server is '
        'currently unable to '
        'handle the request'
    )


async def test_failing_webhook_is_ignored_on_request(api, things, webhook, install):
    await install(failurePolicy='Ignore')
    webhook.decide = lambda request: web.Response(status=500)

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}})

    assert reply.code == 201


async def test_only_what_is_selected_is_reviewed(api, things, plains, webhook, install):
    await install(
        operations=['CREATE'],
        objectSelector={'matchLabels': {'x': 'y'}},
        matchConditions=[],
        rules=[
            {
                'apiGroups': [GROUP],
                'apiVersions': ['v1'],
                'resources': ['things'],
                'operations': ['CREATE'],
            }
        ],
    )

    await api.make(things, {**THING, 'metadata': {'name': 'unlabelled'}})
    await api.make(things, {**THING, 'metadata': {'name': 'labelled', 'labels': {'x': 'y'}}})
    await api.make(
        plains,
        {
            'apiVersion': f'{GROUP}/v1',
            'kind': 'Plain',
            'metadata': {'name': 'plain', 'labels': {'x': 'y'}},
        },
    )
    await api.merge(f'{things}/labelled', {'spec': {'size': 1}})

    assert [request['name'] for request in webhook.requests] == ['labelled']


async def test_webhooks_are_reinvoked_after_others_on_request(api, things, webhook, install):
    await install('Mutating', name='first.tests.kopf.dev', reinvocationPolicy='IfNeeded')
    await install('Mutating', name='second.tests.kopf.dev')
    sizes = iter([[], [{'op': 'replace', 'path': '/spec/size', 'value': 2}], []])
    webhook.decide = lambda request: patch_with(*next(sizes))

    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    assert made['spec']['size'] == 2
    assert [request['object']['spec']['size'] for request in webhook.requests] == [1, 1, 2]


async def test_built_in_objects_are_reviewed_too(api, configmaps, webhook, install):
    await install(
        rules=[
            {
                'apiGroups': [''],
                'apiVersions': ['v1'],
                'resources': ['configmaps'],
                'operations': ['*'],
            }
        ]
    )
    webhook.decide = lambda request: {
        'allowed': request['object']['metadata']['name'] != 'bad',
        'status': {'message': 'bad name'},
    }

    good = await api.post(configmaps, {'metadata': {'name': 'good'}})
    bad = await api.post(configmaps, {'metadata': {'name': 'bad'}})

    assert (good.code, bad.code) == (201, 400)
    assert (
        bad.body['message']
        == 'admission webhook "hook.tests.kopf.dev" denied the request: bad name'
    )
    assert webhook.requests[0]['object']['kind'] == 'ConfigMap'
