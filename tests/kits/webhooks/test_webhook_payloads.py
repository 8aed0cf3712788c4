"""The bytes of requests in flight have a budget: those above it wait, or are told to retry."""

import asyncio
import contextlib
import io

import pytest

from kopf._kits.webhooks import payloads, server_options

MIB = 1024 * 1024


def build_post(body, declared=None):
    return (
        b'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % (declared or len(body)) + body
    )


def build_review(size):
    return b'{"a": "' + b'x' * (size - 9) + b'"}'


@contextlib.asynccontextmanager
async def sending(served, content):
    """Send this in a connection of its own, as far as it is accepted; the answer can be read."""
    reader, writer = await asyncio.open_connection('localhost', served.port)
    writer.write(content)
    try:
        yield reader
    finally:
        writer.transport.abort()


async def wait_for_calls(reviewer, count):
    while len(reviewer.calls) < count:
        await asyncio.sleep(0.001)


@pytest.fixture
async def tight(serve):
    """A server with a budget for one request of the biggest size."""
    return await serve(insecure=True, addr='127.0.0.1', inflight_bytes=server_options.MAX_SIZE)


@pytest.mark.guarantee('FND-053')
async def test_bytes_are_counted_until_the_answer_and_then_given_back(tight, reviewer):
    reviewer.gate = asyncio.Event()
    async with sending(tight, build_post(build_review(4 * MIB))) as first:
        await wait_for_calls(reviewer, 1)
        second = asyncio.create_task(tight.post(data=io.BytesIO(build_review(4 * MIB))))
        await asyncio.sleep(0.1)  # for nothing to happen
        assert len(reviewer.calls) == 1
        reviewer.gate.set()

        assert b' 200 ' in await first.readline()
        assert (await second)[0] == 200


@pytest.mark.guarantee('FND-053')
async def test_only_two_of_the_largest_reviews_are_parsed_at_once(serve, reviewer):
    """Parsed, they take much more memory than their bytes: before, nine of them took a gigabyte."""
    served = await serve(insecure=True, addr='127.0.0.1')
    reviewer.gate = asyncio.Event()
    largest = [
        asyncio.create_task(served.post(data=io.BytesIO(build_review(server_options.MAX_SIZE))))
        for _ in range(4)
    ]
    await wait_for_calls(reviewer, 2)
    medium = asyncio.create_task(served.post(data=io.BytesIO(build_review(200_000))))
    await wait_for_calls(reviewer, 3)
    await asyncio.sleep(0.1)  # for nothing to happen
    sizes = [len(call['request']['a']) for call in reviewer.calls]
    reviewer.gate.set()

    assert sizes[2:] == [200_000 - 9]
    assert [(await task)[0] for task in [*largest, medium]] == [200] * 5


@pytest.mark.guarantee('FND-053')
async def test_large_reviews_that_are_not_parsed_for_too_long_are_told_to_retry(
    serve, reviewer, virtual_time
):
    served = await serve(insecure=True, addr='127.0.0.1')
    reviewer.gate = asyncio.Event()
    content = build_post(build_review(server_options.MAX_SIZE))
    async with sending(served, content), sending(served, content):
        await wait_for_calls(reviewer, 2)
        async with served.request('POST', data=io.BytesIO(build_review(2 * MIB + 1))) as response:
            status, headers = response.status, response.headers
        reviewer.gate.set()

    assert (status, headers['Retry-After']) == (503, '1')
    assert len(reviewer.calls) == 2


@pytest.mark.guarantee('FND-053')
async def test_those_who_wait_for_the_answers_of_others_for_too_long_are_told_to_retry(
    tight, reviewer, virtual_time
):
    reviewer.gate = asyncio.Event()
    async with sending(tight, build_post(build_review(4 * MIB))):
        await wait_for_calls(reviewer, 1)
        async with tight.request('POST', data=io.BytesIO(build_review(4 * MIB))) as response:
            refusal = await response.json()
        reviewer.gate.set()

    assert (response.status, response.headers['Retry-After'], refusal['code']) == (503, '1', 503)
    assert virtual_time.elapsed >= payloads.WAITING_TIMEOUT


@pytest.mark.guarantee('FND-053')
@pytest.mark.parametrize('size', [100, 100_000, 4 * MIB])
async def test_oldest_unfinished_request_makes_room(tight, size):
    async with (
        sending(tight, build_post(b'x' * 3 * MIB, declared=4 * MIB)) as oldest,
        sending(tight, build_post(b'x' * 4 * MIB, declared=5 * MIB)) as newer,
    ):
        await asyncio.sleep(0.2)  # for the most of it to be received
        status, _ = await tight.post(data=io.BytesIO(build_review(size)))
        refused, _ = await asyncio.wait(
            [asyncio.create_task(oldest.readline()), asyncio.create_task(newer.readline())],
            return_when=asyncio.FIRST_COMPLETED,
            timeout=0 if size == 100 else 5,
        )

    assert status == 200
    assert {task.result() for task in refused} <= {b'HTTP/1.1 503 Service Unavailable\r\n'}
    assert size == 100 or refused


@pytest.mark.guarantee('FND-053')
async def test_promised_bytes_are_not_counted(tight):
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(50):
            await stack.enter_async_context(sending(tight, build_post(b'{', declared=7 * MIB)))

        assert (await tight.post(data=io.BytesIO(build_review(6 * MIB))))[0] == 200


@pytest.mark.guarantee('FND-053')
async def test_requests_that_are_gone_give_their_bytes_back(tight):
    for _ in range(3):
        async with sending(tight, build_post(b'x' * 6 * MIB, declared=7 * MIB)):
            await asyncio.sleep(0.05)

    assert (await tight.post(data=io.BytesIO(build_review(7 * MIB))))[0] == 200


async def test_budget_is_as_it_was_after_any_end(tight, reviewer, monkeypatch):
    budgets = []
    original = payloads.Budget.receive

    def receive(budget, request):
        budgets.append(budget)
        return original(budget, request)

    monkeypatch.setattr(payloads.Budget, 'receive', receive)
    reviewer.error = ValueError('boo!')

    statuses = [
        (await tight.post(data=data))[0]
        for data in (b'{}', b'[', build_review(MIB // 2), b'[' * (MIB // 2))
    ]

    assert statuses == [500, 400, 500, 400]
    assert not budgets[0]._taken and not budgets[0]._unfinished
