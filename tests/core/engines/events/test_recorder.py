"""
The queue of k8s-events and its workers, on the sandbox.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import logging
import threading

import pytest

import kopf.testing
from kopf._cogs.aiokits import clocks
from kopf._cogs.clients import limits, requests
from kopf._cogs.structs import credentials, vaults
from kopf._core.engines.events import recorder

TEXTS = {'type': 'Normal', 'reason': 'R', 'message': 'm', 'backoffs': ()}

RBAC = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: poster}
rules: [{apiGroups: [""], resources: [events], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: poster}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: poster}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: poster}]
"""


def ref(name='obj'):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'name': name,
        'namespace': 'default',
        'uid': name,
    }


@dataclasses.dataclass
class Office:
    """A sandbox with what is posted there."""

    sandbox: kopf.testing.Sandbox

    async def list(self):
        """The k8s-events in the order of their creation: the object, the message, the count."""
        found = await self.sandbox.list('v1/events', 'default')
        found = sorted(found, key=lambda event: int(event['metadata']['resourceVersion']))
        return [
            (event['involvedObject']['name'], event['message'], event.get('count', 1))
            for event in found
        ]

    @property
    def verbs(self):
        return [
            asked.verb
            for asked in self.sandbox.requests
            if asked.plural == 'events' and asked.user_agent.startswith('kopf/')
        ]


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
def office(sandbox):
    return Office(sandbox)


@pytest.fixture
def operator_settings():
    return kopf.OperatorSettings()


@pytest.fixture
def posting(operator_settings):
    return operator_settings.posting


@pytest.fixture
async def make_poster(operator_settings):
    async with contextlib.AsyncExitStack() as stack:

        def make(server, token):
            vault = vaults.Vault({'admin': credentials.ConnectionInfo(server=server, token=token)})
            stack.push_async_callback(vault.close)
            context = requests.Context(
                vault,
                operator_settings,
                logging.getLogger('kopf.test'),
                limits.Gates(),
                chance=lambda: 0.0,
                now=clocks.Clock(),
            )
            poster = recorder.Poster(context)
            stack.push_async_callback(poster.close)
            return poster

        yield make


@pytest.fixture
async def poster(sandbox, make_poster):
    poster = make_poster(sandbox.url, sandbox.token)
    poster.start()
    return poster


def list_workers():
    return sorted(
        task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith('poster of ')
    )


@pytest.mark.guarantee('NEW-194')
async def test_reports_of_an_object_are_posted_in_order(office, poster):
    for number in range(10):
        poster.put(ref(), **TEXTS | {'message': f'm{number}'})

    await poster.flush()

    assert await office.list() == [('obj', f'm{number}', 1) for number in range(10)]


@pytest.mark.guarantee('NEW-194', 'NEW-192')
async def test_retried_report_holds_back_only_its_object(
    office, poster, posting, operator_settings, virtual_time
):
    operator_settings.networking.error_backoffs = [1000]
    posting.exit_timeout = 100
    with office.sandbox.faults.inject(verb='create', resource='events', code=500) as fault:
        poster.put(ref('a'), **TEXTS | {'message': 'm1', 'backoffs': [50]})
        poster.put(ref('a'), **TEXTS | {'message': 'm2'})
        await fault.wait_until_hit()
    poster.put(ref('b'), **TEXTS)

    await poster.flush()

    assert await office.list() == [('b', 'm', 1), ('a', 'm1', 1), ('a', 'm2', 1)]
    assert virtual_time.elapsed == pytest.approx(50, abs=1)


@pytest.mark.guarantee('NEW-189', 'NEW-193')
async def test_report_is_dropped_when_its_attempts_are_over(office, poster, posting, caplog):
    posting.exit_timeout = 100
    with office.sandbox.faults.inject(verb='create', resource='events', code=500, times=3) as fault:
        poster.put(ref(), **TEXTS | {'message': 'm1', 'backoffs': [1, 2]})
        poster.put(ref(), **TEXTS | {'message': 'm2'})

        await poster.flush()

    assert fault.hits == 3
    assert await office.list() == [('obj', 'm2', 1)]
    (lost,) = [record for record in caplog.records if 'Failed to post' in record.message]
    assert lost.levelno == logging.WARNING


async def test_repeated_reports_are_counted_in_one_event(office, poster):
    for _ in range(3):
        poster.put(ref(), **TEXTS)
        await poster.flush()
    poster.put(ref(), **TEXTS | {'reason': 'Another'})
    await poster.flush()

    assert sorted(await office.list()) == [('obj', 'm', 1), ('obj', 'm', 3)]
    assert office.verbs == ['create', 'patch', 'patch', 'create']


