"""
Patches of handlers that the server accepts but stores otherwise.

The handlers are called once, and the objects come to rest. What handlers have left is what the
server has stored; all states that they see are such as the object has had.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from clusters import Cluster, build_crd, get_last_handled
from settling import pass_time, settle
from webhook_servers import build_answer, build_mutator

import kopf

SERVICE = {'apiVersion': 'v1', 'kind': 'Service', 'spec': {'ports': [{'port': 1}]}}
CONTAINER = {'name': 'main', 'image': 'image'}
DEPLOYMENT = {
    'apiVersion': 'apps/v1',
    'kind': 'Deployment',
    'spec': {
        'selector': {'matchLabels': {'app': 'x'}},
        'template': {'metadata': {'labels': {'app': 'x'}}, 'spec': {'containers': [CONTAINER]}},
    },
}
CUSTOM = {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfExample', 'spec': {'x': 1}}

ITEM = {
    'type': 'object',
    'properties': {'port': {'type': 'integer'}, 'protocol': {'type': 'string', 'default': 'TCP'}},
}
FIELDS = {
    'x': {'type': 'integer'},
    'y': {'type': 'string'},
    'items': {'type': 'array', 'items': ITEM},
}


def set_ports(patch):
    patch.spec['ports'] = [{'port': 80}]


def set_known_field(patch):
    patch.spec['x'] = 7


def set_unknown_field(patch):
    patch.spec['unknown'] = 'value'


def set_resources(patch):
    resources = {'limits': {'cpu': '1000m', 'memory': '1024Mi'}}
    patch.spec['template'] = {'spec': {'containers': [{**CONTAINER, 'resources': resources}]}}


def set_items(patch):
    patch.spec['items'] = [{'port': 80}]


def set_items_by_function(patch):
    patch.fns.append(lambda body: body['spec'].update(items=[{'port': 80}]))


def set_overridden_field(patch):
    patch.spec['y'] = 'wanted'


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to get something else stored than it was sent."""

    plural: str
    body: Mapping[str, Any]
    change: Callable[[Any], None]


def is_ours(name, **_):
    """Return whether it is not the service of the API server itself."""
    return name != 'kubernetes'


every_way = pytest.mark.parametrize(
    'way',
    [
        pytest.param(Way('kopfexamples', CUSTOM, set_known_field), id='as-sent'),
        pytest.param(Way('services', SERVICE, set_ports), id='ports-of-services'),
        pytest.param(
            Way('deployments', DEPLOYMENT, set_unknown_field), id='unknown-fields-of-deployments'
        ),
        pytest.param(Way('deployments', DEPLOYMENT, set_resources), id='quantities-of-deployments'),
        pytest.param(Way('kopfexamples', CUSTOM, set_items), id='defaults-in-lists'),
        pytest.param(
            Way('kopfexamples', CUSTOM, set_items_by_function), id='defaults-in-lists-by-functions'
        ),
        pytest.param(Way('kopfexamples', CUSTOM, set_unknown_field), id='pruned-fields'),
        pytest.param(Way('kopfexamples', CUSTOM, set_overridden_field), id='webhook'),
    ],
)


async def enforce_field(path, review):
    """Override the value of one field."""
    operations = [{'op': 'replace', 'path': '/spec/y', 'value': 'enforced'}]
    is_needed = review['request']['object']['spec'].get('y', 'enforced') != 'enforced'
    return build_answer(review, operations if is_needed else [])


async def count_writes(path, review):
    """Change one field on every request, so that nothing ever stays as it was recorded."""
    value = review['request']['object']['spec']['x'] + 1
    return build_answer(review, [{'op': 'replace', 'path': '/spec/x', 'value': value}])


@pytest.fixture(autouse=True)
async def definitions(sandbox):
    """A resource with a schema, and a webhook that overrides one of its fields."""
    crd = build_crd()
    schema = crd['spec']['versions'][0]['schema']['openAPIV3Schema']
    schema['properties']['spec'] = {'type': 'object', 'properties': FIELDS}
    await sandbox.apply(crd)
    await sandbox.add_service('default', 'mutator', enforce_field)
    await sandbox.create(build_mutator())


@pytest.fixture
def create(sandbox):
    async def create(body):
        return await sandbox.create({**body, 'metadata': {'name': 'obj', 'namespace': 'default'}})

    return create


@pytest.fixture
def build_essence(settings):
    """Take the part of an object whose changes matter."""

    def build(body):
        essence = settings.persistence.diffbase_storage.build(body=kopf.Body(body))
        return dict(settings.persistence.progress_storage.clear(essence=essence))

    return build


