"""
Operators that run in circles are found, soon, and told from those that only have much to do.
"""

import asyncio
import time

import pytest
from chaotic_operators import PLURAL, build_crd, build_object

import kopf
from kopf._kits.chaos import plans, recreations, timelines, watchdogs, worlds
from kopf.testing import chaos

CRD = build_crd()


def make_watchdog(**bounds):
    clock = [0.0]
    return watchdogs.Watchdog(watchdogs.Bounds(**bounds), lambda: clock[0]), clock


def call(watchdog, object='default/one', id='fn'):
    watchdog.note_moment(timelines.Moment(0, 'log', f"{object}: Handler '{id}' is invoked."))


@pytest.mark.parametrize(
    'times, interval, is_tripped',
    [
        pytest.param(100, 0.0, False, id='much-at-once'),
        pytest.param(101, 0.0, True, id='too-much-at-once'),
        pytest.param(101, 0.59, True, id='too-much-in-a-minute'),
        pytest.param(1000, 0.61, False, id='much-in-long-time'),
    ],
)
def test_writes_are_limited_by_their_rate(times, interval, is_tripped):
    watchdog, clock = make_watchdog(rate=100)

    for _ in range(times):
        watchdog.note_write('default/one', 'patch things')
        clock[0] += interval

    assert watchdog.tripped.is_set() is is_tripped


def test_writes_to_different_objects_are_counted_separately():
    watchdog, _ = make_watchdog(rate=100)

    for number in range(1000):
        watchdog.note_write(f'default/object{number}', 'patch things')

    assert watchdog.error is None


def test_changes_by_others_let_the_operator_work_again():
    watchdog, _ = make_watchdog(rate=100, calls=3)

    for _ in range(10):
        watchdog.note_foreign_change('default/one')
        for _ in range(3):
            call(watchdog)
            watchdog.note_write('default/one', 'patch things')

    assert watchdog.error is None


@pytest.mark.parametrize(
    'starts, times, is_tripped',
    [
        pytest.param(1, 3, False, id='few'),
        pytest.param(1, 4, True, id='many'),
        pytest.param(2, 6, False, id='few-after-a-restart'),
        pytest.param(2, 7, True, id='many-after-a-restart'),
    ],
)
def test_calls_are_limited_for_each_start(starts, times, is_tripped):
    watchdog, _ = make_watchdog(calls=3)
    watchdog.note_start(starts, frozenset())

    for _ in range(times):
        call(watchdog)

    assert watchdog.tripped.is_set() is is_tripped


def test_error_tells_what_is_done_to_which_object():
    watchdog, _ = make_watchdog(calls=1)

    for _ in range(3):
        call(watchdog)

    assert str(watchdog.error) == (
        "The operator runs in circles: the call of 'fn' for default/one "
        'is done more than 1 times, with no changes by others.'
    )


@pytest.mark.guarantee('RCL-001')
@pytest.mark.parametrize(
    'interval, is_tripped',
    [pytest.param(0.1, False, id='slowly'), pytest.param(0.01, True, id='in-circles')],
)
def test_level_triggered_functions_are_limited_despite_changes_by_others(interval, is_tripped):
    watchdog, clock = make_watchdog()

    for _ in range(1001):
        watchdog.note_foreign_change('default/one')
        watchdog.note_moment(timelines.Moment(0, 'log', "default/one: Reconciler 'fn' is invoked."))
        clock[0] += interval

    assert watchdog.tripped.is_set() is is_tripped
    assert not watchdog.take_stock()


def test_timers_are_not_counted():
    watchdog, _ = make_watchdog(rate=2, calls=2)
    watchdog.note_start(1, frozenset({'timer'}))

    for _ in range(10):
        call(watchdog, id='timer')

    assert watchdog.error is None
    assert not watchdog.take_stock()


@pytest.mark.parametrize(
    'kind, text',
    [
        pytest.param('request', "default/one: Handler 'fn' is invoked.", id='not-a-message'),
        pytest.param('log', "default/one: Handler 'fn' succeeded.", id='another-message'),
    ],
)
def test_other_moments_are_not_calls(kind, text):
    watchdog, _ = make_watchdog()

    watchdog.note_moment(timelines.Moment(0, kind, text))

    assert not watchdog.take_stock()


def test_first_error_is_kept():
    watchdog, _ = make_watchdog()

    watchdog.fail(ValueError('first'))
    watchdog.fail(ValueError('second'))

    assert watchdog.error.args == ('first',)


def create(sandbox):
    sandbox.create(build_object('one', x=1))


