"""
Objects that were left in the middle of their handling by other implementations and older versions.

The annotations and statuses here are literal: such as they are written by the others. All of them
are continued from where they were left, nobody is called again who has finished, and nothing is
left behind in the end.
"""

import asyncio
import datetime

import pytest
from clusters import (
    FINALIZER,
    LAST_HANDLED,
    Cluster,
    build_crd,
    get_last_handled,
    get_progress,
    wait_until,
)
from stored_records import (
    PREFIX,
    annotate,
    delayed,
    dump,
    failed,
    is_clean,
    succeeded,
    waiting,
)

import kopf

LONG_ID = 'x' * 80
LONG_KEY, OLDER_LONG_KEY = f'{PREFIX}/{"x" * 56}-Aa3w-Q', f'{PREFIX}/{"x" * 39}-Aa3w-Q'


@pytest.fixture
def handle(registry, calls):
    """Declare a handler that only tells of its calls."""

    def declare(decorator, id, **options):
        async def fn(retry, reason, **_):
            calls.append((id, str(reason.value), retry))

        decorator('kopfexamples', id=id, registry=registry, **options)(fn)

    return declare


@pytest.mark.guarantee('ERR-024', 'CNT-005', 'NEW-116', 'NEW-117')
@pytest.mark.parametrize('naive', [pytest.param(False, id='aware'), pytest.param(True, id='naive')])
async def test_a_delayed_handler_is_called_in_its_time_with_its_past(
    cluster, registry, run_operator, naive
):
    seen = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(retry, started, runtime, **_):
        seen.append((retry, started, runtime))

    record = delayed(naive=naive)
    await cluster.create(annotations=annotate(create_fn=record))
    await run_operator()
    await asyncio.sleep(90)
    assert seen == []
    assert cluster.writes == []
    body = await cluster.wait(is_clean)

    started = datetime.datetime.fromisoformat(record['started']).replace(tzinfo=datetime.UTC)
    assert [(retry, moment) for retry, moment, _ in seen] == [(1, started)]
    assert datetime.timedelta(seconds=300) <= seen[0][2] < datetime.timedelta(seconds=320)
    assert get_last_handled(body) == {'spec': {'x': 1}}
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('CNT-004')
async def test_those_who_have_finished_are_not_called_again(cluster, handle, run_operator, calls):
    for id in ('one', 'two', 'three'):
        handle(kopf.on.create, id)
    await cluster.create(annotations=annotate(one=succeeded(), two=failed()))
    await run_operator()
    await cluster.wait(is_clean)

    assert calls == [('three', 'create', 0)]


@pytest.mark.guarantee('CNT-004', 'CNT-005', 'CNT-007')
async def test_an_update_is_continued_with_what_was_handled_last(
    cluster, registry, handle, run_operator, calls
):
    seen = []

    @kopf.on.update('kopfexamples', id='two', registry=registry)
    async def two(old, new, diff, retry, **_):
        seen.append((old, new, diff, retry))

    handle(kopf.on.update, 'one')
    await cluster.create(
        spec={'x': 2},
        annotations=annotate({'spec': {'x': 1}}, one=succeeded('update'), two=delayed('update')),
    )
    await run_operator()
    await cluster.wait_until_handled(x=2)

    assert calls == []
    assert seen == [({'spec': {'x': 1}}, {'spec': {'x': 2}}, (('change', ('spec', 'x'), 1, 2),), 1)]


@pytest.mark.guarantee('CNT-010', 'CNT-005')
async def test_a_deletion_is_continued_and_the_object_is_released(
    cluster, handle, run_operator, calls
):
    for id in ('one', 'two', 'three'):
        handle(kopf.on.delete, id)
    await cluster.create(
        finalizers=[FINALIZER],
        annotations=annotate(
            {'spec': {'x': 1}},
            one=succeeded('delete'),
            two=delayed('delete'),
            three=failed('delete'),
        ),
    )
    await cluster.delete()
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == [('two', 'delete', 1)]


