"""
Handlers of admission on sandboxes: they are called with nothing set up for them.
"""

import pytest

import kopf
import kopf.testing


@pytest.fixture
def registry():
    registry = kopf.OperatorRegistry()

    @kopf.on.mutate('kopfexamples', registry=registry)
    async def mutate_fn(patch, **_):
        patch.metadata.annotations['mutated'] = 'yes'

    @kopf.on.validate('kopfexamples', registry=registry)
    def validate_fn(spec, **_):
        if spec.get('wrong'):
            raise kopf.AdmissionError('It is wrong.')

    return registry


def get_names(simulation):
    return [body['metadata']['name'] for body in simulation.list('mutatingwebhookconfigurations')]


def test_objects_are_reviewed_since_the_operator_is_ready(registry, crd, build_object):
    with kopf.testing.Simulation(apply=[crd]) as simulation:
        simulation.run(registry=registry)
        created = simulation.create(build_object())
        with pytest.raises(kopf.testing.ApiError, match='It is wrong'):
            simulation.create(build_object('two', wrong=True))

    assert created['metadata']['annotations'] == {'mutated': 'yes'}


async def test_objects_are_reviewed_in_event_loops(registry, crd, build_object):
    async with (
        kopf.testing.Sandbox(apply=[crd]) as sandbox,
        kopf.testing.Operator(sandbox, registry=registry),
    ):
        created = await sandbox.create(build_object())

    assert created['metadata']['annotations'] == {'mutated': 'yes'}


def test_settings_of_startup_handlers_win(registry, crd, build_object):
    @kopf.on.startup(registry=registry)
    async def configure(settings, **_):
        settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', host='127.0.0.1')
        settings.admission.managed = 'mine.kopf.dev'

    with kopf.testing.Simulation(apply=[crd]) as simulation:
        simulation.run(registry=registry)
        names = get_names(simulation)

    assert names == ['mine.kopf.dev']


def test_given_settings_can_be_used_again(registry, crd, build_object):
    settings = kopf.OperatorSettings()
    for _ in range(2):
        with kopf.testing.Simulation(apply=[crd]) as simulation:
            simulation.run(registry=registry, settings=settings)
            created = simulation.create(build_object())

            assert created['metadata']['annotations'] == {'mutated': 'yes'}


def test_operators_of_real_clusters_need_a_server_still(registry, sandbox, env, monkeypatch):
    runner = kopf.testing.KopfRunner(['run', '-A'], env=env, registry=registry, timeout=10)

    with pytest.raises(Exception, match='There are handlers of admission, but no server'), runner:
        pass
