"""
Whose settings are used, and by whom.
"""

import pytest
from clusters import FINALIZER, wait_until

import kopf


@pytest.mark.guarantee('CFG-005')
async def test_operators_need_no_settings(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    def fn(reason, **_):
        calls.append(reason)

    await run_operator(settings=None)
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    body = await cluster.wait_until_handled(x=2)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['create', 'update', 'delete']
    assert body['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('CFG-002')
@pytest.mark.parametrize('is_shared', [False, True], ids=['own', 'shared'])
async def test_settings_are_shared_only_if_they_are_the_same_object(run_operator, calls, is_shared):
    def build(name):
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def startup_fn(settings, **_):
            calls.append((settings, settings.posting.reporting_instance))
            settings.posting.reporting_instance = name

        return registry

    settings = kopf.OperatorSettings() if is_shared else None
    for name in ['one', 'two']:
        await run_operator(registry=build(name), settings=settings)
    await wait_until(lambda: len(calls) == 2)

    (one, first), (two, second) = calls
    assert (first, second) == ('dev', 'one' if is_shared else 'dev')
    assert (one is two is settings) if is_shared else one is not two


@pytest.mark.guarantee('NEW-011')
async def test_no_time_is_spent_on_collecting_events(
    cluster, registry, run_operator, calls, settings, virtual_time
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append(virtual_time.elapsed)

    with pytest.warns(DeprecationWarning, match='no effect'):
        settings.queueing.batch_window = 1000
    await run_operator()
    await cluster.wait_until_watched()
    before = virtual_time.elapsed
    await cluster.create()
    await wait_until(lambda: calls)

    assert calls[0] - before < 10
