"""
Bodies in protobuf: of real clients, made by hand, and broken in all ways.
"""

import base64
import struct
from typing import Any

import protobuf_samples
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kopf._sandbox import clusters
from kopf._sandbox.codec import protobuf, wire_format
from kopf._sandbox.endpoints import negotiation, verbs
from kopf._sandbox.meta import builtins, errors, kinds, requests

PROTOBUF = 'application/vnd.kubernetes.protobuf'
META = 'io.k8s.apimachinery.pkg.apis.meta.v1'
CRD = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1'
INT_OR_STRING = 'io.k8s.apimachinery.pkg.util.intstr.IntOrString'
QUANTITY = 'io.k8s.apimachinery.pkg.api.resource.Quantity'
RAW = 'io.k8s.apimachinery.pkg.runtime.RawExtension'
CORE = 'io.k8s.api.core.v1'
MESSAGES = protobuf._load_messages()
CAPTURED = protobuf_samples.CAPTURED

encode_varint, number, content = (
    protobuf_samples.encode_varint,
    protobuf_samples.number,
    protobuf_samples.content,
)
envelope, named = protobuf_samples.envelope, protobuf_samples.named


@pytest.mark.parametrize(
    'raw, expected', [pytest.param(*value, id=key) for key, value in CAPTURED.items()]
)
def test_bodies_of_real_clients_are_decoded(raw: str, expected: dict[str, Any]) -> None:
    assert protobuf.decode_object(base64.b64decode(raw), '', '') == expected


