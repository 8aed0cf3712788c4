"""
The decorators: their signatures, what they accept and what they refuse.
"""

import inspect
import warnings

import pytest

import kopf
from kopf._cogs.structs import selectors

RESOURCE = ('group', 'version', 'kind', 'plural', 'singular', 'shortcut', 'category', 'id', 'param')
RETRYING = ('errors', 'timeout', 'retries', 'backoff')
FILTERS = ('labels', 'annotations', 'when', 'field', 'value')
ADMISSION = (
    'operation',
    'operations',
    'subresource',
    'persistent',
    'side_effects',
    'ignore_failures',
)
STOPPING = ('initial_delay', 'cancellation_backoff', 'cancellation_timeout', 'cancellation_polling')
TIMING = ('interval', 'initial_delay', 'sharp', 'idle')
LEVELS = ('owns', 'watches', 'resync', 'settle', 'deletion', 'workers')

SIGNATURES = {
    'event': (*RESOURCE, *FILTERS, 'registry'),
    'create': (*RESOURCE, *RETRYING, *FILTERS, 'registry'),
    'update': (*RESOURCE, *RETRYING, *FILTERS, 'old', 'new', 'registry'),
    'delete': (*RESOURCE, *RETRYING, 'optional', *FILTERS, 'registry'),
    'resume': (*RESOURCE, *RETRYING, 'deleted', *FILTERS, 'registry'),
    'field': (*RESOURCE, *RETRYING, *FILTERS, 'old', 'new', 'registry'),
    'validate': (*RESOURCE, *ADMISSION, *FILTERS, 'registry'),
    'mutate': (*RESOURCE, *ADMISSION, *FILTERS, 'registry'),
    'index': (*RESOURCE, *RETRYING, *FILTERS, 'registry'),
    'daemon': (*RESOURCE, *RETRYING, *STOPPING, *FILTERS, 'registry'),
    'timer': (*RESOURCE, *RETRYING, *TIMING, *FILTERS, 'registry'),
    'reconcile': (*RESOURCE, *RETRYING, *LEVELS, *FILTERS, 'registry'),
}
ACTIVITIES = ('startup', 'cleanup', 'login', 'probe')

PODS = kopf.Resource('', 'v1', 'pods', 'Pod', 'pod', frozenset({'po'}), frozenset({'all'}))
METRICS = kopf.Resource('metrics.k8s.io', 'v1beta1', 'pods', 'PodMetrics')
EXAMPLES = kopf.Resource(
    'kopf.dev', 'v1', 'kopfexamples', 'KopfExample', 'kopfexample', frozenset({'kex'})
)
OLD_EXAMPLES = kopf.Resource(
    'kopf.dev', 'v1beta1', 'kopfexamples', 'KopfExample', 'kopfexample', preferred=False
)
OTHERS = kopf.Resource(
    'kopf.dev', 'v1', 'others', 'Other', 'other', frozenset({'all'}), frozenset({'all', 'kopf'})
)
EVENTS = kopf.Resource('', 'v1', 'events', 'Event', 'event', frozenset({'ev'}))
NEW_EVENTS = kopf.Resource('events.k8s.io', 'v1', 'events', 'Event', 'event', frozenset({'ev'}))
ALL = [PODS, METRICS, EXAMPLES, OLD_EXAMPLES, OTHERS, EVENTS, NEW_EVENTS]


def fn(**_):
    pass


def is_of_kopf(resource):
    return resource.group == 'kopf.dev'


def find(registry):
    """Get the only handler of the registry."""
    parts = [
        registry._watching,
        registry._changing,
        registry._spawning,
        registry._indexing,
        registry._webhooks,
        registry._reconciling,
    ]
    [handler] = [*(handler for part in parts for handler in part), *registry._activities._handlers]
    return handler


