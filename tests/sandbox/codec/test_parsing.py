"""
What the API says of malformed JSON, and how it reads numbers.
"""

import pytest

from kopf._sandbox.codec import parsing
from kopf._sandbox.endpoints import negotiation


@pytest.mark.parametrize(
    'raw, message',
    [
        pytest.param(b'', 'unexpected end of JSON input', id='empty'),
        pytest.param(b'[1,', 'unexpected end of JSON input', id='truncated'),
        pytest.param(b'{"a":"b', 'unexpected end of JSON input', id='truncated-string'),
        pytest.param(
            b'hello: world', "invalid character 'h' looking for beginning of value", id='text'
        ),
        pytest.param(
            b'{"a":NaN}', "invalid character 'N' looking for beginning of value", id='nan'
        ),
        pytest.param(b'[-Infinity]', "invalid character 'I' in numeric literal", id='infinity'),
        pytest.param(
            b'\xff\xfe', "invalid character '\xff' looking for beginning of value", id='bytes'
        ),
        pytest.param(
            b"{'a':1}",
            r"invalid character '\'' looking for beginning of object key string",
            id='quotes',
        ),
        pytest.param(
            b'{"a":1,}',
            "invalid character '}' looking for beginning of object key string",
            id='comma-in-object',
        ),
        pytest.param(
            b'[1,]', "invalid character ']' looking for beginning of value", id='comma-in-list'
        ),
        pytest.param(b'{"a" 1}', "invalid character '1' after object key", id='no-colon'),
        pytest.param(
            b'{"a":{"[":1} "b"}',
            """invalid character '"' after object key:value pair""",
            id='no-comma-in-map',
        ),
        pytest.param(
            b'{"a":[{"b":1} 2]}', "invalid character '2' after array element", id='no-comma-in-list'
        ),
        pytest.param(b'{"a":1}}', "invalid character '}' after top-level value", id='extra'),
        pytest.param(
            b'nul', "invalid character ' ' in literal null (expecting 'l')", id='literal-truncated'
        ),
        pytest.param(
            b'trux', "invalid character 'x' in literal true (expecting 'e')", id='literal'
        ),
        pytest.param(b'{"a":-x}', "invalid character 'x' in numeric literal", id='minus'),
        pytest.param(
            b'{"a":1.x}', "invalid character 'x' after decimal point in numeric literal", id='point'
        ),
        pytest.param(
            b'{"a":1e}', "invalid character '}' in exponent of numeric literal", id='exponent'
        ),
        pytest.param(
            b'{"a":01}', "invalid character '1' after object key:value pair", id='leading-zero'
        ),
        pytest.param(rb'"\q"', "invalid character 'q' in string escape code", id='escape'),
        pytest.param(
            rb'{"a":"\u12x4"}',
            r"invalid character 'x' in \u hexadecimal character escape",
            id='hexadecimal',
        ),
        pytest.param(b'{"a":"\n"}', r"invalid character '\n' in string literal", id='line-break'),
        pytest.param(b'[1e999]', 'there is a number out of range', id='huge'),
    ],
)
def test_malformed_json_is_explained_in_the_words_of_the_api(raw, message):
    with pytest.raises(ValueError) as e:
        parsing.parse_json(raw)

    assert str(e.value) == message


def test_bytes_of_strings_that_are_no_text_are_replaced():
    assert parsing.parse_json(b'{"a":"x\xffy"}') == {'a': 'x\ufffdy'}


@pytest.mark.parametrize(
    'raw, expected',
    [
        pytest.param(b'1.0', '1', id='whole'),
        pytest.param(b'[{"a":-1e3}]', "[{'a': -1000}]", id='nested'),
        pytest.param(b'-0.0', '0', id='zero'),
        pytest.param(b'1.5', '1.5', id='fraction'),
        pytest.param(b'1e18', '1e+18', id='inexact'),
        pytest.param(b'9223372036854775807', '9223372036854775807', id='largest'),
        pytest.param(b'9223372036854775808', '9.223372036854776e+18', id='too-large'),
        pytest.param(b'[true, "1.0", null]', "[True, '1.0', None]", id='others'),
    ],
)
def test_numbers_of_custom_objects_and_patches_are_normalized(raw, expected):
    assert repr(negotiation.decode_body(raw, 'application/json', 'Thing')) == expected
    assert repr(negotiation.decode_patch(raw, custom=True)) == expected


def test_numbers_of_built_in_objects_stay_as_they_are():
    assert repr(negotiation.decode_body(b'1.0', 'application/json', 'ConfigMap', 'v1')) == '1.0'
    assert repr(negotiation.decode_patch(b'1.0')) == '1.0'
