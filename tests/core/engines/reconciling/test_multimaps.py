"""
Multimaps: the same as dicts of sets, with less memory.
"""

import sys

import hypothesis
import hypothesis.strategies as st

from kopf._core.engines.reconciling import multimaps

KEYS = st.sampled_from('abc')
VALUES = st.sampled_from('xyz')


@hypothesis.given(steps=st.lists(st.tuples(st.booleans(), KEYS, VALUES)))
def test_multimap_is_as_a_dict_of_sets(steps):
    multimap, model = multimaps.Multimap(), {}

    for is_added, key, value in steps:
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


def test_single_values_are_kept_without_sets():
    one, two = multimaps.Multimap(), multimaps.Multimap()
    for multimap in (one, two):
        multimap.add('key', 'value')
    two.add('key', 'another')

    sizes = [sys.getsizeof(multimap._items['key']) for multimap in (one, two)]

    assert sizes[0] < 100 < sizes[1]
