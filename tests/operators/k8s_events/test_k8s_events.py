"""
K8s-events of whole operators: from the handlers to the cluster.
"""

import asyncio
import dataclasses
import logging
import threading

import pytest
from clusters import build_object, wait_until

import kopf

NODE = {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'node'}}


@dataclasses.dataclass
class Noticeboard:
    """The k8s-events in the cluster."""

    sandbox: object

    async def list(self, namespace='default'):
        found = await self.sandbox.list('v1/events', namespace)
        return sorted(found, key=lambda event: int(event['metadata']['resourceVersion']))

    async def list_texts(self):
        return [
            (event['type'], event['reason'], event.get('message', ''))
            for event in await self.list()
        ]

    async def wait(self, count):
        """Wait until there are so many k8s-events; return them."""
        async with asyncio.timeout(600):
            while len(found := await self.list()) < count:
                await asyncio.sleep(0.1)
        return found

    @property
    def attempts(self):
        return [
            asked.verb
            for asked in self.sandbox.requests
            if asked.plural == 'events' and asked.verb in ('create', 'patch')
        ]


@pytest.fixture
def noticeboard(sandbox):
    return Noticeboard(sandbox)


def tell_everything(body, **_):
    kopf.event(body, type='SomeType', reason='SomeReason', message='Some message')
    kopf.warn(body, reason='SomeReason', message='Some message')
    kopf.info(body, reason='SomeReason', message='Some message')
    try:
        raise RuntimeError('Exception text.')
    except RuntimeError:
        kopf.exception(body, reason='SomeReason', message='Some exception:')


async def tell_everything_async(**kwargs):
    tell_everything(**kwargs)


@pytest.mark.guarantee(
    'EVT-001',
    'EVT-002',
    'EVT-003',
    'EVT-004',
    'EVT-005',
    'EVT-007',
    'EVT-009',
    'EVT-022',
    'NEW-187',
    'NEW-198',
)
@pytest.mark.parametrize('fn', [tell_everything, tell_everything_async], ids=['sync', 'async'])
async def test_handlers_tell_of_their_objects(cluster, registry, run_operator, noticeboard, fn):
    kopf.on.create('kopfexamples', registry=registry, id='create_fn')(fn)

    await run_operator()
    created = await cluster.create()
    await cluster.wait_until_handled()

    found = await noticeboard.wait(4)
    assert [(event['type'], event['reason'], event['message']) for event in found] == [
        ('SomeType', 'SomeReason', 'Some message'),
        ('Warning', 'SomeReason', 'Some message'),
        ('Normal', 'SomeReason', 'Some message'),
        ('Error', 'SomeReason', 'Some exception: Exception text.'),
    ]
    for event in found:
        assert event['involvedObject'] == {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'name': 'obj',
            'namespace': 'default',
            'uid': created['metadata']['uid'],
        }
        assert event['metadata']['name'].startswith('kopf-event-')
        assert event['source'] == {'component': 'kopf'}
        assert (event['reportingComponent'], event['reportingInstance']) == ('kopf', 'dev')


@pytest.mark.guarantee('EVT-006', 'EVT-010')
async def test_handlers_tell_of_other_objects(cluster, registry, run_operator, noticeboard):
    another = await cluster.sandbox.create(build_object('another'))
    node = await cluster.sandbox.create(NODE)

    @kopf.on.create('kopfexamples', registry=registry, field='metadata.name', value='obj')
    async def create_fn(body, **_):
        kopf.info([another, node], reason='R', message='Seen.')

    await run_operator()
    await cluster.create()

    found = await noticeboard.wait(2)
    assert sorted(event['involvedObject']['uid'] for event in found) == sorted(
        obj['metadata']['uid'] for obj in [another, node]
    )
    assert {event['metadata']['namespace'] for event in found} == {'default'}


@pytest.mark.guarantee('NEW-187', 'NEW-186')
async def test_nothing_is_told_without_being_asked(
    cluster, registry, settings, run_operator, noticeboard
):
    settings.posting.failures = False

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(logger, **_):
        logger.error('An error.')

    @kopf.on.create('kopfexamples', registry=registry)
    async def failing_fn(**_):
        raise kopf.PermanentError('boo!')

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()
    await operator.stop()

    assert noticeboard.attempts == []


