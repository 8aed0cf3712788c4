"""
What a replica does in the election, depending on what it knows of the Lease.
"""

import dataclasses
import datetime
import math

import pytest

from kopf._core.engines.leading import elections
from kopf._core.engines.leading.elections import (
    Lose,
    Observed,
    Read,
    Refusal,
    Role,
    State,
    Terms,
    Wait,
    Write,
)

TODAY = datetime.datetime(2026, 11, 16, 12, 0, 0, 5, tzinfo=datetime.UTC)
TIME = '2026-11-16T12:00:00.000005Z'
EARLIER = '2026-11-16T11:00:00.000000Z'
NOW = 1000.0


def build_spec(holder='other', *, duration=15, transitions=3, renewed=EARLIER):
    return {
        'holderIdentity': holder,
        'leaseDurationSeconds': duration,
        'acquireTime': EARLIER,
        'renewTime': renewed,
        'leaseTransitions': transitions,
    }


def follow(spec=None, *, since=NOW, **kwargs):
    """A follower that has just read the Lease."""
    state = State('me', **kwargs)
    answer = Refusal.ABSENT if spec is None else Observed('7', spec)
    return elections.react(state, Read(), answer, since=since, now=since, chance=0.0)


def lead(*, since=NOW):
    """A leader that has just taken the Lease."""
    state, spec = follow(build_spec(''), since=since), build_spec('me', transitions=4)
    write = elections.decide(state, now=since, today=TODAY)
    return elections.react(state, write, Observed('8', spec), since=since, now=since, chance=0.0)


def decide(state, now=NOW):
    return elections.decide(state, now=now, today=TODAY)


@pytest.mark.guarantee('LDR-001')
def test_the_lease_is_read_first():
    assert decide(State('me')) == Read()


@pytest.mark.guarantee('LDR-001')
@pytest.mark.parametrize(
    'spec, transitions, version',
    [
        pytest.param(None, 0, None, id='absent'),
        pytest.param({}, 1, '7', id='empty'),
        pytest.param(build_spec('', duration=1), 4, '7', id='released'),
        pytest.param(build_spec('', transitions=None), 1, '7', id='no-transitions'),
        pytest.param(build_spec('', transitions=2**31 - 1), 2**31 - 1, '7', id='most-transitions'),
    ],
)
def test_a_free_lease_is_taken_at_once_as_a_new_epoch(spec, transitions, version):
    taken = {
        'holderIdentity': 'me',
        'leaseDurationSeconds': 15,
        'acquireTime': TIME,
        'renewTime': TIME,
        'leaseTransitions': transitions,
    }

    assert decide(follow(spec)) == Write(taken, version)


@pytest.mark.guarantee('LDR-001')
def test_a_lease_with_our_identity_is_renewed_in_the_same_epoch():
    taken = {**build_spec('me', renewed=TIME), 'leaseDurationSeconds': 15}

    assert decide(follow(build_spec('me'))) == Write(taken, '7')


@pytest.mark.guarantee('LDR-001', 'LDR-002')
@pytest.mark.parametrize(
    'spec, expiry',
    [
        pytest.param(build_spec(), NOW + 15, id='usual'),
        pytest.param(build_spec(duration=60), NOW + 60, id='longer-than-ours'),
        pytest.param(build_spec(duration=3), NOW + 3, id='shorter-than-ours'),
        pytest.param(build_spec(duration=None), NOW + 15, id='no-duration'),
        pytest.param(build_spec(duration='15'), NOW + 15, id='wrong-duration'),
        pytest.param(build_spec(duration=0), NOW + 15, id='no-time-at-all'),
        pytest.param(build_spec(renewed='2001-01-01T00:00:00.000000Z'), NOW + 15, id='old-times'),
    ],
)
def test_a_held_lease_is_left_alone_until_it_expires_by_our_own_clock(spec, expiry):
    state = follow(spec)

    assert decide(state) == Wait(min(NOW + 2, expiry))
    assert not elections.is_free(state, now=expiry - 0.001)
    assert elections.is_free(state, now=expiry)


@pytest.mark.guarantee('LDR-002')
def test_an_expired_lease_is_taken_after_it_was_read_again():
    state = follow(build_spec())

    assert decide(state, NOW + 15) == Read()

    state = elections.react(
        state, Read(), Observed('7', build_spec()), since=NOW + 15, now=NOW + 15, chance=0.0
    )
    assert decide(state, NOW + 15).spec['leaseTransitions'] == 4


@pytest.mark.guarantee('LDR-002')
@pytest.mark.parametrize(
    'spec, version, expiry',
    [
        pytest.param(build_spec(renewed=TIME), '8', NOW + 29, id='renewed'),
        pytest.param(build_spec('third'), '8', NOW + 29, id='another-holder'),
        pytest.param(build_spec(), '8', NOW + 15, id='labelled-by-others'),
    ],
)
def test_only_changes_of_the_fields_prolong_the_lease(spec, version, expiry):
    state = follow(build_spec())

    state = elections.observe(state, Observed(version, spec), now=NOW + 14)

    assert state.expiry == expiry


@pytest.mark.guarantee('LDR-003')
def test_a_deleted_lease_is_not_taken_before_it_would_have_expired():
    state = elections.observe(follow(build_spec()), Refusal.ABSENT, now=NOW + 1)

    assert not elections.is_free(state, now=NOW + 14.9)
    assert elections.is_free(state, now=NOW + 15)
    assert state.version is None


