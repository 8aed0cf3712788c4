import asyncio
import contextvars
import dataclasses
import functools
import logging

import pytest

import kopf
from kopf._cogs.aiokits import clocks
from kopf._cogs.configs import progress
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import objects, patches, references
from kopf._core.actions import execution, failures, lifecycles, progression
from kopf._core.intents import causes, handlers, reasons, registries
from kopf._core.reactor import subhandling

RESOURCE = references.Resource('kopf.dev', 'v1', 'kopfexamples', namespaced=True)
RAW = {'metadata': {'name': 'x', 'namespace': 'ns', 'labels': {'a': 'b'}}, 'spec': {'size': 1}}


@pytest.fixture
def settings():
    settings = settings_.OperatorSettings()
    yield settings
    settings.execution.executor.shutdown(wait=True)


@pytest.fixture
async def env(virtual_time, settings):
    return execution.Environment(settings=settings, now=clocks.Clock(), lifecycle=lifecycles.asap)


@pytest.fixture
def storage():
    return progress.AnnotationsProgressStorage()


class Driver:
    """
    Runs one handler as an operator does: in cycles, with its progress kept in the annotations of an
    object.
    """

    def __init__(self, fn, env, storage, **options):
        self.handler = handlers.ChangingHandler(
            id='create', fn=fn, reason=reasons.Reason.CREATE, **options
        )
        self.env, self.storage = env, storage
        self.annotations = {}
        self.results = {}

    def build_cause(self):
        body = objects.Body(
            {**RAW, 'metadata': {**RAW['metadata'], 'annotations': dict(self.annotations)}}
        )
        return causes.ChangingCause(
            logger=logging.getLogger('kopf.tests.subhandling'),
            memo=None,
            resource=RESOURCE,
            body=body,
            patch=patches.Patch(),
            reason=reasons.Reason.CREATE,
            new={'spec': {'size': 1}},
        )

    async def run_cycle(self):
        """Run the handler if it is due; return the delay until the next cycle."""
        cause, patch = self.build_cause(), patches.Patch()
        state = progression.State.read(self.storage, cause.body, ['create'], purpose='create')
        results = await subhandling.run_handlers([self.handler], cause, state, self.env)
        state = state.with_outcomes(results, now=self.env.now())
        state.store(self.storage, cause.body, patch)
        self.annotations.update(patch.get('metadata', {}).get('annotations', {}))
        self.results.update(
            {id: outcome.result for id, outcome in results.items() if outcome.is_success}
        )
        return state.delay(['create'], self.env.now())

    async def run(self):
        delay = 0
        while delay is not None:
            await asyncio.sleep(delay)
            delay = await self.run_cycle()

    def read_state(self, id):
        return progression.State.read(
            self.storage, self.build_cause().body, [id], purpose='create'
        )[id]


def failing(calls, name, times=0, delay=10):
    async def fn(retry, **_):
        calls.append((name, retry))
        if retry < times:
            raise kopf.TemporaryError('Not yet.', delay=delay)
        return f'{name} is done'

    return fn


def declare_by_execute(fns):
    return kopf.execute(fns=fns)


async def declare_by_register(fns):
    for id, fn in fns.items():
        kopf.register(fn, id=id)


async def declare_by_decorator(fns):
    for id, fn in fns.items():
        kopf.subhandler(id=id)(fn)


async def declare_by_register_and_execute(fns):
    await declare_by_register(fns)
    await kopf.execute()


WAYS = [
    pytest.param(declare_by_execute, id='execute-with-fns'),
    pytest.param(declare_by_register, id='register'),
    pytest.param(declare_by_decorator, id='decorator'),
    pytest.param(declare_by_register_and_execute, id='register-and-execute'),
]


