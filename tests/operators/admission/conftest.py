"""
Operators with a webhook server behind a service of the sandbox.
"""

import pytest
from webhook_servers import MANAGED, Hall


@pytest.fixture
def hall(sandbox, settings):
    """The webhook server of operators, with managed configurations."""
    hall = settings.admission.server = Hall(sandbox)
    settings.admission.managed = MANAGED
    return hall
