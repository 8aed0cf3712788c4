"""
Patching: what is sent and where, what is told of the answers, and that nothing is sent in vain.
"""

import asyncio

import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.patching import object_requests, plans, targets
from kopf._cogs.structs import references

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.kopf.dev}}
spec:
  group: kopf.dev
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {subresources}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {{type: object, x-kubernetes-preserve-unknown-fields: true,
                    properties: {{size: {{type: integer}}}}}}
            status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""

WITH_STATUS = references.Resource(
    'kopf.dev', 'v1', 'withs', namespaced=True, subresources=frozenset({'status'})
)
WITHOUT_STATUS = references.Resource('kopf.dev', 'v1', 'withouts', namespaced=True)

MERGE, JSON = 'application/merge-patch+json', 'application/json-patch+json'
Kind = plans.Kind


@pytest.fixture
async def kinds(sandbox):
    await sandbox.apply(CRD.format(kind='With', plural='withs', subresources='{status: {}}'))
    await sandbox.apply(CRD.format(kind='Without', plural='withouts', subresources='{}'))


@pytest.fixture
async def body(sandbox, kinds):
    spec = {'a': 1, 'nested': {'b': 2, 'c': 3}, 'list': [1, 2]}
    metadata = {'name': 'obj'}
    return await sandbox.create(
        {'apiVersion': 'kopf.dev/v1', 'kind': 'With', 'metadata': metadata, 'spec': spec}
    )


@pytest.fixture
async def stateless_body(sandbox, kinds):
    return await sandbox.create(
        {'apiVersion': 'kopf.dev/v1', 'kind': 'Without', 'metadata': {'name': 'obj'}}
    )


async def read_cleaned(sandbox):
    """Read the object as it is, but for what is dropped wherever objects come from."""
    body = await sandbox.get('withs', 'obj')
    del body['metadata']['managedFields']
    return body


def aim(resource, name='obj'):
    return targets.Target(resource, references.NamespaceName('default'), name)


async def amend(body, *operations, context, kind=Kind.AMEND_BODY, resource=WITH_STATUS):
    return await object_requests.patch_part(
        aim(resource), kind, plans.guard(operations, body), context=context
    )


def add(path, value):
    return {'op': 'add', 'path': path, 'value': value}


def list_asked(sandbox):
    return [(asked.subresource, asked.content_type) for asked in sandbox.requests]


@pytest.mark.parametrize(
    'merge, has_status, expected',
    [
        pytest.param({}, True, {}, id='empty'),
        pytest.param({'metadata': {}, 'spec': {}, 'status': {}}, True, {}, id='empty-sections'),
        pytest.param(
            {'metadata': {}, 'spec': {}, 'status': {}},
            False,
            {},
            id='empty-sections-without-status',
        ),
        pytest.param(
            {'spec': {'x': None}}, True, {Kind.MERGE_BODY: {'spec': {'x': None}}}, id='body'
        ),
        pytest.param(
            {'spec': {'x': {}}}, True, {Kind.MERGE_BODY: {'spec': {'x': {}}}}, id='empty-value'
        ),
        pytest.param({'spec': None}, True, {Kind.MERGE_BODY: {'spec': None}}, id='removed-section'),
        pytest.param(
            {'status': {'x': 1}}, True, {Kind.MERGE_STATUS: {'status': {'x': 1}}}, id='status'
        ),
        pytest.param(
            {'status': None}, True, {Kind.MERGE_STATUS: {'status': None}}, id='removed-status'
        ),
        pytest.param(
            {'status': {'x': 1}},
            False,
            {Kind.MERGE_BODY: {'status': {'x': 1}}},
            id='status-in-body',
        ),
        pytest.param(
            {'spec': {'x': 1}, 'status': {'y': 2}},
            True,
            {Kind.MERGE_BODY: {'spec': {'x': 1}}, Kind.MERGE_STATUS: {'status': {'y': 2}}},
            id='both',
        ),
        pytest.param(
            {'spec': {'x': 1}, 'status': {'y': 2}},
            False,
            {Kind.MERGE_BODY: {'spec': {'x': 1}, 'status': {'y': 2}}},
            id='both-in-body',
        ),
    ],
)
def test_merged_parts_go_where_they_are_served(merge, has_status, expected):
    assert plans.split_merge(merge, has_status=has_status) == expected


