"""
The event loops of the command line: the fastest one that is installed.
"""

import contextlib
import logging

import pytest

from kopf._sandbox import threads

CLOSED = RuntimeError(
    'unable to perform operation on <TCPTransport closed=True>; the handler is closed'
)


@pytest.fixture
def loop():
    with contextlib.closing(threads.choose_loop_factory()()) as loop:
        yield loop


@pytest.mark.parametrize(
    'error, level',
    [
        pytest.param(CLOSED, logging.DEBUG, id='cut-connection'),
        pytest.param(RuntimeError('another one'), logging.ERROR, id='another-error'),
        pytest.param(ValueError('; the handler is closed'), logging.ERROR, id='another-class'),
    ],
)
def test_only_connections_cut_by_ourselves_are_not_errors(loop, caplog, error, level):
    caplog.set_level(logging.DEBUG)

    loop.call_exception_handler({'message': 'Fatal error on SSL protocol', 'exception': error})

    assert caplog.records[-1].levelno == level
    assert str(error) in caplog.text
