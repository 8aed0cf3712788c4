"""
The way from the changes of an object to the bytes of its patch is short, and each step has its own
concern: the plan, the sender, one patch, its retries, the credentials, the limits, the session, the
connection.
"""

import asyncio
import sys

import pytest
from things import BLOCK, put

LIMIT = 8


@pytest.fixture
def stacks(monkeypatch):
    """Our own frames at each writing of bytes to a connection, the outermost first."""
    stacks = []
    transport_class = asyncio.selector_events._SelectorSocketTransport
    write = transport_class.write

    def record(transport, data):
        frame, names = sys._getframe(1), []
        while frame is not None:
            if '/kopf/_cogs/' in frame.f_code.co_filename.replace('\\', '/'):
                names.append(frame.f_code.co_name)
            frame = frame.f_back
        if bytes(data).startswith(b'PATCH '):
            stacks.append(names[::-1])
        return write(transport, data)

    monkeypatch.setattr(transport_class, 'write', record)
    return stacks


@pytest.mark.parametrize('is_connected', [False, True], ids=['first', 'next'])
async def test_few_calls_are_between_changes_and_their_bytes(thing, stacks, is_connected):
    await thing.create()
    if is_connected:
        await thing.apply({'spec': {'x': 0}})
        thing.body = await thing.get()
        stacks.clear()

    await thing.apply({'spec': {'x': 1}}, holding=BLOCK, fns=[put(2, 'spec', 'y')])

    assert len(stacks) == 2
    for names in stacks:
        assert names[0] == 'apply_changes'
        assert len(names) <= LIMIT, names
