"""
What the greeting of a sandbox suggests to look at: the objects of the operator.
"""

import pytest

import kopf
from kopf._kits.commands import sandboxing


@pytest.mark.parametrize(
    'args, kwargs, expected',
    [
        pytest.param(('pods',), {}, 'pods', id='name'),
        pytest.param(('kopf.dev', 'v1', 'kopfexamples'), {}, 'kopfexamples', id='group'),
        pytest.param((), {'kind': 'KopfExample'}, 'kopfexample', id='kind'),
        pytest.param((), {'shortcut': 'kex'}, 'kex', id='shortcut'),
        pytest.param((kopf.EVERYTHING,), {}, 'namespaces', id='everything'),
        pytest.param((), {'category': 'all'}, 'namespaces', id='category'),
    ],
)
def test_the_first_named_resource_is_suggested(registry, args, kwargs, expected):
    kopf.on.event(*args, **kwargs, registry=registry)(lambda **_: None)

    assert sandboxing._choose_example(registry) == expected


def test_operators_with_no_resources_see_namespaces(registry):
    kopf.on.startup(registry=registry)(lambda **_: None)

    assert sandboxing._choose_example(registry) == 'namespaces'


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()
