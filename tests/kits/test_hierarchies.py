"""
Hierarchies of objects as dicts: their owners, names, namespaces and labels.
"""

import collections
import copy
import inspect
import subprocess
import sys
import typing

import pytest
from hierarchy_samples import OWNER, REFERENCE

import kopf
from kopf._core.actions import execution

ANOTHER = {**REFERENCE, 'name': 'another', 'uid': 'uid2'}


@pytest.fixture(
    params=[
        pytest.param(False, id='given'),
        pytest.param(True, id='handled'),
    ]
)
def owner(request):
    """
    The owner to be given to functions; also the ``None`` for the object that is being handled.
    """
    if not request.param:
        yield OWNER
        return
    with execution.handling(kopf.Body(copy.deepcopy(OWNER))):
        yield None


@pytest.fixture
def handled():
    """The object that is being handled."""
    body = kopf.Body(copy.deepcopy(OWNER))
    with execution.handling(body):
        yield body


FUNCTIONS = [
    pytest.param(kopf.adopt, id='adopt'),
    pytest.param(kopf.label, id='label'),
    pytest.param(kopf.harmonize_naming, id='harmonize-naming'),
    pytest.param(kopf.adjust_namespace, id='adjust-namespace'),
    pytest.param(kopf.append_owner_reference, id='append-owner-reference'),
    pytest.param(kopf.remove_owner_reference, id='remove-owner-reference'),
]


# All functions.


@pytest.mark.guarantee(
    'HIE-007', 'HIE-016', 'HIE-017', 'HIE-022', 'HIE-025', 'HIE-030', 'HIE-032', 'NEW-234'
)
@pytest.mark.parametrize(
    'fn, parameters',
    [
        (
            kopf.adopt,
            {
                'objs': inspect.Parameter.empty,
                'owner': None,
                'forced': False,
                'strict': False,
                'nested': None,
            },
        ),
        (
            kopf.label,
            {
                'objs': inspect.Parameter.empty,
                'labels': None,
                'forced': False,
                'nested': None,
                'force': None,
            },
        ),
        (
            kopf.harmonize_naming,
            {'objs': inspect.Parameter.empty, 'name': None, 'forced': False, 'strict': False},
        ),
        (
            kopf.adjust_namespace,
            {'objs': inspect.Parameter.empty, 'namespace': None, 'forced': False},
        ),
        (
            kopf.append_owner_reference,
            {
                'objs': inspect.Parameter.empty,
                'owner': None,
                'controller': True,
                'block_owner_deletion': True,
            },
        ),
        (kopf.remove_owner_reference, {'objs': inspect.Parameter.empty, 'owner': None}),
    ],
)
def test_functions_have_the_promised_parameters(fn, parameters):
    signature = inspect.signature(fn).parameters

    assert {name: parameter.default for name, parameter in signature.items()} == parameters
    assert [parameter.kind for parameter in signature.values()][2:] == [
        inspect.Parameter.KEYWORD_ONLY
    ] * (len(parameters) - 2)


@pytest.mark.guarantee('HIE-001', 'HIE-002', 'HIE-004', 'HIE-005')
@pytest.mark.parametrize('fn', FUNCTIONS)
@pytest.mark.parametrize(
    'wrap',
    [
        pytest.param(lambda *objs: list(objs), id='list'),
        pytest.param(lambda *objs: tuple(objs), id='tuple'),
        pytest.param(lambda *objs: (obj for obj in objs), id='generator'),
        pytest.param(lambda *objs: [[objs[0]], (objs[1],)], id='nested-lists'),
    ],
)
def test_many_objects_are_changed_in_the_same_way_as_one(handled, fn, wrap):
    sample, one = {'kind': 'Pod', 'metadata': {'ownerReferences': [REFERENCE]}}, {}
    two, three = copy.deepcopy(sample), collections.UserDict()
    many = wrap(two, three)

    results = [fn(sample), fn(one), fn(many)]

    assert results == [None, None, None]
    assert two == sample
    assert three.data == one


