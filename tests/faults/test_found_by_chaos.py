"""
What was once found by chaos, and is mended: with the seeds that have shown it, and with what it came to.
"""
import pytest
from chaotic_operators import CASES, PLURAL, build_crd, build_object

import kopf
from kopf._kits.chaos import plans, worlds
from kopf.testing import chaos


def find_case(name):
    return next(case for case in CASES if case.name == name)


def run_world(plan, handlers, scenario):
    with worlds.World(plan, handlers, {}, apply=[build_crd()]) as world:
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
        @kopf.on.create(PLURAL, registry=registry)
        async def fn(**_):
            return 'result'

        @kopf.on.delete(PLURAL, registry=registry)
        async def delete_fn(**_):
            pass

    plan = plans.Plan(crashes=(plans.Crash(write, is_before),))
    (body,) = run_world(plan, declare, lambda sandbox: sandbox.create(build_object('one')))

    assert body['status'] == {'fn': 'result'}


@pytest.mark.parametrize('perturbation, seed', [
    pytest.param('staleness', 13, id='finished-with-another-state'),
    pytest.param('travels', 4, id='begun-for-another-reason'),
    pytest.param('faults', 28, id='own-records-seen-too-late'),
])
def test_records_of_subhandlers_are_not_left_behind(perturbation, seed):
    case = find_case('sub-handlers')

    chaos.check_convergence(case.declare, case.scenario, perturbation=perturbation, seeds=[seed], apply=case.manifests)


@pytest.mark.parametrize('plan', [
    pytest.param(plans.PEACE, id='alive'),
    *(pytest.param(plans.Plan(crashes=(plans.Crash(write, is_before=False),)), id=f'killed-after-{write}')
      for write in range(1, 6)),
])
def test_records_of_subhandlers_are_not_left_behind_if_resuming_becomes_updating(plan):
    def declare(registry):
        @kopf.on.update(PLURAL, registry=registry)
        @kopf.on.resume(PLURAL, registry=registry)
        async def handle(spec, **_):
            for key in spec['items']:
                @kopf.subhandler(id=key)
                async def handle_item(retry, **_):
                    if retry < 2:
                        raise kopf.TemporaryError("not yet", delay=20)

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
