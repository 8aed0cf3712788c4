"""
Errors of indexing functions: the object is left out of the index, and is handled as usual
otherwise.
"""

import asyncio
import datetime
import logging

import pytest
from clusters import wait_until
from timed_notes import pass_time

import kopf


@pytest.fixture
def run(cluster, registry, run_operator, calls):
    """
    Run an operator with an index whose function raises these errors in turn, or returns the spec.

    The object is changed every 10 seconds; returned is what is in the index after each of the
    changes.
    """

    async def run(*errors, **options):
        @kopf.index('kopfexamples', id='index', registry=registry, **options)
        async def index(spec, retry, started, runtime, **_):
            calls.note(retry, round(runtime / datetime.timedelta(seconds=1)))
            error = errors[len(calls) - 1] if len(calls) <= len(errors) else None
            if error is not None:
                raise error
            return {spec['x']: 'value'}

        @kopf.index('kopfexamples', id='other', registry=registry)
        async def other(spec, **_):
            return {spec['x']: 'value'}

        @kopf.on.event('kopfexamples', registry=registry)
        async def event_fn(spec, index, other, **_):
            assert list(other) == [spec['x']]
            contents.append(list(index))

        contents = []
        await run_operator()
        await cluster.create(spec={'x': 0})
        for x in range(1, 5):
            await pass_time(10)
            await cluster.patch({'spec': {'x': x}})
        await pass_time(10)
        return contents

    return run


@pytest.mark.guarantee('IDX-021', 'IDX-022', 'IDX-027', 'IDX-028')
async def test_arbitrary_errors_are_logged_and_the_former_values_stay(run, calls, logs, caplog):
    contents = await run(None, ValueError('oops'))

    assert contents == [[0], [0], [2], [3], [4]]
    assert calls == [(10 * x, 0, 0) for x in range(5)]
    assert any("'index' failed with an exception" in text for text in logs(logging.ERROR))
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError]


@pytest.mark.guarantee('IDX-022')
async def test_cancellations_from_the_inside_are_arbitrary_errors(run, calls):
    contents = await run(None, asyncio.CancelledError())

    assert contents == [[0], [0], [2], [3], [4]]


@pytest.mark.guarantee('IDX-023', 'IDX-028')
@pytest.mark.parametrize(
    'error, options',
    [
        pytest.param(kopf.PermanentError('oops'), {}, id='permanent'),
        pytest.param(ValueError('oops'), {'errors': kopf.ErrorsMode.PERMANENT}, id='arbitrary'),
    ],
)
async def test_permanent_errors_exclude_the_object_for_ever(run, calls, error, options):
    contents = await run(None, error, **options)

    assert contents == [[0], [], [], [], []]
    assert calls == [(0, 0, 0), (10, 0, 0)]


AT_ONCE = ([[0], [], [2], [3], [4]], [(0, 0), (10, 0), (20, 1), (30, 0), (40, 0)])
LATER = ([[0], [], [], [3], [4]], [(0, 0), (10, 0), (30, 1), (40, 0)])
TOO_LATE = ([[0], [], [], [], []], [(0, 0), (10, 0)])


@pytest.mark.guarantee('IDX-024', 'IDX-025', 'IDX-027', 'NEW-035')
@pytest.mark.parametrize(
    'error, options, expected',
    [
        pytest.param(kopf.TemporaryError('oops', delay=15), {}, LATER, id='temporary'),
        pytest.param(kopf.TemporaryError('oops', delay=None), {}, AT_ONCE, id='temporary-none'),
        pytest.param(kopf.TemporaryError('oops', delay=0), {}, AT_ONCE, id='temporary-zero'),
        pytest.param(kopf.TemporaryError('oops'), {}, TOO_LATE, id='temporary-default'),
        pytest.param(
            ValueError('oops'),
            {'errors': kopf.ErrorsMode.TEMPORARY, 'backoff': 15},
            LATER,
            id='arbitrary',
        ),
        pytest.param(
            ValueError('oops'),
            {'errors': kopf.ErrorsMode.TEMPORARY, 'backoff': 0},
            AT_ONCE,
            id='backoff-zero',
        ),
        pytest.param(
            ValueError('oops'),
            {'errors': kopf.ErrorsMode.TEMPORARY},
            TOO_LATE,
            id='backoff-default',
        ),
    ],
)
async def test_temporary_errors_exclude_the_object_for_a_while(
    run, calls, error, options, expected
):
    contents = await run(None, error, **options)

    assert (contents, [(moment, retry) for moment, retry, _ in calls]) == expected


