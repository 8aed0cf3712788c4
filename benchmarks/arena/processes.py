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


class Measured:
    """A process, and what it has taken so far. It is never left behind."""

    def __init__(self, command: list[str], *, directory: pathlib.Path, environ: Mapping[str, str]) -> None:
        # Not from here: modules of the current directory would be taken instead of the installed ones.
        self.log = directory / 'log'
        with self.log.open('wb') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory,
                                            env={**os.environ, **environ})

    @property
    def cpu(self) -> float:
        """Seconds of CPU, of all threads."""
        fields = pathlib.Path(f'/proc/{self.process.pid}/stat').read_text().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory(self) -> float:
        """Megabytes of the resident memory now."""
        return self._read('VmRSS')

    @property
    def peak(self) -> float:
        """Megabytes of the resident memory at its highest."""
        return self._read('VmHWM')

    def _read(self, name: str) -> float:
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        match = re.search(rf'^{name}:\s+(\d+) kB', status, re.M)
        return int(match[1]) / 1024 if match else float('nan')

    def wait_until(self, condition: Callable[[], bool], *, timeout: float = 900, pause: float = 0.02) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None:
                raise SystemExit(f'{self.process.args} has exited with {self.process.returncode}:\n{self.tail}')
            if time.monotonic() > deadline:
                raise SystemExit(f'{self.process.args} takes too long:\n{self.tail}')
            time.sleep(pause)

    def settle(self, *, window: float = 1.0) -> None:
        """Wait until it does nothing."""
        while True:
            before = self.cpu
            time.sleep(window)
            self.wait_until(lambda: True)
            if self.cpu - before <= SETTLED * window:
                return

    @property
    def tail(self) -> str:
        return self.log.read_text(errors='replace')[-2000:]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
