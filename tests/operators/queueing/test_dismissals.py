"""
Objects with nothing to do cost no work: after a restart, those that are handled already have no
calls, no writes, and no workers. But nothing is missed of what is to be done for them, then or
later.
"""

import asyncio
import json
import logging

import pytest
from clusters import FINALIZER, LAST_HANDLED, get_last_handled, get_progress

import kopf

NAMES = ['obj1', 'obj2', 'obj3']


@pytest.fixture
async def list_workers(sandbox):
    """List the uids of objects that have needed workers since the last time when it was asked."""
    created, loop, prefix = [], asyncio.get_running_loop(), 'worker of kopfexamples '

    def create(loop, coro, **kwargs):
        created.append(asyncio.Task(coro, loop=loop, **kwargs))
        return created[-1]

    def list_workers():
        names = [task.get_name() for task in created]
        created.clear()
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    loop.set_task_factory(create)
    yield list_workers
    loop.set_task_factory(None)


def declare(registry, calls):
    """Declare the handlers of all changes."""

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def change_fn(name, reason, diff, **_):
        calls.append((name, str(reason), tuple(diff) if reason == 'update' else ()))


@pytest.fixture
def handlers(registry, calls):
    declare(registry, calls)


@pytest.fixture
def storage():
    """Where the last handled state is kept."""
    return kopf.AnnotationsDiffBaseStorage()


@pytest.fixture
async def handled(cluster, run_operator, settings, storage, list_workers):
    """Objects that were handled by an operator of the past; their uids by names."""

    def is_handled(body):
        return storage.fetch(body=kopf.Body(body)) is not None and not get_progress(body)

    past = kopf.OperatorRegistry()
    declare(past, [])
    settings.persistence.diffbase_storage = storage
    operator = await run_operator(registry=past)
    for name in NAMES:
        await cluster.create(name, spec={'x': 1, 'y': {'z': [2]}}, labels={'name': name, 'a': 'b'})
    bodies = [await cluster.wait(is_handled, name) for name in NAMES]
    await operator.stop()
    cluster.sandbox.requests.clear()
    list_workers()
    return {body['metadata']['name']: body['metadata']['uid'] for body in bodies}


@pytest.fixture
def restart(cluster, run_operator):
    """Run the next operator, and let it do all that it has to do at once."""

    async def restart():
        await run_operator()
        await cluster.wait_until_watched()
        await asyncio.sleep(10)

    return restart


# Nothing is done.


@pytest.mark.guarantee('CNT-009', 'REC-002')
@pytest.mark.parametrize(
    'storage',
    [
        pytest.param(kopf.AnnotationsDiffBaseStorage(), id='in-annotations'),
        pytest.param(
            kopf.AnnotationsDiffBaseStorage(prefix='my-op.example.com', v1=False),
            id='in-other-annotations',
        ),
        pytest.param(kopf.StatusDiffBaseStorage(), id='in-the-status'),
        pytest.param(
            kopf.MultiDiffBaseStorage(
                [kopf.AnnotationsDiffBaseStorage(), kopf.StatusDiffBaseStorage()]
            ),
            id='in-both',
        ),
    ],
)
async def test_handled_objects_cost_nothing_after_a_restart(
    cluster, handled, handlers, restart, calls, list_workers
):
    await restart()
    await asyncio.sleep(3600)

    assert calls == []
    assert cluster.writes == []
    assert list_workers() == []


@pytest.mark.guarantee('CNT-009')
@pytest.mark.parametrize(
    'rewrite',
    [
        pytest.param(lambda state: json.dumps(dict(reversed(state.items()))), id='another-order'),
        pytest.param(lambda state: json.dumps(state, indent=2), id='with-spaces'),
        pytest.param(
            lambda state: json.dumps(state, sort_keys=True, separators=(',', ':')), id='no-newline'
        ),
    ],
)
async def test_states_written_otherwise_are_the_same_states(
    cluster, handled, handlers, restart, calls, list_workers, rewrite
):
    for name in NAMES:
        written = rewrite(get_last_handled(await cluster.get(name)))
        await cluster.patch({'metadata': {'annotations': {LAST_HANDLED: written}}}, name)
    await restart()

    assert calls == []
    assert cluster.writes == []
    assert list_workers() == []


