"""
Silent, slow and greedy clients neither delay the reviews of a running operator, nor take its memory
or event loop.

Before, with 2,000 connections, a good request took 4.5 seconds or was not accepted at all;
unfinished bodies took hundreds of megabytes for good; one review held the event loop for up to 2
seconds. `SECURITY.md` has the figures.
"""

import concurrent.futures
import contextlib
import json
import time

import pytest
from attacked_operators import (
    build_post,
    build_review,
    count_open,
    crowd,
    read_answer,
    running_operator,
)

CROWD = 2000
HELLO = b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'  # the beginning of TLS
MEGABYTE = 1024 * 1024


def check_reviews(victim, count=3):
    """
    Make good requests: the first one while the crowd is still coming, the others when it is there.
    """
    answers = [victim.review() for _ in range(count)]

    assert [answer.status for answer in answers] == [200] * count
    assert all(answer.json['response']['allowed'] for answer in answers)
    # Usually, it is 0.1 to 0.5, but the machine can be busy with other tests.
    assert answers[0].delay < 5.0
    assert max(answer.delay for answer in answers[1:]) < 1.0


@pytest.mark.guarantee('FND-052')
@pytest.mark.parametrize(
    'sent',
    [
        pytest.param(b'', id='bare'),
        pytest.param(HELLO, id='half-open'),
        pytest.param(b'GET / HTTP/1.1\r\n\r\n', id='plain'),
    ],
)
def test_reviews_are_answered_within_a_second_in_a_crowd(victim, sent):
    with crowd(victim.webhooks, CROWD, sent):
        check_reviews(victim)


@pytest.mark.guarantee('FND-052')
@pytest.mark.parametrize(
    'sent',
    [
        pytest.param(b'', id='bare'),
        pytest.param(b'POST / HTTP/1.1\r\nHost: ', id='headers'),
        pytest.param(build_post(b'{', declared=1000), id='one-byte'),
        pytest.param(build_post(b'{', declared=7 * MEGABYTE), id='one-byte-of-many'),
    ],
)
def test_plain_reviews_are_answered_within_a_second_in_a_crowd(plain_victim, sent):
    with crowd(plain_victim.webhooks, CROWD, sent):
        check_reviews(plain_victim)


@pytest.mark.guarantee('FND-052')
def test_reviews_are_answered_within_a_second_in_a_secure_crowd_with_one_byte_each(victim):
    with crowd(victim.webhooks, CROWD, build_post(b'{', declared=1000), is_secure=True):
        check_reviews(victim)


@pytest.mark.guarantee('FND-052')
@pytest.mark.parametrize(
    'sent',
    [
        pytest.param(b'', id='bare'),
        pytest.param(build_post(b'{', declared=1000), id='one-byte'),
    ],
)
def test_idle_connections_of_api_servers_outlive_a_crowd(any_victim, sent):
    with any_victim.webhooks.connect_securely() as api_server:
        api_server.sendall(build_post(build_review()))
        first = read_answer(api_server, time.monotonic())
        with crowd(any_victim.webhooks, CROWD, sent):
            check_reviews(any_victim)
            api_server.sendall(build_post(build_review()))
            second = read_answer(api_server, time.monotonic())

    assert (first.status, second.status) == (200, 200)


@pytest.mark.guarantee('FND-052')
def test_complete_requests_kept_alive_do_not_occupy_the_server(plain_victim):
    """Whoever makes a complete request is idle, and makes room for others in the end."""
    with crowd(plain_victim.webhooks, CROWD, build_post(b'{}')):
        check_reviews(plain_victim)


@pytest.mark.guarantee('FND-052')
def test_reviews_are_answered_with_few_files(tmp_path):
    with (
        running_operator(tmp_path, files_limit=128) as victim,
        crowd(victim.webhooks, CROWD, HELLO),
    ):
        with crowd(victim.probes, CROWD):
            check_reviews(victim)

        assert 'Traceback' not in victim.log.read_text()


@pytest.mark.guarantee('FND-053')
def test_unfinished_bodies_take_a_limited_memory_which_comes_back(any_victim):
    before = any_victim.memory
    unfinished = build_post(b'x' * (7 * MEGABYTE - 100), declared=7 * MEGABYTE)

    with crowd(
        any_victim.webhooks, 24, unfinished, is_secure=any_victim.webhooks.authority is not None
    ):
        check_reviews(any_victim)
        during = any_victim.memory
    wait_until(lambda: any_victim.memory - before < 40)

    assert during - before < 64 + 64  # the budget in MB, and what connections and TLS take


