"""
Relatives: what handlers read of their owned and related objects.
"""

import pytest
from stored_objects import (
    CHILDREN,
    CLUSTER_PARENTS,
    NODES,
    PARENTS,
    SECRETS,
    build_body,
)

import kopf
from kopf._cogs.structs import objects
from kopf._core.engines.reconciling import relations, relatives, stores
from kopf._core.intents import mappings

OWNS = mappings.parse_owns(['services', 'absent.example.com', mappings.Owns('nodes', by='label')])
WATCHES = mappings.parse_watches(
    {
        'secrets': mappings.ref('spec.secret', namespace='spec.ns'),
        'nodes': [mappings.ref('spec.node'), mappings.selector('spec.nodes')],
        'unserved': mappings.ref('spec.x'),
    }
)
RESOURCES = {'services': CHILDREN, 'secrets': SECRETS, 'nodes': NODES}
PARENT = build_body(
    'parent', 'p', '1', spec={'secret': ['s1', 's2', '?'], 'node': 'n1', 'nodes': {'big': 'yes'}}
)


@pytest.fixture
def known():
    known = relations.Relations(stores.Stores())
    links = [
        *((own.resource, own) for own in OWNS),
        *((watch.resource, watch.link) for watch in WATCHES),
    ]
    known.declare(
        relations.Relation(primary, RESOURCES[name], link)
        for primary in (PARENTS, CLUSTER_PARENTS)
        for name, link in links
        if name in RESOURCES
    )
    return known


def feed(known, resource, *all_bodies):
    for body in all_bodies:
        known.find_parents(resource, known.get_store(resource).put('ADDED', body))


@pytest.fixture
def owned(known):
    return relatives.Owned(known, objects.Body(PARENT), PARENTS, OWNS)


@pytest.fixture
def related(known):
    feed(known, PARENTS, PARENT)
    return relatives.Related(known, objects.Body(PARENT), PARENTS, WATCHES)


def name_all(found):
    assert all(isinstance(body, objects.Body) for body in found)
    return [body.metadata.name for body in found]


def test_declared_resources_are_named_as_they_are_read(known):
    @kopf.crd('relatives.kopf.dev/v1', plural='kids')
    class Kid:
        spec: dict[str, str]

    owns = mappings.parse_owns([Kid, 'services'])
    feed(known, CHILDREN, build_body('a', 'a', '1', owner='p'))

    owned = relatives.Owned(known, objects.Body(PARENT), PARENTS, owns)

    assert {resource: name_all(owned[resource]) for resource in owned} == {
        'kids.v1.relatives.kopf.dev': [],
        'services': ['a'],
    }


def test_children_are_read_by_resource_and_by_name(known, owned):
    feed(
        known,
        CHILDREN,
        build_body('b', 'b', '1', owner='p'),
        build_body('a', 'a', '1', owner='p'),
        build_body('c', 'c', '1', owner='another'),
        build_body('d', 'd', '1', owner='p', namespace='far'),
    )

    assert name_all(owned['services']) == ['d', 'a', 'b']
    assert owned.get('services', 'a').metadata.uid == 'a'
    assert owned.get('services', 'c') is owned.get('services', 'e') is None
    assert owned.get('services', 'd') is None
    assert owned.get('services', 'd', namespace='far').metadata.uid == 'd'


def test_children_are_owned_only_in_the_declared_sense(known, owned):
    plain = build_body('plain', 'a', '1')
    plain['metadata']['ownerReferences'] = [{'uid': 'p'}]
    labels = {mappings.OWNER_LABEL: 'p'}
    feed(known, CHILDREN, plain, build_body('labelled', 'b', '1', labels=labels))
    feed(known, NODES, build_body('labelled', 'c', '1', namespace=None, labels=labels))

    assert owned['services'] == []
    assert owned.get('services', 'plain') is None
    assert name_all(owned['nodes']) == ['labelled']
    assert owned.get('nodes', 'labelled').metadata.uid == 'c'


@pytest.mark.parametrize(
    'notation', ['services', 'v1/services', 'services.v1', 'Service', ('', 'v1', 'services')]
)
def test_resources_are_in_any_notation(known, owned, notation):
    feed(known, CHILDREN, build_body('a', 'a', '1', owner='p'))

    assert name_all(owned[notation]) == ['a']


def test_declared_but_unserved_resources_have_no_objects(owned, related):
    assert owned['absent.example.com'] == []
    assert owned.get('absent.example.com', 'x') is None
    assert related['unserved'] == []


def test_resources_that_appear_later_are_read(known, owned):
    declared = [*known]
    known.declare([])
    before = owned['services']

    known.declare(declared)
    feed(known, CHILDREN, build_body('a', 'a', '1', owner='p'))

    assert before == []
    assert name_all(owned['services']) == ['a']