@pytest.mark.parametrize(
    'message, raw, expected',
    [
        pytest.param(f'{META}.Time', b'', None, id='zero-time'),
        pytest.param(f'{META}.Time', number(1, 0), '1970-01-01T00:00:00Z', id='epoch'),
        pytest.param(
            f'{META}.Time',
            number(1, 1577934245) + number(2, 999),
            '2020-01-02T03:04:05Z',
            id='time',
        ),
        pytest.param(
            f'{META}.Time', number(1, -62135596800 + 1), '0001-01-01T00:00:01Z', id='ancient-time'
        ),
        pytest.param(f'{META}.MicroTime', b'', None, id='zero-microtime'),
        pytest.param(
            f'{META}.MicroTime',
            number(1, 1) + number(2, 1999),
            '1970-01-01T00:00:01.000001Z',
            id='microtime',
        ),
        pytest.param(f'{META}.FieldsV1', content(1, '{"f:a":{}}'), {'f:a': {}}, id='fields'),
        pytest.param(INT_OR_STRING, number(1, 0) + number(2, -7), -7, id='number-of-both'),
        pytest.param(INT_OR_STRING, number(1, 1) + content(3, '5%'), '5%', id='text-of-both'),
        pytest.param(INT_OR_STRING, b'', 0, id='neither-of-both'),
        pytest.param(QUANTITY, content(1, '1Gi'), '1Gi', id='quantity'),
        pytest.param(QUANTITY, b'', '0', id='zero-quantity'),
        pytest.param(RAW, content(1, '{"a":[1]}'), {'a': [1]}, id='raw'),
        pytest.param(RAW, b'', None, id='no-raw'),
        pytest.param(
            'io.k8s.api.authorization.v1.ExtraValue',
            content(1, 'a') + content(1, 'b'),
            ['a', 'b'],
            id='extra',
        ),
        pytest.param(f'{CRD}.JSON', content(1, 'false'), False, id='json'),
        pytest.param(
            f'{CRD}.JSONSchemaPropsOrArray',
            content(1, content(5, 'x')),
            {'type': 'x'},
            id='schema-not-list',
        ),
        pytest.param(
            f'{CRD}.JSONSchemaPropsOrArray',
            content(2, b'') + content(2, content(5, 'x')),
            [{}, {'type': 'x'}],
            id='list-not-schema',
        ),
        pytest.param(f'{CRD}.JSONSchemaPropsOrBool', number(1, 1), True, id='allows'),
        pytest.param(f'{CRD}.JSONSchemaPropsOrBool', number(1, 0), False, id='allows-not'),
        pytest.param(
            f'{CRD}.JSONSchemaPropsOrBool', number(1, 1) + content(2, b''), {}, id='schema-not-flag'
        ),
        pytest.param(
            f'{CRD}.JSONSchemaPropsOrStringArray', content(2, 'a'), ['a'], id='names-not-schema'
        ),
        pytest.param(
            f'{CRD}.JSONSchemaPropsOrStringArray', content(1, b''), {}, id='schema-not-names'
        ),
        pytest.param(
            f'{CRD}.JSONSchemaProps',
            b'\x49' + struct.pack('<d', 2.5),
            {'maximum': 2.5},
            id='fraction',
        ),
        pytest.param(
            f'{CRD}.JSONSchemaProps',
            b'\x49' + struct.pack('<d', 1e30),
            {'maximum': 1e30},
            id='large-double',
        ),
        pytest.param(
            f'{META}.DeleteOptions',
            number(1, 0) + content(4, 'Orphan') + content(5, 'All'),
            {'gracePeriodSeconds': 0, 'propagationPolicy': 'Orphan', 'dryRun': ['All']},
            id='delete-options',
        ),
        pytest.param(
            f'{META}.DeleteOptions', number(1, -1), {'gracePeriodSeconds': -1}, id='negative'
        ),
        pytest.param(
            'io.k8s.api.autoscaling.v1.ScaleSpec',
            number(1, 2**32 - 1),
            {'replicas': -1},
            id='negative-32',
        ),
        pytest.param(
            f'{CORE}.PodSecurityContext',
            number(4, 1) + number(4, -2),
            {'supplementalGroups': [1, -2]},
            id='numbers-one-by-one',
        ),
        pytest.param(
            f'{CORE}.PodSecurityContext',
            content(4, encode_varint(1) + encode_varint(-2)) + number(4, 3),
            {'supplementalGroups': [1, -2, 3]},
            id='packed-numbers',
        ),
        pytest.param(
            f'{CORE}.ConfigMap',
            content(2, content(1, 'k')) + content(3, content(1, 'b') + content(2, b'\xff')),
            {'data': {'k': ''}, 'binaryData': {'b': '/w=='}},
            id='maps',
        ),
        pytest.param(
            f'{CORE}.ConfigMap',
            content(2, content(1, 'k') + content(2, b'v\xff\xe2\x82')),
            {'data': {'k': 'v\ufffd\ufffd\ufffd'}},
            id='wrong-utf8',
        ),
        pytest.param(
            f'{CORE}.ConfigMap',
            number(99, 5)
            + content(98, 'x')
            + b'\xfd\x01abcd'
            + b'\xf9\x01abcdefgh'
            + encode_varint(50 << 3 | 3)
            + encode_varint(51 << 3 | 3)
            + number(1, 1)
            + content(2, 'x')
            + encode_varint(51 << 3 | 4)
            + encode_varint(50 << 3 | 4)
            + number(4, 1),
            {'immutable': True},
            id='unknown-fields',
        ),
        pytest.param(
            f'{CORE}.Volume',
            content(1, 'v') + content(2, content(2, b'')),
            {'name': 'v', 'emptyDir': {}},
            id='inlined',
        ),
    ],
)
def test_messages_are_decoded_as_json(message: str, raw: bytes, expected: Any) -> None:
    result = protobuf.decode_message(message, raw)

    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    'api_version, kind',
    [
        pytest.param('v1', '', id='no-kind'),
        pytest.param('', 'ConfigMap', id='no-version'),
        pytest.param('', '', id='nothing'),
    ],
)
def test_expected_kind_is_assumed_if_none_is_named(api_version: str, kind: str) -> None:
    obj = protobuf.decode_object(envelope(api_version, kind, named('x')), 'ConfigMap', 'v1')

    assert obj == {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x'}}


@pytest.mark.parametrize('api_version', ['v1', 'apps/v1', 'meta.k8s.io/v1', 'example.com/v1alpha1'])
def test_options_of_deletion_are_the_same_in_all_groups(api_version: str) -> None:
    raw = envelope(api_version, 'DeleteOptions', content(2, content(1, 'uid-1')))

    obj = protobuf.decode_object(raw, 'DeleteOptions', 'v1')

    assert obj == {
        'apiVersion': api_version,
        'kind': 'DeleteOptions',
        'preconditions': {'uid': 'uid-1'},
    }


UNRECOGNIZED = 'the object provided is unrecognized (must be of type ConfigMap): '
UNHANDLED = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
UNKNOWN_KIND = 'no kind "{}" is registered for version "{}" in scheme "pkg/runtime/scheme.go:111"'
NO_PREFIX = 'provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]'


@pytest.mark.parametrize(
    'raw, message',
    [
        pytest.param(b'', f'{UNRECOGNIZED}empty data (<empty>)', id='empty'),
        pytest.param(b'k8s\0', f'{UNRECOGNIZED}empty body (6b387300)', id='prefix-only'),
        pytest.param(b'{"a":1}', f'{UNRECOGNIZED}{NO_PREFIX} ({{"a":1}})', id='json'),
        pytest.param(b'\x01' * 50, f'{UNRECOGNIZED}{NO_PREFIX} ({"01" * 30} ...)', id='bytes'),
        pytest.param(
            b'k8s\0\x0a\x20abc',
            f'{UNRECOGNIZED}unexpected EOF (6b3873000a20616263)',
            id='truncated-envelope',
        ),
        pytest.param(
            b'k8s\0' + number(1, 1),
            f'{UNRECOGNIZED}proto: wrong wireType = 0 for field 1 of Unknown (6b3873000801)',
            id='wrong-envelope',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\x0a\x20abc'),
            f'{UNHANDLED}unexpected EOF',
            id='truncated',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\x0a'),
            f'{UNHANDLED}unexpected EOF',
            id='truncated-length',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\xfd\x01ab'),
            f'{UNHANDLED}unexpected EOF',
            id='truncated-fixed',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', content(1, number(1, 5))),
            f'{UNHANDLED}proto: wrong wireType = 0 for field Name',
            id='wrong-wire',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', encode_varint(50 << 3 | 7)),
            f'{UNHANDLED}proto: illegal wireType 7',
            id='illegal-wire',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', encode_varint(50 << 3 | 4)),
            f'{UNHANDLED}proto: ConfigMap: wiretype end group for non-group',
            id='end-of-no-group',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', encode_varint(50 << 3 | 3) + number(1, 1)),
            f'{UNHANDLED}unexpected EOF',
            id='endless-group',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\x02\x01'),
            f'{UNHANDLED}proto: ConfigMap: illegal tag 0 (wire type 2)',
            id='illegal-tag',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\xff' * 11),
            f'{UNHANDLED}proto: integer overflow',
            id='overflow',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\x0a' + encode_varint(-1)),
            f'{UNHANDLED}proto: negative length found during unmarshaling',
            id='negative-length',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', b'\x0a' + encode_varint(2**62)),
            f'{UNHANDLED}unexpected EOF',
            id='huge-length',
        ),
        pytest.param(
            envelope('v1', 'Foo', b''),
            f'Foo in version "v1" cannot be handled as a ConfigMap: '
            f'{UNKNOWN_KIND.format("Foo", "v1")}',
            id='unknown-kind',
        ),
        pytest.param(
            envelope('a/v2', 'ConfigMap', b''),
            f'ConfigMap in version "v2" cannot be handled as a ConfigMap: '
            f'{UNKNOWN_KIND.format("ConfigMap", "a/v2")}',
            id='unknown-version',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', content(1, content(9, number(1, 2**62)))),
            f'{UNHANDLED}Time.MarshalJSON: year outside of range [0,9999]',
            id='time-too-far',
        ),
    ],
)
def test_malformed_bodies_are_refused_as_the_api_does(raw: bytes, message: str) -> None:
    with pytest.raises(errors.ApiError) as e:
        protobuf.decode_object(raw, 'ConfigMap', 'v1')

    assert e.value.code == 400
    assert e.value.message == message


@pytest.mark.parametrize(
    'raw, message',
    [
        pytest.param(b'abc', NO_PREFIX, id='prefix'),
        pytest.param(
            envelope('v1', 'DeleteOptions', content(1, b'')),
            'proto: wrong wireType = 2 for field GracePeriodSeconds',
            id='wire',
        ),
        pytest.param(
            envelope('v1', 'ConfigMap', named('x')),
            UNKNOWN_KIND.format('ConfigMap', 'v1'),
            id='kind',
        ),
    ],
)
def test_malformed_options_of_deletion_are_refused_as_the_api_does(
    raw: bytes, message: str
) -> None:
    with pytest.raises(errors.ApiError) as e:
        protobuf.decode_object(raw, 'DeleteOptions', 'v1')

    assert (e.value.code, e.value.message) == (400, message)


def test_wrong_values_are_refused_as_those_in_json() -> None:
    raw = envelope(
        'v1',
        'ResourceQuota',
        content(2, content(1, content(1, 'cpu') + content(2, content(1, 'many')))),
    )

    with pytest.raises(errors.ApiError) as e:
        protobuf.decode_object(raw, 'ResourceQuota', 'v1')

    assert e.value.code == 400
    assert (
        'ResourceQuota in version "v1" cannot be handled as a ResourceQuota: quantities must'
        in e.value.message
    )


def test_broken_json_inside_is_refused() -> None:
    raw = envelope('apps/v1', 'ControllerRevision', content(2, content(1, '{"a":')))

    with pytest.raises(errors.ApiError, match='json parse error') as e:
        protobuf.decode_object(raw, 'ControllerRevision', 'apps/v1')

    assert e.value.code == 400


def test_endless_nesting_is_refused() -> None:
    schema = b''
    for _ in range(1000):
        schema = content(27, schema)

    with pytest.raises(wire_format.MalformedError, match='exceeded max depth'):
        protobuf.decode_message(f'{CRD}.JSONSchemaProps', schema)


def test_deep_schemas_are_decoded() -> None:
    raw = b''
    for _ in range(40):
        raw = content(29, content(1, 'x') + content(2, raw))

    schema = protobuf.decode_message(f'{CRD}.JSONSchemaProps', raw)

    for _ in range(40):
        schema = schema['properties']['x']
    assert schema == {}


def test_all_resources_that_can_be_written_have_messages() -> None:
    names = builtins.load_definition_names()
    written = [
        resource
        for resource in builtins.load_resources()
        if {'create', 'update'} & set(resource.verbs)
    ]

    missing = [
        str(resource)
        for resource in written
        if names[resource.group, resource.version, resource.kind] not in MESSAGES
    ]

    assert written
    assert not missing


def list_names(message: str) -> list[str]:
    """List the names of all fields, with those of the inlined ones."""
    fields = protobuf._load_fields(message).values()
    return [
        name
        for field in fields
        for name in ([field.name] if field.name else list_names(field.type))
    ]


def test_fields_of_messages_are_known_to_their_definitions() -> None:
    definitions = builtins.load_definitions()
    described = [message for message in MESSAGES if 'properties' in definitions.get(message, {})]

    unknown = [
        (message, name)
        for message in described
        for name in list_names(message)
        if name not in definitions[message]['properties']
    ]

    assert described
    assert not unknown


RAW_FIELDS = st.recursive(
    st.one_of(
        st.builds(number, st.integers(1, 40), st.integers(-(2**63), 2**64 - 1)),
        st.builds(content, st.integers(1, 40), st.binary(max_size=10)),
        st.binary(max_size=10),
    ),
    lambda inner: st.builds(content, st.integers(1, 40), st.lists(inner, max_size=3).map(b''.join)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(MESSAGES)), st.lists(RAW_FIELDS, max_size=5).map(b''.join))
def test_any_bytes_are_either_decoded_or_refused(message: str, raw: bytes) -> None:
    try:
        protobuf.decode_message(message, raw)
    except wire_format.MalformedError:
        pass


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(CAPTURED)),
    st.integers(0, 10**6),
    st.binary(max_size=4),
    st.integers(0, 4),
)
@example('configmap', 4, b'', 1000)
def test_damaged_bodies_are_either_decoded_or_refused(
    name: str, place: int, instead: bytes, length: int
) -> None:
    raw = base64.b64decode(CAPTURED[name][0])
    place %= len(raw)
    damaged = raw[:place] + instead + raw[place + length :]

    try:
        obj = protobuf.decode_object(damaged, 'Pod', 'v1')
    except errors.ApiError as e:
        assert e.code == 400
    else:
        assert obj['kind']


