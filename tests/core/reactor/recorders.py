"""
Handlers of queues that remember what they were called with.
"""

import asyncio

from kopf._core.reactor import queueing

Verdict = queueing.Verdict


def build_event(number, uid='uid1', type='MODIFIED'):
    return {'type': type, 'object': {'metadata': {'uid': uid, 'resourceVersion': str(number)}}}


class Recorder:
    """Handles objects as it is told to, and remembers what it was called with."""

    def __init__(self, virtual_time):
        self.calls = []  # (uid, numbers of events, number of the body, when)
        self.running = []
        self.most_at_once = 0
        self.gates = {}  # by uid: how long to handle, or what to wait for, or an error
        self.verdicts = {}  # by uid: the verdicts to return, one by one; then none
        self._time, self._progress = virtual_time, asyncio.Condition()

    async def handle(self, batch):
        uid = batch.body['metadata']['uid']
        numbers = [int(event['object']['metadata']['resourceVersion']) for event in batch.events]
        assert uid not in self.running, 'The same object is handled twice at once.'
        self.calls.append(
            (uid, numbers, int(batch.body['metadata']['resourceVersion']), self._time.elapsed)
        )
        self.running.append(uid)
        self.most_at_once = max(self.most_at_once, len(self.running))
        await self._notify()
        try:
            await self._pass_gate(self.gates.get(uid, 0))
        finally:
            self.running.remove(uid)
        await self._notify()
        return self.verdicts[uid].pop(0) if self.verdicts.get(uid) else Verdict()

    async def _pass_gate(self, gate):
        if isinstance(gate, list):
            gate = gate.pop(0) if gate else 0
        if isinstance(gate, BaseException):
            raise gate
        await (gate.wait() if isinstance(gate, asyncio.Event) else asyncio.sleep(gate))

    async def _notify(self):
        async with self._progress:
            self._progress.notify_all()

    async def wait_until(self, condition):
        async with asyncio.timeout(10_000), self._progress:
            await self._progress.wait_for(lambda: condition(self))

    async def wait_for_calls(self, count):
        await self.wait_until(lambda self: len(self.calls) >= count and not self.running)

    @property
    def batches(self):
        return [(uid, numbers) for uid, numbers, *_ in self.calls]


async def settle():
    """Let everything happen that can happen now."""
    for _ in range(10):
        await asyncio.sleep(0)
