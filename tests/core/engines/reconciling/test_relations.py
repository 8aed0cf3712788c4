"""
Relations: the parents that a change of an object concerns, for each kind of links.
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

from kopf._core.engines.reconciling import entries, relations, stores
from kopf._core.intents import mappings

REF = mappings.ref('spec.secret')
SELECTOR = mappings.selector('spec.selector')


class Cluster:
    """The stores and the relations of one operator."""

    def __init__(self, *declared):
        self.relations = relations.Relations(stores.Stores())
        self.declare(*declared)

    def declare(self, *declared):
        self.relations.declare(relations.Relation(*each) for each in declared)

    def put(self, type, resource, *args, **kwargs):
        change = self.relations.get_store(resource).put(type, build_body(*args, **kwargs))
        return self.relations.find_parents(resource, change)

    def list_targets(self, uid, number=0):
        relation = [*self.relations][number]
        return [entry.name for entry in self.relations.list_targets(relation, uid)]


def find_by_label(labels, **_):
    return labels.get('for', '').split('-') if 'for' in labels else None


OWNED = {(PARENTS, 'p1'): {'owned'}}
WATCHED = {(PARENTS, 'p1'): {'watched'}}


@pytest.mark.guarantee('RCL-002')
def test_children_concern_their_old_and_new_parents():
    cluster = Cluster((PARENTS, CHILDREN, mappings.Owns('services')))
    for uid in ('p1', 'p2'):
        cluster.put('ADDED', PARENTS, uid, uid, '1')

    added = cluster.put('ADDED', CHILDREN, 'x', 'c', '1', owner='p1')
    moved = cluster.put('MODIFIED', CHILDREN, 'x', 'c', '2', owner='p2')
    lost = cluster.put('MODIFIED', CHILDREN, 'x', 'c', '3')
    gone = cluster.put('DELETED', CHILDREN, 'x', 'c', '4', owner='p2')

    assert added == OWNED
    assert moved == {**OWNED, (PARENTS, 'p2'): {'owned'}}
    assert lost == {(PARENTS, 'p2'): {'owned'}}
    assert gone == {}


@pytest.mark.guarantee('RCL-002')
def test_deleted_children_concern_their_parents():
    cluster = Cluster((PARENTS, CHILDREN, mappings.Owns('services')))
    cluster.put('ADDED', PARENTS, 'p1', 'p1', '1')
    cluster.put('ADDED', CHILDREN, 'x', 'c', '1', owner='p1')

    found = cluster.put('DELETED', CHILDREN, 'x', 'c', None)

    assert found == OWNED


def test_parents_that_do_not_exist_are_not_found():
    cluster = Cluster(
        (PARENTS, CHILDREN, mappings.Owns('services')), (PARENTS, SECRETS, find_by_label)
    )

    assert cluster.put('ADDED', CHILDREN, 'x', 'c', '1', owner='p1') == {}
    assert cluster.put('ADDED', SECRETS, 's', 's', '1', labels={'for': 'p1'}) == {}


def test_children_of_all_kinds_of_owners_are_found_as_declared():
    cluster = Cluster(
        (PARENTS, CHILDREN, mappings.Owns('services', controller=False)),
        (PARENTS, NODES, mappings.Owns('nodes', by='label')),
    )
    cluster.put('ADDED', PARENTS, 'p1', 'p1', '1')
    labels = {mappings.OWNER_LABEL: 'p1'}

    child = cluster.put('ADDED', CHILDREN, 'x', 'c', '1', owner='p1')
    node = cluster.put('ADDED', NODES, 'n', 'n', '1', namespace=None, labels=labels)
    not_child = cluster.put('ADDED', CHILDREN, 'y', 'd', '1', labels=labels)

    assert (child, node, not_child) == (OWNED, OWNED, {})
    assert cluster.list_targets('p1', 0) == ['x']
    assert cluster.list_targets('p1', 1) == ['n']


@pytest.mark.guarantee('RCL-002')
def test_named_objects_concern_the_parents_that_name_them_now():
    cluster = Cluster((PARENTS, SECRETS, REF))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'secret': 's'})

    first = cluster.put('ADDED', SECRETS, 's', 'uid', '1')
    elsewhere = cluster.put('ADDED', SECRETS, 's', 'uid2', '1', namespace='other')
    cluster.put('MODIFIED', PARENTS, 'p', 'p1', '2', spec={'secret': 't'})
    former = cluster.put('MODIFIED', SECRETS, 's', 'uid', '2')
    listed = cluster.list_targets('p1')
    current = cluster.put('ADDED', SECRETS, 't', 'uid3', '3')
    cluster.put('DELETED', PARENTS, 'p', 'p1', '4')
    gone = cluster.put('DELETED', SECRETS, 't', 'uid3', '5')

    assert (first, elsewhere, former, listed, current, gone) == (WATCHED, {}, {}, [], WATCHED, {})


def test_recreated_parent_inherits_no_references():
    cluster = Cluster((PARENTS, SECRETS, REF))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'secret': 's'})

    cluster.put('ADDED', PARENTS, 'p', 'p2', '2', spec={'secret': 't'})

    assert cluster.put('ADDED', SECRETS, 's', 'uid', '3') == {}
    assert cluster.put('ADDED', SECRETS, 't', 'uid2', '4') == {(PARENTS, 'p2'): {'watched'}}


@pytest.mark.guarantee('RCL-002')
def test_selected_objects_concern_parents_by_old_and_new_labels():
    cluster = Cluster((PARENTS, SECRETS, SELECTOR))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'selector': {'a': '1'}})

    added = cluster.put('ADDED', SECRETS, 's', 'uid', '1', labels={'a': '1'})
    listed = cluster.list_targets('p1')
    lost = cluster.put('MODIFIED', SECRETS, 's', 'uid', '2', labels={'a': '2'})
    others = cluster.put('MODIFIED', SECRETS, 's', 'uid', '3', labels={'a': '3'})
    elsewhere = cluster.put('ADDED', SECRETS, 's', 'u', '4', labels={'a': '1'}, namespace='far')

    assert (added, listed, lost, others, elsewhere) == (WATCHED, ['s'], WATCHED, {}, {})


@pytest.mark.parametrize(
    'primary, target, expected',
    [
        pytest.param(PARENTS, SECRETS, ['near'], id='both-in-namespaces'),
        pytest.param(CLUSTER_PARENTS, SECRETS, ['far', 'near'], id='cluster-scoped-parent'),
        pytest.param(PARENTS, NODES, ['far', 'near'], id='cluster-scoped-target'),
        pytest.param(CLUSTER_PARENTS, NODES, ['far', 'near'], id='both-cluster-scoped'),
    ],
)
@pytest.mark.parametrize('selector', [{}, {'a': '1'}], ids=['everything', 'label'])
def test_objects_are_selected_in_the_scope_of_the_parent(primary, target, expected, selector):
    cluster = Cluster((primary, target, SELECTOR))
    home = 'home' if primary.namespaced else None
    cluster.put('ADDED', primary, 'p', 'p1', '1', namespace=home, spec={'selector': selector})

    found = [
        name
        for name, namespace in [('far', 'far'), ('near', 'home')]
        if cluster.put(
            'ADDED',
            target,
            name,
            name,
            '2',
            namespace=namespace if target.namespaced else None,
            labels={'a': '1'},
        )
    ]

    assert found == cluster.list_targets('p1') == expected


@pytest.mark.guarantee('RCL-002')
def test_functions_find_old_and_new_parents():
    cluster = Cluster((PARENTS, SECRETS, find_by_label))
    for name in ('a', 'b'):
        cluster.put('ADDED', PARENTS, name, f'uid-{name}', '1')

    added = cluster.put('ADDED', SECRETS, 's', 's', '1', labels={'for': 'a'})
    moved = cluster.put('MODIFIED', SECRETS, 's', 's', '2', labels={'for': 'b'})
    listed = cluster.list_targets('uid-a'), cluster.list_targets('uid-b')
    gone = cluster.put('DELETED', SECRETS, 's', 's', None)

    assert added == {(PARENTS, 'uid-a'): {'watched'}}
    assert moved == {(PARENTS, 'uid-a'): {'watched'}, (PARENTS, 'uid-b'): {'watched'}}
    assert listed == ([], ['s'])
    assert gone == {(PARENTS, 'uid-b'): {'watched'}}
    assert cluster.list_targets('uid-b') == cluster.list_targets('unknown') == []


def test_functions_are_called_once_for_each_state():
    calls = []
    cluster = Cluster((PARENTS, SECRETS, lambda body, **_: calls.append(body)))

    for version in ('1', '1', '2'):
        cluster.put(None, SECRETS, 's', 's', version)
    cluster.put('DELETED', SECRETS, 's', 's', '3')

    assert [body.metadata['resourceVersion'] for body in calls] == ['1', '2']


def test_functions_cannot_damage_the_objects_of_others():
    cluster = Cluster((PARENTS, SECRETS, lambda body, **_: body['data'].clear()))
    body = build_body('s', 's', '1', data={'k': 'v'})

    change = cluster.relations.get_store(SECRETS).put('ADDED', body)
    cluster.relations.find_parents(SECRETS, change)

    assert body['data'] == {'k': 'v'}


@pytest.mark.guarantee('RCL-011')
def test_failures_of_functions_are_logged_and_counted_and_skipped(caplog):
    def choose(data_key=None, labels=None, **_):
        if labels:
            raise LookupError('boo!')
        return 5

    cluster = Cluster(
        (PARENTS, SECRETS, choose), (PARENTS, SECRETS, REF), (PARENTS, SECRETS, find_by_label)
    )
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'secret': 's'})

    raised = cluster.put('ADDED', SECRETS, 's', 's', '1', labels={'x': 'y'})
    senseless = cluster.put('MODIFIED', SECRETS, 's', 's', '2')

    assert raised == senseless == WATCHED
    assert [*cluster.relations.errors.values()] == [2]
    assert next(iter(cluster.relations.errors)).endswith('choose')
    assert [record.levelname for record in caplog.records] == ['ERROR', 'ERROR']
    assert 'choose failed for secrets ns/s' in caplog.records[0].getMessage()
    assert caplog.records[0].getMessage().endswith('it raised LookupError.')
    assert caplog.records[0].exc_info[0] is LookupError
    assert 'returned an object of the type int' in caplog.records[1].getMessage()


def test_failed_function_forgets_former_parents_after_waking_them(caplog):
    def choose(labels, **_):
        return [*labels['for']]

    cluster = Cluster((PARENTS, SECRETS, choose))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1')
    cluster.put('ADDED', SECRETS, 's', 's', '1', labels={'for': 'p'})

    failed = cluster.put('MODIFIED', SECRETS, 's', 's', '2')
    again = cluster.put('MODIFIED', SECRETS, 's', 's', '3')

    assert (failed, again) == (WATCHED, {})


def test_one_object_can_be_both_owned_and_watched():
    cluster = Cluster((PARENTS, SECRETS, mappings.Owns('secrets')), (PARENTS, SECRETS, REF))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'secret': 's'})

    found = cluster.put('ADDED', SECRETS, 's', 's', '1', owner='p1')

    assert found == {(PARENTS, 'p1'): {'owned', 'watched'}}
    assert relations.merge_roles([OWNED, WATCHED, {}]) == found


def test_parents_can_be_children_of_others():
    cluster = Cluster(
        (CLUSTER_PARENTS, PARENTS, mappings.Owns('databases')),
        (PARENTS, CHILDREN, mappings.Owns('services')),
    )
    cluster.put('ADDED', CLUSTER_PARENTS, 'f', 'f1', '1', namespace=None)

    assert cluster.put('ADDED', PARENTS, 'p', 'p1', '1', owner='f1') == {
        (CLUSTER_PARENTS, 'f1'): {'owned'}
    }
    assert cluster.put('ADDED', CHILDREN, 'c', 'c1', '1', owner='p1') == OWNED


@pytest.mark.parametrize(
    'link, spec',
    [
        pytest.param(mappings.Owns('secrets'), {}, id='owner'),
        pytest.param(REF, {'secret': 's'}, id='name'),
        pytest.param(SELECTOR, {'selector': {'for': 'p'}}, id='labels'),
        pytest.param(find_by_label, {}, id='function'),
    ],
)
def test_relations_declared_later_know_the_stored_objects(link, spec):
    cluster = Cluster((PARENTS, SECRETS, mappings.ref('spec.another')))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec=spec)
    cluster.put('ADDED', SECRETS, 's', 's', '1', owner='p1', labels={'for': 'p'})

    cluster.declare((PARENTS, SECRETS, link))

    assert cluster.list_targets('p1') == ['s']
    assert set(cluster.put('DELETED', SECRETS, 's', 's', '2')) == {(PARENTS, 'p1')}


def test_relations_that_are_not_declared_any_longer_are_forgotten():
    cluster = Cluster((PARENTS, SECRETS, REF), (PARENTS, CHILDREN, mappings.Owns('services')))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'secret': 's'})
    relation = next(iter(cluster.relations))
    known = relations.list_resources(cluster.relations)

    cluster.declare((PARENTS, CHILDREN, mappings.Owns('services')))

    assert known == {PARENTS, SECRETS, CHILDREN}
    assert relations.list_resources(cluster.relations) == {PARENTS, CHILDREN}
    assert cluster.put('ADDED', SECRETS, 's', 's', '1') == {}
    assert cluster.relations.list_targets(relation, 'p1') == []


def test_echoes_and_repetitions_change_no_relations():
    cluster = Cluster((PARENTS, SECRETS, REF))
    cluster.put('ADDED', PARENTS, 'p', 'p1', '1', spec={'secret': 's'})
    store = cluster.relations.get_store(PARENTS)

    for _ in range(2):
        change = store.put(None, build_body('p', 'p1', '1', spec={'secret': 's'}))
        cluster.relations.find_parents(PARENTS, change)

    assert change.effect is entries.Effect.NOTHING
    assert cluster.put('ADDED', SECRETS, 's', 's', '1') == WATCHED
