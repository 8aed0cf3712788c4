"""
Heaps: the memory that is free but is not returned to the system, as the allocator keeps it for later.

After something large, it can be tens of megabytes, for good: a few small allocations in between are enough for that.
"""

import ctypes
import functools
from collections.abc import Callable


def trim() -> None:
    """Return the free memory to the system, if the C library can do that. It takes some milliseconds."""
    _find_trimmer()(0)


@functools.cache
def _find_trimmer() -> Callable[[int], object]:
    try:
        trimmer: Callable[[int], object] = ctypes.CDLL(
            None
        ).malloc_trim  # of glibc; it lets other threads go on
    except (AttributeError, OSError, TypeError):
        return lambda _: None
    return trimmer