@pytest.mark.guarantee(
    'HND-050',
    'HND-051',
    'HND-052',
    'HND-053',
    'HND-055',
    'HND-057',
    'HND-058',
    'HND-059',
    'HND-060',
    'HND-061',
    'HND-062',
    'HND-063',
    'IDM-001',
    'IDM-002',
    'IDM-003',
    'IDM-004',
    'IDM-005',
    'IDM-007',
    'IDM-008',
    'IDM-009',
    'IDM-010',
    'IDM-011',
)
@pytest.mark.parametrize('declare', WAYS)
async def test_subhandlers_are_retried_on_their_own_until_all_are_finished(
    env, storage, virtual_time, declare
):
    calls, entries = [], []
    fns = {'a': failing(calls, 'a', times=2), 'b': failing(calls, 'b', times=6)}

    async def create(retry, **_):
        entries.append(retry)
        await declare(fns)
        return 'created'

    driver = Driver(create, env, storage)
    await driver.run()

    assert [retry for name, retry in calls if name == 'a'] == list(range(3))
    assert [retry for name, retry in calls if name == 'b'] == list(range(7))
    assert 7 <= len(entries) <= 10
    assert entries == list(range(len(entries)))
    assert virtual_time.elapsed == pytest.approx(60, abs=1)
    assert driver.results == {'create': 'created', 'create/a': 'a is done', 'create/b': 'b is done'}
    assert set(driver.annotations) == {
        f'kopf.zalando.org/{key}' for key in ('create', 'create.a', 'create.b')
    }
    assert driver.read_state('create').subrefs == {'create/a', 'create/b'}


@pytest.mark.guarantee('HND-063', 'IDM-008')
async def test_subhandlers_can_have_a_lifecycle_of_their_own(env, storage, virtual_time):
    calls, entries, ends = [], [], []

    async def create(retry, **_):
        entries.append(retry)
        await kopf.execute(
            fns={'a': failing(calls, 'a', times=2), 'b': failing(calls, 'b', times=6)},
            lifecycle=lifecycles.all_at_once,
        )
        ends.append(retry)

    await Driver(create, env, storage).run()

    assert calls[:2] == [('a', 0), ('b', 0)]
    assert 7 <= len(entries) <= 9  # they can be a bit out of step with each other
    assert ends == [entries[-1]]
    assert len(calls) == 3 + 7
    assert virtual_time.elapsed == pytest.approx(60, abs=1)


@pytest.mark.guarantee('HND-054', 'IDM-006')
async def test_code_after_execute_runs_once_when_all_are_finished(env, storage):
    calls, ends = [], []

    async def create(**_):
        result = await kopf.execute(fns={'a': failing(calls, 'a', times=3)})
        ends.append((result, len(calls)))

    await Driver(create, env, storage).run()

    assert ends == [(None, 4)]


@pytest.mark.guarantee('HND-059', 'HND-060', 'IDM-007')
async def test_permanently_failed_subhandlers_are_finished_and_the_parent_goes_on(env, storage):
    calls, ends = [], []

    async def failed(**_):
        calls.append('failed')
        raise kopf.PermanentError('No way.')

    async def create(**_):
        await kopf.execute(fns={'a': failed, 'b': failing(calls, 'b', times=2)})
        ends.append(len(calls))

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls.count('failed') == 1
    assert ends == [4]
    assert driver.read_state('create').success
    assert driver.read_state('create/a').failure
    assert driver.read_state('create/a').message == 'No way.'


@pytest.mark.guarantee('HND-061', 'ERR-004')
async def test_parent_waits_for_the_earliest_of_its_subhandlers(env, storage):
    calls = []

    async def create(**_):
        await kopf.execute(
            fns={
                'slow': failing(calls, 'slow', times=1, delay=100),
                'fast': failing(calls, 'fast', times=1, delay=10),
            }
        )

    driver = Driver(create, env, storage)
    delays = [await driver.run_cycle(), await driver.run_cycle()]

    assert delays == [0, pytest.approx(10, abs=1)]
    assert calls == [('slow', 0), ('fast', 0)]
    assert driver.read_state('create').retries == 2
    assert not driver.read_state('create').finished
    assert driver.read_state('create').delayed >= driver.read_state('create/fast').delayed


async def test_result_of_the_parent_is_not_there_until_it_is_finished(env, storage):
    async def create(**_):
        kopf.register(failing([], 'a', times=1), id='a')
        return 'created'

    driver = Driver(create, env, storage)
    await driver.run_cycle()
    early = dict(driver.results)
    await driver.run()

    assert early == {}
    assert driver.results['create'] == 'created'


