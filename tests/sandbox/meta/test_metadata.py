import copy
import datetime

import pytest

from kopf._sandbox.meta import errors, metadata, naming

KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
OWNER = {'apiVersion': 'v1', 'kind': 'A', 'name': 'n', 'uid': 'u'}
META = {
    'name': 'x',
    'namespace': 'ns',
    'uid': 'u1',
    'resourceVersion': '5',
    'creationTimestamp': '2020-01-01T00:00:00Z',
}
NOW = datetime.datetime(2020, 12, 31, 23, 59, 59, 123456, tzinfo=datetime.UTC)


def show(problems: list[errors.FieldError]) -> list[str]:
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    'changes, expected',
    [
        pytest.param({}, [], id='good'),
        pytest.param(
            {'name': ''},
            ['metadata.name: Required value: name or generateName is required'],
            id='no-name',
        ),
        pytest.param({'namespace': ''}, ['metadata.namespace: Required value'], id='no-namespace'),
        pytest.param(
            {'namespace': 'a.b'},
            ['metadata.namespace: Invalid value: "a.b": must not contain dots'],
            id='bad-namespace',
        ),
        pytest.param(
            {'generation': -1},
            ['metadata.generation: Invalid value: -1: must be greater than or equal to 0'],
            id='negative-generation',
        ),
        pytest.param(
            {'labels': {'a b': 'c'}},
            [f'metadata.labels: Invalid value: "a b": {KEY}'],
            id='bad-label',
        ),
        pytest.param({'annotations': {'A/B': 'any text'}}, [], id='annotations-of-any-case'),
        pytest.param(
            {'annotations': {'a': 'x' * 262144}},
            ['metadata.annotations: Too long: may not be more than 262144 bytes'],
            id='long-annotations',
        ),
        pytest.param(
            {'annotations': {'a': 'é' * 131072}},
            ['metadata.annotations: Too long: may not be more than 262144 bytes'],
            id='long-annotations-in-bytes',
        ),
        pytest.param({'finalizers': ['x']}, [], id='finalizer-with-no-domain'),
        pytest.param(
            {'finalizers': ['x y']},
            [f'metadata.finalizers: Invalid value: "x y": {KEY}'],
            id='bad-finalizer',
        ),
        pytest.param(
            {'finalizers': ['orphan', 'foregroundDeletion']},
            [
                'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
                'finalizer orphan and foregroundDeletion cannot be both set'
            ],
            id='both-propagations',
        ),
        pytest.param(
            {'ownerReferences': [{'kind': 'A', 'name': '', 'uid': ''}]},
            [
                'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
                'metadata.ownerReferences.name: Invalid value: "": must not be empty',
                'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
            ],
            id='incomplete-owner',
        ),
        pytest.param(
            {
                'ownerReferences': [
                    {**OWNER, 'controller': True},
                    {**OWNER, 'kind': 'B', 'controller': True},
                ]
            },
            [
                'metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"A","name":"n","uid":"u",'
                '"controller":true},{"apiVersion":"v1","kind":"B","name":"n","uid":"u","controller":true}]: '
                'Only one reference can have Controller set to true. Found "true" in references for A/n and B/n'
            ],
            id='two-controllers',
        ),
        pytest.param(
            {'ownerReferences': [{**OWNER, 'kind': 'Event'}]},
            [
                'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"n","uid":"u"}: '
                '/v1, Kind=Event is disallowed from being an owner'
            ],
            id='owned-by-event',
        ),
    ],
)
def test_metadata_are_validated_in_the_words_of_the_api(changes, expected):
    assert show(metadata.validate_metadata({**META, **changes}, namespaced=True)) == expected


def test_finalizers_of_most_kinds_need_a_domain():
    problems = metadata.validate_metadata(
        {**META, 'finalizers': ['orphan', 'x']}, namespaced=True, standard_finalizers=True
    )

    assert show(problems) == [
        'metadata.finalizers[1]: Invalid value: "x": '
        'name is neither a standard finalizer name nor is it fully qualified'
    ]


def test_objects_of_clusters_have_no_namespace():
    problems = metadata.validate_metadata(META, namespaced=False)

    assert show(problems) == ['metadata.namespace: Forbidden: not allowed on this type']


def test_bad_prefixes_are_reported_along_with_the_names_made_of_them():
    problems = metadata.validate_metadata(
        {'generateName': 'a/', 'name': 'a/b'}, namespaced=False, name_rule=naming.check_path_segment
    )

    assert show(problems) == [
        'metadata.generateName: Invalid value: "a/": may not contain \'/\'',
        'metadata.name: Invalid value: "a/b": may not contain \'/\'',
    ]


