import asyncio
import datetime
import logging
import threading

import pytest

import kopf
from kopf._cogs.aiokits import clocks
from kopf._cogs.structs import memos
from kopf._core.engines.activities import operator_handlers
from kopf._core.intents import causes

DECORATORS = {
    causes.Activity.STARTUP: kopf.on.startup,
    causes.Activity.CLEANUP: kopf.on.cleanup,
    causes.Activity.AUTHENTICATION: kopf.on.login,
    causes.Activity.PROBE: kopf.on.probe,
}


@pytest.fixture
async def run(virtual_time, registry, settings):
    """Run an activity of an operator with one memo for all of its activities."""
    memo, now = memos.Memo(), clocks.Clock()

    async def run(activity=causes.Activity.STARTUP, indices=None):
        return await operator_handlers.run_activity(
            activity=activity,
            registry=registry,
            settings=settings,
            memo=memo,
            indices=indices or {},
            now=now,
        )

    return run


@pytest.mark.guarantee('STA-001', 'SHD-001', 'AUT-001', 'ASY-001')
@pytest.mark.parametrize('activity', list(DECORATORS))
async def test_only_the_handlers_of_the_activity_are_executed_in_the_order_of_declaration(
    run, registry, activity
):
    for name, decorator in DECORATORS.items():

        @decorator(id=f'{name}-sync', registry=registry)
        def sync_fn(name=name, **_):
            return name, 'sync', threading.current_thread() is threading.main_thread()

        @decorator(id=f'{name}-async', registry=registry)
        async def async_fn(name=name, **_):
            return name, 'async', threading.current_thread() is threading.main_thread()

    results = await run(activity)

    assert list(results.items()) == [
        (f'{activity}-sync', (activity, 'sync', False)),
        (f'{activity}-async', (activity, 'async', True)),
    ]


async def test_no_handlers_have_no_results(run):
    assert await run() == {}


@pytest.mark.guarantee(
    'STA-007', 'STA-010', 'SHD-008', 'AUT-006', 'KWA-002', 'KWA-004', 'KWA-006', 'NEW-049'
)
@pytest.mark.parametrize('activity', list(DECORATORS))
async def test_handlers_get_all_arguments_of_activities(run, registry, settings, activity):
    calls = []
    DECORATORS[activity](id='fn', param='given', registry=registry)(
        lambda **kwargs: calls.append(kwargs)
    )

    await run(activity, indices={'by_name': 'the index'})

    kwargs = calls[0]
    assert set(kwargs) == {
        'activity',
        'settings',
        'logger',
        'memo',
        'param',
        'retry',
        'started',
        'runtime',
        'by_name',
    }
    assert kwargs['activity'] == activity
    assert kwargs['settings'] is settings
    assert kwargs['logger'].name == f'kopf.activities.{activity.value}'
    assert (kwargs['param'], kwargs['retry'], kwargs['by_name']) == ('given', 0, 'the index')
    assert kwargs['started'].utcoffset() == kwargs['runtime'] == datetime.timedelta(0)


@pytest.mark.guarantee('MEM-006', 'SHD-008', 'STA-009')
async def test_all_activities_share_one_memo(run, registry):
    @kopf.on.startup(registry=registry)
    async def begin(memo, **_):
        memo.value = 'from startup'

    @kopf.on.cleanup(id='end', registry=registry)
    async def end(memo, **_):
        return memo.value

    await run(causes.Activity.STARTUP)
    results = await run(causes.Activity.CLEANUP)

    assert results == {'end': 'from startup'}


@pytest.mark.guarantee('STA-003')
async def test_handlers_run_in_the_event_loop_of_the_operator(run, registry):
    @kopf.on.startup(id='begin', registry=registry)
    async def begin(**_):
        return asyncio.get_running_loop()

    assert await run() == {'begin': asyncio.get_running_loop()}


@pytest.mark.guarantee('STA-008')
async def test_settings_changed_by_one_handler_are_in_force_for_the_next_attempts(
    run, registry, virtual_time
):
    @kopf.on.startup(registry=registry)
    async def configure(settings, **_):
        settings.execution.default_backoff = 5

    @kopf.on.startup(registry=registry)
    async def begin(retry, **_):
        if retry < 2:
            raise ValueError('boo')

    await run()

    assert virtual_time.elapsed == pytest.approx(10, abs=1)


