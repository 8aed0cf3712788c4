"""
What was once found by chaos, and is mended: with the seeds that have shown it, and with what it
came to.
"""

import asyncio

import chaos_table
import pytest
from chaos_table import find_case
from chaotic_operators import PLURAL, build_crd, build_object

import kopf
from kopf._kits.chaos import plans, worlds
from kopf.testing import chaos


def run_world(plan, handlers, scenario, *, has_status=True, **options):
    with worlds.World(plan, handlers, options, apply=[build_crd(has_status=has_status)]) as world:
        world.begin()
        world.run_scenario(scenario)
        world.calm_down(300, 3000)
        world.lift()
        world.calm_down(300, 3000)
        bodies = world.list(PLURAL)
        world.end()
    return bodies


@pytest.mark.parametrize('is_before', [True, False])
@pytest.mark.parametrize('write', [1, 2, 3])
def test_results_are_not_lost_if_killed_between_the_status_and_the_object(write, is_before):
    def declare(registry):
        @kopf.on.create(PLURAL, id='fn', registry=registry)
        async def fn(**_):
            return 'result'

        @kopf.on.delete(PLURAL, registry=registry)
        async def delete_fn(**_):
            pass

    plan = plans.Plan(crashes=(plans.Crash(write, is_before),))
    (body,) = run_world(plan, declare, lambda sandbox: sandbox.create(build_object('one')))

    assert body['status'] == {'fn': 'result'}


def build_settings(where):
    """Keep the last handled state and the progress in these places."""
    settings = kopf.OperatorSettings()
    storages = {
        'annotations': (kopf.AnnotationsDiffBaseStorage(), kopf.AnnotationsProgressStorage()),
        'status': (kopf.StatusDiffBaseStorage(), kopf.StatusProgressStorage()),
    }
    diffbases, progresses = zip(*[storages[place] for place in where.split()], strict=True)
    settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage(diffbases)
    settings.persistence.progress_storage = kopf.MultiProgressStorage(progresses)
    return settings


CRASHES = [
    pytest.param(plans.Plan(crashes=(plans.Crash(write, is_before=False),)), id=f'after-{write}')
    for write in range(1, 6)
]


@pytest.mark.guarantee('CNT-003', 'CNT-006')
@pytest.mark.parametrize('plan', CRASHES)
@pytest.mark.parametrize('where', ['annotations', 'status', 'annotations status'])
def test_changes_of_handlers_are_not_lost_if_killed_at_any_write(plan, where):
    def declare(registry):
        @kopf.on.create(PLURAL, id='one', registry=registry)
        async def one(patch, **_):
            patch.spec['one'] = True
            patch.status['one'] = True

        @kopf.on.create(PLURAL, id='two', registry=registry)
        async def two(patch, **_):
            patch.metadata.labels['two'] = 'yes'
            return 2

    (body,) = run_world(
        plan,
        declare,
        lambda sandbox: sandbox.create(build_object('object')),
        settings=build_settings(where),
    )

    assert body['spec'] == {'one': True}
    assert body['metadata']['labels'] == {'two': 'yes'}
    assert {key: value for key, value in body['status'].items() if key != 'kopf'} == {
        'one': True,
        'two': 2,
    }


@pytest.mark.guarantee('CNT-003', 'CNT-006', 'NEW-051')
@pytest.mark.parametrize('plan', CRASHES)
@pytest.mark.parametrize('where', ['annotations', 'status'])
@pytest.mark.parametrize('has_status', [True, False], ids=['subresource', 'field'])
def test_functions_of_patches_are_not_lost_if_killed_at_any_write(plan, where, has_status):
    def add_condition(body):
        body.setdefault('status', {})['conditions'] = ['ready']

    def add_item(body):
        body['spec']['items'] = sorted({*body['spec'].get('items', ()), 'item'})

    def declare(registry):
        @kopf.on.create(PLURAL, registry=registry)
        async def one(patch, **_):
            patch.fns.append(add_condition)

        @kopf.on.create(PLURAL, id='two', registry=registry)
        async def two(patch, **_):
            patch.spec['two'] = 2
            patch.fns.append(add_item)

    (body,) = run_world(
        plan,
        declare,
        lambda sandbox: sandbox.create(build_object('object')),
        has_status=has_status,
        settings=build_settings(where),
    )

    assert body['spec'] == {'two': 2, 'items': ['item']}
    assert body['status']['conditions'] == ['ready']


