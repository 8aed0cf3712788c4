"""
Line decoder: a stream of bytes, split by line ends.

The costs are proportional to the bytes, regardless of the lengths of lines and chunks.
"""


class LineDecoder:
    """A decoder of chunks into complete lines, without line ends and without blank lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the beginning of an incomplete line

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the lines that it completes."""
        head, *rest = chunk.split(b'\n')
        self._parts.append(head)
        if not rest:
            return []
        lines = [b''.join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        return [line for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        """Return the last line if it has no line end, once; it may be incomplete."""
        line = b''.join(self._parts)
        self._parts = []
        return [line] if line.strip() else []
