"""
Documents over HTTP: in which forms the discovery and the version are told, and bookmarks as tables.
"""

import pytest
import yaml
from sandbox_http import GROUP

TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io'
AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'
OFFERED = 'application/json, application/yaml, application/vnd.kubernetes.protobuf'
UNSHAPED = f'only the following media types are accepted: {OFFERED}'


@pytest.mark.parametrize(
    'accept, kind',
    [
        pytest.param(AGGREGATED, 'APIGroupDiscoveryList', id='wanted'),
        pytest.param(
            f'application/json,{AGGREGATED};q=0.5', 'APIGroupDiscoveryList', id='not-preferred'
        ),
        pytest.param(
            f'{AGGREGATED.replace("v2", "v9")},application/json', 'APIGroupList', id='other-version'
        ),
        pytest.param('application/json', 'APIGroupList', id='unwanted'),
    ],
)
async def test_discovery_is_aggregated_for_all_who_understand_it(api, things, accept, kind):
    reply = await api.get('/apis', headers={'Accept': accept})

    assert reply.body['kind'] == kind
    assert reply.headers['Content-Type'] == (
        AGGREGATED if kind == 'APIGroupDiscoveryList' else 'application/json'
    )


async def test_discovery_is_aggregated_in_yaml_too(api):
    reply = await api.get('/api', headers={'Accept': AGGREGATED.replace('json', 'yaml')})

    assert yaml.safe_load(reply.body)['kind'] == 'APIGroupDiscoveryList'
    assert reply.headers['Content-Type'] == AGGREGATED.replace('json', 'yaml')


async def test_yaml_has_no_aliases(api):
    reply = await api.get('/apis/apps', headers={'Accept': 'application/yaml'})

    assert b'&' not in reply.body and b'*' not in reply.body
    assert yaml.safe_load(reply.body)['preferredVersion'] == {
        'groupVersion': 'apps/v1',
        'version': 'v1',
    }


@pytest.mark.parametrize(
    'path, accept, message',
    [
        pytest.param(
            '/api',
            'text/html',
            f'406: Not Acceptable\n\nAvailable representations: {OFFERED}',
            id='built-in',
        ),
        pytest.param(
            '/api',
            'application/*',
            f'406: Not Acceptable\n\nAvailable representations: {OFFERED}',
            id='any',
        ),
        pytest.param('/api', TABLE, UNSHAPED, id='shape-of-built-in'),
        pytest.param('/apis', 'text/html', UNSHAPED, id='groups'),
        pytest.param('/apis/apps', 'text/html', UNSHAPED, id='group'),
        pytest.param(f'/apis/{GROUP}/v1', 'text/html', UNSHAPED, id='custom'),
        pytest.param(
            '/version',
            'application/yaml',
            '406: Not Acceptable\n\nAvailable representations: application/json',
            id='version',
        ),
    ],
)
async def test_other_forms_are_refused(api, things, path, accept, message):
    reply = await api.get(path, headers={'Accept': accept})
    body = yaml.safe_load(reply.body) if accept == 'application/yaml' else reply.body

    assert (reply.code, body['message']) == (406, message)


async def test_version_has_one_form_whatever_the_shape(api):
    reply = await api.get('/version', headers={'Accept': TABLE})

    assert reply.body['minor'] == '35'


async def test_bookmarks_are_rows_of_empty_objects_in_tables(api, configmaps):
    secrets = configmaps.replace('configmaps', 'secrets')
    initial = {
        'sendInitialEvents': 'true',
        'resourceVersionMatch': 'NotOlderThan',
        'allowWatchBookmarks': 'true',
    }

    async with api.watch(secrets, headers={'Accept': TABLE}, **initial) as stream:
        type, table = await stream.next()

    [row] = table['rows']
    assert (type, row['cells']) == ('BOOKMARK', ['', '', 0, '<unknown>'])
    assert row['object']['metadata']['annotations'] == {'k8s.io/initial-events-end': 'true'}
