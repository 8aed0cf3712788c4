"""
Who of the operators gives way to whom, and what is told of each other in the peering objects.
"""

import datetime
import getpass
import math
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._cogs.structs import references
from kopf._core.engines.peering import ranking
from kopf._core.engines.peering.ranking import Peer, Rank, Record

TODAY = datetime.datetime(2026, 11, 16, 12, 0, 0, tzinfo=datetime.UTC)
NOW = 1000.0  # the same moment by the clock of the loop


def before(seconds):
    return TODAY - datetime.timedelta(seconds=seconds)


@pytest.mark.guarantee('NEW-218')
def test_identity_is_of_the_pod_if_it_is_known():
    identity = ranking.detect_identity(environ={'POD_ID': 'my-pod'}, now=TODAY, tail='abc')

    assert identity == 'my-pod'


@pytest.mark.guarantee('NEW-218')
@pytest.mark.parametrize('environ', [{}, {'POD_ID': ''}], ids=['absent', 'empty'])
def test_identity_is_made_of_the_user_and_host_and_time_otherwise(environ):
    identity = ranking.detect_identity(environ=environ, now=TODAY, tail='abc')

    assert identity == f'{getpass.getuser()}@{socket.gethostname()}/20261116120000/abc'


@pytest.mark.guarantee('NEW-218')
def test_people_are_known_by_their_names_and_hosts(monkeypatch):
    monkeypatch.setenv('POD_ID', 'my-pod')

    assert ranking.detect_user() == f'{getpass.getuser()}@{socket.gethostname()}'


@pytest.mark.guarantee('NEW-215')
@pytest.mark.parametrize(
    'raw, expected',
    [
        pytest.param(
            {'priority': 5, 'lifetime': 10, 'lastseen': '2026-11-16T12:00:00.5+00:00'},
            Record(5, 10, TODAY + datetime.timedelta(seconds=0.5)),
            id='usual',
        ),
        pytest.param({}, Record(0, 60, None), id='empty'),
        pytest.param({'priority': 5, 'whatever': [1]}, Record(5, 60, None), id='unknown-key'),
        pytest.param(
            {'priority': None, 'lifetime': None, 'lastseen': None}, Record(0, 60, None), id='nulls'
        ),
        pytest.param(
            {'priority': [], 'lifetime': {}, 'lastseen': 5}, Record(0, 60, None), id='wrong-types'
        ),
        pytest.param(
            {'priority': 'x', 'lifetime': 'y', 'lastseen': 'z'},
            Record(0, 60, None),
            id='wrong-texts',
        ),
        pytest.param(
            {'priority': '5', 'lifetime': '10'}, Record(5, 10, None), id='numbers-as-texts'
        ),
        pytest.param({'priority': 5.9, 'lifetime': 10.9}, Record(5, 10, None), id='fractions'),
        pytest.param(
            {'priority': math.inf, 'lifetime': math.nan}, Record(0, 60, None), id='no-numbers'
        ),
        pytest.param(
            {'priority': 10**30, 'lifetime': 10**30}, Record(2**53, 600, None), id='too-much'
        ),
        pytest.param({'priority': 10**9, 'lifetime': 10**9}, Record(10**9, 600, None), id='much'),
        pytest.param({'priority': -(10**30)}, Record(-(2**53), 60, None), id='too-little'),
        pytest.param({'priority': True, 'lifetime': True}, Record(0, 60, None), id='booleans'),
        pytest.param(
            {'priority': '9' * 5000, 'lifetime': '9' * 5000}, Record(0, 60, None), id='too-long'
        ),
        pytest.param({'priority': -5, 'lifetime': -5}, Record(-5, 0, None), id='negative'),
        pytest.param({'lastseen': '2026-11-16T12:00:00'}, Record(lastseen=TODAY), id='no-offset'),
        pytest.param({'lastseen': '2026-11-16T12:00:00Z'}, Record(lastseen=TODAY), id='zulu'),
        pytest.param(
            {'lastseen': '2026-11-16T13:00:00+01:00'}, Record(lastseen=TODAY), id='offset'
        ),
        pytest.param({'lastseen': '0001-01-01T00:00:00+23:59'}, Record(), id='before-all-times'),
        pytest.param({'message': 'why'}, Record(message='why'), id='message'),
        pytest.param({'message': {}}, Record(), id='wrong-message'),
    ],
)
def test_records_are_understood_as_far_as_possible(raw, expected):
    assert ranking.parse_record(raw) == expected


