"""
Mappings: the keys that connect parents and their targets, and the checks of the options.
"""

import functools

import pytest

from kopf._cogs.structs import references, selectors
from kopf._core.intents import mappings

SECRETS = references.Resource('', 'v1', 'secrets', namespaced=True)
NODES = references.Resource('', 'v1', 'nodes', namespaced=False)
Key = mappings.ObjectKey


def get_names(body, **_):
    return []


async def get_names_later(body, **_):
    return []


def get_unknown(body, unknown):
    return []


def get_positional(body, spec, /):
    return []


@pytest.mark.parametrize(
    'owns, expected',
    [
        pytest.param(None, [], id='none'),
        pytest.param([], [], id='empty'),
        pytest.param(['pods'], [mappings.Owns('pods')], id='name'),
        pytest.param(('pods', 'pods'), [mappings.Owns('pods')], id='repeated'),
        pytest.param([('apps', 'v1', 'x')], [mappings.Owns(('apps', 'v1', 'x'))], id='tuple'),
        pytest.param(
            ['pods', mappings.Owns('nodes', by='label')],
            [mappings.Owns('pods'), mappings.Owns('nodes', by='label')],
            id='mixed',
        ),
    ],
)
def test_owned_resources_are_in_any_notation(owns, expected):
    assert list(mappings.parse_owns(owns)) == expected


@pytest.mark.parametrize('owns', ['pods', {'pods': 1}, 5, [5], [None], [''], [['pods']]])
def test_wrong_owned_resources_are_refused(owns):
    with pytest.raises(TypeError):
        mappings.parse_owns(owns)


@pytest.mark.parametrize('options', [{'by': 'name'}, {'by': None}, {'controller': 'yes'}])
def test_wrong_options_of_children_are_refused(options):
    with pytest.raises(TypeError, match=f'{next(iter(options))}='):
        mappings.Owns('pods', **options)


def test_several_links_to_one_resource_are_separate():
    links = [mappings.ref('spec.a'), mappings.selector('spec.b'), get_names]

    watches = mappings.parse_watches({'secrets': links, 'pods': links[0]})

    assert [watch.link for watch in watches] == [*links, links[0]]
    assert {watch.selector for watch in watches[:3]} == {selectors.parse_selector('secrets')}
    assert watches[3].selector == selectors.parse_selector('pods')
    assert mappings.parse_watches(None) == ()


@pytest.mark.parametrize(
    'watches, text',
    [
        pytest.param(['secrets'], 'is a dict', id='list'),
        pytest.param('secrets', 'is a dict', id='name'),
        pytest.param({5: get_names}, 'selected by names', id='resource'),
        pytest.param({'pods': 'spec.name'}, 'kopf.ref()', id='path'),
        pytest.param({'pods': None}, 'kopf.ref()', id='no-link'),
        pytest.param({'pods': [[get_names]]}, 'kopf.ref()', id='nested'),
        pytest.param({'pods': dict}, 'kopf.ref()', id='class'),
        pytest.param({'pods': get_names_later}, 'get_names_later .* asynchronous', id='async'),
        pytest.param({'pods': get_unknown}, "get_unknown .* requires 'unknown'", id='unknown'),
        pytest.param({'pods': get_positional}, 'get_positional .* positionally', id='positional'),
    ],
)
def test_wrong_watched_resources_are_refused(watches, text):
    with pytest.raises(TypeError, match=text):
        mappings.parse_watches(watches)


@pytest.mark.parametrize('path', [None, '', (), 5, 'spec..name', ('spec', 5)])
@pytest.mark.parametrize('make', [mappings.ref, mappings.selector])
def test_wrong_paths_are_refused(make, path):
    with pytest.raises(TypeError, match='the path of a field'):
        make(path)
    with pytest.raises(TypeError, match='the path of a field'):
        mappings.ref('spec.name', namespace=path or '')


@pytest.mark.parametrize(
    'metadata, expected',
    [
        pytest.param({}, [], id='none'),
        pytest.param({'ownerReferences': None}, [], id='null'),
        pytest.param({'ownerReferences': 'junk'}, [], id='junk'),
        pytest.param({'ownerReferences': ['junk', {}, {'uid': 5}]}, [], id='junk-inside'),
        pytest.param({'ownerReferences': [{'uid': 'a'}]}, [('a', 'reference')], id='plain'),
        pytest.param(
            {'ownerReferences': [{'uid': 'a', 'controller': True}, {'uid': 'b'}]},
            [('a', 'controller'), ('b', 'reference')],
            id='controller',
        ),
        pytest.param({'labels': {mappings.OWNER_LABEL: 'a'}}, [('a', 'label')], id='label'),
        pytest.param({'labels': {mappings.OWNER_LABEL: ''}}, [], id='empty-label'),
    ],
)
def test_all_owners_of_an_object_are_extracted(metadata, expected):
    assert list(mappings.extract_owners({'metadata': metadata})) == expected


