"""
Operators that are restarted in a process that lives on, beside another operator: nothing is left
after any of them.
"""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import gc
import os
import pathlib
import sys
import threading
import types

import pytest
from clusters import wait_until

import kopf
from kopf._cogs.structs import vaults

NAMES = [f'obj-{number}' for number in range(5)]
DESCRIPTORS = pathlib.Path('/proc/self/fd')
ALLOWANCE = 10  # some things come and go all the time; what is leaked, even by one restart of ten, is not fewer
# The cluster; it lives in the same process and grows as clusters do.
FOREIGN = (
    'kopf._sandbox',
    'kopf.testing',
)


@dataclasses.dataclass(frozen=True)
class Witness:
    """What the handlers of an operator tell of it."""

    values: dict[str, int] = dataclasses.field(default_factory=dict)  # the latest ones, by objects
    ticks: set[str] = dataclasses.field(default_factory=set)  # of the timers: of which objects
    # Where they are executed.
    threads: set[threading.Thread] = dataclasses.field(default_factory=set)


def declare_handlers(name, witness):
    """Handlers of all kinds, with a state of their own on the objects."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def startup_fn(settings, **_):
        settings.posting.enabled = False
        # So that the threads of the lasting one are always the same.
        settings.execution.max_workers = 1
        settings.persistence.finalizer = f'{name}.dev/finalizer'
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
            prefix=f'{name}.dev'
        )
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
            prefix=f'{name}.dev'
        )

    @kopf.index('kopfexamples', id='index_fn', registry=registry)
    async def index_fn(name, spec, **_):
        return {name: spec['x']}

    @kopf.on.resume('kopfexamples', registry=registry)
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def async_fn(name, spec, **_):
        witness.values[name] = spec['x']

    @kopf.on.update('kopfexamples', registry=registry)
    def sync_fn(**_):
        witness.threads.add(threading.current_thread())

    @kopf.timer('kopfexamples', interval=1, id='timer_fn', registry=registry)
    async def timer_fn(name, **_):
        witness.ticks.add(name)

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        await stopped.wait()

    @kopf.on.cleanup(registry=registry)
    def cleanup_fn(**_):
        witness.threads.add(threading.current_thread())

    return registry


class Load:
    """
    Changes of all objects, one after another, for as long as the block is executed.

    The next round begins when the lasting operator has seen the previous one: virtual time would
    outrun its threads, and the slower the machine is, the more changes would be waiting to be
    handled.
    """

    def __init__(self, cluster, witness):
        self.cluster, self.witness, self.values = cluster, witness, collections.Counter()

    @contextlib.asynccontextmanager
    async def going_on(self):
        enough = asyncio.Event()
        task = asyncio.create_task(self._change(enough), name='load')
        try:
            yield
        finally:
            enough.set()
            await task

    async def _change(self, enough):
        while not enough.is_set():
            for name in NAMES:
                self.values[name] += 1
                await self.cluster.patch({'spec': {'x': self.values[name]}}, name)
                await asyncio.sleep(0.02)
            await wait_until(lambda: self.witness.values == self.values)


def count_sockets():
    """Count the open sockets of the process; where it is not Linux, those of nobody."""
    links = []
    for descriptor in DESCRIPTORS.iterdir() if DESCRIPTORS.exists() else ():
        with contextlib.suppress(
            FileNotFoundError
        ):  # e.g. the one that was used for the listing itself
            links.append(os.readlink(descriptor))
    return len([link for link in links if link.startswith('socket:')])


def count_objects():
    """
    Count the objects of our classes, and also those that carry the execution and the memory in
    general.
    """
    gc.collect()
    # Event loops drop them some day.
    types_ = [
        type(item)
        for item in gc.get_objects()
        if not (isinstance(item, asyncio.TimerHandle) and item.cancelled())
    ]
    general = (
        asyncio.Task,
        asyncio.Event,
        asyncio.TimerHandle,
        types.CoroutineType,
        types.FrameType,
    )
    names = [
        f'{cls.__module__}.{cls.__qualname__}'
        for cls in types_
        if cls in general or str(cls.__module__).startswith(('kopf.', 'aiohttp.'))
    ]
    return collections.Counter(name for name in names if not name.startswith(FOREIGN))


def forget_addresses():
    """
    Empty the caches of URLs: they are limited, but fill up slowly, as every watch has its own
    version in the URL.
    """
    for item in gc.get_objects():
        if isinstance(item, functools._lru_cache_wrapper) and str(item.__module__).startswith(
            'yarl.'
        ):
            item.cache_clear()


async def measure(sandbox):
    """Let everything calm down and all unused connections expire; then count what there is."""
    await asyncio.sleep(60)
    await sandbox.compact()
    sandbox.requests.clear()
    forget_addresses()
    await wait_until(
        lambda: not any(task.get_name().startswith('timer_fn') for task in asyncio.all_tasks())
    )
    # No await from here on: the timers must not tick.
    return collections.Counter(
        {
            **count_objects(),
            **collections.Counter(
                f'task {task.get_name().rstrip("0123456789")}' for task in asyncio.all_tasks()
            ),
            'threads': threading.active_count(),
            'sockets': count_sockets(),
            'memory, by 200 blocks': sys.getallocatedblocks() // 200,
        }
    )


@pytest.fixture
def witness():
    """Of the lasting operator."""
    return Witness()


@pytest.fixture
async def load(cluster, witness):
    for name in NAMES:
        await cluster.create(name, spec={'x': 0})
    return Load(cluster, witness)


@pytest.fixture
async def restart(sandbox, load):
    """
    Start the operator under the load, let it see the changes, and stop it in one way or another,
    many times.
    """
    info = kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token)
    witness = Witness()
    registry = declare_handlers('restarted', witness)

    async def live(number):  # not by the common fixture: that one remembers its operators
        witness.values.clear()
        since, stop_flag = load.values.copy(), asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=kopf.OperatorSettings(),
                vault=vaults.Vault({'sandbox': info}),
                clusterwide=True,
                stop_flag=stop_flag,
            )
        )
        await wait_until(lambda: all(witness.values.get(name, 0) > since[name] for name in NAMES))
        if number % 2:
            task.cancel()
        else:
            stop_flag.set()
        await asyncio.wait([task])
        assert task.cancelled() if number % 2 else task.result() is None

    async def restart(times):
        async with load.going_on():
            for number in range(times):
                await live(number)
        await wait_until(lambda: not any(thread.is_alive() for thread in witness.threads))
        witness.threads.clear()

    return restart


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.guarantee('EMB-021')
async def test_nothing_is_left_after_a_hundred_of_restarts_beside_another_operator(
    cluster, sandbox, run_operator, load, restart, witness
):
    await run_operator(
        registry=declare_handlers('lasting', witness), settings=kopf.OperatorSettings()
    )
    await restart(10)  # whatever is loaded or cached once, is not a leak
    before = await measure(sandbox)

    await restart(100)
    await wait_until(lambda: witness.values == load.values)
    witness.ticks.clear()
    after = await measure(sandbox)

    assert witness.ticks == set(NAMES)
    assert {what: count for what, count in (after - before).items() if count >= ALLOWANCE} == {}
