"""
The time of reviews is limited, whatever the handlers do: the API does not wait for ever, either.
"""

import asyncio
import threading

import pytest
from admitting import Office

import kopf
from kopf._core.engines.admission import configurations, reviewer


@pytest.fixture
def office():
    return Office()


def test_reviews_end_before_the_api_gives_up():
    assert reviewer.TIMEOUT < configurations.TIMEOUT


@pytest.mark.parametrize('number', [1, 2])
async def test_hanging_coroutines_are_cancelled_and_deny_before_the_api_gives_up(
    office, virtual_time, caplog, number
):
    calls = []

    async def fn(**_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append('cancelled')
            raise

    for id in range(number):
        office.validate(id=f'fn{id}')(fn)
    response = await office.review()

    assert calls == ['cancelled'] * number
    assert response['response']['allowed'] is False
    assert response['response']['status'] == {
        'code': 500,
        'message': "Handler 'fn0' has not decided in 29 seconds.",
    }
    assert "Handler 'fn0' has not decided in 29 seconds." in caplog.messages
    assert office.meter.attempts['fn0'].outcomes == {'failed': 1}
    assert virtual_time.elapsed == 29


async def test_hanging_functions_in_threads_are_left_and_deny(office, monkeypatch):
    monkeypatch.setattr(reviewer, 'TIMEOUT', 0.1)  # in real time, as threads live in it
    is_released = threading.Event()
    office.validate(id='fn')(lambda **_: is_released.wait())

    response = await office.review()
    is_released.set()

    assert response['response']['allowed'] is False
    assert (
        response['response']['status']['message'] == "Handler 'fn' has not decided in 0.1 seconds."
    )


async def test_handlers_can_still_have_their_word_when_they_are_cancelled(office, virtual_time):
    @office.validate()
    async def fn(**_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise kopf.AdmissionError('The database is slow today.', code=504) from None

    response = await office.review()

    assert response['response']['status'] == {'code': 504, 'message': 'The database is slow today.'}


async def test_timeouts_of_handlers_themselves_are_their_errors(office):
    @office.validate()
    async def fn(**_):
        raise TimeoutError('The database is silent.')

    response = await office.review()

    assert response['response']['status'] == {'code': 500, 'message': 'The database is silent.'}


@pytest.mark.guarantee('ADM-016')
async def test_hanging_handlers_are_ignored_if_asked_for(office, virtual_time):
    @office.validate(id='one', ignore_failures=True)
    async def fn(**_):
        await asyncio.Event().wait()

    response = await office.review()

    assert response['response']['allowed'] is True
    assert len(response['response']['warnings']) == 1
    assert 'has not decided in 29 seconds' in response['response']['warnings'][0]


async def test_time_of_reviews_counts_from_their_arrival(virtual_time):
    office = Office(is_ready=lambda: virtual_time.elapsed >= 5)

    @office.validate()
    async def fn(**_):
        await asyncio.Event().wait()

    await office.review()

    assert virtual_time.elapsed == 29
