"""
The ends of two runs are compared by what matters: not by identifiers, versions and times.
"""

import pytest

from kopf._kits.chaos import states


def build(
    name='one', kind='Thing', namespace='default', *, uid='u1', spec=None, status=None, **metadata
):
    meta = {
        'name': name,
        'namespace': namespace,
        'uid': uid,
        'resourceVersion': uid,
        'generation': len(uid),
        'creationTimestamp': f'2020-{uid}',
        'managedFields': [uid],
        **metadata,
    }
    return {
        'apiVersion': 'v1',
        'kind': kind,
        'metadata': meta,
        **({} if spec is None else {'spec': spec}),
        **({} if status is None else {'status': status}),
    }


def compare(expected, actual, *ignore):
    blindness = states.Blindness(ignore)
    return states.compare_states(
        states.build_state(expected, blindness), states.build_state(actual, blindness)
    )


@pytest.mark.parametrize(
    'expected, actual',
    [
        pytest.param([build(uid='u1')], [build(uid='u22')], id='volatile-metadata'),
        pytest.param(
            [build('p', uid='u1'), build('c', uid='u2', ownerReferences=[{'uid': 'u1'}])],
            [build('p', uid='u3'), build('c', uid='u4', ownerReferences=[{'uid': 'u3'}])],
            id='owners',
        ),
        pytest.param(
            [build('x-1', generateName='x-'), build('x-2', generateName='x-', spec={'a': 1})],
            [build('x-3', generateName='x-', spec={'a': 1}), build('x-4', generateName='x-')],
            id='generated',
        ),
        pytest.param(
            [build()],
            [build(), build('event', 'Event'), build('lease', 'Lease')],
            id='ignored-kinds',
        ),
        pytest.param(
            [build(deletionTimestamp='1')], [build(deletionTimestamp='2')], id='times-of-deletion'
        ),
    ],
)
def test_same_ends_have_no_differences(expected, actual):
    assert compare(expected, actual) == []


@pytest.mark.parametrize(
    'expected, actual, differences',
    [
        pytest.param([build()], [], ['Thing default/one: is absent, not there'], id='absent'),
        pytest.param([], [build()], ['Thing default/one: is there, not absent'], id='present'),
        pytest.param(
            [build(namespace='')], [], ['Thing one: is absent, not there'], id='cluster-wide'
        ),
        pytest.param(
            [build(spec={'a': {'b': 1}})],
            [build(spec={'a': {'b': 2}})],
            ['Thing default/one: spec.a.b is 2, not 1'],
            id='field',
        ),
        pytest.param(
            [build(spec={'a': 1})],
            [build()],
            ['Thing default/one: spec is absent, not {"a": 1}'],
            id='section',
        ),
        pytest.param(
            [build()],
            [build(deletionTimestamp='1')],
            ['Thing default/one: metadata.deletionTimestamp is "some time ago", not absent'],
            id='stuck',
        ),
        pytest.param(
            [build('x-1', generateName='x-')],
            [build('x-2', generateName='x-'), build('x-3', generateName='x-')],
            ['Thing default/x-*: is 2 times there, not there'],
            id='twice',
        ),
        pytest.param(
            [build('x-1', generateName='x-'), build('x-2', generateName='x-')],
            [build('x-3', generateName='x-'), build('x-4', generateName='x-', spec={'a': 1})],
            ['Thing default/x-*: some of 2 are different'],
            id='one-of-many',
        ),
    ],
)
def test_differences_are_told_in_words(expected, actual, differences):
    assert compare(expected, actual) == differences


@pytest.mark.parametrize(
    'ignored, count',
    [
        pytest.param('status.since', 1, id='field'),
        pytest.param('status', 0, id='section'),
        pytest.param('Thing.status', 0, id='section-of-the-kind'),
        pytest.param('Other.status', 2, id='section-of-another-kind'),
    ],
)
def test_fields_are_ignored_on_demand(ignored, count):
    expected, actual = [build(status={'since': 1, 'x': 1})], [build(status={'since': 2, 'x': 2})]

    assert len(compare(expected, actual, ignored)) == count
