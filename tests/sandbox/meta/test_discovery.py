import dataclasses

import hypothesis
import hypothesis.strategies
import pytest

from kopf._sandbox.meta import builtins, discovery, kinds

VERBS = ('delete', 'deletecollection', 'get', 'list', 'patch', 'create', 'update', 'watch')
SCALE = kinds.Scale(spec_path='.spec.replicas', status_path='.status.replicas')
EXAMPLE = kinds.Resource(
    group='kopf.dev',
    version='v1',
    plural='kopfexamples',
    singular='kopfexample',
    kind='KopfExample',
    list_kind='KopfExampleList',
    namespaced=True,
    verbs=VERBS,
    short_names=('kex',),
    categories=('all',),
    has_status=True,
    scale=SCALE,
    storage_version='v1',
    home=kinds.Home('kopf.dev', 'kopfexamples'),
    custom=True,
)
PEERING = kinds.Resource(
    group='kopf.dev',
    version='v1',
    plural='clusterkopfpeerings',
    singular='clusterkopfpeering',
    kind='ClusterKopfPeering',
    list_kind='ClusterKopfPeeringList',
    namespaced=False,
    verbs=VERBS,
    storage_version='v1',
    home=kinds.Home('kopf.dev', 'clusterkopfpeerings'),
    custom=True,
)


@pytest.fixture
def catalog():
    return kinds.Catalog(builtins.load_resources())


def test_core_versions_tell_the_address_of_the_server():
    assert discovery.build_core_versions('127.0.0.1:6443') == {
        'kind': 'APIVersions',
        'versions': ['v1'],
        'serverAddressByClientCIDRs': [
            {'clientCIDR': '0.0.0.0/0', 'serverAddress': '127.0.0.1:6443'}
        ],
    }


def test_builtin_groups_are_listed_in_the_order_of_the_api(catalog):
    groups = discovery.build_groups(catalog)

    assert [group['name'] for group in groups['groups']] == [
        'apiregistration.k8s.io',
        'apps',
        'events.k8s.io',
        'authentication.k8s.io',
        'authorization.k8s.io',
        'autoscaling',
        'batch',
        'certificates.k8s.io',
        'networking.k8s.io',
        'policy',
        'rbac.authorization.k8s.io',
        'storage.k8s.io',
        'admissionregistration.k8s.io',
        'apiextensions.k8s.io',
        'scheduling.k8s.io',
        'coordination.k8s.io',
        'node.k8s.io',
        'discovery.k8s.io',
        'resource.k8s.io',
        'flowcontrol.apiserver.k8s.io',
    ]


def test_custom_groups_are_listed_after_the_builtin_ones_by_names(catalog):
    catalog.add(
        dataclasses.replace(EXAMPLE, group='zoo.dev', home=kinds.Home('zoo.dev', 'kopfexamples'))
    )
    catalog.add(EXAMPLE)

    groups = discovery.build_groups(catalog)

    assert [group['name'] for group in groups['groups']][-3:] == [
        'flowcontrol.apiserver.k8s.io',
        'kopf.dev',
        'zoo.dev',
    ]


def test_group_tells_its_versions_with_the_preferred_first(catalog):
    for version in ['v1beta1', 'v2alpha1', 'v1']:
        catalog.add(dataclasses.replace(EXAMPLE, version=version))

    assert discovery.build_group(catalog, 'kopf.dev') == {
        'kind': 'APIGroup',
        'apiVersion': 'v1',
        'name': 'kopf.dev',
        'versions': [
            {'groupVersion': 'kopf.dev/v1', 'version': 'v1'},
            {'groupVersion': 'kopf.dev/v1beta1', 'version': 'v1beta1'},
            {'groupVersion': 'kopf.dev/v2alpha1', 'version': 'v2alpha1'},
        ],
        'preferredVersion': {'groupVersion': 'kopf.dev/v1', 'version': 'v1'},
    }


@pytest.mark.parametrize('group', ['', 'kopf.dev', 'no.such.group'])
def test_unserved_groups_are_absent(catalog, group):
    assert discovery.build_group(catalog, group) is None


def test_group_disappears_with_its_last_resource(catalog):
    catalog.add(EXAMPLE)
    catalog.add(PEERING)
    catalog.discard(EXAMPLE.home)
    assert discovery.build_group(catalog, 'kopf.dev') is not None

    catalog.discard(PEERING.home)

    assert discovery.build_group(catalog, 'kopf.dev') is None
    assert discovery.build_resources(catalog, 'kopf.dev', 'v1') is None
    assert 'kopf.dev' not in str(discovery.build_aggregated(catalog, core=False))


