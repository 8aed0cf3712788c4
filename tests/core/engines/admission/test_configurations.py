"""
Configurations of webhooks: what the cluster is told of the handlers, and how these are found again.
"""

import pytest

import kopf
from kopf._cogs.structs import references
from kopf._core.engines.admission import configurations, paths
from kopf._core.intents import causes

KEX = references.Resource(
    'kopf.dev', 'v1', 'kopfexamples', kind='KopfExample', singular='kopfexample'
)
PODS = references.Resource('', 'v1', 'pods', kind='Pod', singular='pod')
CLIENT = {'url': 'https://host:1234/path', 'caBundle': 'Q0E='}
VALIDATING, MUTATING = causes.WebhookType


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


def fn(**_):
    pass


def build(registry, client=CLIENT, resources=(KEX, PODS)):
    """Build all records by the names of their configurations."""
    declared = list(registry._webhooks)
    reviewed = {
        handler.selector: [resource for resource in resources if handler.selector.matches(resource)]
        for handler in declared
    }
    return configurations.build_records(
        paths.build_webhooks(declared), reviewed, client, 'auto.kopf.dev'
    )


def build_one(registry, **kwargs):
    records = build(registry, **kwargs)
    [record] = [*records[VALIDATING], *records[MUTATING]]
    return record


@pytest.mark.guarantee('ADM-039', 'ADM-021', 'ADM-047', 'ADM-048')
def test_webhook_has_all_that_the_api_needs(registry):
    kopf.on.validate('kopfexamples', id='validate1', registry=registry)(fn)

    assert build(registry) == {
        MUTATING: [],
        VALIDATING: [
            {
                'name': 'validate1.auto.kopf.dev',
                'sideEffects': 'None',
                'failurePolicy': 'Fail',
                'matchPolicy': 'Equivalent',
                'timeoutSeconds': 30,
                'admissionReviewVersions': ['v1', 'v1beta1'],
                'clientConfig': {'url': 'https://host:1234/path/validate1', 'caBundle': 'Q0E='},
                'rules': [
                    {
                        'apiGroups': ['kopf.dev'],
                        'apiVersions': ['v1'],
                        'resources': ['kopfexamples'],
                        'operations': ['*'],
                        'scope': '*',
                    }
                ],
            }
        ],
    }


@pytest.mark.guarantee('ADM-042')
def test_mutating_webhooks_are_never_called_again_and_are_apart_from_validating_ones(registry):
    kopf.on.validate('kopfexamples', id='v', registry=registry)(fn)
    kopf.on.mutate('kopfexamples', id='m', registry=registry)(fn)
    kopf.on.validate('pods', id='p', registry=registry)(fn)

    records = build(registry)

    assert [record['name'] for record in records[VALIDATING]] == [
        'v.auto.kopf.dev',
        'p.auto.kopf.dev',
    ]
    assert [record['name'] for record in records[MUTATING]] == ['m.auto.kopf.dev']
    assert records[MUTATING][0]['reinvocationPolicy'] == 'Never'


@pytest.mark.guarantee('ADM-015', 'ADM-016')
@pytest.mark.parametrize(
    'options, key, expected',
    [
        pytest.param({}, 'sideEffects', 'None', id='no-side-effects'),
        pytest.param({'side_effects': True}, 'sideEffects', 'NoneOnDryRun', id='side-effects'),
        pytest.param({}, 'failurePolicy', 'Fail', id='failures-matter'),
        pytest.param({'ignore_failures': True}, 'failurePolicy', 'Ignore', id='failures-ignored'),
        pytest.param({'ignore_failures': False}, 'failurePolicy', 'Fail', id='failures-explicit'),
    ],
)
def test_options_are_announced(registry, options, key, expected):
    kopf.on.validate('kopfexamples', registry=registry, **options)(fn)

    assert build_one(registry)[key] == expected