async def test_reports_that_pile_up_are_posted_at_once(office, poster):
    for _ in range(100):
        poster.put(ref(), **TEXTS)
        poster.put(ref(), **TEXTS | {'message': 'another'})

    await poster.flush()

    assert await office.list() == [('obj', 'm', 100), ('obj', 'another', 100)]
    assert office.verbs == ['create', 'create']


async def test_times_are_those_of_the_reports(office, poster, posting):
    posting.exit_timeout = 1000
    with office.sandbox.faults.inject(verb='create', resource='events', code=500, times=1) as fault:
        poster.put(ref('a'), **TEXTS | {'backoffs': [600]})
        await fault.wait_until_hit()
        poster.put(ref('a'), **TEXTS | {'message': 'next'})
        await asyncio.sleep(60)
        poster.put(ref('a'), **TEXTS | {'message': 'next'})

        await poster.flush()

    found = {event['message']: event for event in await office.sandbox.list('v1/events', 'default')}
    since, first, last = (
        datetime.datetime.fromisoformat(moment)
        for moment in (
            found['m']['eventTime'],
            found['next']['eventTime'],
            found['next']['series']['lastObservedTime'],
        )
    )
    assert (first - since).total_seconds() == pytest.approx(0, abs=1)
    assert (last - first).total_seconds() == pytest.approx(60, abs=1)


async def test_event_that_is_gone_is_posted_anew(office, poster):
    poster.put(ref(), **TEXTS)
    await poster.flush()
    (event,) = await office.sandbox.list('v1/events', 'default')
    await office.sandbox.delete('v1/events', event['metadata']['name'])

    poster.put(ref(), **TEXTS)
    await poster.flush()

    assert await office.list() == [('obj', 'm', 1)]


async def test_failed_ones_are_counted_by_the_next_ones(office, poster):
    with office.sandbox.faults.inject(verb='create', resource='events', code=500):
        poster.put(ref(), **TEXTS)
        await poster.flush()
    poster.put(ref(), **TEXTS)
    await poster.flush()
    with office.sandbox.faults.inject(verb='patch', resource='events', code=500):
        poster.put(ref(), **TEXTS)
        await poster.flush()
    assert await office.list() == [('obj', 'm', 2)]

    poster.put(ref(), **TEXTS)
    await poster.flush()

    assert await office.list() == [('obj', 'm', 4)]


@pytest.mark.guarantee('EVT-021')
async def test_permission_to_create_is_enough_also_for_repeated_reports(
    virtual_time, make_poster, caplog
):
    caplog.set_level(logging.INFO)
    async with kopf.testing.Sandbox(tls=False, rbac=True, apply=[RBAC]) as sandbox:
        user = await sandbox.add_user('poster')
        poster, office = make_poster(sandbox.url, user.token), Office(sandbox)
        poster.start()
        for _ in range(4):
            poster.put(ref(), **TEXTS)
            await poster.flush()

        assert await office.list() == [('obj', 'm', 1)] * 4
        assert office.verbs == ['create', 'patch', 'create', 'create', 'create']
        assert [record.levelname for record in caplog.records] == ['INFO']

        await asyncio.sleep(recorder.FORBIDDEN_PERIOD)
        poster.put(ref(), **TEXTS)
        await poster.flush()

        assert office.verbs[5:] == ['patch', 'create']
        await poster.close()


async def test_bursts_are_limited_for_each_object(office, poster, posting, caplog):
    posting.burst_limit, posting.burst_interval = 3, 100
    for number in range(5):
        poster.put(ref('a'), **TEXTS | {'message': f'm{number}'})
    poster.put(ref('b'), **TEXTS)
    await poster.flush()

    assert sorted(await office.list()) == [
        ('a', 'm0', 1),
        ('a', 'm1', 1),
        ('a', 'm2', 1),
        ('b', 'm', 1),
    ]
    (warning,) = caplog.messages
    assert warning == (
        'There are too many k8s-events about KopfExample a (Normal: R): '
        'from now on, one in 100 s is posted.'
    )

    await asyncio.sleep(100)
    for number in range(5):
        poster.put(ref('a'), **TEXTS | {'message': f'n{number}'})
    await poster.flush()

    assert [message for name, message, _ in await office.list() if name == 'a'] == [
        'm0',
        'm1',
        'm2',
        'n0',
    ]
    assert len(caplog.messages) == 1


async def test_repeated_reports_beyond_the_limit_are_counted_later(office, poster, posting):
    assert (posting.burst_limit, posting.burst_interval) == (25, 300)
    for _ in range(100):
        poster.put(ref(), **TEXTS)
        await poster.flush()
    assert await office.list() == [('obj', 'm', 25)]

    await asyncio.sleep(300)
    poster.put(ref(), **TEXTS)
    await poster.flush()

    assert await office.list() == [('obj', 'm', 101)]
    assert len(office.verbs) == 26