@pytest.mark.guarantee(
    'HND-002',
    'HND-005',
    'HND-006',
    'HND-007',
    'HND-008',
    'HND-009',
    'HND-010',
    'HND-011',
    'ADM-005',
    'DMN-001',
    'IDX-001',
    'FLT-002',
    'NEW-027',
)
@pytest.mark.parametrize('name', SIGNATURES)
def test_decorators_of_resources_have_the_promised_signatures(name):
    parameters = inspect.signature(getattr(kopf.on, name)).parameters

    assert list(parameters) == ['arg1', 'arg2', 'arg3', *SIGNATURES[name]]
    assert {parameters[key].kind for key in ('arg1', 'arg2', 'arg3')} == {
        inspect.Parameter.POSITIONAL_ONLY
    }
    assert {parameters[key].kind for key in SIGNATURES[name]} == {inspect.Parameter.KEYWORD_ONLY}
    assert {key for key in parameters if parameters[key].default is not None} == (
        {'field'} & {name}
    )


@pytest.mark.guarantee('HND-012', 'HND-002')
@pytest.mark.parametrize('name', ACTIVITIES)
def test_decorators_of_activities_have_the_promised_signatures(name):
    parameters = inspect.signature(getattr(kopf.on, name)).parameters

    assert list(parameters) == ['id', 'param', *RETRYING, 'registry']
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.default for parameter in parameters.values()} == {None}


@pytest.mark.guarantee('HND-048', 'HND-002')
def test_decorator_of_subhandlers_has_the_promised_signature():
    parameters = inspect.signature(kopf.on.subhandler).parameters

    assert list(parameters) == ['id', 'param', *RETRYING, *FILTERS, 'old', 'new']
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.default for parameter in parameters.values()} == {None}


@pytest.mark.guarantee('HND-049', 'HND-002')
def test_registration_of_subhandlers_has_the_promised_signature():
    function, *options = inspect.signature(kopf.on.register).parameters.values()

    assert (function.name, function.kind) == ('fn', inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert [option.name for option in options] == [
        'id',
        'param',
        *RETRYING,
        'labels',
        'annotations',
        'when',
    ]
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}
    assert {option.default for option in options} == {None}


@pytest.mark.guarantee('HND-003')
@pytest.mark.parametrize(
    'name', ['daemon', 'timer', 'index', 'reconcile', 'subhandler', 'register']
)
def test_some_decorators_are_also_in_the_main_module(name):
    assert getattr(kopf, name) is getattr(kopf.on, name)


@pytest.mark.guarantee('HND-004', 'ADM-007', 'EMB-023')
@pytest.mark.parametrize('name', [*SIGNATURES, *ACTIVITIES])
def test_functions_are_returned_as_they_are(registry, name):
    args = () if name in ACTIVITIES else ('pods',)
    options = {'field': 'spec'} if name == 'field' else {}

    assert getattr(kopf.on, name)(*args, registry=registry, **options)(fn) is fn
    assert find(registry).fn is fn


@pytest.mark.parametrize(
    'name, key',
    [
        (name, key)
        for name, keys in SIGNATURES.items()
        for key in keys
        if key
        not in (
            *RESOURCE[:7],
            'id',
            'registry',
            'operation',
            'operations',
            'optional',
            'deleted',
            *LEVELS,
            'field',
            'labels',
            'annotations',
            'when',
            'value',
            'old',
            'new',
        )
    ],
)
def test_options_are_kept_as_they_are(registry, name, key):
    value = object()
    options = {'field': 'spec', key: value}

    getattr(kopf.on, name)('pods', registry=registry, **options)(fn)

    assert getattr(find(registry), key) is value


@pytest.mark.parametrize(
    'name, key, value',
    [
        (name, key, value)
        for name, keys in SIGNATURES.items()
        for key, value in {
            'labels': {'k': 'v'},
            'annotations': {'k': 'v'},
            'when': fn,
            'value': 'x',
            'old': 'x',
            'new': 'x',
        }.items()
        if key in keys
    ],
)
def test_filters_are_kept_as_they_are(registry, name, key, value):
    getattr(kopf.on, name)('pods', registry=registry, field='spec', **{key: value})(fn)

    assert getattr(find(registry), key) is value
    assert find(registry).field == ('spec',)