def declare_circling(registry):
    """An operator that is never satisfied with what it has done."""

    @kopf.on.event(PLURAL, registry=registry)
    async def circle(status, patch, **_):
        patch.status['count'] = status.get('count', 0) + 1


def test_operator_that_runs_in_circles_is_ended_soon():
    since = time.monotonic()

    with pytest.raises(
        chaos.RestlessOperatorError,
        match='patch kopfexamples for default/one is done more than 100',
    ):
        chaos.check_convergence(declare_circling, create, apply=[CRD])

    assert time.monotonic() - since < 60  # and not for ever


def test_story_is_told_even_if_it_happens_with_nothing_wrong():
    with pytest.raises(chaos.RestlessOperatorError) as caught:
        chaos.check_convergence(declare_circling, create, apply=[CRD])

    (story,) = caught.value.__notes__
    assert 'What happened, with nothing wrong:' in story
    assert 'patch kopfexamples default/one/status: 200' in story


def declare_slow(registry):
    """An operator that goes on with its circles in its own time."""

    @kopf.on.event(PLURAL, registry=registry)
    async def circle(status, patch, **_):
        count = status.get('count', 0)
        await asyncio.sleep(400)
        patch.status['count'] = count + 1


def test_operator_that_is_not_at_rest_is_found_on_demand():
    options = {'apply': [CRD], 'ignore': ['status'], 'calm': 200}

    with pytest.raises(chaos.RestlessOperatorError, match='is not at rest: within') as caught:
        chaos.check_convergence(declare_slow, create, rest=1800, **options)

    assert 'patch kopfexamples for default/one is done' in str(caught.value)


@pytest.mark.parametrize('perturbation', ['meddling', 'recreations'])
def test_operator_that_is_not_at_rest_is_found_where_it_matters(perturbation):
    options = {'apply': [CRD], 'ignore': ['status'], 'calm': 200}

    with pytest.raises(chaos.ConvergenceError, match='is not at rest: within'):
        chaos.check_convergence(
            declare_slow, create, perturbation=perturbation, seeds=[0], **options
        )


def test_rest_is_not_demanded_by_default():
    chaos.check_convergence(
        declare_slow,
        create,
        apply=[CRD],
        ignore=['status'],
        calm=200,
        perturbation='gaps',
        seeds=[0],
    )


def test_operator_with_timers_is_at_rest():
    def declare(registry):
        @kopf.timer(PLURAL, registry=registry, interval=10)
        async def tick(spec, patch, **_):
            patch.status['seen'] = spec['x']

    chaos.check_convergence(
        declare, create, apply=[CRD], rest=600, perturbation='crashes', seeds=[0, 1]
    )


def test_calls_for_one_change_are_limited_on_demand():
    def declare(registry):
        @kopf.on.create(PLURAL, id='fn', registry=registry, backoff=1)
        async def fn(retry, **_):
            if retry < 5:
                raise RuntimeError('not yet')

    chaos.check_convergence(declare, create, apply=[CRD], calls=6, seeds=[])
    with pytest.raises(
        chaos.RestlessOperatorError,
        match="the call of 'fn' for default/one is done more than 5 times",
    ):
        chaos.check_convergence(declare, create, apply=[CRD], calls=5, seeds=[])


def test_all_states_are_checked_on_demand():
    def declare(registry):
        @kopf.on.create(PLURAL, registry=registry)
        async def fn(patch, **_):
            patch.spec['x'] = 5

        @kopf.on.update(PLURAL, registry=registry)
        async def again(patch, **_):
            patch.spec['x'] = 1

    def check(body):
        assert body.get('spec', {}).get('x') != 5, 'It is never five.'

    with pytest.raises(AssertionError, match='never five'):
        chaos.check_convergence(declare, create, apply=[CRD], always=check)


def test_end_is_checked_on_demand():
    def observe(sandbox):
        assert sandbox.get(PLURAL, 'one')['spec'] == {'x': 2}, 'It is two in the end.'

    with pytest.raises(AssertionError, match='two in the end'):
        chaos.check_convergence(lambda registry: None, create, apply=[CRD], observe=observe)


def test_end_is_compared_with_that_on_the_same_server():
    def pin(body):
        body.get('spec', {}).update({'x': 7} if 'x' in body.get('spec', {}) else {})

    seen = []
    report = chaos.check_convergence(
        lambda registry: None,
        create,
        apply=[CRD],
        server=[pin],
        perturbation='meddling',
        seeds=range(6),
        observe=lambda sandbox: seen.append(sandbox.get(PLURAL, 'one')['spec']['x']),
    )

    assert report.seeds == [0, 1, 2, 3, 4, 5]
    assert set(seen) == {1, 7}


