"""
Patches of handlers that the server refuses: reported once, and never repeated.
"""

import logging

import pytest
from clusters import get_last_handled, get_progress
from settling import settle

import kopf


def set_wrong_type(patch):
    patch.spec['size'] = 'big'


def set_wrong_value(patch):
    patch.spec['size'] = -1


def set_bad_label(patch):
    patch.metadata.labels['label'] = 'not a label!'


def set_bad_annotation(patch):
    patch.metadata.annotations['not a key!'] = 'value'


def set_wrong_status(patch):
    patch.status['size'] = 'big'


def set_by_function(patch):
    patch.fns.append(lambda body: body['spec'].update(size=-1))


WAYS = [
    pytest.param(set_wrong_type, id='wrong-type'),
    pytest.param(set_wrong_value, id='wrong-value'),
    pytest.param(set_bad_label, id='bad-label'),
    pytest.param(set_bad_annotation, id='bad-annotation'),
    pytest.param(set_wrong_status, id='wrong-status'),
]


@pytest.fixture(params=[False, True], ids=['usual-status', 'subresource-of-status'])
async def cluster(request, make_strict_cluster):
    return await make_strict_cluster(has_status=request.param)


@pytest.fixture
def list_errors(logs):
    return lambda: logs(logging.ERROR)


@pytest.mark.guarantee('FND-002')
@pytest.mark.parametrize('change', [*WAYS, pytest.param(set_by_function, id='by-function')])
async def test_refused_changes_are_reported_once_and_never_repeated(
    cluster, registry, run_operator, calls, list_errors, change
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(patch, reason, **_):
        calls.append(reason.value)
        change(patch)

    operator = await run_operator()
    await cluster.create()
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()
    await operator.stop()
    writes = [asked.code for asked in cluster.writes]
    await run_operator()
    await settle(calls, lambda: cluster.writes)

    assert calls == ['create']
    assert len(list_errors()) == 1
    assert writes.count(422) == 1
    assert len(writes) <= 2
    assert len(cluster.writes) == len(writes)
    assert get_last_handled(body) == {'spec': {'x': 1}}
    assert get_progress(body) == {}


@pytest.mark.guarantee('FND-002')
@pytest.mark.parametrize('change', WAYS)
async def test_the_next_change_of_the_object_is_handled_as_usual(
    cluster, registry, run_operator, calls, list_errors, change
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(patch, diff, **_):
        calls.append([(item.old, item.new) for item in diff if item.field == ('spec', 'x')])
        change(patch)

    await run_operator()
    await cluster.create()
    await settle(calls, lambda: cluster.writes)
    await cluster.patch({'spec': {'x': 2}})
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    assert calls == [[], [(1, 2)]]
    assert len(list_errors()) == 2
    assert len(cluster.writes) <= 4
    assert get_last_handled(body) == {'spec': {'x': 2}}


@pytest.mark.guarantee('FND-002')
@pytest.mark.parametrize('change', WAYS)
async def test_other_handlers_are_not_repeated_because_of_a_refused_patch(
    cluster, registry, run_operator, calls, change
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        change(patch)

    @kopf.on.create('kopfexamples', registry=registry)
    async def other_fn(retry, **_):
        calls.append(('other', retry))
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=10)

    await run_operator()
    await cluster.create()
    await settle(calls, lambda: cluster.writes)
    body = await cluster.get()

    assert calls == ['create', ('other', 0), ('other', 1)]
    assert get_last_handled(body) == {'spec': {'x': 1}}
    assert get_progress(body) == {}
