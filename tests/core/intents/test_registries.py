"""
Registries: what is declared is found again, once, in its order, by those whom it concerns.
"""

import functools
import unittest.mock

import pytest

import kopf
from kopf._core.intents import causes, registries

EXAMPLES = kopf.Resource('kopf.dev', 'v1', 'kopfexamples', 'KopfExample', 'kopfexample')
PODS = kopf.Resource('', 'v1', 'pods', 'Pod', 'pod')
METRICS = kopf.Resource('metrics.k8s.io', 'v1beta1', 'pods', 'PodMetrics')


def fn(**_):
    pass


def other(**_):
    pass


@pytest.mark.guarantee('HND-013')
def test_default_registry_is_used_by_default(default_registry):
    kopf.on.startup()(fn)
    kopf.on.create('kopfexamples')(fn)

    assert kopf.get_default_registry() is default_registry
    assert [
        handler.fn for handler in default_registry._activities.select(causes.Activity.STARTUP)
    ] == [fn]
    assert [handler.fn for handler in default_registry._changing] == [fn]


@pytest.mark.guarantee('HND-014')
def test_other_registries_are_used_on_demand(default_registry):
    registry = kopf.OperatorRegistry()

    kopf.on.create('kopfexamples', registry=registry)(fn)
    kopf.on.startup(registry=registry)(fn)

    assert [handler.fn for handler in registry._changing] == [fn]
    assert [handler.fn for handler in registry._activities.select(causes.Activity.STARTUP)] == [fn]
    assert list(default_registry._changing) == []
    assert default_registry._activities.select(causes.Activity.STARTUP) == []


@pytest.mark.guarantee('HND-015')
def test_default_registry_is_replaced_for_later_decorators(default_registry):
    registry = kopf.OperatorRegistry()
    decorator = kopf.on.create('kopfexamples', id='later')

    kopf.on.create('kopfexamples', id='before')(fn)
    kopf.set_default_registry(registry)
    kopf.on.create('kopfexamples', id='after')(fn)
    decorator(fn)

    assert kopf.get_default_registry() is registry
    assert [handler.id for handler in default_registry._changing] == ['before']
    assert [handler.id for handler in registry._changing] == ['after', 'later']


@pytest.mark.guarantee('HND-020')
def test_functions_are_declared_many_times(registry):
    @kopf.on.event('pods', registry=registry)
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.create('pods', registry=registry)
    @kopf.on.update('pods', registry=registry)
    def stacked(**_):
        pass

    assert [handler.fn for handler in registry._changing.select(PODS)] == [stacked, stacked]
    assert [handler.fn for handler in registry._changing.select(EXAMPLES)] == [stacked]
    assert [handler.fn for handler in registry._watching.select(PODS)] == [stacked]


@pytest.mark.guarantee('HND-021', 'FND-021')
def test_namesakes_do_not_displace_each_other(registry, changing):
    def define():
        @kopf.on.create('kopfexamples', id='my_handler', registry=registry)
        def my_handler(**_):
            pass

        return my_handler

    first, second = define(), define()
    handlers = registry._changing.iter_handlers(changing('create', None, {}))

    assert [handler.fn for handler in handlers] == [first, second]
    assert [handler.id for handler in handlers] == ['my_handler', 'my_handler-2']


@pytest.mark.guarantee('HND-022', 'RES-017')
def test_function_is_called_once_per_occasion_and_id(registry, called, changing):
    kopf.on.create('kopfexamples', registry=registry)(fn)
    kopf.on.create('kopf.dev', 'v1', 'kopfexamples', registry=registry)(fn)
    kopf.on.create(kopf.EVERYTHING, registry=registry)(fn)
    kopf.on.resume('kopfexamples', registry=registry)(fn)

    assert called(changing('create', None, {}, initial=True)) == ['fn']


@pytest.mark.guarantee('HND-022')
def test_function_is_called_for_each_id(registry, called, changing):
    kopf.on.create('kopfexamples', id='one', registry=registry)(fn)
    kopf.on.create('kopfexamples', id='two', registry=registry)(fn)

    assert called(changing('create', None, {})) == ['one', 'two']


@pytest.mark.guarantee('FLT-016')
def test_function_with_the_same_field_is_called_once_for_different_causes(
    registry, called, changing
):
    kopf.on.resume('kopfexamples', field='spec.field', registry=registry)(fn)
    kopf.on.create('kopfexamples', field='spec.field', registry=registry)(fn)

    assert called(changing('create', None, {'spec': {'field': 'x'}}, initial=True)) == [
        'fn/spec.field'
    ]


