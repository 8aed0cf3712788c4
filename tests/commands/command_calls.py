"""
The tools of the tests of commands: files with handlers, and calls of the commands in this process.
"""

import pathlib
import textwrap

from click.testing import CliRunner

from kopf import cli

CREATING = """
    import kopf

    @kopf.on.create('kopfexamples')
    def create_fn(namespace, name, **_):
        print(f'CREATED {namespace}/{name}')
"""


def build_object(name, namespace='default'):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': name, 'namespace': namespace},
    }


def build_definition(plural, kind, *, group='kopf.dev'):
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.{group}'},
        'spec': {
            'group': group,
            'scope': 'Cluster' if plural.startswith('cluster') else 'Namespaced',
            'names': {'kind': kind, 'plural': plural},
            'versions': [
                {
                    'name': 'v1',
                    'served': True,
                    'storage': True,
                    'schema': {
                        'openAPIV3Schema': {
                            'type': 'object',
                            'x-kubernetes-preserve-unknown-fields': True,
                        }
                    },
                }
            ],
        },
    }


CRD = build_definition('kopfexamples', 'KopfExample')


def build_peering(name, namespace=None, *, group='kopf.dev'):
    return {
        'apiVersion': f'{group}/v1',
        'kind': 'KopfPeering' if namespace else 'ClusterKopfPeering',
        'metadata': {'name': name, **({'namespace': namespace} if namespace else {})},
    }


def write(path, *texts):
    pathlib.Path(path).write_text('\n'.join(map(textwrap.dedent, texts)))
    return str(path)


def invoke(*args, env=None, **kwargs):
    return CliRunner().invoke(cli.main, ['run', *map(str, args)], env=env or {}, **kwargs)