@pytest.mark.parametrize(
    'paths, has_status, expected',
    [
        pytest.param([], True, {}, id='empty'),
        pytest.param(['/spec/x'], True, {Kind.AMEND_BODY: ['/spec/x']}, id='body'),
        pytest.param(['/status'], True, {Kind.AMEND_STATUS: ['/status']}, id='whole-status'),
        pytest.param(['/status/x'], True, {Kind.AMEND_STATUS: ['/status/x']}, id='status'),
        pytest.param(['/status/x'], False, {Kind.AMEND_BODY: ['/status/x']}, id='status-in-body'),
        pytest.param(['/statuses/x'], True, {Kind.AMEND_BODY: ['/statuses/x']}, id='alike'),
        pytest.param(
            ['/b', '/status/y', '/a', '/status/x'],
            True,
            {Kind.AMEND_BODY: ['/b', '/a'], Kind.AMEND_STATUS: ['/status/y', '/status/x']},
            id='both-in-order',
        ),
    ],
)
def test_operations_go_where_they_are_served(paths, has_status, expected):
    parts = plans.split_operations([add(path, 1) for path in paths], has_status=has_status)

    assert {
        kind: [operation['path'] for operation in part] for kind, part in parts.items()
    } == expected


def test_operations_begin_with_a_test_of_the_version():
    operations = plans.guard([add('/spec/x', 1)], {'metadata': {'resourceVersion': '123'}})

    assert operations == [
        {'op': 'test', 'path': '/metadata/resourceVersion', 'value': '123'},
        add('/spec/x', 1),
    ]


@pytest.mark.parametrize('merge', [{}, {'metadata': {}, 'status': {}}], ids=str)
async def test_nothing_is_sent_for_nothing(sandbox, context, body, merge):
    patched = await object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)

    assert patched == object_requests.Patched()
    assert not list(sandbox.requests)


@pytest.mark.guarantee('NEW-059')
async def test_patch_is_merged_into_the_object(sandbox, context, body):
    merge = {'spec': {'a': None, 'nested': {'b': 4}, 'list': [5], 'new': {'x': 'y'}}}

    patched = await object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)

    assert patched.body['spec'] == {'nested': {'b': 4, 'c': 3}, 'list': [5], 'new': {'x': 'y'}}
    assert patched.body == await read_cleaned(sandbox)
    assert list_asked(sandbox) == [('', MERGE)]


async def test_status_goes_first(sandbox, context, body):
    merge = {'spec': {'x': 1}, 'status': {'x': 2}}

    patched = await object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)

    assert patched.refused is None
    assert (patched.body['spec']['x'], patched.body['status']) == (1, {'x': 2})
    assert list_asked(sandbox) == [('status', MERGE), ('', MERGE)]


async def test_status_goes_last_if_the_changes_are_for_one_version_of_the_object(
    sandbox, context, body
):
    version = body['metadata']['resourceVersion']
    merge = {'metadata': {'resourceVersion': version}, 'spec': {'x': 1}, 'status': {'x': 2}}

    patched = await object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)

    assert patched.refused is None
    assert (patched.body['spec']['x'], patched.body['status']) == (1, {'x': 2})
    assert list_asked(sandbox) == [('', MERGE), ('status', MERGE)]


@pytest.mark.guarantee('NEW-061')
async def test_status_is_a_part_of_the_object_if_it_is_not_a_subresource(
    sandbox, context, stateless_body
):
    merge = {'spec': {'x': 1}, 'status': {'x': 2}}

    patched = await object_requests.patch_object(aim(WITHOUT_STATUS), merge=merge, context=context)

    assert (patched.body['spec'], patched.body['status']) == ({'x': 1}, {'x': 2})
    assert list_asked(sandbox) == [('', MERGE)]


@pytest.mark.parametrize(
    'kind, operation, place',
    [
        pytest.param(Kind.AMEND_BODY, add('/spec/x', 1), '', id='body'),
        pytest.param(Kind.AMEND_STATUS, add('/status', {'x': 1}), 'status', id='status'),
    ],
)
async def test_amendments_are_sent_as_json_patches(sandbox, context, body, kind, operation, place):
    patched = await amend(body, operation, context=context, kind=kind)

    assert patched == object_requests.Patched(await read_cleaned(sandbox))
    assert patched.body[place or 'spec']['x'] == 1
    assert list_asked(sandbox) == [(place, JSON)]