async def test_resuming_is_continued(cluster, handle, run_operator, calls):
    handle(kopf.on.resume, 'one')
    handle(kopf.on.resume, 'two')
    await cluster.create(
        annotations=annotate({'spec': {'x': 1}}, one=succeeded('resume'), two=delayed('resume'))
    )
    await run_operator()
    await cluster.wait(is_clean)

    assert calls == [('two', 'resume', 1)]


async def test_sub_handlers_are_continued_and_those_that_are_no_more_are_cleaned(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='parent', registry=registry)
    async def parent(retry, **_):
        calls.append(('parent', retry))

        @kopf.subhandler(id='child-1')
        async def child_1(**_):
            calls.append('child-1')

        @kopf.subhandler(id='child-2')
        async def child_2(retry, **_):
            calls.append(('child-2', retry))
            return {'ok': True}

    ids = ['parent/child-1', 'parent/child-2', 'parent/child-3']
    await cluster.create(
        annotations={
            f'{PREFIX}/parent': dump(waiting(subrefs=ids)),
            f'{PREFIX}/parent.child-1': dump(succeeded()),
            f'{PREFIX}/parent.child-2': dump(delayed(delay=99)),
            f'{PREFIX}/parent.child-3': dump(succeeded()),
        }
    )
    await run_operator()
    body = await cluster.wait(is_clean)

    assert calls == [('parent', 2), ('child-2', 1)]
    assert body['status'] == {'parent/child-2': {'ok': True}}


@pytest.mark.guarantee('NEW-119', 'NEW-120')
@pytest.mark.parametrize(
    'keys',
    [
        pytest.param([LONG_KEY, OLDER_LONG_KEY], id='both'),
        pytest.param([OLDER_LONG_KEY], id='only-the-older-one'),
        pytest.param([LONG_KEY], id='only-the-newer-one'),
    ],
)
async def test_long_ids_are_found_by_either_name(cluster, handle, run_operator, calls, keys):
    handle(kopf.on.create, LONG_ID)
    await cluster.create(annotations={key: dump(delayed()) for key in keys})
    await run_operator()
    await cluster.wait(is_clean)

    assert calls == [(LONG_ID, 'create', 1)]


@pytest.mark.guarantee('NEW-104', 'NEW-106')
@pytest.mark.parametrize(
    'has_status',
    [pytest.param(False, id='usual-status'), pytest.param(True, id='subresource-of-status')],
)
async def test_the_progress_in_the_status_is_continued_and_removed(
    sandbox, handle, run_operator, calls, has_status
):
    handle(kopf.on.create, 'one')
    handle(kopf.on.create, 'two')
    await sandbox.apply(build_crd(has_status=has_status))
    cluster = Cluster(sandbox)
    await cluster.create()
    status = {
        'kopf': {'progress': {'one': succeeded(), 'two': delayed()}, 'dummy': '2020-01-01'},
        'mine': 'kept',
    }
    await cluster.patch({'status': status}, **({'subresource': 'status'} if has_status else {}))
    await run_operator()
    await cluster.wait(is_clean)
    body = await cluster.wait(
        lambda body: body['status'] == {'kopf': {'progress': {}}, 'mine': 'kept'}
    )

    assert calls == [('two', 'create', 1)]
    assert is_clean(body)


@pytest.mark.guarantee('NEW-104')
async def test_annotations_have_precedence_over_the_status(cluster, handle, run_operator, calls):
    handle(kopf.on.create, 'one')
    await cluster.create(annotations=annotate(one=delayed(retries=5)))
    await cluster.patch({'status': {'kopf': {'progress': {'one': succeeded()}}}})
    await run_operator()
    body = await cluster.wait(is_clean)

    assert calls == [('one', 'create', 5)]
    assert body['status'] == {'kopf': {'progress': {}}}


@pytest.mark.guarantee('CFG-071', 'CFG-072', 'NEW-263')  # but never written: as the design decides
async def test_the_dummy_of_touching_is_not_a_change_and_is_removed_with_the_next_patch(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.update, 'one')
    await cluster.create(
        annotations={**annotate({'spec': {'x': 1}}), f'{PREFIX}/touch-dummy': '2020-01-01T00:00:00'}
    )
    await run_operator()
    await asyncio.sleep(3600)
    assert cluster.writes == []
    await cluster.patch({'spec': {'x': 2}})
    body = await cluster.wait_until_handled(x=2)

    assert calls == [('one', 'update', 0)]
    assert get_progress(body) == {}
    assert len(cluster.writes) == 1


