"""Wrong definitions of custom resources are refused in the words of the API."""

import copy

import pytest

from kopf._sandbox.apiextensions import crds
from kopf._sandbox.meta import errors

STRING = {'type': 'string'}
GOOD = {
    'type': 'object',
    'properties': {
        'spec': {'type': 'object', 'properties': {'a': STRING, 'n': {'type': 'integer'}}}
    },
}
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
MIXED = f'may have mixed case, but should otherwise match: {LABEL}'
ADVICE = 'see https://github.com/kubernetes/enhancements/pull/1111'
X = 'properties[spec].properties[x]'


def make_crd(schema=GOOD, **version):
    body = {
        'metadata': {'name': 'bads.example.com'},
        'spec': {
            'group': 'example.com',
            'scope': 'Cluster',
            'names': {'plural': 'bads', 'kind': 'Bad'},
            'versions': [
                {
                    'name': 'v1',
                    'served': True,
                    'storage': True,
                    'schema': {'openAPIV3Schema': schema},
                }
            ],
        },
    }
    body['spec']['versions'][0].update(version)
    return copy.deepcopy(body)


def validate(body):
    crds.default_crd(body)
    return [str(problem) for problem in crds.validate_crd(body)]


def make_schema(field, **root):
    return {
        'type': 'object',
        'properties': {'spec': {'type': 'object', 'properties': {'x': field}}},
        **root,
    }


@pytest.mark.parametrize(
    'field',
    [
        pytest.param(
            {'type': 'object', 'additionalProperties': True, 'properties': {'a': STRING}},
            id='open-object',
        ),
        pytest.param({'type': 'object', 'additionalProperties': False}, id='closed-map'),
        pytest.param({**STRING, 'x-kubernetes-int-or-string': True}, id='int-or-string-with-type'),
        pytest.param(
            {'x-kubernetes-int-or-string': True, 'anyOf': [{'type': 'integer'}, STRING]},
            id='int-or-string',
        ),
        pytest.param(
            {
                'x-kubernetes-int-or-string': True,
                'allOf': [{'anyOf': [{'type': 'integer'}, STRING]}, {'pattern': 'a'}],
            },
            id='int-or-string-and-more',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'a': {**STRING, 'default': 'q'}}, 'default': {}},
            id='defaults',
        ),
        pytest.param({**STRING, 'default': None}, id='null-default'),
        pytest.param(
            {'type': 'object', 'oneOf': [{'properties': {'zz': {'minLength': 1}}}]},
            id='unknown-below-the-root',
        ),
        pytest.param({**STRING, 'x-kubernetes-validations': [{'rule': "self != 'a'"}]}, id='rules'),
    ],
)
def test_good_schemas_are_accepted(field):
    assert validate(make_crd(make_schema(field))) == []


