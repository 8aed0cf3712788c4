"""
Heaps: free memory that the allocator keeps instead of returning it to the system.

After a large operation, it can be tens of megabytes, permanently: a few small allocations in
between are enough to hold it.
"""

import ctypes
import functools
from collections.abc import Callable


def trim() -> None:
    """Return free memory to the system if the C library can. It takes a few milliseconds."""
    _find_trimmer()(0)


@functools.cache
def _find_trimmer() -> Callable[[int], object]:
    try:
        # A function of glibc; it lets other threads run.
        trimmer: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda _: None
    return trimmer
