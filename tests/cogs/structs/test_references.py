"""
Resources: what they are known by, and where they are in the API.
"""

import dataclasses

import pytest

from kopf._cogs.structs import references

PODS = references.Resource('', 'v1', 'pods', namespaced=True)
NODES = references.Resource('', 'v1', 'nodes', namespaced=False)
EXAMPLES = references.Resource('kopf.dev', 'v1', 'kopfexamples', namespaced=True)
UNKNOWN = references.Resource('kopf.dev', 'v1', 'kopfexamples')


@pytest.mark.guarantee('RES-026', 'ARC-013')
def test_only_the_group_version_and_plural_are_required():
    resource = references.Resource('kopf.dev', 'v1', 'kopfexamples')

    assert dataclasses.asdict(resource) == {
        'group': 'kopf.dev',
        'version': 'v1',
        'plural': 'kopfexamples',
        'kind': None,
        'singular': None,
        'shortcuts': frozenset(),
        'categories': frozenset(),
        'subresources': frozenset(),
        'namespaced': None,
        'preferred': True,
        'verbs': frozenset(),
    }


def test_resources_are_the_same_by_the_group_version_and_plural():
    full = references.Resource(
        'kopf.dev', 'v1', 'kopfexamples', 'KopfExample', 'kopfexample', namespaced=True
    )

    assert full == UNKNOWN
    assert hash(full) == hash(UNKNOWN)
    assert list(full) == ['kopf.dev', 'v1', 'kopfexamples']


@pytest.mark.parametrize(
    'other',
    [
        references.Resource('kopf.io', 'v1', 'kopfexamples'),
        references.Resource('kopf.dev', 'v2', 'kopfexamples'),
        references.Resource('kopf.dev', 'v1', 'others'),
        ('kopf.dev', 'v1', 'kopfexamples'),
    ],
)
def test_resources_differ_by_the_group_version_or_plural(other):
    assert other != UNKNOWN


def test_resources_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PODS.version = 'v2'


@pytest.mark.parametrize(
    'resource, name, api_version, shown',
    [
        pytest.param(PODS, 'pods', 'v1', 'pods.v1', id='core'),
        pytest.param(
            EXAMPLES, 'kopfexamples.kopf.dev', 'kopf.dev/v1', 'kopfexamples.v1.kopf.dev', id='group'
        ),
    ],
)
def test_resources_are_named_as_in_kubernetes(resource, name, api_version, shown):
    assert (resource.name, resource.api_version, repr(resource)) == (name, api_version, shown)


def test_everything_is_shown_by_its_public_name():
    assert repr(references.EVERYTHING) == 'kopf.EVERYTHING'


@pytest.mark.guarantee('RES-027', 'RES-028', 'ARC-014', 'ARC-015')
@pytest.mark.parametrize(
    'resource, kwargs, url',
    [
        pytest.param(PODS, {}, '/api/v1/pods', id='core'),
        pytest.param(EXAMPLES, {}, '/apis/kopf.dev/v1/kopfexamples', id='group'),
        pytest.param(PODS, {'namespace': 'ns'}, '/api/v1/namespaces/ns/pods', id='namespace'),
        pytest.param(
            PODS,
            {'namespace': 'ns', 'name': 'x'},
            '/api/v1/namespaces/ns/pods/x',
            id='namespaced-object',
        ),
        pytest.param(NODES, {'name': 'x'}, '/api/v1/nodes/x', id='cluster-object'),
        pytest.param(
            UNKNOWN, {'name': 'x'}, '/apis/kopf.dev/v1/kopfexamples/x', id='unknown-scope'
        ),
        pytest.param(
            UNKNOWN,
            {'namespace': 'ns', 'name': 'x'},
            '/apis/kopf.dev/v1/namespaces/ns/kopfexamples/x',
            id='unknown-scope-with-namespace',
        ),
        pytest.param(
            NODES, {'name': 'x', 'subresource': 'proxy'}, '/api/v1/nodes/x/proxy', id='subresource'
        ),
        pytest.param(
            NODES, {'name': 'system:x/y z'}, '/api/v1/nodes/system:x%2Fy%20z', id='odd-name'
        ),
        pytest.param(
            NODES,
            {'params': {'watch': 'true', 'labelSelector': 'a=b,c!=d'}},
            '/api/v1/nodes?watch=true&labelSelector=a%3Db%2Cc%21%3Dd',
            id='params',
        ),
        pytest.param(NODES, {'params': {}}, '/api/v1/nodes', id='no-params'),
        pytest.param(
            NODES, {'server': 'https://host:1234'}, 'https://host:1234/api/v1/nodes', id='server'
        ),
        pytest.param(
            NODES,
            {'server': 'https://host/k8s/c1/'},
            'https://host/k8s/c1/api/v1/nodes',
            id='server-with-path',
        ),
    ],
)
def test_urls_are_as_the_api_has_them(resource, kwargs, url):
    assert resource.get_url(**kwargs) == url


@pytest.mark.parametrize(
    'resource, kwargs, message',
    [
        pytest.param(
            NODES, {'subresource': 'status'}, 'need the name', id='subresource-of-nothing'
        ),
        pytest.param(
            NODES, {'namespace': 'ns'}, 'have no namespaces', id='namespace-of-cluster-scoped'
        ),
        pytest.param(PODS, {'name': 'x'}, 'need the namespace', id='name-of-no-namespace'),
    ],
)
def test_urls_that_no_server_serves_are_refused(resource, kwargs, message):
    with pytest.raises(ValueError, match=message):
        resource.get_url(**kwargs)
