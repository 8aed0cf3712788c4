"""
The mappings of the settings by resources: which keys they take, and what they give for a resource.
"""

import pytest

from kopf._cogs.configs import selections
from kopf._cogs.structs import references, selectors

PODS = references.Resource('', 'v1', 'pods', 'Pod', 'pod')
EXAMPLES = references.Resource('kopf.dev', 'v1', 'kopfexamples')


def is_pod(resource):
    return resource.kind == 'Pod'


@pytest.mark.guarantee('NEW-138')
@pytest.mark.parametrize(
    'key',
    [
        'pods',
        'pods.v1',
        'v1/pods',
        ('v1', 'pods'),
        ('', 'v1', 'pods'),
        references.EVERYTHING,
        ('', references.EVERYTHING),
        ('', 'v1', references.EVERYTHING),
        is_pod,
    ],
    ids=repr,
)
def test_entries_are_written_read_tested_and_deleted_by_the_same_notation(key):
    mapping = selections.Selections()

    mapping[key] = 'a=b'

    assert key in mapping
    assert mapping[key] == 'a=b'
    assert mapping.select(PODS) == ['a=b']
    del mapping[key]
    assert key not in mapping
    assert len(mapping) == 0


@pytest.mark.guarantee('NEW-138')
@pytest.mark.parametrize('key', [None, 123, ('pods',), ('a', 'b', 'c', 'd'), ['v1']], ids=repr)
def test_keys_of_wrong_types_are_refused(key):
    mapping = selections.Selections()

    with pytest.raises(TypeError):
        mapping[key] = 'a=b'
    with pytest.raises(TypeError):
        mapping[key]
    with pytest.raises(TypeError):
        del mapping[key]


@pytest.mark.guarantee('NEW-139')
def test_equal_notations_are_the_same_entry():
    mapping = selections.Selections({('v1', 'pods'): 'a=b'})

    mapping['pods.v1'] = 'c=d'

    assert list(mapping) == [selectors.Selector('', 'v1', 'pods')]
    assert mapping[('', 'v1', 'pods')] == 'c=d'
    assert mapping[next(iter(mapping))] == 'c=d'


@pytest.mark.guarantee('NEW-137')
def test_distinct_texts_of_all_matching_entries_are_joined():
    mapping = selections.Selections(
        {'pods': 'z=1', references.EVERYTHING: 'a=2', is_pod: 'z=1', 'nodes': 'x=3'}
    )

    assert mapping.join(PODS) == 'a=2,z=1'
    assert mapping.join(EXAMPLES) == 'a=2'


def test_first_defined_entry_is_given_where_one_is_needed():
    mapping = selections.Selections({'pods': 'z=1', references.EVERYTHING: 'a=2'})

    assert mapping.first(PODS) == 'z=1'
    assert mapping.first(EXAMPLES) == 'a=2'


def test_resources_with_no_entries_have_no_texts():
    mapping = selections.Selections({'nodes': 'x=1'})

    assert (mapping.join(PODS), mapping.first(PODS), mapping.select(PODS)) == (None, None, [])