def test_versions_are_ranked_by_stability_and_then_by_newness():
    versions = [
        'foo10',
        'v1',
        'v3beta1',
        'v10',
        'v2',
        'v11alpha2',
        'v12alpha1',
        'foo1',
        'v11beta2',
        'v10beta3',
        'v1.5',
        'V2',
    ]

    assert sorted(versions, key=discovery.rank_version) == [
        'v10',
        'v2',
        'v1',
        'v11beta2',
        'v10beta3',
        'v3beta1',
        'v12alpha1',
        'v11alpha2',
        'V2',
        'foo1',
        'foo10',
        'v1.5',
    ]


@hypothesis.given(hypothesis.strategies.lists(hypothesis.strategies.text()))
def test_any_names_of_versions_can_be_ranked(versions):
    assert sorted(sorted(versions), key=discovery.rank_version) == sorted(
        versions, key=discovery.rank_version
    )


def test_custom_resources_are_described_with_their_subresources():
    catalog = kinds.Catalog([EXAMPLE, PEERING])

    assert discovery.build_resources(catalog, 'kopf.dev', 'v1') == {
        'kind': 'APIResourceList',
        'apiVersion': 'v1',
        'groupVersion': 'kopf.dev/v1',
        'resources': [
            {
                'name': 'kopfexamples',
                'singularName': 'kopfexample',
                'namespaced': True,
                'kind': 'KopfExample',
                'verbs': list(VERBS),
                'shortNames': ['kex'],
                'categories': ['all'],
                'storageVersionHash': discovery.hash_storage_version(
                    'kopf.dev', 'v1', 'KopfExample'
                ),
            },
            {
                'name': 'kopfexamples/status',
                'singularName': '',
                'namespaced': True,
                'kind': 'KopfExample',
                'verbs': ['get', 'patch', 'update'],
            },
            {
                'name': 'kopfexamples/scale',
                'singularName': '',
                'namespaced': True,
                'group': 'autoscaling',
                'version': 'v1',
                'kind': 'Scale',
                'verbs': ['get', 'patch', 'update'],
            },
            {
                'name': 'clusterkopfpeerings',
                'singularName': 'clusterkopfpeering',
                'namespaced': False,
                'kind': 'ClusterKopfPeering',
                'verbs': list(VERBS),
                'storageVersionHash': discovery.hash_storage_version(
                    'kopf.dev', 'v1', 'ClusterKopfPeering'
                ),
            },
        ],
    }


def test_core_resources_are_described_as_by_the_api(catalog):
    described = discovery.build_resources(catalog, '', 'v1')
    by_names = {item['name']: item for item in described['resources']}

    assert {key: value for key, value in described.items() if key != 'resources'} == {
        'kind': 'APIResourceList',
        'groupVersion': 'v1',
    }
    assert by_names['configmaps'] == {
        'name': 'configmaps',
        'singularName': 'configmap',
        'namespaced': True,
        'kind': 'ConfigMap',
        'verbs': [
            'create',
            'delete',
            'deletecollection',
            'get',
            'list',
            'patch',
            'update',
            'watch',
        ],
        'shortNames': ['cm'],
        'storageVersionHash': 'qFsyl6wFWjQ=',
    }
    assert by_names['namespaces/finalize'] == {
        'name': 'namespaces/finalize',
        'singularName': '',
        'namespaced': False,
        'kind': 'Namespace',
        'verbs': ['update'],
    }
    assert by_names['serviceaccounts/token'] == {
        'name': 'serviceaccounts/token',
        'singularName': '',
        'namespaced': True,
        'group': 'authentication.k8s.io',
        'version': 'v1',
        'kind': 'TokenRequest',
        'verbs': ['create'],
    }
    assert by_names['pods/eviction']['group'] == 'policy'
    assert 'storageVersionHash' not in by_names['componentstatuses']
    assert list(by_names) == sorted(by_names)