@pytest.mark.parametrize(
    'owns, accepted',
    [
        pytest.param(mappings.Owns('x'), {'controller'}, id='default'),
        pytest.param(
            mappings.Owns('x', controller=False), {'controller', 'reference'}, id='any-reference'
        ),
        pytest.param(mappings.Owns('x', by='label'), {'label'}, id='label'),
    ],
)
def test_children_are_accepted_by_the_kind_of_their_owners(owns, accepted):
    kinds = ('controller', 'reference', 'label')

    assert {by for by in kinds if owns.accepts(mappings.Owner('uid', by))} == accepted


def build_parent(namespace='home', **spec):
    return {'metadata': {'name': 'parent', 'namespace': namespace}, 'spec': spec}


@pytest.mark.parametrize(
    'link, spec, expected',
    [
        pytest.param('spec.name', {}, [], id='absent'),
        pytest.param('spec.name', {'name': 'a'}, [('home', 'a')], id='name'),
        pytest.param('spec.name', {'name': ['a', 'b']}, [('home', 'a'), ('home', 'b')], id='list'),
        pytest.param('spec.name', {'name': 5}, [], id='number'),
        pytest.param('spec.name', {'name': ''}, [], id='empty'),
        pytest.param('spec.name', {'name': [None, {}, 'a']}, [('home', 'a')], id='junk-in-list'),
        pytest.param('spec.name.x', {'name': 'a'}, [], id='through-a-string'),
        pytest.param(
            'spec.items.name',
            {'items': [{'name': 'a'}, {}, {'name': ['b', 'c']}]},
            [('home', 'a'), ('home', 'b'), ('home', 'c')],
            id='through-a-list',
        ),
    ],
)
def test_targets_are_named_by_parents(link, spec, expected):
    keys = mappings.extract_references(build_parent(**spec), mappings.ref(link), SECRETS)

    assert keys == {Key(*each) for each in expected}


@pytest.mark.parametrize(
    'path, namespace, spec, expected',
    [
        pytest.param('spec.name', 'spec.ns', {'name': 'a', 'ns': 'b'}, [('b', 'a')], id='beside'),
        pytest.param('spec.name', 'spec.ns', {'name': 'a'}, [('home', 'a')], id='absent'),
        pytest.param(
            'spec.items.ref.name',
            'spec.items.ref.ns',
            {'items': [{'ref': {'name': 'a', 'ns': 'x'}}, {'ref': {'name': 'b'}}]},
            [('x', 'a'), ('home', 'b')],
            id='in-items',
        ),
        pytest.param(
            'spec.items', 'spec.ns', {'items': ['a', 'b'], 'ns': 'x'}, [('x', 'a'), ('x', 'b')]
        ),
        pytest.param('spec.ns', 'spec.ns', {'ns': 'x'}, [('x', 'x')], id='same'),
    ],
)
def test_targets_in_other_namespaces_are_named_by_two_fields(path, namespace, spec, expected):
    link = mappings.ref(path, namespace=namespace)

    keys = mappings.extract_references(build_parent(**spec), link, SECRETS)

    assert keys == {Key(*each) for each in expected}


def test_scopes_of_targets_are_respected():
    link = mappings.ref('spec.name')

    assert mappings.extract_references(build_parent(name='a'), link, NODES) == {Key(None, 'a')}
    assert mappings.extract_references(build_parent(None, name='a'), link, NODES) == {
        Key(None, 'a')
    }
    assert mappings.extract_references(build_parent(None, name='a'), link, SECRETS) == set()


IN = {'key': 'a', 'operator': 'In', 'values': ['1', '2']}


