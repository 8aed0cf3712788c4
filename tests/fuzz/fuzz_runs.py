"""
Fuzz the targets for some minutes, in equal shares, and fail if any of them is broken by any input.

    python tests/fuzz/fuzz_runs.py --minutes 5
    python tests/fuzz/fuzz_runs.py --minutes 60 --target sandbox
    python tests/fuzz/fuzz_runs.py --target sandbox --repeat .fuzz/failures/sandbox/crash-…

Each target is fuzzed in a process of its own, so that it can break anything but the others. With
atheris, where it is installed (the extra `fuzz`), inputs are chosen by what code they reach, and
otherwise at random. Those that reach something new are kept in `.fuzz/corpus` for the next runs,
and those that break something in `.fuzz/failures`. When it is fixed, give the input a name that
tells what was wrong, and put it to `tests/fuzz/corpus/<target>`.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import pathlib
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence

import fuzz_mutations
import fuzz_targets

ROOT = pathlib.Path('.fuzz')

TIMEOUT = 20
"""Seconds for one input: none of them takes more than a fraction of a second."""

GRACE = 60
"""Seconds for a process to start and to end, besides the time for its work; then it is killed."""


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description='Fuzz what reads the data of others.')
    parser.add_argument('--minutes', type=float, default=5.0, help='for all targets together')
    parser.add_argument(
        '--target',
        choices=list(fuzz_targets.TARGETS),
        action='append',
        help='by default, all of them',
    )
    parser.add_argument(
        '--seed',
        type=int,
        default=None,
        help='for the inputs at random; by default, always new ones',
    )
    parser.add_argument(
        '--engine',
        choices=['atheris', 'random'],
        default=None,
        help='by default, the best there is',
    )
    parser.add_argument(
        '--repeat', type=pathlib.Path, nargs='+', metavar='FILE', help='only check these inputs'
    )
    # In this very process.
    parser.add_argument('--alone', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    targets = [fuzz_targets.TARGETS[name] for name in options.target or fuzz_targets.TARGETS]
    seconds = options.minutes * 60 / len(targets)
    engine = options.engine or (
        'random' if importlib.util.find_spec('atheris') is None else 'atheris'
    )
    seed = random.randrange(2**31) if options.seed is None else options.seed
    if options.repeat:
        return repeat(targets[0], options.repeat)
    if options.alone:
        return fuzz(targets[0], engine, seconds, seed)
    failed = [target for target in targets if not run_alone(target, engine, seconds, seed)]
    for target in failed:
        report(target)
    return 1 if failed else 0


def repeat(target: fuzz_targets.Target, paths: Sequence[pathlib.Path]) -> int:
    """Check the inputs as they are; what is broken is raised."""
    check = target.load()
    for path in paths:
        say(f'{target.name}: {path}')
        check(path.read_bytes())
    return 0


def run_alone(target: fuzz_targets.Target, engine: str, seconds: float, seed: int) -> bool:
    """Fuzz one target in a process of its own; tell if nothing is broken."""
    say(f'{target.name}: {seconds:.0f} seconds, {engine}, seed {seed}')
    command = [
        sys.executable,
        __file__,
        '--alone',
        '--target',
        target.name,
        '--minutes',
        str(seconds / 60),
        '--engine',
        engine,
        '--seed',
        str(seed),
    ]
    try:
        code = subprocess.run(command, timeout=seconds + GRACE, check=False).returncode
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL
    if code:  # if it was killed, it could save nothing itself
        current = get_current(target)
        if current.exists():
            save(target, current.read_bytes())
    return not code


def report(target: fuzz_targets.Target) -> None:
    """Show how to repeat the latest failure."""
    inputs = (
        list((ROOT / 'failures' / target.name).iterdir())
        if (ROOT / 'failures' / target.name).exists()
        else []
    )
    latest = max(inputs, key=lambda path: path.stat().st_mtime, default=None)
    say(
        f'BROKEN: {target.name}. '
        + (
            'There is no input for it.'
            if latest is None
            else 'Repeat it with:\n    '
            f'{sys.executable} {__file__} --target {target.name} --repeat {latest}'
        )
    )


def fuzz(target: fuzz_targets.Target, engine: str, seconds: float, seed: int) -> int:
    """Fuzz one target in this process; with atheris, the process is ended by the library."""
    kept = ROOT / 'corpus' / target.name
    for directory in (kept, ROOT / 'failures' / target.name):
        directory.mkdir(parents=True, exist_ok=True)
    if engine == 'atheris':
        fuzz_by_coverage(target, kept, seconds, seed)
        return 0
    pool = [path.read_bytes() for path in [*target.list_corpus(), *sorted(kept.iterdir())]]
    return fuzz_at_random(target, pool, seconds, seed)


def fuzz_by_coverage(
    target: fuzz_targets.Target, kept: pathlib.Path, seconds: float, seed: int
) -> None:
    import atheris

    with atheris.instrument_imports(include=['kopf']):
        check = target.load()
    pool = [path.read_bytes() for path in target.list_corpus()]

    def mutate(source: bytes, limit: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(source, limit))
        return fuzz_mutations.mutate(source, pool, chance)[:limit]

    failures = ROOT / 'failures' / target.name
    arguments = [
        f'-max_total_time={max(1, int(seconds))}',
        f'-seed={seed + 1}',
        f'-timeout={TIMEOUT}',
        f'-artifact_prefix={failures}/',
        f'-max_len={fuzz_mutations.LIMIT}',
        '-rss_limit_mb=2048',
        '-print_final_stats=1',
        '-verbosity=0',
        str(kept),
        str(fuzz_targets.CORPUS / target.name),
    ]
    atheris.Setup([sys.argv[0], *arguments], check, custom_mutator=mutate)
    atheris.Fuzz()


def fuzz_at_random(
    target: fuzz_targets.Target, pool: Sequence[bytes], seconds: float, seed: int
) -> int:
    check = target.load()
    chance = random.Random(f'{target.name} {seed}')
    deadline = time.monotonic() + seconds
    count = 0
    with get_current(target).open('wb', buffering=0) as current:
        while time.monotonic() < deadline:
            source = fuzz_mutations.mutate(chance.choice(pool), pool, chance)
            current.seek(0)
            current.truncate()
            current.write(source)
            try:
                with limited(TIMEOUT):
                    check(source)
            except Exception:
                traceback.print_exc()
                save(target, source)
                return 1
            count += 1
    get_current(target).unlink()
    say(f'{target.name}: {count} inputs, nothing is broken')
    return 0


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise an error when the time is over, wherever it is in Python code."""

    def expire(*_: object) -> None:
        raise TimeoutError(f'The input takes more than {seconds} seconds.')

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def get_current(target: fuzz_targets.Target) -> pathlib.Path:
    """
    Tell where the input is that is being checked: when the process is killed, it is known by which
    one.
    """
    return ROOT / f'current-{target.name}'


def save(target: fuzz_targets.Target, source: bytes) -> None:
    directory = ROOT / 'failures' / target.name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f'crash-{hashlib.sha1(source).hexdigest()}').write_bytes(source)
    get_current(target).unlink(missing_ok=True)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == '__main__':
    sys.exit(main())