@pytest.mark.parametrize(
    'group, version, kind, expected',
    [
        pytest.param('', 'v1', 'ConfigMap', 'qFsyl6wFWjQ=', id='core'),
        pytest.param('autoscaling', 'v2', 'HorizontalPodAutoscaler', 'qwQve8ut294=', id='builtin'),
        pytest.param('w3.example.com', 'v1', 'Zebra', '82FEyHNWlMo=', id='custom'),
    ],
)
def test_storage_versions_are_hashed_as_by_the_api(group, version, kind, expected):
    assert discovery.hash_storage_version(group, version, kind) == expected


def test_events_have_the_same_storage_in_both_groups(catalog):
    hashes = {
        item['storageVersionHash']
        for group in ('', 'events.k8s.io')
        for item in discovery.build_resources(catalog, group, 'v1')['resources']
        if item['name'] == 'events'
    }

    assert hashes == {'r2yiGXH7wu8='}


@pytest.mark.parametrize('group, version', [('', 'v2'), ('apps', 'v1beta1'), ('kopf.dev', 'v1')])
def test_unserved_versions_are_absent(catalog, group, version):
    assert discovery.build_resources(catalog, group, version) is None


def test_aggregated_discovery_of_core_has_one_nameless_group(catalog):
    aggregated = discovery.build_aggregated(catalog, core=True)
    [group] = aggregated['items']
    [version] = group['versions']
    [services] = [item for item in version['resources'] if item['resource'] == 'services']

    assert (aggregated['kind'], aggregated['apiVersion']) == (
        'APIGroupDiscoveryList',
        'apidiscovery.k8s.io/v2',
    )
    assert group['metadata'] == {}
    assert (version['version'], version['freshness']) == ('v1', 'Current')
    assert services == {
        'resource': 'services',
        'responseKind': {'group': '', 'version': '', 'kind': 'Service'},
        'scope': 'Namespaced',
        'singularResource': 'service',
        'verbs': [
            'create',
            'delete',
            'deletecollection',
            'get',
            'list',
            'patch',
            'update',
            'watch',
        ],
        'shortNames': ['svc'],
        'categories': ['all'],
        'subresources': [
            {
                'subresource': 'status',
                'responseKind': {'group': '', 'version': '', 'kind': 'Service'},
                'verbs': ['get', 'patch', 'update'],
            }
        ],
    }


def test_aggregated_discovery_of_custom_resources_tells_their_kinds_in_full():
    aggregated = discovery.build_aggregated(kinds.Catalog([EXAMPLE, PEERING]), core=False)

    own = {'group': 'kopf.dev', 'version': 'v1'}
    assert aggregated['items'] == [
        {
            'metadata': {'name': 'kopf.dev'},
            'versions': [
                {
                    'version': 'v1',
                    'freshness': 'Current',
                    'resources': [
                        {
                            'resource': 'clusterkopfpeerings',
                            'responseKind': {**own, 'kind': 'ClusterKopfPeering'},
                            'scope': 'Cluster',
                            'singularResource': 'clusterkopfpeering',
                            'verbs': list(VERBS),
                        },
                        {
                            'resource': 'kopfexamples',
                            'responseKind': {**own, 'kind': 'KopfExample'},
                            'scope': 'Namespaced',
                            'singularResource': 'kopfexample',
                            'verbs': list(VERBS),
                            'shortNames': ['kex'],
                            'categories': ['all'],
                            'subresources': [
                                {
                                    'subresource': 'status',
                                    'responseKind': {**own, 'kind': 'KopfExample'},
                                    'verbs': ['get', 'patch', 'update'],
                                },
                                {
                                    'subresource': 'scale',
                                    'responseKind': {
                                        'group': 'autoscaling',
                                        'version': 'v1',
                                        'kind': 'Scale',
                                    },
                                    'verbs': ['get', 'patch', 'update'],
                                },
                            ],
                        },
                    ],
                }
            ],
        }
    ]


def test_both_ways_of_discovery_tell_of_the_same_resources(catalog):
    catalog.add(EXAMPLE)
    aggregated = {
        (group['metadata'].get('name', ''), version['version'], item['resource'])
        for core in (True, False)
        for group in discovery.build_aggregated(catalog, core=core)['items']
        for version in group['versions']
        for item in version['resources']
    }

    assert aggregated == {(item.group, item.version, item.plural) for item in catalog}


def test_version_is_marked_as_of_the_sandbox():
    version = discovery.build_version()

    assert version['gitVersion'] == 'v1.35.4+kopf-sandbox'
    assert (version['major'], version['minor']) == ('1', '35')
    assert all(isinstance(value, str) for value in version.values())