@pytest.mark.parametrize('notation', [5, None, '', ['services'], {}])
def test_wrong_notations_are_refused(owned, notation):
    with pytest.raises(TypeError, match='Resources are selected by names'):
        owned[notation]


@pytest.mark.guarantee('RCL-011')
def test_undeclared_resources_are_refused(owned, related):
    with pytest.raises(KeyError) as error_of_owned:
        owned['secrets']
    with pytest.raises(KeyError) as error_of_related:
        related.get('services', 'x')

    assert str(error_of_owned.value) == (
        'The objects of secrets are not known here. '
        'Declared are: services, absent.example.com, nodes. '
        'Add the missing resource to owns= of the handler.'
    )
    assert 'to watches= of the handler' in str(error_of_related.value)


def test_declared_resources_are_listed(owned, related):
    assert list(owned) == ['services', 'absent.example.com', 'nodes']
    assert list(related) == ['secrets', 'nodes', 'unserved']
    assert (len(owned), len(related)) == (3, 3)
    assert ('services' in owned, 'secrets' in owned, 5 in owned) == (True, False, False)
    assert repr(related) == '<Related of secrets, nodes, unserved>'


def test_resources_of_other_handlers_of_the_same_parents_are_not_readable(known):
    owned = relatives.Owned(known, objects.Body(PARENT), PARENTS, OWNS[1:2])

    with pytest.raises(KeyError):
        owned['services']


def test_related_objects_are_read_by_all_links(known, related):
    feed(known, SECRETS, *(build_body(name, name, '1') for name in ('s2', 's1', 's3')))
    feed(
        known,
        NODES,
        build_body('n1', 'n1', '1', namespace=None, labels={'big': 'yes'}),
        build_body('n2', 'n2', '1', namespace=None, labels={'big': 'yes'}),
        build_body('n3', 'n3', '1', namespace=None),
    )

    assert name_all(related['secrets']) == ['s1', 's2']
    assert name_all(related['nodes']) == ['n1', 'n2']


def test_related_objects_are_read_by_name_even_if_they_are_not_referred_to(known, related):
    feed(known, SECRETS, build_body('s3', 's3', '1'), build_body('s4', 's4', '1', namespace='far'))
    feed(known, NODES, build_body('n1', 'n1', '1', namespace=None))

    assert related.get('secrets', 's3').metadata.uid == 's3'
    assert related.get('secrets', 's4') is None
    assert related.get('secrets', 's4', 'far').metadata.uid == 's4'
    assert related.get('nodes', 'n1').metadata.uid == 'n1'
    assert related.get('nodes', 'n1', 'far').metadata.uid == 'n1'  # nodes are in no namespace


def test_cluster_scoped_parents_have_relatives_too(known):
    fleet = build_body(
        'fleet', 'f', '1', namespace=None, spec={'secret': 's1', 'ns': 'far', 'node': 'n1'}
    )
    feed(known, CLUSTER_PARENTS, fleet)
    feed(known, SECRETS, build_body('s1', 's1', '1', namespace='far'), build_body('s1', 's', '1'))
    feed(known, CHILDREN, build_body('a', 'a', '1', namespace='far', owner='f'))
    body = objects.Body(fleet)
    owned = relatives.Owned(known, body, CLUSTER_PARENTS, OWNS)
    related = relatives.Related(known, body, CLUSTER_PARENTS, WATCHES)

    assert name_all(owned['services']) == ['a']
    assert owned.get('services', 'a', 'far').metadata.uid == 'a'
    assert [body.metadata.uid for body in related['secrets']] == ['s1']


@pytest.mark.guarantee('RCL-004')
def test_relatives_are_always_current(known, owned):
    feed(known, CHILDREN, build_body('a', 'a', '1', owner='p'))
    known.get_store(CHILDREN).serve(None)
    read = owned.get('services', 'a')

    change = known.get_store(CHILDREN).note_written(build_body('a', 'a', '5', owner='p', spec={}))
    known.find_parents(CHILDREN, change)

    assert read.metadata['resourceVersion'] == '1'
    assert owned.get('services', 'a').metadata['resourceVersion'] == '5'
    assert [body.metadata['resourceVersion'] for body in owned['services']] == ['5']


def test_values_of_secrets_are_read_but_not_shown(known, related):
    secret = build_body('s1', 's1', '1', kind='Secret', apiVersion='v1', data={'k': 'cGFzcw=='})
    feed(known, SECRETS, secret)

    read = related.get('secrets', 's1')

    assert read['data'] == {'k': 'cGFzcw=='}
    assert 'cGFz' not in repr(read)
