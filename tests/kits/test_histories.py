"""
Histories of work: which spans overlap.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf.testing import Span, find_overlaps


@pytest.mark.guarantee('LDR-005')
@pytest.mark.parametrize(
    'spans, expected',
    [
        pytest.param([], [], id='nothing'),
        pytest.param([Span('a', 'x', 1, 3), Span('b', 'x', 2, 4)], [(0, 1)], id='overlapping'),
        pytest.param([Span('b', 'x', 2, 4), Span('a', 'x', 1, 3)], [(1, 0)], id='unordered'),
        pytest.param([Span('a', 'x', 1, 2), Span('b', 'x', 2, 4)], [], id='touching'),
        pytest.param([Span('a', 'x', 1, 3), Span('b', 'y', 2, 4)], [], id='other-subjects'),
        pytest.param([Span('a', 'x', 1, 3), Span('a', 'x', 2, 4)], [], id='same-actor'),
        pytest.param([Span('a', 'x', 1), Span('b', 'x', 9, 9.5)], [(0, 1)], id='unfinished'),
        pytest.param(
            [Span('a', 'x', 1, 9), Span('b', 'x', 2, 3), Span('c', 'x', 4, 5)],
            [(0, 1), (0, 2)],
            id='long-one',
        ),
    ],
)
def test_overlaps_are_between_actors_on_one_subject(spans, expected):
    assert find_overlaps(spans) == [(spans[one], spans[two]) for one, two in expected]


@pytest.mark.guarantee('LDR-005')
@given(
    st.lists(
        st.builds(
            lambda actor, subject, start, length: Span(actor, subject, start, start + length),
            st.sampled_from('ab'),
            st.sampled_from('xy'),
            st.integers(0, 9),
            st.integers(1, 5),
        ),
        max_size=10,
    )
)
def test_all_overlaps_are_found(spans):
    expected = {
        frozenset({id(one), id(two)})
        for one in spans
        for two in spans
        if one.actor != two.actor and one.subject == two.subject
        if one.start < two.end and two.start < one.end
    }

    assert {frozenset({id(one), id(two)}) for one, two in find_overlaps(spans)} == expected