@pytest.mark.guarantee('STA-005', 'STA-006', 'SHD-007', 'AUT-005', 'WLD-012')
@pytest.mark.parametrize('activity', list(DECORATORS))
async def test_failing_handlers_are_retried_for_as_long_as_needed(
    run, registry, virtual_time, activity
):
    calls = []

    async def fn(retry, **_):
        calls.append(retry)
        if retry < 100:
            raise ValueError('boo')
        return 'finally'

    DECORATORS[activity](id='fn', registry=registry)(fn)

    assert await run(activity) == {'fn': 'finally'}
    assert calls == list(range(101))
    assert virtual_time.elapsed == pytest.approx(100 * 60, abs=1)


async def test_finished_handlers_are_not_repeated_while_others_are_retried(run, registry):
    calls = []

    @kopf.on.startup(id='first', registry=registry)
    async def first(retry, **_):
        calls.append('first')
        if retry < 2:
            raise kopf.TemporaryError('Not yet.', delay=10)

    @kopf.on.startup(id='second', registry=registry)
    async def second(**_):
        calls.append('second')

    await run()

    assert calls == ['first', 'second', 'first', 'first']


@pytest.mark.guarantee('STA-004')
@pytest.mark.parametrize(
    'error, options, expected',
    [
        pytest.param(kopf.PermanentError('the reason'), {}, kopf.PermanentError, id='permanently'),
        pytest.param(
            ValueError('the reason'), {'retries': 3}, kopf.HandlerRetriesError, id='by-retries'
        ),
        pytest.param(
            ValueError('the reason'), {'timeout': 100}, kopf.HandlerTimeoutError, id='by-timeout'
        ),
        pytest.param(
            ValueError('the reason'),
            {'errors': kopf.ErrorsMode.PERMANENT},
            ValueError,
            id='by-mode',
        ),
    ],
)
async def test_failure_of_one_handler_fails_the_activity_after_the_others_are_executed(
    run, registry, error, options, expected
):
    calls = []

    @kopf.on.startup(id='failing', registry=registry, **options)
    async def failing(**_):
        raise error

    @kopf.on.startup(id='another', registry=registry)
    async def another(**_):
        calls.append('another')

    with pytest.raises(
        operator_handlers.ActivityError, match=r"startup.*'failing': .*the reason"
    ) as caught:
        await run()

    assert calls == ['another']
    assert 'another' not in str(caught.value)
    assert type(caught.value.outcomes['failing'].exception) is expected
    assert caught.value.activity is causes.Activity.STARTUP


async def test_ignored_errors_do_not_fail_the_activity(run, registry):
    @kopf.on.startup(id='failing', registry=registry, errors=kopf.ErrorsMode.IGNORED)
    async def failing(**_):
        raise ValueError('boo')

    assert await run() == {'failing': None}


@pytest.mark.parametrize('waiting', ['in-handler', 'between-attempts'])
async def test_cancellation_ends_the_activity_at_once(run, registry, waiting):
    calls = []

    @kopf.on.startup(id='first', registry=registry)
    async def first(**_):
        calls.append('first')
        if waiting == 'in-handler':
            await asyncio.sleep(1000)
        raise kopf.TemporaryError(delay=1000)

    @kopf.on.startup(id='second', registry=registry)
    async def second(**_):
        calls.append('second')

    task = asyncio.create_task(run())
    await asyncio.sleep(500)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert calls == (['first'] if waiting == 'in-handler' else ['first', 'second'])


async def test_log_lines_come_from_the_loggers_of_the_activity_and_of_the_engine(
    run, registry, caplog
):
    caplog.set_level(logging.DEBUG)
    kopf.on.startup(id='fn', registry=registry)(lambda **_: None)

    await run()

    assert {record.name for record in caplog.records if record.name.startswith('kopf')} == {
        'kopf.activities.startup',
        'kopf._core.engines.activities',
    }
