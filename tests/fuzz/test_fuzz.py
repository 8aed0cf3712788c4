"""
What is known of the fuzzing stays fixed: all inputs that once broke something, and some mutations
of them.
"""

import random
import subprocess
import sys

import fuzz_mutations
import fuzz_runs
import fuzz_targets
import pytest

TARGETS = [pytest.param(target, id=name) for name, target in fuzz_targets.TARGETS.items()]
KNOWN = [
    pytest.param(target, path, id=f'{name}-{path.name}')
    for name, target in fuzz_targets.TARGETS.items()
    for path in target.list_corpus()
]


@pytest.mark.guarantee('FND-050')
@pytest.mark.parametrize('target, path', KNOWN)
def test_known_inputs_break_nothing(target, path):
    check = target.load()

    check(path.read_bytes())


@pytest.mark.guarantee('FND-050')
@pytest.mark.parametrize('target', TARGETS)
def test_mutations_of_known_inputs_break_nothing(target):
    check, chance = target.load(), random.Random(target.name)
    pool = [path.read_bytes() for path in target.list_corpus()]

    for _ in range(target.mutations):
        check(fuzz_mutations.mutate(chance.choice(pool), pool, chance))


def test_mutations_are_the_same_for_the_same_seed():
    pool = [path.read_bytes() for path in fuzz_targets.TARGETS['sandbox'].list_corpus()]

    made = [
        [fuzz_mutations.mutate(pool[0], pool, random.Random(seed)) for seed in range(100)]
        for _ in range(2)
    ]

    assert made[0] == made[1]
    assert len(set(made[0])) > 90


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    """A target that is broken by null bytes, with one input known."""
    (tmp_path / 'fragile.py').write_text('def check(source):\n    assert b"\\0" not in source\n')
    corpus = tmp_path / 'corpus' / 'fragile'
    corpus.mkdir(parents=True)
    (corpus / 'sample').write_bytes(b'sample')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fuzz_targets, 'CORPUS', tmp_path / 'corpus')
    yield fuzz_targets.Target('fragile', 'fragile', mutations=1)
    sys.modules.pop('fragile', None)


def test_input_that_breaks_something_is_saved_and_can_be_repeated(fragile, tmp_path, capsys):
    code = fuzz_runs.fuzz(fragile, 'random', seconds=20, seed=1)

    fuzz_runs.report(fragile)
    [path] = (tmp_path / '.fuzz' / 'failures' / 'fragile').iterdir()
    assert code == 1
    assert f'--target fragile --repeat {path.relative_to(tmp_path)}' in capsys.readouterr().out
    with pytest.raises(AssertionError):
        fuzz_runs.repeat(fragile, [path])


def test_input_that_kills_the_process_is_saved(fragile, tmp_path, monkeypatch):
    fuzz_runs.ROOT.mkdir()
    fuzz_runs.get_current(fragile).write_bytes(b'{\0')
    monkeypatch.setattr(fuzz_runs, '__file__', str(tmp_path / 'fragile_runs.py'))
    (tmp_path / 'fragile_runs.py').write_text('import os; os.abort()')

    is_fine = fuzz_runs.run_alone(fragile, 'random', seconds=1, seed=1)

    [path] = (tmp_path / '.fuzz' / 'failures' / 'fragile').iterdir()
    assert not is_fine
    assert path.read_bytes() == b'{\0'


@pytest.mark.slow
def test_targets_are_fuzzed_in_turn_from_the_command_line(tmp_path):
    command = [
        sys.executable,
        fuzz_runs.__file__,
        '--minutes',
        '0.02',
        '--engine',
        'random',
        '--seed',
        '1',
        '--target',
        'json',
        '--target',
        'selectors',
    ]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert 'json: 1 seconds, random, seed 1' in done.stdout
    assert 'selectors: ' in done.stdout
    assert done.stdout.count('nothing is broken') == 2
