"""
Stopping: by signals and by flags; at once if it is asked for twice; by force if it takes too long.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from kopf._cogs.configs import settings
from kopf._core.reactor import stopping

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(params=SIGNALS, ids=lambda number: number.name)
def number(request):
    return request.param


@pytest.fixture
def operator_settings():
    return settings.OperatorSettings()


@pytest.fixture
def alarms():
    """The threads of alarms that are set now."""
    before = set(threading.enumerate())
    return lambda: [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer) and thread not in before
    ]


@pytest.fixture
async def waiting():
    """Wait for a stopper in a task."""
    tasks = []

    async def wait(stopper):
        tasks.append(asyncio.create_task(stopper.wait(), name='waiting'))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks[-1]

    yield wait
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.guarantee('EMB-015')
async def test_signal_ends_the_wait(operator_settings, waiting, number):
    async with stopping.Stopper(operator_settings) as stopper:
        task = await waiting(stopper)
        os.kill(os.getpid(), number)

        await asyncio.wait_for(task, timeout=30)


async def test_signal_that_came_before_ends_the_wait_at_once(operator_settings, number):
    async with stopping.Stopper(operator_settings) as stopper:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)

        await asyncio.wait_for(stopper.wait(), timeout=30)


async def test_signal_is_for_all_operators_of_the_thread(operator_settings, waiting, number):
    async with (
        stopping.Stopper(operator_settings) as one,
        stopping.Stopper(operator_settings) as two,
    ):
        tasks = [await waiting(one), await waiting(two)]
        os.kill(os.getpid(), number)

        await asyncio.wait_for(asyncio.gather(*tasks), timeout=30)


async def test_operators_can_end_in_any_order(operator_settings, waiting, number):
    before = signal.getsignal(number)
    async with contextlib.AsyncExitStack() as stack:
        one = stopping.Stopper(operator_settings)
        await one.__aenter__()
        two = await stack.enter_async_context(stopping.Stopper(operator_settings))
        await one.__aexit__(None, None, None)
        task = await waiting(two)
        os.kill(os.getpid(), number)

        await asyncio.wait_for(task, timeout=30)

    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    'previous',
    [
        pytest.param(signal.SIG_DFL, id='default'),
        pytest.param(signal.SIG_IGN, id='ignored'),
        pytest.param(lambda *_: None, id='custom'),
    ],
)
async def test_previous_handlers_are_restored(operator_settings, number, previous):
    original = signal.signal(number, previous)
    try:
        async with stopping.Stopper(operator_settings):
            assert signal.getsignal(number) != previous

        assert signal.getsignal(number) == previous
    finally:
        signal.signal(number, original)


async def test_handlers_of_the_event_loop_are_kept(operator_settings, waiting, number):
    loop, called = asyncio.get_running_loop(), asyncio.Event()
    original = signal.getsignal(number)
    loop.add_signal_handler(number, called.set)
    try:
        async with stopping.Stopper(operator_settings):
            pass
        os.kill(os.getpid(), number)

        await asyncio.wait_for(called.wait(), timeout=30)
    finally:
        loop.remove_signal_handler(number)
        signal.signal(number, original)


async def test_handlers_set_by_others_meanwhile_are_kept(operator_settings, number):
    def handler(*_):
        pass

    original = signal.getsignal(number)
    try:
        async with stopping.Stopper(operator_settings):
            signal.signal(number, handler)

        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, original)


@pytest.mark.guarantee('EMB-016', 'WLD-007')
def test_signals_are_left_alone_in_other_threads(operator_settings, number):
    async def stop_by_flag():
        flag = asyncio.Event()
        async with stopping.Stopper(operator_settings, flag) as stopper:
            inside.append(signal.getsignal(number))
            flag.set()
            await asyncio.wait_for(stopper.wait(), timeout=30)
        inside.append(signal.getsignal(number))

    before, inside = signal.getsignal(number), []
    thread = threading.Thread(target=lambda: asyncio.run(stop_by_flag()))
    thread.start()
    thread.join()

    assert inside == [before, before]


async def test_flag_ends_the_wait(operator_settings, waiting):
    flag = asyncio.Event()
    async with stopping.Stopper(operator_settings, flag) as stopper:
        task = await waiting(stopper)
        assert not task.done()
        flag.set()

        await asyncio.wait_for(task, timeout=30)


async def test_wait_can_be_cancelled_and_repeated(operator_settings, waiting):
    flag, before = asyncio.Event(), len(asyncio.all_tasks())
    async with stopping.Stopper(operator_settings, flag) as stopper:
        task = await waiting(stopper)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == before
        flag.set()

        await asyncio.wait_for(stopper.wait(), timeout=30)


async def test_flag_of_another_event_loop_is_an_error(operator_settings):
    async def use(flag):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(flag.wait(), timeout=0.001)

    flag = asyncio.Event()
    await asyncio.to_thread(lambda: asyncio.run(use(flag)))

    async with stopping.Stopper(operator_settings, flag) as stopper:
        with pytest.raises(RuntimeError, match='loop'):
            await asyncio.wait_for(stopper.wait(), timeout=30)


@pytest.mark.guarantee('NEW-211')
async def test_time_of_the_exit_is_limited_after_a_signal(operator_settings, waiting, alarms):
    async with stopping.Stopper(operator_settings) as stopper:
        task = await waiting(stopper)
        assert alarms() == []
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(task, timeout=30)
        stopper.limit_exit()
        (alarm,) = alarms()
        assert alarm.interval == operator_settings.process.ultimate_exiting_timeout == 600

    alarm.join(timeout=30)
    assert not alarm.is_alive()


@pytest.mark.guarantee('NEW-211')
async def test_time_of_the_exit_is_limited_for_other_reasons(operator_settings, alarms):
    async with stopping.Stopper(operator_settings) as stopper:
        stopper.limit_exit()

        assert len(alarms()) == 1


@pytest.mark.guarantee('NEW-211')
async def test_time_of_the_exit_is_not_limited_if_asked_by_the_flag(operator_settings, alarms):
    flag = asyncio.Event()
    async with stopping.Stopper(operator_settings, flag) as stopper:
        flag.set()
        await asyncio.wait_for(stopper.wait(), timeout=30)
        stopper.limit_exit()

        assert alarms() == []


@pytest.mark.guarantee('NEW-211')
async def test_time_of_the_exit_is_not_limited_if_there_is_no_limit(operator_settings, alarms):
    operator_settings.process.ultimate_exiting_timeout = None
    async with stopping.Stopper(operator_settings) as stopper:
        stopper.limit_exit()

        assert alarms() == []


# Whole processes.


class Process:
    """A Python script that runs in a process of its own."""

    def __init__(self, script):
        command = [sys.executable, '-c', textwrap.dedent(script)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []

    def wait_for(self, line):
        for text in self._process.stdout:
            self.lines.append(text.rstrip())
            if line in text:
                return
        pytest.fail(f'There is no {line!r} in: {self.lines}')

    def send(self, number):
        self._process.send_signal(number)

    def end(self):
        """Wait for its end, and return its exit code."""
        self.lines.extend(
            line.rstrip() for line in self._process.communicate(timeout=60)[0].splitlines()
        )
        return self._process.returncode

    def kill(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def run_process():
    processes = []

    def run(script):
        processes.append(Process(script))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()


OPERATOR = """
    import asyncio, logging, threading, time, kopf
    from kopf._core.reactor import stopping

    stopping.SAME_SIGNAL = DELAY
    logging.basicConfig(level=logging.INFO, format='%(message)s')

    @kopf.on.login()
    def login_fn(**_):
        return kopf.ConnectionInfo(server='http://127.0.0.1:1')

    @kopf.on.cleanup()
    async def cleanup_fn(**_):
        print('cleaning', flush=True)
        CLEANUP
        print('cleaned', flush=True)

    def announce():
        ready.wait()
        print('ready', flush=True)

    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = TIMEOUT
    ready = threading.Event()
    threading.Thread(target=announce, daemon=True).start()
    kopf.run(clusterwide=True, ready_flag=ready, settings=settings)
    print('returned', flush=True)
