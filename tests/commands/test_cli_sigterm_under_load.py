"""
``kopf run`` is stopped by SIGTERM at any moment while its objects are created, changed and deleted
all the time.

The moments are spread from the very start of the process to its steady work: a quarter of them is
before the first object is handled. There are ``$KOPF_TESTS_SIGTERMS`` of them, 20 by default; the
figures are logged in the end.
"""

import collections
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

import pytest
from command_calls import CRD, build_definition, build_object, build_peering

import kopf.testing

logger = logging.getLogger(__name__)

COUNT = int(os.environ.get('KOPF_TESTS_SIGTERMS') or 20)
SPAN = 3.0  # seconds from the first object that is handled by a process, in which most of the signals come
EXIT_LIMIT = 15.0  # seconds from the signal to the end; longer, the operator kills itself
OPERATOR = pathlib.Path(__file__).with_name('loaded_operator.py')
HANDLERS = ('quick_async', 'slow_sync', 'slow_async', 'failing')
LAST_HANDLED = 'kopf.zalando.org/last-handled-configuration'
LEFTOVERS = (
    'never awaited',
    'never retrieved',
    'was destroyed but',
    'Unclosed',
    'unclosed',
    'Exception ignored',
    'has ended unexpectedly',
    'Event loop is closed',
    'refuse to end',
    'are left after the operator',
)


def is_handled(body):
    """Has the operator nothing to do for the object?"""
    annotations = body['metadata'].get('annotations', {})
    own = {key for key in annotations if key.startswith('kopf.zalando.org/')}
    return (
        own == {LAST_HANDLED} and json.loads(annotations[LAST_HANDLED]).get('spec') == body['spec']
    )


class Load:
    """
    Creations, changes and deletions of objects, in a thread, for as long as the block is executed.

    The calm objects are changed only when all previous changes are handled, so that every change is
    a change for the operator. The wild ones are changed at any time: some states are never seen,
    except for the last one.
    """

    def __init__(self, sandbox, seed):
        self.sandbox, self.random = sandbox, random.Random(seed)
        self.counter = 0  # of values; also of those that were not used
        self.changes = 0
        self.expected = collections.defaultdict(set)  # the values that must be seen, by names
        self.latest = {}  # the current values, by names
        self.deleted = set()

    @contextlib.contextmanager
    def going_on(self):
        enough, errors = threading.Event(), []

        def change():
            try:
                while not enough.wait(0.05):
                    self._change_something()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=change, name='load')
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()
        assert not errors

    def _change_something(self):
        self.counter += 1
        if len(self.latest) < 8:
            self._create(f'{"calm" if self.counter % 2 else "wild"}-{self.counter}')
            return
        name = self.random.choice(sorted(self.latest))
        body = self.sandbox.get('kopfexamples', name)
        if name.startswith('calm') and not is_handled(body):
            return
        if self.random.random() < 0.2 and body['metadata'].get('finalizers'):
            self._delete(name)
        else:
            self._patch(name)

    def _create(self, name):
        self.sandbox.create({**build_object(name), 'spec': {'value': self.counter}})
        self._note(name)

    def _patch(self, name):
        self.sandbox.patch('kopfexamples', name, {'spec': {'value': self.counter}})
        self._note(name)

    def _note(self, name):
        self.changes += 1
        self.latest[name] = self.counter
        if name.startswith('calm'):
            self.expected[name].add(self.counter)

    def _delete(self, name):
        self.sandbox.delete('kopfexamples', name)
        del self.latest[name]
        self.deleted.add(name)


@dataclasses.dataclass(frozen=True)
class Moment:
    """When a process is stopped."""

    is_early: bool  # since its start, or since it has begun to handle objects?
    seconds: float


@dataclasses.dataclass(frozen=True)
class Run:
    """How one process was."""

    name: str
    moment: Moment
    code: int
    seconds: float  # from the signal to the end
    output: str
    notes: list  # its part of the journal

    @property
    def is_begun(self):
        """
        Was the signal noticed by an operator? Otherwise, there was none yet, and nothing was done
        at all.
        """
        return 'Signal SIGTERM is received' in self.output


