"""Webhooks are really called, over HTTPS, and what they say is done."""

import asyncio
import base64
import datetime
import itertools
import json

import pytest
from aiohttp import web

from kopf._sandbox.admission import chain, matching
from kopf._sandbox.auth import certificates
from kopf._sandbox.meta import errors, kinds, requests
from kopf._sandbox.storage import memory

NOW = datetime.datetime.now(datetime.UTC)
CA = certificates.make_ca(NOW)
PAIR = certificates.issue_server(CA, ['localhost'], NOW)

CONFIGMAPS = kinds.Resource(
    '',
    'v1',
    'configmaps',
    'configmap',
    'ConfigMap',
    True,
    (),
    storage_version='v1',
    home=kinds.Home('', 'configmaps'),
)
THINGS1, THINGS2 = (
    kinds.Resource(
        'kopf.dev',
        version,
        'things',
        'thing',
        'Thing',
        True,
        (),
        storage_version='v1',
        home=kinds.Home('kopf.dev', 'things'),
        custom=True,
    )
    for version in ('v1', 'v2')
)
CATALOG = kinds.Catalog([CONFIGMAPS, THINGS1, THINGS2])
SERVICE = {'namespace': 'ns', 'name': 'hook', 'path': '/v'}


class Server:
    """
    A webhook server on a loopback port: each path answers as it is told, and remembers the reviews.
    """

    def __init__(self):
        self.port = 0
        self.answers = {}  # by path: a response, or a function of the review
        self.calls = []  # the paths with queries, and the reviews

    async def handle(self, request):
        review = json.loads(await request.read())
        self.calls.append((request.path_qs, review))
        response = self.answers.get(request.path, {})
        if callable(response):
            response = response(request, review['request'])
        if isinstance(response, web.StreamResponse):
            return response
        return web.json_response(
            {
                'apiVersion': review['apiVersion'],
                'kind': 'AdmissionReview',
                'response': {'uid': review['request']['uid'], 'allowed': True, **response},
            }
        )

    @property
    def paths(self):
        return [path.partition('?')[0] for path, _ in self.calls]


@pytest.fixture
async def server():
    server = Server()
    app = web.Application()
    app.router.add_route('*', '/{path:.*}', server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, '127.0.0.1', 0, ssl_context=certificates.build_server_context(PAIR))
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
def store():
    store = memory.Storage()
    store.put(matching.NAMESPACES, {'metadata': {'name': 'ns', 'labels': {'team': 'a'}}})
    return store


@pytest.fixture
async def gate(store):
    ids = (f'uid-{number}' for number in itertools.count(1))
    gate = chain.Gate(store, CATALOG, lambda: next(ids))
    yield gate
    await gate.close()


def make_hook(name, path, server=None, **content):
    rules = [{'operations': ['*'], 'apiGroups': ['*'], 'apiVersions': ['v1'], 'resources': ['*']}]
    client = {
        'url': f'https://localhost:{server.port if server else 1}{path}',
        'caBundle': base64.b64encode(CA.pem).decode(),
    }
    return {
        'name': name,
        'clientConfig': client,
        'rules': rules,
        'admissionReviewVersions': ['v1'],
        'sideEffects': 'None',
        'timeoutSeconds': 10,
        **content,
    }


def configure(store, home, *items, name='cfg'):
    store.put(home, {'metadata': {'name': name}, 'webhooks': list(items)})


def make_request(resource=CONFIGMAPS, **kwargs):
    return requests.Request(
        kwargs.pop('verb', 'create'),
        resource,
        requests.User('jane', ('devs',)),
        namespace='ns',
        name='x',
        **kwargs,
    )


def make_object(resource=CONFIGMAPS, **content):
    return {
        'apiVersion': resource.api_version,
        'kind': resource.kind,
        'metadata': {'name': 'x', 'namespace': 'ns'},
        **content,
    }


def patch(*operations):
    return {
        'patchType': 'JSONPatch',
        'patch': base64.b64encode(json.dumps(operations).encode()).decode(),
    }


def set_data(key):
    return patch({'op': 'add', 'path': f'/data/{key}', 'value': key})


async def test_without_webhooks_the_same_object_goes_on(gate):
    new = make_object()

    assert await gate.mutate(make_request(), 'CREATE', new, None) is new
    await gate.validate(make_request(), 'CREATE', new, None)


