"""
Definitions of custom resources made from classes.
"""

import dataclasses
import time
from typing import Annotated, Literal

import kubernetes
import pydantic
import pytest

import kopf
import kopf.cli
from kopf._cogs.codecs import conversions
from kopf._kits.commands import crd_installing
from kopf._kits.schemas import compatibility
from kopf.testing import Sandbox


@dataclasses.dataclass
class Backup:
    """
    How the database is
    saved.
    """

    schedule: Annotated[str, kopf.Schema(pattern=r'^\S+( \S+){4}$')]
    keep_days: Annotated[int, kopf.Schema(ge=1, le=100)] = 7
    """How long backups are kept."""


@dataclasses.dataclass
@kopf.rule('self.replicas <= 1 || self.engine == "postgres"', 'Only postgres has replicas.')
@kopf.rule('self.replicas < 100', reason='FieldValueInvalid')
class DatabaseSpec:
    engine: Annotated[Literal['postgres', 'mysql'], kopf.Immutable]
    replicas: Annotated[int, kopf.Schema(ge=0), kopf.Column('Replicas')] = 1
    backup: Backup | None = None


@dataclasses.dataclass
class DatabaseStatus:
    phase: Annotated[str | None, kopf.Column('Phase', priority=1)] = None
    replicas: int | None = None


def declare(**options):
    @kopf.crd('typed.kopf.dev/v1', plural='databases', **options)
    class Database:
        """A database."""

        spec: DatabaseSpec
        status: DatabaseStatus | None = None

    return Database


def get_version(cls):
    return cls.__kopf_manifest__()['spec']['versions'][0]


def get_schema(cls):
    return get_version(cls)['schema']['openAPIV3Schema']


@pytest.mark.guarantee('TYP-005')
def test_definition_has_the_names_and_the_scope():
    crd = declare(
        singular='db', short_names=['dbs'], categories=['all'], scope='Cluster'
    ).__kopf_manifest__()

    assert crd['metadata']['name'] == 'databases.typed.kopf.dev'
    assert crd['spec']['scope'] == 'Cluster'
    assert crd['spec']['names'] == {
        'kind': 'Database',
        'listKind': 'DatabaseList',
        'plural': 'databases',
        'singular': 'db',
        'shortNames': ['dbs'],
        'categories': ['all'],
    }


@pytest.mark.guarantee('TYP-005')
def test_definition_has_columns_and_subresources():
    version = get_version(
        declare(selectable=['spec.engine'], scale=('spec.replicas', 'status.replicas'))
    )

    assert version['additionalPrinterColumns'] == [
        {'type': 'integer', 'name': 'Replicas', 'priority': 0, 'jsonPath': '.spec.replicas'},
        {'type': 'string', 'name': 'Phase', 'priority': 1, 'jsonPath': '.status.phase'},
        {'name': 'Age', 'type': 'date', 'jsonPath': '.metadata.creationTimestamp'},
    ]
    assert version['selectableFields'] == [{'jsonPath': '.spec.engine'}]
    assert version['subresources'] == {
        'status': {},
        'scale': {'specReplicasPath': '.spec.replicas', 'statusReplicasPath': '.status.replicas'},
    }


@pytest.mark.guarantee('TYP-005')
def test_definition_has_descriptions_rules_and_names_of_the_api():
    schema = get_schema(declare())
    spec = schema['properties']['spec']

    assert schema['description'] == 'A database.'
    assert schema['required'] == ['spec']
    assert spec['properties']['backup']['description'] == 'How the database is saved.'
    assert spec['properties']['backup']['properties']['keepDays'] == {
        'type': 'integer',
        'minimum': 1,
        'maximum': 100,
        'default': 7,
        'description': 'How long backups are kept.',
    }
    assert [rule['rule'] for rule in spec['x-kubernetes-validations']] == [
        'self.replicas <= 1 || self.engine == "postgres"',
        'self.replicas < 100',
    ]
    assert spec['properties']['engine']['x-kubernetes-validations'][0]['rule'] == 'self == oldSelf'