@pytest.mark.guarantee('KWA-017', 'KWA-016', 'FLT-015')
def test_function_with_several_fields_is_called_for_each_with_its_own_arguments(registry, changing):
    kopf.on.update('kopfexamples', param=10, field='spec.field', registry=registry)(fn)
    kopf.on.update('kopfexamples', param=1, field='spec', registry=registry)(fn)
    cause = changing('update', {'spec': {'field': 'x'}}, {'spec': {'field': 'y'}})

    handlers = registry._changing.iter_handlers(cause)

    assert [(handler.param, handler.adjust(cause)) for handler in handlers] == [
        (10, {'old': 'x', 'new': 'y', 'diff': (('change', (), 'x', 'y'),)}),
        (
            1,
            {
                'old': {'field': 'x'},
                'new': {'field': 'y'},
                'diff': (('change', ('field',), 'x', 'y'),),
            },
        ),
    ]


class Operator:
    def __init__(self, name):
        self.name = name

    def method(self, **_):
        return self.name


@pytest.mark.guarantee('HND-022')
@pytest.mark.parametrize(
    'one, another, expected',
    [
        pytest.param(
            functools.partial(fn, x=1), functools.partial(fn, x=1), ['id'], id='equal-partials'
        ),
        pytest.param(
            functools.partial(fn, x=1),
            functools.partial(fn, x=2),
            ['id', 'id-2'],
            id='different-partials',
        ),
        pytest.param(
            functools.partial(fn, x=[1]),
            functools.partial(fn, x=[1]),
            ['id'],
            id='partials-of-unhashables',
        ),
        pytest.param(
            functools.partial(fn),
            functools.partial(other),
            ['id', 'id-2'],
            id='partials-of-different-functions',
        ),
        pytest.param(fn, functools.partial(fn), ['id', 'id-2'], id='function-and-partial'),
    ],
)
def test_partials_are_the_same_if_they_do_the_same(
    registry, called, changing, one, another, expected
):
    kopf.on.create('kopfexamples', id='id', registry=registry)(one)
    kopf.on.create('kopfexamples', id='id', registry=registry)(another)

    assert called(changing('create', None, {})) == expected


@pytest.mark.guarantee('HND-019')
def test_methods_are_bound_to_their_objects(registry, changing):
    one, two = Operator('one'), Operator('two')
    for instance in (one, two, one):
        kopf.on.create('kopfexamples', registry=registry)(instance.method)

    handlers = registry._changing.iter_handlers(changing('create', None, {}))

    assert [handler.fn() for handler in handlers] == ['one', 'two']


@pytest.mark.guarantee('HND-018')
def test_static_methods_are_functions(registry, called, changing):
    class Operator:
        @kopf.on.create('kopfexamples', id='inner', registry=registry)
        @staticmethod
        def inner(**_):
            return 'inner'

        @staticmethod
        @kopf.on.create('kopfexamples', id='outer', registry=registry)
        def outer(**_):
            return 'outer'

    handlers = registry._changing.iter_handlers(changing('create', None, {}))

    assert [(handler.id, handler.fn()) for handler in handlers] == [
        ('inner', 'inner'),
        ('outer', 'outer'),
    ]
    assert (Operator.inner(), Operator.outer()) == ('inner', 'outer')


class Callable:
    def __call__(self, **_):
        pass


@pytest.mark.guarantee('FND-031')
@pytest.mark.parametrize(
    'value',
    [
        pytest.param(classmethod(fn), id='class-method'),
        pytest.param(Callable(), id='object'),
        pytest.param(functools.partial(Callable(), x=1), id='partial-of-object'),
        pytest.param(Callable, id='class'),
        pytest.param(print, id='builtin'),
        pytest.param([].append, id='method-of-builtin'),
        pytest.param(functools.partial(print, 'x'), id='partial-of-builtin'),
        pytest.param(unittest.mock.Mock(), id='mock'),
        pytest.param(unittest.mock.AsyncMock(), id='async-mock'),
        pytest.param('fn', id='text'),
        pytest.param(None, id='nothing'),
    ],
)
@pytest.mark.parametrize(
    'decorator',
    [
        pytest.param(functools.partial(kopf.on.create, 'kopfexamples'), id='create'),
        pytest.param(
            functools.partial(kopf.on.create, 'kopfexamples', id='given'), id='create-with-id'
        ),
        pytest.param(functools.partial(kopf.index, 'kopfexamples'), id='index'),
        pytest.param(kopf.on.startup, id='startup'),
    ],
)
def test_only_functions_can_be_handlers(registry, decorator, value):
    with pytest.raises(ValueError, match='Only functions can be handlers'):
        decorator(registry=registry)(value)

    assert not list(registry._iter_handlers())


@pytest.mark.guarantee('HND-041')
def test_handlers_are_in_the_order_of_declaration(registry, called, changing):
    kopf.on.resume('kopfexamples', id='a', registry=registry)(fn)
    kopf.on.create('kopfexamples', id='c', registry=registry)(fn)
    kopf.on.resume('kopfexamples', id='b', registry=registry)(fn)
    kopf.on.field('kopfexamples', id='d', field='spec', registry=registry)(fn)

    assert called(changing('create', None, {'spec': {'x': 1}}, initial=True)) == [
        'a',
        'c',
        'b',
        'd/spec',
    ]


