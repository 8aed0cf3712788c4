"""
A sandbox over TLS for each test of the foreign clients, known to them only by its kubeconfig.
"""

import pytest

import kopf.testing

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'widgets.clients.kopf.dev'},
    'spec': {
        'group': 'clients.kopf.dev',
        'scope': 'Namespaced',
        'names': {
            'kind': 'Widget',
            'plural': 'widgets',
            'singular': 'widget',
            'shortNames': ['wd'],
        },
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'subresources': {
                    'status': {},
                    'scale': {
                        'specReplicasPath': '.spec.replicas',
                        'statusReplicasPath': '.status.replicas',
                    },
                },
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'properties': {
                            'spec': {
                                'type': 'object',
                                'properties': {
                                    'size': {'type': 'integer', 'minimum': 0},
                                    'replicas': {'type': 'integer'},
                                },
                            },
                            'status': {
                                'type': 'object',
                                'x-kubernetes-preserve-unknown-fields': True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == 'clients':
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def sandbox(monkeypatch):
    monkeypatch.delenv('KUBECONFIG', raising=False)
    monkeypatch.setenv('HOME', '/nonexistent')  # nobody's own configuration counts
    with kopf.testing.Sandbox(apply=[CRD]) as sandbox:
        yield sandbox
