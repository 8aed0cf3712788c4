"""
Operators are checked for coming to the same end: good ones pass, bad ones are found, with the story
of what happened.
"""

import asyncio
import logging
import os
import sys
import types

import pytest
from chaotic_operators import PLURAL, build_crd, build_object

import kopf
import kopf.testing
from kopf._kits.chaos import plans, worlds
from kopf.testing import chaos

CRD = build_crd()
things = {}


def declare_good(registry):
    @kopf.on.create(PLURAL, registry=registry)
    @kopf.on.update(PLURAL, registry=registry)
    async def keep(name, spec, **_):
        things[name] = spec['x']


def declare_bad(registry):
    @kopf.on.create(PLURAL, id='add', registry=registry)
    async def add(name, **_):
        things[name] = things.get(name, 0) + 1


def create(sandbox):
    things.clear()
    sandbox.create(build_object('one', x=1))


def edit(sandbox):
    create(sandbox)
    sandbox.sleep(5)
    sandbox.patch(PLURAL, 'one', {'spec': {'x': 2}})


def observe(_):
    return dict(things)


def check(handlers, scenario=create, **options):
    return chaos.check_convergence(handlers, scenario, apply=[CRD], observe=observe, **options)


def test_good_operator_passes_with_every_write_being_the_last_one():
    report = check(declare_good, edit, perturbation='crashes')

    assert report.converged
    assert report.seeds == list(range(2 * report.peace.writes)) != []
    assert report.crashes == len(report.seeds)


def test_bad_operator_is_found_with_its_seed_and_its_story():
    with pytest.raises(chaos.ConvergenceError) as caught:
        check(declare_bad, perturbation='crashes')

    text = str(caught.value)
    assert "observed is {'one': 2}, not {'one': 1}" in text
    assert "perturbation='crashes', seeds=[0]" in text
    kinds = [
        line.split()[1]
        for line in text.splitlines()
        if line[:11].strip().replace('.', '').isdigit()
    ]
    assert {'start', 'request', 'object', 'crash', 'log', 'peace', 'end'} <= set(kinds)
    assert "Handler 'add' succeeded." in text


def test_failure_is_repeated_by_its_seed():
    first = chaos.try_seeds(
        declare_bad, create, apply=[CRD], observe=observe, seeds=range(10), limit=1
    )
    seed = first.divergences[0].seed

    again = chaos.try_seeds(declare_bad, create, apply=[CRD], observe=observe, seeds=[seed])

    assert [
        str(moment) for moment in again.divergences[0].outcome.timeline if moment.kind != 'log'
    ] == [str(moment) for moment in first.divergences[0].outcome.timeline if moment.kind != 'log']
    assert again.divergences[0].differences == first.divergences[0].differences


def test_all_failing_seeds_are_reported_on_demand():
    report = chaos.try_seeds(
        declare_bad, create, apply=[CRD], observe=observe, perturbation='crashes', seeds=range(9)
    )

    assert len(report.divergences) >= 2
    assert not report.converged
    assert {divergence.seed for divergence in report.divergences} < set(report.seeds)


def make_module():
    module = types.ModuleType('chaotic_module_of_tests')
    exec(
        "import kopf\n@kopf.on.create('kopfexamples')\nasync def fn(spec, **_): return spec['x']",
        module.__dict__,
    )
    return module


@pytest.fixture
def default_registry():
    before = kopf.get_default_registry()
    registry = kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(before)


@pytest.fixture
def handlers(request, tmp_path, default_registry):
    if request.param == 'registry':
        registry = kopf.OperatorRegistry()
        kopf.on.create(PLURAL, registry=registry, id='fn')(make_async(lambda spec, **_: spec['x']))
        return registry
    if request.param == 'module':
        kopf.on.create(PLURAL, id='other')(make_async(lambda **_: 'of another module'))
        return make_module()
    path = tmp_path / 'handlers.py'
    path.write_text(
        "import kopf\n@kopf.on.create('kopfexamples')\nasync def fn(spec, **_): return spec['x']\n"
    )
    return path if request.param == 'path' else str(path)


def make_async(fn):
    async def wrapper(**kwargs):
        return fn(**kwargs)

    return wrapper


