"""
Clusters that cannot be reached: one trouble with few lines, whatever the number of requests is.
"""

import logging

import pytest

from kopf._cogs.clients import errors, outages

SERVER = 'https://user:password@host:6443'


@pytest.fixture
def logger(caplog):
    caplog.set_level(logging.DEBUG)
    return logging.getLogger('test')


@pytest.fixture
def lines(caplog):
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    'failures, expected',
    [
        pytest.param([0], [0], id='first'),
        pytest.param([0, 1, 59], [0], id='soon'),
        pytest.param([0, 60], [0, 60], id='lasting'),
        pytest.param(range(1300), [0, 60, 180, 420, 900], id='growing'),
        pytest.param(range(0, 3000, 10), [0, 60, 180, 420, 900, 1500, 2100, 2700], id='longest'),
    ],
)
def test_outage_is_logged_more_and_more_rarely(failures, expected):
    outage, logged = None, []
    for now in failures:
        before, outage = outage, outages.advance(outage, now)
        if outage is not before:
            logged.append(now)

    assert logged == expected


def test_beginning_and_end_are_logged_once_with_no_credentials(logger, lines):
    reachability = outages.Reachability()
    for now in range(10):
        reachability.note_failure(SERVER, 'refused.', now=now, logger=logger)
    reachability.note_answer(SERVER, now=12, logger=logger)
    reachability.note_answer(SERVER, now=13, logger=logger)

    assert lines() == [
        (
            'WARNING',
            'Cannot reach the cluster https://***@host:6443: refused. Retrying until it answers.',
        ),
        ('INFO', 'The cluster https://***@host:6443 is reachable again, after 12 s.'),
    ]


def test_cluster_that_answers_only_sometimes_is_not_told_of_all_the_time(logger, lines):
    reachability = outages.Reachability()
    for now in range(0, 121, 2):
        reachability.note_failure(SERVER, 'refused', now=now, logger=logger)
        reachability.note_answer(SERVER, now=now + 1, logger=logger)

    assert [level for level, _ in lines()] == ['WARNING', 'INFO'] * 3


def test_streams_lost_together_are_one_trouble():
    reachability = outages.Reachability()

    assert [reachability.note_loss(now) for now in (0, 0.1, 4, 20, 21)] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_streams_lost_again_and_again_are_not_silenced():
    reachability = outages.Reachability()

    logged = [reachability.note_loss(now) for now in range(0, 3600, 4)]

    assert logged.count(True) == len(logged) / 2


def test_only_the_absence_of_connections_is_an_outage():
    assert outages.choose_level(errors.APIUnreachableError('x')) == logging.DEBUG
    assert outages.choose_level(errors.APIDisconnectedError('x')) == logging.WARNING
    assert outages.choose_level(TimeoutError()) == logging.WARNING