@pytest.mark.guarantee('WLD-008')
def test_handlers_can_be_declared_in_a_loop_while_others_are_used(registry, called, changing):
    cause = changing('create', None, {})

    for index in range(3):
        kopf.on.create('kopfexamples', id=f'item-{index}', registry=registry)(
            functools.partial(fn, index=index)
        )
        assert len(called(cause)) == index + 1

    assert called(cause) == ['item-0', 'item-1', 'item-2']


def test_handlers_can_be_declared_while_others_are_listed(registry):
    kopf.on.event('pods', registry=registry)(fn)

    for _ in registry._watching:
        kopf.on.event('pods', registry=registry)(other)

    assert [handler.fn for handler in registry._watching] == [fn, other]


@pytest.mark.parametrize(
    'kind, part',
    [
        ('event', '_watching'),
        ('index', '_indexing'),
        ('daemon', '_spawning'),
        ('timer', '_spawning'),
        ('create', '_changing'),
        ('update', '_changing'),
        ('delete', '_changing'),
        ('resume', '_changing'),
        ('validate', '_webhooks'),
        ('mutate', '_webhooks'),
    ],
)
def test_handlers_are_kept_by_their_kinds(registry, kind, part):
    getattr(kopf.on, kind)('pods', registry=registry)(fn)

    parts = {'_watching', '_indexing', '_spawning', '_changing', '_webhooks'}
    assert {name for name in parts if getattr(registry, name).has_handlers(PODS)} == {part}
    assert not getattr(registry, part).has_handlers(EXAMPLES)


def test_only_handlers_can_be_kept(registry):
    with pytest.raises(TypeError, match='not a handler'):
        registry._append(fn)


def test_activities_are_kept_by_their_names(registry):
    for kind in ('startup', 'cleanup', 'login', 'probe', 'promoted', 'demoted'):
        getattr(kopf.on, kind)(id=kind, registry=registry)(fn)
        getattr(kopf.on, kind)(id=kind, registry=registry)(fn)

    found = {
        activity: [handler.id for handler in registry._activities.select(activity)]
        for activity in causes.Activity
    }

    assert found == {
        'startup': ['startup'],
        'cleanup': ['cleanup'],
        'authentication': ['login'],
        'probe': ['probe'],
        'promotion': ['promoted'],
        'demotion': ['demoted'],
    }


def test_handlers_are_selected_by_the_resolved_selectors_if_those_are_known(registry):
    kopf.on.event('pods', id='ambiguous', registry=registry)(fn)
    kopf.on.event('metrics.k8s.io', 'pods', id='metrics', registry=registry)(fn)
    ambiguous, metrics = (handler.selector for handler in registry._watching)
    select = registry._watching.select

    assert [handler.id for handler in select(METRICS)] == ['ambiguous', 'metrics']
    assert [handler.id for handler in select(METRICS, {metrics})] == ['metrics']
    assert [handler.id for handler in select(PODS, {ambiguous})] == ['ambiguous']
    assert [handler.id for handler in select(PODS, set())] == []
    assert registry._watching.has_handlers(PODS, {ambiguous})
    assert not registry._watching.has_handlers(PODS, set())


def test_handlers_are_called_by_the_resolved_selectors_if_those_are_known(
    registry, called, watching
):
    kopf.on.event('pods', id='ambiguous', registry=registry)(fn)
    kopf.on.event('metrics.k8s.io', 'pods', id='metrics', registry=registry)(fn)
    selectors = registry._watching.selectors()
    metrics = {selector for selector in selectors if selector.group}

    assert called(watching({}, resource=METRICS)) == ['ambiguous', 'metrics']
    assert called(watching({}, resource=METRICS, selectors=metrics)) == ['metrics']


def test_selectors_are_listed_by_what_is_needed_of_resources(registry):
    for kind in ('event', 'index', 'create', 'daemon', 'validate'):
        getattr(kopf.on, kind)(kind, registry=registry)(fn)
        getattr(kopf.on, kind)(kind, registry=registry)(other)
    kopf.on.startup(registry=registry)(fn)

    patched, watched = (
        sorted(selector.name for selector in selectors)
        for selectors in (registry.patched_selectors(), registry.watched_selectors())
    )

    assert patched == ['create', 'daemon']
    assert watched == ['create', 'daemon', 'event', 'index']


