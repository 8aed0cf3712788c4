"""
Clusters that refuse some values, and calls whose number is limited: operators may not run in circles.
"""

import pytest
from clusters import Cluster, build_crd
from settling import Calls

FIELDS = {'x': {'type': 'integer'}, 'size': {'type': 'integer', 'minimum': 0}}


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
def make_strict_cluster(sandbox):
    """Make a cluster where some values are refused."""

    async def make(*, has_status=False):
        crd = build_crd(has_status=has_status)
        section = {'type': 'object', 'properties': FIELDS}
        schema = crd['spec']['versions'][0]['schema']['openAPIV3Schema']
        schema['properties'] = {'spec': section, 'status': section}
        await sandbox.apply(crd)
        return Cluster(sandbox)

    return make