async def test_webhook_gets_the_review(gate, store, server):
    configure(store, chain.VALIDATING, make_hook('a.b.c', '/v', server, timeoutSeconds=7))
    request = make_request(verb='update', options={'fieldManager': 'fm'})
    new, old = make_object(data={'a': 'b'}), make_object()

    await gate.validate(request, 'UPDATE', new, old)

    names = {'group': '', 'version': 'v1', 'resource': 'configmaps'}
    kind = {'group': '', 'version': 'v1', 'kind': 'ConfigMap'}
    assert server.calls == [
        (
            '/v?timeout=7s',
            {
                'kind': 'AdmissionReview',
                'apiVersion': 'admission.k8s.io/v1',
                'request': {
                    'uid': 'uid-1',
                    'kind': kind,
                    'resource': names,
                    'requestKind': kind,
                    'requestResource': names,
                    'name': 'x',
                    'namespace': 'ns',
                    'operation': 'UPDATE',
                    'userInfo': {'username': 'jane', 'groups': ['devs']},
                    'object': new,
                    'oldObject': old,
                    'dryRun': False,
                    'options': {
                        'kind': 'UpdateOptions',
                        'apiVersion': 'meta.k8s.io/v1',
                        'fieldManager': 'fm',
                    },
                },
            },
        )
    ]


async def test_mutating_webhooks_see_the_changes_of_previous_ones(gate, store, server):
    configure(store, chain.MUTATING, make_hook('z.b.c', '/m3', server), name='second')
    configure(
        store,
        chain.MUTATING,
        make_hook('b.b.c', '/m1', server),
        make_hook('a.b.c', '/m2', server),
        name='first',
    )
    server.answers = {
        '/m1': patch({'op': 'add', 'path': '/data', 'value': {}}),
        '/m2': set_data('two'),
        '/m3': set_data('three'),
    }
    new = make_object()

    changed = await gate.mutate(make_request(), 'CREATE', new, None)

    assert server.paths == ['/m1', '/m2', '/m3']
    assert [review['request']['object'].get('data') for _, review in server.calls] == [
        None,
        {},
        {'two': 'two'},
    ]
    assert changed == make_object(data={'two': 'two', 'three': 'three'})
    assert new == make_object()


async def test_object_changed_there_and_back_is_the_same_object(gate, store, server):
    configure(
        store,
        chain.MUTATING,
        make_hook('a.b.c', '/m1', server),
        make_hook('b.b.c', '/m2', server),
    )
    server.answers = {
        '/m1': patch({'op': 'add', 'path': '/data', 'value': {}}),
        '/m2': patch({'op': 'remove', 'path': '/data'}),
    }
    new = make_object()

    assert await gate.mutate(make_request(), 'CREATE', new, None) is new


@pytest.mark.parametrize(
    'policy, expected',
    [
        pytest.param('IfNeeded', ['/m1', '/m2', '/m3', '/m1'], id='if-needed'),
        pytest.param('Never', ['/m1', '/m2', '/m3'], id='never'),
    ],
)
async def test_webhooks_are_asked_again_after_changes_of_others(
    gate, store, server, policy, expected
):
    configure(
        store,
        chain.MUTATING,
        *(
            make_hook(f'{name}.b.c', f'/{name}', server, reinvocationPolicy=policy)
            for name in ('m1', 'm2', 'm3')
        ),
    )
    server.answers = {'/m2': set_data('two')}

    await gate.mutate(make_request(), 'CREATE', make_object(data={}), None)

    assert server.paths == expected


async def test_webhook_is_not_asked_again_after_its_own_changes(gate, store, server):
    configure(
        store, chain.MUTATING, make_hook('a.b.c', '/m', server, reinvocationPolicy='IfNeeded')
    )
    server.answers = {'/m': set_data('x')}

    await gate.mutate(make_request(), 'CREATE', make_object(data={}), None)

    assert server.paths == ['/m']


async def test_changes_in_the_second_round_involve_the_later_webhooks_but_no_third_round(
    gate, store, server
):
    configure(
        store,
        chain.MUTATING,
        *(
            make_hook(f'{name}.b.c', f'/{name}', server, reinvocationPolicy='IfNeeded')
            for name in ('m1', 'm2', 'm3')
        ),
    )
    counter = itertools.count()
    server.answers = {
        '/m1': lambda request, asked: set_data(f'one{next(counter)}'),
        '/m2': set_data('two'),
    }

    await gate.mutate(make_request(), 'CREATE', make_object(data={}), None)

    assert server.paths == ['/m1', '/m2', '/m3', '/m1', '/m2', '/m3']


