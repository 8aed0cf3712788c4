import asyncio
import concurrent.futures
import dataclasses
import datetime
import logging
import threading
import traceback

import pytest

from kopf._cogs.aiokits import clocks
from kopf._cogs.configs import settings as settings_
from kopf._core.actions import execution, failures, outcomes, progression
from kopf._core.intents import causes, handlers

logger = logging.getLogger('kopf.tests.execution')
IGNORED, TEMPORARY, PERMANENT = failures.ErrorsMode
MODES = [None, IGNORED, TEMPORARY, PERMANENT]


@dataclasses.dataclass
class Cause:
    kwargs: dict = dataclasses.field(default_factory=dict)
    indices: dict = dataclasses.field(default_factory=dict)
    logger: logging.Logger = logger


@pytest.fixture
def settings():
    settings = settings_.OperatorSettings()
    yield settings
    settings.execution.executor.shutdown(wait=True)


@pytest.fixture
async def env(virtual_time, settings):
    return execution.Environment(settings=settings, now=clocks.Clock())


def build_handler(fn, **options):
    return execution.Handler(id=options.pop('id', 'fn'), fn=fn, **options)


def raising(error, calls=None):
    async def fn(**kwargs):
        if calls is not None:
            calls.append(kwargs)
        raise error

    return fn


async def run_until_finished(handler, env, *, cause=None, state=None):
    """Retry the handler as long as needed, and return its final outcome."""
    state = state if state is not None else progression.State()
    while True:
        results = await execution.run_handlers([handler], cause or Cause(), state, env)
        state = state.with_outcomes(results, now=env.now())
        delay = state.delay([handler.id], env.now())
        if delay is None:
            return results[handler.id]
        await asyncio.sleep(delay)


async def test_success_is_final_and_has_the_result(env):
    async def fn(**_):
        await asyncio.sleep(5)
        return 'result'

    before = env.now()
    outcome = await execution.run_attempt(build_handler(fn), Cause(), None, env)

    assert outcome.is_success
    assert outcome.result == 'result'
    assert (outcome.began - before).total_seconds() == pytest.approx(0, abs=1)
    assert (outcome.ended - outcome.began).total_seconds() == pytest.approx(5, abs=1)


@pytest.mark.guarantee(
    'ERR-010',
    'ERR-011',
    'ERR-012',
    'ERR-014',
    'ERR-015',
    'ERR-016',
    'ERR-017',
    'ERR-018',
    'NEW-035',
    'NEW-036',
)
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize(
    'error, backoff, expected',
    [
        pytest.param(
            failures.TemporaryError('x'), 5, dict.fromkeys(MODES, (False, 60, True)), id='temporary'
        ),
        pytest.param(
            failures.TemporaryError('x', delay=7),
            5,
            dict.fromkeys(MODES, (False, 7, True)),
            id='temporary-with-delay',
        ),
        pytest.param(
            failures.TemporaryError('x', delay=None),
            5,
            dict.fromkeys(MODES, (False, None, True)),
            id='temporary-with-no-delay',
        ),
        pytest.param(
            type('Sub', (failures.TemporaryError,), {})('x'),
            5,
            dict.fromkeys(MODES, (False, 60, True)),
            id='temporary-subclass',
        ),
        pytest.param(
            failures.PermanentError('x'),
            5,
            dict.fromkeys(MODES, (True, None, True)),
            id='permanent',
        ),
        pytest.param(
            type('Sub', (failures.PermanentError,), {})('x'),
            5,
            dict.fromkeys(MODES, (True, None, True)),
            id='permanent-subclass',
        ),
        pytest.param(
            ValueError('x'),
            None,
            {
                None: (False, 33, True),
                TEMPORARY: (False, 33, True),
                PERMANENT: (True, None, True),
                IGNORED: (True, None, False),
            },
            id='arbitrary',
        ),
        pytest.param(
            ValueError('x'),
            5,
            {
                None: (False, 5, True),
                TEMPORARY: (False, 5, True),
                PERMANENT: (True, None, True),
                IGNORED: (True, None, False),
            },
            id='with-backoff',
        ),
        pytest.param(
            ValueError('x'),
            0,
            {
                None: (False, 0, True),
                TEMPORARY: (False, 0, True),
                PERMANENT: (True, None, True),
                IGNORED: (True, None, False),
            },
            id='zero-backoff',
        ),
    ],
)
async def test_errors_lead_to_outcomes_by_their_classes_and_modes(
    env, settings, mode, error, backoff, expected
):
    settings.execution.default_backoff = 33
    handler = build_handler(raising(error), errors=mode, backoff=backoff)

    outcome = await execution.run_attempt(handler, Cause(), None, env)

    assert (outcome.final, outcome.delay, outcome.exception is not None) == expected[mode]
    assert outcome.exception in (None, error)