@pytest.mark.guarantee(
    'FND-040', 'NEW-186', 'NEW-188', 'NEW-200', 'EVT-016', 'KWA-031', 'CFG-017', 'ERR-002'
)
async def test_log_messages_are_told_if_so_set(
    cluster, registry, settings, run_operator, noticeboard, logs
):
    @kopf.on.startup(registry=registry)
    async def startup_fn(settings, **_):
        settings.posting.loggers = True

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    def create_fn(logger, **_):
        logger.debug('A detail.')
        logger.info('A message.')
        logger.warning('A warning.')
        logger.critical('A catastrophe.')

    @kopf.on.create('kopfexamples', id='failing_fn', registry=registry)
    async def failing_fn(**_):
        raise kopf.PermanentError('boo!')

    @kopf.on.create(
        'kopfexamples', id='breaking_fn', registry=registry, errors=kopf.ErrorsMode.PERMANENT
    )
    async def breaking_fn(**_):
        raise ValueError('baa!')

    @kopf.on.create('kopfexamples', id='waiting_fn', registry=registry, retries=2)
    async def waiting_fn(retry, **_):
        if not retry:
            raise kopf.TemporaryError('boo!', delay=0)

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()
    await operator.stop()

    assert await noticeboard.list_texts() == [
        ('Normal', 'Logging', 'A message.'),
        ('Warning', 'Logging', 'A warning.'),
        ('Fatal', 'Logging', 'A catastrophe.'),
        ('Normal', 'Logging', "Handler 'create_fn' succeeded."),
        ('Error', 'Logging', "Handler 'failing_fn' failed permanently: boo!"),
        (
            'Error',
            'Logging',
            "Handler 'breaking_fn' failed with an exception and will stop now: baa!",
        ),
        (
            'Error',
            'Logging',
            "Handler 'waiting_fn' failed temporarily: boo! (attempt 1 of 2; will try again now)",
        ),
        ('Normal', 'Logging', "Handler 'waiting_fn' succeeded."),
        ('Normal', 'Logging', 'Creation is processed: 2 succeeded; 2 failed.'),
    ]
    assert logging.getLogger('kopf.objects').handlers == []


@pytest.mark.guarantee('HND-031', 'EVT-019')
async def test_raw_events_and_their_handlers_are_not_told_of(
    cluster, registry, settings, run_operator, noticeboard, logs
):
    settings.posting.loggers = True
    settings.posting.level = logging.DEBUG

    @kopf.on.event('kopfexamples', id='good_fn', registry=registry)
    async def good_fn(**_):
        pass

    @kopf.on.event('kopfexamples', id='bad_fn', registry=registry)
    async def bad_fn(**_):
        raise ValueError('boo!')

    operator = await run_operator()
    await cluster.create()
    await wait_until(
        lambda: (
            "Handler 'good_fn' succeeded." in logs()
            and "Handler 'bad_fn' failed with an exception and will ignore it: boo!" in logs()
        )
    )
    await operator.stop()

    assert noticeboard.attempts == []


@pytest.mark.guarantee('EVT-013', 'EVT-014')
async def test_handlers_of_k8s_events_cause_no_avalanche(
    cluster, registry, settings, run_operator, noticeboard, logs
):
    settings.posting.loggers = True
    seen = []

    @kopf.on.event('', 'v1', 'events', registry=registry)
    async def event_fn(body, name, logger, **_):
        seen.append(name)
        logger.warning('I see it.')
        kopf.info(body, reason='Seen')

    @kopf.on.create('', 'v1', 'events', registry=registry)
    async def create_fn(body, **_):
        kopf.warn(body, reason='Created')

    @kopf.on.create('kopfexamples', registry=registry)
    async def start_fn(body, **_):
        kopf.info(body, reason='Started')

    operator = await run_operator()
    await cluster.create()
    found = await noticeboard.wait(3)
    await wait_until(lambda: len(set(seen)) == 3)
    await asyncio.sleep(60)
    await operator.stop()

    assert [event['reason'] for event in found] == ['Started', 'Logging', 'Logging']
    assert len(await noticeboard.list()) == 3


@pytest.mark.guarantee('EVT-015', 'CFG-016', 'CFG-018')
async def test_nothing_is_told_if_disabled_at_startup(cluster, registry, run_operator, noticeboard):
    @kopf.on.startup(registry=registry)
    def startup_fn(settings, **_):
        settings.posting.enabled = False

    kopf.on.create('kopfexamples', registry=registry)(tell_everything)

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()
    await operator.stop()

    assert noticeboard.attempts == []


