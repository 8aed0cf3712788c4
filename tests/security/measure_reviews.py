"""
How long the event loop is held by hostile reviews: ``python tests/security/measure_reviews.py
[--plain] [SHAPE ...]``.

An operator runs in a process of its own, and gets reviews of 7 MB in many shapes, and of 255 kB in
the densest ones. With ``--plain``, there are no optional libraries in it, such as ``orjson``. It
takes a few minutes. The machine should have nothing else to do: what other processes take, is
measured too, so the lowest figure of several is shown first.
"""

import argparse
import pathlib
import sys
import tempfile
import time

from attacked_operators import build_review, running_operator

PLAIN = 'import sys; sys.modules.update(uvloop=None, orjson=None); from kopf import cli; cli.main()'
SIZE = 7 * 1024 * 1024 - 1000
MEDIUM = 255 * 1024


def fill(value):
    """Build a review with this JSON deep inside."""
    return build_review({'a': '@'}).replace(b'"@"', value)


def repeat(unit, size=SIZE):
    return fill(b'[' + b','.join([unit] * (size // (len(unit) + 1))) + b']')


def build_usual(count=60_000):
    spec = {f'key-{number}': {'name': f'{number}', 'list': [1, 2]} for number in range(count)}
    return build_review(spec, spec)


def build_keys(size=SIZE):
    return fill(b'{' + b','.join(b'"%x":1' % number for number in range(size // 11)) + b'}')


def build_changes(size=SIZE):
    """Build a review in which all of the many fields are changed."""
    count = size // 2 // 16
    return build_review(
        {'a': dict.fromkeys(map(hex, range(count)), 1)},
        {'a': dict.fromkeys(map(hex, range(count)), 2)},
    )


SHAPES = {
    'small': build_review(),
    'usual': build_usual(),
    'spaces': b' ' * SIZE,
    'zeros': b'\0' * SIZE,
    'inner spaces': fill(b'[[],' + b' ' * SIZE + b'1]'),
    'inner numbers': fill(b'[[],' + b'1,' * (SIZE // 2) + b'1]'),
    'numbers': repeat(b'1'),
    'floats': repeat(b'1.5'),
    'small strings': repeat(b'"ab"'),
    'keys': build_keys(),
    'changes': build_changes(),
    'lists': repeat(b'[]'),
    'objects': repeat(b'{}'),
    'nested lists': repeat(b'[[[[[[[[]]]]]]]]'),
    'nested objects': repeat(b'{"a":{}}'),
    'deep lists': repeat(b'[' * 200 + b']' * 200),
    'as many objects as permitted': repeat(b'{"a":{"%s":1}}' % (b'b' * 30), 249_000 * 41 // 2),
    'as many lists as permitted': repeat(b'["%s",234,567]' % (b'a' * 14), 249_000 * 26),
    'long string': fill(b'"' + b'x' * SIZE + b'"'),
    'long string of escapes': fill(b'"' + b'\\n' * (SIZE // 2) + b'"'),
    'long string with no end': b'{"a":"' + b'x' * SIZE,
    'long number': fill(b'1' * SIZE),
    'brackets': b'[' * SIZE,
    'quotes': b'{' + b'"' * SIZE,
    '255 kB of lists': repeat(b'[]', MEDIUM),
    '255 kB of nested lists': repeat(b'[[[[[[[[]]]]]]]]', MEDIUM),
    '255 kB of nested objects': repeat(b'{"a":{}}', MEDIUM),
    '255 kB of numbers': repeat(b'1', MEDIUM),
    '255 kB of keys': build_keys(MEDIUM),
}


def measure(victim, review):
    """
    Return the status, the seconds until the answer, and the seconds for which the event loop was
    held.
    """
    victim.review()
    answer = victim.review(review, '/mark')
    time.sleep(0.3)  # the memory is freed, and the garbage is collected after the answer
    [longest] = victim.review().json['response']['warnings']
    return answer.status, answer.delay, float(longest)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--plain', action='store_true')
    parser.add_argument('shapes', nargs='*')
    given = parser.parse_args()
    runner = (sys.executable, '-c', PLAIN) if given.plain else (sys.executable, '-m', 'kopf')
    with (
        tempfile.TemporaryDirectory() as folder,
        running_operator(pathlib.Path(folder), insecure=True, runner=runner) as victim,
    ):
        for shape in given.shapes or SHAPES:
            statuses, delays, holds = zip(
                *[measure(victim, SHAPES[shape]) for _ in range(5)], strict=True
            )
            low, middle, high = (round(1000 * sorted(holds)[index]) for index in (0, 2, 4))
            sys.stdout.write(
                f'{shape:30} HTTP {statuses[0]} in {min(delays):5.2f} s, '
                f'the loop is held for {low:4} {middle:4} {high:4} ms\n'
            )
            sys.stdout.flush()


if __name__ == '__main__':
    main()
