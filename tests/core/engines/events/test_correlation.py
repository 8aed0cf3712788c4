"""
K8s-events folded: the same ones are counted, the too frequent ones are limited, and all is limited
in size.
"""

import datetime

import pytest

from kopf._cogs.clients import events
from kopf._core.engines.events import correlation

NOW = datetime.datetime(2020, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
BURST, INTERVAL = 3, 100.0


def at(seconds):
    return NOW + datetime.timedelta(seconds=seconds)


def report(uid='a', message='m', *, time=0, type='Normal', reason='R'):
    return correlation.Report(
        ref={'uid': uid, 'name': uid},
        type=type,
        reason=reason,
        message=message,
        time=at(time),
        backoffs=(),
    )


@pytest.mark.parametrize(
    'ref, expected',
    [
        pytest.param({'uid': 'u', 'name': 'n', 'kind': 'K'}, ('u',), id='uid'),
        pytest.param(
            {'apiVersion': 'v1', 'kind': 'K', 'name': 'n', 'namespace': 'ns'},
            ('v1', 'K', 'ns', 'n'),
            id='name',
        ),
        pytest.param({'kind': None, 'name': 'n', 'uid': None}, ('', '', '', 'n'), id='little'),
        pytest.param({}, ('', '', '', ''), id='nothing'),
    ],
)
def test_objects_are_told_apart_by_what_is_known(ref, expected):
    assert correlation.identify(ref) == expected


def test_reports_of_an_object_are_taken_in_the_order_of_their_coming():
    backlog = correlation.Backlog()
    for item in [report('a', '1'), report('b', '1'), report('a', '2'), report('a', '3')]:
        backlog.put(item)

    taken = [backlog.take(('a',)) for _ in range(4)]

    assert [pending and pending.report.message for pending in taken] == ['1', '2', '3', None]
    assert ('a',) not in backlog and ('b',) in backlog
    assert len(backlog) == 1


@pytest.mark.parametrize(
    'another, is_same',
    [
        pytest.param(report(time=5), True, id='same'),
        pytest.param(report(message='x'), False, id='message'),
        pytest.param(report(reason='x'), False, id='reason'),
        pytest.param(report(type='x'), False, id='type'),
        pytest.param(report(uid='x'), False, id='object'),
    ],
)
def test_only_the_same_reports_are_folded(another, is_same):
    backlog = correlation.Backlog()
    backlog.put(report())

    backlog.put(another)

    pending = backlog.take(('a',))
    assert len(backlog) == (0 if is_same else 1)
    assert (pending.count, pending.report.time, pending.last) == (
        (2, at(0), at(5)) if is_same else (1, at(0), at(0))
    )


def test_oldest_reports_are_dropped_first_with_their_repetitions():
    backlog = correlation.Backlog()
    for item in [report('a', '1'), report('b', '1'), report('a', '1'), report('a', '2')]:
        backlog.put(item)

    assert backlog.drop() == 2
    assert backlog.drop() == 1
    assert backlog.take(('b',)) is None
    assert backlog.take(('a',)).report.message == '2'


def test_all_reports_can_be_dropped():
    backlog = correlation.Backlog()
    for item in [report('a', '1'), report('b', '1'), report('a', '1')]:
        backlog.put(item)

    assert backlog.clear() == 3
    assert not backlog and ('a',) not in backlog


@pytest.mark.parametrize(
    'times, granted',
    [
        pytest.param([0, 0, 0], [True, True, True], id='burst'),
        pytest.param([0, 0, 0, 0, 99.9], [True, True, True, False, False], id='over'),
        pytest.param(
            [0, 0, 0, 0, 100, 100, 200],
            [True, True, True, False, True, False, True],
            id='one-in-interval',
        ),
        pytest.param(
            [0, 0, 0, 1000, 1000, 1000, 1000],
            [True, True, True, True, True, True, False],
            id='new-burst',
        ),
        pytest.param([0, 50, 100, 100, 150], [True, True, True, True, False], id='slowly'),
        pytest.param(
            [0, 0, 0, *range(1, 101)], [True] * 3 + [False] * 99 + [True], id='insistently'
        ),
        # The difference of these times, as computed, is 99.99999999999994.
        pytest.param([471.8] * 3 + [471.8 + 100], [True] * 4, id='inexactly'),
    ],
)
def test_k8s_events_of_an_object_are_limited(times, granted):
    history = correlation.History()

    drawn = [
        history.draw(('a',), now=time, burst=BURST, interval=INTERVAL).is_granted for time in times
    ]

    assert drawn == granted
    assert history.draw(('b',), now=0, burst=BURST, interval=INTERVAL).is_granted


def test_denials_are_counted_until_nothing_is_limited():
    history = correlation.History()
    times = [0, 0, 0, 0, 1, 100, 101, 1000, 1000, 1000, 1000]

    denied = [
        history.draw(('a',), now=time, burst=BURST, interval=INTERVAL).denied for time in times
    ]

    assert denied == [0, 0, 0, 1, 2, 2, 3, 0, 0, 0, 1]


def test_new_series_tells_of_what_was_not_told_of():
    history = correlation.History()
    history.add(
        correlation.Pending(report(time=1), at(2), count=2)
    )  # not posted for whatever reason

    series = history.add(correlation.Pending(report(time=3), at(3)))

    event = series.build_new(report())
    assert (event.count, event.first, event.last) == (3, at(1), at(3))


def test_repeated_series_tells_of_everything():
    history, posted = correlation.History(), events.Posted('ns', 'n')
    history.add(correlation.Pending(report(time=1), at(1))).renew(posted)
    history.add(correlation.Pending(report(time=2), at(2))).extend()
    history.add(correlation.Pending(report(time=3), at(3)))

    series = history.add(correlation.Pending(report(time=4), at(4)))

    assert series.posted == posted
    assert series.build_repeated(report()).count == 4
    assert series.build_new(report()).count == 2
    assert series.build_new(report()).first == at(3)


def test_only_recent_ones_are_remembered():
    history, posted = correlation.History(size=2), events.Posted('ns', 'n')
    for uid in ['a', 'b', 'a', 'c']:
        history.add(correlation.Pending(report(uid), at(0))).renew(posted)
        history.draw((uid,), now=0, burst=BURST, interval=INTERVAL)

    assert history.add(correlation.Pending(report('a'), at(0))).posted == posted
    assert history.add(correlation.Pending(report('b'), at(0))).posted is None
    assert history.draw(('a',), now=0, burst=BURST, interval=INTERVAL).remaining == 0
    assert history.draw(('b',), now=0, burst=BURST, interval=INTERVAL).remaining == 2
