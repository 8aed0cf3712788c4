"""
Conversion webhooks: custom objects in other versions than the stored one, and what comes of bad
answers.
"""

import copy
from collections.abc import Callable
from typing import Any

import fidelity_samples
from aiohttp import web
from fidelity_talks import Exchange, Talk, Transcript
from transcripts_of_webhooks import run_webhooks

SCHEMA_1 = {
    'type': 'object',
    'properties': {
        'spec': {
            'type': 'object',
            'properties': {
                'size': {'type': 'integer'},
                'color': {'type': 'string', 'default': 'red'},
            },
        },
    },
}
SCHEMA_2 = {
    'type': 'object',
    'properties': {
        'spec': {
            'type': 'object',
            'properties': {
                'dimensions': {
                    'type': 'object',
                    'properties': {'size': {'type': 'integer', 'maximum': 100}},
                },
                'color': {'type': 'string'},
                'shape': {'type': 'string', 'default': 'round'},
            },
        },
    },
}


def convert(body: dict[str, Any], wanted: str) -> dict[str, Any]:
    """Convert between the two versions: the size is in another place."""
    result = copy.deepcopy(body)
    result['apiVersion'] = wanted
    spec = result.setdefault('spec', {})
    if wanted.endswith('/v2') and 'size' in spec:
        spec['dimensions'] = {'size': spec.pop('size')}
    elif wanted.endswith('/v1'):
        spec.pop('shape', None)
        if 'dimensions' in spec:
            spec['size'] = spec.pop('dimensions').get('size')
    return result


class Conversions:
    """
    The webhook: how it converts. The first review is written down; how many of them there are, is
    up to the caches of the servers.
    """

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._is_recorded = False
        self.convert: Callable[[dict[str, Any], str], Any] = convert
        self.change: Callable[[dict[str, Any]], Any] = lambda answer: answer

    def answer(self, review: dict[str, Any]) -> web.Response:
        request = review['request']
        wanted = request['desiredAPIVersion']
        if not self._is_recorded:
            self._is_recorded = True
            self._talk.exchanges.append(
                Exchange(f'review {wanted}', 200, {}, copy.deepcopy(review), is_event=True)
            )
        converted = [self.convert(body, wanted) for body in request['objects']]
        answer = {
            'apiVersion': review['apiVersion'],
            'kind': review['kind'],
            'response': {
                'uid': request['uid'],
                'result': {'status': 'Success'},
                'convertedObjects': converted,
            },
        }
        answer = self.change(answer)
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


def build_crd(talk: Talk, url: str, bundle: str, **webhook: Any) -> dict[str, Any]:
    versions = [
        fidelity_samples.build_version('v1', SCHEMA_1, subresources={'status': {}}),
        fidelity_samples.build_version('v2', SCHEMA_2, storage=False, subresources={'status': {}}),
    ]
    crd = fidelity_samples.build_crd(talk, 'things', *versions)
    crd['spec']['conversion'] = {
        'strategy': 'Webhook',
        'webhook': {
            'conversionReviewVersions': ['v1'],
            'clientConfig': {'url': url, 'caBundle': bundle},
            **webhook,
        },
    }
    return crd


def build_thing(talk: Talk, version: str, name: str = 'one', **spec: Any) -> dict[str, Any]:
    return {
        'apiVersion': f'{talk.group}/{version}',
        'kind': 'Thing',
        'metadata': {'name': name, 'labels': {'a': 'b'}},
        'spec': spec,
    }


async def read_and_write(talk: Talk) -> None:
    async with run_webhooks(talk) as webhooks:
        hook = Conversions(talk)
        webhooks.serve_review = hook.answer
        await talk.define(build_crd(talk, f'{webhooks.url}/convert', webhooks.bundle))
        v1, v2 = talk.custom('things'), talk.custom('things', version='v2')
        await talk.wait_until(v2, lambda code, _: code == 200)
        await talk.post(v1, build_thing(talk, 'v1', size=3))
        await talk.get(f'{v2}/one')
        await talk.get(v2)
        await talk.get(f'{v1}/one')
        await talk.merge(f'{v2}/one', {'spec': {'dimensions': {'size': 5}}})
        await talk.merge(f'{v2}/one', {'spec': {'dimensions': {'size': 500}}})
        await talk.merge(f'{v2}/one', {'spec': {'unknown': 1}}, fieldValidation='Strict')
        await talk.json(f'{v2}/one', ('replace', '/spec/dimensions/size', 6))
        await talk.get(f'{v1}/one')
        await talk.post(v2, build_thing(talk, 'v2', 'two', dimensions={'size': 9}))
        await talk.post(v2, build_thing(talk, 'v2', 'dry', dimensions={'size': 9}), dryRun='All')
        await talk.get(f'{v1}/two')
        await talk.put(f'{v2}/two', build_thing(talk, 'v2', 'two', shape='flat'))
        await talk.get(f'{v1}/two')
        await talk.apply(f'{v2}/three', build_thing(talk, 'v2', 'three', color='blue'))
        await talk.apply(f'{v2}/three', build_thing(talk, 'v2', 'three', color='green'))
        await talk.merge(f'{v2}/three/status', {'status': {}})
        await talk.get(v2, labelSelector='a=b')
        listed = await talk.get(v2)
        version = listed['metadata']['resourceVersion']
        async with talk.watch(v2, resourceVersion=version) as stream:
            await talk.merge(f'{v1}/one', {'spec': {'size': 7}})
            await stream.next()
            await talk.delete(f'{v1}/one')
            await stream.next()
        await talk.delete(f'{v2}/two')
        await talk.delete(v2)