@pytest.mark.parametrize(
    'garbage',
    [
        pytest.param('', id='empty'),
        pytest.param('not json', id='not-json'),
        pytest.param('[1, 2]', id='list'),
        pytest.param(
            '{"retries":"many","started":5,"delayed":"tomorrow","success":"yes","subrefs":7}',
            id='types',
        ),
        pytest.param(
            '{"started":"2020-13-45","delayed":"99999-01-01","retries":-5,"subrefs":[1,null]}',
            id='values',
        ),
    ],
)
async def test_garbage_is_as_if_there_is_nothing_and_is_removed(
    cluster, handle, run_operator, calls, garbage
):
    handle(kopf.on.create, 'one')
    await cluster.create(annotations={f'{PREFIX}/one': garbage})
    await run_operator()
    await cluster.wait(is_clean)

    assert calls == [('one', 'create', 0)]


@pytest.mark.parametrize('garbage', ['', 'not json\n', '[]\n', 'null\n'])
async def test_an_unreadable_last_handled_state_is_made_anew(
    cluster, handle, run_operator, calls, garbage
):
    handle(kopf.on.create, 'one')
    await cluster.create(annotations={LAST_HANDLED: garbage})
    await run_operator()
    body = await cluster.wait(lambda body: body['metadata']['annotations'][LAST_HANDLED] != garbage)

    assert calls == [('one', 'create', 0)]
    assert get_last_handled(body) == {'spec': {'x': 1}}


@pytest.mark.guarantee('CNT-009')
async def test_the_last_handled_state_of_others_is_the_same_for_us(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.create, 'one')
    handle(kopf.on.update, 'one')
    text = (
        '{"spec":{"a":{"b":1}},"metadata":{"labels":{"l1":"v1"},"annotations":{"user":"note"}}}\n'
    )
    applied = {'kubectl.kubernetes.io/last-applied-configuration': '{}'}
    await cluster.create(
        spec={'a': {'b': 1}},
        labels={'l1': 'v1'},
        annotations={'user': 'note', LAST_HANDLED: text, **applied},
    )
    await run_operator()
    await asyncio.sleep(3600)

    assert calls == []
    assert cluster.writes == []


async def test_the_progress_of_a_past_purpose_is_not_continued_and_is_removed(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.create, 'one')
    handle(kopf.on.update, 'one')
    handle(kopf.on.update, 'two')
    await cluster.create(
        spec={'x': 2},
        annotations=annotate(
            {'spec': {'x': 1}}, one=succeeded('create'), two=delayed('create', retries=7)
        ),
    )
    await run_operator()
    await cluster.wait_until_handled(x=2)

    assert sorted(calls) == [('one', 'update', 0), ('two', 'update', 0)]


async def test_the_progress_of_a_change_that_was_taken_back_is_removed(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.update, 'one')
    await cluster.create(
        spec={'x': 1}, annotations=annotate({'spec': {'x': 1}}, one=delayed('update'))
    )
    await run_operator()
    await cluster.wait(is_clean)

    assert calls == []


async def test_the_records_of_very_old_versions_have_no_purpose_and_are_of_the_current_one(
    cluster, handle, run_operator, calls
):
    handle(kopf.on.create, 'one')
    handle(kopf.on.create, 'two')
    records = {
        'one': {'started': '2020-01-01T00:00:00.123456', 'success': True},
        'two': {
            'started': '2020-01-01T00:00:00.123456',
            'retries': 3,
            'delayed': '2020-01-01T00:01:00.654321',
        },
    }
    await cluster.create()
    await cluster.patch({'status': {'kopf': {'progress': records}}})
    await run_operator()
    await wait_until(lambda: calls)
    body = await cluster.wait(is_clean)

    assert calls == [('two', 'create', 3)]
    assert body['status'] == {'kopf': {'progress': {}}}
