"""
The pytest plugin: a sandbox per test, in real or virtual time, with the fixtures ``kopf_...``.

Every run of pytest with the package installed loads this module, so it imports nothing until the
fixtures are used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kopf._kits import simulations
    from kopf._sandbox import sandboxes


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        'markers', 'kopf_sandbox(**options): the options of kopf.testing.Sandbox for this test'
    )


@pytest.fixture
def kopf_sandbox(request: pytest.FixtureRequest) -> 'Iterator[sandboxes.Sandbox]':
    """
    A running Kubernetes API in memory: ``kopf.testing.Sandbox``.

    Its options are in the marker ``kopf_sandbox``.
    """
    from kopf._sandbox import sandboxes

    marker = request.node.get_closest_marker('kopf_sandbox')
    with sandboxes.Sandbox(**(marker.kwargs if marker is not None else {})) as sandbox:
        yield sandbox


@pytest.fixture
def kopf_simulation(request: pytest.FixtureRequest) -> 'Iterator[simulations.Simulation]':
    """
    A sandbox with operators in virtual time: ``kopf.testing.Simulation``.

    Its options are in the marker ``kopf_sandbox``.
    """
    from kopf._kits import simulations

    marker = request.node.get_closest_marker('kopf_sandbox')
    with simulations.Simulation(**(marker.kwargs if marker is not None else {})) as simulation:
        yield simulation
