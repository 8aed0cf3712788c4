"""
Flags: one-bit signals between the operator and its caller, in the same event loop or in another
thread.
"""

import asyncio
import concurrent.futures
import contextlib
import threading

Flag = asyncio.Future[None] | asyncio.Event | concurrent.futures.Future[None] | threading.Event
"""An object to be raised and waited for; asyncio flags belong to the operator's event loop."""

POLLING = 0.5
"""Seconds between checks whether a threading flag is awaited; raising is noticed immediately."""


async def wait_until_raised(flag: Flag) -> None:
    """
    Wait until the flag is raised in any way: set, resolved, failed, or cancelled.

    Cancelling the wait does not affect the flag. It may leave a thread for a moment, but this
    thread does not block the exit.
    """
    if isinstance(flag, asyncio.Event):
        await flag.wait()
    elif isinstance(flag, asyncio.Future):
        await asyncio.wait({flag})
    else:
        await _wait_for_threads(flag)


def raise_flag(flag: Flag | None) -> None:
    """Raise the flag, if there is one. Can be repeated."""
    if isinstance(flag, asyncio.Event | threading.Event):
        flag.set()
    elif flag is not None and not flag.done():
        # Another thread may raise it first.
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            flag.set_result(None)


def check_flag(flag: object) -> None:
    """Raise `TypeError` for anything that is not a flag."""
    kinds = (asyncio.Future, asyncio.Event, concurrent.futures.Future, threading.Event)
    if flag is not None and not isinstance(flag, kinds):
        raise TypeError(f'A flag is a future or an event, of asyncio or of threads; got {flag!r}.')


async def _wait_for_threads(flag: concurrent.futures.Future[None] | threading.Event) -> None:
    loop = asyncio.get_running_loop()
    raised = asyncio.Event()
    is_needed = True

    def notify(*_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(raised.set)

    def watch(event: threading.Event) -> None:
        while is_needed and not event.wait(POLLING):
            pass
        notify()

    if isinstance(flag, threading.Event):
        threading.Thread(target=watch, args=(flag,), name='flag', daemon=True).start()
    else:
        flag.add_done_callback(notify)

    try:
        await raised.wait()
    finally:
        is_needed = False