@pytest.mark.guarantee('ADM-012', 'ADM-013', 'ADM-014')
@pytest.mark.parametrize(
    'options, operations, resources',
    [
        pytest.param({}, ['*'], ['kopfexamples'], id='default'),
        pytest.param(
            {'operations': ['UPDATE', 'CREATE']},
            ['CREATE', 'UPDATE'],
            ['kopfexamples'],
            id='operations',
        ),
        pytest.param({'operations': ['*']}, ['*'], ['kopfexamples'], id='all-operations'),
        pytest.param({'subresource': 'status'}, ['*'], ['kopfexamples/status'], id='subresource'),
        pytest.param({'subresource': '*'}, ['*'], ['kopfexamples/*'], id='all-subresources'),
    ],
)
def test_rules_are_of_operations_and_subresources(registry, options, operations, resources):
    kopf.on.validate('kopfexamples', registry=registry, **options)(fn)

    [rule] = build_one(registry)['rules']

    assert rule['operations'] == operations
    assert rule['resources'] == resources


@pytest.mark.guarantee('FND-022')
@pytest.mark.parametrize(
    'options, operations',
    [
        pytest.param({}, ['CREATE', 'UPDATE', 'CONNECT'], id='default'),
        pytest.param({'operations': ['DELETE']}, ['DELETE'], id='deletions'),
        pytest.param({'operations': ['*']}, ['*'], id='all'),
    ],
)
def test_deletions_are_in_the_rules_of_mutating_webhooks_only_if_asked_for(
    registry, options, operations
):
    kopf.on.mutate('kopfexamples', registry=registry, **options)(fn)

    [rule] = build_one(registry)['rules']

    assert rule['operations'] == operations


@pytest.mark.guarantee('ADM-042', 'ADM-046')
def test_one_handler_of_many_resources_is_one_webhook(registry):
    kopf.on.validate(kopf.EVERYTHING, registry=registry)(fn)

    rules = build_one(registry)['rules']

    assert [(rule['apiGroups'], rule['resources']) for rule in rules] == [
        ([''], ['pods']),
        (['kopf.dev'], ['kopfexamples']),
    ]


@pytest.mark.guarantee('ADM-046')
def test_handlers_of_resources_that_do_not_exist_are_not_there(registry):
    kopf.on.validate('kopfexamples', registry=registry)(fn)

    assert build(registry, resources=[PODS]) == {VALIDATING: [], MUTATING: []}


@pytest.mark.guarantee('ADM-019', 'ADM-020')
def test_labels_are_checked_by_the_api_as_far_as_it_can(registry):
    kopf.on.validate(
        'kopfexamples',
        registry=registry,
        labels={'a': 'value', 'b': kopf.PRESENT, 'c': kopf.ABSENT, 'd': lambda value, **_: True},
    )(fn)

    assert build_one(registry)['objectSelector'] == {
        'matchExpressions': [
            {'key': 'a', 'operator': 'In', 'values': ['value']},
            {'key': 'b', 'operator': 'Exists'},
            {'key': 'c', 'operator': 'DoesNotExist'},
        ]
    }


@pytest.mark.guarantee('ADM-020')
def test_labels_that_only_functions_check_are_not_told(registry):
    kopf.on.validate('kopfexamples', registry=registry, labels={'d': lambda value, **_: True})(fn)

    assert 'objectSelector' not in build_one(registry)


@pytest.mark.guarantee('ADM-047', 'ADM-048', 'ADM-061')
@pytest.mark.parametrize(
    'client, expected',
    [
        pytest.param(
            {'url': 'https://myhost/path'}, {'url': 'https://myhost/path/handler1'}, id='url'
        ),
        pytest.param({'url': 'https://myhost'}, {'url': 'https://myhost/handler1'}, id='no-path'),
        pytest.param(
            {'url': 'https://myhost/path/'}, {'url': 'https://myhost/path/handler1'}, id='slash'
        ),
        pytest.param(
            {'url': 'https://h', 'caBundle': None, 'service': None},
            {'url': 'https://h/handler1'},
            id='nulls',
        ),
        pytest.param(
            {
                'service': {'namespace': 'ns', 'name': 'svc', 'path': '/path', 'port': 9443},
                'caBundle': 'Q0E=',
            },
            {
                'service': {
                    'namespace': 'ns',
                    'name': 'svc',
                    'path': '/path/handler1',
                    'port': 9443,
                },
                'caBundle': 'Q0E=',
            },
            id='service',
        ),
        pytest.param(
            {'service': {'namespace': 'ns', 'name': 'svc', 'path': None, 'port': None}},
            {'service': {'namespace': 'ns', 'name': 'svc', 'path': '/handler1'}},
            id='service-with-no-path',
        ),
    ],
)
def test_webhooks_have_their_own_paths(registry, client, expected):
    kopf.on.validate('kopfexamples', id='handler1', registry=registry)(fn)

    assert build_one(registry, client=client)['clientConfig'] == expected