async def test_equivalent_version_is_shown_and_the_changes_come_in_the_requested_one(
    gate, store, server
):
    configure(store, chain.MUTATING, make_hook('a.b.c', '/m', server))
    server.answers = {'/m': set_data('x')}

    changed = await gate.mutate(
        make_request(THINGS2), 'CREATE', make_object(THINGS2, data={}), None
    )

    assert server.calls[0][1]['request']['object']['apiVersion'] == 'kopf.dev/v1'
    assert changed == make_object(THINGS2, data={'x': 'x'})


async def test_patch_that_does_not_fit_fails_the_request(gate, store, server):
    configure(store, chain.MUTATING, make_hook('a.b.c', '/m', server, failurePolicy='Ignore'))
    server.answers = {'/m': patch({'op': 'test', 'path': '/data', 'value': 1})}

    with pytest.raises(errors.ApiError) as info:
        await gate.mutate(make_request(), 'CREATE', make_object(data={}), None)

    assert info.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'InternalError',
        'message': 'Internal error occurred: testing value /data failed: test failed',
        'details': {'causes': [{'message': 'testing value /data failed: test failed'}]},
        'code': 500,
    }


async def test_deletion_is_shown_to_both_kinds_of_webhooks(gate, store, server):
    configure(store, chain.MUTATING, make_hook('a.b.c', '/m', server))
    configure(store, chain.VALIDATING, make_hook('a.b.c', '/v', server))

    await gate.validate(
        make_request(verb='delete'), 'DELETE', None, make_object(), {'gracePeriodSeconds': 0}
    )

    assert server.paths == ['/m', '/v']
    asked = server.calls[1][1]['request']
    assert (asked['operation'], asked['object'], asked['oldObject']) == (
        'DELETE',
        None,
        make_object(),
    )
    assert asked['options'] == {
        'kind': 'DeleteOptions',
        'apiVersion': 'meta.k8s.io/v1',
        'gracePeriodSeconds': 0,
    }


async def test_deletion_cannot_be_changed(gate, store, server):
    configure(store, chain.MUTATING, make_hook('a.b.c', '/m', server))
    server.answers = {'/m': set_data('x')}

    with pytest.raises(
        errors.ApiError,
        match=r'^Internal error occurred: admission webhook "a.b.c" attempted to '
        r'modify the object, which is not supported for this operation$',
    ):
        await gate.validate(make_request(verb='delete'), 'DELETE', None, make_object())


async def test_validating_webhooks_are_asked_at_once_and_the_first_denial_counts(
    gate, store, server
):
    configure(
        store,
        chain.VALIDATING,
        *(make_hook(f'{name}.b.c', f'/{name}', server) for name in ('a', 'b', 'c')),
    )
    server.answers = {
        f'/{name}': {'allowed': name == 'a', 'status': {'message': name}}
        for name in ('a', 'b', 'c')
    }

    with pytest.raises(errors.ApiError, match=r'^admission webhook "b.b.c" denied the request: b$'):
        await gate.validate(make_request(), 'CREATE', make_object(), None)

    assert sorted(server.paths) == ['/a', '/b', '/c']


async def test_mutating_denial_stops_the_rest(gate, store, server):
    configure(
        store,
        chain.MUTATING,
        make_hook('a.b.c', '/a', server),
        make_hook('b.b.c', '/b', server),
    )
    server.answers = {
        '/a': {'allowed': False, 'status': {'code': 403, 'message': 'no', 'reason': 'Forbidden'}}
    }

    with pytest.raises(errors.ApiError) as info:
        await gate.mutate(make_request(), 'CREATE', make_object(), None)

    assert (info.value.code, info.value.reason) == (403, 'Forbidden')
    assert server.paths == ['/a']


async def test_warnings_are_collected_from_all_webhooks(gate, store, server):
    configure(store, chain.MUTATING, make_hook('a.b.c', '/m', server))
    configure(
        store,
        chain.VALIDATING,
        make_hook('a.b.c', '/v', server),
        make_hook('b.b.c', '/w', server),
    )
    server.answers = {
        '/m': {'warnings': ['m1', 'm2']},
        '/v': {'warnings': ['v'], 'allowed': False},
        '/w': {'warnings': ['w']},
    }
    request = make_request()

    await gate.mutate(request, 'CREATE', make_object(), None)
    with pytest.raises(errors.ApiError):
        await gate.validate(request, 'CREATE', make_object(), None)

    assert request.warnings == ['m1', 'm2', 'v', 'w']


