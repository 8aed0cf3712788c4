import pytest

from kopf._sandbox.meta import naming

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
OLD_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@pytest.mark.parametrize(
    'check, value, expected',
    [
        pytest.param(naming.check_subdomain, 'a.b-c.9', [], id='subdomain-good'),
        pytest.param(naming.check_subdomain, 'A_b', [SUBDOMAIN], id='subdomain-bad'),
        pytest.param(naming.check_subdomain, 'a\n', [SUBDOMAIN], id='subdomain-with-line-break'),
        pytest.param(
            naming.check_subdomain,
            'a' * 254,
            ['must be no more than 253 characters'],
            id='subdomain-long',
        ),
        pytest.param(naming.check_label, 'a-9', [], id='label-good'),
        pytest.param(naming.check_label, 'a.b', ['must not contain dots'], id='label-with-dots'),
        pytest.param(naming.check_label, '-a', [LABEL], id='label-bad'),
        pytest.param(
            naming.check_label, 'a' * 64, ['must be no more than 63 characters'], id='label-long'
        ),
        pytest.param(naming.check_old_label, 'a9', [], id='old-label-good'),
        pytest.param(naming.check_old_label, '9a', [OLD_LABEL], id='old-label-with-digit'),
        pytest.param(naming.check_path_segment, 'system:any Thing', [], id='segment-good'),
        pytest.param(
            naming.check_path_segment,
            'a/b%',
            ["may not contain '/'", "may not contain '%'"],
            id='segment-bad',
        ),
        pytest.param(naming.check_path_segment, '..', ["may not be '..'"], id='segment-dots'),
        pytest.param(naming.check_key, 'example.com/My_Name', [], id='key-good'),
        pytest.param(
            naming.check_key, '/a', ['prefix part must be non-empty'], id='key-with-no-prefix'
        ),
        pytest.param(
            naming.check_key,
            'b/',
            ['name part must be non-empty', f'name part {KEY}'],
            id='key-with-no-name',
        ),
        pytest.param(
            naming.check_key, 'A_/a', [f'prefix part {SUBDOMAIN}'], id='key-with-bad-prefix'
        ),
        pytest.param(
            naming.check_key,
            'a/b/c',
            [
                f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ],
            id='key-with-slashes',
        ),
        pytest.param(
            naming.check_key,
            'a' * 64,
            ['name part must be no more than 63 characters'],
            id='key-long',
        ),
        pytest.param(naming.check_label_value, '', [], id='value-empty'),
        pytest.param(naming.check_label_value, 'c d', [VALUE], id='value-bad'),
        pytest.param(
            naming.check_config_key, '..a', ["must not start with '..'"], id='config-key-with-dots'
        ),
        pytest.param(naming.check_config_key, '.', ["must not be '.'"], id='config-key-of-dot'),
        pytest.param(naming.check_config_key, 'a b', [CONFIG_KEY], id='config-key-bad'),
        pytest.param(naming.check_env_name, 'A b-c', [], id='env-good'),
        pytest.param(
            naming.check_env_name,
            'a=b',
            [
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            ],
            id='env-bad',
        ),
        pytest.param(
            naming.check_port_name,
            '123',
            ['must contain at least one letter (a-z)'],
            id='port-of-digits',
        ),
        pytest.param(
            naming.check_port_name,
            'a--b-',
            ['must not contain consecutive hyphens', 'must not begin or end with a hyphen'],
            id='port-of-hyphens',
        ),
    ],
)
def test_names_are_checked_in_the_words_of_the_api(check, value, expected):
    assert check(value) == expected


@pytest.mark.parametrize(
    'check, prefix, is_good',
    [
        pytest.param(naming.check_subdomain, 'a-', True, id='trailing-dash'),
        pytest.param(naming.check_subdomain, 'AB-', False, id='bad-characters'),
        pytest.param(naming.check_path_segment, '..', True, id='dots-in-segments'),
        pytest.param(naming.check_path_segment, 'a/', False, id='slash-in-segments'),
    ],
)
def test_prefixes_may_end_with_what_names_may_not(check, prefix, is_good):
    assert (not naming.check_prefix(check, prefix)) is is_good
