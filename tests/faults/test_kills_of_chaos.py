"""
Operators that are killed at any write, or whose writes are refused: nothing is lost, and nothing is
left behind on the objects.
"""

import asyncio

import pytest
from chaotic_operators import PLURAL, build_crd, build_object

import kopf
from kopf._kits.chaos import plans, worlds


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