@pytest.mark.parametrize(
    'media_type, api_version',
    [
        pytest.param(PROTOBUF, '', id='protobuf-of-custom-objects'),
        pytest.param('text/plain', 'v1', id='texts'),
    ],
)
def test_other_media_types_are_refused_with_those_that_are_not(
    media_type: str, api_version: str
) -> None:
    with pytest.raises(errors.ApiError) as e:
        negotiation.decode_body(b'', media_type, 'ConfigMap', api_version)

    assert e.value.code == 415
    assert e.value.message == (
        'the body of the request was in an unknown format - accepted media types include: '
        'application/json, application/yaml, application/vnd.kubernetes.protobuf'
    )


@pytest.mark.parametrize(
    'raw, shown',
    [
        pytest.param(b'{"a": ' + b'1' * 100, '{"a": 111111111111111111111111 ...', id='object'),
        pytest.param(b'[1,', '5b312c', id='not-object'),
        pytest.param(b'', '<empty>', id='empty'),
    ],
)
def test_unreadable_json_is_shown_in_short(raw: bytes, shown: str) -> None:
    with pytest.raises(errors.ApiError) as e:
        negotiation.decode_body(raw, 'application/json', 'ConfigMap', 'v1')

    assert e.value.message == (
        f"{UNRECOGNIZED}couldn't get version/kind; json parse error: "
        f'unexpected end of JSON input ({shown})'
    )


