"""
Soak: check that an operator does not grow over time under churn and faults.

    python benchmarks/soak/soak.py --minutes 20

Objects of three kinds are created, edited and deleted on the sandbox, always under new names, while
streams break and requests fail at random. The operator is a separate process. From time to time,
the churn pauses until nothing is in progress: then the operator's memory, tasks, threads, sockets
and file descriptors are compared with those at the other moments of rest. The check fails if any of
them grows with the number of events by more than ``verdicts.LIMITS``. The worst load is at the
beginning: there are storms during the warm-up, so that the operator never needs more memory later.
The samples are saved as a picture and a file in the directory of results.

With ``--leak``, the operator leaks on purpose, and the check should fail: this verifies that leaks
are noticed.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import churns
import plots
import verdicts

import kopf.testing

HERE = pathlib.Path(__file__).resolve().parent
# With this many tasks, the churn slows down: the growth is of interest, not the capacity.
BUSY = 300
PATIENCE = 90.0  # seconds to wait until nothing is in progress
STORM = 6.0  # seconds: longer than any other fault lasts
LEAKS = ('tasks', 'threads', 'sockets', 'memory')


class Operator:
    """The process of the operator, observed from outside and by its own reports of every second."""

    def __init__(self, kubeconfig, directory, leak):
        self.report, self.log = directory / 'report', directory / 'log'
        environ = {
            **os.environ,
            'KUBECONFIG': str(kubeconfig),
            'SOAK_REPORT': str(self.report),
            'SOAK_LEAK': leak,
        }
        command = [
            sys.executable,
            '-m',
            'kopf',
            'run',
            '-A',
            '--standalone',
            '--quiet',
            HERE / 'handlers.py',
        ]
        with self.log.open('wb') as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        while not self.report.exists():
            if self.process.poll() is not None:
                raise SystemExit(self.log.read_text())
            time.sleep(0.1)

    @property
    def told(self):
        """All reports of the operator."""
        return [
            json.loads(line)
            for line in self.report.read_text().splitlines(keepends=True)
            if line.endswith('\n')
        ]

    @property
    def memory(self):
        return int(self._read_status()['VmRSS'].split()[0]) / 1024

    @property
    def descriptors(self):
        """The names of open files and sockets, e.g. ``socket:[123]``."""
        found = []
        for descriptor in pathlib.Path(f'/proc/{self.process.pid}/fd').iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(descriptor))
        return found

    @property
    def sockets(self):
        return {name for name in self.descriptors if name.startswith('socket:')}

    def take_sample(self, seconds, threaded, *, is_rest):
        """Measure the process now, without the ``threaded`` daemons in threads."""
        told, status = self.told[-1], self._read_status()
        return verdicts.Sample(
            seconds=round(seconds, 1),
            events=told['events'],
            memory=self.memory,
            heap=told['heap'],
            blocks=told['blocks'],
            tasks=told['tasks'] - threaded,
            threads=int(status['Threads']) - threaded,
            sockets=len(self.sockets),
            descriptors=len(self.descriptors),
            is_rest=is_rest,
        )

    def wait_until_quiet(self):
        """Wait until nothing is in progress, but not forever; then collect the garbage."""
        deadline, seen = time.monotonic() + PATIENCE, len(self.told)
        while time.monotonic() < deadline and not verdicts.is_quiet(self.told[seen:]):
            time.sleep(0.2)
        self._command(signal.SIGUSR1)

    def trim(self):
        """Make the operator return its free memory to the system; return the memory in use."""
        self._command(signal.SIGUSR2)
        return self.memory

    def _command(self, command):
        """Send a signal, and wait until its effects are reported."""
        told = len(self.told)
        self.process.send_signal(command)
        while len(self.told) < told + 2:
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)

    def _read_status(self):
        return dict(
            line.split(':', 1)
            for line in pathlib.Path(f'/proc/{self.process.pid}/status').read_text().splitlines()
        )


class Soak:
    """One run of an operator under churn."""

    def __init__(self, sandbox, operator, options):
        self.sandbox, self.operator, self.options = sandbox, operator, options
        self.chance = random.Random(options.seed)
        self.churn = churns.Churn(sandbox, self.chance)
        self.since = time.monotonic()
        self.samples = []

    def run(self):
        """Run the churn; return the memory in use after the free memory is released at the end."""
        fault = rest = sample = self.since
        while (now := time.monotonic()) < self.since + self.options.minutes * 60:
            self.churn.act()
            if now >= fault:
                churns.disturb(self.sandbox, self.chance)
                fault = now + self.chance.expovariate(1 / self.options.pause)
            if now >= rest:
                if self.is_warming_up:
                    self._have_storm()
                self._have_rest()
                rest = time.monotonic() + self.options.rest
            if now >= sample:
                self._take_sample()
                sample = now + self.options.interval
            time.sleep(0.05 if self.samples[-1].tasks > BUSY else 1 / self.options.rate)
        return self.operator.trim()

    @property
    def is_warming_up(self):
        return time.monotonic() < self.since + self.options.minutes * 60 * verdicts.WARMING

    def _have_storm(self):
        """Make many changes while the operator is disconnected: no later burst is as large."""
        deadline = time.monotonic() + STORM
        with self.sandbox.faults.inject(code=503):
            self.sandbox.faults.cut_streams()
            while time.monotonic() < deadline:
                self.churn.act()

    def _have_rest(self):
        self.sandbox.faults.lift()
        self.churn.fill()
        self.operator.wait_until_quiet()
        self._take_sample(is_rest=True)

    def _take_sample(self, *, is_rest=False):
        seconds = time.monotonic() - self.since
        self.samples.append(
            self.operator.take_sample(seconds, self.churn.threaded, is_rest=is_rest)
        )
        self.sandbox.requests.clear()


def soak(options, directory):
    """Return the samples, the memory at the end, and the problems of the process itself."""
    with kopf.testing.Sandbox(
        tls=False, apply=[churns.build_crd(*item) for item in churns.KINDS.items()]
    ) as sandbox:
        operator = Operator(sandbox.kubeconfig, directory, options.leak or '')
        life = Soak(sandbox, operator, options)
        code = None
        try:
            trimmed = life.run()
        finally:
            code = operator.stop()
    if code != 0:
        print(operator.log.read_text()[-3000:])
    return (
        life.samples,
        trimmed,
        [f'the operator has exited with the code {code}'] if code != 0 else [],
    )


def save(samples, directory):
    directory.mkdir(exist_ok=True)
    rows = [dataclasses.asdict(sample) for sample in samples]
    (directory / 'soak.json').write_text('\n'.join(map(json.dumps, rows)) + '\n')
    (directory / 'soak.svg').write_text(plots.draw(rows, list(verdicts.LIMITS)))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--minutes', type=float, default=20)
    parser.add_argument('--rate', type=float, default=500, help='changes per second at most')
    parser.add_argument('--interval', type=float, default=2, help='seconds between samples')
    parser.add_argument('--rest', type=float, default=40, help='seconds between moments of rest')
    parser.add_argument('--pause', type=float, default=5, help='seconds between faults, on average')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--leak', choices=LEAKS, help='leak this on purpose')
    parser.add_argument('--output', type=pathlib.Path, default=HERE / 'results')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='kopf-soak-') as directory:
        samples, trimmed, problems = soak(options, pathlib.Path(directory))
    save(samples, options.output)
    last = samples[-1]
    print(
        f'{last.events} events in {last.seconds:.0f} s; memory {last.memory:.1f} MB, or {trimmed:.1f} MB '
        f'if its free part is given back.'
    )
    print(*verdicts.describe(samples), sep='\n')
    problems += verdicts.judge(samples)
    print(*problems or ['Nothing grows.'], sep='\n')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