@pytest.mark.guarantee('IDM-010', 'ERR-024')
async def test_progress_of_the_reference_is_continued(env, storage):
    calls = []

    async def create(retry, started, **_):
        calls.append(('create', retry, started.isoformat()))
        await kopf.execute(fns={'a': failing(calls, 'a'), 'b': failing(calls, 'b')})

    driver = Driver(create, env, storage)
    driver.annotations = {
        'kopf.zalando.org/create': '{"started":"2026-01-01T00:00:00.000000+00:00",'
        '"delayed":"2026-01-01T00:00:01.000000","purpose":"create","retries":2,"success":false,"failure":false,"message":"None",'
        '"subrefs":["create/a","create/b"]}',
        'kopf.zalando.org/create.a': '{"started":"2026-01-01T00:00:00.000000+00:00","purpose":"create","retries":1,'
        '"stopped":"2026-01-01T00:00:01.000000+00:00","success":true,"failure":false}',
        'kopf.zalando.org/create.b': '{"started":"2026-01-01T00:00:00.000000+00:00","purpose":"create","retries":5,'
        '"success":false,"failure":false,"message":"later"}',
    }
    await driver.run()

    assert calls == [('create', 2, '2026-01-01T00:00:00+00:00'), ('b', 5)]


async def test_progress_of_subhandlers_is_continued_also_if_the_parent_does_not_know_of_them(
    env, storage
):
    calls = []

    async def create(**_):
        await kopf.execute(fns={'a': failing(calls, 'a')})

    driver = Driver(create, env, storage)
    driver.annotations = {
        'kopf.zalando.org/create.a': '{"started":"2026-01-01T00:00:00.000000+00:00","retries":5}'
    }
    await driver.run()

    assert calls == [('a', 5)]


@pytest.mark.guarantee('HND-058')
async def test_only_the_currently_registered_subhandlers_are_waited_for(env, storage):
    calls = []

    async def create(retry, **_):
        name = 'a' if retry == 0 else 'b'
        kopf.register(failing(calls, name, times=99 if name == 'a' else 0), id=name)

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('a', 0), ('b', 0)]
    assert driver.read_state('create').success
    assert driver.read_state('create').subrefs == {'create/a', 'create/b'}  # to be purged


@pytest.mark.guarantee('ASY-006', 'HND-053')
async def test_subhandlers_can_be_registered_from_threads(env, storage):
    calls = []

    def create(**_):
        @kopf.subhandler(id='a')
        def fn(retry, **_):
            calls.append(retry)

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [0]
    assert driver.read_state('create/a').success


@pytest.mark.guarantee('HND-056')
@pytest.mark.parametrize('declare', WAYS)
async def test_lambdas_partials_and_closures_can_be_subhandlers(env, storage, declare):
    calls = []

    async def create(**_):
        def named(item, *, name, **_):
            calls.append((item, name))

        def closure(name, *, item='closure', **_):
            calls.append((item, name))

        await declare(
            {
                'lambda': lambda name, item='lambda', **_: calls.append((item, name)),
                'partial': functools.partial(named, 'partial'),
                'closure': closure,
            }
        )

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('lambda', 'x'), ('partial', 'x'), ('closure', 'x')]


async def item1(**_): ...


@pytest.mark.guarantee('HND-051', 'HND-055', 'IDM-003', 'FND-020')
async def test_functions_without_ids_are_known_by_their_names(env, storage):
    async def create(**_):
        async def item2(**_): ...

        await kopf.execute(fns=[item1, item2])

    driver = Driver(create, env, storage)
    await driver.run()

    assert driver.read_state('create').subrefs == {
        'create/item1',
        f'create/{create.__qualname__}.<locals>.item2',
    }


@pytest.mark.guarantee('FND-021', 'HND-056')
async def test_functions_of_the_same_name_have_progress_of_their_own(env, storage):
    calls = []

    async def item(number, retry, **_):
        calls.append((number, retry))
        if number == 2 and not retry:
            raise kopf.TemporaryError('later', delay=0)

    async def create(**_):
        for number in (1, 2, 3):
            kopf.register(functools.partial(item, number), id='item')

    driver = Driver(create, env, storage)
    await driver.run()

    assert driver.read_state('create').subrefs == {'create/item', 'create/item-2', 'create/item-3'}
    assert calls == [(1, 0), (2, 0), (3, 0), (2, 1)]


@pytest.mark.guarantee('HND-051')
@pytest.mark.parametrize('kind', ['handlers', 'registry', 'operator-registry'])
async def test_handlers_and_registries_can_be_executed(env, storage, kind):
    calls = []
    handler = handlers.ChangingHandler(id='sub', fn=failing(calls, 'a', times=1))
    registry = kopf.OperatorRegistry()
    registry._append(handler)
    sources = {
        'handlers': {'handlers': [handler]},
        'registry': {'registry': registry._changing},
        'operator-registry': {'registry': registry},
    }

    async def create(**_):
        await kopf.execute(**sources[kind])

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('a', 0), ('a', 1)]
    assert driver.read_state('create').subrefs == {'sub'}


