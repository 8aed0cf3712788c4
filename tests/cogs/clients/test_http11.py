"""
HTTP as bytes: answers are read the same, however they are cut on the way.
"""

import gzip
import itertools
import zlib

import hypothesis
import hypothesis.strategies as st
import pytest

from kopf._cogs.clients.http import http11


def read(*pieces, is_ended=False):
    reader = http11.Reader()
    for piece in pieces:
        reader.feed(piece)
    if is_ended:
        reader.feed_end()
    return reader


def cut(raw, places):
    """Cut the bytes at these places."""
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in itertools.pairwise(edges) if start < end]


def chunked(*pieces, end=b'0\r\n\r\n'):
    return b''.join(b'%x\r\n%s\r\n' % (len(piece), piece) for piece in pieces) + end


HEAD = b'HTTP/1.1 200 OK\r\n'
CHUNKED = HEAD + b'Transfer-Encoding: chunked\r\n\r\n'
ZIPPED = gzip.compress(b'{"x": 1}' * 100)

ANSWERS = [
    pytest.param(HEAD + b'Content-Length: 5\r\n\r\nhello', 200, b'hello', True, id='length'),
    pytest.param(HEAD + b'Content-Length: 0\r\n\r\n', 200, b'', True, id='empty'),
    pytest.param(
        HEAD + b'content-length:2\r\nX: y\r\n\r\n{}', 200, b'{}', True, id='case-and-spaces'
    ),
    pytest.param(b'HTTP/1.1 204 No Content\r\n\r\n', 204, b'', True, id='no-content'),
    pytest.param(b'HTTP/1.1 404\r\nContent-Length: 1\r\n\r\n?', 404, b'?', True, id='no-reason'),
    pytest.param(
        b'HTTP/1.1 100 Continue\r\n\r\n' + HEAD + b'Content-Length: 1\r\n\r\n!',
        200,
        b'!',
        True,
        id='continue',
    ),
    pytest.param(
        HEAD + b'Connection: Close\r\nContent-Length: 1\r\n\r\n!', 200, b'!', False, id='close'
    ),
    pytest.param(
        b'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n!', 200, b'!', False, id='old-version'
    ),
    pytest.param(
        CHUNKED + chunked(b'hello', b', ', b'world'), 200, b'hello, world', True, id='chunks'
    ),
    pytest.param(CHUNKED + chunked(b'a' * 300), 200, b'a' * 300, True, id='big-chunk'),
    pytest.param(
        CHUNKED + b'3;x=y\r\n\r\n\r\r\n0\r\nTrailer: z\r\n\r\n',
        200,
        b'\r\n\r',
        True,
        id='extensions',
    ),
    pytest.param(CHUNKED + chunked(), 200, b'', True, id='no-chunks'),
    pytest.param(
        b'HTTP/1.1 204 No Content\r\nContent-Encoding: gzip\r\n\r\n',
        204,
        b'',
        True,
        id='no-content-compressed',
    ),
    pytest.param(
        b'HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\nContent-Length: 30\r\n\r\n',
        304,
        b'',
        True,
        id='not-modified-compressed',
    ),
    pytest.param(
        HEAD + b'Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n',
        200,
        b'',
        True,
        id='empty-compressed',
    ),
    pytest.param(
        HEAD + b'Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s' % (len(ZIPPED), ZIPPED),
        200,
        b'{"x": 1}' * 100,
        True,
        id='gzip',
    ),
    pytest.param(
        HEAD
        + b'Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n'
        + chunked(ZIPPED[:20], ZIPPED[20:]),
        200,
        b'{"x": 1}' * 100,
        True,
        id='gzip-chunks',
    ),
]


@pytest.mark.parametrize('raw, code, body, is_reusable', ANSWERS)
@hypothesis.given(places=st.lists(st.integers(0, 10000), max_size=20))
@hypothesis.settings(deadline=None, max_examples=50)
def test_answers_are_read_however_they_are_cut(raw, code, body, is_reusable, places):
    reader = read(*cut(raw, places))

    assert (reader.code, reader.take(), reader.is_complete, reader.is_reusable) == (
        code,
        body,
        True,
        is_reusable,
    )


@pytest.mark.parametrize('raw, code, body, is_reusable', ANSWERS)
def test_answers_are_read_by_single_bytes_and_are_complete_only_with_the_last_one(
    raw, code, body, is_reusable
):
    reader = http11.Reader()
    for position in range(len(raw)):
        assert not reader.is_complete
        reader.feed(raw[position : position + 1])

    assert (reader.code, reader.take(), reader.is_complete) == (code, body, True)


