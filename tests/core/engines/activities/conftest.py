"""
The handlers and the settings of an operator that runs its activities.
"""

import pytest

import kopf
from kopf._cogs.configs import settings as settings_


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
def settings():
    settings = settings_.OperatorSettings()
    yield settings
    settings.execution.executor.shutdown(wait=True)
