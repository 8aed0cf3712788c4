import datetime

import pytest

from kopf._core.actions import failures


@pytest.mark.guarantee('ERR-007')
@pytest.mark.parametrize(
    'args, kwargs, message, delay',
    [
        pytest.param((), {}, '', 60, id='nothing'),
        pytest.param(('later',), {}, 'later', 60, id='message'),
        pytest.param(('later', 5.5), {}, 'later', 5.5, id='message-and-delay'),
        pytest.param(('later',), {'delay': 0}, 'later', 0, id='zero-delay'),
        pytest.param((), {'delay': None}, '', None, id='no-delay'),
        pytest.param((), {'delay': 10}, '', 10, id='only-delay'),
    ],
)
def test_temporary_errors_have_a_message_and_a_delay(args, kwargs, message, delay):
    error = failures.TemporaryError(*args, **kwargs)

    assert isinstance(error, Exception)
    assert str(error) == message
    assert error.delay == delay


@pytest.mark.parametrize('delay', ['10', datetime.timedelta(seconds=10), (1, 2)])
def test_delays_of_temporary_errors_are_only_numbers(delay):
    with pytest.raises(TypeError, match='in seconds'):
        failures.TemporaryError('later', delay=delay)


@pytest.mark.guarantee('ERR-008')
@pytest.mark.parametrize('cls', [failures.HandlerTimeoutError, failures.HandlerRetriesError])
def test_errors_of_limits_are_permanent(cls):
    assert issubclass(cls, failures.PermanentError)
    assert failures.PermanentError.__bases__ == (Exception,)


def test_waiting_for_children_is_temporary_and_has_the_delay_of_the_earliest_of_them():
    error = failures.HandlerChildrenRetry(delay=12.5)

    assert isinstance(error, failures.TemporaryError)
    assert error.delay == 12.5
    assert failures.HandlerChildrenRetry().delay is None


@pytest.mark.guarantee('ERR-009')
def test_there_are_three_modes_of_errors():
    assert {mode.name: mode.value for mode in failures.ErrorsMode} == {
        'IGNORED': 1,
        'TEMPORARY': 2,
        'PERMANENT': 3,
    }


@pytest.mark.parametrize(
    'text, expected',
    [
        pytest.param('boo!', 'boo!', id='plain'),
        pytest.param('', 'ValueError', id='empty'),
        pytest.param(
            "(404)\nReason: Not Found\nHTTP response headers: {'a': 'b'}\n"
            'HTTP response body: {"message": "no pods"}\n',
            '(404)\nReason: Not Found\nno pods',
            id='client',
        ),
        pytest.param(
            '(500)\nReason: Oops\nHTTP response body: <html>\n', '(500)\nReason: Oops', id='html'
        ),
        pytest.param(
            '(500)\nReason: Oops\nHTTP response headers: {}\n', '(500)\nReason: Oops', id='bodiless'
        ),
        pytest.param('at https://u:p@host/x', 'at https://***@host/x', id='url'),
        pytest.param('Bearer abcdefghijklmnopq', 'Bearer ***', id='token'),
        pytest.param(
            "'Authorization': 'Basic dTpw'", "'Authorization': 'Basic ***'", id='authorization'
        ),
        pytest.param('the bearer of news', 'the bearer of news', id='words'),
        pytest.param('x' * 9999, 'x' * 2047 + '…', id='long'),
    ],
)
def test_errors_are_summarized_without_what_is_not_for_everyone(text, expected):
    assert failures.summarize(ValueError(text)) == expected