@pytest.mark.parametrize('name', ACTIVITIES)
@pytest.mark.parametrize('key', ['param', *RETRYING])
def test_options_of_activities_are_kept_as_they_are(registry, name, key):
    value = object()

    getattr(kopf.on, name)(registry=registry, **{key: value})(fn)

    assert getattr(find(registry), key) is value


@pytest.mark.guarantee('HND-008', 'ADM-006')
@pytest.mark.parametrize('name', ['event', 'validate', 'mutate'])
@pytest.mark.parametrize('option', RETRYING)
def test_options_of_retrying_are_refused_where_nothing_is_retried(name, option):
    with pytest.raises(TypeError):
        getattr(kopf.on, name)('pods', **{option: None})


@pytest.mark.guarantee('HND-009')
@pytest.mark.parametrize('options', [{}, {'field': None}, {'field': ''}, {'field': ()}], ids=repr)
def test_field_handlers_need_fields(options):
    with pytest.raises(TypeError, match='field'):
        kopf.on.field('pods', **options)


@pytest.mark.guarantee('HND-010')
@pytest.mark.parametrize('name', SIGNATURES)
@pytest.mark.parametrize('option, owner', [('optional', 'delete'), ('deleted', 'resume')])
def test_options_of_deletion_are_refused_where_they_mean_nothing(registry, name, option, owner):
    decorator, options = (
        getattr(kopf.on, name),
        {'field': 'spec', 'registry': registry, option: True},
    )

    if name == owner:
        decorator('pods', **options)(fn)
    else:
        with pytest.raises(TypeError):
            decorator('pods', **options)


@pytest.mark.guarantee('NEW-027')
@pytest.mark.parametrize('name', SIGNATURES)
def test_resource_arguments_are_refused_as_keywords(name):
    with pytest.raises(TypeError):
        getattr(kopf.on, name)(arg1='pods', field='spec')


