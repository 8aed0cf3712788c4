"""
Simulations with workloads: the time is virtual, and nothing is left of them.
"""

import pytest

import kopf.testing


@pytest.fixture
def simulation():
    with kopf.testing.Simulation(workloads=True) as simulation:
        yield simulation
