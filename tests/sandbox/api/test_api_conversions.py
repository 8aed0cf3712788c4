"""
Conversion webhooks, called for real by all requests in other versions than the storage version.
"""

import base64
import copy
import json

import pytest

import kopf.testing

SPEC = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
SCHEMA = {'openAPIV3Schema': {'type': 'object', 'properties': {'spec': SPEC}}}
NARROW = {'type': 'object', 'properties': {'spec': {'type': 'object', 'properties': {'width': {}}}}}
NARROW['properties']['spec']['properties']['width'] = {'type': 'integer'}


def build_crd(storage='v1', strategy='Webhook'):
    service = {'namespace': 'default', 'name': 'converter', 'path': '/convert'}
    webhook = {'conversionReviewVersions': ['v1'], 'clientConfig': {'service': service}}
    conversion = {'strategy': strategy, **({'webhook': webhook} if strategy == 'Webhook' else {})}
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': 'boxes.kopf.dev'},
        'spec': {
            'group': 'kopf.dev',
            'scope': 'Namespaced',
            'names': {'kind': 'Box', 'plural': 'boxes', 'singular': 'box'},
            'conversion': conversion,
            'versions': [
                {'name': 'v1', 'served': True, 'storage': storage == 'v1', 'schema': SCHEMA},
                {
                    'name': 'v2',
                    'served': True,
                    'storage': storage == 'v2',
                    'schema': {'openAPIV3Schema': NARROW},
                },
            ],
        },
    }


def build_box(version='v1', name='one', **spec):
    metadata = {'name': name, 'labels': {'a': 'b'}}
    return {
        'apiVersion': f'kopf.dev/{version}',
        'kind': 'Box',
        'metadata': metadata,
        'spec': spec,
    }


class Converter:
    """Renames ``size`` to ``width`` in v2, and back."""

    def __init__(self):
        self.calls, self.change = [], lambda body: body

    async def __call__(self, path, review):
        request = review['request']
        self.calls.append((path, request['desiredAPIVersion']))
        converted = [
            self.convert(body, request['desiredAPIVersion']) for body in request['objects']
        ]
        response = {'uid': request['uid'], 'result': {'status': 'Success'}}
        return {**review, 'response': {**response, 'convertedObjects': converted}}

    def convert(self, body, wanted):
        body = copy.deepcopy(body)
        old, new = ('size', 'width') if wanted.endswith('v2') else ('width', 'size')
        if old in body['spec']:
            body['spec'][new] = body['spec'].pop(old)
        return self.change({**body, 'apiVersion': wanted})


@pytest.fixture
def converter():
    return Converter()


@pytest.fixture
def boxes(kopf_sandbox, converter):
    kopf_sandbox.add_service('default', 'converter', converter)
    kopf_sandbox.apply(build_crd())
    return kopf_sandbox


def test_objects_are_read_in_another_version(boxes, converter):
    boxes.create(build_box(size=3))

    seen = boxes.get('kopf.dev/v2/boxes', 'one')

    assert (seen['apiVersion'], seen['spec']) == ('kopf.dev/v2', {'width': 3})
    assert boxes.get('kopf.dev/v1/boxes', 'one')['spec'] == {'size': 3}
    assert set(converter.calls) == {('/convert', 'kopf.dev/v2')}


def test_objects_are_written_in_another_version(boxes):
    boxes.create(build_box('v2', width=3))
    boxes.patch('kopf.dev/v2/boxes', 'one', {'spec': {'width': 4}})
    boxes.patch('kopf.dev/v2/boxes', 'two', build_box('v2', 'two', width=5), type='apply')

    assert boxes.get('kopf.dev/v1/boxes', 'one')['spec'] == {'size': 4}
    assert boxes.get('kopf.dev/v1/boxes', 'two')['spec'] == {'size': 5}


def test_objects_are_listed_and_watched_in_another_version(boxes):
    boxes.create(build_box(size=3))
    listed = boxes.list('kopf.dev/v2/boxes')

    events = boxes.watch('kopf.dev/v2/boxes')
    first = next(events)
    boxes.patch('kopf.dev/v1/boxes', 'one', {'spec': {'size': 4}})
    second = next(events)
    boxes.delete('kopf.dev/v1/boxes', 'one')
    third = next(events)

    assert [item['spec'] for item in listed] == [{'width': 3}]
    assert [first['object']['spec'], second['object']['spec']] == [{'width': 3}, {'width': 4}]
    assert (third['type'], third['object']['spec']) == ('DELETED', {'width': 4})
    versions = [int(e['object']['metadata']['resourceVersion']) for e in (first, second, third)]
    assert versions == sorted(set(versions))


def test_fields_unknown_in_the_version_are_not_shown(boxes):
    boxes.create(build_box(size=3, colour='red'))

    assert boxes.get('kopf.dev/v2/boxes', 'one')['spec'] == {'width': 3}


