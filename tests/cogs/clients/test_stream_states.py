"""
States of streams: what probes and metrics can tell of them at any moment.
"""

import asyncio
import json

import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.watching import stream_states, watch_events

Phase = stream_states.Phase
FAILURE = errors.APISilenceError('The stream was silent for 70 s.')


@pytest.mark.parametrize(
    'state, expected',
    [
        pytest.param(
            stream_states.StreamState(),
            {
                'phase': 'idle',
                'lasts': None,
                'silence': None,
                'failing': None,
                'failures': 0,
                'reconnects': 0,
                'relists': 0,
                'is_listed': False,
                'objects': 0,
                'error': None,
            },
            id='not-begun',
        ),
        pytest.param(
            stream_states.StreamState(phase=Phase.LISTING, begun=90.0, since=90.0),
            {
                'phase': 'listing',
                'lasts': 10.0,
                'silence': 10.0,
                'failing': None,
                'is_listed': False,
            },
            id='listing',
        ),
        pytest.param(
            stream_states.StreamState(
                phase=Phase.CONNECTED,
                begun=10.0,
                since=50.0,
                fed=70.0,
                is_listed=True,
                known={watch_events.Key('ns', 'a'): watch_events.Seen('uid', '5')},
            ),
            {
                'phase': 'connected',
                'lasts': 50.0,
                'silence': 30.0,
                'failing': None,
                'is_listed': True,
                'objects': 1,
            },
            id='connected',
        ),
        pytest.param(
            stream_states.StreamState(
                phase=Phase.WAITING,
                begun=10.0,
                since=99.0,
                fed=70.0,
                failing_since=80.0,
                failures=3,
                reconnects=5,
                relists=1,
                error=FAILURE,
                is_listed=True,
            ),
            {
                'phase': 'waiting',
                'lasts': 1.0,
                'silence': 30.0,
                'failing': 20.0,
                'failures': 3,
                'reconnects': 5,
                'relists': 1,
                'error': 'APISilenceError: The stream was silent for 70 s.',
            },
            id='backing-off',
        ),
        pytest.param(
            stream_states.StreamState(
                phase=Phase.CONNECTED, begun=10.0, since=50.0, fed=70.0, error=FAILURE
            ),
            {
                'failing': None,
                'failures': 0,
                'error': 'APISilenceError: The stream was silent for 70 s.',
            },
            id='recovered',
        ),
        pytest.param(
            stream_states.StreamState(phase=Phase.LISTING, begun=90.0, since=95.0, fed=30.0),
            {'lasts': 5.0, 'silence': 10.0},
            id='begun-anew',
        ),
        pytest.param(
            stream_states.StreamState(phase=Phase.CONNECTED, begun=101.0, since=101.0, fed=101.0),
            {'lasts': 0.0, 'silence': 0.0},
            id='later-than-now',
        ),
    ],
)
def test_states_are_described(state, expected):
    description = stream_states.describe(state, now=100.0)

    assert description == {**description, **expected}
    assert json.loads(json.dumps(description)) == description


def test_durations_of_failing_begin_with_the_first_failure():
    state = stream_states.StreamState()
    for moment in (10.0, 20.0, 30.0):
        state.fail(FAILURE, moment)

    assert stream_states.describe(state, now=50.0)['failing'] == 40.0
    state.feed(60.0)
    assert stream_states.describe(state, now=70.0)['failing'] is None


async def test_states_follow_the_life_of_the_stream(virtual_time, sandbox, read):
    def describe():
        return stream_states.describe(reading.state, asyncio.get_running_loop().time())

    stalled = sandbox.faults.inject(verb='list', stall=True)
    reading = await read()
    await stalled.wait_until_hit()
    await asyncio.sleep(10)
    listing = describe()
    stalled.lift()
    await reading.wait_until_connected()
    await asyncio.sleep(90)
    connected = describe()
    refused = sandbox.faults.inject(verb='watch', code=500)
    sandbox.faults.cut_streams()
    await asyncio.sleep(20)
    waiting = describe()
    refused.lift()
    await reading.wait_until_connected()
    await asyncio.sleep(100)
    recovered = describe()

    assert (listing['phase'], listing['is_listed'], listing['failing']) == ('listing', False, None)
    assert listing['lasts'] == listing['silence'] == pytest.approx(10, abs=1)
    assert (connected['phase'], connected['is_listed'], connected['failing']) == (
        'connected',
        True,
        None,
    )
    assert connected['lasts'] == pytest.approx(90, abs=1)
    assert connected['silence'] == pytest.approx(30, abs=1)  # there was a bookmark
    assert (waiting['phase'], waiting['failures']) == ('waiting', 5)
    assert waiting['failing'] == pytest.approx(20, abs=1)
    assert 'HTTP 500' in waiting['error']
    assert (recovered['phase'], recovered['failing'], recovered['reconnects']) == (
        'connected',
        None,
        5,
    )
