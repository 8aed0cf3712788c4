"""
Packs: objects as bytes, for keeping many of them in memory.

An object of 1.5 kB takes about 12 kB as dicts, 1.5 kB as compact JSON, and 0.4–0.9 kB if it is
compressed with other objects of the same resource as a dictionary: objects of one resource have
the same keys and many of the same values. The compression takes about 20 µs per object, the
decompression 5 µs, so small sets of objects are kept uncompressed.

Of the managed fields, only the entries that server-side apply made for our manager are kept.
"""

import zlib
from collections.abc import Mapping
from typing import Any

from kopf._cogs.helpers import jsons

THRESHOLD = 500
"""How many objects of one resource are kept uncompressed."""

_COMPRESSED = b'\0'  # the first byte; JSON never begins with it
_WINDOW = -13  # 8 kB, with no header and no checksum: the bytes never leave the process
_MEMORY = 6


class Packer:
    """
    Packs and unpacks the objects of one resource.

    Each object is unpacked by the packer that packed it. It can be used from any thread.
    """

    def __init__(self, *, manager: str | None = None, threshold: int = THRESHOLD) -> None:
        self._manager = manager
        self._threshold = threshold
        self._first: bytes | None = None
        # The states in which the dictionary is already read. They are copied for each object.
        self._compressor: Any = None
        self._decompressor: Any = None

    def pack(self, body: Mapping[str, Any], count: int = 0) -> bytes:
        """
        Pack an object, with this number of objects already kept.

        Raises `ValueError` if the object is nested too deeply for JSON.
        """
        raw = jsons.dumps(reduce_managed_fields(body, self._manager))
        if self._first is None:
            self._first = memoryview(raw).tobytes()
        if count < self._threshold:
            # A copy, as orjson allocates a buffer of at least 4 kB for each of its results.
            return memoryview(raw).tobytes()

        if self._compressor is None:
            self._prepare(self._first + raw)  # two samples: either can be unusual
        compressor = self._compressor.copy()
        return b''.join((_COMPRESSED, compressor.compress(raw), compressor.flush()))

    def unpack(self, packed: bytes) -> dict[str, Any]:
        """Unpack an object: it is a new dict every time."""
        if packed.startswith(_COMPRESSED):
            packed = self._decompressor.copy().decompress(memoryview(packed)[1:])
        body: dict[str, Any] = jsons.loads(packed)
        return body

    def _prepare(self, samples: bytes) -> None:
        """Choose the dictionary, once for all objects: the last bytes of it are used."""
        self._decompressor = zlib.decompressobj(_WINDOW, zdict=samples)
        self._compressor = zlib.compressobj(1, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=samples)


def reduce_managed_fields(body: Mapping[str, Any], manager: str | None) -> Mapping[str, Any]:
    """Return the object with only those managed fields that were applied by this manager."""
    metadata = body.get('metadata')
    if not isinstance(metadata, Mapping) or 'managedFields' not in metadata:
        return body
    entries = metadata['managedFields']
    kept = [entry for entry in entries or () if _is_applied(entry, manager)]
    rest = {name: value for name, value in metadata.items() if name != 'managedFields'}

    return {**body, 'metadata': {**rest, **({'managedFields': kept} if kept else {})}}


def _is_applied(entry: Any, manager: str | None) -> bool:
    return (
        isinstance(entry, Mapping)
        and entry.get('manager') == manager
        and entry.get('operation') == 'Apply'
    )