@pytest.mark.parametrize(
    'field, expected',
    [
        pytest.param(
            {},
            ['.type: Required value: must not be empty for specified object fields'],
            id='no-type',
        ),
        pytest.param(
            {'type': 'array', 'items': {}},
            ['.items.type: Required value: must not be empty for specified array items'],
            id='no-type-of-items',
        ),
        pytest.param(
            {'type': 'array'}, ['.items: Required value: must be specified'], id='no-items'
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': {}},
            [
                '.additionalProperties.type: Required value: must not be empty for specified object fields'
            ],
            id='no-type-of-values',
        ),
        pytest.param(
            {'type': 'text'},
            [
                '.type: Unsupported value: "text": supported values: '
                '"array", "boolean", "integer", "number", "object", "string"'
            ],
            id='type',
        ),
        pytest.param(
            {**STRING, 'pattern': '('},
            [
                '.pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: '
                'error parsing regexp: missing closing ): `(`'
            ],
            id='pattern',
        ),
        pytest.param(
            {'type': 'array', 'items': STRING, 'uniqueItems': True},
            [
                '.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic'
            ],
            id='unique-items',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'a': STRING}, 'additionalProperties': STRING},
            [
                '.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive'
            ],
            id='both',
        ),
        pytest.param({'$ref': '#/foo'}, ['.$ref: Forbidden: $ref is not supported'], id='ref'),
        pytest.param(
            {'type': 'object', 'patternProperties': {'a': STRING}},
            ['.patternProperties: Forbidden: patternProperties is not supported'],
            id='pattern-properties',
        ),
        pytest.param(
            {'type': 'array', 'items': [STRING]},
            ['.items: Forbidden: items must be a schema object and not an array'],
            id='tuple',
        ),
        pytest.param(
            {
                'type': 'object',
                'properties': {'a': STRING},
                'anyOf': [
                    {'type': 'object'},
                    {'properties': {'a': {'description': 'd', 'default': 'x', 'nullable': True}}},
                ],
            },
            [
                '.anyOf[0].type: Forbidden: must be empty to be structural',
                '.anyOf[1].properties[a].default: Forbidden: must be undefined to be structural',
                '.anyOf[1].properties[a].description: Forbidden: must be empty to be structural',
                '.anyOf[1].properties[a].nullable: Forbidden: must be false to be structural',
            ],
            id='options',
        ),
        pytest.param(
            {'type': 'object', 'allOf': [{'additionalProperties': {'minLength': 1}}]},
            ['.allOf[0].additionalProperties: Forbidden: must be undefined to be structural'],
            id='map-in-options',
        ),
        pytest.param(
            {'x-kubernetes-int-or-string': True, 'x-kubernetes-preserve-unknown-fields': True},
            [
                '.x-kubernetes-preserve-unknown-fields: Invalid value: true: '
                'must be false if x-kubernetes-int-or-string is true'
            ],
            id='int-or-string-or-anything',
        ),
        pytest.param(
            {'type': 'object', 'x-kubernetes-preserve-unknown-fields': False},
            [
                '.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined'
            ],
            id='preserve',
        ),
        pytest.param(
            {**STRING, 'x-kubernetes-embedded-resource': True},
            [
                '.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true '
                'without x-kubernetes-preserve-unknown-fields',
                '.type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true',
            ],
            id='embedded',
        ),
        pytest.param(
            {**STRING, 'x-kubernetes-list-type': 'set'},
            [
                '.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'
            ],
            id='list-type',
        ),
        pytest.param(
            {'type': 'object', 'x-kubernetes-map-type': 'foo'},
            [
                '.x-kubernetes-map-type: Unsupported value: "foo": supported values: "atomic", "granular"'
            ],
            id='map-type',
        ),
        pytest.param(
            {'type': 'array', 'items': {'type': 'object'}, 'x-kubernetes-list-type': 'map'},
            [
                '.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map'
            ],
            id='no-keys',
        ),
        pytest.param(
            {
                'type': 'array',
                'x-kubernetes-list-type': 'map',
                'x-kubernetes-list-map-keys': ['k', 'z', 'n', 'n'],
                'items': {
                    'type': 'object',
                    'required': ['k'],
                    'properties': {'k': {'type': 'object'}, 'n': {**STRING, 'nullable': True}},
                },
            },
            [
                '.items.properties[k].type: Invalid value: "object": '
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
                '.x-kubernetes-list-map-keys: Invalid value: ["k","z","n","n"]: entries must all be names of item properties',
                '.x-kubernetes-list-map-keys: Invalid value: ["k","z","n","n"]: must not contain duplicate entries',
                *[
                    '.items.properties[n].default: Required value: this property is in x-kubernetes-list-map-keys, '
                    'so it must have a default or be a required property',
                    '.items.properties[n].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, '
                    'so it cannot be nullable',
                ]
                * 2,
            ],
            id='keys',
        ),
        pytest.param(
            {
                'type': 'array',
                'items': {'type': 'object', 'nullable': True},
                'x-kubernetes-list-type': 'set',
            },
            [
                '.items.x-kubernetes-map-type: Invalid value: null: '
                'must be atomic as item of a list with x-kubernetes-list-type=set',
                '.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set',
            ],
            id='set-of-objects',
        ),
        pytest.param(
            {'type': 'integer', 'default': 'x'},
            ['.default: Invalid value: "string":  in body must be of type integer: "string"'],
            id='default',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'a': STRING}, 'default': {'b': 1}},
            ['.default: Invalid value: {"b":1}: must not have unknown fields'],
            id='unknown-in-default',
        ),
        pytest.param(
            {'type': 'object', 'required': ['a'], 'properties': {'a': STRING}, 'default': {}},
            ['.default.a: Required value'],
            id='required-in-default',
        ),
        pytest.param(
            {**STRING, 'x-kubernetes-validations': [{'message': 'x'}]},
            ['.x-kubernetes-validations[0].rule: Required value: rule is not specified'],
            id='rule',
        ),
    ],
)
def test_bad_schemas_of_fields_are_refused(field, expected):
    problems = validate(make_crd(make_schema(field)))

    assert problems == [f'spec.validation.openAPIV3Schema.{X}{problem}' for problem in expected]


