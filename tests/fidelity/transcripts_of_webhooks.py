"""
Admission webhooks: what they are asked, and what comes of their answers, delays and failures.

The webhooks listen on the loopback, where only our own control plane can reach them.
"""

import asyncio
import base64
import contextlib
import copy
import datetime
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import fidelity_samples
from aiohttp import web
from fidelity_talks import Exchange, Talk, Transcript

from kopf._sandbox.auth import certificates

CONFIGS = '/apis/admissionregistration.k8s.io/v1'
KINDS = {'validating': 'ValidatingWebhookConfiguration', 'mutating': 'MutatingWebhookConfiguration'}

Answerer = Callable[[dict[str, Any]], Any]


class Webhooks:
    """
    Webhooks that answer as the transcript wants at the moment; what they are asked is written down.
    """

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._count = 0
        # The exchange, what it was about, of which version.
        self._latest: tuple[Any, Any, Any] = (
            None,
            None,
            None,
        )
        self.answer: Answerer = lambda request: {'allowed': True}
        self.delay = 0.0
        self.url = ''
        self.bundle = ''
        self.is_recording = True
        # Answers whole reviews, which are not written down here.
        self.serve_review: Callable[[dict[str, Any]], web.Response] | None = None

    async def serve(self, http: web.Request) -> web.Response:
        review = await http.json()
        if self.serve_review is not None:
            return self.serve_review(review)
        if self.is_recording:
            self._record(http.path, review)
        await asyncio.sleep(self.delay)
        answer = self.answer(review['request'])
        if isinstance(answer, web.Response):
            return answer
        response = {'uid': review['request']['uid'], **answer}
        return web.json_response(
            {'apiVersion': review['apiVersion'], 'kind': review['kind'], 'response': response}
        )

    def _record(self, path: str, review: dict[str, Any]) -> None:
        """
        Write a review down. A busy server can ask again in the same request, as it began with an
        outdated object.
        """
        request = review['request']
        subject = (path, request['operation'], request.get('namespace'), request.get('name'))
        version = ((request.get('oldObject') or {}).get('metadata') or {}).get('resourceVersion')
        last, before, known = self._latest
        exchanges = self._talk.exchanges
        if exchanges and exchanges[-1] is last and subject == before and version != known:
            exchanges.pop()
            self._count -= 1
        self._count += 1
        label = f'review {self._count} ({request["operation"]})'
        exchanges.append(Exchange(label, 200, {}, copy.deepcopy(review), is_event=True))
        self._latest = (exchanges[-1], subject, version)