@pytest.mark.guarantee('HIE-001')
@pytest.mark.parametrize('fn', FUNCTIONS)
@pytest.mark.parametrize(
    'wrong, name',
    [
        pytest.param('pod', 'str', id='string'),
        pytest.param(123, 'int', id='number'),
        pytest.param(None, 'NoneType', id='none'),
        pytest.param(object(), 'object', id='unknown'),
        pytest.param(kopf.Body({}), 'Body', id='read-only'),
    ],
)
def test_other_types_are_refused_and_nothing_is_changed(handled, fn, wrong, name):
    obj = {'metadata': {'ownerReferences': [REFERENCE]}}
    before = copy.deepcopy(obj)

    with pytest.raises(TypeError, match=rf'\b{name}\b'):
        fn([obj, wrong])

    assert obj == before


@pytest.mark.guarantee('HIE-005')
@pytest.mark.parametrize('fn', FUNCTIONS)
def test_absence_of_an_owner_is_an_error_and_nothing_is_changed(fn):
    obj = {'metadata': {'ownerReferences': [REFERENCE]}}
    before = copy.deepcopy(obj)

    with pytest.raises(
        LookupError, match=r'There is no owner.*Outside of handlers, give the owner'
    ):
        fn(obj)

    assert obj == before


@pytest.mark.parametrize(
    'fn', [kopf.adopt, kopf.append_owner_reference, kopf.remove_owner_reference]
)
def test_owners_of_other_types_are_refused(fn):
    obj = {}

    with pytest.raises(TypeError, match=r'An owner is a dict.*not str'):
        fn(obj, 'kopf-example-1')

    assert obj == {}


@pytest.mark.guarantee('HIE-006')
def test_handled_object_stays_as_it_is_even_if_children_have_its_parts(handled):
    before = copy.deepcopy(handled)
    child = {
        'metadata': {
            'labels': handled['metadata']['labels'],
            'ownerReferences': [],
            'name': 'child',
        }
    }
    views = {
        'metadata': {'labels': handled.metadata.labels, 'annotations': handled.metadata.annotations}
    }
    copied = {'metadata': handled.metadata}

    kopf.adopt([child, views, copied], forced=True)
    kopf.label([child, views, copied], {'x': 'y'}, forced=True)
    child['metadata']['ownerReferences'][0]['name'] = 'changed'

    assert copy.deepcopy(handled) == before
    assert views['metadata']['labels'] == {'somelabel': 'somevalue', 'x': 'y'}
    assert views['metadata']['ownerReferences'][0]['name'] == 'kopf-example-1'


@pytest.mark.guarantee('HIE-003')
def test_dicts_need_no_libraries():
    program = '\n'.join(
        [
            'import sys',
            "sys.modules.update(dict.fromkeys(['pykube', 'kubernetes', 'kubernetes_asyncio']))  # as if not installed",
            'import kopf',
            'obj = {}',
            "kopf.adopt(obj, {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'x', 'uid': 'y'}})",
            "kopf.remove_owner_reference(obj, {'metadata': {'uid': 'y'}})",
            'print(obj)',
        ]
    )

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "{'metadata': {'ownerReferences': [], 'generateName': 'x-'}}\n"


# Labels.


@pytest.mark.guarantee('HIE-008')
def test_labels_are_added_to_all_objects():
    objs = [{'kind': 'Job'}, {'kind': 'Deployment'}]

    kopf.label(objs, {'label1': 'value1', 'label2': 'value2'})

    assert objs == [
        {'kind': 'Job', 'metadata': {'labels': {'label1': 'value1', 'label2': 'value2'}}},
        {'kind': 'Deployment', 'metadata': {'labels': {'label1': 'value1', 'label2': 'value2'}}},
    ]


@pytest.mark.guarantee('HIE-009', 'NEW-268')
@pytest.mark.parametrize(
    'args, expected',
    [
        pytest.param([], {'metadata': {'labels': {'somelabel': 'somevalue'}}}, id='omitted'),
        pytest.param([None], {'metadata': {'labels': {'somelabel': 'somevalue'}}}, id='none'),
        pytest.param([{}], {}, id='empty'),
    ],
)
def test_labels_are_of_the_handled_object_unless_given(handled, args, expected):
    obj = {}

    kopf.label(obj, *args)

    assert obj == expected