@pytest.mark.guarantee('FLT-017')
def test_fields_of_changing_handlers_are_known_in_advance(registry):
    kopf.on.update('pods', field='status.phase', registry=registry)(fn)
    kopf.on.field('pods', field='spec.x', registry=registry)(fn)
    kopf.on.create('pods', registry=registry)(fn)
    kopf.on.field('kopfexamples', field='spec.y', registry=registry)(fn)
    kopf.on.event('pods', field='status.conditions', registry=registry)(fn)

    assert registry._changing.survey(PODS).extra_fields == {('status', 'phase'), ('spec', 'x')}


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, True, id='mandatory'),
        pytest.param({'optional': True}, False, id='optional'),
        pytest.param({'labels': {'key': 'x'}}, True, id='for-some-objects'),
    ],
)
def test_resources_whose_objects_can_be_blocked_are_known_in_advance(registry, options, expected):
    kopf.on.delete('pods', registry=registry, **options)(fn)

    assert registry._changing.survey(PODS).may_hold is expected
    assert not registry._changing.survey(EXAMPLES).may_hold


@pytest.mark.parametrize(
    'kind, allowed',
    [
        pytest.param('update', True, id='update'),
        pytest.param('field', True, id='field'),
        pytest.param('create', False, id='create'),
        pytest.param('delete', False, id='delete'),
        pytest.param('resume', False, id='resume'),
    ],
)
@pytest.mark.parametrize('option', ['old', 'new'])
def test_only_subhandlers_of_updates_are_limited_by_the_past(registry, kind, option, allowed):
    getattr(kopf.on, kind)('kopfexamples', field='spec', registry=registry)(fn)
    [parent] = registry._changing
    options = {'field': 'spec.field', option: 'x'}

    if allowed:
        assert getattr(registries.build_subhandler(parent, fn, **options), option) == 'x'
    else:
        with pytest.raises(
            TypeError, match='old= and new= are only for sub-handlers of update and field handlers'
        ):
            registries.build_subhandler(parent, fn, **options)


@pytest.mark.guarantee('FLT-002')
@pytest.mark.parametrize(
    'kind, reason',
    [
        ('create', 'create'),
        ('update', 'update'),
        ('delete', 'delete'),
        ('resume', 'resume'),
        ('field', 'update'),
    ],
)
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, True, id='no-filters'),
        pytest.param({'labels': {'key': 'x'}}, True, id='labels-match'),
        pytest.param({'labels': {'key': 'y'}}, False, id='labels-mismatch'),
        pytest.param({'annotations': {'key': 'x'}}, False, id='annotations-mismatch'),
        pytest.param({'when': lambda **_: False}, False, id='when-mismatches'),
        pytest.param({'field': 'spec.field'}, True, id='field-matches'),
        pytest.param({'field': 'spec.other'}, False, id='field-mismatches'),
        pytest.param({'field': 'spec.field', 'value': 'new'}, True, id='value-matches'),
        pytest.param({'field': 'spec.field', 'value': 'z'}, False, id='value-mismatches'),
    ],
)
def test_subhandlers_are_for_whatever_their_parents_are(
    changing, registry, kind, reason, options, expected
):
    getattr(kopf.on, kind)('kopfexamples', field='spec', registry=registry)(fn)
    [parent] = registry._changing
    subregistry = registries.ChangingRegistry()
    subregistry.append(registries.build_subhandler(parent, fn, **options))
    new = {'spec': {'field': 'new'}, 'metadata': {'labels': {'key': 'x'}}}
    old = None if reason == 'create' else {'spec': {'field': 'old'}}

    selected = subregistry.iter_handlers(changing(reason, old, new, initial=reason == 'resume'))

    assert bool(selected) is expected


@pytest.mark.guarantee('FLT-012', 'FLT-019')
def test_subhandlers_of_updates_need_changes_of_their_fields(changing, registry):
    kopf.on.update('kopfexamples', registry=registry)(fn)
    [parent] = registry._changing
    subregistry = registries.ChangingRegistry()
    subregistry.append(registries.build_subhandler(parent, fn, field='spec.field', new='y'))
    old, new = {'spec': {'field': 'x', 'other': 1}}, {'spec': {'field': 'y', 'other': 2}}

    assert len(subregistry.iter_handlers(changing('update', old, new))) == 1
    assert len(subregistry.iter_handlers(changing('update', {'spec': {'field': 'y'}}, new))) == 0


@pytest.mark.guarantee('FLT-025')
@pytest.mark.parametrize(
    'options, error',
    [
        pytest.param({'value': 'x'}, TypeError, id='no-field'),
        pytest.param({'field': 'spec', 'value': 'x', 'old': 'y'}, TypeError, id='value-and-old'),
        pytest.param({'labels': {'key': None}}, ValueError, id='none'),
    ],
)
def test_wrong_filters_of_subhandlers_are_refused(registry, options, error):
    kopf.on.update('kopfexamples', registry=registry)(fn)
    [parent] = registry._changing

    with pytest.raises(error):
        registries.build_subhandler(parent, fn, **options)