@pytest.mark.parametrize(
    'schema, expected',
    [
        pytest.param({}, ['.type: Required value: must not be empty at the root'], id='empty'),
        pytest.param(
            {'type': 'string'},
            ['.type: Invalid value: "string": must be object at the root'],
            id='string',
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': True},
            ['.additionalProperties: Forbidden: must not be used at the root'],
            id='map',
        ),
        pytest.param(
            {**GOOD, 'nullable': True},
            ['.nullable: Forbidden: nullable cannot be true at the root'],
            id='null',
        ),
        pytest.param(
            {**GOOD, '$schema': 'x'},
            [': Invalid value: "": OpenAPIV3Schema \'schema\' is not supported'],
            id='url',
        ),
        pytest.param(
            {
                'type': 'object',
                'properties': {'metadata': {'type': 'object', 'properties': {'labels': STRING}}},
            },
            [
                '.properties[metadata]: Forbidden: must not specify anything other than name and generateName, '
                'but metadata is implicitly specified'
            ],
            id='metadata',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'kind': {'type': 'object'}, 'metadata': STRING}},
            [
                '.properties[kind].type: Invalid value: "object": must be string',
                '.properties[metadata].type: Invalid value: "string": must be object',
            ],
            id='meta-fields',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'kind': {**STRING, 'default': 'Bad'}}},
            ['.properties[kind].default: Forbidden: must not be set in top-level kind'],
            id='default-kind',
        ),
        pytest.param(
            {**GOOD, 'anyOf': [{'properties': {'zz': {'minLength': 1}}}]},
            [
                '.properties[zz]: Required value: because it is defined in '
                'spec.validation.openAPIV3Schema.anyOf[0].properties[zz]'
            ],
            id='unknown-in-options',
        ),
    ],
)
def test_bad_roots_of_schemas_are_refused(schema, expected):
    assert validate(make_crd(schema)) == [
        f'spec.validation.openAPIV3Schema{problem}' for problem in expected
    ]


def test_little_is_allowed_at_the_root_of_schemas_with_status():
    problems = validate(make_crd({**GOOD, 'minProperties': 1}, subresources={'status': {}}))

    assert len(problems) == 1
    assert problems[0].startswith(
        'spec.validation.openAPIV3Schema: Invalid value: {"ID":"","Schema":"","Ref":null,'
    )
    assert '"MaxProperties":null,"MinProperties":1,"Required":null' in problems[0]
    assert problems[0].endswith(
        ': only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength '
        'Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example '
        'XPreserveUnknownFields XValidations] fields are allowed at the root of the schema '
        'if the status subresource is enabled'
    )


@pytest.mark.parametrize(
    'field, found, path, wanted',
    [
        pytest.param({'type': ['string']}, 'array', 'type', 'string', id='type'),
        pytest.param({**STRING, 'minLength': 'x'}, 'string', 'minLength', 'int64', id='length'),
        pytest.param(
            {'type': 'array', 'items': {'type': 5}}, 'number', 'items.type', 'string', id='items'
        ),
        pytest.param(
            {'type': 'object', 'properties': 'q'},
            'string',
            'properties',
            'map[string]v1.JSONSchemaProps',
            id='fields',
        ),
        pytest.param(
            {'type': 'object', 'required': ['a', 1]}, 'number', 'required', 'string', id='required'
        ),
    ],
)
def test_wrong_types_in_schemas_cannot_be_decoded(field, found, path, wanted):
    with pytest.raises(errors.ApiError) as caught:
        validate(make_crd(make_schema(field)))

    assert caught.value.code == 400
    assert caught.value.message == (
        'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
        f'json: cannot unmarshal {found} into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.'
        f'properties.properties.{path} of type {wanted}'
    )