@pytest.mark.guarantee('NEW-215')
@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param(None, {}, id='no-object'),
        pytest.param({}, {}, id='no-status'),
        pytest.param({'status': None}, {}, id='null'),
        pytest.param({'status': 'text'}, {}, id='text'),
        pytest.param({'status': ['x']}, {}, id='list'),
        pytest.param(
            {'status': {'a': None, 'b': 'text', 'c': ['x'], 'd': 5, 'e': {}}},
            {'e': Record()},
            id='mixture',
        ),
    ],
)
def test_records_are_found_among_anything(body, expected):
    assert ranking.parse_records(body) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
FIELDS = st.dictionaries(
    st.sampled_from(['priority', 'lifetime', 'lastseen', 'message', 'x']), JSON
)


@pytest.mark.guarantee('NEW-215')
@given(st.one_of(JSON, st.dictionaries(st.text(), FIELDS | JSON)))
def test_no_records_can_break_the_decision(status):
    records = ranking.parse_records({'status': status})
    known = ranking.update_peers({}, records, now=NOW, today=TODAY)
    known = ranking.update_peers(known, records, now=NOW + 10, today=TODAY)
    decision = ranking.decide(known, Rank(ranking.Identity('me'), 0), now=NOW + 10)

    assert len(decision.superiors) + len(decision.equals) + len(decision.dead) <= len(records)


@pytest.mark.guarantee('NEW-215')
def test_records_are_written_as_they_are_read():
    record = Record(5, 60, TODAY, message='why')

    assert record.as_raw() == {
        'priority': 5,
        'lifetime': 60,
        'lastseen': '2026-11-16T12:00:00+00:00',
        'message': 'why',
    }
    assert ranking.parse_record(record.as_raw()) == record
    assert set(Record(5, 60, TODAY).as_raw()) == {'priority', 'lifetime', 'lastseen'}


@pytest.mark.guarantee('NEW-216', 'PEE-022')
@pytest.mark.parametrize(
    'known, record, deadline',
    [
        pytest.param(None, Record(0, 60, before(0)), NOW + 60, id='fresh'),
        pytest.param(None, Record(0, 60, before(50)), NOW + 10, id='old'),
        pytest.param(None, Record(0, 60, before(70)), NOW - 10, id='dead'),
        pytest.param(None, Record(0, 60, before(-70)), NOW + 60, id='from-the-future'),
        pytest.param(None, Record(0, 60, None), NOW + 60, id='timeless'),
        pytest.param(
            (Record(0, 60, before(50)), NOW + 10),
            Record(0, 60, before(50)),
            NOW + 10,
            id='unchanged',
        ),
        pytest.param(
            (Record(0, 60, None), NOW + 10),
            Record(0, 60, None),
            NOW + 10,
            id='unchanged-and-timeless',
        ),
        pytest.param(
            (Record(0, 60, before(50)), NOW + 10),
            Record(5, 60, before(50)),
            NOW + 10,
            id='another-priority',
        ),
        pytest.param(
            (Record(0, 60, before(50)), NOW + 10),
            Record(0, 90, before(50)),
            NOW + 40,
            id='another-lifetime',
        ),
        pytest.param(
            (Record(0, 60, before(50)), NOW + 10), Record(0, 60, before(0)), NOW + 60, id='renewed'
        ),
        pytest.param(
            (Record(0, 60, before(999)), NOW - 939),
            Record(0, 60, before(900)),
            NOW + 60,
            id='slow-clock',
        ),
        pytest.param(
            (Record(0, 60, before(-900)), NOW + 10),
            Record(0, 60, before(-999)),
            NOW + 60,
            id='fast-clock',
        ),
        pytest.param(
            (Record(0, 60, before(0)), NOW + 60),
            Record(0, 60, before(999)),
            NOW - 939,
            id='turned-back',
        ),
    ],
)
def test_the_dead_are_told_from_the_alive(known, record, deadline):
    peer = known and Peer(ranking.Identity('x'), *known)

    updated = ranking.update_peer(peer, ranking.Identity('x'), record, now=NOW, today=TODAY)

    assert updated == Peer(ranking.Identity('x'), record, deadline)