@pytest.mark.parametrize(
    'id, field, name, path, service_path',
    [
        pytest.param(
            'check',
            'spec.size',
            'check.spec.size',
            'check/spec.size',
            'check/spec.size',
            id='field',
        ),
        pytest.param('check_it', None, 'check-it', 'check_it', 'check-it', id='underscore'),
        pytest.param('_private_', None, 'private', '_private_', 'private', id='underscores-around'),
        pytest.param(
            'Check',
            'spec.fieldName',
            'check.spec.fieldname',
            'Check/spec.fieldName',
            'check.spec.fieldname',
            id='capitals',
        ),
        pytest.param('a b/ü?', None, 'a-b', 'a%20b/%C3%BC%3F', 'a-b', id='specials'),
        pytest.param('___', None, 'handler', '___', 'handler', id='nothing-left'),
        pytest.param('x' * 200, None, 'x' * 150, 'x' * 200, 'x' * 150, id='long'),
    ],
)
def test_any_ids_are_acceptable_for_the_api(registry, id, field, name, path, service_path):
    kopf.on.validate('kopfexamples', id=id, field=field, registry=registry)(fn)

    by_url = build_one(registry, client={'url': 'https://host'})
    by_service = build_one(registry, client={'service': {'namespace': 'ns', 'name': 'svc'}})

    assert by_url['name'] == f'{name}.auto.kopf.dev'
    assert by_url['clientConfig']['url'] == f'https://host/{path}'
    assert by_service['clientConfig']['service']['path'] == f'/{service_path}'


@pytest.mark.guarantee('ADM-013')
def test_stacked_decorators_are_one_webhook_with_several_rules(registry):
    kopf.on.validate('kopfexamples', operations=['CREATE'], registry=registry)(fn)
    kopf.on.validate('kopfexamples', operations=['DELETE'], registry=registry)(fn)
    kopf.on.validate('pods', registry=registry)(fn)

    record = build_one(registry)

    assert record['name'] == 'fn.auto.kopf.dev'
    assert [(rule['resources'], rule['operations']) for rule in record['rules']] == [
        (['kopfexamples'], ['CREATE']),
        (['kopfexamples'], ['DELETE']),
        (['pods'], ['*']),
    ]


def list_names(registry):
    return [
        (webhook.id, webhook.slug, [handler.param for handler in webhook.handlers])
        for webhook in paths.build_webhooks(registry._webhooks)
    ]


def test_handlers_of_the_same_id_but_with_different_options_are_different_webhooks(registry):
    kopf.on.validate('kopfexamples', param=1, registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=2, labels={'a': 'b'}, registry=registry)(fn)
    kopf.on.mutate('kopfexamples', param=3, registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=4, registry=registry)(fn)

    assert list_names(registry) == [
        ('fn-1', 'fn-1', [1, 4]),
        ('fn-2', 'fn-2', [2]),
        ('fn-3', 'fn-3', [3]),
    ]


def test_names_made_unique_do_not_clash_with_others(registry):
    kopf.on.validate('kopfexamples', param=1, id='fn', registry=registry)(fn)
    kopf.on.mutate('kopfexamples', param=2, id='fn', registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=3, id='fn-1', registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=4, id='a_b', registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=5, id='a-b', registry=registry)(fn)

    assert list_names(registry) == [
        ('fn-2', 'fn-2', [1]),
        ('fn-3', 'fn-3', [2]),
        ('fn-1', 'fn-1', [3]),
        ('a_b', 'a-b-1', [4]),
        ('a-b', 'a-b-2', [5]),
    ]


