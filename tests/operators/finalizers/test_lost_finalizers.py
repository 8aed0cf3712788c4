"""
Finalizers that never stay: removed by webhooks, or unwanted by filters as soon as they are there.
The operator does not run in circles.
"""

import asyncio

import pytest
from settling import Calls, settle
from webhook_servers import build_answer, build_mutator

import kopf


@pytest.fixture
def calls():
    return Calls()


async def strip(path, review):
    """A webhook that lets no finalizers in."""
    has_any = review['request']['object']['metadata'].get('finalizers')
    operations = [{'op': 'remove', 'path': '/metadata/finalizers'}] if has_any else []
    return build_answer(review, operations)


@pytest.mark.guarantee('FND-005')
@pytest.mark.parametrize('decorator', [kopf.on.delete, kopf.daemon])
async def test_finalizer_that_is_stripped_by_a_webhook_is_added_less_and_less_often(
    sandbox, cluster, registry, run_operator, calls, decorator
):
    await sandbox.add_service('default', 'mutator', strip)
    await sandbox.create(build_mutator())
    decorator('kopfexamples', registry=registry)(lambda **_: calls.append('called'))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(600)

    assert calls == []
    assert 2 <= len(cluster.writes) < 20


@pytest.mark.guarantee('FND-005')
async def test_filter_that_depends_on_the_finalizer_itself_is_slowed_down(
    cluster, registry, run_operator, calls
):
    kopf.on.create('kopfexamples', registry=registry)(lambda **_: calls.append('create'))
    kopf.on.delete(
        'kopfexamples', when=lambda meta, **_: not meta.get('finalizers'), registry=registry
    )(lambda **_: None)
    await run_operator()
    await cluster.create()
    await settle(calls, lambda: cluster.writes)

    assert len(cluster.writes) < 50
