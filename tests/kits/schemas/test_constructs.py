"""
What types accept: the same values in Python, on the sandbox, and on a real API server.
"""

import functools
import itertools
import json
import time

import hypothesis
import kubernetes
import pytest
from constructs import CONSTRUCTS, MODELS, REQUIRED, Model, make_class
from hypothesis import strategies as st

import kopf
from kopf._cogs.codecs import conversions
from kopf.testing import ApiError, Sandbox

GROUP = 'constructs.kopf.dev'
NUMBERS = itertools.count()


@functools.cache
def make_resource():
    @kopf.crd(f'{GROUP}/v1', kind='Construct')
    class Construct:
        spec: make_class(CONSTRUCTS)

    return Construct


@functools.cache
def make_modelled():
    @kopf.crd(f'{GROUP}/v1', kind='Modelled')
    class Modelled:
        spec: Model

    return Modelled


def load(cls, raw):
    return conversions.get_object_codec(cls).load(raw)


class SandboxServer:
    def __init__(self, sandbox):
        self.sandbox = sandbox

    def create(self, body):
        try:
            return self.sandbox.create(body)
        except ApiError as error:
            assert error.code == 422, error
            return None


class ClusterServer:
    """A real API server."""

    DEFINITIONS = ('apiextensions.k8s.io', 'v1', 'customresourcedefinitions')

    def __init__(self, kubeconfig):
        client = kubernetes.config.new_client_from_config(str(kubeconfig))
        self.api = kubernetes.client.CustomObjectsApi(client)

    def define(self, crd):
        self.api.create_cluster_custom_object(*self.DEFINITIONS, crd)
        deadline = time.monotonic() + 60
        while not self._is_served(crd):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _is_served(self, crd):
        key = (crd['spec']['group'], crd['spec']['versions'][0]['name'])
        try:
            self.api.list_cluster_custom_object(*key, crd['spec']['names']['plural'])
        except kubernetes.client.ApiException as error:
            assert error.status == 404, error
            return False
        return True

    def undefine(self, crd):
        self.api.delete_cluster_custom_object(*self.DEFINITIONS, crd['metadata']['name'])

    def create(self, body):
        group, _, version = body['apiVersion'].partition('/')
        plural = f'{body["kind"].lower()}s'
        try:
            return self.api.create_namespaced_custom_object(group, version, 'default', plural, body)
        except kubernetes.client.ApiException as error:
            assert error.status == 422, error
            return None


@pytest.fixture(scope='module')
def sandbox_server():
    with Sandbox(apply=[make_resource(), make_modelled()]) as sandbox:
        yield SandboxServer(sandbox)


@pytest.fixture(scope='module')
def cluster_server(controlplane):
    server = ClusterServer(controlplane.kubeconfig)
    definitions = [make_resource().__kopf_manifest__(), make_modelled().__kopf_manifest__()]
    for definition in definitions:
        server.define(definition)
    yield server
    for definition in definitions:
        server.undefine(definition)


@pytest.fixture(
    params=[
        pytest.param('sandbox_server', id='sandbox'),
        pytest.param('cluster_server', id='controlplane', marks=pytest.mark.controlplane),
    ]
)
def server(request):
    return request.getfixturevalue(request.param)


def build(kind, spec):
    return {
        'apiVersion': f'{GROUP}/v1',
        'kind': kind,
        'metadata': {'name': f'x-{next(NUMBERS)}', 'namespace': 'default'},
        'spec': spec,
    }


def list_cases(kind):
    return [
        pytest.param(construct, value, id=f'{construct.id}-{json.dumps(value)}')
        for construct in CONSTRUCTS
        for value in getattr(construct, kind)
    ]


@pytest.mark.guarantee('TYP-001', 'TYP-002')
@pytest.mark.parametrize('construct, value', list_cases('good'))
def test_fitting_values_are_accepted_everywhere_and_survive_the_round_trip(
    server, construct, value
):
    body = build('Construct', {construct.id: {'value': value}})

    stored = server.create(body)
    loaded = load(make_resource(), stored)

    assert loaded == load(make_resource(), body)
    dumped = conversions.dump(loaded)['spec'][construct.id]
    assert load(make_resource(), {'spec': {construct.id: dumped}}) == loaded


@pytest.mark.guarantee('TYP-001')
@pytest.mark.parametrize('construct, value', list_cases('bad'))
def test_unfitting_values_are_refused_everywhere(server, construct, value):
    body = build('Construct', {construct.id: {'value': value}})

    assert server.create(body) is None
    with pytest.raises(conversions.MisfitError, match=rf'^spec\.{construct.id}\.value'):
        load(make_resource(), body)


@pytest.mark.guarantee('TYP-001')
@pytest.mark.parametrize('construct, value', list_cases('only_server'))
def test_some_values_are_refused_only_by_servers(server, construct, value):
    body = build('Construct', {construct.id: {'value': value}})

    assert server.create(body) is None
    load(make_resource(), body)


@pytest.mark.guarantee('TYP-002')
@pytest.mark.parametrize(
    'construct',
    [pytest.param(construct, id=construct.id) for construct in CONSTRUCTS],
)
def test_defaults_are_the_same_in_python_and_on_servers(server, construct):
    body = build('Construct', {construct.id: {}})
    stored = server.create(body)

    if construct.default is REQUIRED:
        assert stored is None
        with pytest.raises(conversions.MisfitError, match='value'):
            load(make_resource(), body)
    else:
        expected = getattr(load(make_resource(), body).spec, construct.id).value
        assert getattr(load(make_resource(), stored).spec, construct.id).value == expected
        assert expected == construct.default


@pytest.mark.guarantee('TYP-001', 'TYP-002')
@pytest.mark.parametrize('construct', [pytest.param(item, id=item.id) for item in MODELS])
def test_models_of_pydantic_accept_the_same_as_servers(server, construct):
    for value in construct.good:
        stored = server.create(build('Modelled', value))
        assert load(make_modelled(), stored) == load(make_modelled(), {'spec': value})
    for value in construct.bad:
        assert server.create(build('Modelled', value)) is None
        with pytest.raises(conversions.MisfitError, match=r'^spec'):
            load(make_modelled(), {'spec': value})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e6, 1e6)
    | st.sampled_from(['', 'a', 'b', 'red', 'disk', '1', '50%', '1h', '2020-01-31', 'aGVsbG8=']),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(['xAxis', 'yAxis', 'firstName', 'age', 'kind', 'size', 'url', 'port']),
            values,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FORMATTED = ('bytes', 'decimal', 'dateTime', 'date', 'uuid')
AGREED = [item for item in CONSTRUCTS if not item.only_server and item.id not in FORMATTED]


@pytest.mark.guarantee('TYP-001')
@hypothesis.given(construct=st.sampled_from(AGREED), value=VALUES)
@hypothesis.settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_servers_and_python_agree_on_arbitrary_values(sandbox_server, construct, value):
    """Where there is a format, servers accept lists, too, or do not check the texts."""
    body = build('Construct', {construct.id: {'value': value}})

    stored = sandbox_server.create(body)

    if stored is not None:
        load(make_resource(), stored)
    else:
        with pytest.raises(conversions.MisfitError):
            load(make_resource(), body)