@pytest.mark.parametrize('handlers', ['registry', 'module', 'path', 'text'], indirect=True)
def test_handlers_are_taken_from_anywhere(handlers):
    scripts = {name for name in sys.modules if name.startswith('__kopf_script')}

    report = chaos.check_convergence(handlers, create, apply=[CRD], seeds=range(2))

    (body,) = report.peace.state['KopfExample default/one']
    assert body['status'] == {'fn': 1}
    assert {name for name in sys.modules if name.startswith('__kopf_script')} == scripts


def test_handlers_of_wrong_types_are_refused():
    with pytest.raises(TypeError, match='Handlers are a registry, a module, a path'):
        check(123)


@pytest.mark.parametrize(
    'options, error',
    [
        pytest.param({'misspelt': 1}, TypeError, id='option'),
        pytest.param({'perturbation': 'unknown'}, ValueError, id='perturbation'),
    ],
)
def test_wrong_options_are_refused(options, error):
    with pytest.raises(error):
        check(declare_good, **options)


def test_scenarios_can_be_coroutines():
    async def scenario(sandbox):
        await sandbox.create(build_object('one', x=1))
        await asyncio.sleep(5)
        await sandbox.patch(PLURAL, 'one', {'spec': {'x': 2}})

    report = chaos.check_convergence(declare_good, scenario, apply=[CRD], seeds=range(3))

    assert report.peace.state['KopfExample default/one'][0]['spec'] == {'x': 2}


def test_error_of_the_scenario_is_raised_if_nothing_is_wrong():
    with pytest.raises(ZeroDivisionError):
        check(declare_good, lambda sandbox: 1 / 0)


def test_error_of_the_scenario_is_a_finding_if_it_comes_with_faults():
    def scenario(sandbox):
        create(sandbox)
        sandbox.wait(PLURAL, 'one', lambda body: 'annotations' in body['metadata'], timeout=3)

    report = chaos.try_seeds(
        declare_good, scenario, apply=[CRD], perturbation='crashes', seeds=[0, 2], limit=1
    )

    # If the seeds are of no downtime.
    first = [divergence.differences[0] for divergence in report.divergences]
    assert [text.rpartition(' ')[0] for text in first] == [
        "it has failed: TimeoutError(\"The object 'one' of kopfexamples is not as expected after 3 seconds: "
        'its last version is'
    ] or report.converged


def test_ends_that_are_never_the_same_are_refused():
    def declare(registry):
        @kopf.on.create(PLURAL, id='fn', registry=registry)
        async def fn(uid, **_):
            return {'random': os.urandom(4).hex()}

    with pytest.raises(chaos.ConvergenceError, match='even if nothing goes wrong'):
        chaos.check_convergence(declare, create, apply=[CRD])

    chaos.check_convergence(
        declare, create, apply=[CRD], ignore=['status.fn.random'], seeds=range(2)
    )


def test_operator_that_always_fails_is_an_error():
    def declare(registry):
        @kopf.on.startup(registry=registry)
        async def fn(**_):
            raise kopf.PermanentError('never')

    with pytest.raises(RuntimeError, match='has ended 50 times'):
        chaos.check_convergence(declare, create, apply=[CRD])


def test_nothing_is_left_behind_by_checks(monkeypatch):
    monkeypatch.setenv('KUBECONFIG', 'mine')
    logger = logging.getLogger('kopf')
    before = (
        logger.level,
        logger.propagate,
        list(logger.handlers),
        logging.getLogger('kopf.objects').level,
    )
    tasks = []

    def declare(registry):
        tasks.append(os.environ['KUBECONFIG'])

    chaos.check_convergence(declare, create, apply=[CRD], seeds=[1])

    assert os.environ['KUBECONFIG'] == 'mine'
    assert 'mine' not in tasks
    assert not any(os.path.exists(path) for path in tasks)
    assert before == (
        logger.level,
        logger.propagate,
        list(logger.handlers),
        logging.getLogger('kopf.objects').level,
    )


def run_world(plan, handlers, scenario):
    """Run it once, and tell what happened."""
    with worlds.World(plan, handlers, {}, apply=[CRD]) as world:
        world.begin()
        world.run_scenario(scenario)
        world.calm_down(300, 3000)
        world.lift()
        world.calm_down(300, 3000)
        bodies = world.list(PLURAL)
        requests = list(world.requests)
        world.end()
    return world, bodies, requests


