"""
Lines: a stream of bytes, cut by line ends.

The costs are proportional to the bytes, however long the lines are and however small the chunks are.
"""


class Splitter:
    """Takes chunks as they come, and gives lines as they are complete: without their ends, and without blank ones."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line with no end yet

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; give the lines that are complete with it."""
        head, *rest = chunk.split(b'\n')
        self._parts.append(head)
        if not rest:
            return []
        lines = [b''.join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        return [line for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        """Give the last line if it has no end, once; it is possibly not whole."""
        line, self._parts = b''.join(self._parts), []
        return [line] if line.strip() else []