@pytest.mark.guarantee('HIE-010', 'HIE-011')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, {'common': 'old', 'own': 'x', 'given': 'y'}, id='default'),
        pytest.param({'forced': False}, {'common': 'old', 'own': 'x', 'given': 'y'}, id='unforced'),
        pytest.param({'forced': True}, {'common': 'new', 'own': 'x', 'given': 'y'}, id='forced'),
    ],
)
def test_existing_labels_are_replaced_only_by_force(options, expected):
    obj = {'metadata': {'labels': {'common': 'old', 'own': 'x'}}}

    kopf.label(obj, {'common': 'new', 'given': 'y'}, **options)

    assert obj == {'metadata': {'labels': expected}}


@pytest.mark.guarantee('HIE-016')
@pytest.mark.parametrize('force, expected', [(True, 'new'), (False, 'old')])
def test_force_is_a_deprecated_name_of_forced(force, expected):
    obj = {'metadata': {'labels': {'common': 'old'}}}

    with pytest.warns(DeprecationWarning, match='use forced='):
        kopf.label(obj, {'common': 'new'}, force=force)

    assert obj['metadata']['labels'] == {'common': expected}


@pytest.mark.guarantee('HIE-012', 'HIE-013', 'HIE-014')
@pytest.mark.parametrize(
    'nested',
    [
        pytest.param('spec.template', id='string'),
        pytest.param(['spec.template'], id='strings'),
        pytest.param([('spec', 'template')], id='tuples'),
        pytest.param(
            [['spec', 'template'], 'spec.absent', 'spec.null', 'spec.size.absent'], id='lists'
        ),
        pytest.param({'spec.template': None}.keys(), id='iterable'),
    ],
)
@pytest.mark.parametrize(
    'template, expected',
    [
        pytest.param({}, {'metadata': {'labels': {'a': 'b'}}}, id='empty'),
        pytest.param(
            {'spec': {}}, {'spec': {}, 'metadata': {'labels': {'a': 'b'}}}, id='without-metadata'
        ),
        pytest.param(
            {'metadata': {'labels': {'a': 'x', 'c': 'd'}}},
            {'metadata': {'labels': {'a': 'x', 'c': 'd'}}},
            id='with-labels',
        ),
    ],
)
def test_nested_structures_are_labelled_too(nested, template, expected):
    obj = {'spec': {'template': copy.deepcopy(template), 'null': None, 'size': 3}}

    kopf.label(obj, {'a': 'b'}, nested=nested)

    assert obj == {
        'metadata': {'labels': {'a': 'b'}},
        'spec': {'template': expected, 'null': None, 'size': 3},
    }


def test_lists_of_nested_structures_are_labelled_too():
    obj = {'spec': {'volumeClaimTemplates': [{}, {'metadata': {'name': 'x'}}]}}

    kopf.label(obj, {'a': 'b'}, nested='spec.volumeClaimTemplates')

    assert obj['spec']['volumeClaimTemplates'] == [
        {'metadata': {'labels': {'a': 'b'}}},
        {'metadata': {'name': 'x', 'labels': {'a': 'b'}}},
    ]


def test_nested_values_of_other_types_are_refused_and_nothing_is_changed():
    obj = {'spec': {'size': 3}}

    with pytest.raises(TypeError, match=r'\bint\b'):
        kopf.label(obj, {'a': 'b'}, nested='spec.size')

    assert obj == {'spec': {'size': 3}}


@pytest.mark.guarantee('HIE-015')
def test_nested_structure_can_be_labelled_alone():
    obj = {'spec': {'template': {}}}

    kopf.label(obj['spec']['template'], {'a': 'b'})

    assert obj == {'spec': {'template': {'metadata': {'labels': {'a': 'b'}}}}}


# Owners.


@pytest.mark.guarantee('HIE-017', 'HIE-018', 'HIE-004')
@pytest.mark.parametrize(
    'obj',
    [
        pytest.param({}, id='no-metadata'),
        pytest.param({'metadata': None}, id='null-metadata'),
        pytest.param({'metadata': {'ownerReferences': None}}, id='null-owners'),
        pytest.param({'metadata': {'ownerReferences': []}}, id='no-owners'),
    ],
)
def test_owner_reference_is_added(owner, obj):
    obj = copy.deepcopy(obj)

    kopf.append_owner_reference(obj, owner)

    assert obj == {'metadata': {'ownerReferences': [REFERENCE]}}


