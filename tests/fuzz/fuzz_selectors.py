"""
Small notations, one in each line: selectors of labels, fields and resources, quantities, paths,
patterns, versions.

All of them are read or refused, by all who read such lines.
"""

from collections.abc import Callable
from typing import Any

from kopf._cogs.configs import selections
from kopf._cogs.structs import dicts, references, selectors
from kopf._sandbox.meta import errors, quantities, request_info
from kopf._sandbox.meta import selectors as label_selectors
from kopf._sandbox.schema import formats, jsonpaths, patterns

RESOURCES = [
    references.Resource(
        'kopf.dev',
        'v1',
        'kopfexamples',
        kind='KopfExample',
        singular='kopfexample',
        shortcuts=frozenset({'kex'}),
    ),
    references.Resource(
        '', 'v1', 'pods', kind='Pod', singular='pod', categories=frozenset({'all'})
    ),
]
LABELS: dict[str, str] = {'a': 'x', 'b': '5', 'c/d': ''}
OBJECT = {
    'metadata': {'name': 'x', 'labels': LABELS},
    'spec': {'list': [{'a': 1}, {'a': 'x'}], 'deep': {'er': [1, 2, [3]]}},
}


def check(source: bytes) -> None:
    for line in source.decode('utf-8', 'surrogateescape').split('\n'):
        for fn in CHECKS:
            fn(line)


def _check_label_selector(text: str) -> None:
    selector = label_selectors.parse_labels(text)
    assert isinstance(selector.matches(LABELS), bool)
    assert isinstance(selector.matches({}), bool)
    labels_matching = {
        requirement.key: next(iter(requirement.values))
        for requirement in selector.requirements
        if requirement.operator == 'in'
    }
    if len(labels_matching) == len(selector.requirements):
        assert selector.matches(labels_matching), 'the selector does not select what it names'


def _check_field_selector(text: str) -> None:
    assert isinstance(label_selectors.parse_fields(text).matches({'metadata.name': 'x'}), bool)


def _check_resource_selector(text: str) -> None:
    selector = selectors.parse_selector(text)
    assert selectors.parse_selector(selector) == selector
    assert selections.Selections({text: 'x'})[selector] == 'x'
    for resource in RESOURCES:
        assert isinstance(selector.matches(resource), bool)


def _check_namespace_pattern(text: str) -> None:
    assert isinstance(references.match_namespace('ns', text), bool)


def _check_field(text: str) -> None:
    path = dicts.parse_field(text)
    dicts.resolve(OBJECT, path)
    dicts.cut(OBJECT, path)
    if path:
        copied = dicts.plain(OBJECT)
        dicts.ensure(copied, path, 'new')
        assert dicts.resolve(copied, path) == 'new'
        dicts.remove(copied, path)
        assert not dicts.has(copied, path)


def _check_quantity(text: str) -> None:
    canonical = quantities.format_quantity(text)
    assert quantities.format_quantity(canonical) == canonical, 'the canonical form is not canonical'


def _check_json_path(text: str) -> None:
    jsonpaths.compile_path(text).find(OBJECT)


def _check_pattern(text: str) -> None:
    if len(text) < 50:
        patterns.compile_pattern(text)


def _check_formats(text: str) -> None:
    for name in (
        'date',
        'date-time',
        'duration',
        'email',
        'uri',
        'hostname',
        'ipv4',
        'ipv6',
        'cidr',
        'mac',
        'isbn',
    ):
        check_format = formats.find_check(name)
        assert check_format is None or isinstance(check_format(text), bool)


def _check_path(text: str) -> None:
    target = request_info.parse_path(text)
    if target is not None:
        request_info.detect_verb('GET', target, {})


def _refusing(fn: Callable[[str], None], *refusals: type[Exception]) -> Callable[[str], None]:
    """Let the function refuse in these ways, and only in these."""

    def check_line(text: str) -> Any:
        try:
            fn(text)
        except refusals:
            pass

    return check_line


CHECKS = [
    _refusing(_check_label_selector, errors.ApiError),
    _refusing(_check_field_selector, errors.ApiError),
    _refusing(_check_resource_selector, TypeError),
    _check_namespace_pattern,
    _check_field,
    _refusing(_check_quantity, quantities.QuantityError),
    _refusing(_check_json_path, ValueError),
    _refusing(_check_pattern, patterns.PatternError),
    _check_formats,
    _check_path,
]