@pytest.mark.parametrize(
    'mode, default, is_final',
    [
        pytest.param(None, IGNORED, True, id='default'),
        pytest.param(TEMPORARY, IGNORED, False, id='own'),
        pytest.param(IGNORED, TEMPORARY, True, id='own-ignored'),
    ],
)
async def test_the_mode_of_the_handler_wins_over_the_default_one(env, mode, default, is_final):
    handler = build_handler(raising(ValueError('x')), errors=mode)

    outcome = await execution.run_attempt(handler, Cause(), None, env, default_errors=default)

    assert outcome.final is is_final


@pytest.mark.guarantee('ERR-014', 'ERR-018', 'NEW-035', 'NEW-240')
async def test_default_backoff_of_the_reference_is_a_minute(env, virtual_time):
    moments = []

    async def fn(retry, **_):
        moments.append(virtual_time.elapsed)
        if retry < 3:
            raise ValueError('boo')

    await run_until_finished(build_handler(fn), env)

    assert moments == [pytest.approx(moment, abs=0.5) for moment in (0, 60, 120, 180)]


@pytest.mark.guarantee('ERR-022', 'ERR-023', 'NEW-037', 'NEW-039', 'NEW-040')
@pytest.mark.parametrize(
    'error',
    [
        pytest.param(failures.TemporaryError('the reason', delay=10), id='temporary'),
        pytest.param(ValueError('the reason'), id='arbitrary'),
    ],
)
async def test_retries_are_the_number_of_calls_and_the_last_one_is_not_waited_for(
    env, virtual_time, error
):
    calls = []
    handler = build_handler(raising(error, calls), retries=3, backoff=10)

    outcome = await run_until_finished(handler, env)

    assert [kwargs['retry'] for kwargs in calls] == [0, 1, 2]
    assert virtual_time.elapsed == pytest.approx(20, abs=0.5)
    assert outcome.is_failure
    assert type(outcome.exception) is failures.HandlerRetriesError
    assert 'the reason' in str(outcome.exception)
    assert outcome.exception.__cause__ is error


@pytest.mark.guarantee('ERR-019', 'ERR-023', 'NEW-038', 'NEW-040')
@pytest.mark.parametrize(
    'error',
    [
        pytest.param(failures.TemporaryError('the reason', delay=10), id='temporary'),
        pytest.param(ValueError('the reason'), id='arbitrary'),
    ],
)
async def test_handler_that_would_be_late_for_its_next_attempt_fails_at_once(
    env, virtual_time, error
):
    calls = []
    handler = build_handler(raising(error, calls), timeout=30, backoff=10)

    outcome = await run_until_finished(handler, env)

    assert len(calls) == 3
    assert virtual_time.elapsed == pytest.approx(20, abs=0.5)
    assert type(outcome.exception) is failures.HandlerTimeoutError
    assert 'the reason' in str(outcome.exception)


@pytest.mark.guarantee('ERR-012')
async def test_permanent_error_ends_the_handler_whatever_its_limits(env):
    calls = []
    handler = build_handler(
        raising(failures.PermanentError('no'), calls), retries=9, timeout=999, errors=IGNORED
    )

    outcome = await run_until_finished(handler, env)

    assert len(calls) == 1
    assert str(outcome.exception) == 'no'