def test_vanished_operators_are_remembered_for_some_time():
    known = {'x': Peer('x', Record(), NOW), 'y': Peer('y', Record(), NOW - 10_000)}

    updated = ranking.update_peers(known, {'z': Record(5)}, now=NOW, today=TODAY)

    assert {name: peer.is_present for name, peer in updated.items()} == {'x': False, 'z': True}
    assert ranking.decide(updated, Rank('me', 0), now=NOW).dead == []


def build_peers(**specs):
    """Build peers by their priorities and the seconds that they have to live."""
    return {
        name: Peer(name, Record(priority), NOW + seconds)
        for name, (priority, seconds) in specs.items()
    }


@pytest.mark.guarantee('PEE-007', 'PEE-008', 'PEE-009', 'PEE-026', 'PEE-027', 'NEW-212', 'NEW-216')
@pytest.mark.parametrize(
    'others, is_sharded, superiors, equals, dead',
    [
        pytest.param({}, False, '', '', '', id='alone'),
        pytest.param({'a': (6, 10)}, False, 'a', '', '', id='higher'),
        pytest.param({'a': (4, 10)}, False, '', '', '', id='lower'),
        pytest.param({'a': (5, 10)}, False, '', 'a', '', id='same'),
        pytest.param({'a': (5, 10)}, True, '', '', '', id='same-in-shards'),
        pytest.param({'a': (6, 10)}, True, 'a', '', '', id='higher-in-shards'),
        pytest.param({'a': (6, 0)}, False, '', '', 'a', id='higher-but-dead'),
        pytest.param({'a': (5, -1)}, False, '', '', 'a', id='same-but-dead'),
        pytest.param({'me': (9, 10)}, False, '', '', '', id='myself'),
        pytest.param({'me': (9, -10)}, False, '', '', '', id='myself-long-ago'),
        pytest.param(
            {'a': (6, 1), 'b': (9, 1), 'c': (5, 1), 'd': (4, 1), 'e': (9, 0), 'me': (9, 9)},
            False,
            'ab',
            'c',
            'e',
            id='many',
        ),
        pytest.param(
            {'a': (3232235777, 10), 'b': (-(10**12), 10)}, False, 'a', '', '', id='any-integers'
        ),
    ],
)
def test_operators_give_way_by_priorities(others, is_sharded, superiors, equals, dead):
    decision = ranking.decide(build_peers(**others), Rank('me', 5, is_sharded), now=NOW)

    assert ''.join(peer.identity for peer in decision.superiors) == superiors
    assert ''.join(peer.identity for peer in decision.equals) == equals
    assert ''.join(peer.identity for peer in decision.dead) == dead
    assert decision.is_pausing is bool(superiors or equals)


@pytest.mark.guarantee('PEE-012')
@given(st.dictionaries(st.sampled_from('abcdef'), st.integers(), min_size=1))
def test_exactly_one_of_those_with_distinct_priorities_is_active(priorities):
    priorities = {
        name: priority
        for name, priority in priorities.items()
        if list(priorities.values()).count(priority) == 1
    }
    known = build_peers(**{name: (priority, 10) for name, priority in priorities.items()})

    active = [
        name
        for name, priority in priorities.items()
        if not ranking.decide(known, Rank(name, priority), now=NOW).is_pausing
    ]

    assert active == [
        name for name, priority in priorities.items() if priority == max(priorities.values())
    ]


@pytest.mark.guarantee('PEE-022')
@pytest.mark.parametrize(
    'others, deadline',
    [
        pytest.param({}, math.inf, id='alone'),
        pytest.param({'a': (6, 10), 'b': (7, 5)}, NOW + 5, id='the-nearest'),
        pytest.param({'a': (6, 10), 'b': (1, 5)}, NOW + 5, id='whoever-they-are'),
        pytest.param({'a': (6, 10), 'b': (7, -5)}, NOW + 10, id='not-the-dead'),
        pytest.param({'a': (6, 10), 'me': (5, 5)}, NOW + 10, id='not-myself'),
    ],
)
def test_it_is_decided_anew_when_anyone_dies(others, deadline):
    assert ranking.decide(build_peers(**others), Rank('me', 5), now=NOW).deadline == deadline