@pytest.mark.guarantee('HIE-019')
@pytest.mark.parametrize(
    'options, changes',
    [
        ({'controller': False}, {'controller': False}),
        ({'block_owner_deletion': False}, {'blockOwnerDeletion': False}),
        (
            {'controller': False, 'block_owner_deletion': False},
            {'controller': False, 'blockOwnerDeletion': False},
        ),
    ],
)
def test_flags_of_owner_references_can_be_false(owner, options, changes):
    obj = {}

    kopf.append_owner_reference(obj, owner, **options)

    assert obj['metadata']['ownerReferences'] == [{**REFERENCE, **changes}]


def test_flags_of_owner_references_can_be_absent(owner):
    obj = {}

    kopf.append_owner_reference(obj, owner, controller=None, block_owner_deletion=None)

    (reference,) = obj['metadata']['ownerReferences']
    assert reference == {key: REFERENCE[key] for key in ('apiVersion', 'kind', 'name', 'uid')}


@pytest.mark.guarantee('HIE-020', 'HIE-021')
def test_owner_reference_is_added_once_to_those_of_others(owner):
    obj = {'metadata': {'ownerReferences': [ANOTHER]}}

    kopf.append_owner_reference(obj, owner)
    kopf.append_owner_reference(obj, owner, controller=False)

    assert obj['metadata']['ownerReferences'] == [ANOTHER, REFERENCE]


@pytest.mark.guarantee('HIE-020')
def test_owners_are_told_apart_by_their_uids():
    obj = {'metadata': {'ownerReferences': [{**REFERENCE, 'name': 'renamed'}]}}
    namesake = {**OWNER, 'metadata': {**OWNER['metadata'], 'uid': 'uid2'}}

    kopf.append_owner_reference(obj, OWNER)
    kopf.append_owner_reference(obj, namesake)

    assert [(ref['name'], ref['uid']) for ref in obj['metadata']['ownerReferences']] == [
        ('renamed', 'uid1'),
        ('kopf-example-1', 'uid2'),
    ]


@pytest.mark.guarantee('HIE-022')
@pytest.mark.parametrize(
    'before, after',
    [
        pytest.param({}, {}, id='no-metadata'),
        pytest.param(
            {'metadata': {'ownerReferences': None}},
            {'metadata': {'ownerReferences': None}},
            id='null',
        ),
        pytest.param(
            {'metadata': {'ownerReferences': [ANOTHER]}},
            {'metadata': {'ownerReferences': [ANOTHER]}},
            id='none',
        ),
        pytest.param(
            {'metadata': {'ownerReferences': [REFERENCE]}},
            {'metadata': {'ownerReferences': []}},
            id='only',
        ),
        pytest.param(
            {'metadata': {'ownerReferences': [REFERENCE, ANOTHER]}},
            {'metadata': {'ownerReferences': [ANOTHER]}},
            id='one-of-many',
        ),
    ],
)
def test_owner_reference_is_removed(owner, before, after):
    obj = copy.deepcopy(before)

    kopf.remove_owner_reference(obj, owner)

    assert obj == after


@pytest.mark.guarantee('HIE-024')
@pytest.mark.parametrize(
    'cls, keys',
    [
        (
            kopf.OwnerReference,
            ['controller', 'blockOwnerDeletion', 'apiVersion', 'kind', 'name', 'uid'],
        ),
        (kopf.ObjectReference, ['apiVersion', 'kind', 'namespace', 'name', 'uid']),
    ],
)
def test_references_are_typed_dicts(cls, keys):
    assert typing.is_typeddict(cls)
    assert sorted(typing.get_type_hints(cls)) == sorted(keys)


