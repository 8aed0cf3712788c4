"""
Functions take what they name, with or without ``**_``; those that can never be called are refused
at the start.
"""

import asyncio
import functools

import pytest

import kopf
from kopf._core.intents import arguments, handlers


async def test_every_kind_of_handlers_and_filters_works_without_the_rest_of_arguments(
    cluster, registry, run_operator, calls
):
    class Methods:
        def create(self, name):
            calls.append(('create', name))

    @kopf.on.startup(registry=registry)
    def startup_fn(settings):
        calls.append(('startup', type(settings)))

    @kopf.index('kopfexamples', id='sizes', registry=registry)
    def sizes(name, spec):
        return {name: spec['x']}

    @kopf.on.event('kopfexamples', when=lambda name: name == 'obj', registry=registry)
    async def event_fn(type):
        calls.append(('event', type))

    @kopf.on.field(
        'kopfexamples', field='spec.x', value=lambda value: value == 2, registry=registry
    )
    async def field_fn(old, new, sizes):
        calls.append(('field', old, new, [*sizes]))

    @kopf.on.delete('kopfexamples', when=kopf.not_(lambda labels: labels), registry=registry)
    async def delete_fn():
        calls.append(('delete',))

    @kopf.timer(
        'kopfexamples',
        interval=60,
        initial_delay=lambda spec: spec['x'] * 10,
        labels={'a': lambda value: value is None},
        registry=registry,
    )
    async def timer_fn(stopped):
        calls.append(('timer', bool(stopped)))

    kopf.on.create('kopfexamples', id='create_fn', registry=registry)(Methods().create)
    kopf.on.cleanup(registry=registry)(lambda: calls.append(('cleanup',)))
    operator = await run_operator(lifecycle=lambda handlers: handlers)
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(10)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await operator.stop()

    assert ('startup', kopf.OperatorSettings) in calls
    assert ('event', 'MODIFIED') in calls and ('event', 'DELETED') in calls
    assert ('create', 'obj') in calls
    assert ('field', 1, 2, ['obj']) in calls
    assert ('timer', False) in calls
    assert calls.count(('delete',)) == calls.count(('cleanup',)) == 1


async def test_subhandlers_work_without_the_rest_too_and_their_mistakes_are_explained(
    cluster, registry, run_operator, calls, caplog
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn():
        @kopf.subhandler(id='good')
        async def good(name):
            calls.append(name)

        @kopf.subhandler(id='bad')
        async def bad(nme, **_):
            pass

    await run_operator()
    await cluster.create()
    await asyncio.sleep(5)

    assert calls == ['obj']
    assert "The function requires 'nme', which it never gets. Did you mean 'name'?" in caplog.text
    assert 'Traceback' not in caplog.text


async def test_bound_arguments_and_wrappers_stay_as_they_were(
    cluster, registry, run_operator, calls
):
    def wrapped(fn):
        @functools.wraps(fn)
        async def wrapper(*args, **kwargs):
            return await fn(*args, extra='extra', **kwargs)

        return wrapper

    @kopf.on.create('kopfexamples', registry=registry)
    @wrapped
    async def wrapped_fn(name, extra, **kwargs):
        calls.append((name, extra, 'spec' in kwargs))

    async def partial_fn(first, name, second):
        calls.append((first, name, second))

    kopf.on.create('kopfexamples', registry=registry)(functools.partial(partial_fn, 1, second=2))
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    assert sorted(calls, key=repr) == [('obj', 'extra', True), (1, 'obj', 2)]


async def test_operator_refuses_to_start_with_functions_that_can_never_be_called(
    sandbox, registry, run_operator, calls
):
    kopf.on.cleanup(registry=registry)(lambda **_: calls.append('cleanup'))
    kopf.on.create('kopfexamples', registry=registry)(lambda nme, **_: None)
    operator = await run_operator()

    with pytest.raises(
        TypeError, match=r"requires 'nme', which it never gets\. Did you mean 'name'"
    ):
        await operator.stop()
    assert calls == []
    assert not sandbox.requests


async def test_startup_handlers_can_declare_the_indices_that_others_require(
    cluster, registry, run_operator, calls
):
    @kopf.on.startup(registry=registry)
    def declare_more():
        kopf.index('kopfexamples', id='late', registry=registry)(lambda name: name)

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(late):
        calls.append([*late])

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    assert calls == [[None]]


async def test_the_table_of_arguments_is_true(cluster, registry, run_operator):
    got = {}

    def declare(kind, decorator, *args, **options):
        @decorator(*args, id=kind.__name__, registry=registry, **options)
        async def fn(**kwargs):
            got[kind] = kwargs.keys()

    declare(handlers.ActivityHandler, kopf.on.startup)
    declare(handlers.ChangingHandler, kopf.on.create, 'kopfexamples')
    declare(handlers.WatchingHandler, kopf.on.event, 'kopfexamples')
    declare(handlers.SpawningHandler, kopf.on.daemon, 'kopfexamples')
    declare(handlers.IndexingHandler, kopf.on.index, 'kopfexamples')
    declare(handlers.ReconcileHandler, kopf.on.reconcile, 'kopfexamples')
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    index = {handlers.IndexingHandler.__name__}
    assert got.keys() == arguments.KINDS.keys() - {handlers.WebhookHandler}
    for kind, names in got.items():
        assert names == {*arguments.OF_ATTEMPTS, *arguments.KINDS[kind].names} | index