VERSION_SHOWN = (
    '{"Name":"%s","Served":true,"Storage":%s,"Deprecated":false,"DeprecationWarning":null,"Schema":null,'
    '"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}'
)


@pytest.mark.parametrize(
    'change, expected',
    [
        pytest.param(
            {'names': {'plural': 'goods', 'kind': 'Bad'}},
            [
                'metadata.name: Invalid value: "bads.example.com": must be spec.names.plural+"."+spec.group'
            ],
            id='name',
        ),
        pytest.param(
            {'group': None},
            [
                'metadata.name: Invalid value: "bads.example.com": must be spec.names.plural+"."+spec.group',
                'spec.group: Required value',
            ],
            id='group',
        ),
        pytest.param({'scope': None}, ['spec.scope: Required value'], id='scope-missing'),
        pytest.param(
            {'scope': 'Foo'},
            ['spec.scope: Unsupported value: "Foo": supported values: "Cluster", "Namespaced"'],
            id='scope',
        ),
        pytest.param(
            {'versions': None},
            [
                'spec.versions: Invalid value: null: must have exactly one version marked as storage version',
                'status.storedVersions: Invalid value: null: must have at least one stored version',
            ],
            id='no-versions',
        ),
        pytest.param(
            {'names': {'plural': 'bads'}},
            [
                'spec.names.singular: Required value',
                'spec.names.kind: Required value',
                'spec.names.listKind: Required value',
            ],
            id='kind',
        ),
        pytest.param(
            {
                'names': {
                    'plural': 'bads',
                    'kind': '1x',
                    'singular': 'A_',
                    'listKind': '_',
                    'shortNames': ['A'],
                    'categories': ['B_'],
                }
            },
            [
                f'spec.names.singular: Invalid value: "A_": {LABEL}',
                f'spec.names.kind: Invalid value: "1x": {MIXED}',
                f'spec.names.listKind: Invalid value: "_": {MIXED}',
                f'spec.names.shortNames[0]: Invalid value: "A": {LABEL}',
                f'spec.names.categories[0]: Invalid value: "B_": {LABEL}',
            ],
            id='names',
        ),
        pytest.param(
            {'names': {'plural': 'bads', 'kind': 'Bad', 'listKind': 'Bad'}},
            ['spec.names.listKind: Invalid value: "Bad": kind and listKind may not be the same'],
            id='list-kind',
        ),
        pytest.param(
            {'preserveUnknownFields': True},
            [
                'spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields '
                'to true in spec.versions[*].schema instead'
            ],
            id='preserve-unknown',
        ),
        pytest.param(
            {'conversion': {'strategy': 'Foo'}},
            [
                'spec.conversion.strategy: Unsupported value: "Foo": supported values: "None", "Webhook"'
            ],
            id='strategy',
        ),
        pytest.param(
            {'conversion': {'strategy': 'Webhook'}},
            [
                'spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook',
                'spec.conversion.conversionReviewVersions: Required value',
            ],
            id='no-webhook',
        ),
        pytest.param(
            {
                'conversion': {
                    'strategy': 'Webhook',
                    'webhook': {
                        'conversionReviewVersions': ['v2', 'v2'],
                        'clientConfig': {'url': 'http://x?a#b'},
                    },
                }
            },
            [
                'spec.conversion.webhookClientConfig.url: Invalid value: "http": \'https\' is the only allowed URL scheme; '
                'desired format: https://host[/path]',
                'spec.conversion.webhookClientConfig.url: Invalid value: "b": fragments are not permitted in the URL',
                'spec.conversion.webhookClientConfig.url: Invalid value: "a": query parameters are not permitted in the URL',
                'spec.conversion.conversionReviewVersions[1]: Invalid value: "v2": duplicate version',
                'spec.conversion.conversionReviewVersions: Invalid value: ["v2","v2"]: '
                'must include at least one of v1, v1beta1',
            ],
            id='webhook-url',
        ),
        pytest.param(
            {
                'conversion': {
                    'strategy': 'Webhook',
                    'webhook': {
                        'conversionReviewVersions': ['v1'],
                        'clientConfig': {'service': {'path': 'x', 'port': 0}},
                    },
                }
            },
            [
                'spec.conversion.webhookClientConfig.service.name: Required value',
                'spec.conversion.webhookClientConfig.service.namespace: Required value',
                'spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: '
                'must be between 1 and 65535, inclusive',
                'spec.conversion.webhookClientConfig.service.path: Invalid value: "x": must start with a \'/\'',
                'spec.conversion.webhookClientConfig.service.path: Invalid value: "x": segment[0] may not be empty',
            ],
            id='webhook-service',
        ),
    ],
)
def test_bad_specs_are_refused(change, expected):
    body = make_crd()
    body['spec'].update(change)

    assert validate(body) == expected


