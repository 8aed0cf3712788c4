"""
Attempts to get past the admission handlers: what they protect stays protected.

Before, an update that took a label off was not seen by the handlers with that label in their
filters; the denials by handlers with ``ignore_failures=True`` were ignored, too; and emptied
configurations stayed empty, silently.
"""

import asyncio
import contextlib

import pytest

import kopf
import kopf.testing

CONFIGURATIONS = 'validatingwebhookconfigurations'
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kopfexamples.kopf.dev}
spec:
  group: kopf.dev
  scope: Namespaced
  names: {kind: KopfExample, plural: kopfexamples, singular: kopfexample}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(tls=False, apply=[CRD]) as sandbox:
        yield sandbox


@pytest.fixture
async def run(sandbox, registry):
    """Run an operator until its webhooks are in force: ``async with run():``."""
    settings = kopf.OperatorSettings()

    async def serve(fn):
        async def answer(path, review):
            return await fn(review, webhook=path)

        await sandbox.add_service('default', 'webhooks', answer)
        yield {'service': {'namespace': 'default', 'name': 'webhooks'}}
        await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def run():
        settings.admission.server, settings.admission.managed = serve, 'auto.kopf.dev'
        async with kopf.testing.Operator(sandbox, registry=registry, settings=settings):
            await sandbox.wait(
                CONFIGURATIONS, 'auto.kopf.dev', lambda body: body and body.get('webhooks'), ''
            )
            yield

    return run


def build_object(name='obj', **metadata):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': name, **metadata},
        'spec': {'size': 1},
    }


def deny_zeros(spec, **_):
    if spec.get('size') == 0:
        raise kopf.AdmissionError('It is too small.', code=403)


@pytest.mark.guarantee('FND-058')
@pytest.mark.parametrize('attack', ['emptied', 'deleted', 'weakened'])
async def test_disarmed_webhooks_are_armed_again_within_a_minute(sandbox, registry, run, attack):
    kopf.on.validate('kopfexamples', registry=registry)(deny_zeros)

    async with run():
        armed = (await sandbox.get(CONFIGURATIONS, 'auto.kopf.dev', ''))['webhooks']
        weak = [{**webhook, 'failurePolicy': 'Ignore', 'rules': []} for webhook in armed]
        if attack == 'deleted':
            await sandbox.delete(CONFIGURATIONS, 'auto.kopf.dev', '')
        else:
            patch = {'webhooks': weak if attack == 'weakened' else []}
            await sandbox.patch(CONFIGURATIONS, 'auto.kopf.dev', patch, '')
        await sandbox.create({**build_object('meanwhile'), 'spec': {'size': 0}})
        await asyncio.sleep(60)
        with pytest.raises(kopf.testing.ApiError, match='too small'):
            await sandbox.create({**build_object('later'), 'spec': {'size': 0}})
        rearmed = (await sandbox.get(CONFIGURATIONS, 'auto.kopf.dev', ''))['webhooks']

    assert rearmed == armed


@pytest.mark.guarantee('FND-059')
@pytest.mark.parametrize('field', ['labels', 'annotations'])
@pytest.mark.parametrize(
    'criterion, value',
    [
        pytest.param('yes', None, id='value-removed'),
        pytest.param('yes', 'no', id='value-changed'),
        pytest.param(kopf.PRESENT, None, id='presence'),
        pytest.param(lambda value, **_: value == 'yes', None, id='function'),
    ],
)
async def test_unmarked_objects_are_validated_while_they_are_unmarked(
    sandbox, registry, run, field, criterion, value
):
    kopf.on.validate('kopfexamples', registry=registry, **{field: {'guarded': criterion}})(
        deny_zeros
    )

    async with run():
        await sandbox.create(build_object(**{field: {'guarded': 'yes'}}))
        with pytest.raises(kopf.testing.ApiError, match='too small'):
            await sandbox.patch(
                'kopfexamples',
                'obj',
                {'metadata': {field: {'guarded': value}}, 'spec': {'size': 0}},
            )
        body = await sandbox.get('kopfexamples', 'obj')

    assert body['metadata'][field] == {'guarded': 'yes'}
    assert body['spec'] == {'size': 1}


@pytest.mark.guarantee('FND-059')
@pytest.mark.parametrize('field', ['labels', 'annotations'])
async def test_exempted_objects_are_validated_while_they_are_exempted(
    sandbox, registry, run, field
):
    kopf.on.validate('kopfexamples', registry=registry, **{field: {'exempt': kopf.ABSENT}})(
        deny_zeros
    )

    async with run():
        await sandbox.create(build_object())
        with pytest.raises(kopf.testing.ApiError, match='too small'):
            await sandbox.patch(
                'kopfexamples', 'obj', {'metadata': {field: {'exempt': ''}}, 'spec': {'size': 0}}
            )


@pytest.mark.guarantee('FND-059')
async def test_objects_that_never_match_are_not_reviewed(sandbox, registry, run):
    calls = []
    kopf.on.validate('kopfexamples', registry=registry, labels={'a': 'a'}, annotations={'b': 'b'})(
        lambda operation, **_: calls.append(operation)
    )

    async with run():
        await sandbox.create(build_object(labels={'a': 'a'}))
        patch = {'metadata': {'labels': {'a': None}, 'annotations': {'b': 'b'}}}
        await sandbox.patch('kopfexamples', 'obj', patch)
        await sandbox.delete('kopfexamples', 'obj')

    assert calls == []


@pytest.mark.guarantee('FND-059')
async def test_creations_and_deletions_are_matched_by_the_only_object_they_have(
    sandbox, registry, run
):
    calls = []
    kopf.on.validate('kopfexamples', registry=registry, labels={'guarded': 'yes'})(
        lambda operation, **_: calls.append(operation)
    )

    async with run():
        await sandbox.create(build_object('one', labels={'guarded': 'yes'}))
        await sandbox.create(build_object('two'))
        await sandbox.delete('kopfexamples', 'one')
        await sandbox.delete('kopfexamples', 'two')

    assert calls == ['CREATE', 'DELETE']


@pytest.mark.guarantee('FND-059', 'ADM-018')
async def test_other_filters_are_about_the_present_object(sandbox, registry, run):
    calls = []
    kopf.on.validate('kopfexamples', id='value', registry=registry, field='spec.size', value=1)(
        lambda operation, **_: calls.append(('value', operation))
    )
    kopf.on.validate(
        'kopfexamples', id='when', registry=registry, when=lambda spec, **_: spec.get('size') == 1
    )(lambda operation, **_: calls.append(('when', operation)))

    async with run():
        await sandbox.create(build_object())
        await sandbox.patch('kopfexamples', 'obj', {'spec': {'size': 2}})

    assert sorted(calls) == [('value', 'CREATE'), ('when', 'CREATE')]


@pytest.mark.guarantee('FND-057')
@pytest.mark.parametrize(
    'code', [403, 200, 0, -1, 99, 1000, 10**30, 403.5, True, 'text', None], ids=repr
)
async def test_denials_are_denials_with_any_code(sandbox, registry, run, code):
    @kopf.on.validate('kopfexamples', registry=registry, ignore_failures=True)
    async def fn(**_):
        async with asyncio.TaskGroup() as group:
            group.create_task(deny())

    async def deny():
        raise kopf.AdmissionError('It is too small.', code=code)

    async with run():
        with pytest.raises(kopf.testing.ApiError, match='too small'):
            await sandbox.create(build_object())
        objects = await sandbox.list('kopfexamples')

    assert objects == []