@pytest.mark.parametrize('raw, code, body, is_reusable', ANSWERS)
def test_answers_cut_anywhere_are_told_to_be_cut(raw, code, body, is_reusable):
    for length in range(len(raw)):
        with pytest.raises(http11.CutError):
            read(raw[:length] or b'', is_ended=True)


def test_bodies_of_unknown_length_end_with_the_connection():
    reader = read(HEAD + b'\r\n{"x"', b': 1}', is_ended=True)

    assert (reader.take(), reader.is_complete, reader.is_reusable) == (b'{"x": 1}', True, False)


@pytest.mark.parametrize(
    'raw',
    [
        pytest.param(HEAD + b'Content-Length: 1\r\n\r\n!extra', id='length'),
        pytest.param(HEAD + b'Content-Length: 0\r\n\r\nextra', id='empty'),
        pytest.param(CHUNKED + chunked(b'!') + b'extra', id='chunks'),
    ],
)
def test_connections_with_more_than_the_answer_are_not_reusable(raw):
    reader = read(raw)

    assert reader.is_complete
    assert not reader.is_reusable


def test_body_is_taken_in_parts():
    reader = read(CHUNKED, b'2\r\nab\r\n')
    assert (reader.has_head, reader.size, reader.take()) == (True, 2, b'ab')

    reader.feed(b'1\r\nc')
    reader.feed(b'\r\n1\r\nd')
    assert (reader.size, reader.take(), reader.take()) == (2, b'cd', b'')


def test_names_of_headers_are_of_one_case_and_values_are_joined():
    reader = read(
        HEAD + b'retry-AFTER:  5 \r\nWarning: a\r\nwarning: b\r\nContent-Length: 0\r\n\r\n'
    )

    assert reader.headers == {'Retry-After': '5', 'Warning': 'a, b', 'Content-Length': '0'}


def test_trailers_of_bodies_are_no_headers():
    trailers = b'0\r\nLocation: /elsewhere\r\nRetry-After: 600\r\n\r\n'
    reader = read(CHUNKED + chunked(b'{}', end=trailers))

    assert (reader.take(), reader.is_complete) == (b'{}', True)
    assert reader.headers == {'Transfer-Encoding': 'chunked'}


@pytest.mark.parametrize(
    'raw',
    [
        pytest.param(b'SSH-2.0-OpenSSH_9.6\r\n', id='not-http'),
        pytest.param(b'HTTP/2.0 200 OK\r\n\r\n', id='version'),
        pytest.param(b'HTTP/1.1 OK\r\n\r\n', id='no-code'),
        pytest.param(b'HTTP/1.1 2000 OK\r\n\r\n', id='long-code'),
        pytest.param(
            b'HTTP/1.1 050 OK\r\nContent-Length: 1\r\n\r\n?' + HEAD + b'Content-Length: 1\r\n\r\n!',
            id='low-code',
        ),
        pytest.param(HEAD + b'Content-Length: -1\r\n\r\n', id='negative-length'),
        pytest.param(HEAD + b'Content-Length: 5, 5\r\n\r\n', id='two-lengths'),
        pytest.param(
            HEAD + b'Content-Length: 2\r\nContent-Length: 3\r\n\r\n', id='repeated-length'
        ),
        pytest.param(HEAD + b'Content-Length: ' + b'9' * 5000 + b'\r\n\r\n', id='endless-length'),
        pytest.param(
            b'HTTP/1.1 100 Continue\r\n\r\nHTT8/1.1 200 OK\r\n\r\n', id='not-http-after-continue'
        ),
        pytest.param(HEAD + b'Transfer-Encoding: gzip\r\n\r\n', id='encoding'),
        pytest.param(HEAD + b'X: ' + b'y' * http11.HEAD_LIMIT, id='endless-head'),
        pytest.param(CHUNKED + b'0x5\r\n', id='size'),
        pytest.param(CHUNKED + b'\r\n', id='no-size'),
        pytest.param(CHUNKED + b'1\r\nab\r\n', id='longer-chunk'),
        pytest.param(CHUNKED + b'1;' + b'x' * http11.HEAD_LIMIT, id='endless-line'),
        pytest.param(
            HEAD + b'Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello', id='not-compressed'
        ),
        pytest.param(
            HEAD + b'Content-Encoding: gzip\r\nContent-Length: 30\r\n\r\n' + ZIPPED[:30],
            id='cut-compressed',
        ),
    ],
)
def test_other_bytes_are_refused(raw):
    with pytest.raises(http11.WireError):
        read(raw)


