"""
Soak: does an operator grow while it lives in churn and faults?

    python benchmarks/soak/soak.py --minutes 20

Objects of three kinds are created, edited and deleted on the sandbox, always under new names, while streams break and
requests fail at random. The operator is a process of its own. Its memory, tasks, threads, sockets and file descriptors
are sampled; the samples go to a picture and a file beside this one. It fails if the memory grows by more than 1 MB per
100,000 events, or anything else grows at all. The first third of the time is for warming up, and does not count.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import plots

import kopf.testing

HERE = pathlib.Path(__file__).parent
KINDS = {'apples': 'Apple', 'pears': 'Pear', 'plums': 'Plum'}
POPULATION = 60  # of each kind
LIMIT = 1.0  # MB of memory per 100,000 events
SLACK = {'tasks': 20, 'threads': 3, 'sockets': 10, 'descriptors': 10}  # how much these can fluctuate
BUSY = 300  # tasks, with which the operator is given a rest: its growth is of interest, not its capacity


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the operator has at a moment."""
    seconds: float
    memory: float  # MB
    tasks: int
    threads: int
    sockets: int
    descriptors: int
    events: int


def build_crd(plural, kind):
    anything = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    version = {'name': 'v1', 'served': True, 'storage': True, 'subresources': {'status': {}}, 'schema': {
        'openAPIV3Schema': {'type': 'object', 'properties': {'spec': anything, 'status': anything}}}}
    return {'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition',
            'metadata': {'name': f'{plural}.soak.dev'},
            'spec': {'group': 'soak.dev', 'scope': 'Namespaced', 'versions': [version],
                     'names': {'plural': plural, 'kind': kind, 'singular': kind.lower()}}}


class Churn:
    """Users who create, edit and delete without a rest, but no faster than the rate."""

    def __init__(self, sandbox, chance):
        self.sandbox, self.chance = sandbox, chance
        self.names = {plural: [] for plural in KINDS}
        self.number = self.changes = 0

    def act(self):
        plural = self.chance.choice(list(KINDS))
        names = self.names[plural]
        if len(names) < POPULATION:
            self._create(plural)
        elif self.chance.random() < 0.5:
            self._delete(plural, names.pop(self.chance.randrange(len(names))))
        with contextlib.suppress(kopf.testing.ApiError):
            self.sandbox.patch(plural, self.chance.choice(names), {'spec': {'size': self.chance.randrange(1000)}})
        self.changes += 1

    def _create(self, plural):
        self.number += 1
        name = f'{plural}-{self.number}'
        labels = {'soak': 'yes', 'thread': 'yes' if self.number % 20 == 0 else 'no'}
        self.sandbox.create({'apiVersion': 'soak.dev/v1', 'kind': KINDS[plural], 'spec': {'size': self.number},
                             'metadata': {'name': name, 'namespace': 'default', 'labels': labels}})
        self.names[plural].append(name)

    def _delete(self, plural, name):
        with contextlib.suppress(kopf.testing.ApiError):
            self.sandbox.delete(plural, name)


def disturb(sandbox, chance):
    """Let something go wrong, of what goes wrong in clusters."""
    faults = sandbox.faults
    match chance.randrange(7):
        case 0:
            faults.cut_streams()
        case 1:
            sandbox.compact()
            faults.end_streams(410)
        case 2:
            faults.inject(verb='patch', code=chance.choice([409, 429, 500, 503]), times=chance.randint(1, 5))
        case 3:
            faults.inject(verb='patch', cut=True, times=chance.randint(1, 3))
        case 4:
            faults.inject(verb='list', code=503, times=2)
            faults.cut_streams()
        case 5:
            faults.inject(verb='watch', code=410, times=1)
            faults.cut_streams()
        case 6:
            faults.inject(verb='patch', latency=0.5, times=3)


def take_sample(pid, report, since):
    """Look at the process from outside, and at what it tells of itself."""
    fields = dict(line.split(':', 1) for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines())
    descriptors = []
    for descriptor in pathlib.Path(f'/proc/{pid}/fd').iterdir():
        with contextlib.suppress(OSError):
            descriptors.append(os.readlink(descriptor))
    told = json.loads(report.read_text().splitlines()[-1])
    return Sample(
        seconds=round(time.monotonic() - since, 1), memory=int(fields['VmRSS'].split()[0]) / 1024,
        tasks=told['tasks'], threads=int(fields['Threads']), events=told['events'],
        sockets=sum(name.startswith('socket:') for name in descriptors), descriptors=len(descriptors))


