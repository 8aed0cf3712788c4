"""
Guards of leaderships: when a blocked process is ended.
"""

import dataclasses
import threading

import pytest

from kopf._cogs.clients import fences
from kopf._core.reactor import guards


@pytest.fixture
async def fence():
    fence = fences.Fence()
    fence.announce('ns/lease', 10.0)
    return fence


@pytest.mark.guarantee('LDR-010')
async def test_the_process_ends_after_the_margin(fence):
    ended = threading.Event()
    now = fence.read_clocks()
    fence.extend(dataclasses.replace(now, boot=now.boot - 11.9))
    guard = guards.Guard(fence, 2.0, leave=ended.set)
    guard.start()

    assert ended.wait(10)
    assert fence.measure_rest() <= -2.0


@pytest.mark.guarantee('LDR-010')
async def test_the_process_continues_while_the_lease_is_renewed(fence):
    ended = threading.Event()
    now = fence.read_clocks()
    fence.extend(dataclasses.replace(now, boot=now.boot - 11.9))
    guard = guards.Guard(fence, 2.0, leave=ended.set)
    fence.extend(now)
    guard.start()

    assert not ended.wait(0.2)
    guard.dismiss()
    guard._thread.join(10)
    assert not ended.is_set()