@pytest.mark.guarantee('FND-001')
@every_way
async def test_one_function_for_creations_and_updates_is_called_once(
    sandbox, registry, run_operator, calls, create, build_essence, way
):
    @kopf.on.create(way.plural, registry=registry, when=is_ours)
    @kopf.on.update(way.plural, registry=registry, when=is_ours)
    async def change_fn(patch, reason, **_):
        calls.append(reason.value)
        way.change(patch)

    cluster = Cluster(sandbox, way.plural)
    operator = await run_operator()
    await create(way.body)
    await settle(calls, lambda: cluster.writes)
    left = await cluster.get()
    await operator.stop()
    writes = len(cluster.writes)
    await run_operator()
    await settle(calls, lambda: cluster.writes)

    assert calls == ['create']
    assert writes <= 2
    assert len(cluster.writes) == writes
    assert get_last_handled(left) == build_essence(left)


@pytest.mark.guarantee('FND-001')
@every_way
async def test_an_updating_function_is_called_once_for_each_edit_of_others(
    sandbox, registry, run_operator, calls, create, way
):
    @kopf.on.update(way.plural, registry=registry, when=is_ours)
    async def update_fn(patch, diff, **_):
        calls.append([item.field for item in diff])
        way.change(patch)

    cluster = Cluster(sandbox, way.plural)
    await run_operator()
    await create(way.body)
    await settle(calls, lambda: cluster.writes)
    before = len(cluster.writes)
    for number in range(3):
        await cluster.patch({'metadata': {'labels': {'edit': f'no-{number}'}}})
        await settle(calls, lambda: cluster.writes)

    # The first edit brings the labels as a whole.
    assert calls[1:] == [[('metadata', 'labels', 'edit')]] * 2
    assert len(calls) == 3
    assert len(cluster.writes) - before <= 2 * 3


@pytest.mark.guarantee('FND-001', 'FND-003')
@every_way
async def test_other_functions_see_the_update_once_and_as_the_server_has_stored_it(
    sandbox, registry, run_operator, calls, create, build_essence, way
):
    @kopf.on.create(way.plural, registry=registry, when=is_ours)
    async def create_fn(patch, **_):
        way.change(patch)

    @kopf.on.update(way.plural, registry=registry, when=is_ours)
    async def update_fn(old, new, **_):
        calls.append((json.loads(json.dumps(old)), json.loads(json.dumps(new))))

    cluster = Cluster(sandbox, way.plural)
    await run_operator()
    created = await create(way.body)
    await settle(calls, lambda: cluster.writes)
    left = await cluster.get()

    before = json.loads(json.dumps(build_essence(created)))
    after = json.loads(json.dumps(build_essence(left)))
    assert calls == ([] if before == after else [(before, after)])
    assert len(cluster.writes) <= 3


@pytest.mark.guarantee('FND-003')
@pytest.mark.parametrize('is_function', [False, True], ids=['merged', 'by-functions'])
async def test_changes_of_others_beside_our_patch_are_updates_from_a_real_state(
    sandbox, registry, run_operator, calls, create, is_function
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(patch, old, new, **_):
        calls.append((old and dict(old['spec']), dict(new['spec'])))
        if old is None:
            await cluster.patch({'spec': {'x': 5}})
        if is_function:
            patch.fns.append(lambda body: body['spec'].update(items=[{'port': 80}]))
        else:
            patch.spec['items'] = [{'port': 80}]

    cluster = Cluster(sandbox)
    await run_operator()
    await create(CUSTOM)
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    stored = {'x': 5, 'items': [{'port': 80, 'protocol': 'TCP'}]}
    assert calls[0] == (None, {'x': 1})
    assert calls[1:] == [({'x': 1}, stored)]  # there was no other state with the old value
    assert body['spec'] == stored
    assert get_last_handled(body)['spec'] == stored


@pytest.mark.guarantee('FND-001', 'FND-005')
async def test_webhooks_that_change_every_write_do_not_keep_the_operator_busy(
    sandbox, registry, run_operator, calls, create
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(patch, reason, **_):
        calls.append(reason.value)
        patch.spec['y'] = 'value'

    await sandbox.add_service('default', 'mutator', count_writes)
    cluster = Cluster(sandbox)
    await run_operator()
    await create(CUSTOM)
    await pass_time(3600, calls, lambda: calls)

    assert calls[0] == 'create'
    assert len(calls) <= 30  # there is a breaker for the worst, with delays of up to 10 minutes
    assert len(cluster.writes) <= 2 * 30