@pytest.mark.guarantee('ERR-019', 'ERR-021', 'ERR-022', 'ERR-024')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({'timeout': 100}, failures.HandlerTimeoutError, id='timeout'),
        pytest.param({'retries': 5}, failures.HandlerRetriesError, id='retries'),
        pytest.param({'timeout': 101, 'retries': 6}, None, id='within-limits'),
    ],
)
async def test_limits_are_checked_before_the_call_as_time_goes_also_when_the_operator_is_down(
    env, options, expected
):
    calls = []
    started = env.now() - datetime.timedelta(seconds=100)
    state = progression.HandlerState(started=started, retries=5)

    outcome = await execution.run_attempt(
        build_handler(lambda **kwargs: calls.append(kwargs), **options), Cause(), state, env
    )

    assert len(calls) == (0 if expected else 1)
    assert outcome.is_failure is (expected is not None)
    assert expected is None or type(outcome.exception) is expected


@pytest.mark.guarantee('ERR-019', 'ERR-020')
async def test_running_coroutine_is_interrupted_when_the_time_of_the_handler_is_over(
    env, virtual_time
):
    caught = []
    state = progression.HandlerState(started=env.now() - datetime.timedelta(seconds=20), retries=1)

    async def fn(**_):
        try:
            await asyncio.sleep(1000)
        except asyncio.TimeoutError as error:  # noqa: UP041
            caught.append(error)
            raise

    outcome = await execution.run_attempt(build_handler(fn, timeout=30), Cause(), state, env)

    assert len(caught) == 1
    assert virtual_time.elapsed == pytest.approx(10, abs=0.5)
    assert outcome.is_failure
    assert type(outcome.exception) is failures.HandlerTimeoutError


@pytest.mark.guarantee('ERR-020')
async def test_timeouts_of_the_functions_own_are_arbitrary_errors(env):
    async def fn(**_):
        await asyncio.wait_for(asyncio.sleep(1000), timeout=1)

    outcome = await execution.run_attempt(
        build_handler(fn, timeout=600, backoff=5), Cause(), None, env
    )

    assert not outcome.final
    assert outcome.delay == 5
    assert type(outcome.exception) is TimeoutError


@pytest.mark.guarantee('ERR-021')
async def test_running_thread_is_not_interrupted_by_the_timeout(settings):
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    env = execution.Environment(settings=settings, now=lambda: moment)
    released = threading.Event()

    def fn(**_):
        released.wait(timeout=30)
        return 'done'

    task = asyncio.create_task(
        execution.run_attempt(build_handler(fn, timeout=1e-9), Cause(), None, env)
    )
    for _ in range(10):  # enough for any timer of such a timeout
        await asyncio.sleep(0)
    is_interrupted = task.done()
    released.set()

    assert not is_interrupted
    assert (await task).result == 'done'


@pytest.mark.guarantee('KWA-002', 'KWA-013', 'KWA-014', 'KWA-015', 'NEW-240', 'ERR-024')
async def test_attempts_are_told_their_number_and_time(env):
    calls = []
    before = env.now()

    await run_until_finished(
        build_handler(raising(failures.TemporaryError(delay=10), calls), retries=3), env
    )

    assert [kwargs['retry'] for kwargs in calls] == [0, 1, 2]
    assert len({kwargs['started'] for kwargs in calls}) == 1
    assert calls[0]['started'].utcoffset() == datetime.timedelta(0)
    assert (calls[0]['started'] - before).total_seconds() == pytest.approx(0, abs=1)
    assert [kwargs['runtime'].total_seconds() for kwargs in calls] == [
        pytest.approx(x, abs=1) for x in (0, 10, 20)
    ]


@pytest.mark.guarantee('ERR-024', 'KWA-013', 'KWA-014')
async def test_attempts_are_continued_from_where_they_were(env):
    calls = []
    started = env.now() - datetime.timedelta(hours=1)
    state = progression.HandlerState(started=started, retries=7)

    await execution.run_attempt(
        build_handler(lambda **kwargs: calls.append(kwargs)), Cause(), state, env
    )

    assert (calls[0]['retry'], calls[0]['started']) == (7, started)
    assert calls[0]['runtime'].total_seconds() == pytest.approx(3600, abs=1)


