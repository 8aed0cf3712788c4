"""
Warning headers: the warnings of a response as values of the ``Warning`` headers.
"""

import re
from collections.abc import Iterable

MAX_TOTAL = 4 * 1024
"""The limit of all warnings of a response in characters; beyond it, long warnings are cut."""

MAX_ITEM = 256
"""The length of a cut warning in characters."""

_CONTROLS = re.compile(r'[\x00-\x1f\x7f-\x9f]')
_SPECIALS = re.compile(r'(["\\])')


def build_headers(warnings: Iterable[str]) -> list[str]:
    """Build the headers' values; empty, repeated and invalid warnings are omitted."""
    texts = [text for text in dict.fromkeys(warnings) if text and _CONTROLS.search(text) is None]
    if sum(map(len, texts)) > MAX_TOTAL:
        texts = _cut(texts)
    return ['299 - "' + _SPECIALS.sub(r'\\\1', text) + '"' for text in texts]


def _cut(texts: Iterable[str]) -> list[str]:
    kept: list[str] = []
    total = 0
    for text in texts:
        if total >= MAX_TOTAL:
            break
        kept.append(text[:MAX_ITEM])
        total += len(kept[-1])

    return kept