@pytest.mark.guarantee(
    'RES-001',
    'RES-002',
    'RES-003',
    'RES-004',
    'RES-005',
    'RES-006',
    'RES-007',
    'RES-008',
    'RES-009',
    'RES-010',
    'RES-011',
    'RES-012',
    'RES-013',
    'RES-014',
    'RES-015',
    'NEW-018',
    'NEW-019',
    'NEW-021',
    'NEW-024',
    'NEW-025',
    'NEW-028',
    'NEW-030',
)
@pytest.mark.parametrize(
    'args, options, expected',
    [
        pytest.param(('kopf.dev', 'v1', 'kopfexamples'), {}, [EXAMPLES], id='three'),
        pytest.param(('', 'v1', 'pods'), {}, [PODS], id='three-of-core'),
        pytest.param(
            ('kopf.dev', 'v1beta1', 'kopfexamples'), {}, [OLD_EXAMPLES], id='not-preferred'
        ),
        pytest.param(('kopf.dev/v1', 'kopfexamples'), {}, [EXAMPLES], id='group-with-version'),
        pytest.param(('kopf.dev', 'kopfexamples'), {}, [EXAMPLES], id='group'),
        pytest.param(('v1', 'pods'), {}, [PODS], id='core'),
        pytest.param(('kopfexamples.kopf.dev',), {}, [EXAMPLES], id='dotted-group'),
        pytest.param(('pods.metrics.k8s.io',), {}, [METRICS], id='dotted-long-group'),
        pytest.param(('pods.v1',), {}, [PODS], id='dotted-version'),
        pytest.param(
            ('kopfexamples.v1beta1.kopf.dev',), {}, [OLD_EXAMPLES], id='dotted-version-and-group'
        ),
        pytest.param(('kopf.dev/v1/kopfexamples',), {}, [EXAMPLES], id='slashed'),
        pytest.param(('pods',), {}, [PODS, METRICS], id='plural-of-any-group'),
        pytest.param(('pod',), {}, [PODS], id='singular'),
        pytest.param(('KopfExample',), {}, [EXAMPLES], id='kind'),
        pytest.param(('kex',), {}, [EXAMPLES], id='shortcut'),
        pytest.param(
            ('kopfexample',),
            {'group': 'kopf.dev', 'version': 'v1beta1'},
            [OLD_EXAMPLES],
            id='name-and-keywords',
        ),
        pytest.param(
            ('kopf.dev', 'kopfexamples'), {'group': 'kopf.dev'}, [EXAMPLES], id='same-group-twice'
        ),
        pytest.param((), {'kind': 'KopfExample'}, [EXAMPLES], id='by-kind'),
        pytest.param((), {'kind': 'kopfexamples'}, [], id='plural-is-not-kind'),
        pytest.param((), {'plural': 'pods'}, [PODS, METRICS], id='by-plural'),
        pytest.param((), {'plural': 'pod'}, [], id='singular-is-not-plural'),
        pytest.param((), {'singular': 'pod'}, [PODS], id='by-singular'),
        pytest.param((), {'singular': 'Pod'}, [], id='kind-is-not-singular'),
        pytest.param((), {'shortcut': 'po'}, [PODS], id='by-shortcut'),
        pytest.param((), {'shortcut': 'all'}, [OTHERS], id='category-is-not-shortcut'),
        pytest.param((), {'shortcut': 'pods'}, [], id='plural-is-not-shortcut'),
        pytest.param((), {'category': 'all'}, [PODS, OTHERS], id='by-category'),
        pytest.param(('kopf',), {}, [], id='category-is-not-name'),
        pytest.param(
            (), {'category': 'all', 'group': 'kopf.dev'}, [OTHERS], id='by-category-and-group'
        ),
        pytest.param(
            (),
            {'group': 'kopf.dev', 'version': 'v1', 'plural': 'kopfexamples'},
            [EXAMPLES],
            id='keywords',
        ),
        pytest.param((), {'group': '', 'plural': 'pods'}, [PODS], id='keywords-of-core'),
        pytest.param(
            (),
            {'version': 'v1beta1', 'plural': 'kopfexamples'},
            [OLD_EXAMPLES],
            id='version-and-plural',
        ),
        pytest.param((kopf.EVERYTHING,), {}, [PODS, METRICS, EXAMPLES, OTHERS], id='everything'),
        pytest.param(
            ('kopf.dev', kopf.EVERYTHING), {}, [EXAMPLES, OTHERS], id='everything-of-group'
        ),
        pytest.param(
            ('kopf.dev/v1', kopf.EVERYTHING),
            {},
            [EXAMPLES, OTHERS],
            id='everything-of-group-with-version',
        ),
        pytest.param(
            ('kopf.dev', 'v1', kopf.EVERYTHING), {}, [EXAMPLES, OTHERS], id='everything-of-three'
        ),
        pytest.param(
            (kopf.EVERYTHING,),
            {'group': 'kopf.dev'},
            [EXAMPLES, OTHERS],
            id='everything-and-keyword',
        ),
        pytest.param((is_of_kopf,), {}, [EXAMPLES, OLD_EXAMPLES, OTHERS], id='function'),
        pytest.param(
            (is_of_kopf,), {'version': 'v1'}, [EXAMPLES, OTHERS], id='function-and-version'
        ),
        pytest.param((lambda resource: True,), {'group': ''}, [PODS], id='function-and-group'),
        pytest.param(
            (lambda resource: True,),
            {},
            [PODS, METRICS, EXAMPLES, OLD_EXAMPLES, OTHERS],
            id='function-for-all',
        ),
        pytest.param((lambda resource: [],), {}, [], id='falsy-function'),
        pytest.param(('v1', 'events'), {}, [EVENTS], id='events'),
        pytest.param(
            (), {'plural': 'events', 'group': 'events.k8s.io'}, [NEW_EVENTS], id='new-events'
        ),
        pytest.param(('pods', None, None), {}, [PODS, METRICS], id='trailing-nones'),
    ],
)
def test_resources_are_selected(registry, args, options, expected):
    kopf.on.event(*args, registry=registry, **options)(fn)

    selector = find(registry).selector
    assert [resource for resource in ALL if selector.matches(resource)] == expected