@pytest.mark.guarantee('NEW-233')
def test_owner_can_be_any_mapping():
    obj, owner = (
        {},
        collections.UserDict(
            apiVersion='v1',
            kind='Any',
            metadata={'name': 'made-up', 'uid': 'u', 'unknown': 1},
            spec=object(),
            extra=2,
        ),
    )

    kopf.adopt(obj, owner)

    assert obj == {
        'metadata': {
            'generateName': 'made-up-',
            'ownerReferences': [
                {
                    'apiVersion': 'v1',
                    'kind': 'Any',
                    'name': 'made-up',
                    'uid': 'u',
                    'controller': True,
                    'blockOwnerDeletion': True,
                }
            ],
        }
    }


# Names.


@pytest.mark.guarantee('HIE-026', 'HIE-027', 'HIE-028', 'NEW-268')
@pytest.mark.parametrize(
    'before, options, after',
    [
        pytest.param({}, {}, {'generateName': 'some-'}, id='none'),
        pytest.param({}, {'strict': True}, {'name': 'some'}, id='none-strict'),
        pytest.param({}, {'forced': True}, {'generateName': 'some-'}, id='none-forced'),
        pytest.param(
            {}, {'forced': True, 'strict': True}, {'name': 'some'}, id='none-forced-strict'
        ),
        pytest.param({'name': 'own'}, {}, {'name': 'own'}, id='name'),
        pytest.param({'name': 'own'}, {'strict': True}, {'name': 'own'}, id='name-strict'),
        pytest.param(
            {'name': 'own'}, {'forced': True}, {'generateName': 'some-'}, id='name-forced'
        ),
        pytest.param(
            {'name': 'own'},
            {'forced': True, 'strict': True},
            {'name': 'some'},
            id='name-forced-strict',
        ),
        pytest.param({'generateName': 'own-'}, {}, {'generateName': 'own-'}, id='prefix'),
        pytest.param(
            {'generateName': 'own-'}, {'strict': True}, {'generateName': 'own-'}, id='prefix-strict'
        ),
        pytest.param(
            {'generateName': 'own-'},
            {'forced': True},
            {'generateName': 'some-'},
            id='prefix-forced',
        ),
        pytest.param(
            {'generateName': 'own-'},
            {'forced': True, 'strict': True},
            {'name': 'some'},
            id='prefix-forced-strict',
        ),
        pytest.param({'name': 'own', 'generateName': 'own-'}, {}, {'name': 'own'}, id='both'),
        pytest.param(
            {'name': 'own', 'generateName': 'own-'},
            {'forced': True},
            {'generateName': 'some-'},
            id='both-forced',
        ),
    ],
)
def test_names_are_given(before, options, after):
    obj = {'metadata': dict(before)}

    kopf.harmonize_naming(obj, 'some', **options)

    assert obj == {'metadata': after}


@pytest.mark.guarantee('HIE-029', 'HIE-027', 'HIE-005')
@pytest.mark.parametrize('args', [pytest.param([], id='omitted'), pytest.param([None], id='none')])
@pytest.mark.parametrize(
    'options, expected',
    [
        ({'forced': True, 'strict': True}, {'name': 'kopf-example-1'}),
        ({}, {'generateName': 'kopf-example-1-'}),
    ],
)
def test_names_are_of_the_handled_object_unless_given(handled, args, options, expected):
    obj = {'kind': 'Job'}

    kopf.harmonize_naming(obj, *args, **options)

    assert obj == {'kind': 'Job', 'metadata': expected}


@pytest.mark.guarantee('NEW-268')
@pytest.mark.parametrize('fn', [kopf.harmonize_naming, kopf.adopt])
def test_missing_name_of_the_owner_is_an_error_and_nothing_is_changed(fn):
    obj = {}

    with (
        execution.handling({'metadata': {'uid': 'u', 'namespace': 'ns'}}),
        pytest.raises(LookupError, match='no name'),
    ):
        fn(obj)

    assert obj == {}


# Namespaces.


