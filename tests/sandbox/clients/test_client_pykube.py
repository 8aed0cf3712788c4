"""
The lightweight synchronous client: ``pykube-ng``.
"""

import pykube
import pytest


class Widget(pykube.objects.NamespacedAPIObject, pykube.mixins.ScalableMixin):
    version = 'clients.kopf.dev/v1'
    endpoint = 'widgets'
    kind = 'Widget'
    scalable_attr = 'replicas'


@pytest.fixture
def client(sandbox):
    client = pykube.HTTPClient(pykube.KubeConfig.from_file(str(sandbox.kubeconfig)))
    yield client
    client.session.close()


def build(cls, name, **fields):
    metadata = {'name': name, 'namespace': 'default', **fields.pop('metadata', {})}
    return {'apiVersion': cls.version, 'kind': cls.kind, 'metadata': metadata, **fields}


def names_of(query):
    return [item.name for item in query]


def build_deployment(name):
    return build(
        pykube.Deployment,
        name,
        spec={
            'selector': {'matchLabels': {'app': name}},
            'template': {
                'metadata': {'labels': {'app': name}},
                'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
            },
        },
    )


def test_objects_are_created_and_read(client):
    pykube.ConfigMap(client, build(pykube.ConfigMap, 'cm', data={'key': 'value'})).create()
    pykube.Secret(
        client, build(pykube.Secret, 'secret', stringData={'password': 'qwerty'})
    ).create()
    pykube.Namespace(
        client, {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'space'}}
    ).create()
    pykube.Pod(
        client,
        build(pykube.Pod, 'pod', spec={'containers': [{'name': 'main', 'image': 'image:1'}]}),
    ).create()
    widget = Widget(client, build(Widget, 'w', spec={'size': 1}))
    widget.create()

    assert pykube.ConfigMap.objects(client).get_by_name('cm').obj['data'] == {'key': 'value'}
    assert pykube.Secret.objects(client).get(name='secret').obj['data'] == {'password': 'cXdlcnR5'}
    assert 'space' in names_of(pykube.Namespace.objects(client))
    assert not pykube.Pod.objects(client).get_by_name('pod').ready
    assert widget.exists() and widget.metadata['generation'] == 1
    assert pykube.ConfigMap.objects(client).get_or_none(name='absent') is None


def test_resources_are_discovered(client):
    factory = pykube.object_factory(client, 'clients.kopf.dev/v1', 'Widget')

    factory(client, build(Widget, 'w')).create()

    assert names_of(factory.objects(client).filter(namespace='default')) == ['w']
    assert client.version == ('1', '35')


def test_lists_are_selected_by_labels_and_fields(client):
    for name, color in (('a', 'red'), ('b', 'blue'), ('c', 'red')):
        Widget(client, build(Widget, name, metadata={'labels': {'color': color}})).create()

    assert names_of(Widget.objects(client).filter(selector={'color': 'red'})) == ['a', 'c']
    assert names_of(Widget.objects(client).filter(selector='color notin (red)')) == ['b']
    assert names_of(Widget.objects(client).filter(field_selector={'metadata.name': 'c'})) == ['c']
    assert names_of(Widget.objects(client, namespace=pykube.all)) == ['a', 'b', 'c']


def test_lists_come_in_pages(client):
    for number in range(5):
        pykube.ConfigMap(client, build(pykube.ConfigMap, f'cm-{number}')).create()

    pages, token = [], ''
    while not pages or token:
        response = client.get(
            url=f'configmaps?limit=2&continue={token}', namespace='default'
        ).json()
        pages.append([item['metadata']['name'] for item in response['items']])
        token = response['metadata'].get('continue', '')

    assert pages == [['cm-0', 'cm-1'], ['cm-2', 'cm-3'], ['cm-4', 'kube-root-ca.crt']]


def test_lists_are_shown_as_tables(client):
    Widget(client, build(Widget, 'w')).create()

    table = Widget.objects(client).as_table()

    assert [column['name'] for column in table.columns] == ['Name', 'Age']
    assert [row['cells'][0] for row in table.rows] == ['w']


