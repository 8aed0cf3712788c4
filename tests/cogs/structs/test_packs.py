"""
Objects as bytes: nothing is lost but the managed fields of others.
"""

import hypothesis
import hypothesis.strategies as st
import pytest

from kopf._cogs.structs import packs

TEXT = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXT, values, max_size=3),
    max_leaves=5,
)
BODIES = st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=4)


def build_object(number):
    return {
        'apiVersion': 'apps/v1',
        'kind': 'StatefulSet',
        'metadata': {'name': f'name-{number}', 'labels': {'app': f'app-{number}'}},
        'spec': {'replicas': number, 'template': {'spec': {'containers': [{'image': 'x' * 500}]}}},
    }


@hypothesis.settings(max_examples=50)
@hypothesis.given(bodies=BODIES)
@pytest.mark.parametrize('threshold', [0, 2, 100])
def test_unpacked_objects_are_as_they_were(bodies, threshold):
    packer = packs.Packer(threshold=threshold)

    packed = [packer.pack(body, count) for count, body in enumerate(bodies)]

    assert [packer.unpack(each) for each in packed] == bodies


def test_objects_are_compressed_when_there_are_many_of_them():
    packer = packs.Packer(threshold=2)

    sizes = [len(packer.pack(build_object(number), number)) for number in range(4)]

    assert min(sizes[:2]) > 500
    assert max(sizes[2:]) < 100


def test_unusual_first_object_does_not_prevent_the_compression():
    packer = packs.Packer(threshold=2)
    packer.pack({'metadata': {'name': 'unusual'}})

    sizes = [len(packer.pack(build_object(number), number)) for number in range(1, 4)]

    assert sizes[0] > 500
    assert sizes[1] < 100
    assert sizes[2] < 100


def test_objects_of_a_packer_with_many_objects_can_be_unpacked_in_any_order():
    packer = packs.Packer(threshold=1)
    packed = [packer.pack(build_object(number), number) for number in range(4)]

    unpacked = [packer.unpack(each) for each in reversed(packed)]

    assert unpacked == [build_object(number) for number in (3, 2, 1, 0)]


def test_every_unpacking_makes_a_new_object():
    packer = packs.Packer()
    packed = packer.pack(build_object(1))

    packer.unpack(packed)['spec']['replicas'] = 100

    assert packer.unpack(packed) == build_object(1)


def test_too_deep_objects_are_refused():
    body = {}
    for _ in range(100_000):
        body = {'x': body}

    with pytest.raises(ValueError):
        packs.Packer().pack(body)


OURS = {'manager': 'us', 'operation': 'Apply', 'fieldsV1': {'f:spec': {}}}


@pytest.mark.parametrize(
    'metadata, expected',
    [
        pytest.param({'name': 'x'}, {'name': 'x'}, id='none'),
        pytest.param({'name': 'x', 'managedFields': None}, {'name': 'x'}, id='null'),
        pytest.param({'name': 'x', 'managedFields': []}, {'name': 'x'}, id='empty'),
        pytest.param({'managedFields': [OURS]}, {'managedFields': [OURS]}, id='ours'),
        pytest.param({'managedFields': [{**OURS, 'manager': 'they'}]}, {}, id='others'),
        pytest.param({'managedFields': [{**OURS, 'operation': 'Update'}]}, {}, id='updated'),
        pytest.param({'managedFields': ['junk', 5]}, {}, id='junk'),
        pytest.param(
            {'managedFields': [{**OURS, 'manager': 'they'}, OURS]},
            {'managedFields': [OURS]},
            id='mixed',
        ),
    ],
)
def test_only_fields_applied_by_our_manager_are_kept(metadata, expected):
    packer = packs.Packer(manager='us')
    body = {'metadata': metadata}

    unpacked = packer.unpack(packer.pack(body))

    assert unpacked == {'metadata': expected}
    assert body == {'metadata': metadata}


def test_objects_without_metadata_are_packed_as_they_are():
    packer = packs.Packer(manager='us')

    assert packer.unpack(packer.pack({'metadata': None, 'x': 1})) == {'metadata': None, 'x': 1}
