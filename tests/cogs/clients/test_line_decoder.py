"""
Lines of streams, of any length, from chunks of any size.
"""

import time

import hypothesis
import pytest
from hypothesis import strategies

from kopf._cogs.clients.http import line_decoder


def split(chunks):
    splitter = line_decoder.LineDecoder()
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()


@pytest.mark.parametrize(
    'chunks, expected',
    [
        pytest.param([], [], id='nothing'),
        pytest.param([b'a\nb\n'], [b'a', b'b'], id='several-in-one'),
        pytest.param([b'a', b'b\nc', b'\n'], [b'ab', b'c'], id='one-in-several'),
        pytest.param([b'\n\r\n', b'a\n', b'\n'], [b'a'], id='blanks'),
        pytest.param([b'a\nb'], [b'a', b'b'], id='no-last-end'),
    ],
)
def test_chunks_are_cut_to_lines(chunks, expected):
    assert split(chunks) == expected


def test_rest_is_given_once():
    splitter = line_decoder.LineDecoder()
    splitter.feed(b'abc')

    assert [splitter.finish(), splitter.finish()] == [[b'abc'], []]


@hypothesis.given(strategies.lists(strategies.text('ab\n').map(str.encode)))
def test_lines_do_not_depend_on_chunks(chunks):
    assert split(chunks) == [line for line in b''.join(chunks).split(b'\n') if line]


def test_huge_lines_cost_as_much_as_their_bytes():
    chunk = b'x' * 100

    started = time.process_time()
    result = split([chunk] * 500_000 + [b'\n'])

    assert [len(line) for line in result] == [50_000_000]
    assert time.process_time() - started < 10  # minutes if it were quadratic
