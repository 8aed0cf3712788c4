"""
Whether an operator is alive and ready, judged by its streams and by its event loop.
"""

import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.configs import settings
from kopf._core.engines.probing import health

NOW = 10_000.0
LIMITS = health.Limits(silence=70.0, death=900.0, lag=5.0)
Phase = stream_states.Phase


def build_state(phase=Phase.CONNECTED, *, silent=0.0, failing=None, is_listed=True, error=None):
    """A stream that is so many seconds silent or failing by now."""
    failing_since = None if failing is None else NOW - failing
    error = error or (None if failing is None else errors.APIDisconnectedError('boo!'))
    return stream_states.StreamState(
        phase=phase,
        begun=NOW - silent - 100,
        since=NOW - 1,
        fed=NOW - silent,
        failing_since=failing_since,
        is_listed=is_listed,
        error=error,
    )


def build_vitals(state=None, **kwargs):
    return health.Vitals(
        now=NOW, limits=LIMITS, streams={} if state is None else {'pods.v1': state}, **kwargs
    )


def forbid():
    return errors.build_error(errors.parse_answer(403, {}, b'', now=None))


@pytest.mark.parametrize(
    'state, is_ready',
    [
        pytest.param(build_state(), True, id='connected'),
        pytest.param(build_state(silent=69), True, id='quiet'),
        pytest.param(build_state(silent=71), False, id='silent'),
        pytest.param(build_state(failing=5), True, id='connected-after-failure'),
        pytest.param(build_state(Phase.WAITING, failing=0.1), False, id='failed'),
        pytest.param(
            build_state(Phase.CONNECTING, failing=5), False, id='connecting-after-failure'
        ),
        pytest.param(build_state(Phase.LISTING, failing=5), False, id='listing-after-failure'),
        pytest.param(build_state(Phase.CONNECTING), True, id='reconnecting'),
        pytest.param(build_state(Phase.PAUSING), True, id='between-connections'),
        pytest.param(build_state(Phase.LISTING), True, id='relisting'),
        pytest.param(build_state(Phase.LISTING, is_listed=False), False, id='never-listed'),
        pytest.param(build_state(Phase.IDLE, is_listed=False), False, id='not-begun'),
        pytest.param(
            build_state(Phase.WAITING, failing=5, is_listed=False, error=forbid()),
            False,
            id='forbidden',
        ),
        pytest.param(build_state(Phase.ENDED), False, id='ended'),
    ],
)
def test_stream_is_ready_when_it_is_listed_and_connected(state, is_ready):
    (finding,) = health.report_readiness(build_vitals(state))

    assert finding.name == 'pods.v1'
    assert finding.is_fine is is_ready
    assert state.phase.name.lower() in finding.text


def test_failing_streams_are_explained():
    (finding,) = health.report_readiness(build_vitals(build_state(Phase.WAITING, failing=42)))

    assert 'failing for 42 s: APIDisconnectedError: boo!' in finding.text


@pytest.mark.parametrize(
    'kwargs, name',
    [
        pytest.param({'missing': ['pods.v1']}, 'pods.v1', id='missing'),
        pytest.param({'obstacles': {'discovery': 'unknown'}}, 'discovery', id='obstacle'),
        pytest.param(
            {'observers': {'crds': build_state(Phase.WAITING, failing=5)}}, 'crds', id='observer'
        ),
    ],
)
def test_operator_is_not_ready_because_of_other_reasons(kwargs, name):
    (finding,) = health.report_readiness(build_vitals(**kwargs))

    assert finding.name == name
    assert not finding.is_fine


@pytest.mark.parametrize(
    'kwargs',
    [
        pytest.param({'notes': {'pods.v1': 'paused'}}, id='note'),
        pytest.param({'observers': {'crds': build_state()}}, id='observer'),
        pytest.param(
            {'observers': {'crds': build_state(Phase.ENDED, is_listed=False)}},
            id='forbidden-observer',
        ),
        pytest.param(
            {'observers': {'crds': build_state(Phase.LISTING, is_listed=False)}},
            id='retried-observer',
        ),
    ],
)
def test_operator_is_ready_in_spite_of_other_reasons(kwargs):
    (finding,) = health.report_readiness(build_vitals(**kwargs))

    assert finding.is_fine


@pytest.mark.parametrize(
    'state, text',
    [
        pytest.param(build_state(), None, id='connected'),
        pytest.param(build_state(silent=899), None, id='silent'),
        pytest.param(
            build_state(silent=901), 'silent for 901 s while connected', id='silent-for-too-long'
        ),
        pytest.param(
            build_state(Phase.LISTING, silent=901),
            'silent for 901 s while listing',
            id='stuck-in-listing',
        ),
        pytest.param(build_state(Phase.WAITING, failing=599), None, id='failing'),
        pytest.param(
            build_state(Phase.WAITING, failing=601),
            'failing for 601 s: APIDisconnectedError: boo!',
            id='failing-for-too-long',
        ),
        pytest.param(
            build_state(Phase.WAITING, failing=9999, silent=9999, error=forbid()),
            None,
            id='forbidden',
        ),
        pytest.param(build_state(Phase.ENDED, silent=9999), None, id='ended'),
        pytest.param(build_state(Phase.IDLE, silent=9999), None, id='not-begun'),
    ],
)
def test_operator_is_dead_when_a_stream_is_wrong_for_long(state, text):
    expected = [] if text is None else [f'pods.v1: {text}']

    assert health.find_deaths(build_vitals(state)) == expected
    assert health.find_deaths(build_vitals(observers={'pods.v1': state})) == expected


@pytest.mark.parametrize(
    'limit, lag, expected',
    [
        pytest.param(5.0, 4.9, [], id='late'),
        pytest.param(5.0, 5.1, ['event loop: blocked for 5.1 s'], id='blocked'),
        pytest.param(None, 9999, [], id='unlimited'),
    ],
)
def test_operator_is_dead_when_its_loop_is_blocked(limit, lag, expected):
    vitals = health.Vitals(now=NOW, limits=health.Limits(70, 900, limit), lag=lag)

    assert health.find_deaths(vitals) == expected


def test_operator_is_alive_though_not_ready():
    vitals = build_vitals(
        build_state(Phase.WAITING, failing=60), obstacles={'discovery': '…'}, missing=['x']
    )

    assert health.find_deaths(vitals) == []


@pytest.mark.parametrize(
    'request_timeout, inactivity_timeout, expected',
    [
        pytest.param(300, 70, 900, id='defaults'),
        pytest.param(None, 70, 670, id='no-timeout'),
        pytest.param(300, 1000, 1600, id='patient'),
    ],
)
def test_limits_leave_time_for_the_streams_to_recover(
    request_timeout, inactivity_timeout, expected
):
    chosen = settings.OperatorSettings()
    chosen.networking.request_timeout = request_timeout
    chosen.watching.inactivity_timeout = inactivity_timeout

    assert health.choose_limits(chosen) == health.Limits(
        silence=inactivity_timeout, death=expected, lag=5.0
    )
