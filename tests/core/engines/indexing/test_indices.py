"""
Indices as users see them, and as they are updated.
"""

import collections.abc
import threading

import hypothesis
import hypothesis.strategies as st
import pytest

import kopf
from kopf._core.engines.indexing import indexers, indices


@pytest.fixture
def index():
    return indices.LiveIndex()


def show(index):
    return {key: sorted(store, key=repr) for key, store in index.items()}


@pytest.mark.guarantee('IDX-006', 'IDX-009')
def test_empty_index_is_a_mapping_with_nothing_in_it(index):
    assert isinstance(index, kopf.Index)
    assert isinstance(index, collections.abc.Mapping)
    assert not isinstance(index, collections.abc.MutableMapping)
    assert (len(index), bool(index), list(index), 'key' in index) == (0, False, [], False)
    assert index.get('key', []) == []


@pytest.mark.guarantee('IDX-006', 'IDX-008')
def test_index_is_a_read_only_mapping_of_stores(index):
    index.replace('obj1', {'key1': 'valueA', 'key2': 'valueB'})

    assert isinstance(index['key1'], kopf.Store)
    assert isinstance(index['key1'], collections.abc.Collection)
    assert (len(index), bool(index), list(index), 'key1' in index) == (
        2,
        True,
        ['key1', 'key2'],
        True,
    )
    assert list(index.get('key1', [])) == ['valueA']
    assert list(index.keys()) == ['key1', 'key2']
    assert [list(store) for store in index.values()] == [['valueA'], ['valueB']]
    assert (len(index.items()), len(index.values())) == (2, 2)
    with pytest.raises(TypeError):
        index['key1'] = ['valueC']
    with pytest.raises(TypeError):
        del index['key1']


@pytest.mark.guarantee('IDX-007')
def test_missing_keys_are_errors(index):
    index.replace('obj1', {'key1': 'valueA'})

    with pytest.raises(KeyError):
        index['key2']


@pytest.mark.guarantee('IDX-008')
def test_stores_are_collections(index):
    index.replace('obj1', {'key1': 'valueA'})
    index.replace('obj2', {'key1': 'valueB'})

    store = index['key1']
    value, *_ = store

    assert value in ('valueA', 'valueB')
    assert sorted(store) == ['valueA', 'valueB']
    assert list(store) == [*store]
    assert (len(store), bool(store), 'valueA' in store, 'valueC' in store) == (2, True, True, False)
    with pytest.raises(TypeError):
        store[0] = 'valueC'


@pytest.mark.guarantee('IDX-010', 'IDX-011', 'IDX-012')
@pytest.mark.parametrize(
    'results, expected',
    [
        pytest.param(
            [{'key1': 'valueA'}, {'key1': 'valueB'}, {'key2': 'valueC'}],
            {'key1': ['valueA', 'valueB'], 'key2': ['valueC']},
            id='accumulated',
        ),
        pytest.param([{'key2': {'key3': 'valueC'}}], {'key2': [{'key3': 'valueC'}]}, id='nested'),
        pytest.param(
            [{'key1': 'same'}, {'key1': 'same'}], {'key1': ['same', 'same']}, id='not-deduplicated'
        ),
    ],
)
def test_values_of_several_objects(index, results, expected):
    for number, result in enumerate(results):
        index.replace(number, indexers.spread(result))

    assert show(index) == expected


@pytest.mark.guarantee('IDX-013', 'IDX-014', 'IDX-015', 'IDX-016', 'IDX-017', 'IDX-020')
@pytest.mark.parametrize(
    'result, expected',
    [
        pytest.param({'key1': 'a', 'key2': 'b'}, {'key1': ['a'], 'key2': ['b']}, id='dict'),
        pytest.param({('ns', 'name'): 'hello'}, {('ns', 'name'): ['hello']}, id='tuples-as-keys'),
        pytest.param({'key': None}, {'key': [None]}, id='nothing-as-value'),
        pytest.param({}, {}, id='empty-dict'),
        pytest.param(kopf.Memo(key='a'), {None: [kopf.Memo(key='a')]}, id='memo'),
        pytest.param(collections.OrderedDict(key='a'), {None: [{'key': 'a'}]}, id='other-dict'),
        pytest.param(('ns', 'name'), {None: [('ns', 'name')]}, id='tuple'),
        pytest.param({'x', 'y'}, {None: [{'x', 'y'}]}, id='set'),
        pytest.param(['x', 'y'], {None: [['x', 'y']]}, id='list'),
        pytest.param('text', {None: ['text']}, id='string'),
        pytest.param(0, {None: [0]}, id='number'),
        pytest.param(False, {None: [False]}, id='boolean'),
    ],
)
def test_results_become_values(index, result, expected):
    index.replace('obj1', indexers.spread(result))

    assert show(index) == expected


