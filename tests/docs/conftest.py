"""
The operators of the pages, and what they print.
"""

import pytest
from doc_operators import write_operator


@pytest.fixture
def run(kopf_simulation, tmp_path):
    """Run these functions of the page as an operator."""

    def run(page, *functions):
        return kopf_simulation.run(write_operator(tmp_path / 'operator.py', page, *functions))

    return run


@pytest.fixture
def read(capsys):
    """Read the lines printed since the last time."""
    return lambda: capsys.readouterr().out.splitlines()