@pytest.mark.parametrize(
    'sources',
    [
        pytest.param({'fns': [], 'handlers': []}, id='fns-and-handlers'),
        pytest.param({'fns': {}, 'registry': registries.ChangingRegistry()}, id='fns-and-registry'),
        pytest.param(
            {'handlers': [], 'registry': registries.ChangingRegistry()}, id='handlers-and-registry'
        ),
    ],
)
async def test_subhandlers_cannot_be_given_in_several_ways(sources):
    with pytest.raises(TypeError, match='Only one'):
        await kopf.execute(**sources)


@pytest.mark.guarantee('HND-057', 'KWA-002', 'KWA-009')
async def test_subhandlers_get_what_their_parents_get_but_of_their_own_progress(env, storage):
    calls = {}

    async def child(**kwargs):
        calls['child'] = kwargs
        if kwargs['retry'] < 1:
            raise kopf.TemporaryError(delay=10)

    async def create(**kwargs):
        calls['parent'] = kwargs
        await asyncio.sleep(3)
        kopf.register(child, id='child', param='of the child')

    await Driver(create, env, storage, param='of the parent').run()

    own = {'param', 'retry', 'started', 'runtime'}
    assert set(calls['child']) == set(calls['parent'])
    assert all(calls['child'][key] is calls['parent'][key] for key in set(calls['child']) - own)
    assert (calls['parent']['param'], calls['child']['param']) == ('of the parent', 'of the child')
    assert calls['child']['started'] > calls['parent']['started']


@pytest.mark.guarantee('HND-048', 'HND-049')
async def test_subhandlers_are_selected_by_their_filters(env, storage):
    calls = []

    async def create(**_):
        kopf.register(
            failing(calls, 'matching'), id='matching', labels={'a': 'b'}, when=lambda **_: True
        )
        kopf.register(failing(calls, 'mislabelled'), id='mislabelled', labels={'a': 'c'})
        kopf.register(failing(calls, 'unwanted'), id='unwanted', when=lambda **_: False)
        kopf.subhandler(id='other-value', field='spec.size', value=2)(failing(calls, 'other-value'))
        kopf.subhandler(id='same-value', field='spec.size', value=1)(failing(calls, 'same-value'))

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('matching', 0), ('same-value', 0)]


@pytest.mark.guarantee('HND-057')
async def test_options_of_subhandlers_are_respected(env, storage, virtual_time):
    calls = []

    async def child(retry, **_):
        calls.append(retry)
        raise ValueError('boo')

    async def create(**_):
        kopf.register(child, id='limited', retries=2, backoff=5)
        kopf.register(child, id='permanent', errors=kopf.ErrorsMode.PERMANENT)

    driver = Driver(create, env, storage)
    await driver.run()

    assert sorted(calls) == [0, 0, 1]
    assert virtual_time.elapsed == pytest.approx(5, abs=1)
    assert driver.read_state('create').success


async def test_subhandlers_can_have_subhandlers(env, storage):
    calls = []

    async def child(retry, **_):
        await kopf.execute(fns={'x': failing(calls, 'x', times=1), 'y': failing(calls, 'y')})
        calls.append('child')

    async def create(**_):
        await kopf.execute(fns={'a': child})
        calls.append('parent')

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('x', 0), ('y', 0), ('x', 1), 'child', 'parent']
    assert driver.read_state('create/a').subrefs == {'create/a/x', 'create/a/y'}


@pytest.mark.guarantee('HND-060', 'IDM-007')
async def test_subhandlers_can_be_executed_in_steps_and_repeatedly(env, storage):
    calls = []

    async def create(**_):
        await kopf.execute(fns={'a': failing(calls, 'a', times=1)})
        await kopf.execute(fns={'b': failing(calls, 'b', times=1)})
        await kopf.execute(fns={'a': failing(calls, 'a')})
        kopf.register(failing(calls, 'c'), id='c')

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('a', 0), ('a', 1), ('b', 0), ('b', 1), ('c', 0)]
    assert driver.read_state('create').success


async def test_parent_that_ignores_all_errors_still_waits_for_its_subhandlers(env, storage):
    calls = []

    async def create(**_):
        try:
            await kopf.execute(fns={'a': failing(calls, 'a', times=2)})
        except Exception:
            pass
        return 'created'

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('a', 0), ('a', 1), ('a', 2)]
    assert driver.results['create'] == 'created'


