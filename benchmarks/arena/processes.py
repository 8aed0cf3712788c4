"""Processes that are measured: what they take from the system. Linux only."""

import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

TICKS = os.sysconf('SC_CLK_TCK')
SETTLED = 0.01  # of a core: what is taken by those that do nothing
PATIENCE = 600.0  # seconds for any one thing to end


class NotEndedError(Exception):
    """A process does not do what was waited for: it takes too long, or it has exited."""


class Measured:
    """A process, and what it has taken so far. It is never left behind."""

    def __init__(
        self,
        command: list[str],
        *,
        directory: pathlib.Path,
        environ: Mapping[str, str],
        core: int | None = None,
    ) -> None:
        # Not from here: modules of the current directory would be taken instead of the installed ones.
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
        """Seconds of CPU, of all threads and of all children."""
        return read_cpu(self.process.pid)

    @property
    def memory(self) -> float:
        """Megabytes of the resident memory now."""
        return self.read('VmRSS') / 1024

    @property
    def peak(self) -> float:
        """Megabytes of the resident memory at its highest."""
        return self.read('VmHWM') / 1024

    def read(self, name: str) -> float:
        """Read one of the numbers that the system keeps of a process; sizes are in kilobytes."""
        self.wait_until(lambda: True)
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        match = re.search(rf'^{name}:\s+(\d+)', status, re.M)
        return int(match[1]) if match else float('nan')

    def wait_until(
        self, condition: Callable[[], bool], *, timeout: float = PATIENCE, pause: float = 0.02
    ) -> None:
        """Wait for it while the process lives. Raises `NotEndedError`."""
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
        """Wait until it takes no more than this share of a core, that is until it does nothing."""
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
        """Stop it, politely or not; nothing happens if it has exited already."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def read_cpu(pid: int) -> float:
    """Tell the seconds of CPU of a process, and of its children: both of those that are gone and that are there."""
    try:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
    except FileNotFoundError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICKS + sum(
        read_cpu(int(child)) for child in children
    )


def pin(core: int, pid: int = 0) -> None:
    """Let a process, by default this one, run on this core only, if there is a choice."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, {core})


def run_child(command: list[str]) -> tuple[float, float]:
    """Run a command to its end; return the seconds it took, and the seconds of CPU."""
    since = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd='/')
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise NotEndedError(f'It has exited with {child.returncode}.')
    return time.perf_counter() - since, usage.ru_utime + usage.ru_stime