async def test_record_with_no_attempts_does_not_count(env):
    calls = []
    state = progression.HandlerState(started=env.now() - datetime.timedelta(hours=1), retries=0)

    await execution.run_attempt(
        build_handler(lambda **kwargs: calls.append(kwargs), timeout=60), Cause(), state, env
    )

    assert calls[0]['runtime'].total_seconds() == pytest.approx(0, abs=1)


@pytest.mark.guarantee('KWA-016')
@pytest.mark.parametrize('param', [None, 'text', 123, {'any': ['thing']}])
async def test_param_is_passed_as_it_is(env, param):
    calls = []

    await execution.run_attempt(
        build_handler(lambda **kwargs: calls.append(kwargs), param=param), Cause(), None, env
    )

    assert calls[0]['param'] is param


@pytest.mark.guarantee('IDX-030')
async def test_arguments_are_overridden_by_those_of_the_handler_and_all_of_them_by_indices(env):
    calls = []
    cause = Cause(
        kwargs={'spec': 1, 'old': 1, 'new': 1},
        indices={'param': 'index', 'retry': 'index', 'new': 'index'},
    )
    env = dataclasses.replace(env, extras=lambda handler, cause: {'old': handler.id, 'new': 2})

    await execution.run_attempt(
        build_handler(lambda **kwargs: calls.append(kwargs), param=1), cause, None, env
    )

    assert {key: calls[0][key] for key in ('spec', 'old', 'new', 'param', 'retry')} == {
        'spec': 1,
        'old': 'fn',
        'new': 'index',
        'param': 'index',
        'retry': 'index',
    }


@pytest.mark.guarantee('KWA-001')
async def test_functions_that_require_what_they_never_get_fail_as_usually(env):
    outcome = await execution.run_attempt(build_handler(lambda spce: None), Cause(), None, env)

    assert not outcome.final
    assert type(outcome.exception) is TypeError
    assert str(outcome.exception).startswith("The function requires 'spce', which it never gets.")


async def test_functions_get_only_what_they_take(env):
    cause = Cause({'name': 'obj', 'spec': {}})

    outcome = await execution.run_attempt(
        build_handler(lambda retry, name: (retry, name)), cause, None, env
    )

    assert outcome.result == (0, 'obj')


@pytest.mark.guarantee('ASY-003')
async def test_the_executor_can_be_replaced_at_any_time(env, settings):
    settings.execution.executor.shutdown()
    handler = build_handler(lambda **_: threading.current_thread().name)

    with concurrent.futures.ThreadPoolExecutor(
        thread_name_prefix='another'
    ) as settings.execution.executor:
        outcome = await execution.run_attempt(handler, Cause(), None, env)

    assert outcome.result.startswith('another')


