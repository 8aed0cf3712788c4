"""
Multimaps: the same as dicts of sets, with less memory.
"""

import sys

import hypothesis
import hypothesis.strategies as st
import pytest

from kopf._core.engines.reconciling import multimaps

KEYS = st.sampled_from('abc')
VALUES = st.sampled_from('xyz')
MANY_VALUES = st.sampled_from(range(multimaps.FEW + 3))


@pytest.mark.parametrize('values', [VALUES, MANY_VALUES], ids=['few', 'many'])
@hypothesis.given(chance=st.data())
def test_multimap_is_as_a_dict_of_sets(values, chance):
    multimap, model = multimaps.Multimap(), {}
    steps = st.lists(st.tuples(st.sampled_from([True, True, False]), KEYS, values), max_size=60)

    for is_added, key, value in chance.draw(steps):
        if is_added:
            multimap.add(key, value)
            model.setdefault(key, set()).add(value)
        else:
            multimap.discard(key, value)
            model.get(key, set()).discard(value)

    assert {key: sorted(multimap[key]) for key in 'abc'} == {
        key: sorted(model.get(key, ())) for key in 'abc'
    }
    assert len(multimap) == sum(bool(values) for values in model.values())


@pytest.mark.parametrize('count', [multimaps.FEW - 1, multimaps.FEW, multimaps.FEW + 1, 1_000])
def test_values_are_the_same_in_any_number(count):
    multimap = multimaps.Multimap()
    for _ in range(2):
        for value in range(count):
            multimap.add('key', value)

    found = sorted(multimap['key'])
    for value in range(1, count):
        multimap.discard('key', value)

    assert found == [*range(count)]
    assert multimap['key'] == (0,)


@hypothesis.given(steps=st.lists(st.tuples(VALUES, st.lists(KEYS, unique=True))))
def test_bimap_knows_the_keys_of_sources_and_the_sources_of_keys(steps):
    bimap, model = multimaps.Bimap(), {}

    for source, keys in steps:
        bimap.set(source, keys)
        model[source] = keys

    assert {source: [*bimap.get_keys(source)] for source in 'xyz'} == {
        source: model.get(source, []) for source in 'xyz'
    }
    assert {key: sorted(bimap.get_sources(key)) for key in 'abc'} == {
        key: sorted(source for source, keys in model.items() if key in keys) for key in 'abc'
    }


def test_single_and_few_values_are_kept_without_sets():
    sizes = []
    for count in (1, 3, 100):
        multimap = multimaps.Multimap()
        for value in range(count):
            multimap.add('key', str(value))
        sizes.append(sys.getsizeof(multimap._items['key']))

    assert sizes[0] < sizes[1] < 100 < sizes[2]