@pytest.mark.parametrize(
    'args, options',
    [
        pytest.param(('kopf.dev', 'v1', 'kopfexamples'), {}, id='three'),
        pytest.param((is_of_kopf,), {}, id='function'),
        pytest.param((kopf.EVERYTHING,), {'group': 'kopf.dev', 'version': 'v1'}, id='everything'),
        *[
            pytest.param((), {'group': 'kopf.dev', 'version': 'v1', keyword: 'x'}, id=keyword)
            for keyword in selectors.KEYWORDS
        ],
    ],
)
@pytest.mark.parametrize('name', SIGNATURES)
def test_resources_are_selected_in_all_decorators_the_same(registry, name, args, options):
    getattr(kopf.on, name)(*args, registry=registry, field='spec', **options)(fn)

    assert find(registry).selector == selectors.build_selector(*args, **options)


@pytest.mark.guarantee('RES-016')
@pytest.mark.parametrize(
    'args', [('*',), ('kopf*',), ('kopf.dev', '*'), ('pods,kopfexamples',)], ids=repr
)
def test_masks_and_lists_match_nothing(registry, args):
    kopf.on.event(*args, registry=registry)(fn)

    assert not any(find(registry).selector.matches(resource) for resource in ALL)


@pytest.mark.guarantee('NEW-020', 'NEW-029')
@pytest.mark.parametrize(
    'args, options, message',
    [
        pytest.param((), {}, 'No resource is specified', id='nothing'),
        pytest.param((None, None, None), {}, 'No resource is specified', id='nones'),
        pytest.param((), {'group': 'kopf.dev'}, 'No resource is specified', id='only-group'),
        pytest.param((), {'version': 'v1'}, 'No resource is specified', id='only-version'),
        pytest.param(('',), {}, 'Resources are selected by', id='empty'),
        pytest.param(('kopf.dev', ''), {}, 'Resources are selected by', id='empty-name'),
        pytest.param(
            ('kopf.dev', 'v1', ''), {}, 'Resources are selected by', id='empty-name-of-three'
        ),
        pytest.param(
            ('kopf.dev', '', 'kopfexamples'), {}, 'Resources are selected by', id='empty-version'
        ),
        pytest.param(
            (None, 'v1', 'pods'), {}, 'Resources are selected by', id='none-before-others'
        ),
        pytest.param((123,), {}, 'Resources are selected by', id='number'),
        pytest.param((kopf.EVERYTHING, 'pods'), {}, 'Resources are selected by', id='marker-first'),
        *[
            pytest.param(
                (),
                {keyword: ''},
                f'{keyword}= of a resource is a non-empty string',
                id=f'empty-{keyword}',
            )
            for keyword in (*selectors.KEYWORDS, 'version')
        ],
        pytest.param(
            (), {'kind': 123}, 'kind= of a resource is a non-empty string', id='kind-of-number'
        ),
        pytest.param(
            (), {'kind': 'Pod', 'plural': 'pods'}, 'kind= and plural= at once', id='two-names'
        ),
        pytest.param(
            (),
            {'category': 'all', 'plural': 'pods'},
            'plural= and category= at once',
            id='name-and-category',
        ),
        *[
            pytest.param(
                ('pods',),
                {keyword: 'pods'},
                f'named once.*{keyword}=',
                id=f'positional-and-{keyword}',
            )
            for keyword in selectors.KEYWORDS
        ],
        *[
            pytest.param(
                (is_of_kopf,),
                {keyword: 'pods'},
                f'named once.*{keyword}=',
                id=f'function-and-{keyword}',
            )
            for keyword in selectors.KEYWORDS
        ],
        pytest.param(
            (is_of_kopf, 'pods'), {}, 'the only positional argument', id='function-and-name'
        ),
        pytest.param(
            (is_of_kopf, None, 'pods'),
            {},
            'the only positional argument',
            id='function-and-later-name',
        ),
        pytest.param(
            ('kopf.dev', is_of_kopf), {}, 'Resources are selected by', id='group-and-function'
        ),
        pytest.param(
            ('kopf.dev', 'kopfexamples'),
            {'group': 'other'},
            "'kopf.dev' and 'other'",
            id='two-groups',
        ),
        pytest.param(
            ('kopf.dev/v1', 'kopfexamples'), {'version': 'v2'}, "'v1' and 'v2'", id='two-versions'
        ),
    ],
)
def test_wrong_resources_are_refused(args, options, message):
    with pytest.raises(TypeError, match=f'^@kopf.on.event: .*{message}'):
        kopf.on.event(*args, **options)


