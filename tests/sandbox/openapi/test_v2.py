import json
import struct

import pytest

from kopf._sandbox.codec import wire_format
from kopf._sandbox.openapi import v2

KEY = {'type': 'apiKey', 'description': 'By a token', 'name': 'authorization', 'in': 'header'}


def encode(definitions):
    return v2.encode(
        {
            'swagger': '2.0',
            'info': {'title': 'Kubernetes', 'version': '1.35'},
            'paths': {},
            'definitions': definitions,
            'securityDefinitions': {'Token': KEY},
            'security': [{'Token': ['all']}],
        }
    )


def read(raw):
    """Read the fields of a message: lists of values by the numbers."""
    fields = {}
    for number, _, value in wire_format.read_fields(raw, 'Message'):
        fields.setdefault(number, []).append(value)
    return fields


def read_schema(schema):
    """Encode a schema as the only definition of a document, and read it back."""
    [definitions] = read(encode({'Name': schema}))[9]
    [definition] = read(definitions)[1]
    return read(read(definition)[2][0])


def test_document_has_its_header_and_security():
    document = read(encode({}))

    assert document[1] == [b'2.0']
    assert read(document[2][0]) == {1: [b'Kubernetes'], 2: [b'1.35']}
    assert document[8] == document[9] == [b'']
    [requirement] = [read(item) for item in read(document[12][0])[1]]
    assert requirement == {1: [b'Token'], 2: [b'\x0a\x03all']}
    [scheme] = [read(item) for item in read(document[13][0])[1]]
    assert scheme[1] == [b'Token']
    assert read(read(scheme[2][0])[2][0]) == {
        1: [b'apiKey'],
        2: [b'authorization'],
        3: [b'header'],
        4: [b'By a token'],
    }


def test_definitions_keep_their_names_and_order():
    [definitions] = read(encode({'b.Kind': {}, 'a.Kind': {}}))[9]

    assert [read(definition)[1] for definition in read(definitions)[1]] == [
        [b'b.Kind'],
        [b'a.Kind'],
    ]


@pytest.mark.parametrize(
    'schema, number, expected',
    [
        pytest.param({'$ref': '#/definitions/X'}, 1, [b'#/definitions/X'], id='ref'),
        pytest.param({'format': 'int32'}, 2, [b'int32'], id='format'),
        pytest.param({'description': 'Größe'}, 4, ['Größe'.encode()], id='description'),
        pytest.param(
            {'maximum': 1.5}, 7, [int.from_bytes(struct.pack('<d', 1.5), 'little')], id='maximum'
        ),
        pytest.param({'exclusiveMinimum': True}, 10, [1], id='exclusive-minimum'),
        pytest.param({'maxLength': 300}, 11, [300], id='max-length'),
        pytest.param({'minLength': -1}, 12, [2**64 - 1], id='negative'),
        pytest.param({'pattern': '^a+$'}, 13, [b'^a+$'], id='pattern'),
        pytest.param({'required': ['a', 'b']}, 19, [b'a', b'b'], id='required'),
        pytest.param({'enum': ['a', 1]}, 20, [b'\x12\x04"a"\n', b'\x12\x021\n'], id='enum'),
        pytest.param({'additionalProperties': True}, 21, [b'\x10\x01'], id='any-properties'),
        pytest.param(
            {'additionalProperties': {'format': 'x'}},
            21,
            [b'\x0a\x03\x12\x01x'],
            id='properties-of-a-kind',
        ),
        pytest.param({'type': 'string'}, 22, [b'\x0a\x06string'], id='type'),
        pytest.param({'items': {'format': 'x'}}, 23, [b'\x0a\x03\x12\x01x'], id='items'),
        pytest.param(
            {'properties': {'f': {'format': 'x'}}},
            25,
            [b'\x0a\x08\x0a\x01f\x12\x03\x12\x01x'],
            id='properties',
        ),
    ],
)
def test_schema_has_its_fields(schema, number, expected):
    assert read_schema(schema) == {number: expected}


def test_extensions_are_texts_of_json():
    kinds = [{'group': '', 'kind': 'Pod', 'version': 'v1'}]

    [extension] = [
        read(item) for item in read_schema({'x-kubernetes-group-version-kind': kinds})[31]
    ]

    assert extension[1] == [b'x-kubernetes-group-version-kind']
    assert json.loads(read(extension[2][0])[2][0]) == kinds


def test_what_the_format_cannot_express_is_left_out():
    assert read_schema({'nullable': True, 'anyOf': [{}], 'default': 1}) == {}


def test_long_contents_have_long_lengths():
    text = 'x' * 1000

    assert read_schema({'description': text})[4] == [text.encode()]