async def test_own_records_that_come_back_need_no_workers(
    cluster, registry, run_operator, list_workers
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    await run_operator()
    await cluster.wait_until_watched()
    created = await cluster.create()
    await cluster.wait_until_handled()
    await asyncio.sleep(10)

    assert list_workers() == [created['metadata']['uid']]


# Nothing is missed later.


@pytest.mark.guarantee('HND-033')
async def test_changes_after_a_restart_are_handled(
    cluster, handled, handlers, restart, calls, list_workers
):
    await restart()
    await cluster.patch({'spec': {'x': 2}}, 'obj2')
    await cluster.wait_until_handled('obj2', x=2)

    assert calls == [('obj2', 'update', (('change', ('spec', 'x'), 1, 2),))]
    assert list_workers() == [handled['obj2']]
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('HND-034', 'HND-036')
async def test_deletions_after_a_restart_are_handled(cluster, handled, handlers, restart, calls):
    await restart()
    await cluster.delete('obj2')
    await cluster.wait(lambda body: body is None, 'obj2')

    assert calls == [('obj2', 'delete', ())]


@pytest.mark.guarantee('HND-032')
async def test_objects_deleted_and_created_again_are_new(
    cluster, handled, registry, restart, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, spec, **_):
        calls.append((name, spec['x']))

    await restart()
    await cluster.patch({'metadata': {'finalizers': None}}, 'obj2')
    await cluster.delete('obj2')
    await cluster.create('obj2', spec={'x': 5})
    await cluster.wait_until_handled('obj2', x=5)

    assert calls == [('obj2', 5)]


@pytest.mark.guarantee('HND-039')
async def test_dismissed_objects_are_not_resumed_when_they_begin_to_match(
    cluster, handled, registry, handlers, restart, calls
):
    @kopf.on.resume('kopfexamples', registry=registry, labels={'late': kopf.PRESENT})
    async def resume_fn(name, **_):
        calls.append(name)

    await restart()
    await cluster.patch({'spec': {'x': 2}, 'metadata': {'labels': {'late': 'yes'}}}, 'obj2')
    await cluster.wait_until_handled('obj2', x=2)

    assert [call[:2] for call in calls] == [('obj2', 'update')]


# What is to be done, is done.


@pytest.mark.guarantee('HND-038')
async def test_objects_are_resumed_if_there_is_anyone_for_that(
    cluster, handled, registry, handlers, restart, calls, list_workers
):
    @kopf.on.resume('kopfexamples', registry=registry, labels={'name': 'obj2'})
    async def resume_fn(name, **_):
        calls.append(name)

    await restart()

    assert calls == ['obj2']
    assert list_workers() == [handled['obj2']]
    assert cluster.writes == []


@pytest.mark.guarantee('CNT-007')
async def test_changes_of_the_downtime_are_handled(
    cluster, handled, handlers, restart, calls, list_workers
):
    await cluster.patch({'spec': {'x': 2}}, 'obj2')
    await restart()

    assert calls == [('obj2', 'update', (('change', ('spec', 'x'), 1, 2),))]
    assert set(list_workers()) == {handled['obj2']}


@pytest.mark.guarantee('CNT-010', 'HND-043')
async def test_deletions_of_the_downtime_are_handled(cluster, handled, handlers, restart, calls):
    await cluster.delete('obj2')
    await restart()

    assert calls == [('obj2', 'delete', ())]
    assert await cluster.find('obj2') is None


@pytest.mark.guarantee('CNT-004', 'CNT-005', 'FND-013')
@pytest.mark.parametrize(
    'x, expected',
    [
        pytest.param(2, [('obj2', 0), ('obj2', 1)], id='continued'),
        pytest.param(
            1, [('obj2', 0), ('obj2', 0), ('obj2', 1)], id='taken-back-meanwhile'
        ),  # as the next change
    ],
)
async def test_cycles_left_in_the_middle_are_ended(
    cluster, handled, registry, run_operator, calls, x, expected
):
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def update_fn(name, retry, **_):
        calls.append((name, retry))
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=100)

    operator = await run_operator()
    await cluster.patch({'spec': {'x': 2}}, 'obj2')
    await cluster.wait(get_progress, 'obj2')
    await operator.stop()
    await cluster.patch({'spec': {'x': x}}, 'obj2')
    await run_operator()
    body = await cluster.wait_until_handled('obj2', x=x)

    assert calls == expected
    assert get_progress(body) == {}