@pytest.mark.guarantee('ERR-006', 'FND-043', 'FND-044')
@pytest.mark.parametrize(
    'error, options, level, message, has_traceback',
    [
        pytest.param(
            failures.TemporaryError('why'),
            {},
            'WARNING',
            "Handler 'fn' failed temporarily: why (attempt 1; will try again in 60 seconds)",
            False,
            id='temporary',
        ),
        pytest.param(
            failures.TemporaryError('why', delay=1),
            {'retries': 3},
            'WARNING',
            "Handler 'fn' failed temporarily: why (attempt 1 of 3; will try again in 1 second)",
            False,
            id='temporary-limited',
        ),
        pytest.param(
            failures.TemporaryError(delay=None),
            {},
            'WARNING',
            "Handler 'fn' failed temporarily: TemporaryError (attempt 1; will try again now)",
            False,
            id='temporary-undelayed',
        ),
        pytest.param(
            failures.PermanentError('why'),
            {},
            'ERROR',
            "Handler 'fn' failed permanently: why",
            False,
            id='permanent',
        ),
        pytest.param(
            failures.AdmissionError('why'),
            {},
            'ERROR',
            "Handler 'fn' failed permanently: why",
            False,
            id='denial-of-nothing',
        ),
        pytest.param(
            failures.TemporaryError('why'),
            {'retries': 1},
            'ERROR',
            "Handler 'fn' failed permanently: Handler 'fn' has exceeded 1 retries: why",
            False,
            id='last',
        ),
        pytest.param(
            failures.HandlerChildrenRetry(),
            {},
            'DEBUG',
            "Handler 'fn' waits for its sub-handlers.",
            False,
            id='children',
        ),
        pytest.param(
            ValueError('why'),
            {},
            'ERROR',
            "Handler 'fn' failed with an exception and will try again in 60 seconds: why",
            True,
            id='arbitrary',
        ),
        pytest.param(
            ValueError('why'),
            {'backoff': 0.5},
            'ERROR',
            "Handler 'fn' failed with an exception and will try again in 0.5 seconds: why",
            True,
            id='backoff',
        ),
        pytest.param(
            ValueError('why'),
            {'backoff': 0},
            'ERROR',
            "Handler 'fn' failed with an exception and will try again now: why",
            True,
            id='no-backoff',
        ),
        pytest.param(
            ValueError('why'),
            {'retries': 1},
            'ERROR',
            "Handler 'fn' failed with an exception and will stop now: Handler 'fn' has exceeded 1 retries: why",
            True,
            id='last-arbitrary',
        ),
        pytest.param(
            ValueError('why'),
            {'errors': PERMANENT},
            'ERROR',
            "Handler 'fn' failed with an exception and will stop now: why",
            True,
            id='arbitrary-permanent',
        ),
        pytest.param(
            ValueError('why'),
            {'errors': IGNORED},
            'ERROR',
            "Handler 'fn' failed with an exception and will ignore it: why",
            True,
            id='arbitrary-ignored',
        ),
        pytest.param(
            ValueError(),
            {'errors': IGNORED},
            'ERROR',
            "Handler 'fn' failed with an exception and will ignore it: ValueError",
            True,
            id='wordless',
        ),
        pytest.param(
            KeyError('key'),
            {'errors': IGNORED},
            'ERROR',
            "Handler 'fn' failed with an exception and will ignore it: KeyError: 'key'",
            True,
            id='key',
        ),
    ],
)
async def test_failures_tell_what_happens_next_and_arbitrary_ones_their_origin(
    env, caplog, error, options, level, message, has_traceback
):
    caplog.set_level(logging.DEBUG, logger.name)

    await execution.run_attempt(build_handler(raising(error), **options), Cause(), None, env)

    record = caplog.records[-1]
    assert (record.name, record.levelname, record.getMessage()) == (logger.name, level, message)
    assert bool(record.exc_info) is has_traceback


@pytest.mark.guarantee('FND-043')
async def test_later_attempts_are_numbered(env, caplog):
    handler = build_handler(raising(failures.TemporaryError('why', delay=5)), retries=3)

    await run_until_finished(handler, env)

    assert caplog.messages == [
        "Handler 'fn' failed temporarily: why (attempt 1 of 3; will try again in 5 seconds)",
        "Handler 'fn' failed temporarily: why (attempt 2 of 3; will try again in 5 seconds)",
        "Handler 'fn' failed permanently: Handler 'fn' has exceeded 3 retries: why",
    ]


@pytest.mark.guarantee('FND-044')
@pytest.mark.parametrize(
    'error, posted',
    [
        pytest.param(failures.TemporaryError('why'), logging.ERROR, id='temporary'),
        pytest.param(failures.PermanentError('why'), None, id='permanent'),
        pytest.param(ValueError('why'), None, id='arbitrary'),
    ],
)
async def test_k8s_events_of_failures_keep_their_types(env, caplog, error, posted):
    await execution.run_attempt(build_handler(raising(error)), Cause(), None, env)

    assert getattr(caplog.records[-1], 'k8s_level', None) == posted