@contextlib.asynccontextmanager
async def run_webhooks(talk: Talk) -> AsyncIterator[Webhooks]:
    webhooks = Webhooks(talk)
    now = datetime.datetime.now(datetime.UTC)
    authority = certificates.make_ca(now)
    pair = certificates.issue_server(authority, ['127.0.0.1'], now)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    runner = web.ServerRunner(web.Server(webhooks.serve), shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, '127.0.0.1', 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        webhooks.url = f'https://127.0.0.1:{port}'
        webhooks.bundle = base64.b64encode(authority.pem).decode()
        yield webhooks
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def configured(
    talk: Talk, webhooks: Webhooks, type: str = 'validating', path: str = '/hook', **fields: Any
) -> AsyncIterator[None]:
    """
    Configure one webhook for the configmaps of the namespace, and wait until it is in effect;
    remove it later.
    """
    name = f'{talk.namespace}-{type}'
    resource = f'{CONFIGS}/{type}webhookconfigurations'
    hook = {
        'name': 'hook.kopf.dev',
        'sideEffects': 'None',
        'admissionReviewVersions': ['v1'],
        'timeoutSeconds': 2,
        'clientConfig': {'url': f'{webhooks.url}{path}', 'caBundle': webhooks.bundle},
        'namespaceSelector': {'matchLabels': {'kubernetes.io/metadata.name': talk.namespace}},
        'rules': [
            {
                'operations': ['*'],
                'apiGroups': ['*'],
                'apiVersions': ['*'],
                'resources': ['configmaps', 'things', 'things/status'],
            }
        ],
        **fields,
    }
    body = {
        'apiVersion': 'admissionregistration.k8s.io/v1',
        'kind': KINDS[type],
        'metadata': {'name': name},
        'webhooks': [hook],
    }
    await talk.post(resource, body)
    await wait_until_effective(talk, webhooks)
    try:
        yield
    finally:
        await talk.delete(f'{resource}/{name}')


async def wait_until_effective(talk: Talk, webhooks: Webhooks) -> None:
    """
    Wait until a denial comes: the API server learns of the configurations a bit later than it
    answers.
    """
    answer, webhooks.answer, webhooks.is_recording = (
        webhooks.answer,
        lambda request: {'allowed': False},
        False,
    )
    delay, webhooks.delay = webhooks.delay, 0.0
    probe = fidelity_samples.build_configmap('probe', labels={'checked': 'yes'})
    try:
        await talk.wait_until_refused(talk.core('configmaps'), probe)
    finally:
        webhooks.answer, webhooks.delay, webhooks.is_recording = answer, delay, True


async def validate(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    configmaps, things = talk.core('configmaps'), talk.custom('things')
    async with run_webhooks(talk) as webhooks, configured(talk, webhooks):
        await talk.post(configmaps, fidelity_samples.build_configmap())
        await talk.merge(f'{configmaps}/one', {'data': {'b': '2'}}, fieldManager='me')
        await talk.post(things, fidelity_samples.build_thing(talk))
        await talk.merge(f'{things}/one', {'spec': {'size': 2}})
        await talk.merge(f'{things}/one/status', {'status': {'n': 1}})
        await talk.post(configmaps, fidelity_samples.build_configmap('dry'), dryRun='All')
        await talk.delete(f'{things}/one', {'propagationPolicy': 'Background'})
        for answer in (
            {'allowed': False},
            {'allowed': False, 'status': {'message': 'not today'}},
            {'allowed': False, 'status': {'message': 'not today', 'code': 418, 'reason': 'Teapot'}},
            {'allowed': False, 'status': {'code': 404}},
            {'allowed': True, 'warnings': ['first', 'second "quoted"']},
            {'allowed': False, 'warnings': ['first'], 'status': {'message': 'with a warning'}},
            {'allowed': True, 'uid': 'other'},
            {'allowed': True, 'auditAnnotations': {'x': 'y'}},
            {},
            {'allowed': True, 'patchType': 'JSONPatch', 'patch': _encode(('add', '/data/x', 'y'))},
        ):
            talk.note(json.dumps(answer)[:80])
            webhooks.answer = lambda request, answer=answer: answer
            await talk.merge(
                f'{configmaps}/one', {'metadata': {'labels': {'try': 'again'}}}, dryRun='All'
            )
        await talk.delete(f'{configmaps}/one')


async def mutate(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    configmaps, things = talk.core('configmaps'), talk.custom('things')
    async with run_webhooks(talk) as webhooks, configured(talk, webhooks, 'mutating'):
        webhooks.answer = lambda request: {}
        for operations in (
            [('add', '/metadata/labels', {'mutated': 'yes'})],
            [('add', '/data/x', 'y')],
            [],
            [('replace', '/absent/field', 1)],
            [('add', '/metadata/name', 'other')],
            [('add', '/metadata/labels', {'bad key!': 'x'})],
            [('add', '/unknown', 1)],
        ):
            talk.note(str(operations))
            patch = _encode(*operations)
            webhooks.answer = lambda request, patch=patch: {
                'allowed': True,
                'patchType': 'JSONPatch',
                'patch': patch,
            }
            await talk.post(configmaps, fidelity_samples.build_configmap('fresh'), dryRun='All')
            await talk.post(things, fidelity_samples.build_thing(talk, 'fresh'), dryRun='All')
        for answer in (
            {'allowed': True, 'patchType': 'Other', 'patch': _encode()},
            {'allowed': True, 'patch': _encode()},
            {'allowed': True, 'patchType': 'JSONPatch', 'patch': base64.b64encode(b'{').decode()},
            {'allowed': True, 'patchType': 'JSONPatch'},
        ):
            talk.note(str(answer))
            webhooks.answer = lambda request, answer=answer: answer
            await talk.post(configmaps, fidelity_samples.build_configmap('fresh'), dryRun='All')
        webhooks.answer = lambda request: {
            'allowed': True,
            'patchType': 'JSONPatch',
            'patch': _encode(('add', '/spec/color', 'red')),
        }
        talk.note('for real')
        await talk.post(things, fidelity_samples.build_thing(talk))
        await talk.get(f'{things}/one')


async def fail(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    for policy in ('Fail', 'Ignore'):
        async with (
            run_webhooks(talk) as webhooks,
            configured(talk, webhooks, failurePolicy=policy, timeoutSeconds=1),
        ):
            webhooks.is_recording = False
            for note, answer in (
                ('error', web.Response(status=500, text='out of order')),
                ('redirect', web.Response(status=302)),
                ('not json', web.Response(text='hello')),
                ('not a review', web.json_response({'hello': 'world'})),
                (
                    'empty',
                    web.json_response(
                        {'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview'}
                    ),
                ),
            ):
                talk.note(f'{policy}: {note}')
                webhooks.answer = lambda request, answer=answer: _copy(answer)
                await talk.post(configmaps, fidelity_samples.build_configmap('x'), dryRun='All')
            talk.note(f'{policy}: slow')
            webhooks.answer, webhooks.delay = lambda request: {'allowed': True}, 1.5
            await talk.post(configmaps, fidelity_samples.build_configmap('x'), dryRun='All')


async def select(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    selector = {'matchExpressions': [{'key': 'checked', 'operator': 'In', 'values': ['yes']}]}
    async with run_webhooks(talk) as webhooks, configured(talk, webhooks, objectSelector=selector):
        webhooks.answer = lambda request: {'allowed': False}
        await talk.post(configmaps, fidelity_samples.build_configmap('free'))
        await talk.post(
            configmaps, fidelity_samples.build_configmap('bound', labels={'checked': 'yes'})
        )
        await talk.merge(f'{configmaps}/free', {'metadata': {'labels': {'checked': 'yes'}}})
    refused = {
        'sideEffects': 'Some',
        'name': 'short',
        'admissionReviewVersions': ['v9'],
        'timeoutSeconds': 60,
        'failurePolicy': 'Maybe',
        'clientConfig': {'url': 'http://x'},
        'matchPolicy': 'Vaguely',
    }
    for field, value in refused.items():
        talk.note(field)
        hook = {
            'name': 'hook.kopf.dev',
            'sideEffects': 'None',
            'admissionReviewVersions': ['v1'],
            'clientConfig': {'url': 'https://127.0.0.1:1/x'},
            field: value,
        }
        await talk.post(
            f'{CONFIGS}/validatingwebhookconfigurations',
            {'metadata': {'name': f'{talk.namespace}-refused'}, 'webhooks': [hook]},
        )


def _encode(*operations: tuple[Any, ...]) -> str:
    patch = [{'op': op, 'path': path, 'value': value} for op, path, value in operations]
    return base64.b64encode(json.dumps(patch).encode()).decode()


def _copy(answer: web.Response) -> web.Response:
    """Responses are for one use."""
    headers: Mapping[str, str] = {'Content-Type': answer.headers.get('Content-Type', 'text/plain')}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


TRANSCRIPTS = (
    Transcript('validation', validate, is_intrusive=True),
    Transcript('mutation', mutate, is_intrusive=True),
    Transcript('webhook-failures', fail, is_intrusive=True),
    Transcript('webhook-selectors', select, is_intrusive=True),
)
