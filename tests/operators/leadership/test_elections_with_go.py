"""
Elections of operators together with programs in Go, by the same Lease.

Without Go, the tests are skipped, or fail if the control plane is required, which needs Go too.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest
from clusters import wait_until

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

SOURCE = pathlib.Path(__file__).parents[2] / 'controlplane'
LEASES = '/apis/coordination.k8s.io/v1/namespaces/default/leases'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope='session')
def elector(tmp_path_factory):
    """The program in Go."""
    go = shutil.which('go')
    if go is None:
        is_required = os.environ.get('KOPF_TESTS_CONTROLPLANE') == 'required'
        (pytest.fail if is_required else pytest.skip)('There is no Go to build the program with.')
    path = tmp_path_factory.mktemp('elector') / 'elector'
    subprocess.run([go, 'build', '-o', path, './elector'], cwd=SOURCE, check=True)
    return path


class Rival:
    """The program, while it runs."""

    def __init__(self, process):
        self.process, self.lines = process, []

    async def read(self):
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())


@contextlib.asynccontextmanager
async def run_elector(elector, kubeconfig, lease):
    process = await asyncio.create_subprocess_exec(
        elector,
        lease,
        'go-program',
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, 'KUBECONFIG': str(kubeconfig)},
    )
    rival = Rival(process)
    reading = asyncio.create_task(rival.read(), name='lines of the program')
    try:
        yield rival
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


@contextlib.asynccontextmanager
async def run_replica(info, lease):
    """An operator that notes when it is promoted and demoted."""
    registry, settings, calls = kopf.OperatorRegistry(), kopf.OperatorSettings(), []
    leadership = settings.leadership
    leadership.name, leadership.namespace = lease, 'default'
    leadership.lease_duration, leadership.renew_deadline, leadership.retry_period = 5, 3, 1
    settings.peering.standalone = True

    @kopf.on.promoted(registry=registry)
    async def promoted(**_):
        calls.append('promoted')

    @kopf.on.demoted(registry=registry)
    async def demoted(**_):
        calls.append('demoted')

    stop_flag = asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            vault=vaults.Vault({'cluster': info}),
            clusterwide=True,
            stop_flag=stop_flag,
        )
    )
    try:
        yield calls
    finally:
        stop_flag.set()
        await task


async def check_both_orders(elector, kubeconfig, info, lease):
    async with run_elector(elector, kubeconfig, lease) as rival:
        await wait_until(lambda: 'leading' in rival.lines, 60)
        async with run_replica(info, lease) as calls:
            await asyncio.sleep(7)
            assert calls == []  # it renews the Lease, and is respected
            rival.process.terminate()
            await wait_until(lambda: calls == ['promoted'], 3)  # it has released the Lease
            async with run_elector(elector, kubeconfig, lease) as second:
                await wait_until(lambda: second.lines, 60)
                await asyncio.sleep(7)
                assert len(second.lines) == 1
                assert second.lines[0].startswith('holder ')
                assert calls == ['promoted']
                replica = second.lines[0].split()[1]
                assert replica != 'go-program'

    async with run_elector(elector, kubeconfig, lease) as rival:
        await wait_until(lambda: 'leading' in rival.lines, 60)  # the operator has released it
        async with run_replica(info, lease) as calls:
            await asyncio.sleep(2)
            rival.process.kill()
            assert calls == []
            await wait_until(lambda: calls == ['promoted'], 9)  # it has expired


@pytest.mark.guarantee('LDR-015')
async def test_operators_and_programs_in_go_respect_each_other_in_the_sandbox(elector):
    async with kopf.testing.Sandbox() as sandbox:
        info = kopf.ConnectionInfo(
            server=sandbox.url, token=sandbox.token, ca_path=str(sandbox.ca_path)
        )
        await check_both_orders(elector, sandbox.kubeconfig, info, 'shared-with-go')


@pytest.mark.controlplane
@pytest.mark.guarantee('LDR-015')
async def test_operators_and_programs_in_go_respect_each_other_in_a_real_cluster(
    elector, controlplane
):
    lease = f'shared-with-go-{os.getpid()}'
    await check_both_orders(elector, controlplane.kubeconfig, controlplane.login(), lease)