"""


@pytest.fixture
def run_operator(run_process):
    def run(*, cleanup='pass', timeout=600, same=0.0):
        script = (
            OPERATOR.replace('CLEANUP', cleanup)
            .replace('TIMEOUT', str(timeout))
            .replace('DELAY', str(same))
        )
        process = run_process(script)
        process.wait_for('ready')
        return process

    return run


@pytest.mark.guarantee('EMB-015', 'SHD-002', 'EMB-010')
def test_operator_exits_gracefully_by_a_signal(run_operator, number):
    process = run_operator()

    process.send(number)

    assert process.end() == 0
    assert {'cleaning', 'cleaned', 'returned'} <= set(process.lines)
    assert not any('Traceback' in line for line in process.lines)


@pytest.mark.parametrize(
    'cleanup',
    [
        pytest.param('await asyncio.sleep(1000)', id='waiting'),
        pytest.param('time.sleep(1000)', id='blocked-event-loop'),
    ],
)
def test_operator_exits_at_once_by_the_second_signal(run_operator, number, cleanup):
    process = run_operator(cleanup=cleanup)
    process.send(number)
    process.wait_for('cleaning')

    process.send(number)

    assert process.end() == 128 + number
    assert any('Exiting at once' in line for line in process.lines)
    assert not any('Traceback' in line or 'cleaned' in line for line in process.lines)


def test_signals_in_quick_succession_are_one_and_the_same(run_operator, number):
    process = run_operator(cleanup='await asyncio.sleep(0.1)', same=60.0)
    process.send(number)
    process.wait_for('cleaning')

    process.send(number)

    assert process.end() == 0
    assert {'cleaned', 'returned'} <= set(process.lines)


def test_operator_exits_at_once_by_another_second_signal(run_operator):
    process = run_operator(cleanup='await asyncio.sleep(1000)')
    process.send(signal.SIGINT)
    process.wait_for('cleaning')

    process.send(signal.SIGTERM)

    assert process.end() == 128 + signal.SIGTERM


@pytest.mark.guarantee('NEW-211')
@pytest.mark.parametrize(
    'cleanup',
    [
        pytest.param('await asyncio.sleep(1000)', id='waiting'),
        pytest.param('time.sleep(1000)', id='blocked-event-loop'),
    ],
)
def test_operator_that_exits_for_too_long_is_killed(run_operator, cleanup):
    process = run_operator(cleanup=cleanup, timeout=0.1)

    process.send(signal.SIGTERM)

    assert process.end() == -signal.SIGKILL
    assert any('is killed' in line for line in process.lines)


HANDLERS = """
    import asyncio, threading, time, kopf

    async def refuse():
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass

    @kopf.on.login()
    def login_fn(**_):
        return kopf.ConnectionInfo(server='http://127.0.0.1:1')

    @kopf.on.startup()
    async def startup_fn(settings, memo, **_):
        settings.process.ultimate_exiting_timeout = TIMEOUT
        memo.obstacle = OBSTACLE
        print('ready', flush=True)
