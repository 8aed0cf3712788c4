"""
Samples: the bodies that transcripts send.
"""

from collections.abc import Mapping
from typing import Any

import fidelity_talks

ANYTHING = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
SCHEMA = {
    'type': 'object',
    'properties': {
        'spec': {
            'type': 'object',
            'properties': {
                'size': {'type': 'integer', 'minimum': 0},
                'color': {'type': 'string', 'default': 'grey'},
                'replicas': {'type': 'integer'},
                'tags': {'type': 'array', 'items': {'type': 'string'}},
                'extra': ANYTHING,
            },
        },
        'status': ANYTHING,
    },
}
TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io'
SCALE = {'specReplicasPath': '.spec.replicas', 'statusReplicasPath': '.status.replicas'}


def build_version(name: str = 'v1', schema: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        'name': name,
        'served': True,
        'storage': True,
        'schema': {'openAPIV3Schema': SCHEMA if schema is None else schema},
        **fields,
    }


def build_crd(
    talk: fidelity_talks.Talk,
    plural: str = 'things',
    *versions: Mapping[str, Any],
    scope: str = 'Namespaced',
    **names: Any,
) -> dict[str, Any]:
    """
    The definition of a custom resource in the transcript's group; by default with one version, with
    a status.
    """
    singular = plural.removesuffix('s')
    given = {'kind': singular.capitalize(), 'plural': plural, 'singular': singular, **names}
    served = versions or [build_version(subresources={'status': {}})]
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.{talk.group}'},
        'spec': {'group': talk.group, 'scope': scope, 'names': given, 'versions': [*served]},
    }


def build_thing(
    talk: fidelity_talks.Talk,
    name: str = 'one',
    *,
    spec: Any = None,
    status: Any = None,
    **metadata: Any,
) -> dict[str, Any]:
    body = {
        'apiVersion': f'{talk.group}/v1',
        'kind': 'Thing',
        'metadata': {'name': name, **metadata},
        'spec': {'size': 1} if spec is None else spec,
    }
    return body if status is None else {**body, 'status': status}


def build_configmap(name: str = 'one', **metadata: Any) -> dict[str, Any]:
    return {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': name, **metadata},
        'data': {'a': '1'},
    }
