"""
Tools of tests in one process: files with handlers, a cluster with a custom resource, and no traces
left.
"""

import logging
import os
import pathlib
import sys
import textwrap

import pytest

import kopf
import kopf.testing
from kopf._cogs.helpers import loaders

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'KopfExample', 'plural': 'kopfexamples'},
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


@pytest.fixture
def crd():
    return CRD


@pytest.fixture
def build_object():
    def build(name='obj', **spec):
        return {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'name': name, 'namespace': 'default'},
            'spec': spec,
        }

    return build


@pytest.fixture
def restored_process(monkeypatch, tmp_path):
    """
    Leave no traces of what a process usually does only once; have no hints of the environment and
    of files.
    """
    root, default, modules = logging.getLogger(), kopf.get_default_registry(), set(sys.modules)
    level, handlers, directories = root.level, list(root.handlers), set(loaders._finder.directories)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith('KOPF_') or name == 'KUBECONFIG']:
        monkeypatch.delenv(name)
    kopf.set_default_registry(kopf.OperatorRegistry())
    yield
    kopf.set_default_registry(default)
    loaders._finder.directories.intersection_update(directories)
    for name in set(sys.modules) - modules:
        if loaders.is_script(name) or name.startswith('handlers'):
            del sys.modules[name]
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def write(restored_process, tmp_path):
    """Write a file of Python, and return its path."""

    def write(name, text):
        path = pathlib.Path(tmp_path, name)
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


@pytest.fixture
def sandbox():
    with kopf.testing.Sandbox(tls=False, apply=[CRD]) as sandbox:
        yield sandbox


@pytest.fixture
def env(sandbox):
    """The environment of an operator that is to be run on the sandbox."""
    return {'KUBECONFIG': str(sandbox.kubeconfig)}
