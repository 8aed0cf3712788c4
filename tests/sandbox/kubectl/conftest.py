"""
One sandbox for all tests with kubectl, each of which has a namespace of its own.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator

import kubectls
import pytest

import kopf.testing

NUMBERS = itertools.count(1)


@pytest.fixture(scope='session')
def sandbox() -> Iterator[kopf.testing.Sandbox]:
    """A cluster where everything is allowed."""
    with kopf.testing.Sandbox(apply=[kubectls.WIDGETS]) as sandbox:
        yield sandbox


@pytest.fixture
def namespace(sandbox) -> str:
    """The name of a new namespace."""
    name = f'kubectl-{next(NUMBERS)}'
    sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}})
    return name


@pytest.fixture(scope='session')
def environment(tmp_path_factory):
    """
    The environment of kubectl: it neither sees nor leaves anything of its own on this machine.
    """
    home = tmp_path_factory.mktemp('home')
    return {'PATH': os.environ['PATH'], 'HOME': str(home), 'TMPDIR': str(home), 'TZ': 'UTC'}


@pytest.fixture
def kubectl(kubectl_path, environment, sandbox, namespace) -> kubectls.Kubectl:
    """The real kubectl in the new namespace."""
    return kubectls.Kubectl(
        kubectl_path, {**environment, 'KUBECONFIG': str(sandbox.kubeconfig)}, namespace
    )


@pytest.fixture
def fresh_kubectl(kubectl, tmp_path) -> kubectls.Kubectl:
    """The same without the memory of what is served: for the tests that change it."""
    return dataclasses.replace(kubectl, environment={**kubectl.environment, 'HOME': str(tmp_path)})


@pytest.fixture
def make(sandbox, namespace):
    """Creates objects in the new namespace, not by kubectl; returns the last one."""

    def make(*bodies):
        return [
            sandbox.create({**body, 'metadata': {**body['metadata'], 'namespace': namespace}})
            for body in bodies
        ][-1]

    return make


@pytest.fixture
def read(sandbox, namespace):
    """Gets objects of the new namespace, not by kubectl."""

    def read(resource, name='one'):
        return sandbox.get(resource, name, namespace)

    return read