OPTIONS = {'id': 'fn', 'fn': lambda **_: None}


@pytest.mark.guarantee('FND-042')
@pytest.mark.parametrize(
    'handler, noun, level',
    [
        pytest.param(handlers.ChangingHandler(**OPTIONS), 'Handler', 'INFO', id='changing'),
        pytest.param(handlers.WatchingHandler(**OPTIONS), 'Handler', 'INFO', id='watching'),
        pytest.param(
            handlers.ActivityHandler(**OPTIONS, activity=causes.Activity.STARTUP),
            'Activity',
            'INFO',
            id='activity',
        ),
        pytest.param(handlers.DaemonHandler(**OPTIONS), 'Daemon', 'INFO', id='daemon'),
        pytest.param(handlers.TimerHandler(**OPTIONS), 'Timer', 'DEBUG', id='timer'),
        pytest.param(handlers.IndexingHandler(**OPTIONS), 'Indexer', 'DEBUG', id='indexer'),
    ],
)
async def test_kinds_are_named_and_successes_that_are_no_news_are_for_debugging(
    env, caplog, handler, noun, level
):
    caplog.set_level(logging.DEBUG, logger.name)

    await execution.run_attempt(handler, Cause(), None, env)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ('DEBUG', f"{noun} 'fn' is invoked."),
        (level, f"{noun} 'fn' succeeded."),
    ]


@pytest.mark.guarantee('FND-043', 'FND-044')
@pytest.mark.parametrize(
    'error, text',
    [
        pytest.param(
            failures.TemporaryError('why'),
            'failed temporarily and will not try again: why',
            id='temporary',
        ),
        pytest.param(
            ValueError('why'),
            'failed with an exception and will not try again: why',
            id='arbitrary',
        ),
    ],
)
@pytest.mark.parametrize(
    'cls, options, noun',
    [
        pytest.param(handlers.WatchingHandler, {}, 'Handler', id='watching'),
        pytest.param(
            handlers.WebhookHandler,
            {'type': causes.WebhookType.VALIDATING},
            'Handler',
            id='webhook',
        ),
        pytest.param(
            handlers.ActivityHandler, {'activity': causes.Activity.PROBE}, 'Activity', id='probe'
        ),
    ],
)
async def test_attempts_that_will_not_come_are_not_promised(
    env, caplog, cls, options, noun, error, text
):
    handler = cls(id='fn', fn=raising(error), **options)

    await execution.run_attempt(handler, Cause(), None, env)

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ('ERROR', f"{noun} 'fn' {text}")


@pytest.mark.guarantee('FND-044')
async def test_denials_are_no_errors(env, caplog):
    caplog.set_level(logging.INFO, logger.name)
    handler = handlers.WebhookHandler(
        id='fn', fn=raising(failures.AdmissionError('No way.')), type=causes.WebhookType.VALIDATING
    )

    await execution.run_attempt(handler, Cause(), None, env, default_errors=PERMANENT)

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        'INFO',
        "Handler 'fn' failed permanently: No way.",
    )
    assert record.k8s_level == logging.ERROR


def raise_deep():
    raise ValueError('why')


async def raise_async(**_):
    raise_deep()


def raise_sync(**_):
    raise_deep()


@pytest.mark.guarantee('FND-043')
@pytest.mark.parametrize(
    'fn, timeout, frames',
    [
        pytest.param(raise_async, None, ['raise_async', 'raise_deep'], id='coroutine'),
        pytest.param(raise_async, 10, ['raise_async', 'raise_deep'], id='limited'),
        pytest.param(raise_sync, None, ['raise_sync', 'raise_deep'], id='thread'),
        pytest.param(lambda spce: None, None, [], id='wrong-arguments'),
    ],
)
async def test_tracebacks_begin_with_the_users_code(env, caplog, fn, timeout, frames):
    await execution.run_attempt(build_handler(fn, timeout=timeout), Cause({'body': {}}), None, env)

    (record,) = caplog.records
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])] == frames
    assert record.exc_text is None or '/kopf/_core/' not in record.exc_text