@pytest.mark.guarantee('IDX-026', 'IDX-027')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({'retries': 2}, [(0, 0, 0), (10, 0, 0), (20, 1, 10)], id='retries'),
        pytest.param({'timeout': 15}, [(0, 0, 0), (10, 0, 0), (20, 1, 10)], id='timeout'),
        pytest.param(
            {}, [(0, 0, 0), (10, 0, 0), (20, 1, 10), (30, 2, 20), (40, 3, 30)], id='no-limits'
        ),
    ],
)
async def test_repeated_errors_exclude_the_object_for_ever_at_some_moment(
    run, calls, options, expected
):
    contents = await run(None, *([kopf.TemporaryError('oops', delay=7)] * 10), **options)

    assert contents == [[0], [], [], [], []]
    assert calls == expected


@pytest.mark.guarantee('IDX-027')
async def test_a_success_begins_the_count_anew(run, calls):
    error = kopf.TemporaryError('oops', delay=0)

    contents = await run(error, error, None, error, retries=3)

    assert contents == [[], [], [2], [], [4]]
    assert calls == [(0, 0, 0), (10, 1, 10), (20, 2, 20), (30, 0, 0), (40, 1, 10)]


@pytest.mark.guarantee('IDX-023', 'IDX-029')
async def test_recreated_objects_are_indexed_again(cluster, registry, run_operator, calls):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(spec, **_):
        if spec['x'] == 1:
            raise kopf.PermanentError('never')
        return spec['x']

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, index, **_):
        calls.append((type, list(index.get(None, []))))

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.patch({'spec': {'x': 2}})
    await cluster.delete()
    await wait_until(lambda: len(calls) == 3)
    await cluster.create(spec={'x': 2})
    await wait_until(lambda: len(calls) == 4)

    assert calls == [('ADDED', []), ('MODIFIED', []), ('DELETED', []), ('ADDED', [2])]


@pytest.mark.guarantee('IDX-021', 'IDX-028')
async def test_failing_filters_leave_the_object_as_it_was(
    cluster, registry, run_operator, calls, logs
):
    @kopf.index('kopfexamples', when=lambda spec, **_: 1 / spec['x'], id='index', registry=registry)
    async def index(spec, **_):
        return spec['x']

    @kopf.index('kopfexamples', id='other', registry=registry)
    async def other(spec, **_):
        return spec['x']

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(index, other, **_):
        calls.append([*index[None], *other[None]])

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: len(calls) == 1)
    for x in [0, 2]:
        await cluster.patch({'spec': {'x': x}})
        await wait_until(lambda x=x: calls[-1][-1] == x)

    assert calls == [[1, 1], [1, 0], [2, 2]]
    assert any('filters' in text for text in logs(logging.ERROR))


@pytest.mark.guarantee('IDX-035')
async def test_changes_made_by_indexing_functions_are_not_applied(
    cluster, registry, run_operator, logs
):
    @kopf.index('kopfexamples', id='index', registry=registry)
    async def index(patch, **_):
        patch.status['x'] = 'y'

    await run_operator()
    await cluster.create()
    await wait_until(lambda: any('not applied' in text for text in logs(logging.WARNING)))
    await pass_time(10)

    assert cluster.writes == []
