"""
Retries: which failures are repeated, and when.
"""

import itertools

import pytest

from kopf._cogs.clients import errors, retries

REPEATABLE, UNREPEATABLE = retries.Policy(is_repeatable=True), retries.Policy(is_repeatable=False)


def refusal(code, retry_after=None):
    return errors.build_error(errors.Refusal(code, retry_after=retry_after))


@pytest.mark.parametrize(
    'error, if_repeatable, otherwise',
    [
        pytest.param(errors.APIUnreachableError(), True, True, id='unreachable'),
        pytest.param(errors.APIDisconnectedError(), True, False, id='disconnected'),
        pytest.param(errors.APITimeoutError(), True, False, id='timeout'),
        pytest.param(errors.APISilenceError(), True, False, id='silence'),
        pytest.param(errors.APIGarbledError(), True, False, id='garbled'),
        pytest.param(
            errors.APISessionClosedError('', is_sent=False), True, True, id='closed-before-sent'
        ),
        pytest.param(
            errors.APISessionClosedError('', is_sent=True), True, False, id='closed-after-sent'
        ),
        *[
            pytest.param(refusal(code), True, True, id=str(code))
            for code in [403, 429, 500, 501, 503, 507]
        ],
        *[pytest.param(refusal(code), True, False, id=str(code)) for code in [502, 504]],
        *[
            pytest.param(refusal(code), False, False, id=str(code))
            for code in [300, 302, 400, 401, 404, 405, 408, 409, 410, 413, 415, 422]
        ],
    ],
)
def test_temporary_failures_are_retried_if_it_does_no_harm(error, if_repeatable, otherwise):
    assert retries.is_retriable(error, REPEATABLE) is if_repeatable
    assert retries.is_retriable(error, UNREPEATABLE) is otherwise


@pytest.mark.parametrize('code', [403, 429, 500, 503])
def test_expected_answers_are_not_retried(code):
    policy = retries.Policy(is_repeatable=True, answers={code})

    assert not retries.is_retriable(refusal(code), policy)


def test_failures_that_are_not_retried_take_no_delays():
    delays = iter([1, 2])

    assert retries.decide_retry(refusal(404), delays, REPEATABLE, 0.0) is None
    assert list(delays) == [1, 2]


@pytest.mark.guarantee('CFG-028', 'CFG-029', 'CFG-030', 'CFG-032', 'CFG-033')
@pytest.mark.parametrize(
    'backoffs, expected',
    [
        pytest.param([10, 20, 30], [10, 20, 30, None, None], id='list'),
        pytest.param((0.5,), [0.5, None, None, None, None], id='tuple'),
        pytest.param(1.5, [1.5, None, None, None, None], id='float'),
        pytest.param(2, [2, None, None, None, None], id='integer'),
        pytest.param([], [None] * 5, id='empty'),
        pytest.param(
            type('Endless', (), {'__iter__': lambda self: itertools.count(1)})(),
            [1, 2, 3, 4, 5],
            id='endless',
        ),
    ],
)
def test_each_next_failure_takes_the_next_delay_of_every_cycle(backoffs, expected):
    for _ in range(2):
        delays = retries.iter_delays(backoffs)
        assert [
            retries.decide_retry(refusal(500), delays, REPEATABLE, 0.0) for _ in range(5)
        ] == expected


@pytest.mark.guarantee('NEW-151', 'NEW-152', 'NEW-153')
@pytest.mark.parametrize(
    'enforced, asked, expected',
    [
        pytest.param(False, 1.0, [1.0, 2.5, None], id='longer-wins'),
        pytest.param(True, 1.0, [1.0, 1.0, None], id='server-wins'),
        pytest.param(False, None, [0.3, 2.5, None], id='not-asked'),
        pytest.param(True, None, [0.3, 2.5, None], id='not-asked-but-enforced'),
        pytest.param(False, 100.0, [100.0, 100.0, None], id='longer-than-all'),
    ],
)
def test_server_is_never_disturbed_sooner_than_it_asks(enforced, asked, expected):
    policy = retries.Policy(is_repeatable=True, enforce_retry_after=enforced)
    delays = retries.iter_delays([0.3, 2.5])

    assert [
        retries.decide_retry(refusal(429, asked), delays, policy, 0.0) for _ in range(3)
    ] == expected


@pytest.mark.parametrize('chance, expected', [(0.0, 10.0), (0.5, 10.5), (1.0, 11.0)])
def test_delays_are_prolonged_at_random_and_never_shortened(chance, expected):
    assert retries.decide_retry(refusal(500), iter([10]), REPEATABLE, chance) == pytest.approx(
        expected
    )
    assert retries.decide_retry(refusal(429, 10.0), iter([1]), REPEATABLE, chance) == pytest.approx(
        expected
    )
    assert retries.measure_closure(refusal(429, 10.0), chance) == pytest.approx(expected)


def test_negative_delays_are_as_none():
    assert retries.decide_retry(refusal(500), iter([-10]), REPEATABLE, 1.0) == 0.0


@pytest.mark.parametrize(
    'error, expected',
    [
        pytest.param(refusal(429, 5.0), 5.0, id='too-many'),
        pytest.param(refusal(503, 5.0), 5.0, id='unavailable'),
        pytest.param(refusal(429), 0.0, id='not-asked'),
        pytest.param(refusal(500, 5.0), 0.0, id='only-for-this-request'),
    ],
)
def test_all_requests_wait_if_the_server_is_overloaded(error, expected):
    assert retries.measure_closure(error, 0.0) == expected


@pytest.mark.parametrize(
    'method, media_type, payload, expected',
    [
        ('GET', '', None, True),
        ('DELETE', '', None, True),
        ('POST', 'application/json', {}, False),
        ('PATCH', retries.MERGE_PATCH, {'spec': {}}, True),
        (
            'PATCH',
            retries.JSON_PATCH,
            [{'op': 'add', 'path': '/metadata/finalizers/-', 'value': 'x'}],
            False,
        ),
        (
            'PATCH',
            retries.JSON_PATCH,
            [{'op': 'test', 'path': '/metadata/uid', 'value': 'x'}],
            False,
        ),
        (
            'PATCH',
            retries.JSON_PATCH,
            [{'op': 'test', 'path': '/metadata/resourceVersion', 'value': '1'}],
            True,
        ),
    ],
)
def test_requests_are_repeatable_by_their_meaning(method, media_type, payload, expected):
    assert retries.is_repeatable(method, media_type=media_type, payload=payload) is expected
