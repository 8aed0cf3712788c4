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


def build_local():
    def local(**_):
        pass

    return local


class Operator:
    def method(self, **_):
        pass

    @staticmethod
    def static(**_):
        pass

    class Inner:
        def method(self, **_):
            pass

    attribute = lambda **_: None  # noqa: E731


@functools.wraps(fn)
def wrapper(**_):
    pass


@functools.wraps(wrapper)
async def wrapper_of_wrapper(**_):
    pass


def renamed(**_):
    pass


renamed.__name__ = 'another'

LAMBDA = lambda **_: None  # noqa: E731
LAMBDA_ID = f'lambda:{__file__}:{LAMBDA.__code__.co_firstlineno}'


class Wrapping:
    """A decorator that is an object, not a function."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)

    def __call__(self, **kwargs):
        return self.__wrapped__(**kwargs)


@pytest.mark.guarantee('FND-020')
@pytest.mark.parametrize(
    'function, expected',
    [
        pytest.param(fn, 'fn', id='function'),
        pytest.param(coro, 'coro', id='coroutine'),
        pytest.param(build_local(), 'build_local.<locals>.local', id='local'),
        pytest.param(wrapper, 'fn', id='wrapper'),
        pytest.param(wrapper_of_wrapper, 'fn', id='wrapper-of-wrapper'),
        pytest.param(
            functools.wraps(build_local())(lambda **_: None),
            'build_local.<locals>.local',
            id='wrapper-of-local',
        ),
        pytest.param(Wrapping(Operator.static), 'Operator.static', id='wrapping-object'),
        pytest.param(functools.cache(fn), 'fn', id='cached'),
        pytest.param(renamed, 'renamed', id='renamed'),
        pytest.param(functools.partial(fn, x=1), 'fn', id='partial'),
        pytest.param(
            functools.partial(functools.partial(coro, x=1), y=2), 'coro', id='partial-of-partial'
        ),
        pytest.param(functools.partial(wrapper, x=1), 'fn', id='partial-of-wrapper'),
        pytest.param(
            functools.partial(Operator().method, x=1), 'Operator.method', id='partial-of-method'
        ),
        pytest.param(Operator().method, 'Operator.method', id='method'),
        pytest.param(Operator.Inner().method, 'Operator.Inner.method', id='method-of-nested-class'),
        pytest.param(Operator.static, 'Operator.static', id='static'),
        pytest.param(staticmethod(Operator.static), 'Operator.static', id='static-undecorated'),
        pytest.param(LAMBDA, LAMBDA_ID, id='lambda'),
        pytest.param(functools.partial(LAMBDA, x=1), LAMBDA_ID, id='partial-of-lambda'),
        pytest.param(
            Operator.attribute,
            f'lambda:{__file__}:{Operator.attribute.__code__.co_firstlineno}',
            id='lambda-of-class',
        ),
    ],
)
def test_ids_are_the_qualified_names_of_functions(registry, function, expected):
    kopf.on.create('kopfexamples', registry=registry)(function)
    kopf.index('kopfexamples', registry=registry)(function)
    kopf.on.startup(registry=registry)(function)

    assert [handler.id for handler in registry._changing] == [expected]
    assert [handler.id for handler in registry._indexing] == [expected]
    assert [handler.id for handler in registry._activities.select('startup')] == [expected]


@pytest.mark.guarantee('FND-020')
@pytest.mark.parametrize(
    'function', [fn, LAMBDA, functools.partial(fn), Operator().method, build_local()]
)
def test_ids_can_be_given(registry, function):
    kopf.on.create('kopfexamples', id='given', registry=registry)(function)
    kopf.on.login(id='given', registry=registry)(function)

    assert [handler.id for handler in registry._changing] == ['given']
    assert [handler.id for handler in registry._activities.select('authentication')] == ['given']


@pytest.mark.guarantee('HND-017', 'HND-046')
@pytest.mark.parametrize(
    'field',
    [
        pytest.param('spec.field', id='string'),
        pytest.param(('spec', 'field'), id='tuple'),
        pytest.param(['spec', 'field'], id='list'),
    ],
)
@pytest.mark.parametrize(
    'kind',
    [
        'event',
        'create',
        'update',
        'delete',
        'resume',
        'field',
        'daemon',
        'timer',
        'validate',
        'mutate',
    ],
)
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
@pytest.mark.parametrize(
    'parent_options, options, expected',
    [
        pytest.param({}, {}, 'parent/fn', id='name'),
        pytest.param({}, {'id': 'item1'}, 'parent/item1', id='id'),
        pytest.param({}, {'field': 'spec.field'}, 'parent/fn/spec.field', id='field'),
        pytest.param(
            {'field': 'spec.items'},
            {'id': 'item1'},
            'parent/spec.items/item1',
            id='parent-with-field',
        ),
    ],
)
def test_ids_of_subhandlers_begin_with_those_of_their_parents(
    registry, parent_options, options, expected
):
    kopf.on.create('kopfexamples', id='parent', registry=registry, **parent_options)(fn)
    [parent] = registry._changing

    assert registries.build_subhandler(parent, fn, **options).id == expected


@pytest.mark.guarantee('HND-056', 'FND-020')
@pytest.mark.parametrize(
    'function, expected',
    [
        pytest.param(functools.partial(fn, item=1), 'parent/fn', id='partial'),
        pytest.param(LAMBDA, f'parent/{LAMBDA_ID}', id='lambda'),
        pytest.param(build_local(), 'parent/build_local.<locals>.local', id='local'),
        pytest.param(Operator().method, 'parent/Operator.method', id='method'),
    ],
)
def test_subhandlers_are_named_as_handlers(registry, function, expected):
    kopf.on.create('kopfexamples', id='parent', registry=registry)(fn)
    [parent] = registry._changing

    subhandler = registries.build_subhandler(parent, function)

    assert subhandler.id == expected
    assert subhandler.fn == function


@pytest.mark.guarantee('FND-031')
def test_only_functions_can_be_subhandlers(registry):
    kopf.on.create('kopfexamples', id='parent', registry=registry)(fn)
    [parent] = registry._changing

    with pytest.raises(ValueError, match='Only functions can be handlers'):
        registries.build_subhandler(parent, print)