@pytest.mark.guarantee('TYP-006')
def test_definition_is_established_by_the_sandbox():
    crd = declare(selectable=['spec.engine'], short_names=['db']).__kopf_manifest__()

    with Sandbox(apply=[crd]) as sandbox:
        stored = sandbox.get('customresourcedefinitions', 'databases.typed.kopf.dev')

    conditions = {item['type']: item['status'] for item in stored['status']['conditions']}
    assert conditions['Established'] == 'True'
    assert 'NonStructuralSchema' not in conditions


@pytest.mark.guarantee('TYP-005')
def test_definition_is_the_same_each_time():
    assert declare().__kopf_manifest__() == declare().__kopf_manifest__()


@pytest.mark.guarantee('TYP-005')
def test_names_stay_as_they_are_if_requested():
    spec = get_schema(_declare_unnamed())['properties']['spec']

    assert list(spec['properties']) == ['min_size']


def _declare_unnamed():
    @dataclasses.dataclass
    class Spec:
        min_size: int = 1

    @kopf.crd('typed.kopf.dev/v1', naming='none')
    class Sized:
        spec: Spec

    return Sized


@pytest.mark.guarantee('TYP-005')
def test_models_of_pydantic_are_described_with_their_rules():
    @kopf.rule('self.size > 0')
    class Spec(pydantic.BaseModel):
        """What is wanted."""

        size: Annotated[int, kopf.Column('Size')] = 1

    @kopf.crd('typed.kopf.dev/v1')
    class Modelled(pydantic.BaseModel):
        spec: Spec

    version = get_version(Modelled)
    spec = version['schema']['openAPIV3Schema']['properties']['spec']
    assert spec['description'] == 'What is wanted.'
    assert spec['x-kubernetes-validations'] == [{'rule': 'self.size > 0'}]
    assert version['additionalPrinterColumns'][0]['jsonPath'] == '.spec.size'
    loaded = conversions.get_object_codec(Modelled).load({'spec': {'size': 3}})
    assert loaded == Modelled(spec=Spec(size=3))


@pytest.mark.guarantee('TYP-007')
def test_classes_of_one_kind_are_its_versions():
    @kopf.crd('versions.kopf.dev/v1alpha1', kind='Database', storage=False, deprecated='Use v1.')
    class DatabaseV1Alpha1:
        spec: Backup

    @kopf.crd('versions.kopf.dev/v1')
    class Database:
        spec: DatabaseSpec

    versions = Database.__kopf_manifest__()['spec']['versions']
    shown = [(item['name'], item['served'], item['storage']) for item in versions]
    assert shown == [('v1', True, True), ('v1alpha1', True, False)]
    assert versions[1]['deprecationWarning'] == 'Use v1.'
    assert DatabaseV1Alpha1.__kopf_manifest__() == Database.__kopf_manifest__()


@pytest.mark.guarantee('TYP-007')
def test_two_stored_versions_are_refused():
    @kopf.crd('conflicts.kopf.dev/v1', kind='Thing')
    class ThingV1:
        spec: Backup

    @kopf.crd('conflicts.kopf.dev/v2', kind='Thing')
    class ThingV2:
        spec: Backup

    with pytest.raises(TypeError, match=r'exactly one version is stored.*storage=False'):
        ThingV2.__kopf_manifest__()
    assert ThingV1 is not None