@pytest.mark.guarantee('FND-043')
async def test_errors_around_the_users_code_keep_their_tracebacks(env, caplog):
    await execution.run_attempt(build_handler(raise_async), Cause(kwargs=None), None, env)

    (record,) = caplog.records
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])] == [
        'run_attempt',
        '_call',
        'build_kwargs',
    ]


@pytest.mark.parametrize('timeout', [None, 500])
async def test_cancellation_of_an_attempt_is_not_an_outcome(env, caplog, timeout):
    async def fn(**_):
        await asyncio.sleep(1000)

    handler = build_handler(fn, timeout=timeout)
    task = asyncio.create_task(execution.run_attempt(handler, Cause(), None, env))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert 'failed' not in caplog.text


@pytest.mark.parametrize('error', [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_exits_are_not_errors_of_handlers(env, error):
    caught = None
    try:
        await execution.run_attempt(build_handler(raising(error())), Cause(), None, env)
    except BaseException as exc:
        caught = exc

    assert type(caught) is error


@pytest.mark.guarantee('ERR-003')
async def test_error_in_one_handler_does_not_prevent_others(env):
    calls = []
    handlers = [
        build_handler(raising(ValueError()), id='a'),
        build_handler(lambda **_: calls.append('b'), id='b'),
    ]

    results = await execution.run_handlers(handlers, Cause(), progression.State(), env)

    assert calls == ['b']
    assert {id: outcome.final for id, outcome in results.items()} == {'a': False, 'b': True}


@pytest.mark.guarantee('ERR-004', 'ERR-005')
async def test_only_due_handlers_are_executed_in_the_order_of_declaration(env):
    calls = []
    names = ['new', 'sleeping', 'awake', 'succeeded', 'failed', 'last']
    handlers = [build_handler(lambda name=name, **_: calls.append(name), id=name) for name in names]
    state = progression.State().with_outcomes(
        {
            'sleeping': outcomes.Outcome(final=False, delay=10),
            'awake': outcomes.Outcome(final=False, delay=5),
            'succeeded': outcomes.Outcome(final=True),
            'failed': outcomes.Outcome(final=True, exception=ValueError()),
        },
        now=env.now() - datetime.timedelta(seconds=7),
    )

    results = await execution.run_handlers(handlers, Cause(), state, env)

    assert calls == list(results) == ['new', 'awake', 'last']


@pytest.mark.guarantee('NEW-257')
async def test_lifecycle_decides_which_of_the_due_handlers_are_executed(env):
    asked = []

    def lifecycle(handlers, *, state, spec, **kwargs):
        asked.append(([handler.id for handler in handlers], state, spec))
        return handlers[1:]

    handlers = [build_handler(lambda **_: None, id=id) for id in 'abc']
    state = progression.State().with_outcomes({'a': outcomes.Outcome(final=True)}, now=env.now())
    env = dataclasses.replace(env, lifecycle=lifecycle)
    cause = Cause(kwargs={'spec': 'given', 'handlers': 'an index of such a name'})

    results = await execution.run_handlers(handlers, cause, state, env)

    assert asked == [(['b', 'c'], state, 'given')]
    assert list(results) == ['c']


async def test_lifecycle_is_not_asked_about_nothing(env):
    env = dataclasses.replace(env, lifecycle=lambda handlers, **_: pytest.fail('is asked'))

    assert await execution.run_handlers([], Cause(), progression.State(), env) == {}


async def test_handlers_repeated_or_added_by_the_lifecycle_are_executed_once_or_not_at_all(env):
    calls = []
    handlers = [build_handler(lambda name=name, **_: calls.append(name), id=name) for name in 'abc']
    stranger = build_handler(lambda **_: calls.append('stranger'), id='stranger')
    env = dataclasses.replace(env, lifecycle=lambda due, **_: [due[1], stranger, due[0], due[1]])

    await execution.run_handlers(handlers, Cause(), progression.State(), env)

    assert calls == ['b', 'a']
