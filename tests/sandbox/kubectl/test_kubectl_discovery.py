"""
kubectl api-resources, api-versions, version, cluster-info, get --raw: what is served, and by whom.
"""

import json

import kubectls
import pytest
from kubectls import GROUP

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param(
            '',
            [
                ['NAME', 'SHORTNAMES', 'APIVERSION', 'NAMESPACED', 'KIND'],
                ['configmaps', 'cm', 'v1', 'true', 'ConfigMap'],
                ['secrets', 'v1', 'true', 'Secret'],
                ['namespaces', 'ns', 'v1', 'false', 'Namespace'],
                ['pods', 'po', 'v1', 'true', 'Pod'],
                ['deployments', 'deploy', 'apps/v1', 'true', 'Deployment'],
                ['jobs', 'batch/v1', 'true', 'Job'],
                [
                    'customresourcedefinitions',
                    'crd,crds',
                    'apiextensions.k8s.io/v1',
                    'false',
                    'CustomResourceDefinition',
                ],
                ['events', 'ev', 'events.k8s.io/v1', 'true', 'Event'],
                ['widgets', 'wd', f'{GROUP}/v1', 'true', 'Widget'],
            ],
            id='plain',
        ),
        pytest.param(
            '-o wide',
            [
                ['NAME', 'SHORTNAMES', 'APIVERSION', 'NAMESPACED', 'KIND', 'VERBS', 'CATEGORIES'],
                [
                    'pods',
                    'po',
                    'v1',
                    'true',
                    'Pod',
                    'create,delete,deletecollection,get,list,patch,update,watch',
                    'all',
                ],
                ['bindings', 'v1', 'true', 'Binding', 'create'],
                [
                    'widgets',
                    'wd',
                    f'{GROUP}/v1',
                    'true',
                    'Widget',
                    'delete,deletecollection,get,list,patch,create,update,watch',
                    'gadgets',
                ],
            ],
            id='wide',
        ),
        pytest.param(
            '-o name',
            [['pods'], ['deployments.apps'], [f'widgets.{GROUP}'], ['namespaces']],
            id='name',
        ),
    ],
)
def test_resources_are_listed(kubectl, options, expected):
    run = kubectl(f'api-resources {options}')

    assert (run.code, run.err) == (0, '')
    assert [row for row in expected if row not in run.rows] == []


@pytest.mark.parametrize(
    'options, has, lacks',
    [
        pytest.param(
            '--namespaced=true',
            {'pods', f'widgets.{GROUP}'},
            {'namespaces', 'nodes'},
            id='namespaced',
        ),
        pytest.param(
            '--namespaced=false',
            {'namespaces', 'nodes'},
            {'pods', f'widgets.{GROUP}'},
            id='not-namespaced',
        ),
        pytest.param(
            '--verbs=list,deletecollection',
            {'pods', f'widgets.{GROUP}'},
            {'namespaces', 'bindings'},
            id='verbs',
        ),
    ],
)
def test_resources_are_selected(kubectl, options, has, lacks):
    names = set(kubectl(f'api-resources -o name {options}').out.splitlines())

    assert has <= names
    assert not lacks & names


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param('--categories=gadgets', f'widgets.{GROUP}\n', id='category'),
        pytest.param(f'--api-group={GROUP}', f'widgets.{GROUP}\n', id='group'),
        pytest.param(
            '--api-group=batch --sort-by=kind', 'cronjobs.batch\njobs.batch\n', id='built-in-group'
        ),
    ],
)
def test_resources_are_selected_by_their_groups(kubectl, options, expected):
    assert kubectl(f'api-resources -o name {options}').out == expected


def test_versions_of_the_api_are_listed(kubectl):
    versions = kubectl('api-versions').out.splitlines()

    assert versions == sorted(versions)
    assert {
        'v1',
        'apps/v1',
        'batch/v1',
        'rbac.authorization.k8s.io/v1',
        'coordination.k8s.io/v1',
        'policy/v1',
        'networking.k8s.io/v1',
        'events.k8s.io/v1',
        'storage.k8s.io/v1',
        'apiextensions.k8s.io/v1',
        'admissionregistration.k8s.io/v1',
        f'{GROUP}/v1',
    } <= set(versions)


def test_version_of_the_server_is_told(kubectl):
    version = json.loads(kubectl('version -o json').out)['serverVersion']

    assert (version['major'], version['minor']) == ('1', '35')
    assert kubectl('version').out.splitlines()[-1] == f'Server Version: {version["gitVersion"]}'


def test_cluster_is_located(kubectl, sandbox):
    assert kubectl('cluster-info').out.startswith(
        f'Kubernetes control plane is running at {sandbox.url}\n'
    )


@pytest.mark.parametrize(
    'path, expected',
    [
        pytest.param('/healthz', 'ok', id='health'),
        pytest.param('/livez', 'ok', id='liveness'),
        pytest.param('/readyz', 'ok', id='readiness'),
    ],
)
def test_health_is_told(kubectl, path, expected):
    assert kubectl(f'get --raw {path}').out == expected


def test_raw_documents_are_read(kubectl, sandbox, namespace, make):
    version = kubectl('get --raw /version').out
    group = json.loads(kubectl(f'get --raw /apis/{GROUP}').out)
    made = make(kubectls.build_widget())
    listed = json.loads(kubectl(f'get --raw /apis/{GROUP}/v1/namespaces/{namespace}/widgets').out)

    assert version.startswith('{\n  "major": "1",\n  "minor": "35",\n')
    assert (group['kind'], group['preferredVersion']['groupVersion']) == ('APIGroup', f'{GROUP}/v1')
    assert (listed['kind'], listed['items']) == ('WidgetList', [made])


def test_contents_of_the_cluster_are_dumped(kubectl, make, namespace):
    make(kubectls.build_deployment())

    run = kubectl(
        f'cluster-info dump --namespaces={namespace} -o jsonpath={{.items[*].metadata.name}}'
    )

    assert (run.code, run.out, run.err) == (0, 'one', '')


def test_unknown_server_is_told(kubectl):
    run = kubectl('get pods --server=https://127.0.0.1:1')

    assert run.code == 1
    assert run.err.endswith(
        'The connection to the server 127.0.0.1:1 was refused - '
        'did you specify the right host or port?\n'
    )


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param('top pods', 'error: Metrics API not available', id='metrics'),
        pytest.param(
            'taint node none a=b:NoSchedule',
            'Error from server (NotFound): nodes "none" not found',
            id='nodes',
        ),
    ],
)
def test_what_needs_more_than_the_api_is_not_there(kubectl, command, problem):
    run = kubectl(command)

    assert (run.code, run.err) == (1, f'{problem}\n')
