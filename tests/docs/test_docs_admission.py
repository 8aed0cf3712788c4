"""
The examples of the page on admission do what the page says: the sandbox calls the webhooks for
real.
"""

import pytest
from doc_operators import DATABASES, build_database, write_operator

import kopf.testing

pytestmark = pytest.mark.kopf_sandbox(apply=[DATABASES])

LOCAL_SERVER = """
@kopf.on.startup()
def serve_locally(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1')
    settings.admission.managed = 'databases.example.com'
"""


@pytest.fixture
def run(kopf_simulation, tmp_path):
    def run(*functions, hooks):
        path = write_operator(tmp_path / 'operator.py', 'admission', *functions)
        path.write_text(path.read_text() + LOCAL_SERVER)
        operator = kopf_simulation.run(path)
        for kind in hooks:
            kopf_simulation.wait(
                f'{kind}webhookconfigurations',
                'databases.example.com',
                lambda body: body and body.get('webhooks'),
                namespace=None,
            )
        return operator

    return run


@pytest.mark.guarantee('ADM-028', 'ADM-029', 'ADM-035', 'ADM-039', 'ADM-041')
def test_the_first_example_refuses_and_adjusts(kopf_simulation, run):
    operator = run('validate_size', hooks=['validating', 'mutating'])
    created = kopf_simulation.create(build_database('db1'))
    with pytest.raises(kopf.testing.ApiError) as caught:
        kopf_simulation.create(build_database('db2', spec={'size': '0'}))
    operator.stop()
    unadjusted = kopf_simulation.create(build_database('db3', spec={'size': '0'}))

    assert created['spec'] == {'size': '1G'}
    assert caught.value.code == 400
    assert caught.value.message == (
        'admission webhook "validate-size.databases.example.com" denied the request: '
        'An empty database makes no sense.'
    )
    assert unadjusted['spec'] == {'size': '0'}


@pytest.mark.guarantee('ADM-028', 'ADM-030', 'NEW-076')
def test_mutations_are_made_in_both_ways_of_patches(kopf_simulation, run):
    run('adjust', hooks=['mutating'])
    created = kopf_simulation.create(build_database(spec={'size': '5G', 'obsolete': True}))

    assert created['spec'] == {'size': '5G'}
    assert created['metadata']['labels'] == {'size': '5G'}
    assert created['metadata']['finalizers'] == ['example.com/keep']