@pytest.mark.guarantee('TYP-004')
@pytest.mark.parametrize(
    'options, message',
    [
        pytest.param({'scope': 'Global'}, "scope= is 'Namespaced' or 'Cluster'", id='scope'),
        pytest.param({'naming': 'kebab'}, 'naming= is', id='naming'),
        pytest.param({'short_names': 'db'}, 'short_names= is a list', id='text'),
        pytest.param({'scale': ['spec.replicas']}, 'scale= has the paths', id='scale'),
        pytest.param({'selectable': ['spec.absent']}, "no field 'spec.absent'", id='selectable'),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(TypeError, match=message):
        declare(**options)


@pytest.mark.guarantee('TYP-004')
@pytest.mark.parametrize('api_version', ['v1', 'example.com', 'example/v1', 'example.com/1', ''])
def test_group_and_version_are_needed(api_version):
    with pytest.raises(TypeError, match=r'as in example\.com/v1'):
        kopf.crd(api_version)


@pytest.mark.guarantee('TYP-004')
def test_class_without_fields_is_refused():
    with pytest.raises(TypeError, match='Empty has no fields'):

        @kopf.crd('typed.kopf.dev/v1')
        class Empty:
            pass


@kopf.crd('later.kopf.dev/v1')
class Early:
    spec: 'Below'


@dataclasses.dataclass
class Below:
    size: int = 1


@pytest.mark.guarantee('TYP-005')
def test_classes_can_be_defined_below():
    assert list(get_schema(Early)['properties']['spec']['properties']) == ['size']


@pytest.mark.guarantee('TYP-015')
def test_sandboxes_take_classes():
    with Sandbox(apply=[declare()]) as sandbox:
        sandbox.apply(_declare_unnamed())
        names = {body['metadata']['name'] for body in sandbox.list('customresourcedefinitions')}

    assert names == {'databases.typed.kopf.dev', 'sizeds.typed.kopf.dev'}


@dataclasses.dataclass
class Lasting:
    """What cannot be changed, of any size."""

    text: Annotated[str, kopf.Immutable]
    items: Annotated[list[str], kopf.Immutable] = dataclasses.field(default_factory=list)
    backup: Annotated[Backup | None, kopf.Immutable] = None


@pytest.mark.controlplane
@pytest.mark.guarantee('TYP-006')
def test_rules_are_accepted_and_checked_by_real_servers(controlplane):
    @kopf.crd('rules.kopf.dev/v1')
    class Ruled:
        spec: DatabaseSpec
        status: Lasting | None = None

    client = kubernetes.config.new_client_from_config(str(controlplane.kubeconfig))
    api = kubernetes.client.CustomObjectsApi(client)
    definitions = ('apiextensions.k8s.io', 'v1', 'customresourcedefinitions')
    kinds = ('rules.kopf.dev', 'v1', 'default', 'ruleds')
    body = {'apiVersion': 'rules.kopf.dev/v1', 'kind': 'Ruled', 'metadata': {'name': 'ruled'}}
    api.create_cluster_custom_object(*definitions, Ruled.__kopf_manifest__())
    try:
        deadline = time.monotonic() + 60
        while not is_served(api, kinds):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        api.create_namespaced_custom_object(*kinds, {**body, 'spec': {'engine': 'mysql'}})
        with pytest.raises(kubernetes.client.ApiException, match=r'Only postgres has replicas\.'):
            api.patch_namespaced_custom_object(*kinds, 'ruled', {'spec': {'replicas': 2}})
        with pytest.raises(kubernetes.client.ApiException, match=r'It cannot be changed\.'):
            api.patch_namespaced_custom_object(*kinds, 'ruled', {'spec': {'engine': 'postgres'}})
    finally:
        api.delete_cluster_custom_object(*definitions, 'ruleds.rules.kopf.dev')


@pytest.mark.controlplane
@pytest.mark.guarantee('TYP-014', 'TYP-013')
def test_definitions_are_installed_in_real_clusters_and_stay_compatible(controlplane, monkeypatch):
    @kopf.crd('installed.kopf.dev/v1', short_names=['inst'], selectable=['spec.engine'])
    class Installed:
        spec: DatabaseSpec
        status: DatabaseStatus | None = None

    monkeypatch.setenv('KUBECONFIG', str(controlplane.kubeconfig))
    crd, name = Installed.__kopf_manifest__(), 'installeds.installed.kopf.dev'
    crd_installing.install([crd], kopf.cli.CLIControls())
    try:
        crd_installing.install([crd], kopf.cli.CLIControls())
        stored = crd_installing.read([name, 'absent.kopf.dev'], kopf.cli.CLIControls())
    finally:
        client = kubernetes.config.new_client_from_config(str(controlplane.kubeconfig))
        api = kubernetes.client.CustomObjectsApi(client)
        api.delete_cluster_custom_object(
            'apiextensions.k8s.io', 'v1', 'customresourcedefinitions', name
        )

    assert set(stored) == {name}
    assert stored[name]['metadata']['generation'] == 1
    assert compatibility.compare_crds(stored[name], crd) == []
    assert compatibility.compare_crds(crd, stored[name]) == []


def is_served(api, kinds):
    try:
        api.list_namespaced_custom_object(*kinds)
    except kubernetes.client.ApiException as error:
        assert error.status == 404, error
        return False
    return True
