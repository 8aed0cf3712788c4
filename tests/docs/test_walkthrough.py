"""
The tutorial works: everything on its pages is typed as it is there, page by page, and says what is
said there.

Blocks with names of files in their first lines are put to the files; ``name, added`` is put to the
end of the file, except for the imports that are there already. In the consoles, the lines with
``$`` are typed, and the lines after them are what is printed; consoles with no such lines are what
the operator says by itself. Only times, ports, paths and ages differ. The installation, which is in
``bash``, is typed first; the other ``bash`` is advice.
"""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import clones
import doc_blocks
import pytest

import kopf

EXAMPLES = pathlib.Path(kopf.__file__).parent.parent / 'examples' / 'walkthrough'
PAGES = (
    'problem',
    'prerequisites',
    'resources',
    'starting',
    'creation',
    'updates',
    'diffs',
    'deletion',
    'cleanup',
)
FILE_NAME = re.compile(r'# (?P<name>[\w-]+\.\w+)(?P<is_added>, added)?\n')
PATIENCE = 60.0


def normalize(line, directory):
    """Hide what differs from run to run."""
    line = re.sub(r'^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\]', '[TIME]', line.rstrip())
    line = re.sub(r'\s(\d+[smh])+$', ' AGE', line)
    line = re.sub(r'127\.0\.0\.1:\d+', '127.0.0.1:PORT', line)
    line = re.sub(r'handlers: \d+, failed: \d+', 'handlers: N, failed: N', line)
    line = re.sub(r'kopf \d+\.\d+\.[\w+]+', 'kopf VERSION', line)
    return line.replace('/home/me/tutorial', str(directory))


class Program:
    """What runs in a terminal of its own until Ctrl-C; all that it says is kept."""

    def __init__(self, command, **kwargs):
        self._process = subprocess.Popen(
            ['bash', '-c', f'exec {command}'],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **kwargs,
        )
        self._news = threading.Condition()
        self.said, self._seen, self._is_over = [], 0, False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            with self._news:
                self.said.append(line)
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def wait_until_says(self, expected, clean):
        """Wait for each of the lines, in their order, after what was already waited for."""
        for line in expected:
            with self._news:
                self._news.wait_for(
                    lambda line=line: self._is_over or self._find(line, clean), PATIENCE
                )
                assert self._find(line, clean), f'{line!r} is not in: {"".join(self.said)}'
                self._seen = self._find(line, clean)

    def _find(self, wanted, clean):
        positions = (
            number
            for number, line in enumerate(self.said)
            if number >= self._seen and clean(line) == wanted
        )
        return next(positions, -1) + 1

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(PATIENCE) == 0, ''.join(self.said)
        self._reader.join(PATIENCE)

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE)
        self._process.stdout.close()


class Student:
    """The one who types."""

    def __init__(self, directory, environment):
        self.directory, self.environment = directory, environment
        self.programs = {}
        self.operators = []

    def clean(self, line):
        return normalize(line, self.directory)

    def follow(self, block):
        match = FILE_NAME.match(block.code)
        if block.language in ('python', 'yaml') and match:
            self.write(match['name'], block.code[match.end() :], is_added=bool(match['is_added']))
        if block.language == 'console':
            self.type_all(block.code.splitlines())

    def write(self, name, content, *, is_added):
        path = self.directory / name
        if is_added:
            before = path.read_text()
            lines = [
                line
                for line in content.splitlines()
                if not line.startswith('import ') or line not in before
            ]
            content = before + '\n\n' + '\n'.join(lines).strip() + '\n'
        path.write_text(content)

    def type_all(self, lines):
        starts = [number for number, line in enumerate(lines) if line.startswith('$ ')] + [
            len(lines)
        ]
        self.hear(lines[: starts[0]])
        for start, end in itertools.pairwise(starts):
            self.type(lines[start].removeprefix('$ '), lines[start + 1 : end])

    def hear(self, lines):
        if any('Signal SIGINT' in line for line in lines):
            self.programs['run'].interrupt()
        if lines:
            self.programs['run'].wait_until_says([self.clean(line) for line in lines], self.clean)

    def type(self, command, output):
        expected = [self.clean(line) for line in output if line != '...']
        words = command.split()
        if words[0] == 'export':
            name, value = words[1].split('=')
            self.environment[name] = value.replace('$PWD', str(self.directory))
        elif words[0] == 'kopf':
            self.launch(words[1], command).wait_until_says(expected, self.clean)
        else:
            self.execute(command, expected, is_patient='get' in words)

    def launch(self, kind, command):
        if kind in self.programs:
            self.programs[kind].interrupt()
        self.programs[kind] = Program(command, cwd=self.directory, env=self.environment)
        self.operators += [self.programs[kind]]
        return self.programs[kind]

    def execute(self, command, expected, *, is_patient):
        """
        Run it, and compare; what is only looked at can become as expected a bit later, as for a
        human.
        """
        deadline = time.monotonic() + (PATIENCE if is_patient else 0)
        while True:
            done = subprocess.run(
                ['bash', '-c', command],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=self.environment,
                timeout=PATIENCE,
            )
            printed = [self.clean(line) for line in done.stdout.splitlines()]
            if printed == expected or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert printed == expected, command
        assert done.returncode == 0, done.stdout


@pytest.fixture
def student(tmp_path, kubectl_path):
    directory, tools = tmp_path / 'tutorial', tmp_path / 'tools'
    (installation,) = doc_blocks.read_blocks('walkthrough/prerequisites', 'bash')
    clone = clones.make_clone(tmp_path / 'clone')
    clones.type_commands(installation.code, tmp_path, clone)
    tools.mkdir()
    (tools / 'kubectl').symlink_to(kubectl_path)
    path = os.pathsep.join([str(tools), str(directory / 'venv/bin'), os.environ['PATH']])
    home = str(tmp_path)
    student = Student(
        directory, {'PATH': path, 'HOME': home, 'TMPDIR': home, 'PYTHONUNBUFFERED': '1'}
    )
    try:
        yield student
    finally:
        for program in student.operators:
            program.kill()


@pytest.mark.slow
def test_tutorial_works_as_it_is_written(student):
    for page in PAGES:
        for block in doc_blocks.read_blocks(f'walkthrough/{page}', 'python', 'yaml', 'console'):
            student.follow(block)
        if (EXAMPLES / f'{page}.py').exists():
            assert (student.directory / 'ephemeral.py').read_text() == (
                EXAMPLES / f'{page}.py'
            ).read_text(), page

    student.programs['sandbox'].interrupt()

    installed = clones.read_origin(student.directory / 'venv')
    assert installed == (kopf.__version__, clones.REPOSITORY)
    assert all('Traceback' not in line for program in student.operators for line in program.said)
    for name in ('crd.yaml', 'obj.yaml'):
        assert (student.directory / name).read_text() == (EXAMPLES / name).read_text()


def test_all_pages_of_the_tutorial_are_followed():
    existing = {path.stem for path in (doc_blocks.DOCS / 'walkthrough').glob('*.md')}
    untyped = {
        page
        for page in PAGES
        if doc_blocks.read_blocks(f'walkthrough/{page}', 'bash', 'sh', 'shell')
    }

    assert existing == set(PAGES)
    assert untyped == {'prerequisites', 'cleanup'}