def run(options, directory):
    """Let it live, and take the samples."""
    chance = random.Random(options.seed)
    report, samples = directory / 'report', []
    with kopf.testing.Sandbox(tls=False, apply=[build_crd(*item) for item in KINDS.items()]) as sandbox:
        environment = {**os.environ, 'KUBECONFIG': str(sandbox.kubeconfig), 'SOAK_REPORT': str(report)}
        with (directory / 'log').open('wb') as log:
            process = subprocess.Popen([sys.executable, '-m', 'kopf', 'run', '-A', '--standalone', '--quiet',
                                        HERE / 'handlers.py'], env=environment, stdout=log, stderr=log)
        try:
            while not report.exists():
                time.sleep(0.1)
            churn, since = Churn(sandbox, chance), time.monotonic()
            moments = {'sample': since, 'fault': since}
            while time.monotonic() - since < options.minutes * 60:
                churn.act()
                live_on(process, options, moments, samples, report, since, sandbox, chance)
        finally:
            process.terminate()
            process.wait(30)
    return samples, process.returncode


def live_on(process, options, moments, samples, report, since, sandbox, chance):  # noqa: PLR0913
    """Do what is due between two changes, and keep the rate."""
    now = time.monotonic()
    if now >= moments['sample']:
        samples.append(take_sample(process.pid, report, since))
        sandbox.requests.clear()
        moments['sample'] = now + options.interval
    if now >= moments['fault']:
        disturb(sandbox, chance)
        moments['fault'] = now + chance.expovariate(1 / options.pause)
    time.sleep(0.05 if samples and samples[-1].tasks > BUSY else 1 / options.rate)


def judge(samples):
    """Tell what has grown, in lines: none if all is well. Also tell the slope of the memory."""
    counted = samples[len(samples) // 3:]
    slope = measure_slope([sample.events / 100_000 for sample in counted], [sample.memory for sample in counted])
    problems = [f'memory grows by {slope:.2f} MB per 100,000 events'] if slope > LIMIT else []
    half = len(counted) // 2
    for name, slack in SLACK.items():  # in the quiet moments: there are always more of them in the busy ones
        before, after = (sorted(getattr(sample, name) for sample in part)[len(part) // 10]
                         for part in (counted[:half], counted[half:]))
        if after > before + slack:
            problems.append(f'{name} have grown from {before} to {after}')
    return slope, problems


def measure_slope(xs, ys):
    """How fast the values grow: by the least squares."""
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle_x) ** 2 for x in xs)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('--minutes', type=float, default=20)
    parser.add_argument('--rate', type=float, default=150, help="changes per second at most")
    parser.add_argument('--interval', type=float, default=2, help="seconds between samples")
    parser.add_argument('--pause', type=float, default=5, help="seconds between faults, on average")
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--output', type=pathlib.Path, default=HERE / 'results')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='kopf-soak-') as directory:
        samples, code = run(options, pathlib.Path(directory))
        if code != 0:
            print(pathlib.Path(directory, 'log').read_text()[-3000:])
    slope, problems = judge(samples)
    problems += [f'the operator has exited with the code {code}'] if code != 0 else []
    options.output.mkdir(exist_ok=True)
    rows = [dataclasses.asdict(sample) for sample in samples]
    (options.output / 'soak.json').write_text('\n'.join(map(json.dumps, rows)) + '\n')
    (options.output / 'soak.svg').write_text(plots.draw(rows, ('memory', *SLACK)))
    first, last = samples[len(samples) // 3], samples[-1]
    print(f'{last.events} events in {last.seconds:.0f} s; memory {first.memory:.1f} → {last.memory:.1f} MB, '
          f'{slope:+.2f} MB per 100,000 events; ' + ', '.join(
              f'{name} {getattr(first, name)} → {getattr(last, name)}' for name in SLACK))
    print(*problems or ['Nothing grows.'], sep='\n')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