async def misbehave(talk: Talk) -> None:
    async with run_webhooks(talk) as webhooks:
        hook = Conversions(talk)
        webhooks.serve_review = hook.answer
        await talk.define(build_crd(talk, f'{webhooks.url}/convert', webhooks.bundle))
        v1, v2 = talk.custom('things'), talk.custom('things', version='v2')
        await talk.wait_until(v2, lambda code, _: code == 200)
        await talk.post(v1, build_thing(talk, 'v1', size=3))
        for note, change in ANSWERS.items():
            talk.note(note)
            hook.change = change
            await talk.get(f'{v2}/one')
        hook.change = lambda answer: answer
        for note, spoil in SPOILT.items():
            talk.note(note)
            hook.convert = lambda body, wanted, spoil=spoil: spoil(convert(body, wanted))
            await talk.get(f'{v2}/one')
            await talk.post(v2, build_thing(talk, 'v2', 'new'))
            await talk.delete(f'{v1}/new')
        hook.convert = convert


def _respond(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda answer: {**answer, 'response': {**answer['response'], **fields}}


def _put_metadata(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda body: {**body, 'metadata': {**body['metadata'], **fields}}


ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    'refused': _respond(result={'status': 'Failure', 'message': 'not today'}),
    'refused in silence': _respond(result={'status': 'Failure'}),
    'no result': _respond(result={}),
    'nothing converted': _respond(convertedObjects=[]),
    'too much converted': lambda answer: _respond(
        convertedObjects=answer['response']['convertedObjects'] * 2
    )(answer),
    'another uid': _respond(uid='other'),
    'no response': lambda answer: {**answer, 'response': None},
    'another kind': lambda answer: {**answer, 'kind': 'Other'},
    'error': lambda answer: web.Response(status=500, text='out of order'),
    'absent': lambda answer: web.Response(status=404, text='nowhere'),
    'text': lambda answer: web.Response(text='hello'),
}
SPOILT: dict[str, Callable[[dict[str, Any]], Any]] = {
    'other version': lambda body: {**body, 'apiVersion': body['apiVersion'][:-1] + '3'},
    'other kind': lambda body: {**body, 'kind': 'Other'},
    'other name': _put_metadata(name='other'),
    'other namespace': _put_metadata(namespace='other'),
    'other uid': _put_metadata(uid='other'),
    'no metadata': lambda body: {key: value for key, value in body.items() if key != 'metadata'},
    'other labels': _put_metadata(labels={'x': 'y'}),
    'bad labels': _put_metadata(labels={'bad key!': 'y'}),
    'annotations': _put_metadata(annotations={'x': 'y'}),
    'finalizers': _put_metadata(finalizers=['x/y'], generation=42, resourceVersion='42'),
}


async def fail(talk: Talk) -> None:
    """There is nothing at the address, or it cannot be trusted."""
    await talk.define(build_crd(talk, 'https://127.0.0.1:1/convert', ''))
    v1, v2 = talk.custom('things'), talk.custom('things', version='v2')
    await talk.wait_until(v2, lambda code, _: code == 200)
    await talk.post(v1, build_thing(talk, 'v1', size=3))
    await talk.post(v2, build_thing(talk, 'v2', 'two'))
    await talk.get(f'{v2}/one')
    await talk.get(f'{v2}/absent')
    await talk.get(v1)
    await talk.merge(f'{v2}/one', {'spec': {'color': 'blue'}})
    await talk.put(f'{v2}/one', build_thing(talk, 'v2'))
    await talk.delete(f'{v2}/one')
    await talk.get(f'{v1}/one')
    await talk.delete(f'{v1}/one')


TRANSCRIPTS = (
    Transcript('conversions', read_and_write, is_intrusive=True),
    Transcript('bad-conversions', misbehave, is_intrusive=True),
    Transcript('failed-conversions', fail, is_intrusive=True),
)
