"""
The sandbox: any requests are answered as the API would do it, and never with an error of the
sandbox itself.

The requests are separated by lines with ``%%``. Each is a line with the method and the URL, the
headers, an empty line, and the body. They are sent one after another to a new cluster, which has a
few objects already.
"""

import asyncio
import functools
import logging
import urllib.parse
from typing import Any, NoReturn

import multidict

from kopf._cogs.helpers import jsons
from kopf._sandbox import clusters, faults
from kopf._sandbox.endpoints import negotiation
from kopf._sandbox.http import routing

LIMIT = 10  # requests
WATCHING = 0.002  # seconds

DEFINITION = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {
            'kind': 'KopfExample',
            'plural': 'kopfexamples',
            'singular': 'kopfexample',
            'shortNames': ['kex'],
        },
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'subresources': {
                    'status': {},
                    'scale': {
                        'specReplicasPath': '.spec.replicas',
                        'statusReplicasPath': '.status.replicas',
                    },
                },
                'additionalPrinterColumns': [
                    {'name': 'Field', 'type': 'string', 'jsonPath': '.spec.field'}
                ],
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'properties': {
                            'spec': {
                                'type': 'object',
                                'properties': {
                                    'field': {'type': 'string', 'maxLength': 20, 'default': 'x'},
                                    'replicas': {'type': 'integer', 'minimum': 0},
                                    'any': {'x-kubernetes-preserve-unknown-fields': True},
                                    'either': {'x-kubernetes-int-or-string': True},
                                    'items': {
                                        'type': 'array',
                                        'x-kubernetes-list-type': 'map',
                                        'x-kubernetes-list-map-keys': ['name'],
                                        'items': {
                                            'type': 'object',
                                            'required': ['name'],
                                            'properties': {
                                                'name': {'type': 'string'},
                                                'value': {'type': 'integer', 'nullable': True},
                                            },
                                        },
                                    },
                                },
                            },
                            'status': {
                                'type': 'object',
                                'x-kubernetes-preserve-unknown-fields': True,
                            },
                        },
                    }
                },
            }
        ],
    },
}

CONTAINER = {
    'name': 'main',
    'image': 'x',
    'env': [{'name': 'A', 'value': '1'}],
    'ports': [{'containerPort': 80}],
    'resources': {'limits': {'cpu': '100m', 'memory': '1Gi'}},
}
TEMPLATE = {'metadata': {'labels': {'app': 'x'}}, 'spec': {'containers': [CONTAINER]}}

OBJECTS: list[dict[str, Any]] = [
    {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': 'x', 'labels': {'app': 'x'}},
        'spec': {'field': 'y', 'replicas': 2, 'items': [{'name': 'a', 'value': 1}]},
    },
    {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': 'x', 'finalizers': ['kopf.dev/x']},
        'data': {'a': 'b'},
    },
    {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'x'}, 'stringData': {'a': 'b'}},
    {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {'name': 'x', 'labels': {'app': 'x'}},
        'spec': TEMPLATE['spec'],
    },
    {
        'apiVersion': 'apps/v1',
        'kind': 'Deployment',
        'metadata': {'name': 'x'},
        'spec': {'replicas': 1, 'selector': {'matchLabels': {'app': 'x'}}, 'template': TEMPLATE},
    },
]


class OfflineLoop(asyncio.SelectorEventLoop):
    """A loop that connects to nobody: webhooks of any address can be configured in a sandbox."""

    async def getaddrinfo(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError('there is no network')

    async def sock_connect(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError('there is no network')


class Failures(logging.Handler):
    """What the sandbox says of its own failures: it answers with them, too, as any server."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(record.exc_info[1])

    def notice(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(context.get('exception') or RuntimeError(context['message']))


def check(source: bytes) -> None:
    failures = Failures()
    logger = logging.getLogger('kopf.sandbox')
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(failures)
    try:
        saved = _prepare()
        with asyncio.Runner(loop_factory=OfflineLoop) as runner:
            runner.get_loop().set_exception_handler(failures.notice)
            runner.run(_send_all(source.split(b'\n%%\n')[:LIMIT], *saved, failures))
    finally:
        logger.removeHandler(failures)
        logger.propagate = propagate


@functools.cache
def _prepare() -> tuple[int, list[tuple[Any, dict[str, Any]]]]:
    """Make the objects once, to be restored for each input."""

    async def prepare() -> tuple[int, list[tuple[Any, dict[str, Any]]]]:
        cluster = clusters.Cluster()
        await cluster.start()
        router = routing.Router(cluster)
        for body in [DEFINITION, *OBJECTS]:
            resource = cluster.find(body['apiVersion'], body['kind'])
            assert resource is not None
            root = f'/apis/{resource.group}' if resource.group else '/api'
            place = '/namespaces/default' if resource.namespaced else ''
            raw = b'POST %b\n\n%b' % (
                f'{root}/{resource.version}{place}/{resource.plural}'.encode(),
                jsons.dumps(body),
            )
            answer = await _send(router, cluster, raw)
            assert answer.code == 201, answer.body
            cluster.settle()
        kept = [
            (home, stored.load())
            for home, shelf in cluster.store
            for stored in shelf.select('')
            if home.group != clusters.ROLES
        ]
        await cluster.close()
        return cluster.store.version, kept

    return asyncio.run(prepare())


async def _send_all(
    raws: list[bytes], version: int, objects: list[tuple[Any, dict[str, Any]]], failures: Failures
) -> None:
    cluster = clusters.Cluster()
    cluster.restore(version, objects)
    router = routing.Router(cluster)
    for raw in raws:
        answer = await _send(router, cluster, raw)
        cluster.settle()
        for failure in failures.found:
            raise failure
        await _check_answer(answer)
    _check_store(cluster)
    await cluster.close()


async def _send(
    router: routing.Router, cluster: clusters.Cluster, raw: bytes
) -> negotiation.Answer:
    head, _, body = raw.partition(b'\n\n')
    start, *lines = head.decode('latin-1').split('\n')
    method, _, url = start.partition(' ')
    path, _, query = url.partition('?')
    options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    headers = multidict.CIMultiDict(
        {'Authorization': f'Bearer {cluster.admin_token}', 'Content-Type': 'application/json'}
    )
    for line in lines:
        name, _, value = line.partition(':')
        headers[name] = value.strip()

    async def read_body() -> bytes:
        return body

    call = routing.Call(method, path, options, headers, None, read_body, '127.0.0.1:6443')
    return await router.answer(call, faults.Asked(method, path, query))


async def _check_answer(answer: negotiation.Answer) -> None:
    if answer.lines is not None:
        try:
            async with asyncio.timeout(WATCHING):
                async for batch in answer.lines:
                    for line in batch.splitlines():
                        assert 'type' in jsons.loads(line)
        except TimeoutError:
            pass
        await answer.lines.aclose()
        return
    content = (
        jsons.loads(answer.body) if answer.media_type == negotiation.JSON and answer.body else None
    )
    if answer.code >= 400 and content is not None:
        assert content['kind'] == 'Status'
        assert content['code'] == answer.code
    for name, value in answer.headers:
        assert '\n' not in name + value and '\r' not in name + value, 'the headers can be split'


def _check_store(cluster: clusters.Cluster) -> None:
    """All that is stored can be read, and is where it is said to be."""
    for _, shelf in cluster.store:
        assert shelf.keys == sorted(shelf.objects)
        for key, stored in shelf.objects.items():
            body = stored.load()
            assert stored.key == key
            assert body['metadata']['name'] == stored.name
            assert body['metadata']['resourceVersion'] == str(stored.version)
