"""Definitions of custom resources are defaulted, get their statuses, and become resources."""

import copy

import pytest

from kopf._sandbox.apiextensions import crds
from kopf._sandbox.meta import kinds

NOW, LATER = '2020-01-01T00:00:00Z', '2020-01-01T00:01:00Z'
SCHEMA = {
    'type': 'object',
    'properties': {'spec': {'type': 'object', 'properties': {'a': {'type': 'string'}}}},
}


def make_version(name='v1', **more):
    return {
        'name': name,
        'served': True,
        'storage': name == 'v1',
        'schema': {'openAPIV3Schema': SCHEMA},
        **more,
    }


def make_crd(plural='things', kind='Thing', versions=(), **names):
    body = {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.example.com', 'creationTimestamp': NOW},
        'spec': {
            'group': 'example.com',
            'scope': 'Namespaced',
            'names': {'plural': plural, 'kind': kind, **names},
            'versions': list(versions) or [make_version()],
        },
    }
    crds.default_crd(body)
    return body


def establish(body, *others, now=NOW):
    return {**body, 'status': crds.build_status(body, others, now)}


def make_condition(kind, status, reason, message, since=NOW):
    return {
        'type': kind,
        'status': status,
        'lastTransitionTime': since,
        'reason': reason,
        'message': message,
    }


ACCEPTED = make_condition('NamesAccepted', 'True', 'NoConflicts', 'no conflicts found')
ESTABLISHED = make_condition(
    'Established', 'True', 'InitialNamesAccepted', 'the initial names have been accepted'
)
NOT_ESTABLISHED = make_condition(
    'Established', 'False', 'NotAccepted', 'not all names are accepted'
)


def test_names_conversion_and_flags_of_versions_are_defaulted():
    body = {
        'metadata': {'name': 'things.example.com'},
        'spec': {
            'group': 'example.com',
            'scope': 'Cluster',
            'names': {'plural': 'things', 'kind': 'Thing'},
            'versions': [{'name': 'v1', 'storage': True}],
            'preserveUnknownFields': False,
        },
    }

    crds.default_crd(body)

    assert body['spec'] == {
        'group': 'example.com',
        'scope': 'Cluster',
        'names': {
            'plural': 'things',
            'kind': 'Thing',
            'singular': 'thing',
            'listKind': 'ThingList',
        },
        'versions': [{'name': 'v1', 'storage': True, 'served': False}],
        'conversion': {'strategy': 'None'},
    }


def test_given_names_and_conversion_are_kept():
    client = {'service': {'name': 'a', 'namespace': 'b'}}
    body = make_crd(singular='one', listKind='Many')
    body['spec']['conversion'] = {'strategy': 'Webhook', 'webhook': {'clientConfig': client}}

    crds.default_crd(body)

    assert body['spec']['names'] == {
        'plural': 'things',
        'kind': 'Thing',
        'singular': 'one',
        'listKind': 'Many',
    }
    assert client['service']['port'] == 443


@pytest.mark.parametrize(
    'body', [{}, {'spec': None}, {'spec': 'x'}, {'spec': {'names': 'x', 'versions': ['x']}}]
)
def test_wrong_types_are_survived(body):
    crds.default_crd(body)

    assert crds.validate_crd(body)


def test_new_definition_has_no_conditions_yet():
    assert crds.build_initial_status(make_crd()) == {
        'conditions': None,
        'acceptedNames': {'plural': '', 'kind': ''},
        'storedVersions': ['v1'],
    }


def test_definition_is_established_if_its_names_are_free():
    body = make_crd(shortNames=['th'], categories=['all'])
    other = establish(make_crd('others', 'Other'))

    status = crds.build_status(body, [other], NOW)

    assert status == {
        'conditions': [ACCEPTED, ESTABLISHED],
        'storedVersions': ['v1'],
        'acceptedNames': {
            'plural': 'things',
            'singular': 'thing',
            'shortNames': ['th'],
            'kind': 'Thing',
            'listKind': 'ThingList',
            'categories': ['all'],
        },
    }