@pytest.mark.parametrize(
    'effects, is_called',
    [
        pytest.param('None', True, id='none'),
        pytest.param('NoneOnDryRun', True, id='none-on-dry-run'),
        pytest.param('Some', False, id='some'),
        pytest.param('Unknown', False, id='unknown'),
    ],
)
async def test_dry_run_needs_webhooks_with_no_side_effects(gate, store, server, effects, is_called):
    configure(
        store,
        chain.VALIDATING,
        make_hook('a.b.c', '/v', server, sideEffects=effects, failurePolicy='Ignore'),
    )
    outcome = gate.validate(make_request(dry_run=True), 'CREATE', make_object(), None)

    if is_called:
        await outcome
        assert server.calls[0][1]['request']['dryRun'] is True
    else:
        with pytest.raises(errors.ApiError) as info:
            await outcome
        assert (info.value.code, info.value.message) == (
            400,
            'admission webhook "a.b.c" does not support dry run',
        )


def respond(status, text):
    return lambda request, asked: web.Response(status=status, text=text)


async def test_failed_webhook_fails_the_request(gate, store, server):
    configure(store, chain.VALIDATING, make_hook('a.b.c', '/v', server))
    server.answers = {'/v': respond(404, '')}

    with pytest.raises(errors.ApiError) as info:
        await gate.validate(make_request(), 'CREATE', make_object(), None)

    text = (
        'failed calling webhook "a.b.c": failed to call webhook: '
        'the server could not find the requested resource'
    )
    assert info.value.message == f'Internal error occurred: {text}'
    assert (info.value.code, info.value.details) == (500, {'causes': [{'message': text}]})


@pytest.mark.parametrize(
    'response',
    [
        pytest.param(respond(500, 'oops'), id='error'),
        pytest.param(respond(200, 'hello'), id='nonsense'),
        pytest.param({'uid': 'other'}, id='other-uid'),
    ],
)
@pytest.mark.parametrize('method', ['mutate', 'validate'])
async def test_failed_webhook_is_passed_by_if_it_may_fail(gate, store, server, method, response):
    for home in (chain.VALIDATING, chain.MUTATING):
        configure(store, home, make_hook('a.b.c', '/v', server, failurePolicy='Ignore'))
    server.answers = {'/v': response}

    await getattr(gate, method)(make_request(), 'CREATE', make_object(), None)

    assert server.paths == ['/v']


async def test_service_in_this_process_is_asked_directly(gate, store):
    async def deny(path, review):
        response = {'uid': review['request']['uid'], 'allowed': False, 'status': {'message': path}}
        return {**review, 'response': response}

    gate.services.register('ns', 'hook', deny)
    configure(store, chain.VALIDATING, make_hook('a.b.c', '', clientConfig={'service': SERVICE}))

    with pytest.raises(
        errors.ApiError, match=r'^admission webhook "a.b.c" denied the request: /v$'
    ):
        await gate.validate(make_request(), 'CREATE', make_object(), None)


@pytest.mark.parametrize('method', ['mutate', 'validate'])
async def test_cancelled_request_cancels_the_calls(gate, store, method):
    started = asyncio.Event()
    ended = []

    async def serve(path, review):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(path)

    gate.services.register('ns', 'hook', serve)
    for home in (chain.VALIDATING, chain.MUTATING):
        configure(store, home, make_hook('a.b.c', '/v', clientConfig={'service': SERVICE}))
    task = asyncio.create_task(getattr(gate, method)(make_request(), 'CREATE', make_object(), None))
    await started.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ['/v']


async def test_configurations_are_never_shown_to_webhooks(gate, store, server):
    configure(store, chain.VALIDATING, make_hook('a.b.c', '/v', server))
    resource = kinds.Resource(
        matching.GROUP,
        'v1',
        'validatingwebhookconfigurations',
        '',
        'ValidatingWebhookConfiguration',
        False,
        (),
        home=chain.VALIDATING,
    )
    request = requests.Request('create', resource, requests.User('jane'))

    await gate.validate(request, 'CREATE', make_object(resource), None)

    assert server.paths == []


async def test_changed_configuration_applies_at_once(gate, store, server):
    configure(store, chain.VALIDATING, make_hook('a.b.c', '/one', server))
    await gate.validate(make_request(), 'CREATE', make_object(), None)

    configure(store, chain.VALIDATING, make_hook('a.b.c', '/two', server))
    await gate.validate(make_request(), 'CREATE', make_object(), None)

    assert server.paths == ['/one', '/two']