@pytest.mark.guarantee('NEW-064', 'CNT-006')
@pytest.mark.parametrize('has_status', [True, False], ids=['subresource', 'field'])
def test_functions_are_not_lost_if_they_were_for_an_outdated_object_and_the_operator_is_killed(
    has_status,
):
    def declare(registry):
        @kopf.on.create(PLURAL, registry=registry)
        async def create_fn(patch, **_):
            await asyncio.sleep(5)
            patch.fns.append(lambda body: body['spec'].update(made=True))

    def scenario(sandbox):
        sandbox.create(build_object('object'))
        sandbox.sleep(2)
        sandbox.patch(PLURAL, 'object', {'metadata': {'labels': {'foreign': 'yes'}}})

    plan = plans.Plan(crashes=(plans.Crash(2, is_before=True),))
    (body,) = run_world(plan, declare, scenario, has_status=has_status)

    assert body['spec'] == {'made': True}
    assert body['metadata']['labels'] == {'foreign': 'yes'}


@pytest.mark.parametrize(
    'perturbation, seed',
    [
        pytest.param('staleness', 13, id='finished-with-another-state'),
        pytest.param('travels', 4, id='begun-for-another-reason'),
        pytest.param('faults', 28, id='own-records-seen-too-late'),
    ],
)
def test_records_of_subhandlers_are_not_left_behind(perturbation, seed):
    case = find_case('sub-handlers')

    chaos.check_convergence(
        case.declare, case.scenario, perturbation=perturbation, seeds=[seed], apply=case.manifests
    )


@pytest.mark.parametrize(
    'plan',
    [
        pytest.param(plans.PEACE, id='alive'),
        *(
            pytest.param(
                plans.Plan(crashes=(plans.Crash(write, is_before=False),)),
                id=f'killed-after-{write}',
            )
            for write in range(1, 6)
        ),
    ],
)
def test_records_of_subhandlers_are_not_left_behind_if_resuming_becomes_updating(plan):
    def declare(registry):
        @kopf.on.update(PLURAL, registry=registry)
        @kopf.on.resume(PLURAL, registry=registry)
        async def handle(spec, **_):
            for key in spec['items']:

                @kopf.subhandler(id=key)
                async def handle_item(retry, **_):
                    if retry < 2:
                        raise kopf.TemporaryError('not yet', delay=20)

    def scenario(sandbox):
        sandbox.sleep(5)
        sandbox.patch(PLURAL, 'one', {'spec': {'items': {'a': None}}})

    last = '{"spec":{"items":{"a":1,"b":2}}}'
    existing = build_object('one', items={'a': 1, 'b': 2})
    existing['metadata']['annotations'] = {'kopf.zalando.org/last-handled-configuration': last}
    with worlds.World(plan, declare, {}, apply=[build_crd(), existing]) as world:
        world.begin()
        world.run_scenario(scenario)
        world.calm_down(300, 3000)
        (body,) = world.list(PLURAL)
        world.end()

    assert set(body['metadata']['annotations']) == {'kopf.zalando.org/last-handled-configuration'}


def test_edit_taken_back_while_killed_is_noticed_by_resuming():
    """
    Killed after the status is written, but before it is recorded what was handled; nothing differs
    afterwards.
    """
    case = find_case('admission')

    report = chaos.check_convergence(
        case.declare, case.scenario, perturbation='all', seeds=[16], apply=case.manifests
    )

    assert report.crashes == 3


@pytest.mark.parametrize('write', range(1, 6))
@pytest.mark.parametrize('is_before', [True, False], ids=['instead-of', 'after'])
def test_status_follows_edits_taken_back_while_the_resuming_operator_is_down(write, is_before):
    def declare(registry):
        @kopf.on.create(PLURAL, registry=registry)
        @kopf.on.update(PLURAL, registry=registry)
        @kopf.on.resume(PLURAL, registry=registry)
        async def keep(spec, patch, **_):
            patch.status['size'] = spec['size']

    def scenario(sandbox):
        sandbox.create(build_object('object', size=1))
        sandbox.sleep(10)
        sandbox.patch(PLURAL, 'object', {'spec': {'size': 5}})
        sandbox.sleep(1)
        sandbox.patch(PLURAL, 'object', {'spec': {'size': 1}})

    plan = plans.Plan(crashes=(plans.Crash(write, is_before, downtime=5.0),))
    (body,) = run_world(plan, declare, scenario)

    assert body['status'] == {'size': 1}