async def test_objects_are_created_and_deleted_by_bodies_in_protobuf() -> None:
    cluster = clusters.Cluster()
    await cluster.start()
    resource = cluster.catalog.find('', 'v1', 'configmaps')
    assert resource is not None
    handler = verbs.Handler(cluster)
    creation = requests.Request('create', resource, clusters.ADMIN, 'default')
    deletion = requests.Request('delete', resource, clusters.ADMIN, 'default', 'a')
    another = envelope('v1', 'DeleteOptions', content(2, content(1, 'another-uid')))

    created = await handler.handle(
        creation, verbs.Asking(envelope('v1', 'ConfigMap', named('a')), PROTOBUF)
    )
    with pytest.raises(errors.ApiError) as e:
        await handler.handle(deletion, verbs.Asking(another, PROTOBUF))
    await cluster.close()

    assert created.code == 201
    assert cluster.store.get(resource.home, 'default', 'a') is not None
    assert e.value.code == 409


async def test_custom_objects_are_never_in_protobuf() -> None:
    cluster = clusters.Cluster()
    await cluster.start()
    resource = kinds.Resource(
        'kopf.dev', 'v1', 'things', 'thing', 'Thing', True, ('create',), custom=True
    )
    creation = requests.Request('create', resource, clusters.ADMIN, 'default')

    with pytest.raises(errors.ApiError) as e:
        asking = verbs.Asking(envelope('kopf.dev/v1', 'Thing', named('a')), PROTOBUF)
        await verbs.Handler(cluster).handle(creation, asking)
    await cluster.close()

    assert e.value.code == 415
