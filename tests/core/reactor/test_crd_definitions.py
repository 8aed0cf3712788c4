"""
The definitions of custom resources: what they promise, and if the discovery agrees with it.
"""

import dataclasses

import pytest

from kopf._cogs.structs import references
from kopf._core.reactor import definitions

CRD = {
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'plural': 'kopfexamples', 'kind': 'NotAccepted'},
        'versions': [
            {'name': 'v1', 'served': True, 'subresources': {'status': {}}},
            {'name': 'v1beta1', 'served': True},
            {'name': 'v1alpha1', 'served': False},
        ],
    },
    'status': {
        'acceptedNames': {
            'plural': 'kopfexamples',
            'kind': 'KopfExample',
            'singular': 'kopfexample',
            'shortNames': ['kex'],
            'categories': ['all'],
        },
        'conditions': [
            {'type': 'NamesAccepted', 'status': 'True'},
            {'type': 'Established', 'status': 'True'},
        ],
    },
}
DEFINITION = definitions.Definition(
    'kopf.dev',
    'kopfexamples',
    kind='KopfExample',
    singular='kopfexample',
    shortcuts=frozenset({'kex'}),
    categories=frozenset({'all'}),
    namespaced=True,
    is_established=True,
    versions={'v1': frozenset({'status'}), 'v1beta1': frozenset()},
)
KEX = references.Resource(
    'kopf.dev',
    'v1',
    'kopfexamples',
    kind='KopfExample',
    singular='kopfexample',
    shortcuts=frozenset({'kex'}),
    categories=frozenset({'all'}),
    namespaced=True,
    subresources=frozenset({'status'}),
)
BETA = dataclasses.replace(KEX, version='v1beta1', subresources=frozenset(), preferred=False)
OTHER = references.Resource('kopf.dev', 'v1', 'others', kind='Other')


def test_definitions_are_read():
    assert definitions.parse_definition(CRD) == DEFINITION


@pytest.mark.parametrize(
    'metadata, conditions, expected',
    [
        pytest.param({}, None, (False, False), id='new'),
        pytest.param(
            {}, [{'type': 'Established', 'status': 'False'}], (False, False), id='not-established'
        ),
        pytest.param(
            {}, [{'type': 'Established', 'status': 'True'}], (True, False), id='established'
        ),
        pytest.param(
            {'deletionTimestamp': 'now'},
            [{'type': 'Established', 'status': 'True'}],
            (True, True),
            id='deleted',
        ),
        pytest.param(
            {}, [{'type': 'Terminating', 'status': 'True'}], (False, True), id='terminating'
        ),
    ],
)
def test_conditions_are_read(metadata, conditions, expected):
    definition = definitions.parse_definition(
        {**CRD, 'metadata': {**CRD['metadata'], **metadata}, 'status': {'conditions': conditions}}
    )

    assert (definition.is_established, definition.is_terminating) == expected


@pytest.mark.parametrize(
    'body',
    [
        {'metadata': {'name': 'kopfexamples.kopf.dev'}},
        {'metadata': {'name': 'kopfexamples.kopf.dev'}, 'spec': None, 'status': None},
        {
            'metadata': {'name': 'kopfexamples.kopf.dev'},
            'spec': {'versions': None},
            'status': {'conditions': None},
        },
    ],
)
def test_meager_definitions_are_read(body):
    definition = definitions.parse_definition(body)

    assert definition.names == ('kopf.dev', 'kopfexamples')
    assert not definition.is_established


@pytest.mark.parametrize(
    'resources, expected',
    [
        pytest.param([KEX, BETA, OTHER], True, id='same'),
        pytest.param([OTHER], False, id='absent'),
        pytest.param([KEX], False, id='no-version'),
        pytest.param(
            [KEX, BETA, dataclasses.replace(BETA, version='v2')], False, id='extra-version'
        ),
        pytest.param([KEX, dataclasses.replace(BETA, kind='Other')], False, id='kind'),
        pytest.param([KEX, dataclasses.replace(BETA, singular='other')], False, id='singular'),
        pytest.param(
            [KEX, dataclasses.replace(BETA, shortcuts=frozenset())], False, id='shortcuts'
        ),
        pytest.param(
            [KEX, dataclasses.replace(BETA, categories=frozenset())], False, id='categories'
        ),
        pytest.param([KEX, dataclasses.replace(BETA, namespaced=False)], False, id='scope'),
        pytest.param(
            [KEX, dataclasses.replace(BETA, subresources=frozenset({'status'}))],
            False,
            id='subresources',
        ),
    ],
)
def test_differences_are_noticed(resources, expected):
    assert definitions.is_reflected(DEFINITION, definitions.group_resources(resources)) is expected


@pytest.mark.parametrize('changes', [{'is_established': False}, {'is_terminating': True}])
def test_nothing_is_expected_of_definitions_that_come_or_go(changes):
    definition = dataclasses.replace(DEFINITION, **changes)

    assert definitions.is_reflected(definition, {})


def test_unserved_versions_are_expected_to_vanish():
    definition = dataclasses.replace(DEFINITION, versions={})

    assert definitions.is_reflected(definition, {})
    assert not definitions.is_reflected(definition, definitions.group_resources([KEX]))


def test_resources_stay_patchable_while_they_are_being_deleted():
    terminating = dataclasses.replace(DEFINITION, is_terminating=True)
    resources = [
        dataclasses.replace(resource, verbs=frozenset({'list', 'watch'}))
        for resource in (KEX, OTHER)
    ]

    one, other = definitions.keep_patchable(resources, [terminating])

    assert (one.verbs, other.verbs) == ({'list', 'watch', 'patch'}, {'list', 'watch'})
    assert definitions.keep_patchable(resources, [DEFINITION])[0].verbs == {'list', 'watch'}
