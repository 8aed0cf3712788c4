"""
What is logged of the handling of objects.
"""

import logging

import pytest

import kopf
from kopf._cogs.clients.patching import application
from kopf._cogs.structs import diffs
from kopf._core.actions import loggers, outcomes, progression
from kopf._core.engines.events import posting
from kopf._core.intents import reasons
from kopf._core.reactor import reporting

BODY = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'metadata': {'name': 'obj', 'namespace': 'ns'},
    'spec': {'x': 1},
}
SECRET = {
    'apiVersion': 'v1',
    'kind': 'Secret',
    'data': {'key': 'c2VjcmV0'},
    'stringData': {'other': 'c2VjcmV0'},
    'metadata': {'name': 'obj', 'namespace': 'ns', 'annotations': {'last': '{"key": "c2VjcmV0"}'}},
}
DIFF = diffs.Diff([('add', ('spec', 'x'), None, 1)])
SECRET_DIFF = diffs.Diff(
    [
        ('add', ('data', 'new'), None, 'c2VjcmV0'),
        ('remove', ('data', 'old'), 'c2VjcmV0', None),
        ('change', (), {'data': {'key': 'c2VjcmV0'}}, {'data': {}}),
    ]
)
CYCLES = [
    (reasons.Reason.CREATE, 'Creation'),
    (reasons.Reason.UPDATE, 'Updating'),
    (reasons.Reason.DELETE, 'Deletion'),
    (reasons.Reason.RESUME, 'Resuming'),
]
Holding = application.Holding
OTHERS = [reasons.Reason.NOOP, reasons.Reason.FREE, reasons.Reason.GONE]


class Unprintable(dict):
    """An object that costs too much to be printed."""

    def keys(self):
        raise AssertionError('It is looked into.')

    __iter__ = __repr__ = keys


class Poster:
    def __init__(self, settings):
        self.settings, self.events = settings, []

    def put(self, ref, *, type, reason, message, backoffs):
        self.events.append((ref['name'], type, reason, message))


@pytest.fixture
def settings():
    return kopf.OperatorSettings()


@pytest.fixture
def logger(settings):
    return loggers.ObjectLogger(body=BODY, settings=settings)


@pytest.fixture
def lines(caplog):
    """All lines as pairs of their levels and texts."""
    caplog.set_level(logging.DEBUG)
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.guarantee('FND-041')
@pytest.mark.parametrize('reason, noun', CYCLES)
def test_cycles_begin_with_the_body(logger, lines, reason, noun):
    reporting.log_beginning(logger, reason, BODY)

    assert lines() == [('DEBUG', f'{noun} is in progress: {BODY!r}')]


@pytest.mark.guarantee('FND-041')
@pytest.mark.parametrize(
    'reason, number',
    [
        (reasons.Reason.UPDATE, 2),
        (reasons.Reason.CREATE, 1),
        (reasons.Reason.DELETE, 1),
        (reasons.Reason.RESUME, 1),
    ],
)
def test_diffs_are_told_for_updates_only(logger, lines, reason, number):
    reporting.log_beginning(logger, reason, BODY, DIFF)

    assert len(lines()) == number
    if number == 2:
        assert lines()[-1] == ('DEBUG', f'Updating has the diff: {DIFF!r}')


@pytest.mark.guarantee('FND-040', 'FND-041')
@pytest.mark.parametrize('reason', OTHERS)
def test_nothing_is_told_if_there_is_no_cycle(logger, lines, reason):
    reporting.log_beginning(logger, reason, BODY, DIFF)
    reporting.log_summary(logger, reason, succeeded=1, failed=0)

    assert lines() == []


@pytest.mark.guarantee('FND-041')
@pytest.mark.parametrize(
    'body',
    [SECRET, {key: SECRET[key] for key in ('data', 'stringData', 'metadata')}],
    ids=['whole', 'anonymous'],
)
def test_secrets_are_not_told(logger, lines, body):
    reporting.log_beginning(logger, reasons.Reason.UPDATE, body, SECRET_DIFF, is_secret=True)

    (_, beginning), (_, diff) = lines()
    assert 'c2VjcmV0' not in beginning and "'data': {'key': '***'}" in beginning
    assert diff == (
        "Updating has the diff: (('add', ('data', 'new'), None, '***'), "
        "('remove', ('data', 'old'), '***', None), ('change', (), '***', '***'))"
    )


@pytest.mark.guarantee('FND-041')
def test_nothing_is_looked_into_if_it_is_not_to_be_logged(logger, caplog):
    caplog.set_level(logging.INFO)

    reporting.log_beginning(
        logger, reasons.Reason.UPDATE, Unprintable(BODY), Unprintable(), is_secret=True
    )

    assert caplog.messages == []


@pytest.mark.guarantee('FND-040')
@pytest.mark.parametrize('reason, noun', CYCLES)
def test_cycles_end_with_the_summary(logger, lines, reason, noun):
    reporting.log_summary(logger, reason, succeeded=1, failed=0)

    assert lines() == [('INFO', f'{noun} is processed: 1 succeeded; 0 failed.')]


@pytest.mark.guarantee('FND-040')
def test_summaries_are_posted_once_with_other_messages_of_objects(logger, settings, lines):
    settings.posting.loggers = True
    poster = Poster(settings)

    with posting.listening(poster):
        reporting.log_beginning(logger, reasons.Reason.CREATE, BODY)
        reporting.log_summary(logger, reasons.Reason.CREATE, succeeded=2, failed=1)

    assert poster.events == [
        ('obj', 'Normal', 'Logging', 'Creation is processed: 2 succeeded; 1 failed.')
    ]


@pytest.mark.guarantee('FND-040')
def test_outcomes_are_counted_by_the_final_states_of_the_handlers():
    state = progression.State().with_outcomes(
        {
            'one': outcomes.Outcome(final=True),
            'two': outcomes.Outcome(final=True, exception=ValueError()),
            'three': outcomes.Outcome(final=True, result=1),
            'other': outcomes.Outcome(final=True),
            'unfinished': outcomes.Outcome(final=False, exception=ValueError()),
        },
        now=None,
    )

    counts = reporting.count_outcomes(
        state, ['one', 'two', 'three', 'three', 'unfinished', 'unknown']
    )

    assert counts == (2, 1)


@pytest.mark.guarantee('FND-041')
@pytest.mark.parametrize(
    'log, beginning',
    [
        pytest.param(
            lambda logger: reporting.log_holding(logger, Holding.BLOCK),
            'Adding the finalizer',
            id='adding',
        ),
        pytest.param(
            lambda logger: reporting.log_holding(logger, Holding.ALLOW),
            'Removing the finalizer',
            id='removing',
        ),
        pytest.param(reporting.log_dismissal, 'Nothing of interest', id='dismissal'),
        pytest.param(reporting.log_deletion, 'Deleted', id='deletion'),
    ],
)
def test_steps_are_told_for_debugging(logger, lines, log, beginning):
    log(logger)

    ((level, text),) = lines()
    assert level == 'DEBUG'
    assert text.startswith(f'{beginning}: ')


@pytest.mark.guarantee('FND-041')
@pytest.mark.parametrize(
    'delay, text',
    [(60, 'in 60 seconds'), (0.12345, 'in 0.123 seconds'), (1, 'in 1 second'), (0, 'now')],
)
def test_sleeps_are_told_with_their_durations(logger, lines, delay, text):
    reporting.log_sleep(logger, delay)

    assert lines() == [('DEBUG', f'Sleeping for the delayed handlers: they are due {text}.')]