@pytest.mark.guarantee('NEW-029')
@pytest.mark.parametrize('name', SIGNATURES)
def test_absent_resources_are_refused_in_all_decorators(name):
    with pytest.raises(TypeError, match=f'^@kopf.on.{name}: No resource is specified'):
        getattr(kopf.on, name)(field='spec')


async def async_filter(*_, **__):
    pass


@pytest.mark.guarantee('FLT-003', 'FLT-025')
@pytest.mark.parametrize(
    'options, error, message',
    [
        pytest.param(
            {'value': 'x'}, TypeError, 'value= is about a field', id='value-without-field'
        ),
        pytest.param(
            {'labels': {'key': None}},
            ValueError,
            "None is not a criterion for 'key' in labels=",
            id='label',
        ),
        pytest.param({'annotations': {'key': None}}, ValueError, 'kopf.ABSENT', id='annotation'),
        pytest.param(
            {'labels': 'key=value'}, TypeError, 'labels= is a mapping', id='labels-as-text'
        ),
        pytest.param({'when': 'always'}, TypeError, 'when= is a function', id='when-as-text'),
        pytest.param(
            {'when': async_filter}, TypeError, 'Filters are not awaited.*when=', id='async-when'
        ),
        pytest.param(
            {'labels': {'key': async_filter}},
            TypeError,
            "not awaited.*'key' in labels=",
            id='async-label',
        ),
        pytest.param(
            {'field': 'x', 'value': async_filter},
            TypeError,
            'not awaited.*value=',
            id='async-value',
        ),
        pytest.param({'field': 123}, ValueError, 'field', id='field-of-number'),
    ],
)
@pytest.mark.parametrize('name', [name for name in SIGNATURES if name != 'field'])
def test_wrong_filters_are_refused(name, options, error, message):
    with pytest.raises(error, match=f'^@kopf.on.{name}: .*{message}'):
        getattr(kopf.on, name)('pods', **options)


@pytest.mark.guarantee('FLT-025')
@pytest.mark.parametrize('name', ['update', 'field'])
@pytest.mark.parametrize(
    'options', [{'old': 'y'}, {'new': 'y'}, {'old': 'y', 'new': 'z'}], ids=repr
)
def test_values_of_both_times_and_of_either_time_are_refused_together(name, options):
    with pytest.raises(TypeError, match='Keep either value= or old= and new='):
        getattr(kopf.on, name)('pods', field='spec.field', value='x', **options)


@pytest.mark.parametrize('options', [{'old': 'y'}, {'new': 'y'}], ids=repr)
def test_values_of_the_past_and_the_present_need_fields(options):
    with pytest.raises(TypeError, match='is about a field'):
        kopf.on.update('pods', **options)


@pytest.mark.parametrize('name', ['validate', 'mutate'])
@pytest.mark.parametrize(
    'operations, expected',
    [
        pytest.param(None, None, id='all'),
        pytest.param(['CREATE'], {'CREATE'}, id='one'),
        pytest.param(('CREATE', 'UPDATE'), {'CREATE', 'UPDATE'}, id='several'),
        pytest.param(
            {'CREATE', 'UPDATE', 'DELETE', 'CONNECT'},
            {'CREATE', 'UPDATE', 'DELETE', 'CONNECT'},
            id='each',
        ),
    ],
)
def test_operations_are_listed(registry, name, operations, expected):
    getattr(kopf.on, name)('pods', operations=operations, registry=registry)(fn)

    assert find(registry).operations == expected


