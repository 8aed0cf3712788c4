"""
Mutations: new inputs made of known ones, both as bytes and as the JSON documents in their lines.

All chance comes from the given generator: the same seed makes the same inputs.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

LIMIT = 8192
"""Bytes of an input at most: long inputs are slow, and rarely find more than short ones."""

TOKENS = [
    b'\r\n',
    b'\r\n\r\n',
    b'\n',
    b'\n\n',
    b'\n%%\n',
    b'\0',
    b'\xff',
    b'\xc3',
    b'\xef\xbb\xbf',
    b'"',
    b'\\',
    b'\\ud800',
    b'%2F',
    b'%',
    b'%00',
    b'..',
    b'/',
    b'//',
    b'~1',
    b'~',
    b'-',
    b'0',
    b'-1',
    b'1e309',
    b'9' * 25,
    b'9' * 5000,
    b'NaN',
    b'null',
    b'true',
    b'{}',
    b'[]',
    b'[' * 50,
    b'{"a":' * 50,
    b',',
    b'=',
    b'!=',
    b' in ',
    b'(',
    b')',
    b'*',
    b'$',
    b'&a ',
    b'*a',
    b'<<: ',
    b'!!int ',
    b'!!bool ',
    b'!!timestamp ',
    b'!!binary ',
    b'? ',
    b'- ',
    b': ',
    b'---\n',
    b'1Gi',
    b'1e3',
    b'2020-01-01T00:00:00Z',
    b'chunked',
    b'gzip',
    b'Content-Length: ',
    b'Transfer-Encoding: ',
    b';',
    b'0\r\n\r\n',
]

SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    0.5,
    -0.0,
    1e300,
    '',
    ' ',
    'x',
    'a.b/c',
    '-',
    '/',
    '~',
    '$patch',
    '\0',
    '\n',
    'é',
    '\ud800',
    '0',
    '-1',
    '9' * 30,
    '1Gi',
    '100m',
    '1e400',
    '2020-01-01T00:00:00Z',
    '9999-12-31T23:59:59.999999999+14:00',
    'x' * 300,
    'kopf.zalando.org/last-handled-configuration',
    '(a|b)*c',
    '[',
    '{}',
    '[]',
]
CONTAINERS = [
    [],
    {},
    [[]],
    [None],
    [{}],
    [0, 'x'],
    {'': None},
    {'x': {}},
    {'name': 'x'},
    {'x': [{'x': 1}]},
    [{'name': 'x'}],
]


def mutate(source: bytes, pool: Sequence[bytes], chance: random.Random) -> bytes:
    """Change an input in one place or a few; others of the pool lend their parts."""
    changed = source
    for _ in range(chance.choice([1, 1, 1, 2, 3, 5])):
        document = _mutate_json(changed, pool, chance) if chance.random() < 0.6 else None
        changed = _mutate_bytes(changed, pool, chance) if document is None else document
    return changed[:LIMIT]


def _mutate_bytes(source: bytes, pool: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = sorted(chance.choices(range(len(source) + 1), k=2))
    other = chance.choice(pool) if pool else source
    begin, stop = sorted(chance.choices(range(len(other) + 1), k=2))
    short = min(end, start + chance.choice([1, 2, 4, 16]))
    ways: list[Callable[[], bytes]] = [
        lambda: source[:start] + chance.choice(TOKENS) + source[start:],
        lambda: source[:start] + chance.choice(TOKENS) + source[short:],
        lambda: source[:start] + source[short:],
        lambda: source[:start] + source[start:end] * 2 + source[end:],
        lambda: source[:start] + other[begin:stop] + source[end:],
        lambda: source[:start] + chance.randbytes(1) + source[start + 1 :],
        lambda: _swap_lines(source, chance),
        lambda: source[:end],
    ]
    return chance.choice(ways)()


def _swap_lines(source: bytes, chance: random.Random) -> bytes:
    lines = source.split(b'\n')
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b'\n'.join(lines)


def _mutate_json(source: bytes, pool: Sequence[bytes], chance: random.Random) -> bytes | None:
    """Change one of the documents that take a line each; nothing if there are none."""
    lines = source.split(b'\n')
    numbers = [number for number, line in enumerate(lines) if line[:1] in (b'{', b'[')]
    if not numbers:
        return None
    number = chance.choice(numbers)
    document = _load(lines[number])
    if document is None:
        return None
    donor = _load(
        chance.choice([line for line in chance.choice(pool).split(b'\n') if line] or [b''])
        if pool
        else b''
    )
    try:
        changed = _mutate_value(document, donor, chance)
        lines[number] = json.dumps(changed, separators=(',', ':')).encode()
    except RecursionError:  # it is nested deeply enough already
        return None
    return b'\n'.join(lines)


def _load(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _list_places(value: Any) -> list[tuple[Any, Any]]:
    """List all containers with the keys of all that is in them."""
    keys: Any = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    return [place for key in keys for place in [(value, key), *_list_places(value[key])]]


def _mutate_value(document: Any, donor: Any, chance: random.Random) -> Any:
    places = _list_places(document)
    if not places:
        return chance.choice(CONTAINERS)
    container, key = chance.choice(places)
    borrowed = [parent[name] for parent, name in _list_places(donor)] or CONTAINERS
    values: list[Callable[[], Any]] = [
        lambda: chance.choice(SCALARS),
        lambda: chance.choice(CONTAINERS),
        lambda: chance.choice(borrowed),
        lambda: [container[key]],
        lambda: {chance.choice(['x', '', 'name', 'metadata', 'spec', '$patch']): container[key]},
        lambda: [container[key]] * chance.choice([2, 3, 50]),
        lambda: _nest(container[key], chance.choice([5, 50, 500])),
    ]
    match chance.randrange(4):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            names = [name for _, name in places if isinstance(name, str)]
            container[
                chance.choice([*names, '', 'x', '$patch', '$setElementOrder/x', 'a/b', '~'])
            ] = container.pop(key)
        case _:
            # Apart from the original.
            container[key] = json.loads(json.dumps(chance.choice(values)()))
    return document


def _nest(value: Any, depth: int) -> Any:
    for number in range(depth):
        value = [value] if number % 2 else {'x': value}
    return value