@pytest.mark.parametrize(
    'changes, expected',
    [
        pytest.param({}, [], id='nothing'),
        pytest.param({'labels': {'a': 'b'}, 'finalizers': ['a.b/c']}, [], id='allowed'),
        pytest.param(
            {'name': 'y'}, ['metadata.name: Invalid value: "y": field is immutable'], id='name'
        ),
        pytest.param(
            {'uid': 'zz'}, ['metadata.uid: Invalid value: "zz": field is immutable'], id='uid'
        ),
        pytest.param(
            {'deletionTimestamp': '2020-01-01T00:00:00Z'},
            [
                'metadata.deletionTimestamp: Invalid value: "2020-01-01T00:00:00Z": field is immutable'
            ],
            id='deletion',
        ),
        pytest.param(
            {'deletionGracePeriodSeconds': 4},
            ['metadata.deletionGracePeriodSeconds: Invalid value: 4: field is immutable'],
            id='grace',
        ),
        pytest.param(
            {'resourceVersion': ''},
            ['metadata.resourceVersion: Invalid value: "": must be specified for an update'],
            id='version',
        ),
        pytest.param(
            {'labels': {'a b': 'c'}},
            [f'metadata.labels: Invalid value: "a b": {KEY}'],
            id='bad-label',
        ),
    ],
)
def test_changes_of_metadata_are_validated(changes, expected):
    assert show(metadata.validate_metadata_update({**META, **changes}, META)) == expected


def test_finalizers_are_not_added_to_objects_being_deleted():
    old = {**META, 'deletionTimestamp': '2020-01-01T00:00:00Z', 'finalizers': ['a.b/c']}
    new = {**old, 'finalizers': ['a.b/c', 'x.y/z', 'd.e/f']}

    assert show(metadata.validate_metadata_update(new, old)) == [
        'metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, '
        'found new finalizers []string{"d.e/f", "x.y/z"}'
    ]


def test_wrong_labels_are_reported_twice_on_updates():
    problems = metadata.validate_common_update(
        {**META, 'labels': {'a b': 'c'}}, META, namespaced=True
    )

    assert show(problems) == [f'metadata.labels: Invalid value: "a b": {KEY}'] * 2


def prepare(meta):
    obj = {'metadata': meta}
    metadata.prepare_create(obj, now=NOW, make_uid=lambda: 'new-uid', make_suffix=lambda: 'bcd24')
    return obj['metadata']


def test_times_are_written_in_utc():
    there = NOW.astimezone(datetime.timezone(datetime.timedelta(hours=2)))
    obj = {'metadata': {'name': 'x'}}

    metadata.prepare_create(obj, now=there, make_uid=lambda: 'uid', make_suffix=lambda: 'bcd24')

    assert obj['metadata']['creationTimestamp'] == '2020-12-31T23:59:59Z'


def test_new_objects_get_what_only_the_server_sets():
    meta = prepare(
        {
            'name': 'x',
            'uid': 'mine',
            'creationTimestamp': '1999-01-01T00:00:00Z',
            'selfLink': '/x',
            'deletionTimestamp': '1999-01-01T00:00:00Z',
            'deletionGracePeriodSeconds': 5,
        }
    )

    assert meta == {'name': 'x', 'uid': 'new-uid', 'creationTimestamp': '2020-12-31T23:59:59Z'}


@pytest.mark.parametrize(
    'meta, expected',
    [
        pytest.param({'generateName': 'a-'}, 'a-bcd24', id='prefix'),
        pytest.param({'generateName': 'a' * 70}, 'a' * 58 + 'bcd24', id='long-prefix'),
        pytest.param({'generateName': 'a-', 'name': 'x'}, 'x', id='name-and-prefix'),
    ],
)
def test_names_are_generated_from_prefixes(meta, expected):
    assert prepare(meta)['name'] == expected


@pytest.mark.parametrize('version', [None, '', '0'])
def test_new_objects_have_no_version(version):
    metadata.check_new_version({'metadata': {'resourceVersion': version}})


def test_new_objects_with_a_version_are_refused():
    with pytest.raises(errors.ApiError) as e:
        metadata.check_new_version({'metadata': {'resourceVersion': '5'}})

    assert e.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'code': 500,
        'message': 'resourceVersion should not be set on objects to be created',
    }


def test_updates_do_not_touch_what_is_the_servers():
    old = {
        'metadata': {
            **META,
            'generation': 3,
            'deletionTimestamp': '2020-01-02T00:00:00Z',
            'deletionGracePeriodSeconds': 0,
        }
    }
    new = copy.deepcopy(old)
    new['metadata'].update(generation=77, creationTimestamp='1999-01-01T00:00:00Z', selfLink='/x')
    for name in ('uid', 'deletionTimestamp', 'deletionGracePeriodSeconds'):
        del new['metadata'][name]

    metadata.prepare_update(new, old)

    assert new == old


def test_generations_of_objects_that_have_none_are_dropped():
    new = {'metadata': {**META, 'generation': 77}}

    metadata.prepare_update(new, {'metadata': META})

    assert new == {'metadata': META}