def test_objects_are_patched_and_updated(client):
    widget = Widget(client, build(Widget, 'w', spec={'size': 1, 'replicas': 1}))
    widget.create()

    widget.patch({'spec': {'size': 2}})
    widget.obj['spec']['replicas'] = 3
    widget.labels['x'] = 'y'
    widget.update()
    widget.patch({'status': {'ready': True}}, subresource='status')

    widget.reload()
    assert widget.obj['spec'] == {'size': 2, 'replicas': 3}
    assert widget.labels == {'x': 'y'}
    assert widget.obj['status'] == {'ready': True}
    assert widget.metadata['generation'] == 3


def test_deployments_are_scaled(client):
    deployment = pykube.Deployment(client, build_deployment('web'))
    deployment.create()

    deployment.replicas = 3
    deployment.update()

    assert pykube.Deployment.objects(client).get_by_name('web').replicas == 3


@pytest.mark.parametrize(
    'action, code, message',
    [
        pytest.param(
            lambda widget: Widget(widget.api, build(Widget, 'w')).create(),
            409,
            'widgets.clients.kopf.dev "w" already exists',
            id='existing',
        ),
        pytest.param(
            lambda widget: widget.patch({'spec': {'size': -1}}),
            422,
            'Widget.clients.kopf.dev "w" is invalid: spec.size: Invalid value: -1: '
            'spec.size in body should be greater than or equal to 0',
            id='invalid',
        ),
        pytest.param(
            lambda widget: widget.patch(
                {'metadata': {'resourceVersion': '1'}, 'spec': {'size': 2}}
            ),
            409,
            'Operation cannot be fulfilled on widgets.clients.kopf.dev "w": the object has been modified; '
            'please apply your changes to the latest version and try again',
            id='outdated',
        ),
    ],
)
def test_refusals_are_told_with_their_messages(client, action, code, message):
    widget = Widget(client, build(Widget, 'w', spec={'size': 1}))
    widget.create()

    with pytest.raises(pykube.exceptions.HTTPError) as error:
        action(widget)

    assert error.value.code == code
    assert str(error.value) == message


def test_absent_objects_do_not_exist(client):
    widget = Widget(client, build(Widget, 'w'))

    assert not widget.exists()
    with pytest.raises(pykube.exceptions.ObjectDoesNotExist):
        Widget.objects(client).get_by_name('w')


def test_deleted_objects_wait_for_their_finalizers(client):
    widget = Widget(client, build(Widget, 'w', metadata={'finalizers': ['example.com/x']}))
    widget.create()

    widget.delete(propagation_policy='Background')
    widget.reload()
    marked = dict(widget.metadata)
    widget.patch({'metadata': {'finalizers': []}})

    assert marked['deletionTimestamp'] and marked['finalizers'] == ['example.com/x']
    assert not widget.exists()


def test_watch_replays_the_changes_in_order(client):
    version = Widget.objects(client).response['metadata']['resourceVersion']
    widget = Widget(client, build(Widget, 'w'))
    widget.create()
    widget.patch({'spec': {'size': 1}})
    widget.delete()

    query = Widget.objects(client).filter(namespace='default')
    query.resource_version = version
    stream = query.watch(since=version, params={'timeoutSeconds': 1})
    events = [(event.type, event.object.name) for event in stream]

    assert events == [('ADDED', 'w'), ('MODIFIED', 'w'), ('DELETED', 'w')]


def test_watch_from_a_compacted_version_is_expired(sandbox, client):
    version = Widget.objects(client).response['metadata']['resourceVersion']
    Widget(client, build(Widget, 'w')).create()
    sandbox.compact()

    [event] = (
        Widget.objects(client)
        .filter(namespace='default')
        .watch(since=version, params={'timeoutSeconds': 5})
    )

    assert event.type == 'ERROR'
    assert (event.object.obj['code'], event.object.obj['reason']) == (410, 'Expired')