"""


@pytest.fixture
def run_command(run_process, tmp_path):
    def run(*, obstacle, timeout=600):
        path = tmp_path / 'handlers.py'
        path.write_text(
            textwrap.dedent(HANDLERS).replace('OBSTACLE', obstacle).replace('TIMEOUT', str(timeout))
        )
        process = run_process(f"""
            from kopf import cli
            from kopf._core.reactor import stopping
            stopping.SAME_SIGNAL = 0.0
            cli.main(['run', '-A', {str(path)!r}])
        """)
        process.wait_for('ready')
        return process

    return run


@pytest.mark.guarantee('NEW-211', 'SHD-009', 'DMN-018')
@pytest.mark.parametrize(
    'obstacle',
    [
        pytest.param('threading.Thread(target=time.sleep, args=[1000]).start()', id='thread'),
        pytest.param('asyncio.create_task(refuse())', id='task'),
    ],
)
def test_command_is_killed_if_it_does_not_end_long_after_its_operator(run_command, obstacle):
    process = run_command(obstacle=obstacle, timeout=3)

    process.send(signal.SIGTERM)

    assert process.end() == -signal.SIGKILL
    assert any('is killed' in line for line in process.lines)


def test_command_that_does_not_end_after_its_operator_exits_at_once_by_the_second_signal(
    run_command, number
):
    process = run_command(obstacle='threading.Thread(target=time.sleep, args=[1000]).start()')
    process.send(number)
    process.wait_for('stopped')

    process.send(number)

    assert process.end() == 128 + number
    assert any('Exiting at once' in line for line in process.lines)


@pytest.mark.guarantee('EMB-008', 'EMB-016', 'WLD-007')
def test_operator_in_a_thread_leaves_signals_to_the_process(run_process):
    process = run_process("""
        import asyncio, signal, threading, time, kopf

        @kopf.on.login()
        def login_fn(**_):
            return kopf.ConnectionInfo(server='http://127.0.0.1:1')

        @kopf.on.cleanup()
        def cleanup_fn(**_):
            print('cleaned', flush=True)

        def run():
            asyncio.run(kopf.operator(clusterwide=True, stop_flag=stop, ready_flag=ready))

        stop, ready, signalled = threading.Event(), threading.Event(), []
        # Not an event: its lock may be held by the interrupted wait for it.
        signal.signal(signal.SIGTERM, lambda *_: signalled.append(True))
        thread = threading.Thread(target=run)
        thread.start()
        ready.wait()
        print('ready', flush=True)
        while not signalled:
            time.sleep(0.01)
        print('alive' if thread.is_alive() else 'dead', flush=True)
        stop.set()
        thread.join()
    """)
    process.wait_for('ready')

    process.send(signal.SIGTERM)

    assert process.end() == 0
    assert [line for line in process.lines if line in ('alive', 'dead', 'cleaned')] == [
        'alive',
        'cleaned',
    ]


def test_operators_of_one_loop_are_all_stopped_by_a_signal(run_process):
    process = run_process("""
        import asyncio, kopf

        async def main():
            operators = [kopf.operator(clusterwide=True, registry=build(name), ready_flag=flag)
                         for name, flag in flags.items()]
            tasks = [asyncio.create_task(operator) for operator in operators]
            await asyncio.gather(*[flag.wait() for flag in flags.values()])
            print('ready', flush=True)
            await asyncio.gather(*tasks)

        def build(name):
            registry = kopf.OperatorRegistry()
            kopf.on.login(registry=registry)(lambda **_: kopf.ConnectionInfo(server='http://127.0.0.1:1'))
            kopf.on.cleanup(registry=registry)(lambda **_: print(f'{name}\\n', end='', flush=True))
            return registry

        flags = {'one': asyncio.Event(), 'two': asyncio.Event()}
        asyncio.run(main())
    """)
    process.wait_for('ready')

    process.send(signal.SIGTERM)

    assert process.end() == 0
    assert sorted(line for line in process.lines if line in ('one', 'two')) == ['one', 'two']
