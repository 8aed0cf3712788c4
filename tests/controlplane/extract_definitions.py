"""
Extract what the sandbox knows about the built-in resources from a live cluster.

Reads the discovery and OpenAPI v3 of a real kube-apiserver, and writes two files for the sandbox:
``resources.json`` (what is served) and ``schemas.json`` (the definitions of the objects, without
any prose). To be run by hand when the sandbox moves to another version of Kubernetes::

    python tests/controlplane/extract_definitions.py --kubectl kubectl --kubeconfig ~/.kube/config
"""

import argparse
import json
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

SERVED = (
    '',
    'apiregistration.k8s.io',
    'apps',
    'events.k8s.io',
    'authentication.k8s.io',
    'authorization.k8s.io',
    'autoscaling',
    'batch',
    'certificates.k8s.io',
    'networking.k8s.io',
    'policy',
    'rbac.authorization.k8s.io',
    'storage.k8s.io',
    'admissionregistration.k8s.io',
    'apiextensions.k8s.io',
    'scheduling.k8s.io',
    'coordination.k8s.io',
    'node.k8s.io',
    'discovery.k8s.io',
    'flowcontrol.apiserver.k8s.io',
    'resource.k8s.io',
)
META = 'io.k8s.apimachinery.pkg.apis.meta.v1'
EXTRAS = (  # not the kinds of any resource, but used in requests and responses
    f'{META}.DeleteOptions',
    f'{META}.Patch',
    f'{META}.Status',
    f'{META}.WatchEvent',
    'io.k8s.api.autoscaling.v1.Scale',
    'io.k8s.api.policy.v1.Eviction',
    'io.k8s.api.authentication.v1.TokenRequest',
)
FACTS = ('kind', 'namespaced', 'verbs', 'shortNames', 'categories')
SUBSCHEMAS = ('items', 'additionalProperties', 'not')
SUBSCHEMA_LISTS = ('allOf', 'oneOf', 'anyOf')
UNSERVED = {('autoscaling', 'v1')}  # its objects are stored as v2, and not convertible without loss
REF_PREFIX = '#/components/schemas/'
GVK = 'x-kubernetes-group-version-kind'

Reader = Callable[[str], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--kubectl', default='kubectl', help='the kubectl to use')
    parser.add_argument('--kubeconfig', required=True, help='the kubeconfig of the cluster to read')
    parser.add_argument(
        '--into',
        type=pathlib.Path,
        help='the directory for the files',
        default=pathlib.Path(__file__).parents[2] / 'kopf' / '_sandbox' / 'meta' / 'definitions',
    )
    options = parser.parse_args()

    def read(path: str) -> Any:
        command = [options.kubectl, '--kubeconfig', options.kubeconfig, 'get', '--raw', path]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    resources, definitions = extract(read)
    options.into.mkdir(parents=True, exist_ok=True)
    write_lines(options.into / 'resources.json', resources)
    write_lines(options.into / 'schemas.json', definitions)


def extract(read: Reader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    resources: list[dict[str, Any]] = []
    known: dict[str, Any] = {}
    for prefix, group, version in select_versions(read('/apis')['groups']):
        document = read(f'/openapi/v3{prefix}')
        kinds = {
            (gvk['group'], gvk['version'], gvk['kind']): name
            for name, definition in document['components']['schemas'].items()
            for gvk in definition.get(GVK, ())
        }
        served = select_resources(read(prefix)['resources'], group=group, version=version)
        resources.extend(
            {**resource, 'definition': kinds[group, version, resource['kind']]}
            for resource in served
        )
        known.update(document['components']['schemas'])
    versions = {(resource['group'], resource['version']) for resource in resources}
    names = {resource['definition'] for resource in resources}
    lists = {f'{name}List' for name in names} & set(known)
    needed = select_definitions(known, names | lists | set(EXTRAS))
    return resources, {name: strip_definition(known[name], versions) for name in sorted(needed)}


def select_versions(groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """List the stable versions of the chosen groups with their paths, in the order of the API."""
    yield '/api/v1', '', 'v1'
    for group in groups:
        if group['name'] in SERVED:
            versions = [
                item['version']
                for item in group['versions']
                if re.fullmatch(r'v\d+', item['version'])
            ]
            for version in versions:
                if (group['name'], version) not in UNSERVED:
                    yield f'/apis/{group["name"]}/{version}', group['name'], version


def select_resources(
    listed: Iterable[Mapping[str, Any]], *, group: str, version: str
) -> list[dict[str, Any]]:
    """Fold the subresources of the discovery into the resources that have them."""
    resources: dict[str, dict[str, Any]] = {}
    for item in listed:
        plural, _, subresource = item['name'].partition('/')
        if subresource:
            resources[plural].setdefault('subresources', []).append(subresource)
        else:
            facts = {key: item[key] for key in FACTS if key in item}
            resources[plural] = {
                'group': group,
                'version': version,
                'plural': plural,
                'singular': item['singularName'],
                **facts,
            }
    return list(resources.values())


def select_definitions(known: Mapping[str, Any], roots: Iterable[str]) -> set[str]:
    """Find all definitions that are reachable from these."""
    needed: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(find_refs(known[name]))
    return needed


def find_refs(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get('$ref'), str):
            yield schema['$ref'].removeprefix(REF_PREFIX)
        for value in schema.values():
            yield from find_refs(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from find_refs(value)


def strip_definition(
    definition: Mapping[str, Any], versions: set[tuple[str, str]]
) -> dict[str, Any]:
    """Remove the prose of a definition, and what it says of the versions that are not served."""
    stripped = strip_prose(definition)
    if GVK in stripped:
        kept = [gvk for gvk in stripped[GVK] if (gvk['group'], gvk['version']) in versions]
        stripped[GVK] = kept or stripped[GVK]
    return stripped


def strip_prose(schema: Mapping[str, Any]) -> dict[str, Any]:
    stripped = {
        key: value
        for key, value in schema.items()
        if key not in ('description', 'externalDocs', 'example')
    }
    if 'properties' in stripped:
        stripped['properties'] = {
            name: strip_prose(child) for name, child in stripped['properties'].items()
        }
    for key in SUBSCHEMAS:
        if isinstance(stripped.get(key), Mapping):
            stripped[key] = strip_prose(stripped[key])
    for key in SUBSCHEMA_LISTS:
        if key in stripped:
            stripped[key] = [strip_prose(child) for child in stripped[key]]
    return stripped


def write_lines(path: pathlib.Path, content: list[Any] | dict[str, Any]) -> None:
    """Write JSON with one item per line: compact, but comparable."""

    def render(value: Any) -> str:
        return json.dumps(value, separators=(',', ':'))

    if isinstance(content, dict):
        lines, (opening, closing) = (
            [f'{render(key)}:{render(value)}' for key, value in content.items()],
            '{}',
        )
    else:
        lines, (opening, closing) = [render(value) for value in content], '[]'
    path.write_text(opening + '\n' + ',\n'.join(lines) + '\n' + closing + '\n')


if __name__ == '__main__':
    main()
