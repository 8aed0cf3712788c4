import asyncio
import pathlib

import example
import pytest

import kopf.testing

HERE = pathlib.Path(__file__).parent
CRD = HERE.parent / 'crd.yaml'
PATH = HERE / 'example.py'


def build_object(**spec):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': 'tested'},
        'spec': spec,
    }


def is_ready(body):
    return 'duration' in body.get('status', {})


# One function: nothing else is involved.


def test_changes_are_shown(capsys):
    kopf.testing.call(example.duration_fn, name='tested', old='1m', new='2m')

    assert capsys.readouterr().out == "CHANGED tested: '1m' -> '2m'\n"


def test_first_attempt_is_too_early():
    with pytest.raises(kopf.TemporaryError, match='too early'):
        asyncio.run(kopf.testing.call(example.create_fn, spec={'failures': 1}))


# The operator and a cluster in virtual time: hours are over at once.


@pytest.mark.kopf_sandbox(apply=[CRD])
def test_object_is_ready_after_hours(kopf_simulation):
    kopf_simulation.run(PATH)
    kopf_simulation.create(build_object(duration='1m', failures=3))
    body = kopf_simulation.wait('kopfexamples', 'tested', is_ready, timeout=24 * 3600)

    assert body['status']['duration'] == '1m'
    assert kopf_simulation.elapsed == pytest.approx(3 * 3600, abs=60)


# The command in the background, as in a terminal, while the test changes the objects.


@pytest.mark.kopf_sandbox(apply=[CRD])
def test_command_runs_the_operator(kopf_sandbox):
    env = {'KUBECONFIG': str(kopf_sandbox.kubeconfig)}
    with kopf.testing.KopfRunner(
        ['run', '--all-namespaces', str(PATH)], env=env, timeout=60
    ) as runner:
        kopf_sandbox.create(build_object(duration='1m'))
        kopf_sandbox.wait('kopfexamples', 'tested', is_ready, timeout=60)

    assert runner.exit_code == 0
    assert runner.exception is None
    assert "CHANGED tested: None -> '1m'" in runner.stdout
    assert 'The object is ready.' in runner.stderr
