"""
A custom resource with an object of it, and an object of a built-in one.
"""

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {
            'kind': 'KopfExample',
            'plural': 'kopfexamples',
            'singular': 'kopfexample',
            'shortNames': ['kex'],
        },
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'subresources': {'status': {}},
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
EXAMPLE = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'metadata': {'name': 'ex'},
    'spec': {'size': 1},
}
CONFIG = {
    'apiVersion': 'v1',
    'kind': 'ConfigMap',
    'metadata': {'name': 'cm', 'labels': {'app': 'web'}},
    'data': {'a': '1'},
}
