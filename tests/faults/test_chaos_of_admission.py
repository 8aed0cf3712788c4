"""
Operators with handlers of admission in chaos: nothing of the framework's own is taken for another
end.
"""

import pytest
from chaotic_operators import PLURAL, build_crd, build_object

import kopf
import kopf.testing
from kopf.testing import chaos


def declare(registry):
    @kopf.on.mutate(PLURAL, registry=registry, operations=['CREATE', 'UPDATE'])
    async def default(spec, patch, **_):
        if 'size' not in spec:
            patch.spec['size'] = 1

    @kopf.on.create(PLURAL, registry=registry)
    @kopf.on.update(PLURAL, registry=registry)
    @kopf.on.resume(PLURAL, registry=registry)
    async def keep(spec, patch, **_):
        patch.status['size'] = spec.get('size')


def change(sandbox):
    sandbox.create(build_object('one'))
    sandbox.sleep(10)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': None, 'x': 2}})


async def change_in_coroutine(sandbox):
    await sandbox.create(build_object('one'))


def refuse(sandbox):
    sandbox.create(build_object('one'))
    with pytest.raises(kopf.testing.ApiError):
        sandbox.create(build_object('one'))


@pytest.mark.parametrize('perturbation', ['crashes', 'faults'])
def test_operators_with_admission_come_to_the_same_end(perturbation):
    report = chaos.check_convergence(
        declare, change, apply=[build_crd()], perturbation=perturbation, seeds=range(6)
    )

    assert report.crashes == (6 if perturbation == 'crashes' else 0)
    assert [
        bodies[0]['spec']['size']
        for name, bodies in report.peace.state.items()
        if name.endswith('one')
    ]


@pytest.mark.parametrize('scenario', [change, change_in_coroutine])
def test_requests_of_scenarios_are_repeated_while_the_operator_is_down(scenario):
    report = chaos.try_seeds(
        declare, scenario, apply=[build_crd()], perturbation='crashes', seeds=range(10)
    )

    assert report.converged


def test_requests_of_scenarios_are_not_repeated_if_not_wanted():
    report = chaos.try_seeds(
        declare, change, apply=[build_crd()], perturbation='crashes', seeds=range(10), insist=False
    )

    lines = [line for divergence in report.divergences for line in divergence.differences]
    assert any('failed calling webhook' in line for line in lines)


def test_other_refusals_are_not_repeated():
    report = chaos.try_seeds(declare, refuse, apply=[build_crd()], seeds=[])

    assert report.converged


def test_other_fields_of_webhooks_are_compared():
    names = iter(['one', 'two'])

    def declare_differently(registry):
        kopf.on.validate(PLURAL, registry=registry, id=next(names))(lambda **_: None)

    with pytest.raises(chaos.ConvergenceError, match='ValidatingWebhookConfiguration'):
        chaos.try_seeds(declare_differently, lambda _: None, apply=[build_crd()], seeds=[])