@pytest.mark.guarantee('HIE-030', 'HIE-031')
@pytest.mark.parametrize(
    'before, given, options, after',
    [
        pytest.param({}, 'some', {}, {'namespace': 'some'}, id='none'),
        pytest.param({'namespace': None}, 'some', {}, {'namespace': 'some'}, id='null'),
        pytest.param({'namespace': 'own'}, 'some', {}, {'namespace': 'own'}, id='existing'),
        pytest.param(
            {'namespace': 'own'}, 'some', {'forced': True}, {'namespace': 'some'}, id='forced'
        ),
        pytest.param({}, None, {}, {'namespace': 'ns'}, id='handled'),
        pytest.param({'namespace': 'own'}, None, {}, {'namespace': 'own'}, id='existing-handled'),
        pytest.param(
            {'namespace': 'own'}, None, {'forced': True}, {'namespace': 'ns'}, id='forced-handled'
        ),
    ],
)
def test_namespaces_are_set(handled, before, given, options, after):
    obj = {'metadata': dict(before)}

    kopf.adjust_namespace(obj, given, **options)

    assert obj == {'metadata': after}


@pytest.mark.parametrize(
    'before, options, after',
    [
        pytest.param({}, {}, {}, id='none'),
        pytest.param({}, {'forced': True}, {}, id='none-forced'),
        pytest.param(
            {'metadata': {'namespace': 'own'}},
            {},
            {'metadata': {'namespace': 'own'}},
            id='existing',
        ),
        pytest.param(
            {'metadata': {'namespace': 'own'}}, {'forced': True}, {'metadata': {}}, id='forced'
        ),
    ],
)
def test_children_of_clusterwide_objects_stay_in_their_namespaces_unless_forced(
    before, options, after
):
    obj = copy.deepcopy(before)

    with execution.handling({'metadata': {'name': 'clusterwide'}}):
        kopf.adjust_namespace(obj, **options)

    assert obj == after


# All together.


@pytest.mark.guarantee('HIE-032', 'HIE-034', 'HIE-035')
def test_adopted_objects_get_all(owner):
    objs = [{'kind': 'Job'}, {'kind': 'Deployment', 'metadata': {'name': 'own'}}]

    kopf.adopt(objs, owner)

    common = {
        'ownerReferences': [REFERENCE],
        'namespace': 'ns',
        'labels': {'somelabel': 'somevalue'},
    }
    assert objs == [
        {'kind': 'Job', 'metadata': {'generateName': 'kopf-example-1-', **common}},
        {'kind': 'Deployment', 'metadata': {'name': 'own', **common}},
    ]


@pytest.mark.guarantee('HIE-034')
def test_given_owner_is_used_instead_of_the_handled_object(handled):
    obj = {}

    kopf.adopt(
        obj, {'kind': 'Other', 'metadata': {'name': 'other', 'uid': 'uid9', 'labels': {'a': 'b'}}}
    )

    assert obj == {
        'metadata': {
            'generateName': 'other-',
            'labels': {'a': 'b'},
            'ownerReferences': [
                {
                    'kind': 'Other',
                    'name': 'other',
                    'uid': 'uid9',
                    'controller': True,
                    'blockOwnerDeletion': True,
                }
            ],
        }
    }


@pytest.mark.guarantee('HIE-033', 'HIE-036')
def test_adoption_can_be_strict_and_forced(owner):
    objs = [
        {'kind': 'Job'},
        {
            'kind': 'Deployment',
            'metadata': {
                'name': 'own',
                'namespace': 'own',
                'labels': {'somelabel': 'own', 'other': 'own'},
            },
        },
    ]

    kopf.adopt(objs, owner, strict=True, forced=True, nested='spec.template')

    common = {'ownerReferences': [REFERENCE], 'name': 'kopf-example-1', 'namespace': 'ns'}
    assert objs == [
        {'kind': 'Job', 'metadata': {**common, 'labels': {'somelabel': 'somevalue'}}},
        {
            'kind': 'Deployment',
            'metadata': {**common, 'labels': {'somelabel': 'somevalue', 'other': 'own'}},
        },
    ]


@pytest.mark.guarantee('HIE-033')
def test_adoption_without_force_keeps_all_that_is_there(owner):
    metadata = {'name': 'own', 'namespace': 'own', 'labels': {'somelabel': 'own'}}
    obj = {'metadata': dict(metadata), 'spec': {'template': {}}}

    kopf.adopt(obj, owner, strict=True, nested=['spec.template'])

    assert obj == {
        'metadata': {**metadata, 'ownerReferences': [REFERENCE]},
        'spec': {'template': {'metadata': {'labels': {'somelabel': 'somevalue'}}}},
    }