@pytest.mark.guarantee('IDX-004', 'IDX-005')
@pytest.mark.parametrize(
    'values, expected',
    [
        pytest.param({'key1': 'new'}, {'key1': ['new', 'other']}, id='same-key'),
        pytest.param({'key3': 'new'}, {'key1': ['other'], 'key3': ['new']}, id='other-key'),
        pytest.param({}, {'key1': ['other']}, id='no-keys'),
    ],
)
def test_new_values_replace_all_former_ones_of_the_object(index, values, expected):
    index.replace('obj1', {'key1': 'old', 'key2': 'old'})
    index.replace('obj2', {'key1': 'other'})

    index.replace('obj1', values)

    assert show(index) == expected


@pytest.mark.guarantee('IDX-005')
def test_keys_go_with_their_last_values(index):
    index.replace('obj1', {'key1': 'a', 'key2': 'b'})
    index.replace('obj2', {'key1': 'c'})

    index.discard('obj1')
    index.discard('obj1')
    index.discard('unknown')

    assert show(index) == {'key1': ['c']}


@pytest.mark.guarantee('WLD-009')
def test_iteration_goes_on_while_the_index_is_updated(index):
    for number in range(3):
        index.replace(number, {number: 'old', 'all': number})

    seen = []
    for key, store in index.items():
        index.discard(1)
        index.replace(3, {3: 'new', 'all': 3})
        seen.append((key, list(store)))

    assert seen == [(0, ['old']), ('all', [0, 2, 3]), (2, ['old'])]


@pytest.mark.guarantee('WLD-009')
def test_iteration_over_a_store_sees_one_moment(index):
    for number in range(3):
        index.replace(number, {'all': number})

    seen = []
    for value in index['all']:
        index.discard(2)
        index.replace(3, {'all': 3})
        seen.append(value)

    assert seen == [0, 1, 2]
    assert list(index['all']) == [0, 1, 3]


@pytest.mark.guarantee('WLD-009', 'IDX-033')
def test_other_threads_can_read_it_while_it_is_updated(index):
    is_over, lengths, errors = threading.Event(), [], []

    def read():
        try:
            while not is_over.is_set() or not lengths:
                lengths.append(sum(len(list(store)) for _, store in index.items()))
                repr(index)
        except Exception as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(3000):
        index.replace(number % 7, {number % 11: number, None: number})
        index.discard((number + 3) % 7)
    is_over.set()
    reader.join()

    assert errors == []
    assert max(lengths) <= 14


sources, keys = (
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(0, 3), st.tuples(st.integers(0, 1))),
)
updates = st.tuples(sources, st.one_of(st.none(), st.dictionaries(keys, st.integers(0, 3))))


@pytest.mark.guarantee('IDX-004', 'IDX-005', 'IDX-010', 'IDX-012', 'IDX-016')
@hypothesis.given(st.lists(updates))
def test_index_is_the_same_as_a_naive_one(steps):
    index, model = indices.LiveIndex(), {}
    for source, values in steps:
        if values is None:
            index.discard(source)
            model.pop(source, None)
        else:
            index.replace(source, values)
            model[source] = values

        expected = {}
        for mapping in model.values():
            for key, value in mapping.items():
                expected.setdefault(key, []).append(value)
        assert show(index) == {key: sorted(values, key=repr) for key, values in expected.items()}
        assert len(index) == len(expected)


class CountedKey:
    """A key that counts how often it is looked at."""

    looks = 0

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        CountedKey.looks += 1
        return hash(self.number)

    def __eq__(self, other):
        CountedKey.looks += 1
        return self.number == other.number


@pytest.mark.guarantee('IDX-034')
@pytest.mark.parametrize(
    'act',
    [
        pytest.param(lambda index, key: index[key], id='lookup'),
        pytest.param(lambda index, key: index.replace(0, {key: 'new'}), id='update'),
        pytest.param(lambda index, key: index.discard(0), id='removal'),
    ],
)
def test_work_does_not_grow_with_the_index(act):
    looks = []
    for total in [10, 10_000]:
        index = indices.LiveIndex()
        for number in range(total):
            index.replace(number, {CountedKey(number): number})
        key = CountedKey(0)
        CountedKey.looks = 0
        act(index, key)
        looks.append(CountedKey.looks)

    assert looks[1] <= looks[0] + 4


@pytest.mark.guarantee('IDX-034')
def test_no_store_is_walked_over_by_an_update(index):
    class Value:
        def __eq__(self, other):
            raise AssertionError('Values are not to be compared.')

        __hash__ = None

    for number in range(1000):
        index.replace(number, {None: Value()})

    index.replace(500, {None: Value()})
    index.discard(500)

    assert len(index[None]) == 999
