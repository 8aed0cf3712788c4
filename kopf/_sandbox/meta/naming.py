"""
Naming: the syntax of names, keys, labels and ports, with the API's error messages.

Each check returns the messages about one string; none if the string is valid.
"""

import re
from collections.abc import Callable
from typing import Final

Check = Callable[[str], list[str]]
"""Returns the problems of a string."""

_LABEL: Final = '[a-z0-9]([-a-z0-9]*[a-z0-9])?'
_SUBDOMAIN: Final = rf'{_LABEL}(\.{_LABEL})*'
_OLD_LABEL: Final = '[a-z]([-a-z0-9]*[a-z0-9])?'
_KEY: Final = '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'
_ENDS: Final = 'and must start and end with an alphanumeric character'

_label_regex = re.compile(_LABEL)
_subdomain_regex = re.compile(_SUBDOMAIN)
_old_label_regex = re.compile(_OLD_LABEL)
_key_regex = re.compile(_KEY)
_config_key_regex = re.compile('[-._a-zA-Z0-9]+')
_port_regex = re.compile('[-a-z0-9]+')
_percent_regex = re.compile('[0-9]+%')
_wildcard_regex = re.compile(rf'\*\.{_SUBDOMAIN}')
_env_regex = re.compile(r'[ -<>-~]*')


def _explain(text: str, pattern: str, *examples: str) -> str:
    shown = ' or '.join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_HINT: Final = _explain(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f'{_ENDS}',
    _LABEL,
    'my-name',
    '123-abc',
)
_SUBDOMAIN_HINT: Final = _explain(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', {_ENDS}",
    _SUBDOMAIN,
    'example.com',
)
_OLD_LABEL_HINT: Final = _explain(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    'start with an alphabetic character, and end with an alphanumeric character',
    _OLD_LABEL,
    'my-name',
    'abc-123',
)
_KEY_HINT: Final = _explain(
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    _KEY,
    'MyName',
    'my.name',
    '123-abc',
)
_VALUE_HINT: Final = _explain(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    f"'.', {_ENDS}",
    f'({_KEY})?',
    'MyValue',
    'my_value',
    '12345',
)
_CONFIG_KEY_HINT: Final = _explain(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    '[-._a-zA-Z0-9]+',
    'key.name',
    'KEY_NAME',
    'key-name',
)
_PERCENT_HINT: Final = _explain(
    "a valid percent string must be a numeric string followed by an ending '%'",
    '[0-9]+%',
    '1%',
    '93%',
)
_WILDCARD_HINT: Final = _explain(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which "
    "must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric "
    'character',
    rf'\*\.{_SUBDOMAIN}',
    '*.example.com',
)


def _too_long(value: str, limit: int, unit: str = 'characters') -> list[str]:
    return (
        [f'must be no more than {limit} {unit}']
        if len(value.encode('utf-8', 'surrogatepass')) > limit
        else []
    )


def between(low: int, high: int) -> str:
    return f'must be between {low} and {high}, inclusive'


def check_subdomain(value: str) -> list[str]:
    problems = _too_long(value, 253)
    return problems if _subdomain_regex.fullmatch(value) else [*problems, _SUBDOMAIN_HINT]


def check_label(value: str) -> list[str]:
    problems = _too_long(value, 63)
    if _label_regex.fullmatch(value):
        return problems
    return [
        *problems,
        'must not contain dots' if _subdomain_regex.fullmatch(value) else _LABEL_HINT,
    ]


def check_old_label(value: str) -> list[str]:
    """Check for DNS-1035: as other labels, but beginning with a letter."""
    problems = _too_long(value, 63)
    return problems if _old_label_regex.fullmatch(value) else [*problems, _OLD_LABEL_HINT]


def check_wildcard(value: str) -> list[str]:
    problems = _too_long(value, 253)
    return problems if _wildcard_regex.fullmatch(value) else [*problems, _WILDCARD_HINT]


def check_path_segment(value: str) -> list[str]:
    if value in ('.', '..'):
        return [f"may not be '{value}'"]
    return [f"may not contain '{char}'" for char in '/%' if char in value]


def check_key(value: str) -> list[str]:
    """Check a qualified name: the key of a label, of an annotation, a finalizer, a resource."""
    if _key_regex.fullmatch(value) and len(value) <= 63:
        return []

    prefix, slash, name = value.rpartition('/')
    if '/' in prefix:
        return [
            f"a valid label key {_KEY_HINT} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]

    problems = []
    if slash and not prefix:
        problems.append('prefix part must be non-empty')
    elif slash:
        problems.extend(f'prefix part {problem}' for problem in check_subdomain(prefix))

    if not name:
        problems.append('name part must be non-empty')
    problems.extend(f'name part {problem}' for problem in _too_long(name, 63))
    if not _key_regex.fullmatch(name):
        problems.append(f'name part {_KEY_HINT}')
    return problems


def check_label_value(value: str) -> list[str]:
    problems = _too_long(value, 63, 'bytes')
    return problems if not value or _key_regex.fullmatch(value) else [*problems, _VALUE_HINT]


def check_config_key(value: str) -> list[str]:
    problems = _too_long(value, 253)
    if not _config_key_regex.fullmatch(value):
        problems.append(_CONFIG_KEY_HINT)
    if value in ('.', '..'):
        problems.append(f"must not be '{value}'")
    elif value.startswith('..'):
        problems.append("must not start with '..'")

    return problems


def check_env_name(value: str) -> list[str]:
    if not value:
        return ['environment variable name must be non-empty']
    if _env_regex.fullmatch(value):
        return []
    return [
        'a valid environment variable name must consist only of printable ASCII characters other '
        "than '='"
    ]


def check_port(value: int) -> list[str]:
    return [] if 1 <= value <= 65535 else [between(1, 65535)]


def check_port_name(value: str) -> list[str]:
    problems = _too_long(value, 15)
    if not _port_regex.fullmatch(value):
        problems.append('must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)')
    if not any('a' <= char <= 'z' for char in value):
        problems.append('must contain at least one letter (a-z)')
    if '--' in value:
        problems.append('must not contain consecutive hyphens')
    if value.startswith('-') or value.endswith('-'):
        problems.append('must not begin or end with a hyphen')
    return problems


def check_percent(value: str) -> list[str]:
    return [] if _percent_regex.fullmatch(value) else [_PERCENT_HINT]


def check_prefix(check: Check, prefix: str) -> list[str]:
    """Check a prefix of generated names: unlike names, it may end with a dash."""
    if check is check_path_segment:
        return check_path_segment(f'{prefix}x')
    # The API masks two characters, not one: "A-" passes as a prefix, and then fails as a name.
    return check(f'{prefix[:-2]}a' if len(prefix) > 1 and prefix.endswith('-') else prefix)