@pytest.mark.guarantee('NEW-217', 'PEE-021')
@pytest.mark.parametrize(
    'lifetime, chance, interval',
    [
        (60, 0, 55),
        (60, 1, 50),
        (60, 0.5, 52.5),
        (10, 0, 5),
        (10, 1, 1),
        (5, 0, 1),
        (1, 0.5, 1),
        (0, 0, 1),
    ],
)
def test_records_are_renewed_a_bit_before_their_end(lifetime, chance, interval):
    assert ranking.choose_interval(lifetime, chance) == interval


@pytest.mark.parametrize(
    'seen, expected',
    [
        pytest.param({}, False, id='absent'),
        pytest.param({'me': Record(5, 60, before(50))}, True, id='same'),
        pytest.param({'me': Record(6, 60, before(50))}, False, id='another-priority'),
        pytest.param({'me': Record(5, 90, before(50))}, False, id='another-lifetime'),
        pytest.param({'other': Record(5, 60, before(50))}, False, id='not-ours'),
    ],
)
def test_own_record_is_checked(seen, expected):
    assert ranking.is_recorded(seen, 'me', Record(5, 60, TODAY)) is expected


@pytest.mark.guarantee('NEW-216')
def test_records_are_written_and_removed_by_patches():
    dead = build_peers(a=(1, -1), me=(1, -1)).values()

    assert ranking.build_patch('me', Record(5, 60, TODAY), dead) == {
        'status': {
            'a': None,
            'me': {'priority': 5, 'lifetime': 60, 'lastseen': '2026-11-16T12:00:00+00:00'},
        }
    }
    assert ranking.build_patch('me', None) == {'status': {'me': None}}


def build_resource(group, plural, *, namespaced):
    return references.Resource(group, 'v1', plural, namespaced=namespaced)


@pytest.mark.guarantee('PEE-001', 'PEE-002', 'PEE-003', 'PEE-004')
@pytest.mark.parametrize(
    'served, clusterwide, expected',
    [
        pytest.param([], True, None, id='nothing'),
        pytest.param([('kopf.dev', 'clusterkopfpeerings', False)], True, 'kopf.dev', id='cluster'),
        pytest.param([('kopf.dev', 'clusterkopfpeerings', False)], False, None, id='only-cluster'),
        pytest.param([('kopf.dev', 'kopfpeerings', True)], False, 'kopf.dev', id='namespace'),
        pytest.param([('kopf.dev', 'kopfpeerings', True)], True, None, id='only-namespace'),
        pytest.param(
            [('zalando.org', 'clusterkopfpeerings', False)], True, 'zalando.org', id='outdated'
        ),
        pytest.param(
            [('kopf.zalando.org', 'kopfpeerings', True)],
            False,
            'kopf.zalando.org',
            id='outdated-too',
        ),
        pytest.param(
            [('zalando.org', 'kopfpeerings', True), ('kopf.dev', 'kopfpeerings', True)],
            False,
            'kopf.dev',
            id='newer-one-wins',
        ),
        pytest.param(
            [('kopf.dev', 'clusterkopfpeerings', False), ('zalando.org', 'kopfpeerings', True)],
            False,
            'zalando.org',
            id='by-scope',
        ),
        pytest.param(
            [('zalando.org', 'kopfpeerings', False)], True, None, id='cluster-scoped-kopfpeering'
        ),
        pytest.param([('zalando.org', 'kopfpeerings', False)], False, None, id='not-in-namespaces'),
        pytest.param([('example.com', 'kopfpeerings', True)], False, None, id='of-others'),
    ],
)
def test_the_resource_is_chosen_by_the_scope(served, clusterwide, expected):
    resources = [
        build_resource(group, plural, namespaced=namespaced) for group, plural, namespaced in served
    ]

    resource = ranking.select_resource(resources, clusterwide=clusterwide)

    assert (resource and resource.group) == expected


def test_operators_are_described_with_their_messages():
    assert str(Peer('x@y', Record(5), NOW)) == 'x@y (priority 5)'
    assert str(Peer('x@y', Record(5, message='why'), NOW)) == "x@y (priority 5, 'why')"
