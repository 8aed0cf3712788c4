"""
Operators whose cluster is not there, from the beginning or later: one line, and rare reminders.
"""

import asyncio
import logging

import pytest
from clusters import wait_until

import kopf
from kopf._cogs.structs import vaults


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.DEBUG)
    return lambda: [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ]


async def test_unreachable_cluster_is_one_line_and_rare_reminders(
    virtual_time, registry, run_operator, warnings, caplog
):
    for plural in ['kopfexamples', 'pods', 'secrets']:
        kopf.on.event(plural, registry=registry)(lambda: None)
    nowhere = kopf.ConnectionInfo(server='http://127.0.0.1:1', token='t')
    operator = await run_operator(vault=vaults.Vault({'nowhere': nowhere}))
    await asyncio.sleep(500)
    await operator.stop()

    assert warnings()[0].startswith('Cannot reach the cluster http://127.0.0.1:1: cannot connect')
    assert warnings()[0].endswith('. Retrying until it answers.')
    assert 3 <= len(warnings()) <= 5
    assert all('still not reachable' in line for line in warnings()[1:])
    assert 'has failed, and will be repeated' in caplog.text


async def test_cluster_that_goes_away_and_comes_back_is_told_in_few_lines(
    sandbox, cluster, registry, run_operator, warnings, caplog
):
    seen = []
    kopf.on.event('kopfexamples', registry=registry)(lambda name: seen.append(name))
    for plural in ['pods', 'configmaps', 'secrets', 'services', 'nodes']:
        kopf.on.event(plural, registry=registry)(lambda: None)
    await run_operator()
    await cluster.create()
    await wait_until(lambda: seen)
    await sandbox.faults.restart(downtime=40)
    await asyncio.sleep(100)
    seen.clear()
    await cluster.patch({'spec': {'x': 5}})
    await wait_until(lambda: seen)

    assert len(warnings()) == 2
    assert 'The stream of ' in warnings()[0]
    assert warnings()[1].startswith('Cannot reach the cluster ')
    assert caplog.text.count('is reachable again, after ') == 1