async def test_bursts_are_not_limited_if_so_set(office, poster, posting):
    posting.burst_limit = None
    for number in range(50):
        poster.put(ref(), **TEXTS | {'message': f'm{number}'})

    await poster.flush()

    assert len(await office.list()) == 50


async def test_oldest_reports_are_dropped_when_there_are_too_many(office, poster, posting, caplog):
    posting.queue_limit = 3
    with office.sandbox.faults.inject(verb='create', resource='events', stall=True) as fault:
        poster.put(ref(), **TEXTS | {'message': 'first'})
        await fault.wait_until_hit()
        for number in range(10):
            poster.put(ref(), **TEXTS | {'message': f'm{number}'})
            await asyncio.sleep(0)
    await poster.flush()

    assert [message for _, message, _ in await office.list()] == ['first', 'm7', 'm8', 'm9']
    assert caplog.messages == [
        'K8s-events come faster than they are posted: the oldest ones are dropped.',
        'K8s-events are posted in time again; 7 of them were dropped.',
    ]


async def test_reports_are_dropped_even_if_the_loop_is_blocked(office, poster, posting, caplog):
    posting.queue_limit = 3
    for number in range(10):
        poster.put(ref(), **TEXTS | {'message': f'm{number}'})

    await poster.flush()

    assert [message for _, message, _ in await office.list()] == ['m7', 'm8', 'm9']
    assert caplog.messages[-1] == 'K8s-events are posted in time again; 7 of them were dropped.'


@pytest.mark.guarantee('NEW-195')
@pytest.mark.parametrize('limit, expected', [(None, 5), (2, 2), (1, 1)])
async def test_number_of_workers_is_limited(office, poster, posting, limit, expected):
    posting.worker_limit = limit
    with office.sandbox.faults.inject(verb='create', resource='events', stall=True) as fault:
        for name in 'abcde':
            poster.put(ref(name), **TEXTS)
        while fault.hits < expected:
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)

        assert len(list_workers()) == fault.hits == expected
    await poster.flush()

    assert sorted(await office.list()) == [(name, 'm', 1) for name in 'abcde']


@pytest.mark.guarantee('NEW-195')
async def test_idle_workers_end_in_time(poster, posting):
    posting.idle_timeout = 10
    poster.put(ref(), **TEXTS)
    await poster.flush()
    await asyncio.sleep(9)
    assert list_workers() == ['poster of obj']
    worker = {task for task in asyncio.all_tasks() if task.get_name() == 'poster of obj'}

    poster.put(ref(), **TEXTS)
    await poster.flush()
    await asyncio.sleep(9)

    assert worker <= asyncio.all_tasks()
    await asyncio.sleep(2)
    assert list_workers() == []


async def test_idle_workers_leave_when_others_are_waiting(office, poster, posting, virtual_time):
    posting.worker_limit, posting.idle_timeout = 1, 1000
    for name in 'abc':
        poster.put(ref(name), **TEXTS)
        await poster.flush()

    assert await office.list() == [(name, 'm', 1) for name in 'abc']
    assert virtual_time.elapsed < 10
    assert list_workers() == ['poster of c']


async def test_report_in_the_last_moment_of_a_worker_is_not_lost(office, poster, posting):
    posting.idle_timeout = 0
    for number in range(20):
        poster.put(ref(), **TEXTS | {'message': f'm{number}'})
        while list_workers():
            await asyncio.sleep(0)

    await poster.flush()

    assert len(await office.list()) == 20


@pytest.mark.guarantee('EVT-007', 'NEW-196')
async def test_reports_come_from_threads_and_from_the_loop(office, poster, posting):
    posting.burst_limit = None
    asyncio.get_running_loop().set_debug(True)
    caller = asyncio.get_running_loop()

    def report():
        for number in range(20):
            poster.put(ref('thread'), **TEXTS | {'message': f'm{number}'})

    report_in_thread = caller.run_in_executor(None, report)
    for number in range(20):
        poster.put(ref('loop'), **TEXTS | {'message': f'm{number}'})
    await report_in_thread
    await poster.flush()

    found = await office.list()
    assert [message for name, message, _ in found if name == 'loop'] == [
        f'm{number}' for number in range(20)
    ]
    assert [message for name, message, _ in found if name == 'thread'] == [
        f'm{number}' for number in range(20)
    ]


async def test_workers_do_not_keep_the_context_of_the_callers(office, poster):
    secret = contextvars.ContextVar('secret', default=None)
    seen = []

    class Backoffs:
        def __iter__(self):
            seen.append(secret.get())
            return iter(())

    secret.set('of the caller')
    with office.sandbox.faults.inject(
        verb='create', resource='events', code=500, times=1
    ):  # or it is not looked at
        poster.put(ref(), **TEXTS | {'backoffs': Backoffs()})
        await asyncio.sleep(0)
        await poster.flush()

    assert seen == [None]


