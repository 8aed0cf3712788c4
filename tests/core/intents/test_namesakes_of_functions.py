"""
Functions of one id: which of them get numbers, and which can share the id.
"""

import functools

import pytest

import kopf

EXAMPLES = kopf.Resource('kopf.dev', 'v1', 'kopfexamples', 'KopfExample', 'kopfexample')
PODS = kopf.Resource('', 'v1', 'pods', 'Pod', 'pod')


def build_functions(count):
    """Build different functions with the same name."""

    def build():
        def fn(**_):
            pass

        return fn

    return [build() for _ in range(count)]


@pytest.fixture
def declare(registry):
    """
    Declare handlers for the resource: tuples of the numbers of functions, the kinds, maybe with
    other ids.
    """
    functions = build_functions(5)

    def declare(*declarations, **options):
        for number, kind, *others in declarations:
            id = others[0] if others else 'fn'
            getattr(kopf.on, kind)('kopfexamples', id=id, registry=registry, **options)(
                functions[number]
            )

    return declare


@pytest.mark.guarantee('FND-021')
@pytest.mark.parametrize(
    'declarations, expected',
    [
        pytest.param([(0, 'create')], ['fn'], id='alone'),
        pytest.param([(0, 'create'), (0, 'create')], ['fn', 'fn'], id='same-function'),
        pytest.param([(0, 'create'), (1, 'create')], ['fn', 'fn-2'], id='same-cause'),
        pytest.param(
            [(0, 'create'), (1, 'create'), (2, 'create')], ['fn', 'fn-2', 'fn-3'], id='three'
        ),
        pytest.param(
            [(0, 'create'), (1, 'update'), (2, 'delete')], ['fn', 'fn', 'fn'], id='different-causes'
        ),
        pytest.param(
            [(0, 'create'), (1, 'resume')], ['fn', 'fn-2'], id='resuming-is-mixed-into-creation'
        ),
        pytest.param(
            [(0, 'delete'), (1, 'resume')], ['fn', 'fn'], id='resuming-is-not-mixed-into-deletion'
        ),
        pytest.param(
            [(0, 'create'), (0, 'update'), (1, 'update'), (1, 'create')],
            ['fn', 'fn', 'fn-2', 'fn-2'],
            id='all-causes-of-a-function-have-one-id',
        ),
        pytest.param(
            [(0, 'create'), (1, 'create'), (1, 'update'), (2, 'update')],
            ['fn', 'fn-2', 'fn-2', 'fn'],
            id='first-free-id-is-taken',
        ),
        pytest.param(
            [(0, 'create'), (1, 'create'), (2, 'create', 'fn-2')],
            ['fn', 'fn-3', 'fn-2'],
            id='declared-number',
        ),
        pytest.param(
            [(0, 'create', 'fn-2'), (1, 'create', 'fn-2'), (2, 'create'), (3, 'create')],
            ['fn-2', 'fn-2-2', 'fn', 'fn-3'],
            id='number-of-number',
        ),
    ],
)
def test_functions_that_can_be_called_together_have_different_ids(
    registry, declare, declarations, expected
):
    declare(*declarations)

    assert [handler.id for handler in registry._changing.select(EXAMPLES)] == expected


@pytest.mark.guarantee('FND-021')
@pytest.mark.parametrize(
    'resolved', [pytest.param(False, id='unresolved'), pytest.param(True, id='resolved')]
)
def test_numbers_do_not_depend_on_filters(registry, changing, declare, resolved):
    declare((0, 'create'), when=lambda **_: False)
    declare((1, 'create'))
    selectors = frozenset(registry.watched_selectors()) if resolved else None

    handlers = registry._changing.iter_handlers(changing('create', None, {}, selectors=selectors))

    assert [handler.id for handler in handlers] == ['fn-2']


@pytest.mark.guarantee('FND-021')
def test_numbers_are_given_for_each_resource_alone(registry):
    one, two = build_functions(2)
    kopf.on.create('kopfexamples', id='fn', registry=registry)(one)
    kopf.on.create('pods', id='fn', registry=registry)(two)

    assert [handler.id for handler in registry._changing.select(EXAMPLES)] == ['fn']
    assert [handler.id for handler in registry._changing.select(PODS)] == ['fn']


@pytest.mark.guarantee('FND-021')
def test_daemons_and_timers_of_one_id_have_numbers(registry):
    one, two = build_functions(2)
    kopf.daemon('kopfexamples', id='fn', registry=registry)(one)
    kopf.timer('kopfexamples', id='fn', interval=1, registry=registry)(two)
    kopf.on.event('kopfexamples', id='fn', registry=registry)(one)
    kopf.on.event('kopfexamples', id='fn', registry=registry)(two)
    kopf.index('kopfexamples', id='fn', registry=registry)(one)
    kopf.index('kopfexamples', id='fn', registry=registry)(two)

    assert [handler.id for handler in registry._spawning.select(EXAMPLES)] == ['fn', 'fn-2']
    assert [handler.id for handler in registry._watching.select(EXAMPLES)] == ['fn', 'fn']
    assert [handler.id for handler in registry._indexing.select(EXAMPLES)] == ['fn', 'fn']


@pytest.mark.guarantee('FND-021')
def test_activities_of_one_id_stay_in_their_order(registry):
    one, two, three = build_functions(3)
    for fn, id in [(one, 'fn'), (two, 'other'), (three, 'fn'), (one, 'fn')]:
        kopf.on.startup(id=id, registry=registry)(fn)
    kopf.on.cleanup(id='fn', registry=registry)(two)

    startup, cleanup = (
        registry._activities.select('startup'),
        registry._activities.select('cleanup'),
    )
    assert [(handler.id, handler.fn) for handler in startup] == [
        ('fn', one),
        ('other', two),
        ('fn-2', three),
    ]
    assert [(handler.id, handler.fn) for handler in cleanup] == [('fn', two)]


@pytest.mark.guarantee('FND-021')
def test_places_of_namesakes_are_known(registry):
    one, two = build_functions(1)[0], lambda **_: None
    kopf.on.create('kopfexamples', id='fn', registry=registry)(one)
    kopf.on.create('kopfexamples', id='fn', registry=registry)(functools.partial(two, x=1))
    kopf.on.create('kopfexamples', id='other', registry=registry)(one)

    assert registry._changing.find_namesakes(EXAMPLES) == {
        'fn': {
            'fn': f'{__file__}:{one.__code__.co_firstlineno}',
            'fn-2': f'{__file__}:{two.__code__.co_firstlineno}',
        }
    }
    assert registry._changing.find_namesakes(PODS) == {}