async def test_errors_of_the_parent_do_not_lose_the_progress_of_its_subhandlers(env, storage):
    calls = []

    async def create(retry, **_):
        await kopf.execute(fns={'a': failing(calls, 'a')})
        if retry == 0:
            raise kopf.TemporaryError('Not yet.', delay=1)

    driver = Driver(create, env, storage)
    await driver.run()

    assert calls == [('a', 0)]
    assert driver.read_state('create').retries == 2


@pytest.mark.guarantee('ERR-019')
async def test_timeout_of_the_parent_interrupts_its_running_subhandler(env, storage, virtual_time):
    caught = []

    async def child(**_):
        try:
            await asyncio.sleep(1000)
        except asyncio.TimeoutError:  # noqa: UP041
            caught.append('child')
            raise

    async def create(**_):
        await kopf.execute(fns={'a': child})

    driver = Driver(create, env, storage, timeout=30)
    await driver.run()

    assert caught == ['child']
    assert virtual_time.elapsed == pytest.approx(30, abs=1)
    assert driver.read_state('create').failure
    assert not driver.read_state('create/a').retries


async def test_waiting_for_subhandlers_is_not_logged_as_an_error(env, storage, caplog):
    caplog.set_level(logging.INFO)

    async def create(**_):
        kopf.register(lambda **_: None, id='a')
        kopf.register(lambda **_: None, id='b')

    await Driver(create, env, storage).run()

    assert {record.getMessage() for record in caplog.records} == {
        "Handler 'create/a' succeeded.",
        "Handler 'create/b' succeeded.",
        "Handler 'create' succeeded.",
    }


async def test_outcomes_of_finished_handlers_are_known_after_a_cancellation(env, storage):
    results = {}

    async def create(**_):
        await kopf.execute(
            fns={'a': failing([], 'a'), 'b': forever}, lifecycle=lifecycles.all_at_once
        )

    async def forever(**_):
        await asyncio.sleep(1000)

    driver = Driver(create, env, storage)
    task = asyncio.create_task(
        subhandling.run_handlers(
            [driver.handler], driver.build_cause(), progression.State(), env, results=results
        )
    )
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert list(results) == ['create/a']
    assert results['create/a'].is_success


@pytest.mark.parametrize(
    'use',
    [
        pytest.param(lambda: subhandling.get_parent(), id='parent'),
        pytest.param(lambda: kopf.register(lambda **_: None), id='register'),
        pytest.param(lambda: kopf.subhandler()(lambda **_: None), id='subhandler'),
        pytest.param(lambda: asyncio.run(kopf.execute()), id='execute'),
    ],
)
def test_outside_of_handlers_there_is_a_clear_error(use):
    with pytest.raises(LookupError, match='inside of running handlers'):
        use()


async def test_other_kinds_of_handlers_cannot_have_subhandlers(env, storage):
    async def fn(**_):
        kopf.register(lambda **_: None)

    handler = execution.Handler(id='fn', fn=fn)
    outcome = await execution.run_attempt(
        handler, Driver(fn, env, storage).build_cause(), None, env
    )

    assert isinstance(outcome.exception, LookupError)


async def test_context_of_a_finished_handler_is_of_no_use(env, storage):
    contexts = []

    async def create(**_):
        contexts.append(contextvars.copy_context())

    await Driver(create, env, storage).run()

    with pytest.raises(LookupError):
        contexts[0].run(kopf.register, lambda **_: None)
    with pytest.raises(LookupError):
        subhandling.get_parent()


async def test_arguments_of_subhandlers_are_adjusted_to_them(env, storage):
    calls = []
    env = dataclasses.replace(env, extras=lambda handler, cause: handler.adjust(cause))

    async def create(**_):
        kopf.subhandler(id='a', field='spec.size')(lambda new, **_: calls.append(new))

    await Driver(create, env, storage).run()

    assert calls == [1]


async def test_unfinished_children_are_an_internal_kind_of_a_temporary_error(env, storage):
    caught = []

    async def create(**_):
        try:
            await kopf.execute(fns={'a': failing([], 'a', times=1)})
        except kopf.TemporaryError as error:
            caught.append(error)
            raise

    await Driver(create, env, storage).run()

    assert [type(error) for error in caught] == [failures.HandlerChildrenRetry]