@pytest.mark.parametrize(
    'names, reason, message, accepted',
    [
        pytest.param(
            {
                'kind': 'Thing',
                'singular': 'things',
                'shortNames': ['th', 'ok', 'things'],
                'listKind': 'ThingList',
            },
            'ListKindConflict',
            '"ThingList" is already in use',
            {'plural': 'others', 'kind': ''},
            id='all',
        ),
        pytest.param(
            {'kind': 'Thing', 'listKind': 'Others'},
            'KindConflict',
            '"Thing" is already in use',
            {'plural': 'others', 'kind': '', 'listKind': 'Others'},
            id='kind',
        ),
        pytest.param(
            {'kind': 'Other', 'listKind': 'Thing'},
            'ListKindConflict',
            '"Thing" is already in use',
            {'plural': 'others', 'singular': 'other', 'kind': 'Other'},
            id='list-kind',
        ),
        pytest.param(
            {'kind': 'Other', 'shortNames': ['th', 'things', 'x']},
            'ShortNamesConflict',
            '["th" is already in use, "things" is already in use]',
            {'plural': 'others', 'singular': 'other', 'kind': 'Other', 'listKind': 'OtherList'},
            id='short-names',
        ),
        pytest.param(
            {'kind': 'Other', 'singular': 'th'},
            'SingularConflict',
            '"th" is already in use',
            {'plural': 'others', 'kind': 'Other', 'listKind': 'OtherList'},
            id='singular',
        ),
    ],
)
def test_definition_is_not_established_if_its_names_are_taken(names, reason, message, accepted):
    taken = establish(make_crd(shortNames=['th']))

    status = crds.build_status(make_crd('others', **names), [taken], NOW)

    assert status['conditions'] == [
        make_condition('NamesAccepted', 'False', reason, message),
        NOT_ESTABLISHED,
    ]
    assert status['acceptedNames'] == accepted


def test_names_of_other_groups_are_no_conflict():
    taken = establish(make_crd())
    taken['spec']['group'] = 'example.org'

    assert crds.build_status(make_crd(), [taken], NOW)['conditions'] == [ACCEPTED, ESTABLISHED]


def test_definition_is_established_when_its_names_get_free():
    body = establish(make_crd('others', 'Thing'), establish(make_crd()))

    status = crds.build_status(body, [], LATER)

    assert [(each['status'], each['lastTransitionTime']) for each in status['conditions']] == [
        ('True', LATER)
    ] * 2


def test_names_of_an_established_definition_change_if_they_are_free():
    body = establish(make_crd(shortNames=['th']))
    body['spec']['names'] = {
        'plural': 'things',
        'kind': 'Thing',
        'singular': 'x',
        'listKind': 'ThingList',
    }

    status = crds.build_status(body, [], LATER)

    assert status['acceptedNames'] == body['spec']['names']
    assert status['conditions'] == [ACCEPTED, ESTABLISHED]


def test_conflicting_change_leaves_the_definition_established_with_its_old_names():
    body = establish(make_crd(shortNames=['th']))
    body['spec']['names']['shortNames'] = ['x']

    status = crds.build_status(
        body, [establish(make_crd('others', 'Other', shortNames=['x']))], LATER
    )

    conflict = make_condition(
        'NamesAccepted', 'False', 'ShortNamesConflict', '"x" is already in use', LATER
    )
    assert status['acceptedNames']['shortNames'] == ['th']
    assert status['conditions'] == [conflict, ESTABLISHED]


def test_new_storage_version_is_added_to_the_stored_ones():
    body = establish(make_crd(versions=[make_version('v1'), make_version('v2')]))
    body['spec']['versions'][0]['storage'], body['spec']['versions'][1]['storage'] = False, True

    assert crds.build_status(body, [], LATER)['storedVersions'] == ['v1', 'v2']


