"""
Versions that begin to be served while the operator runs.
"""

import asyncio

import pytest
from clusters import build_crd

import kopf


@pytest.mark.guarantee('FND-008')
async def test_a_version_served_in_mid_handling_waits_for_the_other_one(
    sandbox, cluster, registry, run_operator
):
    @kopf.on.create('kopf.dev', 'v1', 'kopfexamples', id='one_fn', registry=registry)
    @kopf.on.create('kopf.dev', 'v2', 'kopfexamples', id='two_fn', registry=registry)
    async def create_fn(resource, **_):
        running.append(resource.version)
        overlaps.append(len(running))
        await asyncio.sleep(100)
        running.remove(resource.version)

    running, overlaps = [], []
    crd = build_crd()
    (version,) = crd['spec']['versions']
    crd['spec']['versions'].append({**version, 'name': 'v2', 'storage': False})
    await run_operator()
    await cluster.create()
    await asyncio.sleep(5)
    await sandbox.apply(crd)
    await asyncio.sleep(300)

    assert set(overlaps) == {1}