@pytest.mark.parametrize(
    'selector, labels, expected',
    [
        pytest.param(None, {}, False, id='absent'),
        pytest.param('junk', {}, False, id='junk'),
        pytest.param({}, {}, True, id='empty'),
        pytest.param({'matchLabels': {}}, {}, True, id='no-labels'),
        pytest.param({'matchLabels': None, 'matchExpressions': None}, {}, True, id='nulls'),
        pytest.param({'a': '1'}, {'a': '1', 'b': '2'}, True, id='plain'),
        pytest.param({'a': '1'}, {'a': '2'}, False, id='plain-differs'),
        pytest.param({'a': '1', 'b': '2'}, {'a': '1'}, False, id='plain-lacks'),
        pytest.param({'matchLabels': {'a': '1'}}, {'a': '1'}, True, id='labels'),
        pytest.param({'matchLabels': {'a': '1'}}, {}, False, id='labels-lack'),
        pytest.param({'matchLabels': {'a': 1}}, {'a': '1'}, False, id='labels-invalid'),
        pytest.param({'matchLabels': 'junk'}, {}, False, id='labels-junk'),
        pytest.param({'matchExpressions': 'junk'}, {}, False, id='expressions-junk'),
        pytest.param({'matchExpressions': ['junk']}, {}, False, id='expression-junk'),
        pytest.param({'matchExpressions': [{**IN, 'operator': '?'}]}, {}, False, id='operator'),
        pytest.param({'matchExpressions': [{**IN, 'values': 5}]}, {}, False, id='values'),
        pytest.param({'matchExpressions': [{**IN, 'key': None}]}, {}, False, id='key'),
        pytest.param({'matchExpressions': [IN]}, {'a': '2'}, True, id='in'),
        pytest.param({'matchExpressions': [IN]}, {'a': '3'}, False, id='not-in-values'),
        pytest.param({'matchExpressions': [IN]}, {}, False, id='in-absent'),
        pytest.param(
            {'matchExpressions': [{**IN, 'operator': 'NotIn'}]}, {'a': '1'}, False, id='notin'
        ),
        pytest.param({'matchExpressions': [{**IN, 'operator': 'NotIn'}]}, {}, True, id='notin-no'),
        pytest.param({'matchExpressions': [{'key': 'a', 'operator': 'Exists'}]}, {'a': ''}, True),
        pytest.param({'matchExpressions': [{'key': 'a', 'operator': 'Exists'}]}, {}, False),
        pytest.param({'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}, {}, True),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}, {'a': ''}, False
        ),
        pytest.param({'matchLabels': {'b': '1'}, 'matchExpressions': [IN]}, {'a': '1'}, False),
    ],
)
def test_labels_are_matched_as_in_kubernetes(selector, labels, expected):
    parent = build_parent(selector=selector)

    requirements = mappings.extract_requirements(parent, mappings.selector('spec.selector'))

    assert mappings.match_labels(requirements, labels) is expected


TARGET = {'metadata': {'name': 'target', 'namespace': 'home', 'labels': {'for': 'a'}}}
NODE = {'metadata': {'name': 'node'}}


@pytest.mark.parametrize(
    'result, expected',
    [
        pytest.param(None, [], id='none'),
        pytest.param([], [], id='empty'),
        pytest.param('abc', [('home', 'abc')], id='name'),
        pytest.param(['a', 'b', 'a'], [('home', 'a'), ('home', 'b')], id='names'),
        pytest.param(('a', 'b', 'c'), [('home', 'a'), ('home', 'b'), ('home', 'c')], id='tuple'),
        pytest.param({'a'}, [('home', 'a')], id='set'),
        pytest.param([('x', 'a')], [('x', 'a')], id='pair'),
        pytest.param((('x', 'a'), 'b'), [('x', 'a'), ('home', 'b')], id='pair-and-name'),
        pytest.param([(None, 'a')], [(None, 'a')], id='no-namespace'),
    ],
)
def test_functions_return_names_of_parents(result, expected):
    keys = mappings.call_function(lambda **_: result, TARGET, namespaced=True)

    assert keys == {Key(*each) for each in expected}


def test_functions_can_be_generators_and_get_what_they_ask_for():
    def iterate(labels, name, namespace, uid=None):
        yield labels['for']
        yield namespace, name

    keys = mappings.call_function(iterate, TARGET, namespaced=True)

    assert keys == {Key('home', 'a'), Key('home', 'target')}


def test_cluster_scoped_parents_have_no_namespaces():
    keys = mappings.call_function(lambda **_: ['a', ('x', 'b')], TARGET, namespaced=False)

    assert keys == {Key(None, 'a'), Key(None, 'b')}


@pytest.mark.parametrize(
    'result, text',
    [
        pytest.param(5, 'an object of the type int instead', id='number'),
        pytest.param({'password': 'p'}, 'an object of the type dict instead', id='dict'),
        pytest.param(b'name', 'an object of the type bytes instead', id='bytes'),
        pytest.param([5], 'an object of the type int among', id='number-inside'),
        pytest.param([''], 'an empty string among', id='empty-inside'),
        pytest.param([('a', 'b', 'c')], 'an object of the type tuple among', id='triple'),
        pytest.param([('a', '')], 'an object of the type tuple among', id='pair-without-name'),
        pytest.param(('home', 'a'), 'ambiguous', id='bare-pair'),
    ],
)
def test_nonsense_from_functions_is_explained_without_its_values(result, text):
    def choose(**_):
        return result

    with pytest.raises(mappings.MappingError, match=f'choose returned .*{text}') as error:
        mappings.call_function(choose, TARGET, namespaced=True)

    assert "'p'" not in str(error.value)


def test_names_without_namespaces_are_refused_for_cluster_scoped_targets():
    with pytest.raises(mappings.MappingError, match='without a namespace'):
        mappings.call_function(lambda **_: ['a'], NODE, namespaced=True)


def test_asynchronous_functions_in_disguise_are_refused_without_warnings():
    fn = functools.partial(lambda **kwargs: get_names_later(**kwargs))

    with pytest.raises(mappings.MappingError, match='coroutine'):
        mappings.call_function(fn, TARGET, namespaced=True)


def test_errors_of_functions_are_not_hidden():
    def fail(**_):
        raise LookupError('boo!')

    with pytest.raises(LookupError, match='boo!'):
        mappings.call_function(fail, TARGET, namespaced=True)
