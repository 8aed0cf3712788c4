"""
Replicas of an operator in real processes, which are stopped, killed, and frozen under load.

Only a few times here: ``make replicas`` does it as often as promised.
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from clusters import build_crd, build_object

import kopf.testing
from kopf.testing import Span, find_overlaps

HERE = pathlib.Path(__file__).parent
LEASE = 'replicas'
OBJECTS = 4
IS_FULL = 'KOPF_REPLICAS_RUNS' in os.environ
RUNS = int(os.environ.get('KOPF_REPLICAS_RUNS', '2'))
FREEZES = int(os.environ.get('KOPF_REPLICAS_FREEZES', '3'))
PATIENCE = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 60 * RUNS + 20 * FREEZES)]


class Replica:
    """A process of the operator."""

    def __init__(self, crowd, number):
        self.name = f'replica-{number}'
        user = crowd.sandbox.add_user(self.name, groups=['system:masters'])
        self._notes = crowd.path / f'{self.name}.notes'
        self.log = crowd.path / f'{self.name}.log'
        self._notes.touch()
        env = {
            **os.environ,
            'KUBECONFIG': str(user.kubeconfig),
            'POD_NAME': self.name,
            'ELECTION': ','.join(map(str, [LEASE, *crowd.times])),
            'NOTES': str(self._notes),
        }
        with self.log.open('w') as log:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'kopf', 'run', '-A', str(HERE / 'replicated_operator.py')],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
            )
        self.killed = None  # when it was killed, if it was

    @property
    def notes(self):
        return [json.loads(line) for line in self._notes.read_text().splitlines()]

    @property
    def is_promoted(self):
        return any(what == 'promoted' for what, _, _ in self.notes)

    @property
    def spans(self):
        """What its handlers did; what was interrupted has ended with the process."""
        begun = {}
        for what, subject, moment in self.notes:
            if what == 'begin':
                begun[subject] = moment
            elif what == 'end':
                yield Span(self.name, subject, begun.pop(subject), moment)
        for subject, moment in begun.items():
            yield Span(self.name, subject, moment, max(moment, self.killed or moment))

    def send(self, number):
        self.process.send_signal(number)

    def wait(self):
        code = self.process.wait(timeout=PATIENCE)
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.killed = time.monotonic()


class Crowd:
    """Replicas of one operator, and the load on them."""

    def __init__(self, sandbox, path, times):
        self.sandbox, self.path, self.times = sandbox, path, times
        self.replicas, self._numbers, self._values = [], itertools.count(), itertools.count(1)
        self._is_over = threading.Event()
        self._changing = threading.Thread(target=self._change, name='load')

    def __enter__(self):
        self.sandbox.apply(build_crd())
        for number in range(OBJECTS):
            self.sandbox.create(build_object(f'obj{number}', spec={'x': 0}))
        self._changing.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._changing.join()
        for replica in self.replicas:
            with contextlib.suppress(ProcessLookupError):
                replica.send(signal.SIGCONT)
            replica.kill()

    def _change(self):
        while not self._is_over.wait(0.05):
            value = next(self._values)
            self.sandbox.patch('kopfexamples', f'obj{value % OBJECTS}', {'spec': {'x': value}})

    def settle(self):
        """End the load, and wait until the last changes of all objects are handled."""
        self._is_over.set()
        self._changing.join()
        for number in range(OBJECTS):
            self.sandbox.wait(
                'kopfexamples',
                f'obj{number}',
                lambda body: body.get('status', {}).get('seen') == body['spec']['x'],
                timeout=PATIENCE,
            )

    def launch(self):
        replica = Replica(self, next(self._numbers))
        self.replicas.append(replica)
        return replica

    def start(self):
        """Start a replica, and wait until it stands by, or leads if it is the first one."""
        replica = self.launch()
        wait_for(lambda: self._is_watching(replica), replica)
        return replica

    def _is_watching(self, replica):
        asked = [one for one in self.sandbox.requests if one.user == replica.name]
        return any(one.verb == 'watch' and one.plural == 'kopfexamples' for one in asked)

    @property
    def holder(self):
        with contextlib.suppress(kopf.testing.ApiError):
            spec = self.sandbox.get('leases', LEASE)['spec']
            return spec['holderIdentity'].rpartition('_')[0]

    def _is_holder(self, replica):
        return replica.process.poll() is None and replica.name == self.holder

    def find_leader(self):
        wait_for(lambda: any(one.is_promoted for one in self.replicas if self._is_holder(one)))
        [leader] = [one for one in self.replicas if self._is_holder(one)]
        wait_for(lambda: list(leader.spans), leader)
        return leader

    def check(self):
        self.settle()
        spans = [span for replica in self.replicas for span in replica.spans]
        assert find_overlaps(spans) == []
        return spans


def wait_for(check, replica=None):
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, '' if replica is None else replica.log.read_text()
        time.sleep(0.02)


@pytest.fixture
def crowd(request, tmp_path):
    with (
        kopf.testing.Sandbox(rbac=True) as sandbox,
        Crowd(sandbox, tmp_path, request.param) as crowd,
    ):
        yield crowd


def measure_gap(replica, next_one, since):
    """For how long no handlers were running, of those that have begun after the moment."""
    ends = [span.end for span in replica.spans if span.end > since]
    begins = [span.start for span in next_one.spans]
    return min(begins) - max([since, *ends])


@pytest.mark.guarantee('LDR-016')
@pytest.mark.parametrize('crowd', [(15, 10, 2)], indirect=True)
def test_the_next_replica_continues_at_once_after_a_graceful_exit(crowd):
    gaps = []
    crowd.start()
    for _ in range(RUNS):
        leader = crowd.find_leader()
        crowd.start()
        since = time.monotonic()
        leader.send(signal.SIGTERM)
        assert leader.wait() == 0, leader.log.read_text()
        gaps.append(measure_gap(leader, crowd.find_leader(), since))

    crowd.check()
    gaps.sort()
    print(f'gaps of graceful exits: {gaps[len(gaps) // 2]:.2f} s, at most {gaps[-1]:.2f} s')  # noqa: T201 - for `make replicas`
    assert gaps[int(len(gaps) * 0.99) if IS_FULL else 0] <= 2.0


@pytest.mark.guarantee('LDR-016')
@pytest.mark.parametrize('crowd', [(5, 3, 1)], indirect=True)
def test_the_next_replica_continues_after_the_lease_of_a_killed_one_has_expired(crowd):
    gaps = []
    crowd.start()
    for _ in range(RUNS):
        leader = crowd.find_leader()
        crowd.start()
        time.sleep(random.random())
        since = time.monotonic()
        leader.kill()
        gaps.append(measure_gap(leader, crowd.find_leader(), since))

    crowd.check()
    print(f'gaps of kills: {sorted(gaps)[len(gaps) // 2]:.2f} s, at most {max(gaps):.2f} s')  # noqa: T201 - for `make replicas`
    assert max(gaps) <= 8.0


@pytest.mark.guarantee('LDR-009', 'LDR-010', 'LDR-016')
@pytest.mark.parametrize('crowd', [(2, 1, 0.2)], indirect=True)
def test_a_replica_that_wakes_up_too_late_writes_nothing_and_exits(crowd):
    late = 0
    crowd.start()
    crowd.start()
    for _ in range(FREEZES):
        leader = crowd.find_leader()
        time.sleep(random.random() * 0.3)
        leader.send(signal.SIGSTOP)
        time.sleep(random.choice([0.1, 0.5, 2, 3]) * (0.5 + random.random()))
        is_replaced = crowd.holder not in ('', None, leader.name)
        count = len(crowd.sandbox.requests)
        leader.send(signal.SIGCONT)
        if is_replaced:
            late += 1
            assert leader.wait() == 1, leader.log.read_text()
            asked = list(crowd.sandbox.requests)[count:]
            writes = [one for one in asked if one.user == leader.name and is_write(one)]
            assert writes == []
            crowd.start()
        elif leader.process.poll() is not None:
            crowd.start()

    crowd.settle()
    print(f'{late} of {FREEZES} freezes were too long')  # noqa: T201 - for `make replicas`


@pytest.mark.guarantee('LDR-010', 'LDR-016')
@pytest.mark.parametrize('crowd', [(2, 1, 0.2)], indirect=True)
def test_a_replica_that_blocks_its_event_loop_exits_before_others_lead(crowd, monkeypatch):
    monkeypatch.setenv('BLOCK', '30')
    leader = crowd.launch()
    monkeypatch.delenv('BLOCK')
    wait_for(lambda: crowd.holder == leader.name, leader)
    crowd.start()

    assert leader.wait() == 1
    leader.killed = time.monotonic()
    assert 'The operator is blocked, and has lost its leadership' in leader.log.read_text()
    crowd.check()


def is_write(asked):
    return asked.verb in ('create', 'update', 'patch', 'delete')