@pytest.mark.parametrize(
    'version, expected',
    [
        pytest.param(
            {'storage': False},
            [
                f'spec.versions: Invalid value: [{VERSION_SHOWN % ("v1", "false")}]: '
                'must have exactly one version marked as storage version',
                'status.storedVersions: Invalid value: null: must have at least one stored version',
            ],
            id='no-storage',
        ),
        pytest.param(
            {'name': '1V'},
            [
                f'spec.versions[0].name: Invalid value: "1V": {LABEL}',
                f'spec.version: Invalid value: "1V": {LABEL}',
            ],
            id='name',
        ),
        pytest.param(
            {'schema': None},
            ['spec.versions[0].schema.openAPIV3Schema: Required value'],
            id='no-schema',
        ),
        pytest.param(
            {
                'additionalPrinterColumns': [
                    {},
                    {'name': 'a', 'type': 'foo', 'format': 'bar', 'jsonPath': 'spec'},
                ]
            },
            [
                'spec.additionalPrinterColumns[0].name: Required value',
                'spec.additionalPrinterColumns[0].type: Required value: must be one of boolean,date,integer,number,string',
                'spec.additionalPrinterColumns[0].JSONPath: Required value',
                'spec.additionalPrinterColumns[1].type: Invalid value: "foo": '
                'must be one of boolean,date,integer,number,string',
                'spec.additionalPrinterColumns[1].format: Invalid value: "bar": '
                'must be one of byte,date,date-time,double,float,int32,int64,password',
                'spec.additionalPrinterColumns[1].JSONPath: Invalid value: "spec": must be a simple json path starting with .',
            ],
            id='columns',
        ),
        pytest.param(
            {
                'subresources': {
                    'scale': {
                        'specReplicasPath': 'spec.x',
                        'statusReplicasPath': '.spec.x',
                        'labelSelectorPath': '.foo',
                    }
                }
            },
            [
                'spec.subresources.scale.specReplicasPath: Invalid value: "spec.x": must be a simple json path starting with .',
                'spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.x": should be a json path under .status',
                'spec.subresources.scale.labelSelectorPath: Invalid value: ".foo": '
                'should be a json path under either .spec or .status',
            ],
            id='scale',
        ),
        pytest.param(
            {
                'selectableFields': [
                    {},
                    {'jsonPath': '.spec.zz'},
                    {'jsonPath': '.spec.a'},
                    {'jsonPath': '.spec.a'},
                    {'jsonPath': '.spec'},
                    {'jsonPath': 'spec.a'},
                    {'jsonPath': '.spec[0]'},
                ]
            },
            [
                'spec.selectableFields[0].jsonPath: Required value',
                'spec.selectableFields[1].jsonPath: Invalid value: ".spec.zz": '
                'is an invalid path: does not refer to a valid field',
                'spec.selectableFields[3].jsonPath: Duplicate value: ".spec.a"',
                'spec.selectableFields[4].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or '
                'integer. Enum string fields and strings with formats are allowed.',
                'spec.selectableFields[5].jsonPath: Invalid value: "spec.a": is an invalid path: expected [ or . but got: spec',
                'spec.selectableFields[6].jsonPath: Invalid value: ".spec[0]": '
                'is an invalid path: array notation is not allowed',
            ],
            id='selectable',
        ),
        pytest.param(
            {'deprecationWarning': 'x'},
            [
                'spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions'
            ],
            id='not-deprecated',
        ),
        pytest.param(
            {'deprecated': True, 'deprecationWarning': ''},
            ['spec.versions[0].deprecationWarning: Invalid value: "": must not be an empty string'],
            id='empty-warning',
        ),
        pytest.param(
            {'deprecated': True, 'deprecationWarning': 'a\nb'},
            [
                'spec.versions[0].deprecationWarning: Invalid value: "a\\nb": must only contain printable UTF-8 characters; '
                'non-printable character found at index 1'
            ],
            id='unprintable-warning',
        ),
    ],
)
def test_bad_versions_are_refused(version, expected):
    assert validate(make_crd(**version)) == expected