def test_killed_operator_does_nothing_more():
    story = []

    def declare(registry):
        @kopf.on.cleanup(registry=registry)
        async def cleanup(**_):
            await asyncio.sleep(0.1)
            story.append('cleaned up')

        @kopf.on.create(PLURAL, registry=registry)
        async def fn(patch, **_):
            story.append('called')
            patch.status['done'] = True

        @kopf.daemon(PLURAL, registry=registry)
        async def daemon(**_):
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(0.1)
                story.append('finished')

    plan = plans.Plan(crashes=(plans.Crash(3, is_before=True, downtime=100.0),))
    world, (body,), _ = run_world(plan, declare, create)

    assert world.starts == 2
    assert story[:2] == ['called', 'called']
    assert story.count('cleaned up') == 1  # in the end
    assert body['status']['done'] is True
    crash = next(moment for moment in world.timeline if moment.kind == 'crash')
    following = [moment for moment in world.timeline if crash.time < moment.time < crash.time + 100]
    assert [moment for moment in following if moment.kind in ('request', 'object', 'log')] == []


@pytest.mark.parametrize(
    'is_before, is_written',
    [
        pytest.param(True, False, id='instead'),
        pytest.param(False, True, id='after'),
    ],
)
def test_last_write_is_done_or_not_as_planned(is_before, is_written):
    seen = []

    def scenario(sandbox):
        sandbox.create(build_object('one', x=1))
        sandbox.sleep(5)
        seen.append('annotations' in sandbox.get(PLURAL, 'one')['metadata'])

    plan = plans.Plan(crashes=(plans.Crash(1, is_before=is_before, downtime=60.0),))
    run_world(plan, declare_good, scenario)

    assert seen == [is_written]


@pytest.mark.parametrize(
    'is_amnesic, expected',
    [
        pytest.param(False, 'resumed 1', id='changes-of-others'),
        pytest.param(True, 'created 1', id='own-changes'),
    ],
)
def test_view_is_behind_after_a_restart_and_then_is_not(is_amnesic, expected):
    story = []

    def declare(registry):
        @kopf.on.create(PLURAL, id='created', registry=registry)
        async def created(spec, **_):
            story.append(f'created {spec["x"]}')

        @kopf.on.resume(PLURAL, id='resumed', registry=registry)
        async def resumed(spec, retry, **_):
            story.append(f'resumed {spec["x"]}')

        @kopf.on.update(PLURAL, id='updated', registry=registry)
        async def updated(spec, **_):
            story.append(f'updated {spec["x"]}')

    plan = plans.Plan(
        crashes=(
            plans.Crash(1, is_before=False, downtime=60, behind=2, lag=3, is_amnesic=is_amnesic),
        )
    )
    _, (body,), _ = run_world(plan, declare, edit)

    assert story[:2] == ['created 1', expected]
    assert 'updated 2' in story[2:]
    assert body['spec'] == {'x': 2}


@pytest.mark.parametrize('is_forgotten', [True, False])
def test_nothing_is_seen_in_a_gap_and_all_is_seen_after_it(is_forgotten):
    things.clear()
    plan = plans.Plan(gaps=(plans.Gap(2, 100.0, is_forgotten=is_forgotten),))
    world, _, _ = run_world(plan, declare_good, edit)

    gap = next(moment for moment in world.timeline if moment.kind == 'gap')
    answered = [
        moment
        for moment in world.timeline
        if moment.kind == 'request' and gap.time < moment.time < gap.time + 100
    ]
    assert [moment for moment in answered if moment.text.startswith(('list', 'watch'))] == []
    assert things == {'one': 2}


@pytest.mark.parametrize('seed', range(3))
def test_faults_come_to_all_requests_and_the_work_is_done_after_them(seed):
    world, _, requests = run_world(plans.Plan(seed=seed, intensity=0.5), declare_good, edit)

    faults = [moment.text for moment in world.timeline if moment.kind == 'fault']
    peace = next(moment for moment in world.timeline if moment.kind == 'peace')
    assert len(faults) >= 5
    assert all(moment.time <= peace.time for moment in world.timeline if moment.kind == 'fault')
    assert things == {'one': 2}
    assert any(
        (asked.code is not None and asked.code >= 400) or asked.code is None for asked in requests
    )


def test_public_module_is_reachable_in_all_ways():
    import importlib

    assert kopf.testing.chaos is importlib.import_module('kopf.testing.chaos')
    assert all(hasattr(chaos, name) for name in chaos.__all__)
