import pathlib

import cloud
import pytest

from kopf.testing import chaos

HERE = pathlib.Path(__file__).parent
CRD = HERE.parent / 'crd.yaml'


def build_object(name, **spec):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': name},
        'spec': spec,
    }


# The scenarios: what users do. Then the operator has its time to do the rest.


def create(sandbox):
    cloud.buckets.clear()
    sandbox.create(build_object('one', size=1))


def edit(sandbox):
    create(sandbox)
    sandbox.sleep(10)
    sandbox.patch('kopfexamples', 'one', {'spec': {'size': 2}})


def delete(sandbox):
    create(sandbox)
    sandbox.sleep(10)
    sandbox.delete('kopfexamples', 'one')


# What is compared besides the objects of the cluster; the numbers of buckets are never the same.


def observe(sandbox):
    return sorted(details['size'] for details in cloud.buckets.values())


OPTIONS = {'apply': [CRD], 'observe': observe, 'ignore': ['status.bucket']}


@pytest.mark.parametrize('scenario', [create, edit, delete])
def test_good_operator_comes_to_the_same_end_if_killed_at_any_write(scenario):
    chaos.check_convergence(HERE / 'example.py', scenario, perturbation='crashes', **OPTIONS)


@pytest.mark.parametrize('scenario', [create, edit, delete])
def test_good_operator_comes_to_the_same_end_whatever_happens(scenario):
    chaos.check_convergence(HERE / 'example.py', scenario, seeds=range(5), **OPTIONS)


# The bugs, and how they look like.


def test_creation_that_is_not_idempotent_is_found():
    with pytest.raises(chaos.ConvergenceError, match=r'observed is \[1, 1\], not \[1\]'):
        chaos.check_convergence(
            HERE / 'bug_not_idempotent.py', create, perturbation='crashes', **OPTIONS
        )


def test_lost_update_is_found():
    with pytest.raises(chaos.ConvergenceError, match=r'observed is \[1\], not \[2\]'):
        chaos.check_convergence(HERE / 'bug_lost_update.py', edit, **OPTIONS)


def test_stuck_finalizer_is_found():
    with pytest.raises(
        chaos.ConvergenceError, match='KopfExample default/one: is there, not absent'
    ):
        chaos.check_convergence(
            HERE / 'bug_stuck_finalizer.py', delete, perturbation='crashes', **OPTIONS
        )
