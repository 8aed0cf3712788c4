"""
Discovery: which resources are found, whichever way the server tells of them, and whatever goes
wrong with some.
"""

import asyncio
import json

import pytest

from kopf._cogs.clients import discovery, errors
from kopf._cogs.structs import credentials, references

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kopfexamples.kopf.dev}
spec:
  group: kopf.dev
  scope: Namespaced
  names: {kind: KopfExample, plural: kopfexamples, singular: kopfexample, shortNames: [kex], categories: [all, mine]}
  versions:
    - {name: v1, served: true, storage: true, subresources: {status: {}},
       schema: &schema {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
    - {name: v1beta1, served: true, storage: false, schema: *schema}
"""

PODS = references.Resource('', 'v1', 'pods')
DEPLOYMENTS = references.Resource('apps', 'v1', 'deployments')
PLAIN = 'application/json'


def answer(body, code=200):
    text = json.dumps(body)
    return f'HTTP/1.1 {code} X\r\nContent-Length: {len(text)}\r\nContent-Type: {PLAIN}\r\n\r\n{text}'.encode()


def describe(resources):
    """Show all that is known of the resources; they are compared only by their names otherwise."""
    return {repr(resource): vars(resource) for resource in resources}


@pytest.fixture
def no_aggregation(monkeypatch):
    """Talk as if the aggregated discovery was not invented yet."""
    monkeypatch.setattr(discovery, 'AGGREGATED', PLAIN)


def test_aggregated_resources_are_read_with_all_their_features():
    resources = discovery.parse_aggregated(
        {
            'items': [
                {
                    'metadata': {'name': 'kopf.dev'},
                    'versions': [
                        {
                            'version': 'v1',
                            'resources': [
                                {
                                    'resource': 'kopfexamples',
                                    'responseKind': {
                                        'group': '',
                                        'version': '',
                                        'kind': 'KopfExample',
                                    },
                                    'scope': 'Namespaced',
                                    'singularResource': 'kopfexample',
                                    'shortNames': ['kex'],
                                    'categories': ['all'],
                                    'verbs': ['list', 'watch'],
                                    'subresources': [
                                        {'subresource': 'status'},
                                        {'subresource': 'scale'},
                                    ],
                                }
                            ],
                        },
                        {
                            'version': 'v1beta1',
                            'resources': [
                                {
                                    'resource': 'clusterkopfs',
                                    'responseKind': {'kind': 'ClusterKopf'},
                                    'scope': 'Cluster',
                                }
                            ],
                        },
                    ],
                }
            ]
        }
    )

    assert describe(resources) == describe(
        [
            references.Resource(
                'kopf.dev',
                'v1',
                'kopfexamples',
                kind='KopfExample',
                singular='kopfexample',
                namespaced=True,
                shortcuts=frozenset({'kex'}),
                categories=frozenset({'all'}),
                verbs=frozenset({'list', 'watch'}),
                subresources=frozenset({'status', 'scale'}),
                preferred=True,
            ),
            references.Resource(
                'kopf.dev',
                'v1beta1',
                'clusterkopfs',
                kind='ClusterKopf',
                singular='clusterkopf',
                namespaced=False,
                preferred=False,
            ),
        ]
    )


@pytest.mark.parametrize(
    'found',
    [
        pytest.param({}, id='empty'),
        pytest.param({'items': None}, id='no-groups'),
        pytest.param({'items': [{'metadata': {'name': 'g'}, 'versions': None}]}, id='no-versions'),
        pytest.param(
            {'items': [{'metadata': None, 'versions': [{'version': 'v1', 'resources': None}]}]},
            id='no-items',
        ),
        pytest.param(
            {'items': [{'versions': [{'version': 'v1', 'resources': [{'resource': 'x'}]}]}]},
            id='no-kind',
        ),
        pytest.param(
            {
                'items': [
                    {
                        'versions': [
                            {
                                'version': 'v1',
                                'resources': [{'resource': 'x', 'responseKind': {'kind': ''}}],
                            }
                        ]
                    }
                ]
            },
            id='empty-kind',
        ),
    ],
)
def test_nothing_is_read_of_what_is_not_described(found):
    assert discovery.parse_aggregated(found) == []


def test_only_stale_versions_are_reported_as_such():
    stale = discovery.parse_stale(
        {
            'items': [
                {
                    'metadata': {'name': 'g'},
                    'versions': [
                        {'version': 'v1', 'freshness': 'Current'},
                        {'version': 'v2', 'freshness': 'Stale'},
                        {'version': 'v3'},
                    ],
                }
            ]
        }
    )

    assert stale == [discovery.GroupVersion('g', 'v2', preferred=False)]


@pytest.mark.parametrize(
    'found, expected',
    [
        pytest.param({}, [], id='empty'),
        pytest.param({'groups': None}, [], id='no-groups'),
        pytest.param({'versions': ['v1']}, [('', 'v1', True)], id='core'),
        pytest.param(
            {'versions': ['v2', 'v1']}, [('', 'v2', True), ('', 'v1', False)], id='future-core'
        ),
        pytest.param(
            {
                'groups': [
                    {
                        'name': 'g',
                        'versions': [{'version': 'v2'}, {'version': 'v1'}],
                        'preferredVersion': {'version': 'v1'},
                    }
                ]
            },
            [('g', 'v2', False), ('g', 'v1', True)],
            id='preferred-is-not-the-first',
        ),
        pytest.param(
            {'groups': [{'name': 'g', 'versions': [{'version': 'v2'}, {'version': 'v1'}]}]},
            [('g', 'v2', True), ('g', 'v1', False)],
            id='preferred-is-unknown',
        ),
        pytest.param({'groups': [{'name': 'g', 'versions': None}]}, [], id='no-versions'),
    ],
)
def test_groups_are_read_with_their_versions(found, expected):
    assert discovery.parse_groups(found) == [discovery.GroupVersion(*item) for item in expected]


def test_listed_resources_are_read_with_all_their_features():
    group_version = discovery.GroupVersion('kopf.dev', 'v1', preferred=False)

    resources = discovery.parse_resource_list(
        {
            'resources': [
                {
                    'name': 'kopfexamples',
                    'kind': 'KopfExample',
                    'singularName': 'kopfexample',
                    'namespaced': True,
                    'shortNames': ['kex'],
                    'categories': ['all'],
                    'verbs': ['list', 'watch'],
                },
                {'name': 'kopfexamples/status', 'kind': 'KopfExample', 'verbs': ['patch']},
                {
                    'name': 'kopfs',
                    'kind': 'Kopf',
                    'singularName': '',
                    'namespaced': False,
                    'verbs': ['get'],
                },
                {'name': 'orphans/status', 'kind': 'Orphan'},
                {'name': '', 'kind': 'Nameless'},
            ]
        },
        group_version,
    )

    assert describe(resources) == describe(
        [
            references.Resource(
                'kopf.dev',
                'v1',
                'kopfexamples',
                kind='KopfExample',
                singular='kopfexample',
                namespaced=True,
                shortcuts=frozenset({'kex'}),
                categories=frozenset({'all'}),
                verbs=frozenset({'list', 'watch'}),
                subresources=frozenset({'status'}),
                preferred=False,
            ),
            references.Resource(
                'kopf.dev',
                'v1',
                'kopfs',
                kind='Kopf',
                singular='kopf',
                namespaced=False,
                verbs=frozenset({'get'}),
                preferred=False,
            ),
        ]
    )


@pytest.mark.parametrize(
    'found, expected',
    [
        pytest.param(
            {'major': '1', 'minor': '35', 'gitVersion': 'v1.35.4'}, (1, 35, 'v1.35.4'), id='plain'
        ),
        pytest.param(
            {'major': '1', 'minor': '28+', 'gitVersion': 'v1.28.9-eks'},
            (1, 28, 'v1.28.9-eks'),
            id='vendor',
        ),
        pytest.param(
            {'major': '', 'minor': '', 'gitVersion': 'v0.0.0-master'},
            (0, 0, 'v0.0.0-master'),
            id='no-numbers',
        ),
        pytest.param({}, (0, 0, ''), id='nothing'),
    ],
)
def test_versions_are_read_as_numbers(found, expected):
    assert discovery.parse_version(found) == discovery.ServerVersion(*expected)


async def test_all_resources_are_found_in_two_requests(sandbox, context):
    await sandbox.apply(CRD)

    resources = {
        repr(resource): resource for resource in await discovery.read_resources(context=context)
    }

    assert {PODS, DEPLOYMENTS} <= set(resources.values())
    found, beta = resources['kopfexamples.v1.kopf.dev'], resources['kopfexamples.v1beta1.kopf.dev']
    assert (found.preferred, beta.preferred) == (True, False)
    assert found.categories == {'all', 'mine'}
    assert (found.subresources, beta.subresources) == ({'status'}, frozenset())
    assert {'list', 'watch', 'patch'} <= found.verbs
    assert [asked.path for asked in sandbox.requests] == ['/api', '/apis']


async def test_both_ways_find_the_same(sandbox, context, monkeypatch):
    await sandbox.apply(CRD)
    aggregated = await discovery.read_resources(context=context)
    monkeypatch.setattr(discovery, 'AGGREGATED', PLAIN)

    listed = await discovery.read_resources(context=context)

    assert describe(listed) == describe(aggregated)
    assert '/apis/kopf.dev/v1beta1' in {asked.path for asked in sandbox.requests}


@pytest.mark.parametrize(
    'groups, paths',
    [
        pytest.param([''], ['/api'], id='core'),
        pytest.param(['apps', 'batch'], ['/apis'], id='others'),
        pytest.param(['', 'apps'], ['/api', '/apis'], id='both'),
        pytest.param([], [], id='none'),
    ],
)
async def test_only_the_needed_groups_are_found(sandbox, context, groups, paths):
    resources = await discovery.read_resources(context=context, groups=groups)

    assert {resource.group for resource in resources} == set(groups)
    assert [asked.path for asked in sandbox.requests] == paths


async def test_only_the_needed_groups_are_asked(sandbox, context, no_aggregation):
    resources = await discovery.read_resources(context=context, groups=['apps'])

    assert {resource.group for resource in resources} == {'apps'}
    assert [asked.path for asked in sandbox.requests] == ['/apis', '/apis/apps/v1']


@pytest.mark.parametrize('code', [403, 404, 503])
async def test_unavailable_groups_are_left_out_at_once_with_one_line(
    sandbox, context, no_aggregation, caplog, code
):
    sandbox.faults.inject(path='/apis/apps/*', code=code)

    catalog = await discovery.read_catalog(context=context, groups=['', 'apps', 'batch'])

    assert {resource.group for resource in catalog.resources} == {'', 'batch'}
    assert catalog.doubtful == [discovery.GroupVersion('apps', 'v1')]
    assert len(sandbox.requests.select(path='/apis/apps/v1')) == 1
    (line,) = caplog.messages
    assert line.startswith(f'Resources of apps/v1 are not available, and are left out: HTTP {code}')


async def test_failing_groups_are_left_out_after_the_retries(
    sandbox, context, operator_settings, virtual_time, no_aggregation
):
    operator_settings.networking.error_backoffs = [10, 20]
    fault = sandbox.faults.inject(path='/apis/apps/*', code=500)

    resources = await discovery.read_resources(context=context, groups=['apps', 'batch'])

    assert {resource.group for resource in resources} == {'batch'}
    assert fault.hits == 3


async def test_unneeded_groups_do_not_matter(sandbox, context, no_aggregation, caplog):
    fault = sandbox.faults.inject(path='/apis/apps/*', code=503)

    await discovery.read_resources(context=context, groups=['batch'])

    assert fault.hits == 0
    assert not caplog.messages


@pytest.mark.parametrize('code', [404, 406])
async def test_groups_are_asked_for_if_aggregation_is_refused(sandbox, context, code):
    sandbox.faults.inject(path='/apis', code=code, times=1)

    resources = await discovery.read_resources(context=context, groups=['apps'])

    assert DEPLOYMENTS in resources
    assert [asked.path for asked in sandbox.requests] == ['/apis', '/apis', '/apis/apps/v1']


async def test_servers_can_have_no_core_api(sandbox, context, caplog):
    sandbox.faults.inject(path='/api', code=404)

    catalog = await discovery.read_catalog(context=context, groups=['', 'apps'])

    assert {resource.group for resource in catalog.resources} == {'apps'}
    assert catalog.absent == ['/api']
    (line,) = caplog.messages
    assert line.startswith('The server has no API at /api: HTTP 404')


async def test_forbidden_discovery_escalates_at_once(sandbox, context):
    sandbox.faults.inject(path='/api', code=403)

    with pytest.raises(errors.APIForbiddenError):
        await discovery.read_resources(context=context)

    assert len(sandbox.requests) == 1


async def test_temporary_failures_are_waited_for(sandbox, context, virtual_time):
    sandbox.faults.inject(path='/api', code=503, times=2)
    sandbox.faults.inject(path='/apis', cut=True, times=2)

    assert {PODS, DEPLOYMENTS} <= set(await discovery.read_resources(context=context))


async def test_outdated_groups_stay_but_are_doubtful(scripted, make_context, caplog):
    stale = {
        'version': 'v1',
        'freshness': 'Stale',
        'resources': [
            {'resource': 'pods', 'responseKind': {'kind': 'PodMetrics'}, 'scope': 'Namespaced'}
        ],
    }
    items = [
        {'metadata': {'name': name}, 'versions': [stale]} for name in ('metrics.k8s.io', 'other')
    ]
    async with scripted(answer({'kind': 'APIGroupDiscoveryList', 'items': items})) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        catalog = await discovery.read_catalog(context=context, groups=['metrics.k8s.io'])

    assert catalog.resources == [references.Resource('metrics.k8s.io', 'v1', 'pods')]
    assert catalog.doubtful == [discovery.GroupVersion('metrics.k8s.io', 'v1')]
    assert caplog.messages == [
        'Resources of metrics.k8s.io/v1 can be outdated: their server is not available.'
    ]


async def test_meaningless_groups_are_left_out(scripted, make_context):
    groups = {
        'kind': 'APIGroupList',
        'groups': [{'name': name, 'versions': [{'version': 'v1'}]} for name in 'ab'],
    }
    resources = {'resources': [{'name': 'kopfs', 'kind': 'Kopf'}]}
    async with scripted(answer(groups), answer('hello'), answer(resources)) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        catalog = await discovery.read_catalog(context=context, groups=['a', 'b'])

    assert catalog.resources == [references.Resource('b', 'v1', 'kopfs')]
    assert catalog.doubtful == [discovery.GroupVersion('a', 'v1')]


async def test_meaningless_discovery_is_an_error(scripted, make_context):
    async with scripted(answer(['hello'])) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        with pytest.raises(
            errors.APIGarbledError, match='GET /api: the answer is JSON, but not of the API'
        ):
            await discovery.read_resources(context=context)


@pytest.mark.parametrize(
    'body', [{}, {'kind': 'Status'}, {'kind': 'APIResourceList', 'resources': []}]
)
async def test_answers_of_another_kind_are_not_taken_for_the_absence_of_resources(
    scripted, make_context, body
):
    async with scripted(answer(body)) as server:
        context = make_context(only=credentials.ConnectionInfo(server=server.url))
        with pytest.raises(errors.APIGarbledError, match='GET /api: the answer is of another kind'):
            await discovery.read_resources(context=context)


async def test_version_of_the_server_is_found(context):
    version = await discovery.read_version(context=context)

    assert (version.major, version.minor) >= (1, 35)


@pytest.mark.parametrize('path', ['/api', '/apis', '/apis/apps/v1'])
async def test_discovery_can_be_cancelled_at_any_request(sandbox, context, no_aggregation, path):
    fault = sandbox.faults.inject(path=path, stall=True)
    task = asyncio.create_task(discovery.read_resources(context=context, groups=['', 'apps']))
    await fault.wait_until_hit()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