def test_only_labels_and_annotations_can_be_converted(boxes, converter):
    boxes.create(build_box(size=3))
    changed = {'labels': {'x': 'y'}, 'annotations': {'n': 'm'}, 'finalizers': ['z/z']}
    converter.change = lambda body: {**body, 'metadata': {**body['metadata'], **changed}}

    metadata = boxes.get('kopf.dev/v2/boxes', 'one')['metadata']

    assert (metadata['labels'], metadata['annotations']) == ({'x': 'y'}, {'n': 'm'})
    assert 'finalizers' not in metadata


def test_changed_identity_is_refused(boxes, converter):
    boxes.create(build_box(size=3))
    converter.change = lambda body: {**body, 'metadata': {**body['metadata'], 'name': 'two'}}

    with pytest.raises(
        kopf.testing.ApiError, match='must have the same name: one != two'
    ) as caught:
        boxes.get('kopf.dev/v2/boxes', 'one')

    assert caught.value.code == 500


def test_absent_service_is_reported(kopf_sandbox):
    kopf_sandbox.apply(build_crd())
    kopf_sandbox.create(build_box(size=3))

    with pytest.raises(kopf.testing.ApiError, match='service "converter" not found') as caught:
        kopf_sandbox.list('kopf.dev/v2/boxes')

    prefix = (
        'conversion webhook for kopf.dev/v1, Kind=Box failed: Post "https://converter.default.svc'
    )
    assert caught.value.message.startswith(prefix)
    assert len(kopf_sandbox.list('kopf.dev/v1/boxes')) == 1


def test_nothing_is_written_if_the_conversion_fails(boxes, converter):
    boxes.create(build_box(size=3))
    converter.change = lambda body: {**body, 'kind': 'Other'}

    with pytest.raises(
        kopf.testing.ApiError, match=r'invalid kind \(expected Box, received Other\)'
    ):
        boxes.create(build_box('v2', 'two'))
    with pytest.raises(kopf.testing.ApiError, match='invalid kind'):
        boxes.patch('kopf.dev/v2/boxes', 'one', {'spec': {'width': 4}})

    assert [body['spec'] for body in boxes.list('kopf.dev/v1/boxes')] == [{'size': 3}]


def test_objects_stay_in_their_version_when_the_storage_version_changes(boxes):
    boxes.create(build_box(size=3))

    boxes.apply(build_crd(storage='v2'))

    assert boxes.get('kopf.dev/v2/boxes', 'one')['spec'] == {'width': 3}
    assert boxes.get('kopf.dev/v1/boxes', 'one')['spec'] == {'size': 3}
    boxes.patch('kopf.dev/v1/boxes', 'one', {'spec': {'size': 4}})
    assert boxes.get('kopf.dev/v2/boxes', 'one')['spec'] == {'width': 4}


def test_stored_objects_are_converted_after_a_restart(tmp_path, converter):
    with kopf.testing.Sandbox(save=tmp_path) as sandbox:
        sandbox.add_service('default', 'converter', converter)
        sandbox.apply(build_crd())
        sandbox.create(build_box('v2', width=3))

    with kopf.testing.Sandbox(save=tmp_path) as sandbox:
        sandbox.add_service('default', 'converter', converter)
        assert sandbox.get('kopf.dev/v2/boxes', 'one')['spec'] == {'width': 3}
        assert sandbox.get('kopf.dev/v1/boxes', 'one')['spec'] == {'size': 3}


def test_definitions_without_webhooks_convert_nothing_but_the_version(kopf_sandbox):
    kopf_sandbox.apply(build_crd(strategy='None'))
    kopf_sandbox.create(build_box(size=3))

    assert kopf_sandbox.get('kopf.dev/v2/boxes', 'one')['spec'] == {}


def test_admission_webhooks_get_objects_converted_and_their_patches_are_converted_back(boxes):
    seen = []

    async def widen(path, review):
        seen.append(review['request']['object'])
        patch = [{'op': 'replace', 'path': '/spec/size', 'value': 7}]
        response = {
            'uid': review['request']['uid'],
            'allowed': True,
            'patchType': 'JSONPatch',
            'patch': base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        return {**review, 'response': response}

    boxes.add_service('default', 'widener', widen)
    rule = {'operations': ['CREATE'], 'apiGroups': ['kopf.dev'], 'apiVersions': ['v1']}
    hook = {
        'name': 'widener.kopf.dev',
        'sideEffects': 'None',
        'admissionReviewVersions': ['v1'],
        'clientConfig': {'service': {'namespace': 'default', 'name': 'widener'}},
        'rules': [{**rule, 'resources': ['boxes']}],
    }
    boxes.apply(
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'MutatingWebhookConfiguration',
            'metadata': {'name': 'widener'},
            'webhooks': [hook],
        }
    )

    made = boxes.create(build_box('v2', width=3))

    assert [(body['apiVersion'], body['spec']) for body in seen] == [('kopf.dev/v1', {'size': 3})]
    assert (made['apiVersion'], made['spec']) == ('kopf.dev/v2', {'width': 7})