class Runs:
    """Processes of the operator, one after another."""

    def __init__(self, sandbox, path):
        self.sandbox, self.path = sandbox, path
        (path / 'temporary').mkdir()

    def execute(self, name, moment):
        """Run the operator until this moment; check how it has ended."""
        with self.start(name) as process:
            if not moment.is_early:
                self.wait_until_working(process, name)
            time.sleep(moment.seconds)
            run = self.stop(process, name, moment)
            self.check(run, process)
        return run

    @contextlib.contextmanager
    def start(self, name):
        """Run it in a session of its own, with its output in a file."""
        command = [
            sys.executable,
            '-m',
            'kopf',
            'run',
            '-A',
            '--peering=default',
            '--log-format=plain',
            OPERATOR,
        ]
        env = {
            'KUBECONFIG': str(self.sandbox.kubeconfig),
            'JOURNAL': str(self.path / f'journal-{name}'),
            'EXIT_LIMIT': str(EXIT_LIMIT),
            'TMPDIR': str(self.path / 'temporary'),
            'PYTHONWARNINGS': 'default',
            'PYTHONDONTWRITEBYTECODE': '1',
        }
        with open(self.path / f'output-{name}', 'w') as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def wait_until_working(self, process, name, timeout=60):
        """Wait until it handles any object, and tell how many seconds it took."""
        since = time.monotonic()
        while not any(note['fn'] in HANDLERS for note in self.read_notes(name)):
            assert process.poll() is None
            assert time.monotonic() < since + timeout
            time.sleep(0.02)
        return time.monotonic() - since

    def stop(self, process, name, moment):
        since = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=EXIT_LIMIT * 3)
        seconds = time.monotonic() - since
        return Run(
            name,
            moment,
            code,
            seconds,
            output=(self.path / f'output-{name}').read_text(),
            notes=self.read_notes(name),
        )

    def read_notes(self, name='*'):
        """Read the journals of the process, or of all of them."""
        texts = [path.read_text() for path in self.path.glob(f'journal-{name}')]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def check(self, run, process):
        """Check that it has ended as promised, and that nothing is left of it."""
        began = [note['fn'] for note in run.notes if note['what'] == 'begin']
        ended = [note['fn'] for note in run.notes if note['what'] == 'end']
        if run.is_begun:
            assert run.code == 0, run
            assert ended.count('cleanup') == ended.count('startup'), run
            assert ended[-1:] in ([], ['cleanup']), run
        else:
            assert run.code in (-signal.SIGTERM, 128 + signal.SIGTERM), run
            assert began == [], run
        assert run.seconds < EXIT_LIMIT, run
        assert [text for text in LEFTOVERS if text in run.output] == [], run
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        assert list((self.path / 'temporary').iterdir()) == []
        assert not self.sandbox.get('clusterkopfpeerings', 'default').get('status')


@pytest.fixture
def sandbox():
    peerings = build_definition('clusterkopfpeerings', 'ClusterKopfPeering')
    with kopf.testing.Sandbox(
        tls=False, apply=[CRD, peerings, build_peering('default')]
    ) as sandbox:
        yield sandbox


@pytest.fixture
def load(sandbox):
    return Load(sandbox, seed=COUNT)


@pytest.fixture
def runs(sandbox, tmp_path):
    return Runs(sandbox, tmp_path)


def choose_moments(count, readiness):
    """
    Spread them evenly over the time in which a process gets ready, and over its work, in a random
    order.
    """
    chance = random.Random(count)
    early = count // 4
    moments = [
        Moment(True, (number + chance.random()) / early * readiness) for number in range(early)
    ]
    moments += [Moment(False, number * SPAN / (count - early)) for number in range(count - early)]
    chance.shuffle(moments)
    return moments


def wait_until_settled(sandbox, load, timeout=120):
    """Wait until all objects are handled, and all deleted ones are gone."""
    deadline = time.monotonic() + timeout
    while True:
        bodies = {body['metadata']['name']: body for body in sandbox.list('kopfexamples')}
        unhandled = sorted(name for name, body in bodies.items() if not is_handled(body))
        if bodies.keys() == load.latest.keys() and not unhandled:
            return bodies
        assert time.monotonic() < deadline, (unhandled, bodies.keys() ^ load.latest.keys())
        time.sleep(0.1)


def check_nothing_is_lost(notes, load):
    """
    Check that every change has been handled to the end by every handler, and every deletion too.
    """
    seen = {fn: collections.defaultdict(set) for fn in (*HANDLERS, 'delete')}
    for note in notes:
        if note['what'] == 'end' and note['fn'] in seen:
            seen[note['fn']][note['name']].add(note['value'])
    assert set(seen['delete']) == load.deleted
    for fn in HANDLERS:
        missed = {name: values - seen[fn][name] for name, values in load.expected.items()}
        assert {name: values for name, values in missed.items() if values} == {}, fn
        assert {
            name for name, value in load.latest.items() if value not in seen[fn][name]
        } == set(), fn


def log_figures(done, load):
    phases = collections.Counter(
        'handling'
        if any(note['fn'] in HANDLERS for note in run.notes)
        else 'starting'
        if run.is_begun
        else 'loading'
        for run in done
    )
    times = sorted(run.seconds for run in done)
    logger.info(
        '%d signals: %s; exit in %.2f s at most, %.2f s usually; %d changes of %d objects, %d deleted.',
        len(done),
        dict(phases),
        times[-1],
        statistics.median(times),
        load.changes,
        len(load.latest) + len(load.deleted),
        len(load.deleted),
    )


@pytest.mark.slow
@pytest.mark.timeout(60 + COUNT * 20)
@pytest.mark.guarantee('SHD-002', 'CLI-025', 'NEW-216')
def test_nothing_is_lost_and_nothing_is_left_by_signals_at_any_moment(sandbox, load, runs):
    with load.going_on():
        with runs.start('first') as process:
            readiness = runs.wait_until_working(process, 'first')
            runs.check(runs.stop(process, 'first', Moment(False, 0)), process)
        done = [
            runs.execute(str(number), moment)
            for number, moment in enumerate(choose_moments(COUNT, readiness))
        ]
    with runs.start('last') as process:
        bodies = wait_until_settled(sandbox, load)
        runs.check(runs.stop(process, 'last', Moment(False, 0)), process)
    log_figures(done, load)

    assert {name: body['spec']['value'] for name, body in bodies.items()} == load.latest
    check_nothing_is_lost(runs.read_notes(), load)