@pytest.mark.guarantee('HND-035', 'CFG-055')
async def test_finalizers_are_added_where_they_are_absent(
    cluster, handled, handlers, restart, calls
):
    await cluster.patch({'metadata': {'finalizers': None}}, 'obj2')
    await restart()
    body = await cluster.get('obj2')

    assert body['metadata']['finalizers'] == [FINALIZER]
    assert len(cluster.writes) == 1
    assert calls == []


@pytest.mark.guarantee('CFG-055')
async def test_finalizers_are_removed_where_nobody_needs_them(cluster, handled, registry, restart):
    @kopf.on.delete('kopfexamples', registry=registry, labels={'name': 'obj2'})
    async def delete_fn(**_):
        pass

    await restart()
    bodies = [await cluster.get(name) for name in NAMES]

    assert [body['metadata'].get('finalizers') for body in bodies] == [None, [FINALIZER], None]
    assert len(cluster.writes) == 2


@pytest.mark.guarantee('HND-028')
async def test_event_handlers_see_all_objects(
    cluster, handled, registry, handlers, restart, calls, list_workers
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, name, **_):
        calls.append((type, name))

    await restart()

    assert sorted(calls) == [(None, name) for name in NAMES]
    assert sorted(list_workers()) == sorted(handled.values())
    assert cluster.writes == []


@pytest.mark.guarantee('REC-004')
async def test_timers_are_started_for_all_objects(
    cluster, handled, registry, handlers, restart, calls
):
    @kopf.timer('kopfexamples', interval=1000, registry=registry)
    async def timer_fn(name, **_):
        calls.append(name)

    await restart()

    assert sorted(calls) == NAMES
    assert cluster.writes == []


async def test_indices_have_all_objects(cluster, handled, registry, restart, calls):
    @kopf.index('kopfexamples', id='by_name', registry=registry)
    async def by_name(name, **_):
        return {name: 'there'}

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(by_name, **_):
        calls.append(sorted(by_name))

    await restart()
    await cluster.patch({'spec': {'x': 2}}, 'obj2')
    await cluster.wait_until_handled('obj2', x=2)

    assert calls == [NAMES]


class ForgetfulStorage(kopf.AnnotationsDiffBaseStorage):
    """A storage of a user, which finds another state than the one that is written."""

    def fetch(self, *, body):
        essence = super().fetch(body=body)
        return None if essence is None else {**essence, 'spec': {**essence['spec'], 'x': 0}}


@pytest.mark.guarantee('HND-033')
@pytest.mark.parametrize(
    'custom',
    [
        pytest.param(ForgetfulStorage(), id='alone'),
        pytest.param(
            kopf.MultiDiffBaseStorage([ForgetfulStorage(), kopf.AnnotationsDiffBaseStorage()]),
            id='inside',
        ),
    ],
)
async def test_users_own_storages_are_always_asked(
    cluster, handled, handlers, restart, settings, calls, custom
):
    settings.persistence.diffbase_storage = custom
    await restart()

    diff = (('change', ('spec', 'x'), 0, 1),)
    assert sorted(set(calls)) == [(name, 'update', diff) for name in NAMES]


@pytest.mark.guarantee('FND-009')
@pytest.mark.parametrize('decorator', [kopf.on.resume, kopf.on.update, kopf.on.delete])
async def test_errors_of_filters_are_not_hidden(
    cluster, handled, registry, restart, logs, list_workers, decorator
):
    def is_wanted(name, **_):
        if name == 'obj2':
            raise ValueError('a mistake in the filter')
        return True

    @decorator('kopfexamples', registry=registry, when=is_wanted)
    async def filtered_fn(**_):
        pass

    await restart()
    errors = logs(logging.ERROR)

    assert errors
    assert all('a mistake in the filter' in error for error in errors)
    assert handled['obj2'] in list_workers()
    # Of the finalizers that nothing needs.
    withdrawn = [] if decorator is kopf.on.delete else ['obj1', 'obj3']
    assert [asked.name for asked in cluster.writes] == withdrawn
