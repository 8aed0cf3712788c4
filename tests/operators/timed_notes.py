"""
Timed notes: what happens in a test, and when, in whole seconds of its virtual time.
"""

import asyncio


class TimedNotes(list):
    """Notes of what has happened, each with the seconds since the first one."""

    def __init__(self):
        super().__init__()
        self._since = None

    def note(self, *what):
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        self.append((round(now - self._since), *what))

    def clear(self):
        super().clear()
        self._since = None

    @property
    def moments(self):
        return [moment for moment, *_ in self]

    @property
    def intervals(self):
        return [
            after - before for before, after in zip(self.moments, self.moments[1:], strict=False)
        ]


async def pass_time(seconds):
    """Let this much of virtual time pass, with everything that is to happen in it."""
    await asyncio.sleep(seconds)
