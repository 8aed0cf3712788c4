"""
Ids of handlers: how they are made, and that they stay the same.
"""
import functools

import pytest

import kopf
from kopf._core.intents import registries


def fn(**_):
    pass


async def coro(**_):
    pass


class Callable:
    def __call__(self, **_):
        pass

    def method(self, **_):
        pass

    @staticmethod
    def static(**_):
        pass


@functools.wraps(fn)
def wrapper(**_):
    pass


LAMBDA = lambda **_: None  # noqa: E731
LINE = LAMBDA.__code__.co_firstlineno


@pytest.mark.guarantee('HND-016')
@pytest.mark.parametrize('function, expected', [
    pytest.param(fn, 'fn', id='function'),
    pytest.param(coro, 'coro', id='coroutine'),
    pytest.param(wrapper, 'fn', id='wrapper'),
    pytest.param(functools.partial(fn, x=1), 'fn', id='partial'),
    pytest.param(functools.partial(functools.partial(coro, x=1), y=2), 'coro', id='partial-of-partial'),
    pytest.param(Callable().method, 'method', id='method'),
    pytest.param(Callable.static, 'static', id='static'),
    pytest.param(Callable(), 'Callable', id='object'),
    pytest.param(functools.partial(Callable(), x=1), 'Callable', id='partial-of-object'),
    pytest.param(LAMBDA, f'lambda-{LINE}', id='lambda'),
    pytest.param(functools.partial(LAMBDA, x=1), f'lambda-{LINE}', id='partial-of-lambda'),
])
def test_ids_are_the_names_of_functions(registry, function, expected):
    kopf.on.create('kopfexamples', registry=registry)(function)
    kopf.on.startup(registry=registry)(function)

    assert [handler.id for handler in registry._changing] == [expected]
    assert [handler.id for handler in registry._activities.select('startup')] == [expected]


@pytest.mark.guarantee('HND-016')
@pytest.mark.parametrize('function', [fn, LAMBDA, functools.partial(fn), Callable()])
def test_ids_can_be_given(registry, function):
    kopf.on.create('kopfexamples', id='given', registry=registry)(function)
    kopf.on.login(id='given', registry=registry)(function)

    assert [handler.id for handler in registry._changing] == ['given']
    assert [handler.id for handler in registry._activities.select('authentication')] == ['given']


@pytest.mark.guarantee('HND-017', 'HND-046')
@pytest.mark.parametrize('field', [
    pytest.param('spec.field', id='string'),
    pytest.param(('spec', 'field'), id='tuple'),
    pytest.param(['spec', 'field'], id='list'),
])
@pytest.mark.parametrize('kind', [
    'event', 'create', 'update', 'delete', 'resume', 'field', 'daemon', 'timer', 'validate', 'mutate',
])
def test_fields_are_parts_of_ids(registry, kind, field):
    getattr(kopf.on, kind)('kopfexamples', field=field, registry=registry)(fn)
    getattr(kopf.on, kind)('kopfexamples', field=field, id='given', registry=registry)(fn)

    handlers = [*registry._watching, *registry._changing, *registry._spawning, *registry._webhooks]
    assert [handler.id for handler in handlers] == ['fn/spec.field', 'given/spec.field']
    assert {handler.field for handler in handlers} == {('spec', 'field')}


@pytest.mark.guarantee('IDX-002')
def test_indices_are_named_as_functions_also_with_fields(registry):
    kopf.index('kopfexamples', field='spec.field', registry=registry)(fn)
    kopf.index('kopfexamples', field='spec.field', id='given', registry=registry)(fn)

    assert [handler.id for handler in registry._indexing] == ['fn', 'given']


@pytest.mark.guarantee('HND-055')
@pytest.mark.parametrize('parent_options, options, expected', [
    pytest.param({}, {}, 'parent/fn', id='name'),
    pytest.param({}, {'id': 'item1'}, 'parent/item1', id='id'),
    pytest.param({}, {'field': 'spec.field'}, 'parent/fn/spec.field', id='field'),
    pytest.param({'field': 'spec.items'}, {'id': 'item1'}, 'parent/spec.items/item1', id='parent-with-field'),
])
def test_ids_of_subhandlers_begin_with_those_of_their_parents(registry, parent_options, options, expected):
    kopf.on.create('kopfexamples', id='parent', registry=registry, **parent_options)(fn)
    [parent] = registry._changing

    assert registries.build_subhandler(parent, fn, **options).id == expected


@pytest.mark.guarantee('HND-056')
@pytest.mark.parametrize('function, expected', [
    pytest.param(functools.partial(fn, item=1), 'parent/fn', id='partial'),
    pytest.param(LAMBDA, f'parent/lambda-{LINE}', id='lambda'),
])
def test_subhandlers_are_named_as_handlers(registry, function, expected):
    kopf.on.create('kopfexamples', id='parent', registry=registry)(fn)
    [parent] = registry._changing

    subhandler = registries.build_subhandler(parent, function)

    assert subhandler.id == expected
    assert subhandler.fn is function