@pytest.mark.guarantee('FND-053')
def test_those_who_do_not_fit_in_the_budget_are_told_to_retry(tmp_path):
    with running_operator(tmp_path, insecure=True, inflight_bytes=7 * MEGABYTE) as victim:
        unfinished = build_post(b'x' * (6 * MEGABYTE), declared=7 * MEGABYTE)
        with crowd(victim.webhooks, 1, unfinished) as [oldest]:
            since = time.monotonic()
            large = victim.review(build_review({'a': 'x' * 2 * MEGABYTE}))
            refused = read_answer(oldest, since)

    assert large.status == 200
    assert (refused.status, refused.headers['retry-after']) == (503, '1')
    assert refused.json['kind'] == 'Status'


@pytest.mark.guarantee('FND-053')
def test_many_large_reviews_are_either_answered_or_told_to_retry(plain_victim):
    review = build_review({'a': 'x' * 6 * MEGABYTE})
    before = plain_victim.memory

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: plain_victim.review(review), range(24)))

    assert {answer.status for answer in answers} <= {200, 503}
    assert all(answer.headers['retry-after'] for answer in answers if answer.status == 503)
    wait_until(lambda: plain_victim.memory - before < 40)


SPECS = [
    pytest.param({'a': 'x' * 3_400_000}, id='strings'),
    pytest.param({f'key-{number}': 'x' * 1000 for number in range(3300)}, id='values'),
    pytest.param(
        {f'key-{number}': {'name': f'{number}', 'list': [1, 2]} for number in range(60_000)},
        id='objects',
    ),
    pytest.param({'a': [1] * 1_100_000}, id='numbers'),
]


@pytest.mark.guarantee('FND-062')
@pytest.mark.parametrize('path', ['/report', '/mark'])
@pytest.mark.parametrize('spec', SPECS)
def test_event_loop_is_not_held_by_large_reviews(plain_victim, spec, path):
    review = build_review(spec, {**spec, 'other': 1})
    plain_victim.review()

    answer = plain_victim.review(review, path)
    following = plain_victim.review()
    longest = max(read_longest(answer), read_longest(following))

    assert (answer.status, answer.json['response']['allowed']) == (200, True)
    # The promise is 0.05 seconds, but other processes take their turns, too.
    assert longest < 0.15


DENSE = [
    pytest.param(b'[]', id='lists'),
    pytest.param(b'{}', id='objects'),
    pytest.param(b'[[[[[[[[]]]]]]]]', id='nested-lists'),
    pytest.param(b'{"a":{}}', id='nested-objects'),
    pytest.param(b'[' * 200 + b']' * 200, id='deep-lists'),
]


@pytest.mark.guarantee('FND-062')
@pytest.mark.parametrize('unit', DENSE)
def test_reviews_with_millions_of_values_are_refused(plain_victim, unit):
    """
    Before, they were reviewed in 4 to 19 seconds, and the event loop was held for 90 to 860
    milliseconds by each.
    """
    values = b'[' + b','.join([unit] * (6 * MEGABYTE // (len(unit) + 1))) + b']'
    review = build_review({'a': '@'}).replace(b'"@"', values)

    answer = plain_victim.review(review, '/mark')

    assert answer.status == 413
    assert 'more than 250000 lists and objects' in answer.json['message']
    assert plain_victim.review().status == 200


@pytest.mark.guarantee('FND-062')
@pytest.mark.parametrize('size', [100, 1_000_000])
@pytest.mark.parametrize(
    'content',
    [
        pytest.param(b'[' * 20_000, id='unfinished'),
        pytest.param(b'[' * 20_000 + b']' * 20_000, id='deep'),
        pytest.param(
            b'{"request": {"object": ' + b'{"a":' * 5_000 + b'1' + b'}' * 5_002, id='deep-object'
        ),
        pytest.param(b'{"a": 1e999999}', id='huge-number'),
        pytest.param(b'{"a": ' + b'1' * 100_000 + b'}', id='long-number'),
        pytest.param(b'{"a": "\xff"}', id='not-utf-8'),
        pytest.param(b'{"a": "\\ud800"}', id='surrogate'),
        pytest.param(b'["a"]', id='list'),
    ],
)
def test_what_cannot_be_reviewed_is_a_bad_request_and_no_traceback(plain_victim, content, size):
    answer = plain_victim.review(b' ' * (size - len(content)) + content)

    assert answer.status == 400
    assert json.loads(answer.body)['kind'] == 'Status'
    assert 'Traceback' not in plain_victim.log.read_text()


@pytest.mark.guarantee('FND-052')
def test_those_who_do_not_send_their_requests_are_cut(plain_victim):
    with contextlib.ExitStack() as stack:
        [bare] = stack.enter_context(crowd(plain_victim.webhooks, 1))
        wait_until(lambda: not count_open([bare]))


def read_longest(answer):
    """
    Get for how long the event loop was held since the previous report, in seconds, if it is a
    report.
    """
    return max(map(float, answer.json['response'].get('warnings', ['0'])))


def wait_until(condition, timeout=14):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, 'It has not come true in time.'
        time.sleep(0.1)
