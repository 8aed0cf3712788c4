"""Processes that are measured: their use of system resources. Linux only."""

import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

TICKS = os.sysconf('SC_CLK_TCK')
SETTLED = 0.01  # of a core: the CPU use of an idle process
PATIENCE = 600.0  # seconds for any one step


class NotEndedError(Exception):
    """A process does not do what is expected of it: it takes too long, or has exited."""


class Measured:
    """A process, and the resources it has used. It is always stopped at the end."""

    def __init__(
        self,
        command: list[str],
        *,
        directory: pathlib.Path,
        environ: Mapping[str, str],
        core: int | None = None,
    ) -> None:
        # In another directory: otherwise, local modules would shadow the installed ones.
        self.log = directory / 'log'
        with self.log.open('wb') as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**os.environ, **environ},
            )
        if core is not None:
            pin(core, self.process.pid)

    @property
    def cpu(self) -> float:
        """CPU seconds of all threads and children."""
        return read_cpu(self.process.pid)

    @property
    def memory(self) -> float:
        """The current resident memory, in megabytes."""
        return self.read('VmRSS') / 1024

    @property
    def peak(self) -> float:
        """The peak resident memory, in megabytes."""
        return self.read('VmHWM') / 1024

    def read(self, name: str) -> float:
        """Read one of the numbers in the status of the process; sizes are in kilobytes."""
        self.wait_until(lambda: True)
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        match = re.search(rf'^{name}:\s+(\d+)', status, re.M)
        return int(match[1]) if match else float('nan')

    def wait_until(
        self, condition: Callable[[], bool], *, timeout: float = PATIENCE, pause: float = 0.02
    ) -> None:
        """Wait for the condition while the process is alive. Raises `NotEndedError`."""
        deadline = time.monotonic() + timeout
        while True:
            if self.process.poll() is not None:
                raise NotEndedError(
                    f'It has exited with {self.process.returncode}.\nThe end of its log:\n{self.tail}'
                )
            if condition():
                return
            if time.monotonic() > deadline:
                raise NotEndedError(
                    f'It takes longer than {timeout:.0f} s.\nThe end of its log:\n{self.tail}'
                )
            time.sleep(pause)

    def settle(
        self, *, window: float = 1.0, share: float = SETTLED, timeout: float = PATIENCE
    ) -> None:
        """Wait until the process takes at most this share of a core, i.e. until it is idle."""
        before = self.cpu

        def is_settled() -> bool:
            nonlocal before
            taken, before = self.cpu - before, self.cpu
            return taken <= share * window

        time.sleep(window)
        self.wait_until(is_settled, timeout=timeout, pause=window)

    @property
    def tail(self) -> str:
        return self.log.read_text(errors='replace')[-2000:]

    def stop(self) -> None:
        """Stop the process, gracefully or forcibly; do nothing if it has already exited."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def read_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of its children, both exited and running."""
    try:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
    except FileNotFoundError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICKS + sum(
        read_cpu(int(child)) for child in children
    )


def pin(core: int, pid: int = 0) -> None:
    """Pin a process, by default this one, to this core, if there are several cores."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, {core})


def run_child(command: list[str]) -> tuple[float, float]:
    """Run a command to its end; return its duration and CPU time, in seconds."""
    since = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd='/')
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise NotEndedError(f'It has exited with {child.returncode}.')
    return time.perf_counter() - since, usage.ru_utime + usage.ru_stime
