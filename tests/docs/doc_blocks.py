"""
Code blocks of the documentation: what is in them, and where they are.

Only the fences of Markdown are understood, as our pages use them: at any indentation, of any
length. The fences of directives (their languages are in braces) are transparent: blocks inside of
them count, too.
"""

import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Iterator

DOCS = pathlib.Path(__file__).parent.parent.parent / 'docs'

FENCE = re.compile(r'^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})(?P<info>.*)$')


@dataclasses.dataclass(frozen=True)
class Block:
    language: str
    flags: frozenset[str]
    line: int  # of the first line of its code, counted from 1
    code: str


def list_pages() -> list[str]:
    """
    The pages that are there, by their paths without suffixes; what is built from them is not looked
    at.
    """
    paths = [path.relative_to(DOCS) for path in DOCS.rglob('*.md')]
    return sorted(
        path.with_suffix('').as_posix() for path in paths if not path.parts[0].startswith('_')
    )


def read_blocks(page: str, *languages: str) -> list[Block]:
    text = (DOCS / page).with_suffix('.md').read_text()
    return [block for block in parse_blocks(text) if block.language in languages]


def parse_blocks(text: str) -> Iterator[Block]:
    opening: re.Match[str] | None = None
    lines: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if opening is not None and match is not None and is_closing(match, opening):
            language, *flags = opening['info'].split() or ['']
            yield Block(language, frozenset(flags), start, textwrap.dedent('\n'.join(lines)) + '\n')
            opening = None
        elif opening is not None:
            lines.append(line)
        elif match is not None and match['info'].strip() and not match['info'].startswith('{'):
            opening, lines, start = match, [], number + 1


def is_closing(match: re.Match[str], opening: re.Match[str]) -> bool:
    return not match['info'].strip() and match['fence'].startswith(opening['fence'])
