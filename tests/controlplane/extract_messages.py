"""
Extract how the built-in objects look in protobuf, from the sources of Kubernetes.

Reads the declarations of the messages (``generated.proto``) in the Go modules, joins them with the
definitions that the sandbox has already (``schemas.json``), and writes ``messages.json``: for each
message, its fields by numbers. Each field is its name in JSON and its type: ``spec PodSpec``,
``ports []ContainerPort``, ``data map[string]bytes``. The types from other packages have their full
names. A field without a name is inlined: JSON has its fields instead. To be run by hand when the
sandbox moves to another version of Kubernetes, after ``extract_definitions.py``::

    python tests/controlplane/extract_messages.py --modules ~/go/pkg/mod/k8s.io --version v0.35.4
"""

import argparse
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import extract_definitions

MODULES = ('api', 'apimachinery', 'apiextensions-apiserver', 'kube-aggregator')
EXTRAS = (  # not the kinds of any resource, but sent in requests
    'io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions',
    'io.k8s.api.autoscaling.v1.Scale',
    'io.k8s.api.policy.v1.Eviction',
    'io.k8s.api.authentication.v1.TokenRequest',
)
SCALARS = frozenset(('string', 'bytes', 'bool', 'int32', 'int64', 'double'))

PACKAGE = re.compile(r'^package (?P<name>[\w.]+);$', re.MULTILINE)
MESSAGE = re.compile(r'^message (?P<name>\w+) \{\n(?P<fields>.*?)^\}$', re.MULTILINE | re.DOTALL)
FIELD = re.compile(
    r'^ +(?P<label>optional|repeated|map<string,) *(?P<type>[\w.]+)>? (?P<name>\w+) = (?P<number>\d+);$',
    re.MULTILINE,
)


class Field(NamedTuple):
    name: str
    prefix: str  # [] or map[string], or nothing for single values
    type: str  # the full name of a message, or a scalar


Messages = Mapping[str, Mapping[int, Field]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--modules', required=True, type=pathlib.Path, help="the directory of Kubernetes' modules"
    )
    parser.add_argument('--version', required=True, help='the version of these modules')
    parser.add_argument(
        '--definitions',
        type=pathlib.Path,
        help='the directory of the files',
        default=pathlib.Path(__file__).parents[2] / 'kopf' / '_sandbox' / 'meta' / 'definitions',
    )
    options = parser.parse_args()
    definitions = json.loads((options.definitions / 'schemas.json').read_bytes())
    resources = json.loads((options.definitions / 'resources.json').read_bytes())
    roots = {resource['definition'] for resource in resources} | set(EXTRAS)
    declared: dict[str, dict[int, Field]] = {}
    for module in MODULES:
        for path in sorted(
            (options.modules / f'{module}@{options.version}').rglob('generated.proto')
        ):
            declared.update(parse_file(path.read_text()))
    needed = select_messages(declared, roots)
    extract_definitions.write_lines(
        options.definitions / 'messages.json',
        {
            name: {
                str(number): render_field(name, field, definitions)
                for number, field in sorted(declared[name].items())
            }
            for name in sorted(needed)
        },
    )


def parse_file(text: str) -> Iterator[tuple[str, dict[int, Field]]]:
    """Parse all messages of one file; the names are as in the definitions."""
    package = ''.join(match['name'] for match in PACKAGE.finditer(text))
    for message in MESSAGE.finditer(text):
        fields = {}
        for field in FIELD.finditer(message['fields']):
            type_ = (
                field['type'] if field['type'] in SCALARS else convert_name(field['type'], package)
            )
            prefix = {'optional': '', 'repeated': '[]'}.get(field['label'], 'map[string]')
            fields[int(field['number'])] = Field(field['name'], prefix, type_)
        yield convert_name(message['name'], package), fields


def convert_name(name: str, package: str) -> str:
    """
    Convert the names as in ``.k8s.io.api.core.v1.Pod`` to those as in ``io.k8s.api.core.v1.Pod``.
    """
    full_name = name.removeprefix('.') if name.startswith('.') else f'{package}.{name}'
    full_name = full_name.replace('k8s.io.', 'io.k8s.', 1)
    return re.sub(r'^(io\.k8s\.)(apiextensions|kube)_', r'\1\2-', full_name)


def select_messages(declared: Messages, roots: set[str]) -> set[str]:
    """Find all messages that are reachable from these."""
    needed: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(
                field.type for field in declared[name].values() if field.type not in SCALARS
            )
    return needed


def render_field(owner: str, field: Field, definitions: Mapping[str, Any]) -> str:
    package, _, _ = owner.rpartition('.')
    own = field.type.removeprefix(f'{package}.')
    type_ = own if '.' not in own else field.type
    properties = definitions.get(owner, {}).get('properties')
    # The message has no fields in JSON: it is either inlined, or written in a way of its own.
    if properties is None:
        return f'{field.name} {"json" if type_ == "bytes" else field.prefix + type_}'
    return f'{find_name(owner, field, properties)} {field.prefix}{type_}'


def find_name(owner: str, field: Field, properties: Mapping[str, Any]) -> str:
    """
    Find how JSON names the field: the same, or nearly the same, or in no way if its own fields
    stand for it.
    """
    names = {re.sub(r'\W', '', name).lower(): name for name in properties}
    if field.name in properties:
        return field.name
    if field.name.lower() in names:
        return names[field.name.lower()]
    if field.type in SCALARS or field.prefix:
        raise ValueError(f'The field {field.name} of {owner} is not known in JSON.')
    return ''


if __name__ == '__main__':
    main()
