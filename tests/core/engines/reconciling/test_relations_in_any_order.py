"""
Relations against a model that has no indices, but scans all objects.
"""

import hypothesis
import hypothesis.strategies as st
import pytest
from stored_objects import PARENTS, SECRETS, build_body

from kopf._core.engines.reconciling import relations, stores
from kopf._core.intents import mappings


def find_by_label(labels, **_):
    return [name for name in (labels.get('x'), labels.get('y')) if name]


LINKS = {
    'owner': mappings.Owns('secrets'),
    'name': mappings.ref('spec.names'),
    'labels': mappings.selector('spec.selector'),
    'function': find_by_label,
}
NAMES = ('a', 'b', 'c')
NAME, NAMESPACE = st.sampled_from(NAMES), st.sampled_from(['ns', 'far'])
LABELS = st.dictionaries(st.sampled_from('xy'), NAME)
OPERATOR = st.sampled_from(['In', 'NotIn', 'Exists', 'DoesNotExist'])
EXPRESSION = st.fixed_dictionaries(
    {
        'key': st.sampled_from('xy'),
        'operator': OPERATOR,
        'values': st.lists(NAME, max_size=2),
    }
)
SELECTOR = st.none() | st.fixed_dictionaries(
    {},
    optional={'matchLabels': LABELS, 'matchExpressions': st.lists(EXPRESSION, max_size=2)},
)
SPEC = st.fixed_dictionaries({'names': NAME | st.lists(NAME, max_size=2), 'selector': SELECTOR})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(PARENTS), NAMESPACE, NAME, st.none() | SPEC, st.just({}), st.none()),
        st.tuples(
            st.just(SECRETS), NAMESPACE, NAME, st.none() | st.just({}), LABELS, st.none() | NAME
        ),
    ),
    max_size=25,
)


def is_related(kind, parent, target):
    """Decide by two bodies, whether the target is of the parent."""
    metadata, names = parent['metadata'], target['metadata']
    labels, spec = names.get('labels', {}), parent['spec']
    is_near = metadata['namespace'] == names['namespace']
    match kind:
        case 'owner':
            return any(ref['uid'] == metadata['uid'] for ref in names.get('ownerReferences', ()))
        case 'name':
            named = spec['names']
            return is_near and names['name'] in (named if isinstance(named, list) else [named])
        case 'labels':
            link = LINKS['labels']
            return is_near and mappings.match_labels(
                mappings.extract_requirements(parent, link), labels
            )
        case 'function':
            return is_near and metadata['name'] in labels.values()


@pytest.mark.guarantee('RCL-002')
@pytest.mark.parametrize('kind', LINKS)
@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(steps=STEPS)
def test_indices_find_the_same_as_scans(kind, steps):
    relation = relations.Relation(PARENTS, SECRETS, LINKS[kind])
    known = relations.Relations(stores.Stores())
    known.declare([relation])
    world = {PARENTS: {}, SECRETS: {}}

    for number, (resource, namespace, name, spec, labels, owner) in enumerate(steps):
        key = (namespace, name)
        old, new = world[resource].pop(key, None), None
        uid = f'uid-{number}' if old is None else old['metadata']['uid']
        if spec is not None:
            parent = world[PARENTS].get((namespace, owner))
            new = build_body(
                name,
                uid,
                str(number),
                namespace=namespace,
                labels=labels,
                owner=None if parent is None else parent['metadata']['uid'],
                spec=spec,
            )
            world[resource][key] = new
        elif old is None:
            continue
        change = known.get_store(resource).put('DELETED' if new is None else 'MODIFIED', new or old)
        found = known.find_parents(resource, change)

        states = [state for state in (old, new) if state is not None and resource is SECRETS]
        assert set(found) == {
            (PARENTS, parent['metadata']['uid'])
            for parent in world[PARENTS].values()
            for state in states
            if is_related(kind, parent, state)
        }
        for parent in world[PARENTS].values():
            targets = known.list_targets(relation, parent['metadata']['uid'])
            assert {entry.key for entry in targets} == {
                key for key, target in world[SECRETS].items() if is_related(kind, parent, target)
            }