@pytest.mark.guarantee('LDR-001')
def test_the_leader_renews_by_the_version_it_knows():
    state = lead()

    assert state.role is Role.LEADING
    assert decide(state) == Wait(NOW + 2)
    write = decide(state, NOW + 2)
    assert (write.version, write.spec['leaseTransitions']) == ('8', 4)


@pytest.mark.guarantee('LDR-002')
def test_the_leader_loses_by_the_start_of_its_last_renewal():
    state = lead()

    renewed = elections.react(
        state,
        decide(state, NOW + 2),
        Observed('9', build_spec('me', renewed=TIME)),
        since=NOW + 2,
        now=NOW + 6,
        chance=0.0,
    )

    assert renewed.deadline == NOW + 12
    assert decide(renewed, NOW + 11.9) != Lose()
    assert decide(renewed, NOW + 12) == Lose()


@pytest.mark.guarantee('LDR-003')
@pytest.mark.parametrize(
    'answer, action',
    [
        pytest.param(Refusal.FAILED, Wait(NOW + 7), id='failed'),
        pytest.param(Refusal.CONFLICT, Read(), id='conflict'),
        pytest.param(Refusal.ABSENT, Read(), id='deleted'),
    ],
)
def test_the_leader_tries_again_if_the_lease_is_not_renewed(answer, action):
    state = lead()

    state = elections.react(
        state, decide(state, NOW + 2), answer, since=NOW + 2, now=NOW + 5, chance=0.0
    )

    assert state.role is Role.LEADING
    assert state.deadline == NOW + 10
    assert decide(state, NOW + 5) == action


@pytest.mark.guarantee('LDR-003')
def test_the_leader_creates_the_deleted_lease_again():
    state = dataclasses.replace(lead(), due=NOW + 2, is_outdated=True)

    state = elections.react(state, Read(), Refusal.ABSENT, since=NOW + 2, now=NOW + 2, chance=0.0)

    write = decide(state, NOW + 2)
    assert (write.version, write.spec['leaseTransitions']) == (None, 4)


@pytest.mark.guarantee('LDR-002')
@pytest.mark.parametrize('holder', ['other', ''])
def test_the_leader_loses_once_it_sees_another_holder(holder):
    state = dataclasses.replace(lead(), is_outdated=True)

    state = elections.react(
        state, Read(), Observed('9', build_spec(holder)), since=NOW, now=NOW, chance=0.0
    )

    assert decide(state) == Lose()


@pytest.mark.guarantee('LDR-002')
def test_a_late_response_makes_no_leader():
    state = follow(build_spec(''))

    state = elections.react(
        state,
        decide(state),
        Observed('8', build_spec('me')),
        since=NOW,
        now=NOW + 10,
        chance=0.0,
    )

    assert state.role is Role.FOLLOWING
    assert decide(state, NOW + 10) == Read()


@pytest.mark.guarantee('LDR-001')
@pytest.mark.parametrize('answer', [Refusal.CONFLICT, Refusal.FAILED, Refusal.ABSENT])
@pytest.mark.parametrize('chance, delay', [(0.0, 2.0), (0.5, 2.2), (1.0, 2.4)])
def test_a_follower_tries_again_with_jitter(answer, chance, delay):
    state = follow(build_spec(''))

    state = elections.react(state, decide(state), answer, since=NOW, now=NOW + 1, chance=chance)

    assert decide(state, NOW + 1) == Wait(pytest.approx(NOW + 1 + delay))
    assert decide(state, NOW + 5) == Read()


@pytest.mark.guarantee('LDR-004')
@pytest.mark.parametrize(
    'lease, version',
    [
        pytest.param(Observed('8', build_spec('')), '8', id='released'),
        pytest.param(Observed('8', build_spec('me')), '8', id='ours'),
    ],
)
def test_a_follower_takes_the_lease_as_soon_as_it_sees_it_free(lease, version):
    state = elections.notice(follow(build_spec()), lease, now=NOW + 1)

    action = decide(state, NOW + 1)

    assert isinstance(action, Write)
    assert action.version == version


@pytest.mark.guarantee('LDR-004')
def test_a_follower_that_sees_renewals_does_not_read_the_lease():
    state = follow(build_spec())
    for second in range(1, 10):
        spec = build_spec(renewed=str(second))
        state = elections.notice(state, Observed(str(second), spec), now=NOW + second)

    assert decide(state, NOW + 9) == Wait(NOW + 11)


@pytest.mark.guarantee('LDR-004')
def test_a_resigned_replica_does_nothing():
    state = elections.resign(lead())

    assert decide(state, NOW + 100) == Wait(math.inf)
    assert elections.notice(state, Observed('9', build_spec('')), now=NOW) is state
    assert elections.build_release(state, TODAY) == {
        'holderIdentity': '',
        'leaseDurationSeconds': 1,
        'acquireTime': TIME,
        'renewTime': TIME,
        'leaseTransitions': 4,
    }


@pytest.mark.guarantee('LDR-001')
@pytest.mark.parametrize('deadline, timeout', [(10, 5), (3, 1.5), (1.5, 1)])
def test_requests_leave_time_for_other_attempts(deadline, timeout):
    assert Terms(15, deadline, 1).timeout == timeout
