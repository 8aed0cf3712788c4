"""
The pytest plugin: a sandbox per test, with the fixture ``kopf_sandbox``.

Every run of pytest where the package is installed loads this module, so it loads nothing until the fixture is used.
"""
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kopf._kits.sandbox import sandboxes


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line('markers', 'kopf_sandbox(**options): the options of kopf.testing.Sandbox for this test')


@pytest.fixture
def kopf_sandbox(request: pytest.FixtureRequest) -> 'Iterator[sandboxes.Sandbox]':
    """A running Kubernetes API in memory: ``kopf.testing.Sandbox`` with the options of the marker ``kopf_sandbox``."""
    from kopf._kits.sandbox import sandboxes
    marker = request.node.get_closest_marker('kopf_sandbox')
    with sandboxes.Sandbox(**(marker.kwargs if marker is not None else {})) as sandbox:
        yield sandbox