@pytest.mark.guarantee('NEW-015')
@pytest.mark.parametrize('name', ['validate', 'mutate'])
@pytest.mark.parametrize(
    'operations, expected',
    [
        pytest.param(None, {'DELETE'}, id='alone'),
        pytest.param(['CREATE'], {'CREATE', 'DELETE'}, id='united'),
    ],
)
def test_single_operation_is_deprecated(registry, name, operations, expected):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        getattr(kopf.on, name)(
            'pods', operation='DELETE', operations=operations, registry=registry
        )(fn)

    assert find(registry).operations == expected
    assert [(warning.category, warning.filename) for warning in caught] == [
        (DeprecationWarning, __file__)
    ]


@pytest.mark.guarantee('NEW-015')
@pytest.mark.parametrize('name', ['validate', 'mutate'])
@pytest.mark.parametrize(
    'operations, error, message',
    [
        pytest.param([], ValueError, 'would never be called', id='empty'),
        pytest.param('CREATE', TypeError, 'is a collection', id='text'),
        pytest.param(
            ['CREATE', 'PATCH'], ValueError, "no such operations as 'PATCH'", id='unknown'
        ),
    ],
)
def test_wrong_operations_are_refused(name, operations, error, message):
    with pytest.raises(error, match=f'^@kopf.on.{name}: .*{message}'):
        getattr(kopf.on, name)('pods', operations=operations)


@pytest.mark.parametrize(
    'use',
    [
        pytest.param(lambda: kopf.register(fn), id='register'),
        pytest.param(lambda: kopf.subhandler()(fn), id='subhandler'),
    ],
)
def test_subhandlers_are_refused_outside_of_handlers(use):
    with pytest.raises(LookupError, match='only inside of running handlers'):
        use()


@pytest.mark.guarantee('RCL-014')
@pytest.mark.parametrize('name', ['old', 'new', 'diff', 'reason'])
def test_level_triggered_functions_must_not_require_the_past(registry, name):
    namespace = {}
    exec(f'def fn({name}, **_): ...\ndef optional({name}=None, **_): ...', namespace)

    with pytest.raises(TypeError, match='level-triggered functions see only the present'):
        kopf.on.reconcile('pods', registry=registry)(namespace['fn'])

    kopf.on.reconcile('pods', registry=registry)(namespace['optional'])


@pytest.mark.guarantee('RCL-011')
@pytest.mark.parametrize(
    'options, error, text',
    [
        ({'resync': 'hourly'}, TypeError, 'resync= is a number'),
        ({'resync': True}, TypeError, 'resync= is a number'),
        ({'settle': 0}, ValueError, 'settle= must be above 0'),
        ({'workers': 1.5}, TypeError, 'workers= is a number'),
        ({'workers': -1}, ValueError, 'workers= must be above 0'),
        ({'resync': float('inf')}, ValueError, 'resync= must be above 0, and finite'),
        ({'owns': 'pods'}, TypeError, 'owns= is a list of resources'),
        ({'watches': ['pods']}, TypeError, 'watches= is a dict'),
        ({'watches': {'pods': 'spec.name'}}, TypeError, 'kopf.ref'),
    ],
)
def test_wrong_options_of_level_triggered_functions_are_refused(registry, options, error, text):
    with pytest.raises(error, match=f'@kopf.on.reconcile: .*{text}'):
        kopf.on.reconcile('pods', registry=registry, **options)


@pytest.mark.guarantee('RCL-011')
@pytest.mark.parametrize('after', ['1', None, -1, True, float('nan'), float('inf')])
def test_wrong_requeues_are_refused(after):
    with pytest.raises(TypeError, match='after= is a number of seconds'):
        kopf.Requeue(after)


@pytest.mark.guarantee('RCL-011')
def test_requests_to_reconcile_unknown_resources_are_false_and_wrong_ones_are_errors():
    assert kopf.trigger('pods', 'name', 'default') is False
    assert kopf.trigger(PODS, 'name', 'default') is False
    with pytest.raises(TypeError, match=r'kopf\.trigger: Resources are selected by names'):
        kopf.trigger(123, 'name')