async def test_amendment_of_an_old_body_is_refused_and_changes_nothing(sandbox, context, body):
    changed = await sandbox.patch('withs', 'obj', {'spec': {'foreign': 1}})

    patched = await amend(body, add('/spec/x', 1), context=context)

    assert (patched.body, patched.refused) == (None, Kind.AMEND_BODY)
    assert patched.refusal.code == 422
    assert await sandbox.get('withs', 'obj') == changed
    assert len(sandbox.requests) == 1


async def test_impossible_amendments_are_refused(sandbox, context, body):
    patched = await amend(body, add('/spec/no/such', 1), context=context)

    assert patched.refused is Kind.AMEND_BODY
    assert isinstance(patched.refusal, errors.APIInvalidError)
    assert await sandbox.get('withs', 'obj') == body


async def test_invalid_changes_are_refused_and_nothing_follows(sandbox, context, body):
    version = body['metadata']['resourceVersion']
    merge = {'metadata': {'resourceVersion': version}, 'spec': {'size': 'big'}, 'status': {'x': 1}}

    patched = await object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)

    assert (patched.body, patched.refused) == (None, Kind.MERGE_BODY)
    assert 'spec.size' in patched.refusal.message
    assert len(sandbox.requests) == 1


async def test_what_was_accepted_before_the_refusal_stays(sandbox, context, body):
    patched = await object_requests.patch_object(
        aim(WITH_STATUS), merge={'spec': {'size': 'big'}, 'status': {'x': 1}}, context=context
    )

    assert patched.refused is Kind.MERGE_BODY
    assert patched.body == await read_cleaned(sandbox)
    assert patched.body['status'] == {'x': 1}


async def test_conflicts_are_answers(sandbox, context, body):
    merge = {'metadata': {'resourceVersion': '1'}, 'spec': {'x': 1}}

    patched = await object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)

    assert patched.refused is Kind.MERGE_BODY
    assert isinstance(patched.refusal, errors.APIConflictError)
    assert len(sandbox.requests) == 1


@pytest.mark.guarantee('NEW-067')
@pytest.mark.parametrize(
    'path, done', [('*/withs/obj/status', 0), ('*/withs/obj', 1)], ids=['first', 'second']
)
async def test_objects_can_be_gone_at_any_request(sandbox, context, body, path, done):
    sandbox.faults.inject(path=path, code=404)

    patched = await object_requests.patch_object(
        aim(WITH_STATUS), merge={'spec': {'x': 1}, 'status': {'x': 1}}, context=context
    )

    assert patched is None
    assert len(sandbox.requests) == done + 1


@pytest.mark.guarantee('NEW-067')
async def test_objects_to_be_amended_can_be_gone(sandbox, context, body):
    sandbox.faults.inject(path='*/withs/obj', code=404)

    assert await amend(body, add('/spec/y', 1), context=context) is None


async def test_absent_objects_are_gone(context, kinds):
    assert (
        await object_requests.patch_object(
            aim(WITH_STATUS, 'absent'), merge={'spec': {'x': 1}}, context=context
        )
        is None
    )


async def test_other_refusals_are_raised(sandbox, context, body):
    sandbox.faults.inject(verb='patch', code=400)

    with pytest.raises(errors.APIClientError):
        await object_requests.patch_object(
            aim(WITH_STATUS), merge={'spec': {'x': 1}}, context=context
        )


async def test_temporary_failures_are_waited_for(sandbox, context, body, virtual_time):
    sandbox.faults.inject(verb='patch', code=503, times=2)

    patched = await object_requests.patch_object(
        aim(WITH_STATUS), merge={'spec': {'x': 1}}, context=context
    )

    assert patched.body['spec']['x'] == 1
    assert virtual_time.elapsed == pytest.approx(2, abs=0.5)


@pytest.mark.parametrize('path', ['*/withs/obj', '*/withs/obj/status'])
async def test_patching_can_be_cancelled_at_any_request(sandbox, context, body, path):
    fault = sandbox.faults.inject(path=path, stall=True)
    merge = {'spec': {'x': 1}, 'status': {'x': 1}}
    task = asyncio.create_task(
        object_requests.patch_object(aim(WITH_STATUS), merge=merge, context=context)
    )
    await fault.wait_until_hit()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