def test_served_versions_become_resources():
    columns = [{'name': 'A', 'type': 'string', 'jsonPath': '.spec.a', 'priority': 1}]
    scale = {'specReplicasPath': '.spec.n', 'statusReplicasPath': '.status.n'}
    body = establish(
        make_crd(
            shortNames=['th'],
            categories=['all'],
            versions=[
                make_version(
                    'v2',
                    subresources={'status': {}, 'scale': scale},
                    additionalPrinterColumns=columns,
                    selectableFields=[{'jsonPath': '.spec.a'}],
                ),
                make_version('v1', deprecated=True),
                make_version('v0', deprecated=True, deprecationWarning='use v2'),
                make_version('v3', served=False),
            ],
        )
    )

    newest, older, oldest = crds.build_resources(body)

    assert (newest.version, older.version, oldest.version) == ('v2', 'v1', 'v0')
    assert {each.storage_version for each in (newest, older, oldest)} == {'v1'}
    assert {each.home for each in (newest, older, oldest)} == {kinds.Home('example.com', 'things')}
    assert (newest.plural, newest.singular, newest.kind, newest.list_kind) == (
        'things',
        'thing',
        'Thing',
        'ThingList',
    )
    assert (newest.short_names, newest.categories, newest.namespaced, newest.custom) == (
        ('th',),
        ('all',),
        True,
        True,
    )
    assert newest.verbs == (
        'delete',
        'deletecollection',
        'get',
        'list',
        'patch',
        'create',
        'update',
        'watch',
    )
    assert newest.columns == (kinds.Column('A', 'string', '.spec.a', priority=1),)
    assert newest.scale == kinds.Scale('.spec.n', '.status.n')
    assert newest.selectable == ('.spec.a',)
    assert (newest.has_status, older.has_status, older.scale) == (True, False, None)
    assert (newest.warning, older.warning, oldest.warning) == (
        '',
        'example.com/v1 Thing is deprecated; use example.com/v2 Thing',
        'use v2',
    )
    assert newest.schema.properties['spec'].properties['a'].type == 'string'
    assert newest.schema is newest.schema


def test_only_later_versions_are_advised_instead_of_deprecated_ones():
    versions = [
        make_version('v1'),
        make_version('v2', deprecated=True),
        make_version('v2beta1', served=False),
        make_version('v1beta1', deprecated=True),
        make_version('v1alpha1', deprecated=True),
    ]

    _, newest, *older = crds.build_resources(establish(make_crd(versions=versions)))

    assert newest.warning == 'example.com/v2 Thing is deprecated'
    assert {each.warning.partition('; ')[2] for each in older} == {'use example.com/v1 Thing'}


def test_conversion_changes_only_the_version():
    resource = crds.build_resources(make_crd(versions=[make_version('v1'), make_version('v2')]))[1]
    obj = {'apiVersion': 'example.com/v1', 'kind': 'Thing', 'spec': {'a': '1'}}

    assert crds.convert(obj, resource) == {**obj, 'apiVersion': 'example.com/v2'}


def test_unknown_formats_are_warned_about_once():
    def make(*names):
        fields = {name: {'type': 'string', 'format': name} for name in names}
        schema = {
            'type': 'object',
            'properties': {**fields, 'n': {'type': 'integer', 'format': 'int32'}},
        }
        return make_crd(versions=[make_version(schema={'openAPIV3Schema': schema})])

    assert crds.list_warnings(make('date', 'foo')) == ['unrecognized format "foo"']
    assert crds.list_warnings(make('foo', 'bar'), make('foo')) == ['unrecognized format "bar"']


def change_scope(spec):
    spec['scope'] = 'Cluster'


def change_kind(spec):
    spec['names']['kind'] = 'Other'


def change_plural(spec):
    spec['names']['plural'] = 'others'


def change_group(spec):
    spec['group'] = 'example.org'


def rename_version(spec):
    spec['versions'][0]['name'] = 'v2'


def change_nothing_important(spec):
    spec['names'].update(shortNames=['x'], listKind='Things')
    spec['versions'][0]['served'] = False


MISSING = (
    'missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until '
    'a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions'
)


@pytest.mark.parametrize(
    'change, expected',
    [
        pytest.param(
            change_scope, ['spec.scope: Invalid value: "Cluster": field is immutable'], id='scope'
        ),
        pytest.param(
            change_kind, ['spec.names.kind: Invalid value: "Other": field is immutable'], id='kind'
        ),
        pytest.param(
            change_plural,
            ['spec.names.plural: Invalid value: "others": field is immutable'],
            id='plural',
        ),
        pytest.param(
            change_group,
            ['spec.group: Invalid value: "example.org": field is immutable'],
            id='group',
        ),
        pytest.param(
            rename_version,
            [f'status.storedVersions[0]: Invalid value: "v1": {MISSING}'],
            id='stored-version',
        ),
        pytest.param(change_nothing_important, [], id='fine'),
    ],
)
def test_changes_of_what_is_stored_are_refused(change, expected):
    old = establish(make_crd())
    new = copy.deepcopy(old)
    change(new['spec'])

    assert [str(problem) for problem in crds.validate_crd(new, old)] == expected


def test_scope_may_change_until_the_definition_is_established():
    old = establish(make_crd('others', 'Thing'), establish(make_crd()))
    new = copy.deepcopy(old)
    change_scope(new['spec'])

    assert crds.validate_crd(new, old) == []