@pytest.mark.guarantee('EVT-013')
@pytest.mark.parametrize(
    'about',
    [
        {'apiVersion': 'v1', 'kind': 'Event', 'name': 'e', 'namespace': 'default'},
        {'apiVersion': 'events.k8s.io/v1', 'kind': 'Event', 'name': 'e', 'namespace': 'default'},
    ],
    ids=['v1', 'events.k8s.io'],
)
async def test_events_about_events_are_silently_skipped(office, poster, caplog, about):
    poster.put(about, **TEXTS)

    await poster.flush()

    assert office.verbs == []
    assert not caplog.messages


async def test_long_texts_are_cut_before_they_are_queued(office, poster):
    poster.put(ref(), **TEXTS | {'message': f'{"x" * 2000}1{"x" * 2000}'})
    poster.put(ref(), **TEXTS | {'message': f'{"x" * 2000}2{"x" * 2000}'})

    await poster.flush()

    ((_, message, count),) = await office.list()
    assert len(message) == 1024
    assert count == 2


async def test_one_wrong_report_does_not_spoil_the_others(office, poster, caplog):
    poster.put(ref(), **TEXTS | {'message': 'm1', 'backoffs': object()})
    poster.put(ref(), **TEXTS | {'message': 'm2'})

    with office.sandbox.faults.inject(verb='create', resource='events', code=500, times=1):
        await poster.flush()

    assert await office.list() == [('obj', 'm2', 1)]
    assert caplog.messages == ['Failed to post a k8s-event about KopfExample obj (Normal: R).']


async def test_nothing_is_posted_until_started(office, sandbox, make_poster):
    poster = make_poster(sandbox.url, sandbox.token)
    poster.put(ref(), **TEXTS)
    await asyncio.sleep(10)
    assert office.verbs == []

    poster.start()
    await poster.flush()

    assert await office.list() == [('obj', 'm', 1)]


async def test_poster_that_was_never_started_tells_what_it_leaves(sandbox, make_poster, caplog):
    poster = make_poster(sandbox.url, sandbox.token)
    poster.put(ref(), **TEXTS)

    await poster.close()

    assert caplog.messages == ['1 k8s-events are not posted, as the operator is stopped.']


async def test_closing_posts_what_is_left(office, poster, caplog):
    for number in range(10):
        poster.put(ref(f'obj{number}'), **TEXTS)

    await poster.close()

    assert len(await office.list()) == 10
    assert list_workers() == []
    assert not caplog.messages


async def test_closing_is_limited_in_time_and_tells_what_is_left(
    sandbox, poster, posting, virtual_time, caplog
):
    posting.exit_timeout = 5
    with sandbox.faults.inject(verb='create', resource='events', stall=True):
        for number in [1, 2, 2, 3]:
            poster.put(ref(), **TEXTS | {'message': f'm{number}'})

        await poster.close()

    assert virtual_time.elapsed == pytest.approx(5, abs=0.5)
    assert list_workers() == []
    assert caplog.messages == ['4 k8s-events are not posted, as the operator is stopped.']


async def test_cancelled_closing_still_ends_the_workers(sandbox, poster, posting, caplog):
    posting.exit_timeout = 1000
    with sandbox.faults.inject(verb='create', resource='events', stall=True) as fault:
        poster.put(ref(), **TEXTS)
        task = asyncio.create_task(poster.close())
        await fault.wait_until_hit()

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert list_workers() == []
    assert caplog.messages == ['1 k8s-events are not posted, as the operator is stopped.']


async def test_cancelled_flushing_changes_nothing(office, poster, posting):
    posting.exit_timeout = 1000
    with office.sandbox.faults.inject(verb='create', resource='events', stall=True) as fault:
        poster.put(ref(), **TEXTS)
        task = asyncio.create_task(poster.flush())
        await fault.wait_until_hit()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await poster.flush()

    assert await office.list() == [('obj', 'm', 1)]


async def test_reports_after_the_end_are_told_of(office, poster, caplog):
    await poster.close()

    poster.put(ref(), **TEXTS)

    await asyncio.sleep(1)
    assert office.verbs == []
    assert caplog.messages == [
        'A k8s-event is not posted, as the operator is stopped: obj (Normal: R)'
    ]


def test_reports_after_the_end_of_the_loop_fail_nobody():
    async def make():
        context = requests.Context(
            vaults.Vault(),
            kopf.OperatorSettings(),
            logging.getLogger('kopf.test'),
            limits.Gates(),
            now=clocks.Clock(),
        )
        return recorder.Poster(context)

    poster = asyncio.run(make())

    thread = threading.Thread(target=poster.put, args=[ref()], kwargs=TEXTS)
    thread.start()
    thread.join()
    poster.put(ref(), **TEXTS)