@pytest.mark.parametrize(
    'path, expected',
    [
        pytest.param('check_it', [1], id='id'),
        pytest.param('check-it', [1], id='slug'),
        pytest.param('twice-1', [2], id='numbered'),
        pytest.param('twice-2', [3], id='other-numbered'),
        pytest.param('twice', [2, 3], id='all-of-the-id'),
        pytest.param('check_it/spec.field', [4], id='field'),
        pytest.param('unknown', [], id='unknown'),
        pytest.param('CHECK_IT', [], id='case'),
    ],
)
def test_handlers_are_found_by_the_paths_of_their_webhooks(registry, path, expected):
    kopf.on.validate('kopfexamples', param=1, id='check_it', registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=2, id='twice', registry=registry)(fn)
    kopf.on.mutate('kopfexamples', param=3, id='twice', registry=registry)(fn)
    kopf.on.validate('kopfexamples', param=4, id='check_it', field='spec.field', registry=registry)(
        fn
    )
    built = paths.build_webhooks(registry._webhooks)

    assert [handler.param for handler in paths.find_handlers(built, path)] == expected


@pytest.mark.parametrize(
    'type, kind',
    [
        (VALIDATING, 'ValidatingWebhookConfiguration'),
        (MUTATING, 'MutatingWebhookConfiguration'),
    ],
)
@pytest.mark.guarantee('ADM-041')
def test_configurations_are_of_the_given_name(type, kind):
    assert configurations.build_configuration(type, 'auto.kopf.dev', [{'name': 'x'}]) == {
        'apiVersion': 'admissionregistration.k8s.io/v1',
        'kind': kind,
        'metadata': {'name': 'auto.kopf.dev'},
        'webhooks': [{'name': 'x'}],
    }


RECORD = {
    'name': 'a.kopf.dev',
    'failurePolicy': 'Fail',
    'namespaceSelector': {},
    'clientConfig': {'url': 'https://x/a', 'caBundle': 'b3Vycw=='},
}


@pytest.mark.guarantee('FND-058')
@pytest.mark.parametrize(
    'found, expected',
    [
        pytest.param(None, ['it is deleted'], id='deleted'),
        pytest.param([], ["'a.kopf.dev' is absent", "'b.kopf.dev' is absent"], id='emptied'),
        pytest.param([RECORD, {**RECORD, 'name': 'b.kopf.dev'}], [], id='same'),
        pytest.param(
            [{**RECORD, 'name': 'b.kopf.dev'}, RECORD], ['the order is different'], id='reordered'
        ),
        pytest.param(
            [RECORD, {**RECORD, 'name': 'c.kopf.dev'}],
            ["'b.kopf.dev' is absent", "'c.kopf.dev' is added"],
            id='renamed',
        ),
        pytest.param(
            [RECORD, {'name': 'b.kopf.dev'}],
            [
                "'b.kopf.dev' differs in failurePolicy, namespaceSelector, clientConfig.caBundle, clientConfig.url"
            ],
            id='fields-removed',
        ),
        pytest.param(
            [
                RECORD,
                {
                    **RECORD,
                    'name': 'b.kopf.dev',
                    'matchConditions': [{'name': 'x', 'expression': 'false'}],
                },
            ],
            ["'b.kopf.dev' differs in matchConditions"],
            id='field-added',
        ),
        pytest.param(
            [
                {**RECORD, 'clientConfig': {'url': 'https://x/a', 'caBundle': 'dGhlaXJz'}},
                {**RECORD, 'name': 'b.kopf.dev'},
            ],
            ["'a.kopf.dev' differs in clientConfig.caBundle"],
            id='bundle',
        ),
    ],
)
def test_changes_by_others_are_described_by_names(found, expected):
    differences = configurations.list_differences([RECORD, {**RECORD, 'name': 'b.kopf.dev'}], found)

    assert differences == expected


@pytest.mark.guarantee('FND-058')
def test_certificates_are_left_to_others_if_there_are_none_of_ours():
    stored = [{'name': 'a.kopf.dev', 'clientConfig': {'url': 'https://x/a'}}]
    injected = [
        {'name': 'a.kopf.dev', 'clientConfig': {'url': 'https://x/a', 'caBundle': 'dGhlaXJz'}}
    ]
    redirected = [
        {'name': 'a.kopf.dev', 'clientConfig': {'url': 'https://y/a', 'caBundle': 'dGhlaXJz'}}
    ]

    assert configurations.list_differences(stored, injected) == []
    assert configurations.list_differences(stored, redirected) == [
        "'a.kopf.dev' differs in clientConfig.url"
    ]
