"""
Sandboxes for the tests of this directory, and the resources that they use.
"""

import itertools
from collections.abc import Iterator

import pytest
import sandbox_http

import kopf.testing

NUMBERS = itertools.count(1)


@pytest.fixture(scope='module')
def sandbox() -> Iterator[kopf.testing.Sandbox]:
    """
    One sandbox for all tests of a module, each of which keeps to its own namespace and definitions.
    """
    with kopf.testing.Sandbox(apply=[sandbox_http.THINGS, sandbox_http.PLAINS]) as sandbox:
        yield sandbox


@pytest.fixture
async def api(sandbox):
    async with sandbox_http.open_api(sandbox, sandbox.token) as api:
        yield api


@pytest.fixture
async def namespace(api):
    """The name of a new namespace."""
    made = await api.make(
        '/api/v1/namespaces', {'metadata': {'name': f'api-tests-{next(NUMBERS)}'}}
    )
    return made['metadata']['name']


@pytest.fixture
def configmaps(namespace):
    return f'/api/v1/namespaces/{namespace}/configmaps'


@pytest.fixture
def pods(namespace):
    return f'/api/v1/namespaces/{namespace}/pods'


@pytest.fixture
def deployments(namespace):
    return f'/apis/apps/v1/namespaces/{namespace}/deployments'


@pytest.fixture
def things(namespace):
    """A custom resource with the subresources for status and scale."""
    return f'/apis/{sandbox_http.GROUP}/v1/namespaces/{namespace}/things'


@pytest.fixture
def plains(namespace):
    """A custom resource without subresources."""
    return f'/apis/{sandbox_http.GROUP}/v1/namespaces/{namespace}/plains'


@pytest.fixture
def paths(configmaps, pods, deployments, things, plains):
    """The paths of all resources above, by their names."""
    return {
        path.rpartition('/')[2]: path for path in (configmaps, pods, deployments, things, plains)
    }