@pytest.mark.parametrize('pause', [0, 0.001, 2])
@pytest.mark.parametrize(
    'trouble',
    [
        pytest.param({'code': 422, 'times': 1}, id='refused-once'),
        pytest.param({'code': 400, 'times': 1, 'latency': 5}, id='refused-late'),
        pytest.param({'code': 404, 'times': 1}, id='not-found-for-a-moment'),
        pytest.param({'code': 500, 'times': 30}, id='failing-for-long'),
        pytest.param({'cut': True, 'times': 50}, id='disconnected-for-long'),
    ],
)
def test_edit_taken_back_is_noticed_if_the_record_of_it_could_not_be_made(trouble, pause):
    def declare(registry):
        @kopf.on.create(PLURAL, registry=registry)
        @kopf.on.update(PLURAL, registry=registry)
        async def keep(spec, patch, **_):
            patch.status['size'] = spec['size']

    def scenario(sandbox):
        sandbox.create(build_object('one', size=1))
        sandbox.sleep(10)
        sandbox.faults.inject(
            verb='patch', path='*/kopfexamples/one', user_agent='kopf/*', **trouble
        )
        sandbox.patch(PLURAL, 'one', {'spec': {'size': 5}})
        sandbox.sleep(pause)
        sandbox.patch(PLURAL, 'one', {'spec': {'size': 1}})
        sandbox.sleep(300)

    (body,) = run_world(plans.PEACE, declare, scenario)

    assert body['status'] == {'size': 1}


def test_operators_that_are_down_in_the_end_are_started_when_everything_is_well():
    """Killed in the last moment, and for longer than anybody waits."""
    case = find_case('admission')

    chaos.check_convergence(
        case.declare, case.scenario, perturbation='all', seeds=[11], apply=case.manifests
    )


@pytest.mark.guarantee('FND-018')
def test_changes_behind_a_belated_patch_that_changes_nothing_are_handled():
    """
    With event handlers, the object is looked at again when the patch comes back, which it never
    does.
    """
    task = chaos_table.Task('status in the object', chaos.Perturbation.MEDDLING, [10])
    *_, diverged = chaos_table.execute(task)

    assert not diverged


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize(
    'name, seed',
    [
        *(
            pytest.param('daemons, timers', seed, id=f'last-words-of-daemons-{seed}')
            for seed in (0, 2, 5, 7)
        ),
        *(
            pytest.param('functions', seed, id=f'creation-never-handled-{seed}')
            for seed in (5, 8, 11, 13, 16)
        ),
        *(
            pytest.param('functions', seed, id=f'status-of-another-object-{seed}')
            for seed in (14, 18)
        ),
    ],
)
def test_what_is_meant_for_an_object_is_not_written_to_its_namesake(name, seed):
    *_, diverged = chaos_table.execute(
        chaos_table.Task(name, chaos.Perturbation.RECREATIONS, [seed])
    )

    assert diverged == []


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize('delay', [0.0, 0.013, 0.513, 1.513])
@pytest.mark.parametrize('change', [1, 3, 5])
def test_creation_of_namesakes_is_handled_whenever_they_come(change, delay):
    """
    The same as some of these seeds, with what they come to: the numbers of writes can be different
    one day.
    """
    trial, peace, error = chaos_table.prepare('functions')
    assert error is None

    _, differences = trial.compare(
        peace, plans.Plan(recreations=(plans.Recreation(change, delay),))
    )

    assert differences == []


@pytest.mark.guarantee('FND-001', 'FND-002', 'FND-004', 'FND-006', 'FND-008')
@pytest.mark.parametrize('name', ['defaults', 'refusals', 'in place', 'namesakes', 'versions'])
def test_scenarios_that_have_failed_with_nothing_wrong(name):
    """
    Circles with no delay, writes on other objects, and handlers of two versions at once for one
    object.
    """
    _, _, error = chaos_table.prepare(name)

    assert error is None
