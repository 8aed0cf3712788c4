import dataclasses

import pytest

from kopf._core.actions import lifecycles, progression


@dataclasses.dataclass(frozen=True)
class Named:
    id: str


A, B, C = Named('a'), Named('b'), Named('c')


@pytest.fixture(autouse=True)
def _default_lifecycle_is_restored():
    yield
    lifecycles.set_default_lifecycle(None)


@pytest.mark.guarantee('NEW-257')
@pytest.mark.parametrize(
    'fn, expected',
    [
        pytest.param(lifecycles.all_at_once, [A, B, C], id='all-at-once'),
        pytest.param(lifecycles.one_by_one, [A], id='one-by-one'),
    ],
)
def test_handlers_are_taken_in_the_order_of_declaration(fn, expected):
    assert list(fn([A, B, C], state={}, anything='else')) == expected


@pytest.mark.guarantee('NEW-257')
def test_a_random_handler_is_taken_alone():
    taken = {tuple(lifecycles.randomized([A, B, C], state={})) for _ in range(100)}

    assert taken == {(A,), (B,), (C,)}


@pytest.mark.guarantee('NEW-257')
def test_all_handlers_are_taken_in_a_random_order():
    taken = [tuple(lifecycles.shuffled([A, B, C], state={})) for _ in range(100)]

    assert all(sorted(handlers, key=lambda handler: handler.id) == [A, B, C] for handlers in taken)
    assert len(set(taken)) > 1


@pytest.mark.guarantee('NEW-257')
@pytest.mark.parametrize(
    'retries, expected',
    [
        pytest.param({}, [A], id='none-tried'),
        pytest.param({'a': 0, 'b': 0, 'c': 0}, [A], id='equal'),
        pytest.param({'a': 2, 'b': 1, 'c': 1}, [B], id='fewer-attempts'),
        pytest.param({'a': 2, 'b': 1}, [C], id='the-only-new-one'),
    ],
)
def test_the_handler_of_the_fewest_attempts_is_taken_alone(retries, expected):
    state = {id: progression.HandlerState(retries=count) for id, count in retries.items()}

    assert list(lifecycles.asap([A, B, C], state=state)) == expected


@pytest.mark.parametrize(
    'fn',
    [
        lifecycles.all_at_once,
        lifecycles.one_by_one,
        lifecycles.randomized,
        lifecycles.shuffled,
        lifecycles.asap,
    ],
)
def test_nothing_is_taken_of_nothing(fn):
    assert list(fn([], state={})) == []


@pytest.mark.guarantee('HND-023', 'NEW-257')
def test_the_default_lifecycle_can_be_replaced_and_restored():
    original = lifecycles.get_default_lifecycle()
    lifecycles.set_default_lifecycle(lifecycles.one_by_one)
    replaced = lifecycles.get_default_lifecycle()
    lifecycles.set_default_lifecycle(None)
    restored = lifecycles.get_default_lifecycle()

    assert original is restored is lifecycles.asap
    assert replaced is lifecycles.one_by_one