def run_world(plan, declare, scenario):
    with worlds.World(plan, declare, {}, apply=[CRD]) as world:
        world.begin()
        world.run_scenario(scenario)
        world.calm_down(300, 3000)
        world.lift()
        world.calm_down(300, 3000)
        bodies = world.list(PLURAL)
        world.end()
    return world, bodies


def test_recreated_objects_have_only_what_others_have_written():
    seen = []

    def declare(registry):
        @kopf.on.create(PLURAL, registry=registry)
        async def fn(uid, body, patch, **_):
            seen.append(
                (uid, body['spec'], dict(body['metadata'].get('labels', {})), 'status' in body)
            )
            patch.spec['own'] = True
            patch.status['own'] = True

        @kopf.on.delete(PLURAL, registry=registry)
        async def delete_fn(**_):
            pytest.fail('The object has vanished with its finalizer.')

    def scenario(sandbox):
        create(sandbox)
        sandbox.sleep(5)
        sandbox.patch(PLURAL, 'one', {'spec': {'x': 2}, 'metadata': {'labels': {'a': 'b'}}})
        sandbox.sleep(5)

    # The changes: the creation, the finalizer, the status, the records, the edit, the records
    # again.
    plan = plans.Plan(recreations=(plans.Recreation(6, 0.5),))
    world, (body,) = run_world(plan, declare, scenario)

    assert [moment.text for moment in world.timeline if moment.kind == 'rebirth'] == [
        'kopfexamples default/one: replaced by a new object of the same name'
    ]
    assert [(spec, labels, is_known) for _, spec, labels, is_known in seen] == [
        ({'x': 1}, {}, False),
        ({'x': 2}, {'a': 'b'}, False),
    ]
    assert seen[0][0] != seen[1][0] == body['metadata']['uid']
    assert body['metadata']['generation'] >= 1


@pytest.mark.parametrize(
    'scenario, plan',
    [
        pytest.param(
            lambda sandbox: create(sandbox),
            plans.Plan(recreations=(plans.Recreation(99),)),
            id='never',
        ),
        pytest.param(
            lambda sandbox: (create(sandbox), sandbox.delete(PLURAL, 'one')),
            plans.Plan(recreations=(plans.Recreation(1, 0.5),)),
            id='gone',
        ),
    ],
)
def test_objects_are_not_recreated_if_there_is_nothing_to_recreate(scenario, plan):
    world, _ = run_world(plan, lambda registry: None, scenario)

    assert [moment for moment in world.timeline if moment.kind == 'rebirth'] == []


def test_objects_that_are_being_deleted_are_not_recreated():
    def scenario(sandbox):
        body = build_object('one')
        body['metadata']['finalizers'] = ['example.com/foreign']
        sandbox.create(body)
        sandbox.delete(PLURAL, 'one')
        sandbox.sleep(5)
        sandbox.patch(PLURAL, 'one', {'metadata': {'finalizers': []}})

    world, bodies = run_world(
        plans.Plan(recreations=(plans.Recreation(1, 0.5),)), lambda registry: None, scenario
    )

    assert bodies == []
    assert [moment for moment in world.timeline if moment.kind == 'rebirth'] == []


@pytest.mark.parametrize(
    'known, old, new, expected',
    [
        pytest.param({'a': 1}, {'a': 1, 'b': 2}, {'a': 3, 'b': 2}, {'a': 3}, id='changed'),
        pytest.param(
            {'a': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 2, 'c': 3}, {'a': 1, 'c': 3}, id='added'
        ),
        pytest.param({'a': 1}, {'a': 1, 'b': 2}, {'b': 2}, {}, id='removed'),
        pytest.param({'a': 1}, {'a': 1, 'b': 2}, {'a': 1}, {'a': 1}, id='removed-of-the-operator'),
        pytest.param(
            {'a': {'x': 1}},
            {'a': {'x': 1, 'y': 1}},
            {'a': {'x': 2, 'y': 1}},
            {'a': {'x': 2}},
            id='nested',
        ),
        pytest.param(
            {},
            {'a': {'y': 1}},
            {'a': {'x': 2, 'y': 1}},
            {'a': {'x': 2, 'y': 1}},
            id='nested-unknown',
        ),
        pytest.param({'a': [1]}, {'a': [1, 2]}, {'a': [2]}, {'a': [2]}, id='list'),
    ],
)
def test_manifests_follow_the_changes_by_others(known, old, new, expected):
    assert recreations.replay(known, old, new) == expected