def zip_zeros(size):
    """Compress so many zeros, and the next ones apart from them, as parts of one body."""
    raw = gzip.compress(b'0' * size) + gzip.compress(b'0' * size)
    return HEAD + b'Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n' % len(raw), raw


@pytest.mark.parametrize('size', [100_000, 1_000_000])
def test_small_bodies_that_become_huge_when_decompressed_are_refused(monkeypatch, size):
    """Before, there were no limits: a megabyte could become a gigabyte."""
    monkeypatch.setattr(http11, 'BODY_LIMIT', 150_000)

    with pytest.raises(http11.WireError, match='the body is larger than 150000 bytes'):
        read(*zip_zeros(size))


def test_bodies_without_compression_have_the_same_limit(monkeypatch):
    monkeypatch.setattr(http11, 'BODY_LIMIT', 10)

    with pytest.raises(http11.WireError):
        read(HEAD + b'Content-Length: 11\r\n\r\n', b'hello world')


def test_bodies_that_are_taken_as_they_come_are_unlimited(monkeypatch):
    monkeypatch.setattr(http11, 'BODY_LIMIT', 1000)
    reader = http11.Reader()
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    reader.feed(HEAD + b'Content-Encoding: gzip\r\n\r\n')
    taken = 0

    for _ in range(100):
        reader.feed(packer.compress(b'0' * 500) + packer.flush(zlib.Z_SYNC_FLUSH))
        taken += len(reader.take())

    assert taken == 50_000


@hypothesis.given(
    st.binary(max_size=200),
    st.sampled_from([b'', HEAD, CHUNKED, HEAD + b'Content-Encoding: gzip\r\n']),
)
@hypothesis.settings(deadline=None)
def test_any_bytes_are_read_or_refused(raw, head):
    try:
        read(head, raw, is_ended=True)
    except (http11.WireError, http11.CutError):
        pass


def test_deflated_bodies_are_read_too():
    raw = zlib.compress(b'hello')

    assert (
        read(
            HEAD + b'Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n' % len(raw), raw
        ).take()
        == b'hello'
    )


@pytest.mark.parametrize(
    'method, body, expected',
    [
        pytest.param(
            'GET', None, b'GET /x?y=z HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\n\r\n', id='nothing'
        ),
        pytest.param(
            'POST',
            None,
            b'POST /x?y=z HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\nContent-Length: 0\r\n\r\n',
            id='no-body',
        ),
        pytest.param(
            'PATCH',
            b'{}',
            b'PATCH /x?y=z HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\nContent-Length: 2\r\n\r\n{}',
            id='body',
        ),
    ],
)
def test_requests_are_written_with_their_headers_and_bodies(method, body, expected):
    headers = http11.write_headers({'Host': 'h:1', 'Accept': '*/*'})

    assert http11.write_request(method, '/x?y=z', headers, body) == expected


@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param('Bearer abc', True, id='token'),
        pytest.param('Bearer abc\n', False, id='line-break'),
        pytest.param('a\r\nX: y', False, id='injection'),
        pytest.param('a\0', False, id='zero'),
        pytest.param('\u20ac', False, id='beyond-latin'),
        pytest.param('\u00fc', True, id='latin'),
    ],
)
def test_only_clean_headers_can_be_sent(value, expected):
    assert http11.is_clean(value) is expected


@pytest.mark.parametrize(
    'header, expected',
    [
        pytest.param('close', False, id='close'),
        pytest.param('Close', False, id='case'),
        pytest.param('keep-alive, close', False, id='last'),
        pytest.param('close, te', False, id='first'),
        pytest.param('keep-alive', True, id='keep-alive'),
        pytest.param('closer', True, id='another-word'),
    ],
)
def test_connections_are_reusable_as_their_headers_say(header, expected):
    reader = http11.Reader()
    reader.feed(f'HTTP/1.1 200 OK\r\nConnection: {header}\r\nContent-Length: 2\r\n\r\nok'.encode())

    assert reader.is_reusable is expected


@pytest.mark.parametrize('size', [1, 7, 1000])
def test_bodies_compressed_in_several_parts_are_read_in_full(size):
    raw = gzip.compress(b'first, ') + gzip.compress(b'second')
    reader = http11.Reader()
    reader.feed(
        f'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(raw)}\r\n\r\n'.encode()
    )
    for start in range(0, len(raw), size):
        reader.feed(raw[start : start + size])

    assert reader.is_complete
    assert reader.take() == b'first, second'