@pytest.mark.parametrize(
    'second, expected',
    [
        pytest.param(
            {'name': 'v2', 'storage': True},
            [
                f'spec.versions: Invalid value: [{VERSION_SHOWN % ("v1", "true")},{VERSION_SHOWN % ("v2", "true")}]: '
                'must have exactly one version marked as storage version',
                'status.storedVersions: Invalid value: ["v1"]: must have the storage version v2',
            ],
            id='two-storage-versions',
        ),
        pytest.param(
            {'name': 'v1'},
            [
                f'spec.versions: Invalid value: [{VERSION_SHOWN % ("v1", "true")},{VERSION_SHOWN % ("v1", "false")}]: '
                'must contain unique version names'
            ],
            id='same-names',
        ),
        pytest.param(
            {'name': 'v2', 'schema': {'openAPIV3Schema': make_schema({})}},
            [
                f'spec.versions[1].schema.openAPIV3Schema.{X}.type: Required value: '
                'must not be empty for specified object fields'
            ],
            id='schemas-of-their-own',
        ),
        pytest.param(
            {'name': 'v2', 'schema': None},
            ['spec.versions[1].schema.openAPIV3Schema: Required value'],
            id='one-schema',
        ),
        pytest.param(
            {
                'name': 'v2',
                'subresources': {'scale': {}},
                'additionalPrinterColumns': [{'name': 'a'}],
            },
            [
                'spec.versions[1].subresources.scale.specReplicasPath: Required value',
                'spec.versions[1].subresources.scale.statusReplicasPath: Required value',
                'spec.versions[1].additionalPrinterColumns[0].type: Required value: '
                'must be one of boolean,date,integer,number,string',
                'spec.versions[1].additionalPrinterColumns[0].JSONPath: Required value',
            ],
            id='parts-of-their-own',
        ),
    ],
)
def test_versions_are_checked_together(second, expected):
    body = make_crd()
    body['spec']['versions'].append({**body['spec']['versions'][0], 'storage': False, **second})

    assert validate(body) == expected


@pytest.mark.parametrize(
    'annotation, expected',
    [
        pytest.param(
            '',
            [
                'metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have '
                f'approval annotation "api-approved.kubernetes.io", {ADVICE}'
            ],
            id='none',
        ),
        pytest.param(
            'foo',
            [
                'metadata.annotations[api-approved.kubernetes.io]: Invalid value: "foo": protected groups '
                'must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason '
                f'starting with "unapproved", {ADVICE}'
            ],
            id='bad',
        ),
        pytest.param('unapproved, for tests', [], id='bypassed'),
        pytest.param('https://github.com/kubernetes/kubernetes/pull/1', [], id='approved'),
    ],
)
def test_groups_of_kubernetes_need_an_approval(annotation, expected):
    body = make_crd()
    body['spec']['group'] = 'foo.k8s.io'
    body['metadata'] = {
        'name': 'bads.foo.k8s.io',
        'annotations': {'api-approved.kubernetes.io': annotation},
    }

    assert validate(body) == expected