@pytest.mark.guarantee('NEW-193')
@pytest.mark.parametrize(
    'trouble', [{'code': 403}, {'code': 500}, {'stall': True}, {'cut': True}], ids=str
)
async def test_troubles_of_posting_are_no_troubles_of_handling(
    cluster, registry, settings, run_operator, virtual_time, trouble
):
    kopf.on.create('kopfexamples', registry=registry)(tell_everything)

    with cluster.sandbox.faults.inject(verb='create', resource='events', **trouble) as fault:
        operator = await run_operator()
        await cluster.create()
        await fault.wait_until_hit()
        since = virtual_time.elapsed
        await cluster.wait_until_handled()
        await cluster.patch({'spec': {'x': 2}})
        await cluster.wait_until_handled()
        took = virtual_time.elapsed - since
        await operator.stop()

    assert took < 1
    assert virtual_time.elapsed - since < took + 2 * settings.posting.exit_timeout + 1


async def test_repeated_k8s_events_are_counted(cluster, registry, run_operator, noticeboard):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(body, **_):
        kopf.info(body, reason='Seen', message='Here it is.')

    await run_operator()
    await cluster.create(spec={'x': 0})
    await noticeboard.wait(1)
    for number in range(1, 4):
        await cluster.patch({'spec': {'x': number}})
        await wait_until(lambda number=number: len(noticeboard.attempts) == number + 1)
        await asyncio.sleep(1)

    (event,) = await noticeboard.list()
    assert event['count'] == event['series']['count'] == 4
    assert noticeboard.attempts == ['create', 'patch', 'patch', 'patch']


async def test_what_is_told_in_the_end_is_posted(cluster, registry, run_operator, noticeboard):
    known = []

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(body, **_):
        kopf.info(body, reason='Handled')
        known.append(body)

    @kopf.on.cleanup(registry=registry, retries=1)
    async def cleanup_fn(**_):
        known.append([reason for _, reason, _ in await noticeboard.list_texts()])
        kopf.info(known[0], reason='CleanedUp')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: known)
    await operator.stop()

    assert known[1] == ['Handled']
    assert [reason for _, reason, _ in await noticeboard.list_texts()] == ['Handled', 'CleanedUp']


async def test_what_is_told_in_the_beginning_is_posted_later(
    cluster, registry, run_operator, noticeboard
):
    node = await cluster.sandbox.create(NODE)

    @kopf.on.startup(registry=registry)
    def startup_fn(**_):
        kopf.info(node, reason='Starting')

    await run_operator()

    (event,) = await noticeboard.wait(1)
    assert event['reason'] == 'Starting'
    assert event['involvedObject']['uid'] == node['metadata']['uid']


async def test_failed_startup_tells_what_it_leaves(
    cluster, registry, run_operator, noticeboard, logs
):
    @kopf.on.startup(registry=registry)
    def startup_fn(**_):
        kopf.info(NODE, reason='Starting')
        raise kopf.PermanentError('boo!')

    operator = await run_operator()
    with pytest.raises(Exception, match='boo!'):
        await operator.task
    operator.ready_flag.set()  # nobody else will

    assert '1 k8s-events are not posted, as the operator is stopped.' in logs(logging.WARNING)
    assert noticeboard.attempts == []


@pytest.mark.guarantee('EMB-021', 'EMB-025')
@pytest.mark.parametrize('is_sync', [True, False], ids=['sync', 'async'])
async def test_operators_of_one_process_post_for_themselves(
    cluster, run_operator, noticeboard, is_sync
):
    for name in ['one', 'two']:
        registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        settings.posting.reporting_component = f'operator-{name}'
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
            prefix=f'{name}.example.com'
        )
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
            prefix=f'{name}.example.com'
        )

        kopf.on.create('kopfexamples', registry=registry, id='fn')(
            build_teller(f'from {name}', is_sync=is_sync)
        )
        await run_operator(registry=registry, settings=settings)

    await cluster.create()

    found = await noticeboard.wait(2)
    assert sorted((event['source']['component'], event['message']) for event in found) == [
        ('operator-one', 'from one'),
        ('operator-two', 'from two'),
    ]


def build_teller(message, *, is_sync):
    def tell(body, **_):
        kopf.info(body, reason='R', message=message)

    async def tell_async(body, **_):
        kopf.info(body, reason='R', message=message)

    return tell if is_sync else tell_async


async def test_threads_of_users_post_for_the_only_operator(
    cluster, registry, run_operator, noticeboard
):
    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(body, **_):
        thread = threading.Thread(target=kopf.info, args=[body], kwargs={'reason': 'FromThread'})
        thread.start()
        thread.join()

    await run_operator()
    await cluster.create()

    (event,) = await noticeboard.wait(1)
    assert event['reason'] == 'FromThread'


async def test_nobody_posts_after_the_end(cluster, registry, run_operator):
    operator = await run_operator()
    await operator.stop()

    with pytest.raises(LookupError, match='there is none'):
        kopf.info(NODE, reason='R')
